//! What became of a schema, as its users feel it: every difference told as breaking or as compatible.
//!
//! Of an input schema, what was accepted must still be accepted; of an output schema, what is promised must
//! still be kept. A difference that cannot be shown to be harmless is breaking.

use serde::Serialize;
use serde_json::{Map, Value};

use super::compat::Holds;
use crate::json;

/// Which way a schema is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It says what may be sent.
    Input,
    /// It says what will come.
    Output,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaChange {
    /// Whether a caller written for the older schema can fail.
    pub breaking: bool,
    /// Where in the schema, as a JSON Pointer.
    pub at: String,
    /// What, in a few words.
    pub what: String,
}

/// Keywords that bound a number from above, and from below.
const CEILINGS: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
const FLOORS: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
/// Keywords that neither accept nor promise anything.
const SILENT: [&str; 5] = ["default", "deprecated", "readOnly", "writeOnly", "$schema"];

/// All differences between two schemas in their [`super::compat`] form, in the order of the keywords.
pub fn schema_changes(old: &Value, new: &Value, used: Use) -> Vec<SchemaChange> {
    let mut walk = Walk { used, found: Vec::new() };
    walk.schema("", old, new);
    walk.found
}

struct Walk {
    used: Use,
    found: Vec<SchemaChange>,
}

/// What a difference does to the set of values that a schema takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Wider,
    Narrower,
    /// Neither, or nobody can tell.
    Other,
    /// Nothing at all.
    None,
}

impl Walk {
    fn tell(&mut self, at: &str, effect: Effect, what: impl Into<String>) {
        let breaking = match effect {
            Effect::None => false,
            Effect::Other => true,
            Effect::Narrower => self.used == Use::Input,
            Effect::Wider => self.used == Use::Output,
        };
        self.found.push(SchemaChange { breaking, at: at.to_owned(), what: what.into() });
    }

    fn schema(&mut self, at: &str, old: &Value, new: &Value) {
        if json::canonical(old) == json::canonical(new) {
            return;
        }
        // `true` is the schema without keywords, `false` takes nothing.
        let none = Map::new();
        let (before, after) = match (old, new) {
            (Value::Object(a), Value::Object(b)) => (a, b),
            (Value::Bool(true), Value::Object(b)) => (&none, b),
            (Value::Object(a), Value::Bool(true)) => (a, &none),
            (Value::Bool(false), _) => return self.tell(at, Effect::Wider, "now takes values"),
            (_, Value::Bool(false)) => return self.tell(at, Effect::Narrower, "takes nothing any more"),
            _ => return self.tell(at, Effect::Other, "changed"),
        };
        self.properties(at, before, after);
        let mut keywords: Vec<&String> = before.keys().chain(after.keys()).collect();
        keywords.sort_unstable();
        keywords.dedup();
        for keyword in keywords {
            let (a, b) = (before.get(keyword), after.get(keyword));
            if a.map(json::canonical) != b.map(json::canonical) {
                self.keyword(at, keyword, a, b);
            }
        }
    }

    /// `properties`, `required` and `additionalProperties`, which mean something only together.
    fn properties(&mut self, at: &str, old: &Map<String, Value>, new: &Map<String, Value>) {
        let none = Map::new();
        let named = |map: &Map<String, Value>| map.get("properties").and_then(Value::as_object).cloned();
        let (before, after) = (named(old).unwrap_or_default(), named(new).unwrap_or(none));
        let (must_before, must_after) = (required(old), required(new));
        for (name, schema) in &before {
            let place = format!("{at}/properties/{}", json::pointer_token(name));
            match after.get(name) {
                Some(now) => self.schema(&place, schema, now),
                // What sent it is now refused; what read it no longer finds it.
                None if self.used == Use::Output
                    || new.get("additionalProperties") == Some(&Value::Bool(false)) =>
                {
                    self.tell(&place, Effect::Other, format!("`{name}` was removed"));
                }
                None => self.tell(&place, Effect::None, format!("`{name}` is no longer described")),
            }
        }
        for name in after.keys().filter(|n| !before.contains_key(*n)) {
            let word = if must_after.contains(name) { "required" } else { "optional" };
            // A new member of a result breaks only readers that were told there is no other.
            let closed =
                self.used == Use::Output && old.get("additionalProperties") == Some(&Value::Bool(false));
            let effect = if closed { Effect::Wider } else { Effect::None };
            self.tell(
                &format!("{at}/properties/{}", json::pointer_token(name)),
                effect,
                format!("`{name}` was added, {word}"),
            );
        }
        for name in must_after.iter().filter(|n| !must_before.contains(n)) {
            self.tell(&format!("{at}/required"), Effect::Narrower, format!("`{name}` is now required"));
        }
        for name in must_before.iter().filter(|n| !must_after.contains(n)) {
            self.tell(&format!("{at}/required"), Effect::Wider, format!("`{name}` is no longer required"));
        }
    }

    fn keyword(&mut self, at: &str, keyword: &str, old: Option<&Value>, new: Option<&Value>) {
        let place = format!("{at}/{}", json::pointer_token(keyword));
        match keyword {
            "properties" | "required" => {}
            "type" => {
                let effect = sets(&types(old), &types(new));
                self.tell(&place, effect, format!("the type was {}, is {}", shown(old), shown(new)));
            }
            "enum" | "const" => {
                let effect = choices(old, new);
                self.tell(&place, effect, "the values that it may have changed");
            }
            "$defs" | "definitions" => self.definitions(&place, old, new),
            k if CEILINGS.contains(&k) => self.bound(&place, k, old, new, false),
            k if FLOORS.contains(&k) => self.bound(&place, k, old, new, true),
            k if SILENT.contains(&k) => {
                self.tell(&place, Effect::None, format!("`{k}` was {}, is {}", shown(old), shown(new)));
            }
            k => self.other(&place, k, old, new),
        }
    }

    /// A bound: absent is endless.
    fn bound(&mut self, at: &str, keyword: &str, old: Option<&Value>, new: Option<&Value>, floor: bool) {
        let number = |v: Option<&Value>| v.and_then(Value::as_f64);
        let effect = match (number(old), number(new)) {
            (Some(a), Some(b)) if (a < b) == floor => Effect::Narrower,
            (Some(_), Some(_)) => Effect::Wider,
            (None, Some(_)) if old.is_none() => Effect::Narrower,
            (Some(_), None) if new.is_none() => Effect::Wider,
            _ => Effect::Other,
        };
        self.tell(at, effect, format!("`{keyword}` was {}, is {}", shown(old), shown(new)));
    }

    /// Definitions count where they are used; those of one name are the same thing then and now.
    fn definitions(&mut self, at: &str, old: Option<&Value>, new: Option<&Value>) {
        let maps = old.and_then(Value::as_object).zip(new.and_then(Value::as_object));
        for (name, schema) in maps.into_iter().flat_map(|(a, _)| a) {
            if let Some(now) = new.and_then(|n| n.get(name)) {
                self.schema(&format!("{at}/{}", json::pointer_token(name)), schema, now);
            }
        }
    }

    fn other(&mut self, at: &str, keyword: &str, old: Option<&Value>, new: Option<&Value>) {
        match (Holds::of(keyword), old, new) {
            // Negation turns wider into narrower, conditions hide both: only equal ones are harmless.
            (Holds::Schema, Some(a), Some(b)) if !matches!(keyword, "not" | "if" | "then" | "else") => {
                match (a, b) {
                    (Value::Array(_), _) | (_, Value::Array(_)) => {
                        self.tell(at, Effect::Other, format!("`{keyword}` changed"));
                    }
                    _ => self.schema(at, a, b),
                }
            }
            (Holds::Schema, None, Some(b)) if keyword == "additionalProperties" || keyword == "items" => {
                self.schema(at, &Value::Bool(true), b);
            }
            (Holds::Schema, Some(a), None) if keyword == "additionalProperties" || keyword == "items" => {
                self.schema(at, a, &Value::Bool(true));
            }
            (Holds::List, Some(Value::Array(a)), Some(Value::Array(b))) => self.list(at, keyword, a, b),
            (Holds::Map, Some(Value::Object(a)), Some(Value::Object(b))) if a.keys().eq(b.keys()) => {
                for (name, schema) in a {
                    let now = b.get(name).unwrap_or(&Value::Null);
                    self.schema(&format!("{at}/{}", json::pointer_token(name)), schema, now);
                }
            }
            (_, None, Some(_)) => self.tell(at, Effect::Narrower, format!("`{keyword}` was added")),
            (_, Some(_), None) => self.tell(at, Effect::Wider, format!("`{keyword}` was removed")),
            _ => self.tell(at, Effect::Other, format!("`{keyword}` changed")),
        }
    }

    /// `anyOf` grows wider by a branch, `allOf` narrower; in `oneOf` a new branch can exclude an old one.
    fn list(&mut self, at: &str, keyword: &str, old: &[Value], new: &[Value]) {
        let forms = |list: &[Value]| list.iter().map(json::canonical).collect::<Vec<_>>();
        let effect = sets(&forms(old), &forms(new));
        match (keyword, effect) {
            ("anyOf", Effect::Wider) => self.tell(at, Effect::Wider, "`anyOf` has more branches"),
            ("anyOf", Effect::Narrower) => self.tell(at, Effect::Narrower, "`anyOf` has fewer branches"),
            ("allOf", Effect::Wider) => self.tell(at, Effect::Narrower, "`allOf` asks for more"),
            ("allOf", Effect::Narrower) => self.tell(at, Effect::Wider, "`allOf` asks for less"),
            ("anyOf" | "allOf" | "prefixItems", Effect::Other) if old.len() == new.len() => {
                for (n, (a, b)) in old.iter().zip(new).enumerate() {
                    self.schema(&format!("{at}/{n}"), a, b);
                }
            }
            (_, Effect::None) => self.tell(at, Effect::None, format!("`{keyword}` has another order")),
            _ => self.tell(at, Effect::Other, format!("`{keyword}` changed")),
        }
    }
}

/// How the second of two sets stands to the first.
fn sets<T: PartialEq>(old: &[T], new: &[T]) -> Effect {
    let kept = old.iter().all(|v| new.contains(v));
    let known = new.iter().all(|v| old.contains(v));
    match (kept, known) {
        (true, true) => Effect::None,
        (true, false) => Effect::Wider,
        (false, true) => Effect::Narrower,
        (false, false) => Effect::Other,
    }
}

/// The types that a `type` takes; absent is all of them, and a number may be an integer.
fn types(of: Option<&Value>) -> Vec<String> {
    const ALL: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
    let mut out: Vec<String> = match of {
        None => ALL.map(str::to_owned).to_vec(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(_) => Vec::new(),
    };
    if out.iter().any(|t| t == "number") && !out.iter().any(|t| t == "integer") {
        out.push("integer".to_owned());
    }
    out
}

fn choices(old: Option<&Value>, new: Option<&Value>) -> Effect {
    let values = |v: &Value| match v {
        Value::Array(list) => list.iter().map(json::canonical).collect::<Vec<_>>(),
        one => vec![json::canonical(one)],
    };
    match (old, new) {
        (None, _) => Effect::Narrower,
        (_, None) => Effect::Wider,
        (Some(a), Some(b)) => sets(&values(a), &values(b)),
    }
}

fn required(schema: &Map<String, Value>) -> Vec<String> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A value in a sentence, short.
fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "not given".to_owned(), |v| json::cut(&json::to_text(v), 60).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn breaks(old: &Value, new: &Value, used: Use) -> bool {
        let found = schema_changes(old, new, used);
        assert!(!found.is_empty(), "{old} -> {new}: no difference was told");
        found.iter().any(|c| c.breaking)
    }

    /// Old, new, whether it breaks senders, whether it breaks readers.
    fn table() -> Vec<(Value, Value, bool, bool)> {
        let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        let string = json!({"type": "string"});
        vec![
            (
                object(json!({"a": string}), json!([])),
                object(json!({"a": string, "b": string}), json!(["b"])),
                true,
                true,
            ),
            (
                object(json!({"a": string}), json!([])),
                object(json!({"a": string}), json!(["a"])),
                true,
                false,
            ),
            (
                object(json!({"a": string}), json!(["a"])),
                object(json!({"a": string}), json!([])),
                false,
                true,
            ),
            (
                object(json!({"a": string}), json!([])),
                object(json!({"a": string, "b": string}), json!([])),
                false,
                true,
            ),
            (object(json!({"a": string}), json!([])), object(json!({}), json!([])), true, true),
            (json!({"type": ["string", "null"]}), string.clone(), true, false),
            (json!({"type": "integer"}), json!({"type": "number"}), false, true),
            (string.clone(), json!({"type": "integer"}), true, true),
            (json!({"enum": ["a", "b"]}), json!({"enum": ["a"]}), true, false),
            (json!({"enum": ["a"]}), json!({"enum": ["a", "b"]}), false, true),
            (json!({"maximum": 100}), json!({"maximum": 50}), true, false),
            (json!({"maximum": 50}), json!({"maximum": 100}), false, true),
            (json!({}), json!({"maxLength": 5}), true, false),
            (json!({"minimum": 1}), json!({"minimum": 2}), true, false),
            (json!({"minimum": 2}), json!({"minimum": 1}), false, true),
            (json!({"pattern": "a"}), json!({"pattern": "b"}), true, true),
            (
                json!({"type": "object"}),
                json!({"type": "object", "additionalProperties": false}),
                true,
                false,
            ),
            (json!({"additionalProperties": false}), json!({}), false, true),
            (json!({"items": {"type": "string"}}), json!({"items": {"type": "integer"}}), true, true),
            (
                json!({"anyOf": [{"type": "string"}]}),
                json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
                false,
                true,
            ),
            (
                json!({"oneOf": [{"type": "string"}]}),
                json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
                true,
                true,
            ),
            (
                json!({"allOf": [{"type": "string"}]}),
                json!({"allOf": [{"type": "string"}, {"minLength": 1}]}),
                true,
                false,
            ),
            (json!({"default": 1}), json!({"default": 2}), false, false),
            (json!({"x-foreign": 1}), json!({"x-foreign": 2}), true, true),
            (json!({"$defs": {"a": {"maximum": 9}}}), json!({"$defs": {"a": {"maximum": 8}}}), true, false),
            (json!({"not": {"type": "string"}}), json!({"not": {"type": ["string", "null"]}}), true, true),
        ]
    }

    #[test]
    fn every_kind_of_difference_is_breaking_for_those_it_breaks() {
        for (old, new, senders, readers) in table() {
            assert_eq!(breaks(&old, &new, Use::Input), senders, "sending: {old} -> {new}");
            assert_eq!(breaks(&old, &new, Use::Output), readers, "reading: {old} -> {new}");
        }
    }

    #[test]
    fn places_are_pointers_and_equal_schemas_have_no_changes() {
        let schema = |max: u64| json!({"properties": {"a/b": {"items": {"maximum": max}}}});
        let found = schema_changes(&schema(9), &schema(8), Use::Input);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at, "/properties/a~1b/items/maximum");
        assert_eq!(found[0].what, "`maximum` was 9, is 8");
        assert!(schema_changes(&schema(9), &schema(9), Use::Output).is_empty());
    }
}
