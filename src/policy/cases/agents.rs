//! Cases on agents: which of them a caller may know of (`agents`), and what comes of opening one (`agent`).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::super::agents::AgentDecision;
use super::super::answer::Vote;
use super::super::coverage;
use super::super::decision::Reason;
use super::super::function::Phase;
use super::super::principal::Principal;
use super::super::set::PolicySet;
use super::super::views::AgentFacts;
use super::{Case, Differences};
use crate::id::{AgentId, Scope};

/// An agent that the cases of a file speak of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentSketch {
    id: AgentId,
    #[serde(default)]
    description: String,
    #[serde(default)]
    capabilities: Vec<String>,
    #[serde(default)]
    tools: Vec<String>,
}

impl AgentSketch {
    pub(super) fn facts(self) -> AgentFacts {
        let texts = |list: Vec<String>| list.into_iter().map(Arc::from).collect();
        AgentFacts {
            id: self.id,
            description: Arc::from(self.description),
            capabilities: texts(self.capabilities),
            tools: texts(self.tools),
        }
    }
}

/// A decision on an agent in the words of a case: the word, the reason, the scopes.
fn told(decision: &AgentDecision) -> (&'static str, String, &[Scope]) {
    match decision {
        AgentDecision::Open => ("permit", String::new(), &[]),
        AgentDecision::Challenge(c) => ("challenge", String::new(), &c.scopes),
        AgentDecision::Deny { reason, .. } => {
            let text = match reason {
                Reason::Hidden => "it is hidden".to_owned(),
                Reason::Denied(text) => text.to_string(),
                Reason::PolicyFault(text) => format!("a policy failed: {text}"),
                Reason::NotAllowed | Reason::Tier { .. } => "nothing allows it".to_owned(),
            };
            ("deny", text, &[])
        }
    }
}

impl PolicySet {
    pub(super) fn check_agents(
        &self,
        case: &Case,
        agents: &[AgentFacts],
        who: &Principal,
        reached: &mut Vec<String>,
    ) -> Vec<String> {
        let mut diff = Differences::default();
        if let Some(name) = &case.agent {
            match agents.iter().find(|a| a.id == *name) {
                Some(agent) => self.check_agent(case, agent, who, &mut diff),
                None => diff.0.push(format!("there is no agent `{name}`")),
            }
            reached.extend(agents.iter().filter(|a| a.id == *name).flat_map(|a| self.agent_steps(who, a)));
        }
        if let Some(expected) = &case.agents {
            let seen = agents.iter().filter(|a| self.agent_visible(who, a)).map(|a| a.id.clone());
            diff.sets("agents", expected, &seen.collect::<BTreeSet<AgentId>>());
            reached.extend(agents.iter().flat_map(|a| self.agent_steps(who, a)));
        }
        diff.0
    }

    fn check_agent(&self, case: &Case, agent: &AgentFacts, who: &Principal, diff: &mut Differences) {
        let decision = self.agent_open(who, agent);
        let (word, reason, scopes) = told(&decision);
        let place = match &decision {
            AgentDecision::Deny { rule, .. } if !rule.file.is_empty() => format!("at {rule}: {reason}"),
            AgentDecision::Challenge(c) => format!("at {}", c.rule),
            _ => format!("by default{}{reason}", if reason.is_empty() { "" } else { ": " }),
        };
        diff.answer(case, &place, (word, !decision.is_hidden(), scopes, &reason));
    }

    /// The functions on agents that had something to say of one, as coverage knows them.
    fn agent_steps(&self, who: &Principal, agent: &AgentFacts) -> Vec<String> {
        let who = Arc::new(who.clone());
        let phases = [Phase::AgentVisible, Phase::AgentOpen];
        let said = phases.into_iter().flat_map(|phase| {
            let outcomes = self.ask_agents(phase, &who, agent, &mut true);
            outcomes
                .into_iter()
                .filter(|o| o.vote != Vote::Abstain)
                .map(move |o| coverage::function(&o.at.file, phase.name()))
        });
        said.collect()
    }
}
