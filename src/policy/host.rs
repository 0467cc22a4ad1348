//! What policy scripts may use: the builder, the answers, the fields of caller, tool, arguments and agent,
//! and a few helpers. `policies/README.md` is made from this.

use std::sync::Arc;

use super::asked::{self, TextField};
use super::views::{
    AgentFacts, AnnotationsView, ArgumentsView, CallerRead, CallerView, ClaimsView, ClientView, FactsView,
    OwnershipView, ToolRead, ToolView,
};
use super::{answer, builder, glob};
use crate::json;
use crate::script::{
    Array, CallContext, Dialect, Dynamic, EngineBuilder, HostKind, HostResult, ScriptEngine, Text, fault,
    value,
};

/// The engine of the policy dialect with everything that policies may use.
pub(super) fn engine() -> ScriptEngine {
    let mut engine = EngineBuilder::new(Dialect::Policy);
    builder::register(&mut engine);
    answer::register(&mut engine);
    register(&mut engine);
    engine.build()
}

/// Everything that a policy script may use, as Markdown: the second half of `policies/README.md`.
pub fn reference() -> String {
    let lines = engine()
        .reference()
        .iter()
        .map(|item| match item.kind {
            HostKind::Type | HostKind::Section => {
                format!("\n### {}\n\n{}\n\n| | |\n|---|---|", item.signature, item.doc)
            }
            HostKind::Field | HostKind::Function => format!("| `{}` | {} |", item.signature, item.doc),
        })
        .collect::<Vec<_>>();
    lines.join("\n").trim_start().to_owned()
}

/// Registers the views and the helpers on them.
fn register(e: &mut EngineBuilder) {
    caller(e);
    tool(e);
    tool_parts(e);
    arguments(e);
    agent(e);
    asked::register(e);
    e.section("Helpers", "Functions on plain values.");
    e.function(
        "glob",
        "glob(pattern, text)",
        "Whether the pattern covers the text: `*` is any text, `?` one character. For a tool's id prefer `tool.matches(pattern)`, which is remembered for all tools at once.",
        |pattern: &str, text: &str| glob::matches(pattern, text),
    );
    e.function(
        "owns",
        "owns(kind, id)",
        "Whether a successful call of this caller created the thing: one whose tool says `creates` in upstream.toml. In `decide` and `visible`; in lists it is as unknown as the arguments are.",
        |c: CallContext<'_>, kind: &str, id: Dynamic| -> HostResult<bool> {
            let own = c.tag().and_then(|tag| tag.read_lock::<OwnershipView>().map(|own| own.clone()));
            let own = own.ok_or_else(|| fault("`owns` is known in `decide` and `visible` only"))?;
            let id = id.as_immutable_string_ref().map_or_else(|_other| id.to_string(), |t| t.to_string());
            own.owns(kind, &id)
        },
    );
}

fn caller(e: &mut EngineBuilder) {
    e.host_type::<CallerView>("Caller", "Whom the request speaks for.");
    macro_rules! field {
        ($name:literal, $read:ident, $doc:literal) => {
            e.field($name, concat!("caller.", $name), $doc, |c: &mut CallerView| c.read(CallerRead::$read));
        };
    }
    e.field(
        "subject",
        "caller.subject",
        "Its name: a key of `[callers]`, a token's subject, or `anonymous`.",
        CallerView::subject,
    );
    e.field(
        "scopes",
        "caller.scopes",
        "The list of its scopes: `\"ops:read\" in caller.scopes`.",
        CallerView::scopes,
    );
    field!("agent", Agent, "The agent it speaks as, or `()`.");
    field!("tier", Tier, "Its tier, or `()`. To compare, use `tier_at_least`.");
    e.field(
        "claims",
        "caller.claims.NAME",
        "Free facts of its entry or token; `()` where it has none of that name.",
        |c: &mut CallerView| ClaimsView(c.clone()),
    );
    e.index(|c: &mut ClaimsView, name: &str| c.0.read(CallerRead::Claim(Arc::from(name))));
    e.function("contains", "\"NAME\" in caller.claims", "Whether it has a claim of that name.", {
        |c: &mut ClaimsView, name: &str| !c.0.read(CallerRead::Claim(Arc::from(name))).is_unit()
    });
    e.field("client", "caller.client", "What its client says of itself. Never a ground for a right.", {
        |c: &mut CallerView| ClientView(c.clone())
    });
    e.field("name", "caller.client.name", "The client's name, or `()`.", |c: &mut ClientView| {
        c.0.read(CallerRead::ClientName)
    });
    e.field("version", "caller.client.version", "The client's version, or `()`.", |c: &mut ClientView| {
        c.0.read(CallerRead::ClientVersion)
    });
    e.function(
        "has_scope",
        "has_scope(caller, scope)",
        "Whether the caller holds a scope, spelled exactly.",
        |c: &mut CallerView, scope: &str| c.read(CallerRead::HasScope(Arc::from(scope))),
    );
    e.function(
        "tier_at_least",
        "tier_at_least(caller, tier)",
        "Whether the caller's tier is this one or a higher rung of `[tiers].order`.",
        |c: &mut CallerView, tier: &str| c.read(CallerRead::Reaches(Arc::from(tier))),
    );
}

/// A field of the tool, or of its annotations.
macro_rules! tool_field {
    ($e:ident, $view:ident, $name:literal, $signature:literal, $read:ident, $doc:literal) => {
        $e.field($name, $signature, $doc, |t: &mut $view| t.read(ToolRead::$read));
    };
}

fn tool(e: &mut EngineBuilder) {
    e.host_type::<ToolView>("Tool", "The tool in question.");
    macro_rules! text {
        ($name:literal, $field:ident, $doc:literal) => {
            e.field($name, concat!("tool.", $name), $doc, |t: &mut ToolView| t.text(TextField::$field));
        };
    }
    text!("id", Id, "Its id. For a pattern, `tool.matches(pattern)`.");
    text!("name", Name, "Its name at the upstream.");
    text!("upstream", Upstream, "The upstream that runs it.");
    text!("category", Category, "Its category, or an empty text.");
    e.field("tags", "tool.tags", "The list of its tags: `\"ci\" in tool.tags`.", ToolView::tags);
    tool_field!(e, ToolView, "tier", "tool.tier", Tier, "The tier it asks for, or `()`; docent enforces it.");
    e.field("scopes", "tool.scopes", "The scopes it asks for; docent enforces them.", ToolView::scopes);
    tool_field!(
        e,
        ToolView,
        "effect",
        "tool.effect",
        Effect,
        "`\"read\"`, `\"write\"` or `\"destructive\"`, from its annotations."
    );
    tool_field!(e, ToolView, "deprecated", "tool.deprecated", Deprecated, "Whether it is on its way out.");
}

fn tool_parts(e: &mut EngineBuilder) {
    e.field("annotations", "tool.annotations", "MCP's hints, each true or false.", |t: &mut ToolView| {
        AnnotationsView(t.clone())
    });
    tool_field!(
        e,
        AnnotationsView,
        "read_only",
        "tool.annotations.read_only",
        ReadOnly,
        "It says that it only reads."
    );
    tool_field!(
        e,
        AnnotationsView,
        "destructive",
        "tool.annotations.destructive",
        Destructive,
        "It may destroy: yes unless it says otherwise or only reads."
    );
    tool_field!(
        e,
        AnnotationsView,
        "open_world",
        "tool.annotations.open_world",
        OpenWorld,
        "It talks to an open world: yes unless it says otherwise."
    );
    tool_field!(
        e,
        AnnotationsView,
        "idempotent",
        "tool.annotations.idempotent",
        Idempotent,
        "It says that calling twice is calling once."
    );
    e.field(
        "facts",
        "tool.facts.NAME",
        "Free facts of upstream.toml; `()` where there is none of that name.",
        |t: &mut ToolView| FactsView(t.clone()),
    );
    e.index(|f: &mut FactsView, name: &str| f.0.read(ToolRead::Fact(Arc::from(name))));
    e.function("contains", "\"NAME\" in tool.facts", "Whether it has a fact of that name.", {
        |f: &mut FactsView, name: &str| !f.0.read(ToolRead::Fact(Arc::from(name))).is_unit()
    });
    e.function(
        "has_tag",
        "has_tag(tool, tag)",
        "Whether the tool has a tag.",
        |t: &mut ToolView, tag: &str| t.read(ToolRead::HasTag(Arc::from(tag))),
    );
    e.function(
        "matches",
        "matches(tool, pattern)",
        "Whether the tool's id fits a pattern: `tool.matches(\"deploy.*\")`.",
        |t: &mut ToolView, pattern: &str| t.read(ToolRead::Matches(Arc::from(pattern))),
    );
}

fn arguments(e: &mut EngineBuilder) {
    e.host_type::<ArgumentsView>("Arguments", "The arguments of the call. In lists and searches they are not known: what a function would answer then depends on them.");
    e.document("args.NAME", "An argument, or `()` where it was not given. Also `args[\"NAME\"]`.");
    e.index(|a: &mut ArgumentsView, name: &str| -> HostResult<Dynamic> {
        Ok(a.known()?.get(name).map_or(Dynamic::UNIT, value::to_dynamic))
    });
    e.function(
        "contains",
        "\"NAME\" in args",
        "Whether the argument was given.",
        |a: &mut ArgumentsView, name: &str| -> HostResult<bool> { Ok(a.known()?.contains_key(name)) },
    );
    e.function(
        "keys",
        "args.keys()",
        "The names of the arguments given.",
        |a: &mut ArgumentsView| -> HostResult<Array> {
            Ok(a.known()?.keys().map(|k| Dynamic::from(k.clone())).collect())
        },
    );
    e.function("bytes", "args.bytes()", "The size of the arguments as compact JSON.", {
        |a: &mut ArgumentsView| -> HostResult<i64> {
            Ok(i64::try_from(json::encoded_len(a.known()?)).unwrap_or(i64::MAX))
        }
    });
}

fn agent(e: &mut EngineBuilder) {
    e.host_type::<AgentFacts>("Agent", "The agent in question, for `agent_visible` and `agent_open`.");
    let list =
        |texts: &[Arc<str>]| -> Array { texts.iter().map(|t| Dynamic::from(Text::from(&**t))).collect() };
    e.field("id", "agent.id", "Its name: a key of `[agents]`.", |a: &mut AgentFacts| {
        Text::from(a.id.as_str())
    });
    e.field("description", "agent.description", "What it is for.", |a: &mut AgentFacts| {
        Text::from(&*a.description)
    });
    e.field(
        "capabilities",
        "agent.capabilities",
        "The list of what it can do.",
        move |a: &mut AgentFacts| list(&a.capabilities),
    );
    e.field("tools", "agent.tools", "The ids and patterns of its tools.", move |a: &mut AgentFacts| {
        list(&a.tools)
    });
}
