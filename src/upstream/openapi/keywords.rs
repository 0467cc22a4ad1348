//! The keywords of one schema object: those that JSON Schema 2020-12 knows, with values of the right kind.
//!
//! Documents of the field hold `required: true`, `maximum: "10"`, `type: float`; such a keyword is dropped, not
//! the operation. Keywords outside the list (`xml`, `x-…`, `$id`, `discriminator`) never reach a tool.

use serde_json::{Number, Value, json};

use super::convert::Converter;
use super::document::At;
use super::text::{NESTED_CHARS_MAX, TITLE_CHARS_MAX, clean};
use crate::json::{self, Object};

/// Bytes of an example or default that is kept: it shows a form, it is not a fixture.
const EXAMPLE_BYTES_MAX: usize = 80;
/// Values of an enumeration kept: one that is longer is a list of data, and is not checked.
const ENUM_MAX: usize = 1_000;

impl<'d> Converter<'d> {
    /// All keywords of a schema without `$ref` and `allOf`.
    pub(super) fn keywords(&mut self, at: At<'d>, depth: usize, out: &mut Object) {
        self.keywords_without_members(at, depth, out);
        let mut properties = Object::new();
        let mut hidden: Vec<&str> = Vec::new();
        for (name, property) in at.members("properties") {
            if self.is_read_only(property) {
                hidden.push(name);
            } else {
                properties.insert(name.to_owned(), self.schema(property, depth + 1));
            }
        }
        if !properties.is_empty() {
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        let mut required: Vec<Value> = Vec::new();
        for name in at.items("required").filter_map(|v| v.value.as_str()).filter(|n| !hidden.contains(n)) {
            if !required.iter().any(|r| r == name) {
                required.push(Value::from(name));
            }
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
        if let Some(additional) =
            at.get("additionalProperties").filter(|a| a.value.is_object() || a.value.is_boolean())
        {
            out.insert("additionalProperties".to_owned(), self.schema(additional, depth + 1));
        }
    }

    /// The keywords besides `properties`, `required` and `additionalProperties`.
    pub(super) fn keywords_without_members(&mut self, at: At<'d>, depth: usize, out: &mut Object) {
        kind(at, out);
        Self::annotations(at, out);
        self.values(at, out);
        limits(at, out);
        if let Some(pattern) = at.text("pattern")
            && self.keeps_pattern(pattern)
        {
            out.insert("pattern".to_owned(), Value::from(pattern));
        }
        self.nested(at, depth, out);
    }

    fn annotations(at: At<'d>, out: &mut Object) {
        for (key, max) in [("title", TITLE_CHARS_MAX), ("description", NESTED_CHARS_MAX)] {
            if let Some(text) = at.text(key).map(|t| clean(t, max)).filter(|t| !t.is_empty()) {
                out.insert(key.to_owned(), Value::from(text));
            }
        }
        if let Some(chosen) = discriminator(at) {
            let text = match out.get("description").and_then(Value::as_str) {
                Some(text) => format!("{text} {chosen}"),
                None => chosen,
            };
            out.insert("description".to_owned(), Value::from(text));
        }
        if at.flag("deprecated") {
            out.insert("deprecated".to_owned(), Value::Bool(true));
        }
        if at.flag("writeOnly") {
            out.insert("writeOnly".to_owned(), Value::Bool(true));
        }
        // A default or an example that the enumeration does not have would only mislead.
        let fits = |value: &Value| {
            is_short(value)
                && at.value.get("enum").and_then(Value::as_array).is_none_or(|values| values.contains(value))
        };
        if let Some(default) = at.value.get("default").filter(|v| fits(v)) {
            out.insert("default".to_owned(), default.clone());
        }
        let example = at.value.get("example").or_else(|| at.value.get("examples")?.as_array()?.first());
        if let Some(example) = example.filter(|v| fits(v) && !v.is_null()) {
            out.insert("examples".to_owned(), json!([example]));
        }
        if let Some(format) = at.text("format").map(|f| clean(f, 40)).filter(|f| !f.is_empty()) {
            out.insert("format".to_owned(), Value::from(format));
        }
        for key in ["contentEncoding", "contentMediaType"] {
            if let Some(text) = at.text(key) {
                out.insert(key.to_owned(), Value::from(text));
            }
        }
    }

    fn values(&mut self, at: At<'d>, out: &mut Object) {
        if let Some(values) = at.value.get("enum").and_then(Value::as_array).filter(|v| !v.is_empty()) {
            if values.len() > ENUM_MAX {
                self.note(format!("an enumeration of more than {ENUM_MAX} values is not checked"));
            } else {
                let mut kept: Vec<Value> = Vec::with_capacity(values.len());
                for value in values {
                    if !kept.contains(value) {
                        kept.push(value.clone());
                    }
                }
                out.insert("enum".to_owned(), Value::Array(kept));
            }
        }
        if let Some(value) = at.value.get("const") {
            out.insert("const".to_owned(), value.clone());
        }
    }

    fn nested(&mut self, at: At<'d>, depth: usize, out: &mut Object) {
        match at.get("items") {
            // The tuple of draft 4.
            Some(items) if items.value.is_array() => {
                let list: Vec<Value> = at.items("items").map(|i| self.schema(i, depth + 1)).collect();
                if !list.is_empty() {
                    out.insert("prefixItems".to_owned(), Value::Array(list));
                }
            }
            Some(items) => {
                out.insert("items".to_owned(), self.schema(items, depth + 1));
            }
            // Providers refuse an array that does not say of what.
            None if at.text("type") == Some("array") && at.get("prefixItems").is_none() => {
                out.insert("items".to_owned(), json!({}));
            }
            None => {}
        }
        for key in ["oneOf", "anyOf", "prefixItems"] {
            let list: Vec<Value> = at.items(key).map(|i| self.schema(i, depth + 1)).collect();
            if !list.is_empty() {
                out.insert(key.to_owned(), Value::Array(list));
            }
        }
        for key in [
            "not",
            "if",
            "then",
            "else",
            "contains",
            "propertyNames",
            "unevaluatedProperties",
            "unevaluatedItems",
        ] {
            if let Some(inner) = at.get(key).filter(|v| v.value.is_object() || v.value.is_boolean()) {
                let schema = self.schema(inner, depth + 1);
                out.insert(key.to_owned(), schema);
            }
        }
        for key in ["patternProperties", "dependentSchemas"] {
            let mut map = Object::new();
            for (name, inner) in at.members(key) {
                if key != "patternProperties" || self.keeps_pattern(name) {
                    map.insert(name.to_owned(), self.schema(inner, depth + 1));
                }
            }
            if !map.is_empty() {
                out.insert(key.to_owned(), Value::Object(map));
            }
        }
    }
}

/// `type`, in its known spellings; `file` of Swagger 2 and misspellings such as `float` get what they mean.
fn kind(at: At<'_>, out: &mut Object) {
    let known = |name: &str| match name {
        "string" | "integer" | "number" | "boolean" | "array" | "object" | "null" => Some(name.to_owned()),
        "file" | "date" | "datetime" | "date-time" | "uuid" | "uri" | "str" => Some("string".to_owned()),
        "int" | "int32" | "int64" | "long" => Some("integer".to_owned()),
        "float" | "double" | "decimal" => Some("number".to_owned()),
        "bool" => Some("boolean".to_owned()),
        _ => None,
    };
    let value = match at.value.get("type") {
        Some(Value::String(name)) => known(name).map(Value::from),
        Some(Value::Array(names)) => {
            let mut kinds: Vec<String> = Vec::new();
            for kind in names.iter().filter_map(Value::as_str).filter_map(known) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            match kinds.len() {
                0 => None,
                1 => kinds.pop().map(Value::from),
                _ => Some(json!(kinds)),
            }
        }
        _ if at.get("properties").is_some_and(|p| p.value.is_object()) => Some(Value::from("object")),
        _ => None,
    };
    if let Some(value) = value {
        out.insert("type".to_owned(), value);
    }
}

/// Numeric limits; the boolean `exclusiveMinimum` of draft 4 turns into a number.
fn limits(at: At<'_>, out: &mut Object) {
    for key in [
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minContains",
        "maxContains",
    ] {
        if let Some(n) = at.value.get(key).and_then(number).filter(|n| n.as_u64().is_some()) {
            out.insert(key.to_owned(), Value::Number(n));
        }
    }
    if let Some(n) =
        at.value.get("multipleOf").and_then(number).filter(|n| n.as_f64().is_some_and(|f| f > 0.0))
    {
        out.insert("multipleOf".to_owned(), Value::Number(n));
    }
    for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let bound = at.value.get(limit).and_then(number);
        match (bound, at.value.get(exclusive)) {
            (Some(n), Some(Value::Bool(true))) => {
                out.insert(exclusive.to_owned(), Value::Number(n));
            }
            (bound, strict) => {
                for (key, n) in [(limit, bound), (exclusive, strict.and_then(number))] {
                    if let Some(n) = n {
                        out.insert(key.to_owned(), Value::Number(n));
                    }
                }
            }
        }
    }
    if at.flag("uniqueItems") {
        out.insert("uniqueItems".to_owned(), Value::Bool(true));
    }
}

/// A number, also one that was written as a text.
fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(n) => Some(n.clone()),
        Value::String(text) => serde_json::from_str(text.trim()).ok(),
        _ => None,
    }
}

fn is_short(value: &Value) -> bool {
    json::encoded_len(value) <= EXAMPLE_BYTES_MAX
}

/// What a discriminator says, for the reader: which property selects the variant, and its values.
fn discriminator(at: At<'_>) -> Option<String> {
    let found = at.value.get("discriminator")?;
    // Swagger 2 has the name alone.
    let property = found.as_str().or_else(|| found.get("propertyName")?.as_str())?;
    let property = clean(property, 60);
    let values: Vec<String> = found
        .get("mapping")
        .and_then(Value::as_object)
        .map(|m| m.keys().take(20).map(|k| clean(k, 40)).collect())
        .unwrap_or_default();
    Some(if values.is_empty() {
        format!("`{property}` selects the variant.")
    } else {
        format!("`{property}` selects the variant: {}.", values.join(", "))
    })
}
