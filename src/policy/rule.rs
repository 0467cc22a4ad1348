//! A rule: an effect and the tests that must all hold. Rules of scripts and of tables end in this form.

use std::sync::Arc;

use serde_json::Value;

use super::decision::RuleRef;
use super::glob::Glob;
use super::principal::Principal;
use super::tier::Tiers;
use crate::catalog::Tool;
use crate::id::Scope;
use crate::json::{self, Object};

/// What a rule does where it applies.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    Allow,
    /// The tool does not exist for the caller.
    Hide,
    /// No, with a reason for the caller.
    Deny(Arc<str>),
    /// Not without all of these scopes; a caller that holds them is not concerned.
    Challenge(Vec<Scope>),
    /// Yes, once a person says so.
    Confirm {
        question: Arc<str>,
        by_client: bool,
    },
}

impl Effect {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Hide => "hide",
            Self::Deny(_) => "deny",
            Self::Challenge(_) => "challenge",
            Self::Confirm { .. } => "confirm",
        }
    }
}

/// A test on the tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ToolTest {
    /// All of these tags.
    Tags(Vec<Arc<str>>),
    /// At least one of these tags.
    AnyTags(Vec<Arc<str>>),
    /// None of these tags.
    UnlessTags(Vec<Arc<str>>),
    Upstream(Vec<Glob>),
    Category(Vec<Glob>),
    /// The id fits one of these patterns.
    Tool(Vec<Glob>),
    /// The id fits none of these patterns.
    UnlessTool(Vec<Glob>),
    /// Neither the id nor the wire name fits one of these patterns: an agent names its tools in both ways.
    NotNamed(Vec<Glob>),
    ReadOnly(bool),
    Destructive(bool),
    OpenWorld(bool),
    Idempotent(bool),
    Deprecated(bool),
    /// The tool's own tier is one of these.
    Tier(Vec<Arc<str>>),
    /// A fact of `upstream.toml` has one of these values.
    Fact(Arc<str>, Vec<Value>),
}

impl ToolTest {
    pub(super) fn holds(&self, tool: &Tool) -> bool {
        let has = |tag: &Arc<str>| tool.tags.contains(tag);
        let fits = |globs: &[Glob], text: &str| globs.iter().any(|g| g.matches(text));
        match self {
            Self::Tags(tags) => tags.iter().all(has),
            Self::AnyTags(tags) => tags.iter().any(has),
            Self::UnlessTags(tags) => !tags.iter().any(has),
            Self::Upstream(globs) => fits(globs, tool.upstream.as_str()),
            Self::Category(globs) => fits(globs, &tool.category),
            Self::Tool(globs) => fits(globs, tool.id.as_str()),
            Self::UnlessTool(globs) => !fits(globs, tool.id.as_str()),
            Self::NotNamed(globs) => !fits(globs, tool.id.as_str()) && !fits(globs, &tool.wire_name),
            Self::ReadOnly(wanted) => tool.annotations.is_read_only() == *wanted,
            Self::Destructive(wanted) => tool.annotations.is_destructive() == *wanted,
            Self::OpenWorld(wanted) => open_world(tool) == *wanted,
            Self::Idempotent(wanted) => (tool.annotations.idempotent == Some(true)) == *wanted,
            Self::Deprecated(wanted) => tool.deprecated.is_some() == *wanted,
            Self::Tier(tiers) => tool.tier.as_ref().is_some_and(|t| tiers.contains(t)),
            Self::Fact(name, values) => tool.facts.get(&**name).is_some_and(|v| any_equal(values, v)),
        }
    }
}

/// MCP's default: a tool that does not say is taken to talk to an open world.
pub(super) fn open_world(tool: &Tool) -> bool {
    tool.annotations.open_world != Some(false)
}

/// `read`, `write` or `destructive`, from the annotations.
pub(super) fn effect_of(tool: &Tool) -> &'static str {
    if tool.annotations.is_read_only() {
        "read"
    } else if tool.annotations.is_destructive() {
        "destructive"
    } else {
        "write"
    }
}

/// A test on the caller.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallerTest {
    /// Holds all of these scopes.
    Scopes(Vec<Scope>),
    /// Holds at least one of these scopes.
    AnyScopes(Vec<Scope>),
    /// Does not hold all of these scopes.
    UnlessScopes(Vec<Scope>),
    /// Its tier reaches this one.
    Tier(Arc<str>),
    /// Its tier does not reach this one.
    UnlessTier(Arc<str>),
    Subject(Vec<Glob>),
    Agent(Vec<Glob>),
    /// A claim has one of these values, or is a list that contains one.
    Claim(Arc<str>, Vec<Value>),
}

impl CallerTest {
    /// The scopes that it looks at; nothing where it looks at something else.
    fn scopes(&self) -> Option<&[Scope]> {
        match self {
            Self::Scopes(scopes) | Self::AnyScopes(scopes) | Self::UnlessScopes(scopes) => Some(scopes),
            _ => None,
        }
    }

    pub(super) fn holds(&self, who: &Principal, tiers: &Tiers) -> bool {
        let fits = |globs: &[Glob], text: &str| globs.iter().any(|g| g.matches(text));
        match self {
            Self::Scopes(scopes) => scopes.iter().all(|s| who.scopes.contains(s)),
            Self::AnyScopes(scopes) => scopes.iter().any(|s| who.scopes.contains(s)),
            Self::UnlessScopes(scopes) => !scopes.iter().all(|s| who.scopes.contains(s)),
            Self::Tier(required) => tiers.reaches(who.tier.as_deref(), required),
            Self::UnlessTier(required) => !tiers.reaches(who.tier.as_deref(), required),
            Self::Subject(globs) => fits(globs, &who.subject),
            Self::Agent(globs) => who.agent.as_ref().is_some_and(|a| fits(globs, a.as_str())),
            Self::Claim(name, values) => match who.claims.get(&**name) {
                Some(Value::Array(items)) => items.iter().any(|v| any_equal(values, v)),
                Some(value) => any_equal(values, value),
                None => false,
            },
        }
    }
}

/// A test on the arguments: the value at a JSON Pointer is one of these.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArgumentTest {
    pub(super) pointer: String,
    pub(super) values: Vec<Value>,
}

impl ArgumentTest {
    pub(super) fn holds(&self, arguments: &Object) -> bool {
        lookup(arguments, &self.pointer).is_some_and(|v| any_equal(&self.values, v))
    }
}

/// The value at a JSON Pointer (RFC 6901) into an object; the empty pointer is no value of it.
fn lookup<'a>(object: &'a Object, pointer: &str) -> Option<&'a Value> {
    let rest = pointer.strip_prefix('/')?;
    let (first, deeper) = match rest.find('/') {
        Some(at) => (rest.get(..at)?, rest.get(at..)?),
        None => (rest, ""),
    };
    object.get(&json::pointer_name(first))?.pointer(deeper)
}

fn any_equal(values: &[Value], found: &Value) -> bool {
    values.iter().any(|v| equal(v, found))
}

/// JSON equality, where 1 equals 1.0.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || (x.as_f64().is_some() && x.as_f64() == y.as_f64()),
        _ => a == b,
    }
}

/// One rule. All tests must hold; a rule without tests always applies.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) at: RuleRef,
    pub(super) effect: Effect,
    pub(super) tool: Vec<ToolTest>,
    pub(super) caller: Vec<CallerTest>,
    pub(super) arguments: Vec<ArgumentTest>,
}

impl Rule {
    pub(super) fn new(at: RuleRef, effect: Effect) -> Self {
        Self { at, effect, tool: Vec::new(), caller: Vec::new(), arguments: Vec::new() }
    }

    /// Every tier that the rule names.
    pub(super) fn tiers(&self) -> impl Iterator<Item = &Arc<str>> {
        let callers = self.caller.iter().filter_map(|t| match t {
            CallerTest::Tier(tier) | CallerTest::UnlessTier(tier) => Some(tier),
            _ => None,
        });
        let tools = self.tool.iter().filter_map(|t| match t {
            ToolTest::Tier(tiers) => Some(tiers),
            _ => None,
        });
        callers.chain(tools.flatten())
    }

    pub(super) fn covers(&self, tool: &Tool) -> bool {
        self.tool.iter().all(|t| t.holds(tool))
    }

    /// Whether the caller is concerned; a challenge concerns only those who lack one of its scopes.
    pub(super) fn concerns(&self, who: &Principal, tiers: &Tiers) -> bool {
        self.caller.iter().all(|t| t.holds(who, tiers))
            && match &self.effect {
                Effect::Challenge(scopes) => !scopes.iter().all(|s| who.scopes.contains(s)),
                _ => true,
            }
    }

    /// Whether the caller could be concerned if it held other scopes.
    pub(super) fn could_concern(&self, who: &Principal, tiers: &Tiers) -> bool {
        self.caller.iter().filter(|t| t.scopes().is_none()).all(|t| t.holds(who, tiers))
    }

    /// Every scope that it looks at in callers or asks them for.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        let asked = match &self.effect {
            Effect::Challenge(scopes) => scopes.as_slice(),
            _ => &[],
        };
        self.caller.iter().filter_map(CallerTest::scopes).flatten().chain(asked)
    }

    /// Whether the arguments fit; `None` where the rule asks for arguments and none are known.
    pub(super) fn fits(&self, arguments: Option<&Object>) -> Option<bool> {
        if self.arguments.is_empty() {
            return Some(true);
        }
        arguments.map(|a| self.arguments.iter().all(|t| t.holds(a)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_found_by_pointer_and_numbers_compare_by_value() {
        let arguments = json!({"target": "prod", "n": 1, "a/b": {"c": [true]}});
        let arguments = arguments.as_object().unwrap();
        let test = |pointer: &str, value: Value| {
            ArgumentTest { pointer: pointer.to_owned(), values: vec![value] }.holds(arguments)
        };
        assert!(test("/target", json!("prod")) && test("/n", json!(1.0)) && test("/a~1b/c/0", json!(true)));
        assert!(!test("/target", json!("dev")) && !test("/missing", json!(null)) && !test("", json!({})));
    }
}
