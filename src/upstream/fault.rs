//! How a call that brought no reply is told: whose fault, whether to send again, and what to do.

use super::{ErrorSource, Retry, UpstreamError};
use crate::secret::{self, Secret};

impl UpstreamError {
    /// An error whose message is safe to show to the caller.
    pub fn new(source_kind: ErrorSource, retry: Retry, message: impl Into<String>) -> Self {
        Self { source_kind, retry, message: message.into(), detail: String::new() }
    }

    /// The same without an upstream's own credentials, should it have echoed them.
    #[must_use]
    pub fn without(mut self, secrets: &[Secret]) -> Self {
        for text in [&mut self.message, &mut self.detail] {
            if let Some(clean) = secret::remove(text, secrets) {
                *text = clean;
            }
        }
        self
    }

    /// Adds what only the log may have.
    #[must_use]
    pub fn detail(mut self, detail: &dyn std::fmt::Display) -> Self {
        self.detail = detail.to_string();
        self
    }

    /// It was not sent: the upstream cannot be reached.
    pub(super) fn unreachable(upstream: &str, why: &str) -> Self {
        Self::new(
            ErrorSource::Upstream,
            Retry::Safe,
            format!("upstream `{upstream}` cannot be reached: {why}; nothing was done"),
        )
    }

    /// It was sent and then lost: safe to repeat only where the tool reads.
    pub(super) fn lost(upstream: &str, why: &str, read_only: bool) -> Self {
        let (retry, advice) = outcome(read_only);
        Self::new(ErrorSource::Upstream, retry, format!("upstream `{upstream}` {why}; {advice}"))
    }

    /// No answer before the deadline.
    pub(super) fn timeout(upstream: &str, sent: bool, read_only: bool) -> Self {
        let (retry, advice) = if sent { outcome(read_only) } else { (Retry::Safe, "nothing was sent") };
        Self::new(
            ErrorSource::Timeout,
            retry,
            format!("upstream `{upstream}` did not answer in time; {advice}"),
        )
    }

    /// The caller gave up.
    pub(super) fn cancelled(sent: bool, read_only: bool) -> Self {
        let retry = if sent { outcome(read_only).0 } else { Retry::Safe };
        Self::new(ErrorSource::Cancelled, retry, "the call was cancelled")
    }

    /// More bytes than the budget.
    pub(super) fn too_large(upstream: &str, max: usize) -> Self {
        Self::new(
            ErrorSource::TooLarge,
            Retry::Never,
            format!("the reply of `{upstream}` is larger than the {max} bytes that are read of one"),
        )
    }

    /// docent itself cannot make the request.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorSource::Internal, Retry::Never, message)
    }
}

fn outcome(read_only: bool) -> (Retry, &'static str) {
    if read_only {
        (Retry::Safe, "the call only reads, it may be sent again")
    } else {
        (Retry::Unknown, "whether it took effect is not known: look before you repeat it")
    }
}
