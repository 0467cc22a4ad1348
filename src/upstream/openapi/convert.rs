//! Schemas of OpenAPI 3.0, 3.1 and Swagger 2 as JSON Schema 2020-12, for inputs.
//!
//! A reference stays a reference: its target becomes a named definition that is converted once per document
//! and shared by all tools (`closure` puts into a tool those it reaches). So a ring is a ring in `$defs`, and
//! nothing is ever unrolled. What only the service sends (`readOnly`) is left out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::document::{At, Documents, Version};
use super::merge::{Merged, is_annotation};
use super::naming::{operation_name, unique};
use super::text::{NESTED_CHARS_MAX, clean};
use crate::json::{self, Object};
use crate::schema::pattern_is_safe;

/// Levels of one schema written out in place; below stands a marker. Providers stop at ten.
const INLINE_DEPTH_MAX: usize = 24;
/// Members of a scalar schema that is copied into place instead of being referred to.
const COPIED_MEMBERS_MAX: usize = 4;
/// Values of an enumeration in such a schema.
const COPIED_ENUM_MAX: usize = 12;
/// Different notes kept of one document: more is noise.
const NOTES_MAX: usize = 200;

/// A definition of this import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DefId(usize);

/// A converted definition as JSON text, with and without descriptions, and what it refers to.
#[derive(Debug, Clone)]
pub(super) struct Def {
    pub name: Arc<str>,
    pub full: Arc<str>,
    pub bare: Arc<str>,
    pub refs: Arc<[DefId]>,
}

struct Entry<'d> {
    name: Arc<str>,
    at: At<'d>,
    made: Option<Def>,
}

/// Converts the schemas of one document and remembers what it made.
pub(super) struct Converter<'d> {
    pub(super) documents: &'d Documents,
    by_place: HashMap<usize, DefId>,
    entries: Vec<Entry<'d>>,
    names: HashSet<String>,
    patterns: HashMap<&'d str, bool>,
    /// Definitions referred to since it was last taken.
    refs: Vec<DefId>,
    notes: BTreeSet<String>,
}

impl<'d> Converter<'d> {
    pub(super) fn new(documents: &'d Documents) -> Self {
        Self {
            documents,
            by_place: HashMap::new(),
            entries: Vec::new(),
            names: HashSet::new(),
            patterns: HashMap::new(),
            refs: Vec::new(),
            notes: BTreeSet::new(),
        }
    }

    /// Tells that something in the document had to be read loosely.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        if self.notes.len() < NOTES_MAX {
            self.notes.insert(note.into());
        }
    }

    /// What was told, each once.
    pub(super) fn into_notes(self) -> BTreeSet<String> {
        self.notes
    }

    /// The definitions referred to since the last call, in order, each once.
    pub(super) fn take_refs(&mut self) -> Vec<DefId> {
        let mut seen = HashSet::new();
        std::mem::take(&mut self.refs).into_iter().filter(|id| seen.insert(*id)).collect()
    }

    /// A definition, converted on first use.
    pub(super) fn def(&mut self, id: DefId) -> Option<Def> {
        let entry = self.entries.get(id.0)?;
        if let Some(made) = &entry.made {
            return Some(made.clone());
        }
        let (name, at) = (Arc::clone(&entry.name), entry.at);
        let outer = std::mem::take(&mut self.refs);
        let mut value = self.schema(at, 0);
        let refs = self.take_refs();
        self.refs = outer;
        let full = json::to_text(&value);
        strip(&mut value);
        let made = Def { name, full: full.into(), bare: json::to_text(&value).into(), refs: refs.into() };
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.made = Some(made.clone());
        }
        Some(made)
    }

    /// A schema, written out in place down to its references.
    pub(super) fn schema(&mut self, at: At<'d>, depth: usize) -> Value {
        if let Value::Bool(any) = at.value {
            return Value::Bool(*any);
        }
        let Some(map) = at.object() else {
            self.note(format!(
                "a schema is neither an object nor a boolean but `{}`",
                json::cut(&json::to_text(at.value), 40)
            ));
            return Value::Bool(true);
        };
        if depth > INLINE_DEPTH_MAX {
            self.note(format!("schemas nested deeper than {INLINE_DEPTH_MAX} levels were cut"));
            return json!({"description": "(cut: nested too deeply; any value is taken)"});
        }
        if map.get("$ref").is_some_and(Value::is_string) {
            return self.referred(at, depth);
        }
        if map.get("allOf").and_then(Value::as_array).is_some_and(|a| !a.is_empty()) {
            return self.all_of(at, depth);
        }
        let mut out = Object::new();
        self.keywords(at, depth, &mut out);
        self.finish(at, Value::Object(out))
    }

    /// `nullable` as a union with null, in the dialects that have it.
    pub(super) fn finish(&self, at: At<'d>, value: Value) -> Value {
        let nullable = match self.documents.version {
            Version::Swagger2 => at.flag("x-nullable") || at.flag("nullable"),
            Version::V30 => at.flag("nullable"),
            // Not a keyword of 3.1 any more, yet many documents kept it.
            Version::V31 => at.flag("nullable"),
        };
        if nullable { or_null(value) } else { value }
    }

    fn referred(&mut self, at: At<'d>, depth: usize) -> Value {
        let (target, reference) = match self.documents.resolve(at) {
            Ok(found) => found,
            Err(why) => {
                self.note(format!("{why}; any value is taken there"));
                return json!({"description": "(the document does not say what this is)"});
            }
        };
        let referred = if is_small_scalar(target) {
            self.schema(target, depth + 1)
        } else {
            let id = self.define(target, reference.unwrap_or_default());
            self.refs.push(id);
            let name = self.entries.get(id.0).map_or("", |e| &*e.name);
            json!({"$ref": format!("#/$defs/{name}")})
        };
        let Value::Object(mut out) = referred else { return referred };
        let siblings = at.object().is_some_and(|m| m.len() > 1);
        if siblings {
            if let Some(text) =
                at.text("description").map(|t| clean(t, NESTED_CHARS_MAX)).filter(|t| !t.is_empty())
            {
                out.insert("description".to_owned(), Value::from(text));
            }
            if self.documents.version == Version::V31 {
                // In 3.1 a reference is a keyword beside others; before, its siblings say nothing.
                self.keywords_beside_reference(at, depth, &mut out);
            }
        }
        self.finish(at, Value::Object(out))
    }

    fn keywords_beside_reference(&mut self, at: At<'d>, depth: usize, out: &mut Object) {
        let mut beside = Object::new();
        self.keywords(at, depth, &mut beside);
        for (key, value) in beside {
            out.entry(key).or_insert(value);
        }
    }

    fn define(&mut self, target: At<'d>, reference: &str) -> DefId {
        if let Some(id) = self.by_place.get(&target.key()) {
            return *id;
        }
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let last = fragment.rsplit('/').find(|s| !s.is_empty()).unwrap_or_else(|| {
            let file = file.rsplit('/').next().unwrap_or(file);
            file.split_once('.').map_or(file, |(stem, _)| stem)
        });
        let plain = operation_name(&last.replace("~1", "_").replace("~0", "_"));
        let name = unique(if plain.is_empty() { "schema" } else { &plain }, &mut self.names);
        let id = DefId(self.entries.len());
        self.by_place.insert(target.key(), id);
        self.entries.push(Entry { name: name.into(), at: target, made: None });
        id
    }

    /// `allOf`: what can be said in one object is, the rest stays an `allOf`.
    fn all_of(&mut self, at: At<'d>, depth: usize) -> Value {
        let parts: Vec<At<'d>> = at.items("allOf").collect();
        if let [only] = parts.as_slice()
            && !says_more_than_all_of(at)
        {
            let mut value = self.schema(*only, depth + 1);
            if let Value::Object(map) = &mut value {
                for key in ["title", "description"] {
                    if let Some(text) =
                        at.text(key).map(|t| clean(t, NESTED_CHARS_MAX)).filter(|t| !t.is_empty())
                    {
                        map.insert(key.to_owned(), Value::from(text));
                    }
                }
            }
            return self.finish(at, value);
        }
        let merged = Merged::of(self.documents, at);
        let mut out = Object::new();
        self.merged(&merged, depth, &mut out);
        self.finish(at, Value::Object(out))
    }

    /// Writes a merged object: its properties together, what could not be merged under `allOf`.
    pub(super) fn merged(&mut self, merged: &Merged<'d>, depth: usize, out: &mut Object) {
        self.keywords_without_members(merged.outer, depth, out);
        if merged.is_object {
            out.insert("type".to_owned(), Value::from("object"));
        }
        let mut properties = Object::new();
        for (name, places) in &merged.properties {
            if !places.iter().any(|p| self.is_read_only(*p)) {
                properties.insert((*name).to_owned(), self.member(places, depth + 1));
            }
        }
        let hidden =
            |name: &&str| merged.properties.iter().any(|(n, _)| n == name) && !properties.contains_key(*name);
        let required: Vec<Value> =
            merged.required.iter().filter(|n| !hidden(n)).map(|n| Value::from(*n)).collect();
        if !properties.is_empty() {
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
        if let Some(additional) = merged.additional {
            let value = self.schema(additional, depth + 1);
            out.insert("additionalProperties".to_owned(), value);
        }
        let rest: Vec<Value> = merged.rest.iter().map(|p| self.schema(*p, depth + 1)).collect();
        if !rest.is_empty() {
            out.insert("allOf".to_owned(), Value::Array(rest));
        }
    }

    /// One property that one or several parts of an `allOf` describe: all of them hold.
    pub(super) fn member(&mut self, places: &[At<'d>], depth: usize) -> Value {
        let mut schemas: Vec<Value> = Vec::new();
        for place in places {
            let schema = self.schema(*place, depth);
            if !schemas.contains(&schema) {
                schemas.push(schema);
            }
        }
        match schemas.len() {
            1 => schemas.swap_remove(0),
            _ => json!({"allOf": schemas}),
        }
    }

    /// Whether a property is one that only the service sends.
    pub(super) fn is_read_only(&self, at: At<'d>) -> bool {
        at.flag("readOnly")
            || (at.reference().is_some()
                && self.documents.resolve(at).is_ok_and(|(target, _)| target.flag("readOnly")))
    }

    /// Whether a pattern can be checked; asked once per pattern.
    pub(super) fn keeps_pattern(&mut self, pattern: &'d str) -> bool {
        let safe = *self.patterns.entry(pattern).or_insert_with(|| pattern_is_safe(pattern));
        if !safe {
            self.note(format!(
                "the pattern `{}` is not checked: it is no regular expression that runs in linear time",
                json::cut(pattern, 80)
            ));
        }
        safe
    }
}

/// Whether anything but annotations stands beside an `allOf`.
fn says_more_than_all_of(at: At<'_>) -> bool {
    at.object().is_some_and(|map| {
        map.iter().any(|(key, value)| match key.as_str() {
            "allOf" | "nullable" | "x-nullable" => false,
            "type" => value != "object",
            key => !is_annotation(key),
        })
    })
}

/// A schema so small that a reference to it would be longer: a plain string, a short enumeration.
fn is_small_scalar(at: At<'_>) -> bool {
    let Some(map) = at.object() else { return true };
    let scalar = matches!(at.text("type"), Some("string" | "integer" | "number" | "boolean"));
    let members = map.keys().filter(|k| {
        !matches!(k.as_str(), "description" | "title" | "example" | "examples") && !k.starts_with("x-")
    });
    scalar
        && members.count() <= COPIED_MEMBERS_MAX
        && map.iter().all(|(key, v)| match v {
            Value::Array(items) => key == "enum" && items.len() <= COPIED_ENUM_MAX || key == "examples",
            Value::Object(_) => {
                key.starts_with("x-")
                    || matches!(key.as_str(), "xml" | "externalDocs" | "example" | "examples")
            }
            _ => true,
        })
}

/// The schema, or null.
fn or_null(value: Value) -> Value {
    let Value::Object(mut map) = value else { return value };
    let combined =
        ["allOf", "anyOf", "oneOf", "$ref", "not", "if", "const"].iter().any(|k| map.contains_key(*k));
    if !combined {
        if let Some(Value::Array(values)) = map.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
        match map.get_mut("type") {
            Some(kind @ Value::String(_)) if *kind != "null" => *kind = json!([kind, "null"]),
            Some(Value::Array(kinds)) if !kinds.iter().any(|k| k == "null") => {
                kinds.push(Value::from("null"));
            }
            _ => {}
        }
        return Value::Object(map);
    }
    let mut out = Object::new();
    for key in ["title", "description", "default", "deprecated"] {
        if let Some(text) = map.shift_remove(key) {
            out.insert(key.to_owned(), text);
        }
    }
    out.insert("anyOf".to_owned(), json!([map, {"type": "null"}]));
    Value::Object(out)
}

/// Takes out of a schema what does not take part in validation.
pub(super) fn strip(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for key in ["description", "title", "examples", "default", "deprecated"] {
                map.shift_remove(key);
            }
            for (key, inner) in map.iter_mut() {
                match key.as_str() {
                    // A property may well be called `description`.
                    "properties" | "patternProperties" | "$defs" | "dependentSchemas" => {
                        for (_, member) in inner.as_object_mut().into_iter().flatten() {
                            strip(member);
                        }
                    }
                    "enum" | "const" | "required" => {}
                    _ => strip(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}
