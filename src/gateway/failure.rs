//! How failures become errors that a caller can act on: one table for upstreams, one for policy.

use serde_json::json;

use crate::call::{Asking, ErrorCode, ToolError};
use crate::id::Scope;
use crate::jobs::{Full, TooMany};
use crate::policy::{Confirmation, Reason, ScopeChallenge};
use crate::upstream::{ErrorSource, Retry, UpstreamError};

use super::PendingView;

/// After how many seconds a caller that found no room should look again: jobs end in about that time.
const RETRY_SECONDS: u64 = 5;

/// What is known of the call that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failed<'a> {
    /// The tool's wire name.
    pub(super) tool: &'a str,
    /// Whether the tool only reads.
    pub(super) read_only: bool,
    /// How long the call was given, in milliseconds.
    pub(super) waited_ms: u128,
}

/// The table of upstream failures. A write whose outcome is not known is never anything else, whatever broke.
pub(super) fn upstream_failure(error: &UpstreamError, of: Failed<'_>) -> ToolError {
    // An answer that cannot be read came after all: what it says of the write is not known.
    let unread = matches!(error.source_kind, ErrorSource::TooLarge | ErrorSource::Malformed);
    if !of.read_only && (error.retry == Retry::Unknown || (unread && error.retry != Retry::Safe)) {
        return unknown_outcome(of, &error.message);
    }
    let message = |advice: &str| format!("{} {advice}", full_stop(&error.message));
    // An adapter that says `Safe` knows that nothing was sent: as harmless as a read.
    let of = Failed { read_only: of.read_only || error.retry == Retry::Safe, ..of };
    let mapped = match error.source_kind {
        ErrorSource::Caller => {
            ToolError::new(ErrorCode::InvalidArgument, message("Correct the arguments and call again."))
        }
        ErrorSource::Internal => ToolError::new(
            ErrorCode::InternalError,
            message("This is a fault of the server or its configuration: tell its operator."),
        ),
        ErrorSource::Upstream => ToolError::new(
            ErrorCode::UpstreamUnavailable,
            message(match error.retry {
                Retry::Never => "Trying again will not help; tell the operator.",
                Retry::Safe | Retry::After(_) | Retry::Unknown => "Try again later.",
            }),
        ),
        ErrorSource::Cancelled => return cancelled(of),
        ErrorSource::Timeout => return timed_out(of, &error.message),
        ErrorSource::TooLarge => ToolError::new(
            ErrorCode::UpstreamSchemaMismatch,
            message("Ask for less: narrow the question or lower its limit."),
        ),
        ErrorSource::Malformed => ToolError::new(
            ErrorCode::UpstreamSchemaMismatch,
            message("The upstream broke its own contract: tell the operator."),
        ),
        ErrorSource::Credentials => ToolError::new(
            ErrorCode::AuthenticationFailed,
            message("The server's own credentials were refused: only its operator can mend that."),
        ),
        ErrorSource::Unsupported => ToolError::new(
            ErrorCode::UnsupportedCapability,
            message("The upstream has no such function (any more): use another tool."),
        ),
    };
    match error.retry {
        Retry::Never => mapped,
        Retry::Safe => mapped.retryable(),
        Retry::After(seconds) => {
            let code = if mapped.code == ErrorCode::UpstreamUnavailable {
                ErrorCode::RateLimited
            } else {
                mapped.code
            };
            ToolError { code, ..mapped }.retry_after(seconds)
        }
        // Only reading tools come here: repeating a read does no harm.
        Retry::Unknown => mapped.retryable(),
    }
}

/// The deadline passed: a read may be repeated, a write may have happened.
pub(super) fn timed_out(of: Failed<'_>, what: &str) -> ToolError {
    if !of.read_only {
        return unknown_outcome(of, what);
    }
    ToolError::new(
        ErrorCode::Timeout,
        format!(
            "{} It was given {} ms and stopped. Nothing was changed: try again, or ask for less.",
            full_stop(what),
            of.waited_ms
        ),
    )
    .retryable()
}

/// A write went out and nobody knows what became of it.
pub(super) fn unknown_outcome(of: Failed<'_>, what: &str) -> ToolError {
    ToolError::new(
        ErrorCode::UnknownOutcome,
        format!(
            "{} The call of `{}` may have been carried out or not. Do not repeat it: look first whether it \
             took effect.",
            full_stop(what),
            of.tool
        ),
    )
}

/// The caller gave up before there was an answer.
pub(super) fn cancelled(of: Failed<'_>) -> ToolError {
    if of.read_only {
        ToolError::new(ErrorCode::Timeout, "The call was cancelled; nothing was changed.").retryable()
    } else {
        unknown_outcome(of, "The call was cancelled on its way.")
    }
}

/// Every slot of the upstream is taken for as long as the caller would wait. Nothing was sent.
pub(super) fn too_busy(of: Failed<'_>) -> ToolError {
    ToolError::new(
        ErrorCode::RateLimited,
        format!(
            "The upstream of `{}` is busy with other calls; nothing was sent. Try again shortly.",
            of.tool
        ),
    )
    .retry_after(1)
}

/// So many calls wait for the upstream that there is no room to wait. Nothing was sent.
pub(super) fn queue_full(full: Full, tool: &str) -> ToolError {
    let message = format!("`{tool}` was not called: {full}. Wait for some of them, then try again.");
    ToolError::new(ErrorCode::RateLimited, message).retry_after(RETRY_SECONDS)
}

/// There is no room for another job. Nothing was sent.
pub(super) fn too_many(full: TooMany) -> ToolError {
    let message = format!("The call was not made: {full}. Wait for some of them, or cancel some.");
    ToolError::new(ErrorCode::RateLimited, message).retry_after(RETRY_SECONDS)
}

/// The key came with other arguments than before. Nothing was sent.
pub(super) fn replay_collision() -> ToolError {
    ToolError::new(
        ErrorCode::ReplayKeyCollision,
        "This `request_key` was used for a call with other arguments a moment ago; nothing was sent. Repeat that \
         call with its own arguments, or give this one a new key.",
    )
    .field("/request_key")
}

/// A call with a key could not be written down first, so it was not sent: its promise could not be kept.
pub(super) fn not_kept() -> ToolError {
    let message = "The server cannot write down the key of this call, so it was not made. Try again, or tell the \
                   operator.";
    ToolError::new(ErrorCode::InternalError, message).retryable()
}

/// The caller gave up waiting. Nobody reads this but the log.
pub(super) fn left(read_only: bool) -> ToolError {
    cancelled(Failed { tool: "the tool", read_only, waited_ms: 0 })
}

/// docent itself broke off a call; what the upstream did is not known.
pub(super) fn broke_off() -> ToolError {
    ToolError::new(
        ErrorCode::UnknownOutcome,
        "The server made a mistake and broke off the call. It may have been carried out or not: look first whether \
         it took effect, and tell the operator.",
    )
}

/// The tool is in the catalog, its upstream is not: between two generations, or taken out just now.
pub(super) fn gone(tool: &str) -> ToolError {
    ToolError::new(
        ErrorCode::UpstreamUnavailable,
        format!("The upstream of `{tool}` is not there (any more). List or search the tools again."),
    )
}

/// A fault in docent itself; what it was stands in the log.
pub(super) fn internal() -> ToolError {
    ToolError::new(ErrorCode::InternalError, "The server made a mistake here. Tell its operator.")
}

/// A refusal by policy, for a tool that the caller may know of.
pub(super) fn denial(tool: &str, reason: &Reason) -> ToolError {
    match reason {
        Reason::Hidden => not_found(),
        Reason::Denied(text) => {
            ToolError::new(ErrorCode::Forbidden, format!("`{tool}` is refused: {}", full_stop(text)))
        }
        Reason::NotAllowed => ToolError::new(
            ErrorCode::Forbidden,
            format!("No rule allows you this call of `{tool}`. Ask the operator, or use another tool."),
        ),
        Reason::Tier { required } => ToolError::new(
            ErrorCode::TierNotPermitted,
            format!("`{tool}` needs the tier `{required}`, which you do not have. Ask the operator for it."),
        )
        .details(json!({ "required_tier": required })),
        Reason::PolicyFault(_) => ToolError::new(
            ErrorCode::Forbidden,
            format!("`{tool}` is refused because a policy could not be evaluated. Tell the operator."),
        ),
    }
}

/// A person has to confirm first: what `describe` says of it, and what a call without a way to ask is told.
pub(super) fn confirmation(tool: &str, asked: &Confirmation) -> ToolError {
    ToolError::new(
        ErrorCode::ConfirmationRequired,
        format!("`{tool}` needs a person's confirmation: {}", full_stop(&asked.question)),
    )
    .details(json!({ "question": asked.question }))
}

/// The same for a call that waits for an operator now. `decayed` says why an earlier yes does not hold any more.
pub(super) fn confirmation_waits(
    tool: &str,
    asked: &Confirmation,
    waiting: &PendingView,
    decayed: Option<&str>,
) -> ToolError {
    let mut error = confirmation(tool, asked);
    let id = &waiting.id;
    error.message.push_str(
        " Nothing was done. An operator has been asked; once there is a yes, make the same call again. Until then \
         repeating it changes nothing.",
    );
    let mut details = json!({
        "question": asked.question,
        "confirmationChannel": "console",
        "confirmation_id": id,
        "approve_at": format!("/api/v1/confirmations/{id}/approve"),
        "expires_in_seconds": waiting.expires_in_seconds,
    });
    if let Some(why) = decayed {
        error.message = format!("{} An earlier yes does not hold any more: {why}.", error.message);
        if let Some(members) = details.as_object_mut() {
            members.insert("earlier_grant".to_owned(), why.into());
        }
    }
    error.details(details)
}

/// A challenge as a tool error, for clients and wires that cannot act on an HTTP 403.
pub fn challenge_error(challenge: &ScopeChallenge) -> ToolError {
    let scopes: Vec<&str> = challenge.scopes.iter().map(Scope::as_str).collect();
    ToolError::new(
        ErrorCode::Forbidden,
        format!("This call needs the scopes {}: sign in again with them, then repeat it.", scopes.join(", ")),
    )
    .details(json!({ "required_scopes": scopes }))
}

/// A tool that needs what its client did not declare, as a tool error.
pub fn cannot_ask(missing: &[Asking]) -> ToolError {
    let names: Vec<&str> = missing.iter().map(|asking| asking.capability()).collect();
    ToolError::new(
        ErrorCode::UnsupportedCapability,
        format!(
            "This tool asks its client for something, and this client did not declare that it can: {}. Use \
             another client, or another tool.",
            names.join(", ")
        ),
    )
}

/// A tool that is answered with a task, called by a client that takes none.
pub fn needs_task(server: &str) -> ToolError {
    ToolError::new(
        ErrorCode::UnsupportedCapability,
        format!(
            "This tool takes long and is answered with a task, which this client does not take. Run it with \
             {server}_run_tool: that gives a job_id, and {server}_job_status its result."
        ),
    )
}

/// An equal call asks the client that made it.
pub(super) fn asks_another() -> ToolError {
    let message = "An equal call, made by another client, waits for that client's answer. Make the call again once it is given.";
    ToolError::new(ErrorCode::Conflict, message).retry_after(10)
}

/// A job whose question nobody answered in time.
pub(super) fn unanswered() -> ToolError {
    ToolError::new(
        ErrorCode::ConfirmationRequired,
        "The tool asked its client something and got no answer in time, so it did not go on. Make the call again \
         and answer what it asks.",
    )
}

/// The one answer for a tool that does not exist, is hidden or is forbidden, where a result is due. Nothing of
/// the question is in it: three questions, the same bytes.
pub(super) fn not_found() -> ToolError {
    ToolError::new(
        ErrorCode::NotFound,
        "There is no such tool for you. Search for tools by what you need; names are as the search gives them.",
    )
    .field("/tool")
}

/// A sentence, ended.
fn full_stop(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ErrorSource; 9] = [
        ErrorSource::Caller,
        ErrorSource::Internal,
        ErrorSource::Upstream,
        ErrorSource::Cancelled,
        ErrorSource::Timeout,
        ErrorSource::TooLarge,
        ErrorSource::Malformed,
        ErrorSource::Credentials,
        ErrorSource::Unsupported,
    ];

    fn map(source_kind: ErrorSource, retry: Retry, read_only: bool) -> ToolError {
        let error =
            UpstreamError { source_kind, retry, message: "it broke".into(), detail: "10.0.0.1".into() };
        upstream_failure(&error, Failed { tool: "u_t", read_only, waited_ms: 5 })
    }

    #[test]
    fn a_write_that_may_have_happened_is_never_retryable() {
        for source in ALL {
            let e = map(source, Retry::Unknown, false);
            assert_eq!((e.code, e.retryable), (ErrorCode::UnknownOutcome, false), "{source:?}");
        }
        for source in [ErrorSource::Timeout, ErrorSource::Cancelled] {
            for retry in [Retry::Never, Retry::After(1)] {
                assert!(!map(source, retry, false).retryable, "{source:?} {retry:?}");
            }
            assert!(map(source, Retry::Safe, false).retryable, "nothing was sent: {source:?}");
        }
    }

    #[test]
    fn every_source_has_its_code_and_nothing_internal_shows() {
        let codes: Vec<_> = ALL.iter().map(|s| map(*s, Retry::Never, true).code).collect();
        assert_eq!(
            codes,
            [
                ErrorCode::InvalidArgument,
                ErrorCode::InternalError,
                ErrorCode::UpstreamUnavailable,
                ErrorCode::Timeout,
                ErrorCode::Timeout,
                ErrorCode::UpstreamSchemaMismatch,
                ErrorCode::UpstreamSchemaMismatch,
                ErrorCode::AuthenticationFailed,
                ErrorCode::UnsupportedCapability,
            ]
        );
        for source in ALL {
            for retry in [Retry::Never, Retry::Safe, Retry::After(3), Retry::Unknown] {
                assert!(!map(source, retry, true).message.contains("10.0.0.1"));
            }
        }
        let busy = map(ErrorSource::Upstream, Retry::After(3), true);
        assert_eq!((busy.code, busy.retry_after_seconds), (ErrorCode::RateLimited, Some(3)));
    }
}
