//! How model providers would take each tool: names, roots, property names, depth, size (design §3.9).
//!
//! Pure: tools in, findings out. A finding is a warning: the tool is served all the same, but some clients
//! drop it or refuse the whole request because of it.

use serde_json::Value;

use crate::catalog::Tool;

/// Characters of a description that OpenAI's function definitions take.
const DESCRIPTION_CHARS_MAX: usize = 1_024;
/// Levels of objects in a schema that OpenAI's structured outputs take.
const SCHEMA_DEPTH_MAX: usize = 10;
/// Bytes of a property's name that Anthropic takes.
const PROPERTY_BYTES_MAX: usize = 64;
/// Levels of a schema looked at; deeper ones were told already.
const WALK_DEPTH_MAX: usize = 64;

/// One thing that some provider would not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// The diagnostic's code.
    pub(super) code: &'static str,
    /// What is wrong with the tool, without its name.
    pub(super) message: String,
    /// The way out.
    pub(super) help: &'static str,
}

fn finding(code: &'static str, message: impl Into<String>, help: &'static str) -> Finding {
    Finding { code, message: message.into(), help }
}

/// Everything that some provider would not take in a tool, each code once.
pub(super) fn tool(tool: &Tool, schema_bytes_max: usize) -> Vec<Finding> {
    let mut out = Vec::new();
    if !tool.wire_name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let message = format!("its wire name `{}` begins with neither a letter nor `_`: Gemini refuses it", tool.wire_name);
        out.push(finding("lint-name", message, "rename the upstream's folder, whose name begins the tool's"));
    }
    if tool.description.trim().is_empty() {
        out.push(finding(
            "lint-no-description",
            "it has no description: models and search choose tools by it",
            "give it one in `[override.\"tool.id\"]`",
        ));
    }
    let chars = tool.description.chars().count();
    if chars > DESCRIPTION_CHARS_MAX {
        out.push(finding(
            "lint-description",
            format!("its description has {chars} characters, OpenAI takes {DESCRIPTION_CHARS_MAX}"),
            "shorten it in `[override.\"tool.id\"]`",
        ));
    }
    if tool.wire_schema.len() > schema_bytes_max {
        out.push(finding(
            "lint-schema-bytes",
            format!("its input schema has {} bytes, `budgets.schema_bytes_per_tool` is {schema_bytes_max}", tool.wire_schema.len()),
            "write a smaller `input_schema` in `[override.\"tool.id\"]`, or raise the budget",
        ));
    }
    schema(&tool.wire_schema.value(), &mut out);
    out
}

/// Keywords that Anthropic, and for functions OpenAI, refuse at the root of an input schema.
const COMBINATORS: [&str; 6] = ["oneOf", "anyOf", "allOf", "not", "if", "enum"];

fn schema(root: &Value, out: &mut Vec<Finding>) {
    const FOLD: &str = "write an `input_schema` in `[override.\"tool.id\"]`; the upstream's own still validates";
    if root.get("type").and_then(Value::as_str) != Some("object") {
        out.push(finding("lint-root", "the root of its input schema is not an object: every provider refuses it", FOLD));
    }
    if let Some(word) = COMBINATORS.iter().find(|w| root.get(**w).is_some()) {
        let message = format!("the root of its input schema has `{word}`: Anthropic and OpenAI refuse the whole request");
        out.push(finding("lint-root", message, FOLD));
    }
    let mut walk = Walk::default();
    walk.visit(root, 0, 0);
    if let Some(name) = walk.property {
        let message = format!(
            "the property name {name:?} is outside of [a-zA-Z0-9_.-]{{1,{PROPERTY_BYTES_MAX}}}: Anthropic refuses the whole request"
        );
        out.push(finding("lint-property", message, "rename it with a request template or function"));
    }
    if walk.depth > SCHEMA_DEPTH_MAX {
        let message = format!(
            "its input schema nests {} objects, OpenAI's strict mode takes {SCHEMA_DEPTH_MAX} and Gemini fewer",
            walk.depth
        );
        out.push(finding("lint-depth", message, FOLD));
    }
    if let Some(target) = walk.outside {
        let message = format!("its input schema refers to {target:?}, which is outside of the schema");
        out.push(finding("lint-ref", message, FOLD));
    }
}

/// What a walk through a schema met.
#[derive(Default)]
struct Walk {
    depth: usize,
    property: Option<String>,
    outside: Option<String>,
}

impl Walk {
    fn visit(&mut self, schema: &Value, objects: usize, level: usize) {
        let (Some(map), true) = (schema.as_object(), level < WALK_DEPTH_MAX) else { return };
        if let Some(target) = map.get("$ref").and_then(Value::as_str)
            && !target.starts_with('#')
        {
            self.outside.get_or_insert_with(|| target.chars().take(80).collect());
        }
        for (word, value) in map {
            match word.as_str() {
                "properties" => self.properties(value, objects + 1, level),
                "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => {
                    value.as_object().into_iter().flat_map(|m| m.values()).for_each(|s| self.visit(s, objects, level + 1));
                }
                "items" | "additionalProperties" | "contains" | "not" | "if" | "then" | "else" => {
                    self.visit(value, objects, level + 1);
                }
                "oneOf" | "anyOf" | "allOf" | "prefixItems" => {
                    value.as_array().into_iter().flatten().for_each(|s| self.visit(s, objects, level + 1));
                }
                _ => {}
            }
        }
    }

    fn properties(&mut self, properties: &Value, objects: usize, level: usize) {
        self.depth = self.depth.max(objects);
        for (name, schema) in properties.as_object().into_iter().flatten() {
            let fits = (1..=PROPERTY_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
            if !fits {
                self.property.get_or_insert_with(|| name.chars().take(80).collect());
            }
            self.visit(schema, objects, level + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::id::{ToolId, UpstreamId};
    use crate::schema::SchemaText;

    fn codes(schema: &Value, description: &str) -> Vec<&'static str> {
        let mut t = Tool::new(
            ToolId::parse("u.t").unwrap(),
            UpstreamId::parse("u").unwrap(),
            "t",
            SchemaText::of(schema),
        );
        (t.wire_name, t.description) = ("u_t".into(), description.into());
        tool(&t, 2_000).into_iter().map(|f| f.code).collect()
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}))
    }

    #[test]
    fn what_every_provider_takes_has_no_finding() {
        let schema = json!({"type": "object", "properties": {"page.size": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/n"}]}}});
        assert_eq!(codes(&schema, "Lists pages."), Vec::<&str>::new());
        assert_eq!(codes(&nested(10), "d"), Vec::<&str>::new());
    }

    #[test]
    fn each_thing_that_some_provider_refuses_is_named() {
        assert_eq!(codes(&json!({"type": "object", "oneOf": []}), "d"), ["lint-root"]);
        assert_eq!(codes(&json!({"type": "array"}), "d"), ["lint-root"]);
        assert_eq!(codes(&json!({"type": "object", "properties": {"$top": {}}}), "d"), ["lint-property"]);
        assert_eq!(codes(&nested(11), "d"), ["lint-depth"]);
        assert_eq!(codes(&json!({"type": "object", "properties": {"a": {"items": {"$ref": "x.json"}}}}), "d"), ["lint-ref"]);
        assert_eq!(codes(&json!({"type": "object", "description": "x".repeat(2_000)}), "d"), ["lint-schema-bytes"]);
        assert_eq!(codes(&json!({"type": "object"}), " "), ["lint-no-description"]);
        assert_eq!(codes(&json!({"type": "object"}), &"d".repeat(1_025)), ["lint-description"]);
    }
}
