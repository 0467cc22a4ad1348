//! Questions of operators to the policies that serve now: why is this decided so, and what would a candidate change.

use std::sync::Arc;

use crate::json::Object;
use crate::policy::{Explanation, Principal, ShadowReport};

use super::Gateway;

/// Why a question cannot be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoExplanation {
    /// `[callers]` has no such name.
    #[error("there is no such caller: name a table of [callers], or `anonymous`")]
    Caller,
    /// There is no such tool, resource, prompt or agent.
    #[error("there is no such tool, resource, prompt or agent")]
    Subject,
}

impl Gateway {
    /// Why a call of a tool, a read of a resource (by address), the use of a prompt (by name) or the opening of an
    /// agent is decided as it is for a caller. For operators: it tells of what is hidden too.
    pub fn explain_policy(
        &self,
        caller: &str,
        subject: &str,
        arguments: Option<&Object>,
    ) -> Result<Explanation, NoExplanation> {
        let who = self.snapshot().callers.caller(caller).ok_or(NoExplanation::Caller)?;
        self.explain_for(&who, subject, arguments).ok_or(NoExplanation::Subject)
    }

    /// The same for a caller that is known. A tool comes before an agent of the same name, which is also called
    /// `agent.<name>`.
    pub fn explain_for(
        &self,
        who: &Arc<Principal>,
        subject: &str,
        arguments: Option<&Object>,
    ) -> Option<Explanation> {
        let told = self.snapshot().explain(who, subject, arguments);
        told.or_else(|| self.explain_agent(who, subject.strip_prefix("agent.").unwrap_or(subject)))
    }

    /// What the candidate of `policies.shadow` would have decided otherwise since both sides are as they are.
    pub fn shadow(&self) -> ShadowReport {
        self.snapshot().shadow.as_ref().map(|s| s.report()).unwrap_or_default()
    }

    /// How many decisions the candidate shares, and how many not; nothing where there is no candidate.
    pub fn shadow_counts(&self) -> Option<(u64, u64)> {
        self.snapshot().shadow.as_ref().map(|s| s.counts())
    }
}
