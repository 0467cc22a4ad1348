//! Agents: which of them a caller may know of, and which it may open. Their tools are decided one by one, as
//! every other tool is; a card gives no right.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use super::answer::{Outcome, Vote};
use super::ballot::nowhere;
use super::decision::{Reason, RuleRef, ScopeChallenge};
use super::function::Phase;
use super::principal::Principal;
use super::set::PolicySet;
use super::views::AgentFacts;
use crate::json;

/// Leave to open an agent's card, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentDecision {
    /// Yes.
    Open,
    /// No.
    Deny {
        /// Why.
        reason: Reason,
        /// The rule that decided.
        rule: RuleRef,
    },
    /// Not yet: more scopes are needed.
    Challenge(ScopeChallenge),
}

impl AgentDecision {
    /// Whether the agent does not exist for the caller.
    pub fn is_hidden(&self) -> bool {
        matches!(self, Self::Deny { reason: Reason::Hidden, .. })
    }
}

/// How several agents stand for one caller.
#[derive(Debug, Clone)]
pub struct AgentDecisions {
    /// One decision per agent, in the order of the question.
    pub of: Vec<AgentDecision>,
    /// Whether the answers may be kept: a script that ran out of time may end on a quieter machine.
    pub complete: bool,
}

impl PolicySet {
    /// Whether any policy says something of agents. Where none does, callers know an agent by its tools.
    pub fn speaks_of_agents(&self) -> bool {
        self.inner().functions.iter().any(|f| matches!(f.phase, Phase::AgentVisible | Phase::AgentOpen))
    }

    /// Everything that the agents' functions are known to look at in a caller, as a hash: two callers that
    /// share it share all decisions on agents. It is worth looking up only after [`PolicySet::agents`] has run
    /// for one of them, which may have learnt of more to look at.
    pub fn agent_class(&self, who: &Principal) -> [u8; 32] {
        let inner = self.inner();
        let mut hash = blake3::Hasher::new();
        hash.update(&inner.digest);
        for read in inner.agent_reads.read().unwrap_or_else(PoisonError::into_inner).iter() {
            // Name and value, so that a grown list of reads never meets an older key.
            hash.update(read.name().as_bytes());
            hash.update(blake3::hash(&json::canonical(&read.value(who, &inner.tiers))).as_bytes());
        }
        *hash.finalize().as_bytes()
    }

    /// How agents stand for a caller.
    pub fn agents<'a>(
        &self,
        who: &Principal,
        agents: impl IntoIterator<Item = &'a AgentFacts>,
    ) -> AgentDecisions {
        let who = Arc::new(who.clone());
        let mut complete = true;
        let of = agents.into_iter().map(|agent| self.decide_agent(&who, agent, &mut complete)).collect();
        AgentDecisions { of, complete }
    }

    /// Whether a caller may know of an agent. Where no policy says anything of agents it may: an agent's card
    /// gives no right, its tools are decided one by one.
    pub fn agent_visible(&self, who: &Principal, agent: &AgentFacts) -> bool {
        !self.agent_open(who, agent).is_hidden()
    }

    /// Whether a caller may open an agent's card: visibility first, then deny, challenge, allow. Where no
    /// policy defines `agent_open`, what is visible opens; where one does, something must allow it.
    pub fn agent_open(&self, who: &Principal, agent: &AgentFacts) -> AgentDecision {
        self.decide_agent(&Arc::new(who.clone()), agent, &mut true)
    }

    fn decide_agent(&self, who: &Arc<Principal>, agent: &AgentFacts, complete: &mut bool) -> AgentDecision {
        let hidden = |rule| AgentDecision::Deny { reason: Reason::Hidden, rule };
        if self.inner().broken {
            return hidden(nowhere());
        }
        let seen = self.ask_agents(Phase::AgentVisible, who, agent, complete);
        if let Some(outcome) = seen.into_iter().find(|o| o.vote != Vote::Abstain) {
            if let Vote::Fault(text) = &outcome.vote {
                tracing::error!(agent.id = %agent.id, error = %text, "a policy could not be evaluated");
            }
            return hidden(outcome.at);
        }
        counted(&self.ask_agents(Phase::AgentOpen, who, agent, complete))
    }

    pub(super) fn ask_agents(
        &self,
        phase: Phase,
        who: &Arc<Principal>,
        agent: &AgentFacts,
        complete: &mut bool,
    ) -> Vec<Outcome> {
        let inner = self.inner();
        let mut outcomes = Vec::new();
        for function in inner.functions.iter().filter(|f| f.phase == phase) {
            let (outcome, log) = function.ask_agent(who, &inner.tiers, agent);
            *complete &= !log.has_met_deadline();
            let reads = log.caller_reads();
            if !reads.is_empty() {
                inner.agent_reads.write().unwrap_or_else(PoisonError::into_inner).extend(reads);
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

/// What the votes on opening come to: a fault or a deny, then a challenge, then an allow.
fn counted(votes: &[Outcome]) -> AgentDecision {
    let first = |wanted: fn(&Vote) -> bool| votes.iter().find(|o| wanted(&o.vote));
    if let Some(Outcome { vote: Vote::Fault(text), at }) = first(|v| matches!(v, Vote::Fault(_))) {
        return AgentDecision::Deny { reason: Reason::PolicyFault(Arc::clone(text)), rule: at.clone() };
    }
    if let Some(Outcome { vote: Vote::Deny(text), at }) = first(|v| matches!(v, Vote::Deny(_))) {
        return AgentDecision::Deny { reason: Reason::Denied(Arc::clone(text)), rule: at.clone() };
    }
    if let Some(outcome) = first(|v| matches!(v, Vote::Challenge(_))) {
        let lists = votes.iter().filter_map(|o| match &o.vote {
            Vote::Challenge(scopes) => Some(scopes.iter().cloned()),
            _ => None,
        });
        let scopes: BTreeSet<_> = lists.flatten().collect();
        let rule = outcome.at.clone();
        return AgentDecision::Challenge(ScopeChallenge { scopes: scopes.into_iter().collect(), rule });
    }
    if votes.is_empty() || first(|v| *v == Vote::Allow).is_some() {
        return AgentDecision::Open;
    }
    AgentDecision::Deny { reason: Reason::NotAllowed, rule: nowhere() }
}
