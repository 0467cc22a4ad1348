//! Answers about answers: why a call is decided as it is, and how all callers stand to all tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::answer::{Outcome, Vote};
use super::asked::TextField;
use super::ballot::Standing;
use super::decision::{Decision, Reason, RuleRef};
use super::principal::Principal;
use super::set::PolicySet;
use super::views::{CallerRead, ToolFacts, ToolRead, facts};
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
    /// The tool.
    pub tool: ToolId,
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
            tool: tool.id.clone(),
            decision,
            rule,
            reason,
            scopes,
            visible,
            steps,
            facts: looked_at,
        })
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
