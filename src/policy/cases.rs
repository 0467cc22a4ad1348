//! Cases: what a policy is expected to decide, as `policies/cases/*.yaml` writes it down.

mod agents;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::agents::AgentSketch;
use super::coverage;
use super::decision::Reason;
use super::explain::ExplanationStep;
use super::function::PhaseFunction;
use super::principal::Principal;
use super::set::PolicySet;
use super::views::AgentFacts;
use crate::catalog::{Catalog, CatalogBuilder, Tool, ToolAnnotations};
use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile};
use crate::id::{AgentId, Scope, ToolId, UpstreamId};
use crate::json::Object;
use crate::schema::SchemaText;

/// Tools of a catalog that one case of a whole roster counts as looked at: each is explained.
const COVERED_TOOLS_MAX: usize = 5_000;

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Tools that the cases speak of; without them the home's own.
    tools: Option<Vec<ToolSketch>>,
    /// Agents that the cases speak of; without them the home's own.
    agents: Option<Vec<AgentSketch>>,
    /// Callers by the name that cases use.
    #[serde(default)]
    callers: BTreeMap<String, CallerSketch>,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolSketch {
    id: ToolId,
    #[serde(default)]
    category: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    read_only: Option<bool>,
    #[serde(default)]
    destructive: Option<bool>,
    #[serde(default)]
    idempotent: Option<bool>,
    #[serde(default)]
    open_world: Option<bool>,
    tier: Option<String>,
    #[serde(default)]
    scopes: Vec<Scope>,
    #[serde(default)]
    facts: Object,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallerSketch {
    #[serde(default)]
    scopes: BTreeSet<Scope>,
    agent: Option<AgentId>,
    tier: Option<String>,
    #[serde(default)]
    claims: Object,
}

/// One case: a decision on a tool (`tool`, `expect`) or an agent (`agent`, `expect`), what is dropped from a
/// tool's results (`tool`, `redact`), or a whole roster (`visible`, `callable`, `agents`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    caller: String,
    tool: Option<String>,
    args: Option<Object>,
    /// `permit`, `deny`, `challenge`, `confirm` or `conditional`.
    expect: Option<String>,
    /// The scopes of a challenge.
    scopes: Option<Vec<Scope>>,
    /// Words that the reason must contain.
    reason: Option<String>,
    /// Whether the caller may know of the tool.
    seen: Option<bool>,
    /// Exactly the tools that the caller sees.
    visible: Option<BTreeSet<ToolId>>,
    /// Exactly the tools that it may call.
    callable: Option<BTreeSet<ToolId>>,
    /// Exactly the fields that `redact` drops from the tool's results.
    redact: Option<BTreeSet<String>>,
    /// The agent in question.
    agent: Option<AgentId>,
    /// Exactly the agents that the caller sees.
    agents: Option<BTreeSet<AgentId>>,
}

/// Where a case differs from what was found, one line each.
#[derive(Debug, Default)]
struct Differences(Vec<String>);

impl Differences {
    fn sets<T: Ord + std::fmt::Display>(&mut self, what: &str, expected: &BTreeSet<T>, found: &BTreeSet<T>) {
        self.0.extend(expected.difference(found).map(|id| format!("- {what}: {id} is not")));
        let more = found.difference(expected);
        self.0.extend(more.map(|id| format!("+ {what}: {id} is, and is not expected")));
    }

    /// Compares one answer: the word, whether it is seen, the scopes of a challenge, the reason.
    fn answer(
        &mut self,
        case: &Case,
        place: &str,
        (word, visible, scopes, reason): (&str, bool, &[Scope], &str),
    ) {
        let mut differs = |what: &str, expected: &str, got: &str| {
            self.0.push(format!("- {what}: {expected}\n+ {what}: {got} ({place})"));
        };
        match &case.expect {
            Some(expected) if expected != word => differs("expect", expected, word),
            None if case.seen.is_none() && case.redact.is_none() => differs("expect", "(missing)", word),
            _ => {}
        }
        if let Some(seen) = case.seen.filter(|s| *s != visible) {
            differs("seen", &seen.to_string(), &visible.to_string());
        }
        if let Some(expected) = case.scopes.as_ref().filter(|s| **s != scopes) {
            differs("scopes", &format!("{expected:?}"), &format!("{scopes:?}"));
        }
        if let Some(expected) = case.reason.as_ref().filter(|r| !reason.contains(r.as_str())) {
            differs("reason", expected, reason);
        }
    }
}

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseOutcome {
    /// The file and the name of the case.
    pub name: String,
    /// Whether everything was as expected.
    pub ok: bool,
    /// What was not, one line each, with the rule that decided.
    pub diff: String,
    /// The rules that had a say as `file:line`, the functions as `file#name`, for coverage.
    pub reached: Vec<String>,
}

impl PolicySet {
    /// Runs a file of cases; `home` are the tools and the agents for files without their own.
    pub fn run_cases(
        &self,
        file: &SourceFile,
        home: (&Catalog, &[AgentFacts]),
        diagnostics: &mut Diagnostics,
    ) -> Vec<CaseOutcome> {
        let parsed: File = match serde_saphyr::from_str(&file.text) {
            Ok(parsed) => parsed,
            Err(error) => {
                diagnostics.push(malformed(file, &error));
                return Vec::new();
            }
        };
        let own = parsed.tools.map(|tools| sketched(tools, diagnostics));
        let catalog = own.as_ref().unwrap_or(home.0);
        let own = parsed.agents.map(|all| all.into_iter().map(AgentSketch::facts).collect::<Vec<_>>());
        let agents = own.as_deref().unwrap_or(home.1);
        let callers: BTreeMap<String, Principal> = parsed
            .callers
            .into_iter()
            .map(|(name, sketch)| (name.clone(), sketch.principal(&name)))
            .collect();
        parsed
            .cases
            .iter()
            .map(|case| {
                let mut reached = Vec::new();
                let diff = match callers.get(&case.caller) {
                    Some(who) => self.check(case, (catalog, agents), who, &mut reached),
                    None => vec![format!("the file has no caller `{}` under `callers`", case.caller)],
                };
                let name = format!("{}: {}", file.name, case.name);
                CaseOutcome { name, ok: diff.is_empty(), diff: diff.join("\n"), reached }
            })
            .collect()
    }

    fn check(
        &self,
        case: &Case,
        (catalog, agents): (&Catalog, &[AgentFacts]),
        who: &Principal,
        reached: &mut Vec<String>,
    ) -> Vec<String> {
        let mut diff = Differences(self.check_agents(case, agents, who, reached));
        let is_roster = case.visible.is_some() || case.callable.is_some();
        if case.tool.is_some() && case.agent.is_some() {
            diff.0.push("a case is about a `tool` or about an `agent`: write two".to_owned());
        } else if let Some(id) = &case.tool {
            self.check_tool(case, id, catalog, who, &mut diff, reached);
        } else if !is_roster && case.agent.is_none() && case.agents.is_none() {
            diff.0.push("a case needs `tool`, `agent`, `visible`, `callable` or `agents`".to_owned());
        }
        if is_roster {
            // A whole roster looks at every tool.
            let all = catalog.iter().take(COVERED_TOOLS_MAX);
            let told = all.filter_map(|(no, _)| self.explain(catalog, who, no, case.args.as_ref()));
            reached.extend(told.flat_map(|e| e.steps).filter_map(|s| spoke(&s)));
            reached.sort_unstable();
            reached.dedup();
        }
        let roster = self.roster(catalog, who);
        for (what, expected, found) in
            [("visible", &case.visible, &roster.visible), ("callable", &case.callable, &roster.callable)]
        {
            let Some(expected) = expected else { continue };
            let found = found.iter().filter_map(|no| catalog.get(no)).map(|t| t.id.clone());
            diff.sets(what, expected, &found.collect());
        }
        diff.0
    }

    fn check_tool(
        &self,
        case: &Case,
        id: &str,
        catalog: &Catalog,
        who: &Principal,
        diff: &mut Differences,
        reached: &mut Vec<String>,
    ) {
        let found = catalog
            .lookup(id)
            .and_then(|(no, tool)| Some((tool, self.explain(catalog, who, no, case.args.as_ref())?)));
        let Some((tool, found)) = found else {
            diff.0.push(format!("there is no tool `{id}`"));
            return;
        };
        reached.extend(found.steps.iter().filter_map(spoke));
        let place = match &*found.rule.file {
            "" => format!("by default: {}", found.reason),
            _ => format!("at {}: {}", found.rule, found.reason),
        };
        diff.answer(case, &place, (found.decision, found.visible, &found.scopes, &found.reason));
        let Some(expected) = &case.redact else { return };
        let mut said = |f: &PhaseFunction| reached.push(coverage::function(&f.at.file, f.phase.name()));
        match self.redactions_by(who, tool, &mut said) {
            Ok(fields) => diff.sets("redact", expected, &fields.iter().map(ToString::to_string).collect()),
            Err(Reason::PolicyFault(text)) => {
                diff.0.push(format!("- redact: a policy failed, so no result is shown: {text}"));
            }
            Err(_) => diff.0.push("- redact: no result is shown".to_owned()),
        }
    }
}

/// What coverage knows a step by: the place of a rule, the file and phase of a function; nothing where it had no
/// opinion.
fn spoke(step: &ExplanationStep) -> Option<String> {
    match step.answer {
        "abstain" => None,
        _ if step.phase == "rule" => Some(step.rule.to_string()),
        _ => Some(coverage::function(&step.rule.file, step.phase)),
    }
}

fn malformed(file: &SourceFile, error: &serde_saphyr::Error) -> Diagnostic {
    let text = error.to_string();
    let message = text.lines().next().unwrap_or("not the form of a case file").to_owned();
    let diagnostic = Diagnostic::error("bad-case", &*file.name, message)
        .help("policies/README.md shows a case file; a misspelt key is refused too");
    match error.location() {
        Some(at) => {
            let number = |n: u64| usize::try_from(n).unwrap_or(0);
            diagnostic.at(&file.text, number(at.line()), number(at.column()))
        }
        None => diagnostic,
    }
}

impl CallerSketch {
    fn principal(self, name: &str) -> Principal {
        Principal {
            subject: Arc::from(name),
            scopes: self.scopes,
            agent: self.agent,
            tier: self.tier.map(Arc::from),
            claims: Arc::new(self.claims),
            ..Principal::default()
        }
    }
}

fn sketched(tools: Vec<ToolSketch>, diagnostics: &mut Diagnostics) -> Catalog {
    let mut builder = CatalogBuilder::new(Vec::new());
    for sketch in tools {
        let (upstream, name) = sketch.id.as_str().split_once('.').unwrap_or((sketch.id.as_str(), "tool"));
        let Ok(upstream) = UpstreamId::parse(upstream) else { continue };
        let mut tool = Tool::new(sketch.id.clone(), upstream, name, SchemaText::empty_object());
        tool.category = Arc::from(sketch.category);
        tool.tags = sketch.tags.into_iter().map(Arc::from).collect();
        tool.annotations = ToolAnnotations {
            title: None,
            read_only: sketch.read_only,
            destructive: sketch.destructive,
            idempotent: sketch.idempotent,
            open_world: sketch.open_world,
        };
        tool.tier = sketch.tier.map(Arc::from);
        tool.scopes = Arc::from(sketch.scopes);
        tool.facts = Arc::new(sketch.facts.into_iter().collect());
        builder.push(tool);
    }
    builder.build(diagnostics)
}
