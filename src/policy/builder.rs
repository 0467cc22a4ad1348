//! The builder that `fn rules(p)` writes with: every verb adds a rule, every further call adds a test to it.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::decision::RuleRef;
use super::glob::Glob;
use super::rule::{ArgumentTest, CallerTest, Effect, Rule, ToolTest};
use crate::id::Scope;
use crate::script::{Array, CallContext, Dynamic, EngineBuilder, HostResult, call_site, fault, value};

/// Rules one file may build: a policy with more is better written with tags.
const RULES_PER_FILE_MAX: usize = 500;

/// `p` of `fn rules(p)`.
#[derive(Debug, Clone)]
pub(super) struct Builder {
    file: Arc<str>,
    rules: Arc<Mutex<Vec<Rule>>>,
}

/// One rule being built.
#[derive(Debug, Clone)]
struct Handle {
    rules: Arc<Mutex<Vec<Rule>>>,
    index: usize,
}

impl Builder {
    pub(super) fn new(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), rules: Arc::default() }
    }

    /// The rules built, in the order they were begun.
    pub(super) fn finish(self) -> Vec<Rule> {
        std::mem::take(&mut *self.rules.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(&self, context: &CallContext<'_>, effect: Effect) -> HostResult<Handle> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if rules.len() >= RULES_PER_FILE_MAX {
            return Err(fault(format!(
                "more than {RULES_PER_FILE_MAX} rules in one file; name tools by tags"
            )));
        }
        let (_, line) = call_site(context);
        rules.push(Rule::new(RuleRef { file: Arc::clone(&self.file), line }, effect));
        Ok(Handle { rules: Arc::clone(&self.rules), index: rules.len() - 1 })
    }
}

impl Handle {
    fn edit(&self, edit: impl FnOnce(&mut Rule) -> Result<(), String>) -> HostResult<Self> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = rules.get_mut(self.index).ok_or_else(|| fault("this rule was finished"))?;
        edit(rule).map_err(fault)?;
        drop(rules);
        Ok(self.clone())
    }

    fn tool(&self, test: ToolTest) -> HostResult<Self> {
        self.edit(|rule| {
            rule.tool.push(test);
            Ok(())
        })
    }

    fn caller(&self, test: CallerTest) -> HostResult<Self> {
        self.edit(|rule| {
            rule.caller.push(test);
            Ok(())
        })
    }
}

/// A text, or a list of texts; never empty.
pub(super) fn texts(given: &Dynamic) -> HostResult<Vec<Arc<str>>> {
    let found: Option<Vec<Arc<str>>> = if let Ok(text) = given.as_immutable_string_ref() {
        Some(vec![Arc::from(text.as_str())])
    } else if let Ok(items) = given.as_array_ref() {
        items.iter().map(|i| i.as_immutable_string_ref().ok().map(|t| Arc::from(t.as_str()))).collect()
    } else {
        None
    };
    match found {
        Some(list) if !list.is_empty() => Ok(list),
        _ => Err(fault("expected a text or a list of texts, not empty")),
    }
}

fn globs(given: &Dynamic) -> HostResult<Vec<Glob>> {
    Ok(texts(given)?.into_iter().map(Glob).collect())
}

/// A list of scopes; never empty, each of the scope alphabet.
pub(super) fn scopes(given: &Dynamic) -> HostResult<Vec<Scope>> {
    texts(given)?.iter().map(|s| Scope::parse(s).map_err(|e| fault(e.to_string()))).collect()
}

fn values(given: &Dynamic) -> HostResult<Vec<Value>> {
    match value::from_dynamic(given).map_err(|e| fault(e.to_string()))? {
        Value::Array(items) if items.is_empty() => {
            Err(fault("expected a value or a list of values, not empty"))
        }
        Value::Array(items) => Ok(items),
        one => Ok(vec![one]),
    }
}

/// A reason or question: not empty, short enough for an error message.
pub(super) fn sentence(text: &str, what: &str) -> HostResult<Arc<str>> {
    match text.trim() {
        "" => Err(fault(format!("the {what} is empty; write one sentence for the caller"))),
        text if text.len() > 500 => Err(fault(format!("the {what} is longer than 500 bytes"))),
        text => Ok(Arc::from(text)),
    }
}

/// Registers the builder's verbs and tests.
pub(super) fn register(engine: &mut EngineBuilder) {
    engine.host_type::<Builder>(
        "Policy",
        "What `fn rules(p)` gets as `p`. Each verb begins a rule; the rule applies where all its tests hold.",
    );
    verbs(engine);
    engine.host_type::<Handle>(
        "Rule",
        "What a verb returns. Each call adds a test; a rule without tests always applies.",
    );
    by_client(engine);
    tool_tests(engine);
    annotation_tests(engine);
    caller_tests(engine);
}

fn verbs(e: &mut EngineBuilder) {
    e.function("allow", "p.allow()", "The tool may be called.", |c: CallContext<'_>, p: &mut Builder| {
        p.begin(&c, Effect::Allow)
    });
    e.function(
        "hide",
        "p.hide()",
        "The tool does not exist for the caller, in lists, searches and calls. Cannot look at arguments.",
        |c: CallContext<'_>, p: &mut Builder| p.begin(&c, Effect::Hide),
    );
    e.function(
        "deny",
        "p.deny(reason)",
        "The call is refused; the caller reads the reason. Beats every other verb but `hide`.",
        |c: CallContext<'_>, p: &mut Builder, reason: &str| {
            p.begin(&c, Effect::Deny(sentence(reason, "reason")?))
        },
    );
    e.function(
        "challenge",
        "p.challenge([scopes])",
        "A caller that lacks one of the scopes is asked to come back with all of them (step-up). It grants nothing: a caller that holds them still needs an allow, and where nothing would allow it even then, nobody is asked and the tool stays hidden.",
        |c: CallContext<'_>, p: &mut Builder, list: Array| {
            p.begin(&c, Effect::Challenge(scopes(&Dynamic::from_array(list))?))
        },
    );
    e.function(
        "confirm",
        "p.confirm(question)",
        "The tool may be called once a person has said yes to the question. It is an allow that asks first.",
        |c: CallContext<'_>, p: &mut Builder, question: &str| {
            p.begin(&c, Effect::Confirm { question: sentence(question, "question")?, by_client: false })
        },
    );
}

fn by_client(e: &mut EngineBuilder) {
    e.function(
        "by_client",
        "rule.by_client()",
        "After `confirm`: the client's own answer counts too. Without it only a person outside the client can confirm.",
        |r: &mut Handle| {
            r.edit(|rule| match &mut rule.effect {
                Effect::Confirm { by_client, .. } => {
                    *by_client = true;
                    Ok(())
                }
                other => Err(format!("`by_client` belongs to `confirm`, not to `{}`", other.word())),
            })
        },
    );
}

fn tool_tests(e: &mut EngineBuilder) {
    e.function(
        "tags",
        "rule.tags([tags])",
        "The tool has all of these tags.",
        |r: &mut Handle, v: Dynamic| r.tool(ToolTest::Tags(texts(&v)?)),
    );
    e.function(
        "any_tags",
        "rule.any_tags([tags])",
        "The tool has at least one of these tags.",
        |r: &mut Handle, v: Dynamic| r.tool(ToolTest::AnyTags(texts(&v)?)),
    );
    e.function(
        "unless_tags",
        "rule.unless_tags([tags])",
        "The tool has none of these tags.",
        |r: &mut Handle, v: Dynamic| r.tool(ToolTest::UnlessTags(texts(&v)?)),
    );
    e.function(
        "upstream",
        "rule.upstream(pattern)",
        "The tool's upstream fits the pattern, or one of a list of patterns (`*` any text, `?` one character).",
        |r: &mut Handle, v: Dynamic| r.tool(ToolTest::Upstream(globs(&v)?)),
    );
    e.function(
        "category",
        "rule.category(pattern)",
        "The tool's category fits the pattern, or one of a list.",
        |r: &mut Handle, v: Dynamic| r.tool(ToolTest::Category(globs(&v)?)),
    );
    e.function(
        "tool",
        "rule.tool(pattern)",
        "The tool's id fits the pattern, or one of a list: `deploy.*`.",
        |r: &mut Handle, v: Dynamic| r.tool(ToolTest::Tool(globs(&v)?)),
    );
    e.function(
        "unless_tool",
        "rule.unless_tool(pattern)",
        "The tool's id fits none of the patterns.",
        |r: &mut Handle, v: Dynamic| r.tool(ToolTest::UnlessTool(globs(&v)?)),
    );
    e.function(
        "tool_tier",
        "rule.tool_tier(tier)",
        "The tool's own tier is this one, or one of a list.",
        |r: &mut Handle, v: Dynamic| r.tool(ToolTest::Tier(texts(&v)?)),
    );
    e.function(
        "fact",
        "rule.fact(name, value)",
        "A fact that upstream.toml gives the tool has this value, or one of a list.",
        |r: &mut Handle, name: &str, v: Dynamic| r.tool(ToolTest::Fact(Arc::from(name), values(&v)?)),
    );
}

/// Each annotation has a form without argument, which means `true`.
fn annotation_tests(e: &mut EngineBuilder) {
    macro_rules! annotation {
        ($name:literal, $test:ident, $doc:literal) => {
            e.function($name, concat!("rule.", $name, "()"), $doc, |r: &mut Handle| {
                r.tool(ToolTest::$test(true))
            });
            e.function(
                $name,
                concat!("rule.", $name, "(bool)"),
                "The same, or its opposite with `false`.",
                { |r: &mut Handle, wanted: bool| r.tool(ToolTest::$test(wanted)) },
            );
        };
    }
    annotation!(
        "read_only",
        ReadOnly,
        "The tool says that it only reads (`readOnlyHint`). Not saying is no."
    );
    annotation!(
        "destructive",
        Destructive,
        "The tool is not read-only and does not say that it is harmless (`destructiveHint`, yes by default)."
    );
    annotation!(
        "open_world",
        OpenWorld,
        "The tool talks to an open world (`openWorldHint`, yes by default)."
    );
    annotation!(
        "idempotent",
        Idempotent,
        "The tool says that calling twice is calling once (`idempotentHint`)."
    );
    annotation!("deprecated", Deprecated, "The tool is on its way out.");
}

fn caller_tests(e: &mut EngineBuilder) {
    e.function(
        "scopes",
        "rule.scopes([scopes])",
        "The caller holds all of these scopes.",
        |r: &mut Handle, v: Dynamic| r.caller(CallerTest::Scopes(scopes(&v)?)),
    );
    e.function(
        "any_scopes",
        "rule.any_scopes([scopes])",
        "The caller holds at least one of these scopes.",
        |r: &mut Handle, v: Dynamic| r.caller(CallerTest::AnyScopes(scopes(&v)?)),
    );
    e.function(
        "unless_scopes",
        "rule.unless_scopes([scopes])",
        "The caller does not hold all of these scopes.",
        |r: &mut Handle, v: Dynamic| r.caller(CallerTest::UnlessScopes(scopes(&v)?)),
    );
    e.function(
        "tier",
        "rule.tier(tier)",
        "The caller's tier reaches this one: the same, or a higher rung of `[tiers].order`.",
        |r: &mut Handle, tier: &str| r.caller(CallerTest::Tier(Arc::from(tier))),
    );
    e.function(
        "unless_tier",
        "rule.unless_tier(tier)",
        "The caller's tier does not reach this one.",
        |r: &mut Handle, tier: &str| r.caller(CallerTest::UnlessTier(Arc::from(tier))),
    );
    e.function(
        "subject",
        "rule.subject(pattern)",
        "The caller's name fits the pattern, or one of a list.",
        |r: &mut Handle, v: Dynamic| r.caller(CallerTest::Subject(globs(&v)?)),
    );
    e.function(
        "agent",
        "rule.agent(pattern)",
        "The caller speaks as an agent whose name fits the pattern, or one of a list.",
        |r: &mut Handle, v: Dynamic| r.caller(CallerTest::Agent(globs(&v)?)),
    );
    e.function(
        "claim",
        "rule.claim(name, value)",
        "The caller's claim has this value (or one of a list of values), or is a list that contains it.",
        |r: &mut Handle, name: &str, v: Dynamic| r.caller(CallerTest::Claim(Arc::from(name), values(&v)?)),
    );
    e.function(
        "when_arg",
        "rule.when_arg(pointer, value)",
        "The argument at the JSON Pointer has this value, or one of a list. Not for `hide`.",
        |r: &mut Handle, pointer: &str, v: Dynamic| {
            let test = ArgumentTest { pointer: pointer.to_owned(), values: values(&v)? };
            r.edit(|rule| {
                if rule.effect == Effect::Hide {
                    return Err(
                        "`hide` cannot look at arguments: a hidden tool has no calls; use `deny`".to_owned()
                    );
                }
                if !test.pointer.starts_with('/') {
                    return Err(format!("`{}` is no JSON Pointer; write `/name`", test.pointer));
                }
                rule.arguments.push(test);
                Ok(())
            })
        },
    );
}
