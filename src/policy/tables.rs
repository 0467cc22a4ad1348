//! The rules of docent.toml: `[[allow]]`, `[[deny]]` and their kin, for the common cases without a script.

use std::sync::Arc;

use super::decision::RuleRef;
use super::glob::Glob;
use super::rule::{CallerTest, Effect, Rule, ToolTest};
use crate::id::{AgentId, Scope};
use crate::settings::{Located, Section};

/// Rules read from docent.toml, in file order of each kind. They are explained like rules of scripts.
#[derive(Debug, Clone, Default)]
pub struct PolicyTables(pub(super) Vec<Rule>);

impl PolicyTables {
    /// Reads `[[allow]]`, `[[deny]]`, `[[hide]]`, `[[challenge]]` and `[[confirm]]` of the root table.
    pub fn read(root: &mut Section) -> Self {
        let mut rules = Vec::new();
        for section in root.sections("allow") {
            table(section, &mut rules, |_| Some(Effect::Allow));
        }
        for section in root.sections("hide") {
            table(section, &mut rules, |_| Some(Effect::Hide));
        }
        for section in root.sections("deny") {
            table(section, &mut rules, |s| {
                let reason = s.string("reason").map_or_else(|| "not allowed here".to_owned(), |r| r.value);
                Some(Effect::Deny(Arc::from(reason)))
            });
        }
        for section in root.sections("challenge") {
            table(section, &mut rules, |s| match scopes(s, "require") {
                Some(list) => Some(Effect::Challenge(list)),
                None => {
                    let help = "add `require = [\"…\"]`, the scopes to come back with";
                    s.error(s.offset(), "missing-key", "a challenge needs `require`", help);
                    None
                }
            });
        }
        for section in root.sections("confirm") {
            table(section, &mut rules, |s| {
                let question = Arc::from(s.required_string("question").value);
                Some(Effect::Confirm { question, by_client: s.boolean("by_client").unwrap_or(false) })
            });
        }
        Self(rules)
    }

    /// Narrows the callers that speak as an agent to the tools that it names; an agent that names none narrows
    /// nothing. The rights of a caller are those that it, its token and its agent all have.
    pub fn narrow_agent(&mut self, agent: &AgentId, tools: &[String]) {
        if tools.is_empty() {
            return;
        }
        let globs = |texts: &[&str]| texts.iter().map(|t| Glob(Arc::from(*t))).collect::<Vec<_>>();
        let mut rule = Rule::new(RuleRef { file: Arc::from("docent.toml"), line: 0 }, Effect::Hide);
        rule.caller.push(CallerTest::Agent(globs(&[agent.as_str()])));
        rule.tool.push(ToolTest::NotNamed(globs(&tools.iter().map(String::as_str).collect::<Vec<_>>())));
        self.0.push(rule);
    }

    /// How many rules.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn table(mut s: Section, rules: &mut Vec<Rule>, effect: impl FnOnce(&mut Section) -> Option<Effect>) {
    let file = s.file().clone();
    // An array's tables begin at their header or their first key, whichever the parser knows.
    let line = file.text.get(..s.offset()).map_or(0, |before| before.matches('\n').count() + 1);
    let effect = effect(&mut s);
    let mut rule = Rule::new(RuleRef { file: Arc::clone(&file.name), line }, Effect::Hide);
    tool_tests(&mut s, &mut rule);
    caller_tests(&mut s, &mut rule);
    if let Some(effect) = effect {
        rules.push(Rule { effect, ..rule });
    }
}

/// A key and the test it makes.
type Keys<const N: usize, Given, Test> = [(&'static str, fn(Given) -> Test); N];

fn tool_tests(s: &mut Section, rule: &mut Rule) {
    let lists: Keys<4, Vec<Arc<str>>, ToolTest> = [
        ("tags", ToolTest::Tags),
        ("any_tags", ToolTest::AnyTags),
        ("unless_tags", ToolTest::UnlessTags),
        ("tool_tiers", ToolTest::Tier),
    ];
    for (key, test) in lists {
        if let Some(list) = texts(s, key) {
            rule.tool.push(test(list));
        }
    }
    let patterns: Keys<4, Vec<Glob>, ToolTest> = [
        ("upstreams", ToolTest::Upstream),
        ("categories", ToolTest::Category),
        ("tools", ToolTest::Tool),
        ("unless_tools", ToolTest::UnlessTool),
    ];
    for (key, test) in patterns {
        if let Some(list) = globs(s, key) {
            rule.tool.push(test(list));
        }
    }
    let flags: Keys<5, bool, ToolTest> = [
        ("read_only", ToolTest::ReadOnly),
        ("destructive", ToolTest::Destructive),
        ("open_world", ToolTest::OpenWorld),
        ("idempotent", ToolTest::Idempotent),
        ("deprecated", ToolTest::Deprecated),
    ];
    for (key, test) in flags {
        if let Some(wanted) = s.boolean(key) {
            rule.tool.push(test(wanted));
        }
    }
}

fn caller_tests(s: &mut Section, rule: &mut Rule) {
    let lists: Keys<3, Vec<Scope>, CallerTest> = [
        ("scopes", CallerTest::Scopes),
        ("any_scopes", CallerTest::AnyScopes),
        ("unless_scopes", CallerTest::UnlessScopes),
    ];
    for (key, test) in lists {
        if let Some(list) = scopes(s, key) {
            rule.caller.push(test(list));
        }
    }
    if let Some(tier) = s.string("tier") {
        rule.caller.push(CallerTest::Tier(Arc::from(tier.value)));
    }
    if let Some(list) = globs(s, "subjects") {
        rule.caller.push(CallerTest::Subject(list));
    }
    if let Some(list) = globs(s, "agents") {
        rule.caller.push(CallerTest::Agent(list));
    }
    for (name, value) in s.object("claims").unwrap_or_default() {
        let values = match value {
            serde_json::Value::Array(items) => items,
            one => vec![one],
        };
        rule.caller.push(CallerTest::Claim(Arc::from(name), values));
    }
}

/// A list that must not be empty: an empty one would make `tags` always hold and `any_tags` never.
fn filled(s: &mut Section, key: &str) -> Option<Vec<Located<String>>> {
    let list = s.strings(key)?;
    if list.is_empty() {
        let message = format!("`{}` is an empty list", s.full_key(key));
        s.error(s.offset(), "empty-list", message, "name at least one, or leave the key out");
        return None;
    }
    Some(list)
}

fn texts(s: &mut Section, key: &str) -> Option<Vec<Arc<str>>> {
    Some(filled(s, key)?.into_iter().map(|t| Arc::from(t.value)).collect())
}

fn globs(s: &mut Section, key: &str) -> Option<Vec<Glob>> {
    Some(texts(s, key)?.into_iter().map(Glob).collect())
}

fn scopes(s: &mut Section, key: &str) -> Option<Vec<Scope>> {
    let list = filled(s, key)?;
    let mut out = Vec::with_capacity(list.len());
    for item in list {
        match Scope::parse(&item.value) {
            Ok(scope) => out.push(scope),
            Err(e) => s.error(item.offset, "bad-scope", e.to_string(), "write a scope such as \"ops:read\""),
        }
    }
    // A rule that lost a scope would say something else than its author meant; the error above stops the load.
    Some(out)
}
