//! Extensions of the protocol: what the server offers, what a client declares, and the canonical results of
//! progressive discovery (seed 004). A client that declares nothing sees nothing of this.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::ToolResult;
use crate::gateway::Negotiated;
use crate::json::{self, JsonText};
use crate::snapshot::MetaTool;

use super::revision::Revision;

/// The list is the entry catalog, and a result stands once, in `structuredContent.result`.
const PROGRESSIVE: &str = "dev.docent/progressive-tool-discovery";
/// The agents draft: with it the list is always complete.
const AGENTS: &str = "io.modelcontextprotocol/agents";
/// Long calls are answered with tasks, on the stateless wire (SEP-2663).
const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The version of the first that is spoken here.
const VERSION: u64 = 1;
/// What the text half of a canonical result says.
const RESULT_POINTER: &str = "Canonical result: structuredContent.result";
/// What the text half of a canonical failure says.
const ERROR_POINTER: &str = "Canonical error: structuredContent";

/// `capabilities.extensions`. Tasks are an extension of the stateless wire only.
pub(super) fn offered(server: &str, revision: Revision) -> Value {
    let mut all = json!({
        PROGRESSIVE: {
            "version": VERSION,
            "discoveryTool": &*MetaTool::SearchTools.wire_name(server),
            "canonicalResult": "structuredContent.result",
            "compatibilityText": "pointer",
        },
        AGENTS: { "listChanged": true },
    });
    if let (true, Some(members)) = (revision.is_stateless(), all.as_object_mut()) {
        members.insert(TASKS.to_owned(), json!({}));
    }
    all
}

/// What a client has to declare for the methods of tasks, as the capabilities of MCP 2026-07-28.
pub(super) fn tasks_required() -> Value {
    json!({ "requiredCapabilities": { "extensions": { TASKS: {} } } })
}

/// The extensions in a client's capabilities. One of another version than is offered is not negotiated.
pub(super) fn negotiated(capabilities: Option<&Value>) -> Negotiated {
    let declared = |id| capabilities?.get("extensions")?.get(id)?.as_object();
    let same_version =
        |settings: &json::Object| settings.get("version").is_none_or(|v| v.as_u64() == Some(VERSION));
    let has = |name| capabilities.and_then(|c| c.get(name));
    Negotiated {
        progressive: declared(PROGRESSIVE).is_some_and(same_version),
        tasks: declared(TASKS).is_some(),
        agents: declared(AGENTS).is_some(),
        elicitation: has("elicitation").is_some_and(takes_forms),
        sampling: has("sampling").is_some_and(Value::is_object),
        roots: has("roots").is_some_and(Value::is_object),
    }
}

/// Whether a client can show forms: an empty object is the form mode alone (MCP 2025-11-25, elicitation).
fn takes_forms(elicitation: &Value) -> bool {
    elicitation.as_object().is_some_and(|modes| modes.is_empty() || modes.contains_key("form"))
}

/// A result with one canonical half, and the text that points to it; none where the blocks are the result.
#[derive(Debug)]
pub(super) struct Canonical {
    pub(super) result: ToolResult,
    pub(super) pointer: Option<&'static str>,
}

impl Canonical {
    /// The result as every other client gets it.
    pub(super) fn none(result: ToolResult) -> Self {
        Self { result, pointer: None }
    }
}

/// Puts the one result into `structuredContent.result`; of a failure, everything stands beside
/// `"result":null`. Images and links stay content blocks: they have no other form.
pub(super) fn canonical(mut result: ToolResult) -> Canonical {
    let value = match (&result.structured, result.text.take()) {
        (Some(structured), _) => structured.as_str().to_owned(),
        (None, Some(text)) => json::to_text(&text),
        (None, None) => "null".to_owned(),
    };
    let pointer = match (result.is_error, value.as_str()) {
        (_, "null") if !result.blocks.is_empty() => None,
        (true, _) => Some(ERROR_POINTER),
        (false, _) => Some(RESULT_POINTER),
    };
    let text = if result.is_error { failed(&value) } else { format!("{{\"result\":{value}}}") };
    result.structured = JsonText::parse(text).ok();
    Canonical { result, pointer }
}

/// A failure's members beside `"result":null`. What is no object is the `message`.
fn failed(value: &str) -> String {
    let members: Option<BTreeMap<Cow<'_, str>, &RawValue>> =
        json::parse_as(value.as_bytes(), value.len()).ok();
    let Some(mut members) = members else {
        return format!("{{\"result\":null,\"ok\":false,\"message\":{value}}}");
    };
    members.remove("result");
    let mut out = "{\"result\":null".to_owned();
    for (name, raw) in members {
        out.push(',');
        out.push_str(&json::to_text(&*name));
        out.push(':');
        out.push_str(raw.get());
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(result: ToolResult) -> (Value, Option<&'static str>) {
        let Canonical { result, pointer } = canonical(result);
        (result.structured.unwrap().value(), pointer)
    }

    #[test]
    fn only_what_is_declared_in_this_version_is_negotiated() {
        let declared =
            |extensions: Value| negotiated(Some(&json!({ "extensions": extensions }))).is_progressive();
        assert!(declared(json!({PROGRESSIVE: {}})) && declared(json!({PROGRESSIVE: {"version": 1}})));
        for other in [
            json!({}),
            json!(null),
            json!({PROGRESSIVE: null}),
            json!({PROGRESSIVE: true}),
            json!({PROGRESSIVE: {"version": 2}}),
            json!({"dev.unbrained.pm/progressive-tool-discovery": {}}),
            json!({PROGRESSIVE: {}, AGENTS: {}}),
        ] {
            assert!(!declared(other.clone()), "{other}");
        }
        assert_eq!(negotiated(None), Negotiated::default());
        assert!(negotiated(Some(&json!({"extensions": {AGENTS: {}}}))).agents);
        for (declared, asks) in [
            (json!({}), true),
            (json!({"form": {}, "url": {}}), true),
            (json!({"url": {}}), false),
            (json!(true), false),
        ] {
            let capabilities = json!({ "elicitation": declared });
            assert_eq!(negotiated(Some(&capabilities)).elicitation, asks, "{capabilities}");
        }
    }

    #[test]
    fn a_result_stands_once_digit_for_digit() {
        let big = r#"{"n":123456789012345678901234567890}"#;
        let structured = Some(JsonText::parse(big.to_owned()).unwrap());
        let made = canonical(ToolResult { structured, ..ToolResult::default() });
        assert_eq!(made.result.structured.unwrap().as_str(), format!("{{\"result\":{big}}}"));
        assert_eq!(made.pointer, Some(RESULT_POINTER));
        let text = ToolResult { text: Some("two\nlines".to_owned()), ..ToolResult::default() };
        assert_eq!(of(text), (json!({"result": "two\nlines"}), Some(RESULT_POINTER)));
        let image = RawValue::from_string(r#"{"type":"image"}"#.to_owned()).unwrap();
        let blocks = ToolResult { blocks: vec![image], ..ToolResult::default() };
        assert_eq!(of(blocks), (json!({"result": null}), None));
    }

    #[test]
    fn a_failure_has_no_result_and_keeps_everything_else() {
        let failure = json!({"ok": false, "error": {"code": "CONFLICT"}, "result": "stale"});
        let failed = |structured: Option<&Value>, text: Option<&str>| {
            of(ToolResult {
                structured: structured.map(JsonText::from),
                text: text.map(str::to_owned),
                is_error: true,
                ..ToolResult::default()
            })
        };
        let expected = json!({"result": null, "ok": false, "error": {"code": "CONFLICT"}});
        assert_eq!(failed(Some(&failure), None), (expected, Some(ERROR_POINTER)));
        let told = json!({"result": null, "ok": false, "message": "it broke"});
        assert_eq!(failed(None, Some("it broke")), (told, Some(ERROR_POINTER)));
    }
}
