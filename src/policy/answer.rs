//! What a policy function answers: `allow()`, `deny("…")`, `challenge([…])`, `confirm("…")`, `abstain()`.

use std::sync::Arc;

use super::builder::{scopes, sentence};
use super::decision::RuleRef;
use crate::id::Scope;
use crate::script::{Array, CallContext, Dynamic, EngineBuilder, HostResult, call_site};

/// One vote on one question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Vote {
    Abstain,
    Allow,
    Hide,
    Deny(Arc<str>),
    Challenge(Vec<Scope>),
    Confirm {
        question: Arc<str>,
        by_client: bool,
    },
    /// It depends on arguments that are not known yet.
    Depends,
    /// The script failed; the text is for the operator.
    Fault(Arc<str>),
}

impl Vote {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Abstain => "abstain",
            Self::Allow => "allow",
            Self::Hide => "hide",
            Self::Deny(_) => "deny",
            Self::Challenge(_) => "challenge",
            Self::Confirm { .. } => "confirm",
            Self::Depends => "depends",
            Self::Fault(_) => "fault",
        }
    }
}

/// A vote as scripts hold it, with the line that made it.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) vote: Vote,
    pub(super) line: usize,
}

/// A vote and where it was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Outcome {
    pub(super) vote: Vote,
    pub(super) at: RuleRef,
}

/// Registers the answers.
pub(super) fn register(e: &mut EngineBuilder) {
    let at = |c: &CallContext<'_>, vote: Vote| Answer { vote, line: call_site(c).1 };
    e.host_type::<Answer>("Answer", "What `decide` and `agent_open` return. `agent_open` has no `confirm`.");
    e.function("allow", "allow()", "Yes.", move |c: CallContext<'_>| at(&c, Vote::Allow));
    e.function(
        "abstain",
        "abstain()",
        "No opinion: the other policies decide.",
        move |c: CallContext<'_>| at(&c, Vote::Abstain),
    );
    e.function("deny", "deny(reason)", "No; the caller reads the reason.", {
        move |c: CallContext<'_>, reason: &str| -> HostResult<Answer> {
            Ok(at(&c, Vote::Deny(sentence(reason, "reason")?)))
        }
    });
    e.function(
        "challenge",
        "challenge([scopes])",
        "Not without all of these scopes; for a caller that holds them it is `abstain()`, so something has to allow it then, else nobody is asked.",
        move |c: CallContext<'_>, list: Array| -> HostResult<Answer> {
            Ok(at(&c, Vote::Challenge(scopes(&Dynamic::from_array(list))?)))
        },
    );
    e.function("confirm", "confirm(question)", "Yes, once a person has said yes to the question.", {
        move |c: CallContext<'_>, question: &str| -> HostResult<Answer> {
            Ok(at(&c, Vote::Confirm { question: sentence(question, "question")?, by_client: false }))
        }
    });
    e.function(
        "confirm_by_client",
        "confirm_by_client(question)",
        "The same; the client's own answer counts too.",
        move |c: CallContext<'_>, question: &str| -> HostResult<Answer> {
            Ok(at(&c, Vote::Confirm { question: sentence(question, "question")?, by_client: true }))
        },
    );
}
