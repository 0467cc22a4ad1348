//! Answers about answers: why a call is decided as it is, and how all callers stand to all tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::agents::AgentDecision;
use super::answer::{Outcome, Vote};
use super::asked::TextField;
use super::ballot::{Standing, nowhere};
use super::decision::{Decision, Reason, RuleRef};
use super::function::Phase;
use super::principal::Principal;
use super::set::PolicySet;
use super::views::{AgentFacts, CallerRead, ToolFacts, ToolRead, facts};
use crate::catalog::Catalog;
use crate::id::{Scope, ToolId, ToolNo};
use crate::json::Object;

/// One rule or function that had a say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplanationStep {
    /// `rule`, `visible` or `decide`.
    pub phase: &'static str,
    /// Where it stands.
    pub rule: RuleRef,
    /// What it said: `allow`, `hide`, `deny`, `challenge`, `confirm`, `abstain`, `depends`, `fault`.
    pub answer: &'static str,
    /// Its reason, question, scopes or fault.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// Why a call is decided as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The tool, or what else it was asked about: `<upstream>.resource.<name>`, `<upstream>.prompt.<name>`,
    /// `agent.<name>`.
    pub tool: Arc<str>,
    /// `permit`, `deny`, `challenge` or `confirm`; `conditional` where only the arguments can tell.
    pub decision: &'static str,
    /// The rule that decided; an empty file is the default, which denies.
    pub rule: RuleRef,
    /// In words, for the operator.
    pub reason: String,
    /// The scopes of a challenge.
    pub scopes: Vec<Scope>,
    /// Whether the caller may know that the tool exists.
    pub visible: bool,
    /// Every rule and function that had a say, in the order of the files.
    pub steps: Vec<ExplanationStep>,
    /// The facts that were looked at, by name.
    pub facts: BTreeMap<String, Value>,
}

impl PolicySet {
    /// Explains the decision on one call; the same votes as [`PolicySet::decide`], written down.
    pub fn explain(
        &self,
        catalog: &Catalog,
        who: &Principal,
        no: ToolNo,
        arguments: Option<&Object>,
    ) -> Option<Explanation> {
        let tool = catalog.get(no)?;
        let mut steps = Vec::new();
        let mut seen = |phase: &'static str, outcome: &Outcome| steps.push(step(phase, outcome));
        let ballot = self.ballot(catalog, who, no, tool, arguments, &mut seen);
        let tiers = self.tiers();
        let standing = ballot.standing(who, tiers, tool);
        let decided = ballot.decision(who, tiers, tool);
        let (decision, reason, scopes, rule) = words(decided, standing, tool.tier.as_deref());
        let mut looked_at = BTreeMap::new();
        for read in [CallerRead::Subject, CallerRead::Scopes, CallerRead::Tier, CallerRead::Agent] {
            looked_at.insert(read.name(), read.value(who, tiers));
        }
        let question = self.question(who, Arc::new(ToolFacts::of(tool)), arguments);
        for read in [
            ToolRead::Text(TextField::Upstream),
            ToolRead::Text(TextField::Category),
            ToolRead::Tags,
            ToolRead::Effect,
            ToolRead::Tier,
            ToolRead::Scopes,
        ] {
            looked_at.insert(read.name(), read.value(&question.tool));
        }
        for function in self.inner().tool_functions() {
            let (_, log) = function.ask(&question);
            facts(&log, who, tiers, &question.tool, &mut looked_at);
        }
        let visible = self.roster(catalog, who).visible.contains(no);
        Some(Explanation {
            tool: tool.id.shared(),
            decision,
            rule,
            reason,
            scopes,
            visible,
            steps,
            facts: looked_at,
        })
    }

    /// Explains whether a caller may open an agent.
    pub fn explain_agent(&self, who: &Principal, agent: &AgentFacts) -> Explanation {
        let (who, tiers) = (Arc::new(who.clone()), self.tiers());
        let mut steps = Vec::new();
        let mut looked_at = BTreeMap::new();
        let mut reads = vec![CallerRead::Subject, CallerRead::Scopes, CallerRead::Tier, CallerRead::Agent];
        let mut opens = None;
        for phase in [Phase::AgentVisible, Phase::AgentOpen] {
            for function in self.inner().functions.iter().filter(|f| f.phase == phase) {
                let (outcome, log) = function.ask_agent(&who, &self.inner().tiers, agent);
                reads.extend(log.caller_reads());
                if phase == Phase::AgentOpen && outcome.vote == Vote::Allow && opens.is_none() {
                    opens = Some(outcome.at.clone());
                }
                steps.push(step(phase.name(), &outcome));
            }
        }
        for read in reads {
            looked_at.insert(read.name(), read.value(&who, tiers));
        }
        let decided = self.agent_open(&who, agent);
        let visible = !decided.is_hidden();
        let (decision, reason, scopes, rule) = match decided {
            AgentDecision::Open => {
                let reason = if opens.is_some() { "a policy opens it" } else { "no policy is about opening" };
                ("permit", reason.to_owned(), Vec::new(), opens.unwrap_or_else(nowhere))
            }
            AgentDecision::Challenge(challenge) => {
                words(Decision::Challenge(challenge), Standing::Challenge, None)
            }
            AgentDecision::Deny { reason: Reason::NotAllowed, rule } => {
                ("deny", "no `agent_open` allows it".to_owned(), Vec::new(), rule)
            }
            AgentDecision::Deny { reason, rule } => {
                words(Decision::Deny { reason, rule }, Standing::Callable, None)
            }
        };
        let tool = Arc::from(format!("agent.{}", agent.id));
        Explanation { tool, decision, rule, reason, scopes, visible, steps, facts: looked_at }
    }

    /// How named callers stand to every tool: who can call what.
    pub fn matrix(&self, catalog: &Catalog, callers: &[(String, Principal)]) -> Vec<MatrixRow> {
        callers
            .iter()
            .map(|(name, who)| {
                let roster = self.roster(catalog, who);
                let tools = catalog
                    .iter()
                    .filter_map(|(no, tool)| Some((tool.id.clone(), roster.standing(no)?)))
                    .collect();
                MatrixRow {
                    caller: name.clone(),
                    callable: roster.callable.count(),
                    challenged: roster.challenged.count(),
                    confirm: roster.confirm.count(),
                    conditional: roster.conditional.count(),
                    hidden: catalog.len() - roster.visible.count(),
                    tools,
                }
            })
            .collect()
    }
}

/// How one caller stands to every tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatrixRow {
    /// The caller.
    pub caller: String,
    /// Tools it may call.
    pub callable: usize,
    /// Tools that need more scopes.
    pub challenged: usize,
    /// Tools that need a person's yes.
    pub confirm: usize,
    /// Tools whose arguments decide.
    pub conditional: usize,
    /// Tools it does not see.
    pub hidden: usize,
    /// The tools it sees and how they stand.
    pub tools: BTreeMap<ToolId, Standing>,
}

fn step(phase: &'static str, outcome: &Outcome) -> ExplanationStep {
    let text = match &outcome.vote {
        Vote::Deny(text) | Vote::Fault(text) => text.to_string(),
        Vote::Confirm { question, .. } => question.to_string(),
        Vote::Challenge(scopes) => list(scopes),
        Vote::Abstain | Vote::Allow | Vote::Hide | Vote::Depends => String::new(),
    };
    ExplanationStep { phase, rule: outcome.at.clone(), answer: outcome.vote.word(), text }
}

fn list(scopes: &[Scope]) -> String {
    scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(" ")
}

fn words(
    decision: Decision,
    standing: Standing,
    tier: Option<&str>,
) -> (&'static str, String, Vec<Scope>, RuleRef) {
    match decision {
        Decision::Permit(permit) => {
            ("permit", "a rule allows it".to_owned(), Vec::new(), permit.rule().clone())
        }
        Decision::Challenge(c) => {
            let reason = format!("the caller must come back with {}", list(&c.scopes));
            ("challenge", reason, c.scopes, c.rule)
        }
        Decision::Confirm(c) => {
            ("confirm", format!("a person must confirm: {}", c.question), Vec::new(), c.rule)
        }
        Decision::Deny { reason, rule } => {
            let (word, text) = match reason {
                _ if standing == Standing::Conditional => {
                    ("conditional", "the arguments decide; give them to see".to_owned())
                }
                Reason::Hidden => ("deny", "a rule hides it".to_owned()),
                Reason::Denied(text) => ("deny", text.to_string()),
                Reason::NotAllowed => ("deny", "no rule allows it".to_owned()),
                Reason::Tier { .. } => {
                    ("deny", format!("the caller's tier does not reach `{}`", tier.unwrap_or_default()))
                }
                Reason::PolicyFault(text) => ("deny", format!("a policy failed: {text}")),
            };
            (word, text, Vec::new(), rule)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{caller, load, scopes};
    use super::*;

    #[test]
    fn the_opening_of_an_agent_is_explained_with_what_was_asked_and_read() {
        let text = "fn agent_visible(caller, agent) { caller.tier != \"system\" }\n\
                    fn agent_open(caller, agent) {\n  if caller.has_scope(\"ops:read\") { allow() } else { challenge([\"ops:read\"]) }\n}";
        let set = load(&[("a.rhai", text)]);
        let agent = AgentFacts {
            id: crate::id::AgentId::parse("deployer").unwrap(),
            description: "".into(),
            capabilities: Vec::new(),
            tools: Vec::new(),
        };
        let without = set.explain_agent(&caller("a", &[]), &agent);
        assert_eq!(
            (&*without.tool, without.decision, without.visible),
            ("agent.deployer", "challenge", true)
        );
        assert_eq!((&without.scopes, without.rule.line), (&scopes(&["ops:read"]), 3));
        let steps: Vec<_> = without.steps.iter().map(|s| (s.phase, s.answer)).collect();
        assert_eq!(steps, [("agent_visible", "abstain"), ("agent_open", "challenge")]);
        assert!(without.facts.contains_key("caller.tier"), "{:?}", without.facts);
        let with = set.explain_agent(&caller("a", &["ops:read"]), &agent);
        assert_eq!((with.decision, with.rule.line, &*with.reason), ("permit", 3, "a policy opens it"));
        let silent = load(&[]).explain_agent(&caller("a", &[]), &agent);
        assert_eq!((silent.decision, silent.rule.line, silent.steps.len()), ("permit", 0, 0));
        let hidden = load(&[("a.rhai", "fn agent_visible(caller, agent) { false }")]);
        let hidden = hidden.explain_agent(&caller("a", &[]), &agent);
        assert_eq!((hidden.decision, hidden.visible, hidden.rule.line), ("deny", false, 1));
    }
}
