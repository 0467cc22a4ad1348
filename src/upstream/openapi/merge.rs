//! `allOf` as one object: the members of all parts together, where that means the same.
//!
//! A part that says more than "an object with these members" stays a part. The members of one name in several
//! parts are kept side by side, for all of them hold. One liberty: parts that each forbid further members are
//! read as forbidding them together, for else no value would fit (as such documents are meant).

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::document::{At, Documents};

/// Parts merged of one `allOf`, nested ones included: beyond, what is left stays a part.
const PARTS_MAX: usize = 64;
/// Members merged of one `allOf`.
const MEMBERS_MAX: usize = 2_000;

/// An object schema with the parts of its `allOf` merged into it. A schema without `allOf` is its only part.
pub(super) struct Merged<'d> {
    /// The schema itself; its keywords besides members and `allOf` still hold.
    pub outer: At<'d>,
    /// Members with every place that describes them, in the order of the document.
    pub properties: Vec<(&'d str, Vec<At<'d>>)>,
    pub required: Vec<&'d str>,
    pub additional: Option<At<'d>>,
    /// Parts that say more.
    pub rest: Vec<At<'d>>,
    /// Whether a part says that it is an object.
    pub is_object: bool,
}

struct Merger<'d> {
    documents: &'d Documents,
    merged: Merged<'d>,
    index: HashMap<&'d str, usize>,
    open: HashSet<usize>,
    parts: usize,
}

impl<'d> Merged<'d> {
    /// Merges a schema that is no reference.
    pub(super) fn of(documents: &'d Documents, at: At<'d>) -> Self {
        let mut merger = Merger {
            documents,
            merged: Self {
                outer: at,
                properties: Vec::new(),
                required: Vec::new(),
                additional: None,
                rest: Vec::new(),
                is_object: false,
            },
            index: HashMap::new(),
            open: HashSet::from([at.key()]),
            parts: 0,
        };
        for part in at.items("allOf") {
            merger.part(part);
        }
        merger.members(at);
        merger.merged
    }
}

impl<'d> Merger<'d> {
    fn part(&mut self, part: At<'d>) {
        self.parts += 1;
        let resolved = self.documents.resolve(part).ok().map(|(at, _)| at);
        let Some(at) = resolved.filter(|at| {
            self.parts <= PARTS_MAX
                && self.merged.properties.len() < MEMBERS_MAX
                && is_plain_object(*at)
                && self.open.insert(at.key())
        }) else {
            // A part that says nothing (`{}`, a description alone) is no part; a ring says nothing new.
            let again = resolved.is_some_and(|at| self.open.contains(&at.key()));
            if !again && !resolved.is_some_and(says_nothing) {
                self.merged.rest.push(part);
            }
            return;
        };
        for inner in at.items("allOf") {
            self.part(inner);
        }
        self.members(at);
        self.open.remove(&at.key());
    }

    fn members(&mut self, at: At<'d>) {
        self.merged.is_object |= at.text("type") == Some("object") || at.get("properties").is_some();
        for (name, property) in at.members("properties") {
            let found = *self.index.entry(name).or_insert_with(|| {
                self.merged.properties.push((name, Vec::new()));
                self.merged.properties.len() - 1
            });
            if let Some((_, places)) = self.merged.properties.get_mut(found) {
                // Documents repeat whole members; the same thing twice is one place.
                if !places.iter().any(|p| p.value == property.value && p.doc == property.doc) {
                    places.push(property);
                }
            }
        }
        for name in at.items("required").filter_map(|v| v.value.as_str()) {
            if !self.merged.required.contains(&name) {
                self.merged.required.push(name);
            }
        }
        if let Some(additional) =
            at.get("additionalProperties").filter(|a| a.value.is_object() || a.value.is_boolean())
        {
            // `true` says nothing against another part's word.
            if self.merged.additional.is_none_or(|a| a.value == &Value::Bool(true)) {
                self.merged.additional = Some(additional);
            }
        }
    }
}

/// Whether a schema says nothing but which members an object has.
fn is_plain_object(at: At<'_>) -> bool {
    at.object().is_some_and(|map| {
        map.iter().all(|(key, value)| match key.as_str() {
            "type" => value == "object",
            "properties" | "required" | "additionalProperties" | "allOf" => true,
            "nullable" | "x-nullable" => value != &Value::Bool(true) || map.contains_key("properties"),
            key => is_annotation(key),
        }) && ["properties", "required", "allOf", "additionalProperties"].iter().any(|k| map.contains_key(*k))
    })
}

fn says_nothing(at: At<'_>) -> bool {
    at.value == &Value::Bool(true)
        || at.object().is_some_and(|map| {
            map.iter().all(|(key, value)| is_annotation(key) || (key == "type" && value == "object"))
        })
}

/// Keywords that do not take part in validation.
pub(super) fn is_annotation(key: &str) -> bool {
    key.starts_with("x-")
        || matches!(
            key,
            "title"
                | "description"
                | "example"
                | "examples"
                | "default"
                | "deprecated"
                | "xml"
                | "externalDocs"
                | "discriminator"
                | "readOnly"
                | "writeOnly"
                | "$comment"
                | "$id"
                | "$schema"
                | "format"
        )
}
