//! The part of a schema that a caller's code depends on: prose taken out, the rest in one canonical form.
//!
//! Two schemas with equal forms take and promise the same (seed 002, "Reading your own surface"). It is
//! deliberately over-sensitive: a keyword that is not known here is kept as it stands.

use serde_json::{Map, Value};

/// Keywords that say something to readers and nothing to validators.
const PROSE: [&str; 4] = ["title", "description", "$comment", "examples"];
/// Keywords whose value is a schema. `items` may also be a list of them.
const SCHEMAS: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value maps names to schemas: a *property* called `description` is no prose.
const MAPS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];

/// What the value of a keyword holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// One schema (or, for `items` of older drafts, a list).
    Schema,
    /// Schemas by name.
    Map,
    /// A list of schemas.
    List,
    /// Nothing of the kind.
    Plain,
}

impl Holds {
    pub(super) fn of(keyword: &str) -> Self {
        if SCHEMAS.contains(&keyword) {
            Self::Schema
        } else if MAPS.contains(&keyword) {
            Self::Map
        } else if LISTS.contains(&keyword) {
            Self::List
        } else {
            Self::Plain
        }
    }
}

/// The schema without its prose, `required` sorted; everything else as it stands. Its canonical bytes
/// ([`crate::json::canonical`]) are what surface hashes are made of.
pub fn compat(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(keyword, _)| !PROSE.contains(&keyword.as_str()))
                .map(|(keyword, value)| (keyword.clone(), of_keyword(keyword, value)))
                .collect(),
        ),
        // A boolean schema, or something that is none: as it stands.
        other => other.clone(),
    }
}

fn of_keyword(keyword: &str, value: &Value) -> Value {
    match (Holds::of(keyword), value) {
        (Holds::Map, Value::Object(named)) => {
            let inner: Map<String, Value> = named.iter().map(|(name, s)| (name.clone(), compat(s))).collect();
            Value::Object(inner)
        }
        (Holds::Schema | Holds::List, Value::Array(list)) => list.iter().map(compat).collect(),
        (Holds::Schema, schema) => compat(schema),
        (Holds::Plain, Value::Array(names)) if keyword == "required" => {
            let mut names = names.clone();
            names.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            Value::Array(names)
        }
        (_, other) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json;

    fn form(schema: &Value) -> Vec<u8> {
        json::canonical(&compat(schema))
    }

    #[test]
    fn prose_and_order_are_nothing_but_a_tightened_maximum_is() {
        let before = json!({
            "type": "object", "title": "T", "description": "old words", "$comment": "c",
            "required": ["b", "a"],
            "properties": {
                "a": {"type": "integer", "maximum": 100, "description": "an a", "examples": [1]},
                "b": {"type": "array", "items": {"type": "string", "title": "x"}},
            },
        });
        let reworded = json!({
            "required": ["a", "b"],
            "properties": {
                "b": {"items": {"type": "string", "description": "new"}, "type": "array"},
                "a": {"maximum": 100, "type": "integer"},
            },
            "type": "object", "description": "quite other words",
        });
        assert_eq!(form(&before), form(&reworded));
        let mut tightened = before.clone();
        tightened["properties"]["a"]["maximum"] = json!(50);
        assert_ne!(form(&before), form(&tightened));
    }

    #[test]
    fn properties_with_the_names_of_prose_stay() {
        let schema = json!({"properties": {"description": {"type": "string"}, "title": {"title": "gone"}}});
        assert_eq!(compat(&schema), json!({"properties": {"description": {"type": "string"}, "title": {}}}));
        for keyword in ["$defs", "definitions", "patternProperties", "dependentSchemas"] {
            let schema = json!({keyword: {"examples": {"examples": [1], "type": "object"}}});
            assert_eq!(compat(&schema), json!({keyword: {"examples": {"type": "object"}}}));
        }
    }

    #[test]
    fn every_place_of_a_schema_is_reached_and_unknown_keywords_stay() {
        for keyword in SCHEMAS {
            assert_eq!(
                compat(&json!({keyword: {"title": "t", "type": "null"}})),
                json!({keyword: {"type": "null"}})
            );
        }
        for keyword in LISTS {
            assert_eq!(compat(&json!({keyword: [{"title": "t"}, true]})), json!({keyword: [{}, true]}));
        }
        let foreign =
            json!({"x-shape": {"description": "kept", "required": ["b", "a"]}, "enum": [{"title": 1}]});
        assert_eq!(compat(&foreign), foreign);
        assert_eq!(compat(&json!(false)), json!(false));
    }
}
