//! Counting votes: what all rules, functions and the tool's own demands come to. The only place that knows
//! the order: hidden, failed, denied, nothing allows it, tier, challenge, confirm, allow.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::answer::{Outcome, Vote};
use super::decision::{Confirmation, Decision, Permit, Reason, RuleRef, ScopeChallenge};
use super::principal::Principal;
use super::rule::{Effect, Rule};
use super::tier::Tiers;
use crate::catalog::Tool;
use crate::id::Scope;
use crate::json::Object;

/// How a tool stands for a caller while the arguments are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It does not exist for the caller.
    Hidden,
    /// A policy failed: it is treated as if it did not exist.
    Fault,
    /// A rule says no.
    Denied,
    /// No rule allows it.
    NotAllowed,
    /// The caller's tier does not reach it.
    Tier,
    /// The caller has to come back with more scopes.
    Challenge,
    /// A person has to confirm.
    Confirm,
    /// The arguments decide.
    Conditional,
    /// It may be called.
    Callable,
}

impl Standing {
    /// Whether the caller may know that the tool exists: it is listed, found and described.
    pub fn is_visible(self) -> bool {
        matches!(self, Self::Challenge | Self::Confirm | Self::Conditional | Self::Callable)
    }
}

/// The place of a rule that nobody wrote: the default.
pub(super) fn nowhere() -> RuleRef {
    RuleRef { file: Arc::from(""), line: 0 }
}

/// All votes on one question. Of each kind the first decides what is told; all decide the outcome.
#[derive(Debug, Default)]
pub(super) struct Ballot {
    hidden: Option<RuleRef>,
    fault: Option<(Arc<str>, RuleRef)>,
    denied: Option<(Arc<str>, RuleRef)>,
    scopes: BTreeSet<Scope>,
    challenge: Option<RuleRef>,
    confirm: Option<(Arc<str>, RuleRef)>,
    only_a_person: bool,
    allow: Option<RuleRef>,
    depends: Option<RuleRef>,
}

/// The vote of a rule that covers the tool and concerns the caller.
pub(super) fn vote_of(rule: &Rule, arguments: Option<&Object>) -> Vote {
    match (rule.fits(arguments), &rule.effect) {
        (Some(false), _) => Vote::Abstain,
        // Arguments unknown: what could make the tool visible may do so; a deny takes nothing yet.
        (None, Effect::Allow | Effect::Confirm { .. } | Effect::Challenge(_)) => Vote::Depends,
        (None, _) => Vote::Abstain,
        (Some(true), Effect::Allow) => Vote::Allow,
        (Some(true), Effect::Hide) => Vote::Hide,
        (Some(true), Effect::Deny(reason)) => Vote::Deny(Arc::clone(reason)),
        (Some(true), Effect::Challenge(scopes)) => Vote::Challenge(scopes.clone()),
        (Some(true), Effect::Confirm { question, by_client }) => {
            Vote::Confirm { question: Arc::clone(question), by_client: *by_client }
        }
    }
}

impl Ballot {
    pub(super) fn cast(&mut self, outcome: &Outcome) {
        let at = || outcome.at.clone();
        match &outcome.vote {
            Vote::Abstain => {}
            Vote::Allow => {
                self.allow.get_or_insert_with(at);
            }
            Vote::Hide => {
                self.hidden.get_or_insert_with(at);
            }
            Vote::Deny(reason) => {
                self.denied.get_or_insert_with(|| (Arc::clone(reason), at()));
            }
            Vote::Challenge(scopes) => {
                self.scopes.extend(scopes.iter().cloned());
                self.challenge.get_or_insert_with(at);
            }
            Vote::Confirm { question, by_client } => {
                self.only_a_person |= !by_client;
                self.confirm.get_or_insert_with(|| (Arc::clone(question), at()));
            }
            Vote::Depends => {
                self.depends.get_or_insert_with(at);
            }
            Vote::Fault(text) => {
                self.fault.get_or_insert_with(|| (Arc::clone(text), at()));
            }
        }
    }

    /// Whether something besides a challenge speaks for the tool, and nothing against it.
    pub(super) fn is_open(&self) -> bool {
        let refused = self.hidden.is_some() || self.fault.is_some() || self.denied.is_some();
        !refused && (self.confirm.is_some() || self.allow.is_some() || self.depends.is_some())
    }

    /// The scopes that are asked for where nothing but a challenge speaks for the tool.
    pub(super) fn only_challenged(&self) -> Option<&BTreeSet<Scope>> {
        let refused = self.hidden.is_some() || self.fault.is_some() || self.denied.is_some();
        (self.challenge.is_some() && !refused && !self.is_open()).then_some(&self.scopes)
    }

    /// Takes the challenges out: what they ask for would open nothing.
    pub(super) fn without_challenge(mut self) -> Self {
        self.challenge = None;
        self.scopes.clear();
        self
    }

    fn positive(&self) -> bool {
        self.challenge.is_some() || self.confirm.is_some() || self.allow.is_some() || self.depends.is_some()
    }

    pub(super) fn standing(&self, who: &Principal, tiers: &Tiers, tool: &Tool) -> Standing {
        if self.hidden.is_some() {
            Standing::Hidden
        } else if self.fault.is_some() {
            Standing::Fault
        } else if self.denied.is_some() {
            Standing::Denied
        } else if !self.positive() {
            Standing::NotAllowed
        } else if tool.tier.as_ref().is_some_and(|t| !tiers.reaches(who.tier.as_deref(), t)) {
            Standing::Tier
        } else if self.challenge.is_some() || tool.scopes.iter().any(|s| !who.scopes.contains(s)) {
            Standing::Challenge
        } else if self.confirm.is_some() {
            Standing::Confirm
        } else if self.allow.is_some() {
            Standing::Callable
        } else {
            Standing::Conditional
        }
    }

    /// The decision. What only arguments could allow is not allowed without them.
    pub(super) fn decision(self, who: &Principal, tiers: &Tiers, tool: &Tool) -> Decision {
        let deny =
            |reason, rule: Option<RuleRef>| Decision::Deny { reason, rule: rule.unwrap_or_else(nowhere) };
        match self.standing(who, tiers, tool) {
            Standing::Hidden => deny(Reason::Hidden, self.hidden),
            Standing::Fault => match self.fault {
                Some((text, at)) => deny(Reason::PolicyFault(text), Some(at)),
                None => deny(Reason::NotAllowed, None),
            },
            Standing::Denied => match self.denied {
                Some((reason, at)) => deny(Reason::Denied(reason), Some(at)),
                None => deny(Reason::NotAllowed, None),
            },
            Standing::Tier => {
                let required = tool.tier.clone().unwrap_or_else(|| Arc::from(""));
                deny(Reason::Tier { required }, Some(own_demand(tool)))
            }
            Standing::Challenge => {
                let mut scopes = self.scopes;
                if tool.scopes.iter().any(|s| !who.scopes.contains(s)) {
                    scopes.extend(tool.scopes.iter().cloned());
                }
                let rule = self.challenge.unwrap_or_else(|| own_demand(tool));
                Decision::Challenge(ScopeChallenge { scopes: scopes.into_iter().collect(), rule })
            }
            Standing::Confirm => match self.confirm {
                Some((question, rule)) => {
                    Decision::Confirm(Confirmation { question, by_client: !self.only_a_person, rule })
                }
                None => deny(Reason::NotAllowed, None),
            },
            Standing::Callable => match self.allow {
                Some(rule) => Decision::Permit(Permit::new(tool.id.clone(), rule)),
                None => deny(Reason::NotAllowed, None),
            },
            Standing::Conditional | Standing::NotAllowed => deny(Reason::NotAllowed, self.depends),
        }
    }
}

/// Where a tool's own scopes and tier are written.
pub(super) fn own_demand(tool: &Tool) -> RuleRef {
    RuleRef { file: Arc::from(format!("scripts/{}/upstream.toml", tool.upstream)), line: 0 }
}
