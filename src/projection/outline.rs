//! A schema cut along its objects and lists: a large result is checked piece by piece as it stands and is never
//! built as one tree. What the cut does not know is left to the validator as a whole.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::contract::{Breach, Definitions};
use super::scan;
use crate::json::Object;
use crate::schema::{SchemaText, Validators};

/// Bytes up to which a piece is built for the validator: as a tree it takes several times as many.
const PIECE_BYTES: usize = 2 * 1024;
/// Levels along which a schema is cut: data, its members, records, their members.
const LEVELS: usize = 4;
/// References followed from one definition to the next.
const HOPS_MAX: usize = 8;
/// Keywords that say nothing about a value (JSON Schema 2020-12, Validation §9).
const NOTES: [&str; 8] =
    ["title", "description", "$comment", "examples", "default", "deprecated", "readOnly", "writeOnly"];

/// A schema and how it can be cut.
#[derive(Debug, Clone)]
pub(super) struct Outline {
    whole: SchemaText,
    cut: Cut,
}

#[derive(Debug, Clone)]
enum Cut {
    /// Not at all.
    None,
    /// Every value fits.
    Open,
    Object {
        members: Vec<(String, Outline)>,
        required: Vec<String>,
        /// Whether others may stand beside them.
        is_open: bool,
    },
    List {
        element: Box<Outline>,
        least: usize,
        most: usize,
    },
}

impl Outline {
    /// Of a schema whose references lead to `definitions`.
    pub(super) fn of(schema: &Value, definitions: &Definitions) -> Self {
        let whole = definitions.closed(schema);
        let levels = if is_plain(&whole, true) { LEVELS } else { 0 };
        Self { cut: Cut::of(schema, definitions, levels), whole: SchemaText::of(&whole) }
    }

    fn at(schema: &Value, definitions: &Definitions, levels: usize) -> Self {
        let whole = SchemaText::of(&definitions.closed(schema));
        Self { whole, cut: Cut::of(schema, definitions, levels) }
    }

    /// The whole schema.
    pub(super) fn schema(&self) -> &SchemaText {
        &self.whole
    }

    /// Checks accepted JSON.
    pub(super) fn check(&self, text: &str, validators: &Validators) -> Result<(), Breach> {
        let is_large = text.len() > PIECE_BYTES;
        match &self.cut {
            Cut::Open => readable::<Readable>(text).map(drop),
            Cut::Object { members, required, is_open } if is_large && text.starts_with('{') => {
                check_object(text, members, required, *is_open, validators)
            }
            Cut::List { element, least, most } if is_large && text.starts_with('[') => {
                check_list(text, element, (*least, *most), validators)
            }
            _ => self.check_whole(text, validators),
        }
    }

    fn check_whole(&self, text: &str, validators: &Validators) -> Result<(), Breach> {
        let value: Value = readable(text)?;
        match validators.check(&self.whole, &value) {
            Err(problem) => Err(Breach::here(format!("the schema does not compile: {problem}"))),
            Ok(problems) => match problems.into_iter().next() {
                None => Ok(()),
                Some(p) => Err(Breach { pointer: p.pointer, message: p.message }),
            },
        }
    }
}

fn check_object(
    text: &str,
    members: &[(String, Outline)],
    required: &[String],
    is_open: bool,
    validators: &Validators,
) -> Result<(), Breach> {
    // Of two members of one name the last counts, as everywhere in JSON.
    let mut found = vec![None; members.len()];
    for (key, value) in scan::members(text) {
        let Some(name) = scan::decode(key) else {
            return Err(Breach::here("a name in it is no text".to_owned()));
        };
        let known = members.iter().position(|(known, _)| **known == *name);
        match known.and_then(|at| found.get_mut(at)) {
            Some(slot) => *slot = Some(value),
            None if is_open => {
                readable::<Readable>(value).map_err(|b| b.below(&name))?;
            }
            None => return Err(Breach::here(format!("there may be no member `{name}`"))),
        }
    }
    for ((name, outline), value) in members.iter().zip(found) {
        match value {
            Some(value) => outline.check(value, validators).map_err(|b| b.below(name))?,
            None if required.contains(name) => {
                return Err(Breach::here(format!("\"{name}\" is a required property")));
            }
            None => {}
        }
    }
    Ok(())
}

fn check_list(
    text: &str,
    element: &Outline,
    (least, most): (usize, usize),
    validators: &Validators,
) -> Result<(), Breach> {
    let mut count = 0;
    for value in scan::elements(text) {
        element.check(value, validators).map_err(|b| b.below(&count.to_string()))?;
        count += 1;
    }
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(Breach::here(format!("{count} elements are not the {least} to {most} there may be")))
}

impl Cut {
    fn of(schema: &Value, definitions: &Definitions, levels: usize) -> Self {
        let map = match resolved(schema, definitions) {
            Value::Bool(true) => return Self::Open,
            Value::Object(map) => map,
            _ => return Self::None,
        };
        let says_only = |known: &[&str]| rules(map).all(|rule| known.contains(&rule));
        if says_only(&[]) {
            return Self::Open;
        }
        let cut = match map.get("type").and_then(Value::as_str) {
            _ if levels == 0 => None,
            Some("object") if says_only(&["type", "properties", "required", "additionalProperties"]) => {
                Self::object(map, definitions, levels - 1)
            }
            Some("array") if says_only(&["type", "items", "minItems", "maxItems"]) => {
                Self::list(map, definitions, levels - 1)
            }
            _ => None,
        };
        cut.unwrap_or(Self::None)
    }

    fn object(map: &Object, definitions: &Definitions, levels: usize) -> Option<Self> {
        let is_open = map.get("additionalProperties").map_or(Some(true), Value::as_bool)?;
        let properties = map.get("properties")?.as_object()?;
        let members: Vec<(String, Outline)> = properties
            .iter()
            .map(|(name, schema)| (name.clone(), Outline::at(schema, definitions, levels)))
            .collect();
        let required = match map.get("required") {
            None => Vec::new(),
            Some(names) => {
                let names = names.as_array()?.iter().map(|name| name.as_str().map(str::to_owned));
                names.collect::<Option<Vec<String>>>()?
            }
        };
        required.iter().all(|name| properties.contains_key(name)).then_some(Self::Object {
            members,
            required,
            is_open,
        })
    }

    fn list(map: &Object, definitions: &Definitions, levels: usize) -> Option<Self> {
        let bound = |name: &str, unset: usize| match map.get(name) {
            None => Some(unset),
            Some(bound) => usize::try_from(bound.as_u64()?).ok(),
        };
        let element = Box::new(Outline::at(map.get("items")?, definitions, levels));
        Some(Self::List { element, least: bound("minItems", 0)?, most: bound("maxItems", usize::MAX)? })
    }
}

/// The keywords of a schema that say something about a value. Those of a root only serve its references.
fn rules(map: &Object) -> impl Iterator<Item = &str> {
    map.keys().map(String::as_str).filter(|key| !NOTES.contains(key) && !matches!(*key, "$defs" | "$schema"))
}

/// What a schema refers to, where it does nothing else.
fn resolved<'a>(mut schema: &'a Value, definitions: &'a Definitions) -> &'a Value {
    for _ in 0..HOPS_MAX {
        let Some(map) = schema.as_object() else { break };
        if !rules(map).eq(["$ref"]) {
            break;
        }
        let Some(target) = map.get("$ref").and_then(Value::as_str).and_then(|r| definitions.target(r)) else {
            break;
        };
        schema = target;
    }
    schema
}

/// Whether a schema refers only to the `$defs` of its root, so that a part of it means the same by itself.
fn is_plain(schema: &Value, is_root: bool) -> bool {
    match schema {
        Value::Object(map) => map.iter().all(|(key, value)| match key.as_str() {
            "$ref" => value
                .as_str()
                .and_then(|r| r.strip_prefix("#/$defs/"))
                .is_some_and(|name| !name.contains('/')),
            "$dynamicRef" | "$recursiveRef" | "$id" | "$anchor" | "$dynamicAnchor" => false,
            "$defs" if !is_root => false,
            _ => is_plain(value, false),
        }),
        Value::Array(items) => items.iter().all(|item| is_plain(item, false)),
        _ => true,
    }
}

/// Reads accepted JSON as a value, or only looks whether it could be: what was copied digit for digit may hold a
/// number that no 64-bit float does, or half of a character.
fn readable<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Breach> {
    serde_json::from_str(text).map_err(|error| {
        let said = error.to_string();
        Breach::here(format!(
            "it cannot be read back: {}",
            said.split(" at line ").next().unwrap_or_default()
        ))
    })
}

/// Any JSON that a value could hold, looked at and not kept.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Self, D::Error> {
        parser.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn outline(schema: &Value, definitions: &Value) -> Outline {
        Outline::of(schema, &Definitions::of(definitions.as_object().unwrap()))
    }

    fn page() -> Outline {
        let record = json!({
            "type": "object",
            "properties": {
                "id": {"type": "integer", "minimum": 1},
                "text": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                "any": {},
            },
            "required": ["id"],
            "additionalProperties": false,
        });
        let page = json!({
            "type": "object",
            "properties": {
                "kind": {"const": "page"},
                "items": {"type": "array", "items": {"$ref": "#/$defs/record"}, "maxItems": 100},
            },
            "required": ["kind", "items"],
            "additionalProperties": false,
        });
        outline(&json!({"$ref": "#/$defs/page"}), &json!({"record": record, "page": page}))
    }

    fn problem(outline: &Outline, text: &str) -> Option<(String, String)> {
        outline.check(text, &Validators::default()).err().map(|b| (b.pointer, b.message))
    }

    fn filled(record: &str) -> String {
        let rows = format!("{{\"id\":1,\"text\":\"{}\"}},", "x".repeat(200)).repeat(20);
        format!("{{\"kind\":\"page\",\"items\":[{rows}{record}]}}")
    }

    #[test]
    fn mistakes_in_a_large_page_are_found_in_their_places() {
        let page = page();
        assert!(matches!(page.cut, Cut::Object { .. }));
        assert_eq!(problem(&page, &filled(r#"{"id":2,"tags":["a"],"any":[{}]}"#)), None);
        let place = |record: &str| problem(&page, &filled(record)).unwrap().0;
        assert_eq!(place(r#"{"id":0}"#), "/items/20/id");
        assert_eq!(place(r#"{"text":"x"}"#), "/items/20");
        assert_eq!(place(r#"{"id":1,"tags":[1]}"#), "/items/20/tags/0");
        assert_eq!(place(r#"{"id":1,"tags":["","","",""]}"#), "/items/20/tags");
        assert_eq!(place(r#"{"id":1,"other":1}"#), "/items/20");
        assert_eq!(place("7"), "/items/20");
        let long = "y".repeat(3_000);
        assert_eq!(place(&format!(r#"{{"id":1,"text":"{long}","tags":[1]}}"#)), "/items/20/tags/0");
        assert_eq!(place(&format!(r#"{{"text":"{long}"}}"#)), "/items/20");
        assert_eq!(place(&format!(r#"{{"id":1,"text":["{long}"]}}"#)), "/items/20/text");
        assert_eq!(place(&format!(r#"{{"id":1,"o/o":"{long}"}}"#)), "/items/20");
        assert_eq!(place(r#"{"id":1,"any":[1e400]}"#), "/items/20");
        assert_eq!(place(&format!(r#"{{"id":1,"text":"{long}","any":["\ud800"]}}"#)), "/items/20/any");
        let many = format!(
            "{{\"kind\":\"page\",\"items\":[{}]}}",
            ["{\"id\":1,\"text\":\"0123456789\"}"; 101].join(",")
        );
        assert_eq!(problem(&page, &many).unwrap().0, "/items");
        // Of two members of one name the last counts.
        assert_eq!(problem(&page, &filled(&format!(r#"{{"id":0,"text":"{long}","id":3}}"#))), None);
    }

    #[test]
    fn what_a_cut_does_not_know_is_left_to_the_validator() {
        for schema in [
            json!({"type": "object", "properties": {"a": {}}, "minProperties": 2}),
            json!({"type": "object", "properties": {"a": {}}, "required": ["b"]}),
            json!({"type": "array", "items": {}, "uniqueItems": true}),
            json!({"type": ["object", "null"], "properties": {"a": {}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {}}}),
            json!({"$ref": "#/$defs/a", "minProperties": 1}),
            json!({"anyOf": [{}]}),
            json!(false),
        ] {
            assert!(matches!(outline(&schema, &json!({"a": {"type": "object"}})).cut, Cut::None), "{schema}");
        }
        assert!(matches!(outline(&json!({"title": "any"}), &json!({})).cut, Cut::Open));
        let cycle = outline(&json!({"$ref": "#/$defs/a"}), &json!({"a": {"$ref": "#/$defs/a"}}));
        assert!(matches!(cycle.cut, Cut::None));
    }

    proptest! {
        #[test]
        fn pieces_are_judged_as_the_whole_is(
            ids in prop::collection::vec(-1i64..50, 0..60),
            pad in 0usize..3_000,
            tags in prop::collection::vec(prop_oneof![Just(json!("t")), Just(json!(1))], 0..5),
            extra in any::<bool>(),
        ) {
            let page = page();
            let mut items: Vec<Value> = ids.iter().map(|id| json!({"id": id, "text": "x".repeat(60)})).collect();
            let mut last = json!({"id": 1, "text": "é".repeat(pad), "tags": tags});
            if extra {
                last["extra"] = json!(1);
            }
            items.push(last);
            let value = json!({"kind": "page", "items": items});
            let text = value.to_string();
            let whole = page.check_whole(&text, &Validators::default()).is_ok();
            prop_assert_eq!(page.check(&text, &Validators::default()).is_ok(), whole);
        }
    }
}
