//! What a policy answers. Nothing but `policy` makes a [`Permit`], and without one no upstream is invoked.

use std::sync::Arc;

use serde::Serialize;

use crate::id::{Scope, ToolId};

/// The rule that decided: where it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RuleRef {
    /// The file relative to the home, e.g. `policies/10-base.rhai`; empty for the default (no rule allowed it).
    pub file: Arc<str>,
    /// Line from 1; 0 where there is none.
    pub line: usize,
}

impl std::fmt::Display for RuleRef {
    /// `file:line`; the file alone where there is no line; nothing for the default.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 { write!(f, ":{}", self.line) } else { Ok(()) }
    }
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The tool is not visible to this caller: the answer is that of a tool that does not exist.
    Hidden,
    /// A rule says no; the text is the rule's own, for the caller.
    Denied(Arc<str>),
    /// No rule allows it.
    NotAllowed,
    /// The caller's tier does not reach it.
    Tier {
        /// The tier that would.
        required: Arc<str>,
    },
    /// A policy script failed; the text is for the operator, never for the caller.
    PolicyFault(Arc<str>),
}

/// The scopes that would unlock a call (RFC 6750 §3.1 `insufficient_scope`), all of them at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeChallenge {
    /// Every scope the operation needs, sorted.
    pub scopes: Vec<Scope>,
    /// The rule that asks.
    pub rule: RuleRef,
}

/// A question that a person has to answer first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmation {
    /// The question.
    pub question: Arc<str>,
    /// Whether the client's own answer counts.
    pub by_client: bool,
    /// The rule that asks.
    pub rule: RuleRef,
}

/// Leave to call one tool, with the rule that gave it. Only `policy` can make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    tool: ToolId,
    rule: RuleRef,
}

impl Permit {
    /// Only the authorizer calls this.
    pub(super) fn new(tool: ToolId, rule: RuleRef) -> Self {
        Self { tool, rule }
    }

    /// The tool it is for.
    pub fn tool(&self) -> &ToolId {
        &self.tool
    }

    /// The rule that gave it.
    pub fn rule(&self) -> &RuleRef {
        &self.rule
    }
}

/// The answer of the policies to one question. Never a `Result`: a fault is a denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Permit(Permit),
    /// No.
    Deny {
        /// Why.
        reason: Reason,
        /// The rule that decided.
        rule: RuleRef,
    },
    /// Not yet: more scopes are needed.
    Challenge(ScopeChallenge),
    /// Not yet: a person has to confirm.
    Confirm(Confirmation),
}

impl Decision {
    /// `permit`, `deny` (also for what is hidden), `challenge` or `confirm`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Permit(_) => "permit",
            Self::Deny { .. } => "deny",
            Self::Challenge(_) => "challenge",
            Self::Confirm(_) => "confirm",
        }
    }

    /// The rule that decided.
    pub fn rule(&self) -> &RuleRef {
        match self {
            Self::Permit(permit) => permit.rule(),
            Self::Deny { rule, .. } => rule,
            Self::Challenge(challenge) => &challenge.rule,
            Self::Confirm(asked) => &asked.rule,
        }
    }
}
