//! What the providers' APIs would say of a tool: names, roots, depth, size. One bad tool makes them refuse the
//! whole request, so `docent check` says it first.
//!
//! Rules as the three APIs state or enforce them in 2026; they judge what is shown (the wire name and the wire
//! schema), never the strict schema.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use serde_json::Value;

use crate::json::{self, Object};
use crate::limits::SCHEMA_BYTES_PER_TOOL;

/// Bytes of a tool's name: 64 at OpenAI and Gemini; Anthropic's newer models take 128.
const NAME_BYTES_MAX: usize = 64;
/// Characters of a function's description at OpenAI.
const OPENAI_DESCRIPTION_CHARS_MAX: usize = 1_024;
/// Levels of nesting at OpenAI (structured outputs; references count where they lead).
const OPENAI_DEPTH_MAX: usize = 10;
/// Members of all objects together at OpenAI.
const OPENAI_MEMBERS_MAX: usize = 5_000;
/// Values of all enumerations together at OpenAI.
const OPENAI_ENUM_VALUES_MAX: usize = 1_000;
/// Schemas walked at most, and levels below the root: enough for every rule, and a ring ends.
const WALK_MAX: usize = 50_000;
const DEPTH_WALKED_MAX: usize = 40;

/// Whose API it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Anthropic Messages API.
    Anthropic,
    /// OpenAI function calling.
    OpenAi,
    /// Gemini function declarations.
    Gemini,
}

/// One thing that a provider refuses or misreads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Who.
    pub provider: Provider,
    /// A stable kebab-case name of the rule.
    pub rule: &'static str,
    /// Whether the whole request is refused, rather than the tool misread.
    pub refused: bool,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The way out.
    pub help: &'static str,
}

/// Judges a tool as it is shown.
pub fn lint(wire_name: &str, description: &str, schema: &Value) -> Vec<Finding> {
    let mut out = Vec::new();
    name(wire_name, &mut out);
    if description.chars().count() > OPENAI_DESCRIPTION_CHARS_MAX {
        out.push(Finding {
            provider: Provider::OpenAi,
            rule: "description-length",
            refused: true,
            message: format!(
                "the description has {} characters, {OPENAI_DESCRIPTION_CHARS_MAX} are taken",
                description.chars().count()
            ),
            help: "shorten it with `[override]` in upstream.toml",
        });
    }
    root(schema, &mut out);
    let walk = Walk::of(schema);
    walk.judge(schema, &mut out);
    out
}

fn name(name: &str, out: &mut Vec<Finding>) {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let help = "give the tool another name in upstream.toml";
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !plain {
        for provider in [Provider::Anthropic, Provider::OpenAi, Provider::Gemini] {
            out.push(Finding {
                provider,
                rule: "name",
                refused: true,
                message: format!(
                    "the name `{name}` is not 1 to {NAME_BYTES_MAX} letters, digits, `_` or `-`"
                ),
                help,
            });
        }
    } else if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        out.push(Finding {
            provider: Provider::Gemini,
            rule: "name",
            refused: true,
            message: format!("the name `{name}` does not begin with a letter or `_`"),
            help,
        });
    }
}

fn root(schema: &Value, out: &mut Vec<Finding>) {
    let empty = Object::new();
    let root = schema.as_object().unwrap_or(&empty);
    if root.get("type").is_none_or(|t| t != "object") {
        for provider in [Provider::Anthropic, Provider::OpenAi, Provider::Gemini] {
            out.push(Finding {
                provider,
                rule: "root-type",
                refused: true,
                message: "the root of the input schema is not `\"type\": \"object\"`".to_owned(),
                help: "fold the schema (docent does so for discovered tools)",
            });
        }
    }
    for key in ["anyOf", "oneOf", "allOf", "enum", "not", "if", "$ref"] {
        if root.contains_key(key) {
            for provider in [Provider::Anthropic, Provider::OpenAi] {
                out.push(Finding {
                    provider,
                    rule: "root-combinator",
                    refused: true,
                    message: format!("`{key}` stands at the root of the input schema"),
                    help: "fold the schema (docent does so for discovered tools)",
                });
            }
        }
    }
    let odd = |key: &&String| {
        key.is_empty()
            || key.len() > 64
            || !key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
    };
    let members = root.get("properties").and_then(Value::as_object);
    if let Some(key) = members.into_iter().flat_map(Object::keys).find(odd) {
        out.push(Finding {
            provider: Provider::Anthropic,
            rule: "argument-name",
            refused: true,
            message: format!("the argument `{key}` is not 1 to 64 of `[a-zA-Z0-9_.-]`"),
            help: "rename the argument",
        });
    }
}

/// What a walk over a schema and the definitions it reaches has found.
#[derive(Default)]
struct Walk<'s> {
    depth: usize,
    members: usize,
    enum_values: usize,
    non_text_enum: bool,
    dangling: Option<&'s str>,
    foreign: Option<&'s str>,
    is_ring: bool,
    seen: usize,
    open: HashSet<&'s str>,
    done: HashMap<&'s str, usize>,
}

impl<'s> Walk<'s> {
    fn of(schema: &'s Value) -> Self {
        let mut walk = Self::default();
        walk.visit(schema, schema, 0);
        walk
    }

    fn visit(&mut self, root: &'s Value, at: &'s Value, depth: usize) {
        self.seen += 1;
        let Some(map) = at.as_object() else { return };
        if self.seen > WALK_MAX || depth > DEPTH_WALKED_MAX {
            return;
        }
        self.depth = self.depth.max(depth);
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            self.follow(root, reference, depth);
        }
        if let Some(values) = map.get("enum").and_then(Value::as_array) {
            self.enum_values += values.len();
            self.non_text_enum |= values.iter().any(|v| !v.is_string());
        }
        for key in ["properties", "patternProperties"] {
            for (_, member) in map.get(key).and_then(Value::as_object).into_iter().flatten() {
                self.members += 1;
                self.visit(root, member, depth + 1);
            }
        }
        for key in ["items", "additionalProperties", "not", "contains"] {
            if let Some(inner) = map.get(key) {
                self.visit(root, inner, depth + 1);
            }
        }
        for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            for inner in map.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.visit(root, inner, depth);
            }
        }
    }

    fn follow(&mut self, root: &'s Value, reference: &'s str, depth: usize) {
        let Some(pointer) = reference.strip_prefix('#') else {
            self.foreign = Some(reference);
            return;
        };
        let Some(target) = root.pointer(pointer) else {
            self.dangling = Some(reference);
            return;
        };
        if self.open.contains(reference) {
            self.is_ring = true;
        } else if self.done.get(reference).is_none_or(|at| *at < depth) {
            // Again only where it lies deeper than before, for the depth.
            self.done.insert(reference, depth);
            self.open.insert(reference);
            self.visit(root, target, depth);
            self.open.remove(reference);
        }
    }

    fn judge(&self, schema: &Value, out: &mut Vec<Finding>) {
        let mut say = |provider, rule, refused, message: String, help| {
            out.push(Finding { provider, rule, refused, message, help });
        };
        if let Some(reference) = self.dangling.or(self.foreign) {
            for provider in [Provider::Anthropic, Provider::OpenAi, Provider::Gemini] {
                let message = format!("`{}` points to nothing in the schema", json::cut(reference, 80));
                say(provider, "dangling-reference", true, message, "put the definition under `$defs`");
            }
        }
        if self.depth > OPENAI_DEPTH_MAX {
            let message = format!("it is nested {} levels deep, {OPENAI_DEPTH_MAX} are taken", self.depth);
            say(
                Provider::OpenAi,
                "depth",
                false,
                message,
                "leave inner members out, or take them as one JSON text",
            );
        }
        if self.members > OPENAI_MEMBERS_MAX || self.enum_values > OPENAI_ENUM_VALUES_MAX {
            let message = format!(
                "it has {} members and {} enumerated values; {OPENAI_MEMBERS_MAX} and {OPENAI_ENUM_VALUES_MAX} are taken",
                self.members, self.enum_values
            );
            say(Provider::OpenAi, "members", false, message, "leave inner members out");
        }
        if self.is_ring {
            let help = "the model sees it to the first turn of the ring; nothing is lost in the call";
            say(Provider::Gemini, "recursive", false, "a definition refers to itself".to_owned(), help);
        }
        if self.non_text_enum {
            let help = "enumerate texts, or say the values in the description";
            say(
                Provider::Gemini,
                "enum-type",
                false,
                "an enumeration has values that are no texts".to_owned(),
                help,
            );
        }
        let bytes = json::encoded_len(schema);
        if bytes > SCHEMA_BYTES_PER_TOOL {
            for provider in [Provider::Anthropic, Provider::OpenAi, Provider::Gemini] {
                let message =
                    format!("the input schema has {bytes} bytes, the budget is {SCHEMA_BYTES_PER_TOOL}");
                say(
                    provider,
                    "schema-bytes",
                    false,
                    message,
                    "leave members out with `[override]`, or raise `budgets.schema_bytes_per_tool`",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(name: &str, description: &str, schema: &Value) -> Vec<(Provider, &'static str)> {
        lint(name, description, schema).into_iter().map(|f| (f.provider, f.rule)).collect()
    }

    #[test]
    fn a_plain_tool_passes() {
        let schema = json!({"type": "object", "properties": {"a.b-c_1": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}});
        assert_eq!(rules("git_log", "Shows commits.", &schema), []);
    }

    #[test]
    fn what_refuses_a_request_is_named_per_provider() {
        use Provider::{Anthropic, Gemini, OpenAi};
        assert_eq!(rules("1x", "", &json!({"type": "object"})), [(Gemini, "name")]);
        assert_eq!(rules("a.b", "", &json!({"type": "object"})).len(), 3);
        assert_eq!(
            rules("a", &"x".repeat(1_025), &json!({"type": "object", "oneOf": []})),
            [(OpenAi, "description-length"), (Anthropic, "root-combinator"), (OpenAi, "root-combinator")]
        );
        assert_eq!(
            rules("a", "", &json!({"type": "object", "properties": {"$top": {}}})),
            [(Anthropic, "argument-name")]
        );
        let dangling = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/No"}}});
        assert_eq!(rules("a", "", &dangling).len(), 3);
    }

    #[test]
    fn rings_end_and_depth_counts_through_references() {
        let ring = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}}});
        assert_eq!(rules("a", "", &ring), [(Provider::Gemini, "recursive")]);
        let mut deep = json!({"type": "string"});
        for _ in 0..11 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        assert_eq!(rules("a", "", &deep), [(Provider::OpenAi, "depth")]);
    }
}
