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

/// Challenges that one after the other ask for more scopes.
const CHALLENGES_MAX: usize = 8;

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
    /// policy defines `agent_open`, what is visible opens; where one does, something must allow it, or ask for scopes
    /// that the caller holds.
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
        let decision = counted(&self.ask_agents(Phase::AgentOpen, who, agent, complete));
        match decision {
            AgentDecision::Challenge(challenge) => self.worth_it(who, agent, challenge, complete),
            other => other,
        }
    }

    /// A challenge, where the caller could open the agent with more scopes; all that it takes at once. Else the
    /// refusal that would come after it: nobody is sent for scopes that open nothing.
    fn worth_it(
        &self,
        who: &Arc<Principal>,
        agent: &AgentFacts,
        challenge: ScopeChallenge,
        complete: &mut bool,
    ) -> AgentDecision {
        let rule = challenge.rule;
        let mut scopes: BTreeSet<_> = challenge.scopes.into_iter().collect();
        for _ in 0..CHALLENGES_MAX {
            let mut with_them = Principal::clone(who);
            with_them.scopes.extend(scopes.iter().cloned());
            let votes = self.ask_agents(Phase::AgentOpen, &Arc::new(with_them), agent, complete);
            match counted(&votes) {
                AgentDecision::Open => {
                    let scopes = scopes.into_iter().collect();
                    return AgentDecision::Challenge(ScopeChallenge { scopes, rule });
                }
                AgentDecision::Challenge(more) => scopes.extend(more.scopes),
                refused @ AgentDecision::Deny { .. } => return refused,
            }
        }
        AgentDecision::Deny { reason: Reason::NotAllowed, rule }
    }

    /// Whether something could open an agent: nobody says anything of opening, or some function can allow it.
    pub(super) fn may_open_agents(&self) -> bool {
        let mut opening = self.inner().functions.iter().filter(|f| f.phase == Phase::AgentOpen).peekable();
        opening.peek().is_none()
            || opening.any(|f| {
                let calls = f.script.touches().calls;
                calls.contains("allow") || calls.contains("challenge")
            })
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
pub(super) fn counted(votes: &[Outcome]) -> AgentDecision {
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
