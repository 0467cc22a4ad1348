//! A call as the audit will tell of it: begun with the question, completed as things are decided and done.
//!
//! One record comes of every call, whichever way it ends; also where the caller goes away and the call is dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::audit::{Audit, CallEntry, Dedup, Outcome, Via};
use crate::call::{ErrorCode, ToolCall, ToolOutcome};
use crate::catalog::Tool;
use crate::clock::Clock;
use crate::json::cut;
use crate::policy::{Decision, Reason, RuleRef};
use crate::projection::{Shaped, scrub};

use super::view::View;
use super::{CallAnswer, Gateway, RequestContext};

/// The code of a call that nobody waited for any more.
const ABANDONED: &str = "ABANDONED";
/// Bytes of the name of what was refused: it is the caller's own text.
const NAME_BYTES_MAX: usize = 256;
/// The code of a result that its upstream marked as an error.
const UPSTREAM_ERROR: &str = "UPSTREAM_ERROR";

/// The record of one call while it runs. Nothing is worked out where the audit is off.
#[derive(Debug)]
pub(super) struct Record {
    audit: Audit,
    clock: Clock,
    started: Instant,
    entry: Option<Box<CallEntry>>,
    /// The arguments' compact JSON, where the record took it.
    arguments: Option<String>,
}

impl Gateway {
    /// Begins the record of a call.
    pub(super) fn begin_record(
        &self,
        ctx: &RequestContext,
        view: &View,
        call: &ToolCall,
        via: Via,
    ) -> Record {
        let audit = self.audit().clone();
        let (summary, arguments) = audit.arguments(&call.arguments);
        let entry = audit.is_on().then(|| {
            Box::new(CallEntry {
                request: Arc::clone(&ctx.correlation_id),
                who: Arc::clone(&ctx.principal),
                // What no tool is called may be anything, a pasted secret too.
                tool: Arc::from(&*scrub(&call.tool)),
                upstream: None,
                via,
                decision: "unknown",
                rule: RuleRef { file: Arc::from(""), line: 0 },
                generation: view.snapshot.generation,
                arguments: summary,
                outcome: Outcome::Error,
                code: ABANDONED,
                duration: Duration::ZERO,
                bytes_in: 0,
                bytes_out: 0,
                omitted: 0,
                dedup: None,
                job: None,
            })
        });
        Record { audit, clock: self.clock().clone(), started: self.clock().now(), entry, arguments }
    }
}

/// Records that a resource, a prompt or an agent was refused: what a policy said, and by which rule. To be told
/// like a call of a tool, since each of them can give away as much.
pub(super) fn refusal(
    audit: &Audit,
    ctx: &RequestContext,
    (what, name): (&str, &str),
    (decision, rule): (&str, Option<&RuleRef>),
) {
    if audit.is_on() {
        audit.note(
            "refused",
            json!({
                "request": &*ctx.correlation_id,
                "caller": &*ctx.principal.subject,
                "what": what,
                "name": cut(&scrub(name), NAME_BYTES_MAX),
                "decision": decision,
                "rule": rule.map(ToString::to_string).unwrap_or_default(),
            }),
        );
    }
}

impl Record {
    fn edit(&mut self, edit: impl FnOnce(&mut CallEntry)) {
        if let Some(entry) = &mut self.entry {
            edit(entry);
        }
    }

    /// The arguments' compact JSON as they came in, where the record took it: it need not be made twice.
    pub(super) fn take_arguments(&mut self) -> Option<String> {
        self.arguments.take()
    }

    /// The tool that was meant.
    pub(super) fn tool(&mut self, tool: &Tool) {
        self.edit(|e| {
            (e.tool, e.upstream) = (tool.id.shared(), Some(tool.upstream.shared()));
        });
    }

    /// What policy said.
    pub(super) fn decided(&mut self, decision: &Decision) {
        self.edit(|e| {
            let is_hidden = matches!(decision, Decision::Deny { reason: Reason::Hidden, .. });
            e.decision = if is_hidden { "unknown" } else { decision.word() };
            e.rule = decision.rule().clone();
        });
    }

    /// docent's own tools need no rule.
    pub(super) fn own(&mut self, name: &str) {
        self.edit(|e| (e.tool, e.decision) = (Arc::from(name), "permit"));
    }

    /// It was not carried out, because an equal call was: this came of that one.
    pub(super) fn deduplicated(mut self, dedup: Dedup, outcome: &ToolOutcome) {
        let code = code_of(outcome);
        self.edit(|e| {
            e.dedup = Some(dedup);
            e.code = code;
            e.outcome = match dedup {
                Dedup::Collision => Outcome::Refused,
                _ if code.is_empty() => Outcome::Ok,
                _ => Outcome::Error,
            };
        });
    }

    /// It waits for an equal call that goes on as a job.
    pub(super) fn joined(mut self, job: &str) {
        self.edit(|e| e.dedup = Some(Dedup::Joined));
        self.job(job, true);
    }

    /// The job that the call became, or whose work it is. `pending`: the end is told by another record.
    pub(super) fn job(&mut self, id: &str, pending: bool) {
        self.edit(|e| {
            e.job = Some(Arc::from(id));
            if pending {
                (e.outcome, e.code) = (Outcome::Pending, "");
            }
        });
    }

    /// It was not carried out, and this is what the caller reads.
    pub(super) fn refused(mut self, answer: CallAnswer) -> CallAnswer {
        let code = match &answer {
            CallAnswer::UnknownTool => ErrorCode::NotFound.as_str(),
            CallAnswer::Challenge(_) => "INSUFFICIENT_SCOPE",
            CallAnswer::Ask(_) => ErrorCode::ConfirmationRequired.as_str(),
            CallAnswer::CannotAsk(_) | CallAnswer::NeedsTask => ErrorCode::UnsupportedCapability.as_str(),
            CallAnswer::BadState => ErrorCode::InvalidArgument.as_str(),
            CallAnswer::Outcome(outcome) => code_of(outcome),
            // Nothing that was refused runs on.
            CallAnswer::Running(_) => "",
        };
        self.edit(|e| (e.outcome, e.code) = (Outcome::Refused, code));
        answer
    }

    /// It was carried out.
    pub(super) fn ended(mut self, shaped: &Shaped) {
        let code = code_of(&shaped.outcome);
        self.edit(|e| {
            e.outcome = if code.is_empty() { Outcome::Ok } else { Outcome::Error };
            (e.code, e.bytes_in, e.bytes_out) = (code, shaped.bytes_in, shaped.bytes_out);
            e.omitted = shaped.omitted.len();
        });
    }

    /// One of docent's own tools answered.
    pub(super) fn answered(mut self, answer: &CallAnswer) {
        let CallAnswer::Outcome(outcome) = answer else { return };
        let code = code_of(outcome);
        self.edit(|e| {
            e.outcome = if code.is_empty() { Outcome::Ok } else { Outcome::Error };
            e.code = code;
            if let ToolOutcome::Completed(result) = outcome {
                e.bytes_out = result.structured.as_ref().map_or(0, crate::json::JsonText::len);
            }
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(mut entry) = self.entry.take() {
            entry.duration = self.clock.now().saturating_duration_since(self.started);
            self.audit.call(*entry);
        }
    }
}

/// The code of an outcome; empty for a success.
pub(super) fn code_of(outcome: &ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Completed(result) if result.is_error => UPSTREAM_ERROR,
        ToolOutcome::Completed(_) => "",
        ToolOutcome::Failed(e) => e.code.as_str(),
    }
}
