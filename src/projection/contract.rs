//! The contract of a tool's results: its families, the schema composed of shared definitions by transitive
//! closure, the envelope around every result, and the check of every success.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::keep::child;
use super::outline::Outline;
use super::scan;
use super::select::Fields;
use super::spec::{MappingSpec, ProjectionSpec};
use crate::call::{ErrorCode, ToolError};
use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile, did_you_mean};
use crate::json::{self as bounded, Object};
use crate::limits::{HOME_FILE_BYTES_MAX, RESULT_RECORDS};
use crate::schema::{SchemaText, Validators};

/// Definitions that every pack has; a pack's own of the same name comes first.
const LIBRARY: &str = include_str!("library.json");

/// Shared definitions by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Definitions(BTreeMap<String, Value>);

impl Definitions {
    /// The built-in ones and those of a pack's `schemas/*.json`.
    pub(super) fn load(schemas: &[SourceFile], diagnostics: &mut Diagnostics) -> Self {
        let mut all = Self::default();
        all.add(LIBRARY);
        for file in schemas {
            match bounded::parse(file.text.as_bytes(), HOME_FILE_BYTES_MAX) {
                Ok(value) if value.get("$defs").is_some_and(Value::is_object) => {
                    all.add(&file.text);
                }
                Ok(_) => diagnostics.push(
                    Diagnostic::error("bad-schema", &*file.name, "there is no object `$defs` at the root")
                        .help("write {\"$defs\": {\"name\": {…}}}"),
                ),
                Err(error) => {
                    diagnostics.push(Diagnostic::error("bad-json", &*file.name, error.to_string()));
                }
            }
        }
        all
    }

    fn add(&mut self, text: &str) {
        let defs = bounded::parse(text.as_bytes(), HOME_FILE_BYTES_MAX)
            .ok()
            .and_then(|v| v.get("$defs").and_then(Value::as_object).cloned());
        self.0.extend(defs.unwrap_or_default());
    }

    /// Those of one schema's own `$defs`.
    pub(super) fn of(own: &Object) -> Self {
        Self(own.iter().map(|(name, schema)| (name.clone(), schema.clone())).collect())
    }

    /// The schema that a reference leads to.
    pub(super) fn target(&self, reference: &str) -> Option<&Value> {
        self.0.get(&bounded::pointer_name(reference.strip_prefix("#/$defs/")?))
    }

    /// A schema with all that it refers to; one that brings its own definitions has it.
    pub(super) fn closed(&self, schema: &Value) -> Value {
        if schema.get("$defs").is_some() {
            return schema.clone();
        }
        let mut names = Vec::new();
        references(schema, &mut names);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (defs, _) = self.closure(&names);
        let mut closed = schema.clone();
        if let (Some(map), false) = (closed.as_object_mut(), defs.is_empty()) {
            map.insert("$defs".to_owned(), Value::Object(defs));
        }
        closed
    }

    /// Those reached from `roots` by `$ref`, and the references that lead nowhere.
    fn closure(&self, roots: &[&str]) -> (Object, BTreeSet<String>) {
        let (mut found, mut missing) = (BTreeMap::new(), BTreeSet::new());
        let mut open: Vec<String> = roots.iter().map(|r| (*r).to_owned()).collect();
        while let Some(name) = open.pop() {
            if found.contains_key(&name) {
                continue;
            }
            match self.0.get(&name) {
                Some(schema) => {
                    references(schema, &mut open);
                    found.insert(name, schema.clone());
                }
                None => drop(missing.insert(name)),
            }
        }
        (found.into_iter().collect(), missing)
    }
}

/// Names behind every `{"$ref": "#/$defs/name"}` in a schema.
fn references(schema: &Value, out: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            let target = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/$defs/"));
            out.extend(target.map(bounded::pointer_name));
            map.values().for_each(|v| references(v, out));
        }
        Value::Array(items) => items.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

/// How the results of a tool look.
#[derive(Debug, Clone)]
pub(super) enum Contract {
    /// Whatever the script or the upstream gives, bounded.
    Free,
    /// The bare value, under a schema of its own.
    Bare(Outline),
    /// The envelope of seed 001 around one of the families.
    Enveloped(Enveloped),
}

/// The envelope's parts, ready to be written.
#[derive(Debug, Clone)]
pub(super) struct Enveloped {
    /// The tool's name, a constant of the schema.
    pub(super) operation: String,
    families: Vec<Family>,
    /// The whole schema, to be advertised.
    schema: SchemaText,
}

/// One result family of a tool.
#[derive(Debug, Clone)]
struct Family {
    name: String,
    /// The schema that the data of a success must fit.
    outline: Outline,
    /// Members that the data, and each of its `items`, cannot do without.
    required: [Vec<String>; 2],
    /// Members that a caller may select: of its items, else of the data; empty where they are open.
    members: Vec<String>,
}

/// A value that does not keep its contract: where and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Breach {
    /// JSON Pointer into the result.
    pub(super) pointer: String,
    /// What is wrong, without the value.
    pub(super) message: String,
}

impl Contract {
    /// Composes the contract of a tool.
    pub(super) fn compose(
        operation: &str,
        spec: &ProjectionSpec,
        mapping: Option<&MappingSpec>,
        definitions: &Definitions,
        validators: &Validators,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        if let Some(schema) = &spec.output_schema {
            if let Err(problem) = validators.check(&schema.value, &Value::Null) {
                let message = format!("`output_schema` does not compile: {problem}");
                diagnostics.push(spec.place.error_at(schema.offset, "bad-schema", message));
            }
            let value = schema.value.value();
            let own = value.get("$defs").and_then(Value::as_object).map(Definitions::of);
            return Self::Bare(Outline::of(&value, &own.unwrap_or_default()));
        }
        let mut definitions = definitions.clone();
        let mut names: Vec<(String, usize)> =
            spec.families.iter().map(|f| (f.value.clone(), f.offset)).collect();
        if names.is_empty() {
            let Some(mapping) = mapping else {
                return Self::Free;
            };
            let name = generated(mapping, &mut definitions);
            names.push((name, spec.place.offset));
        }
        for (name, offset) in &names {
            if let Some(diagnostic) = check_family(name, *offset, spec, &definitions) {
                diagnostics.push(diagnostic);
            }
        }
        let mut roots = vec!["error"];
        roots.extend(names.iter().map(|(n, _)| n.as_str()));
        let (closure, missing) = definitions.closure(&roots);
        for name in missing.iter().filter(|m| !names.iter().any(|(n, _)| n == *m)) {
            let message = format!("a schema refers to `#/$defs/{name}`, which no file of `schemas/` defines");
            diagnostics.push(spec.place.error_at(spec.place.offset, "bad-schema", message));
        }
        Self::Enveloped(enveloped(operation, &names, closure, &definitions))
    }

    /// The schema to advertise.
    pub(super) fn schema(&self) -> Option<&SchemaText> {
        match self {
            Self::Free => None,
            Self::Bare(outline) => Some(outline.schema()),
            Self::Enveloped(envelope) => Some(&envelope.schema),
        }
    }

    /// Whether the members that a caller asks for can be in a result: an unknown one is told with those that
    /// there are.
    pub(super) fn check_fields(&self, fields: &Fields) -> Result<(), ToolError> {
        let known: BTreeSet<&str> = match self {
            Self::Free => return Ok(()),
            Self::Bare(_) => BTreeSet::new(),
            Self::Enveloped(envelope) => {
                envelope.families.iter().flat_map(|f| &f.members).map(String::as_str).collect()
            }
        };
        let refused =
            |message: String| Err(ToolError::new(ErrorCode::InvalidArgument, message).field("/fields"));
        let (names, is_deep) = fields.names();
        if is_deep {
            return refused(
                "`fields` of this tool are names of members, no pointers: inside a member its schema decides."
                    .to_owned(),
            );
        }
        let Some(wrong) = names.iter().find(|name| !known.is_empty() && !known.contains(**name)) else {
            return Ok(());
        };
        let help = match did_you_mean(wrong, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}.", known.iter().copied().collect::<Vec<_>>().join(", ")),
        };
        refused(format!("The results of this tool have no member `{}`; {help}", bounded::cut(wrong, 100)))
    }

    /// Members that a bare result cannot do without.
    pub(super) fn required(&self) -> Vec<String> {
        match self {
            Self::Bare(outline) => required_members(Some(&outline.schema().value())),
            Self::Free | Self::Enveloped(_) => Vec::new(),
        }
    }

    /// Checks a bare value, as compact JSON.
    pub(super) fn check_bare(&self, value: &str, validators: &Validators) -> Result<(), Breach> {
        match self {
            Self::Bare(outline) => outline.check(value, validators),
            Self::Free | Self::Enveloped(_) => Ok(()),
        }
    }
}

impl Enveloped {
    /// The families a result may have.
    pub(super) fn family_names(&self) -> impl Iterator<Item = &str> {
        self.families.iter().map(|f| f.name.as_str())
    }

    /// Members that the data of a family, and each of its items, cannot do without.
    pub(super) fn required(&self, family: &str) -> (&[String], &[String]) {
        match self.families.iter().find(|f| f.name == family) {
            Some(Family { required: [data, item], .. }) => (data, item),
            None => (&[], &[]),
        }
    }

    /// Checks the `data` of a success, as compact JSON: first its `kind`, then the schema of that family alone, so
    /// that the place of a mistake is exact.
    pub(super) fn check(&self, data: &str, validators: &Validators) -> Result<(), Breach> {
        let breach = |message: String| Breach { pointer: "/data/kind".to_owned(), message };
        let allowed = || self.family_names().collect::<Vec<_>>().join(", ");
        let Some(kind) = child(data, "kind").filter(|k| k.starts_with('"')).and_then(scan::decode) else {
            return Err(breach(format!("there is no family name; allowed: {}", allowed())));
        };
        let Some(family) = self.families.iter().find(|f| *f.name == *kind) else {
            let message = format!("`{kind}` is not a family of this tool; allowed: {}", allowed());
            return Err(breach(message));
        };
        family.outline.check(data, validators).map_err(|b| b.below("data"))
    }
}

impl Breach {
    /// At the place that is looked at.
    pub(super) fn here(message: String) -> Self {
        Self { pointer: String::new(), message }
    }

    /// The same seen from one level up.
    pub(super) fn below(self, name: &str) -> Self {
        Self { pointer: format!("/{}{}", bounded::pointer_token(name), self.pointer), ..self }
    }
}

/// Adds the family of a mapping without one: `page` of its records, or `record`.
fn generated(mapping: &MappingSpec, definitions: &mut Definitions) -> String {
    let record = if mapping.fields.is_empty() {
        json!({"type": "object"})
    } else {
        let members: Object = mapping.fields.iter().map(|(name, _)| (name.clone(), json!({}))).collect();
        json!({"type": "object", "properties": members, "additionalProperties": false})
    };
    definitions.0.insert("item".to_owned(), record);
    let (name, content) = if mapping.collection.is_some() {
        let items = json!({"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": RESULT_RECORDS});
        ("page", json!({"kind": {"const": "page"}, "items": items, "page": {"$ref": "#/$defs/paging"}}))
    } else {
        ("record", json!({"kind": {"const": "record"}, "record": {"$ref": "#/$defs/item"}}))
    };
    let required: Vec<&String> = content.as_object().into_iter().flat_map(|m| m.keys()).collect();
    let schema =
        json!({"type": "object", "properties": content, "required": required, "additionalProperties": false});
    definitions.0.insert(name.to_owned(), schema);
    name.to_owned()
}

fn check_family(
    name: &str,
    offset: usize,
    spec: &ProjectionSpec,
    definitions: &Definitions,
) -> Option<Diagnostic> {
    let Some(schema) = definitions.0.get(name) else {
        let help = match did_you_mean(name, definitions.0.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "define it in `schemas/*.json` under `$defs`".to_owned(),
        };
        let message = format!("there is no result family `{name}`");
        return Some(spec.place.error_at(offset, "unknown-family", message).help(help));
    };
    let constant = schema.pointer("/properties/kind/const").and_then(Value::as_str);
    (constant != Some(name)).then(|| {
        let message = format!("the family `{name}` does not say `\"kind\": {{\"const\": \"{name}\"}}`");
        let help = "a result names its family in `kind`, so that readers and checks know which one it is";
        spec.place.error_at(offset, "bad-family", message).help(help)
    })
}

/// The envelope template of seed 001 with this tool's families.
fn enveloped(
    operation: &str,
    names: &[(String, usize)],
    mut closure: Object,
    definitions: &Definitions,
) -> Enveloped {
    if let Some(code) = closure.get_mut("error").and_then(|e| e.pointer_mut("/properties/code")) {
        *code = json!({"type": "string", "enum": ErrorCode::ALL.map(ErrorCode::as_str)});
    }
    let families = names
        .iter()
        .map(|(name, _)| {
            let (defs, _) = definitions.closure(&[name]);
            let item = defs.get(name).and_then(|d| d.pointer("/properties/items/items"));
            let item = match item.and_then(|i| i.get("$ref")).and_then(Value::as_str) {
                Some(reference) => reference.strip_prefix("#/$defs/").and_then(|n| defs.get(n)),
                None => item,
            };
            let required = [defs.get(name), item].map(required_members);
            let outline = Outline::of(&json!({"$ref": format!("#/$defs/{name}")}), definitions);
            let members = match (item, defs.get(name).and_then(|d| d.pointer("/properties/record"))) {
                (Some(item), _) => property_names(item),
                (None, Some(_)) => defs.get("item").map(property_names).unwrap_or_default(),
                (None, None) => defs.get(name).map(property_names).unwrap_or_default(),
            };
            Family { name: name.clone(), outline, required, members }
        })
        .collect();
    let one_of: Vec<Value> = names.iter().map(|(n, _)| json!({"$ref": format!("#/$defs/{n}")})).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "ok": {"type": "boolean"},
            "operation": {"const": operation},
            "data": {"oneOf": one_of},
            "error": {"$ref": "#/$defs/error"},
            "warnings": {"type": "array", "items": {"type": "string"}, "maxItems": WARNINGS_MAX},
            "truncated": {"type": "boolean"},
            "correlation_id": {"type": "string"},
        },
        "required": ["ok", "operation", "warnings", "truncated", "correlation_id"],
        "additionalProperties": false,
        "allOf": [{
            "if": {"properties": {"ok": {"const": true}}},
            "then": {"required": ["data"], "not": {"required": ["error"]}},
            "else": {"required": ["error"]},
        }],
        "$defs": closure,
    });
    Enveloped { operation: operation.to_owned(), families, schema: SchemaText::of(&schema) }
}

fn property_names(schema: &Value) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|p| p.keys().cloned()).collect()
}

fn required_members(schema: Option<&Value>) -> Vec<String> {
    let names = schema.and_then(|s| s.get("required")).and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Warnings of one result at most (seed 001).
pub(super) const WARNINGS_MAX: usize = 100;

/// Shared definitions of a pack, loaded once for all its tools.
pub(super) type SharedDefinitions = Arc<Definitions>;
