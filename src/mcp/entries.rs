//! Entries of `tools/list`, serialised once per tool and shape.
//!
//! A remembered entry holds the parts it was made from and is used only while they are the very same
//! allocations, so it can never be stale; it is dropped with its generation.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;

use super::encode::write_json;
use super::revision::Revision;
use crate::catalog::ToolAnnotations;
use crate::gateway::ToolEntry;
use crate::id::Generation;
use crate::schema::SchemaText;

/// How a tool looks to a group of revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// 2025-03-26: neither title nor output schema.
    Plain,
    /// 2025-06-18 and 2025-11-25: an output schema only with an object at its root.
    Session,
    /// 2026-07-28.
    Stateless,
}

impl Shape {
    fn of(revision: Revision) -> Self {
        match revision {
            Revision::V2025_03_26 => Self::Plain,
            Revision::V2025_06_18 | Revision::V2025_11_25 => Self::Session,
            Revision::V2026_07_28 => Self::Stateless,
        }
    }

    /// The shape that gives the same bytes for this tool, so that most tools are kept once.
    fn folded(self, entry: &ToolEntry) -> Self {
        let object_root = || entry.output_schema.as_ref().is_none_or(is_object_schema);
        match self {
            Self::Plain if entry.title.is_some() || entry.output_schema.is_some() => Self::Plain,
            Self::Plain => Self::Stateless,
            Self::Session if object_root() => Self::Stateless,
            other => other,
        }
    }
}

/// Whether the root of a schema says `"type":"object"`: the session wire takes no other output schema.
fn is_object_schema(schema: &SchemaText) -> bool {
    schema.value().get("type").and_then(serde_json::Value::as_str) == Some("object")
}

#[derive(Debug)]
struct Kept {
    entry: ToolEntry,
    shapes: [Option<Bytes>; 3],
}

impl Kept {
    fn is_of(&self, entry: &ToolEntry) -> bool {
        let text = |a: Option<&Arc<str>>, b: Option<&Arc<str>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        let schema = |a: Option<&SchemaText>, b: Option<&SchemaText>| {
            a.map(|s| (s.as_str().as_ptr(), s.len())) == b.map(|s| (s.as_str().as_ptr(), s.len()))
        };
        Arc::ptr_eq(&self.entry.name, &entry.name)
            && Arc::ptr_eq(&self.entry.description, &entry.description)
            && text(self.entry.title.as_ref(), entry.title.as_ref())
            && schema(Some(&self.entry.input_schema), Some(&entry.input_schema))
            && schema(self.entry.output_schema.as_ref(), entry.output_schema.as_ref())
            && self.entry.annotations == entry.annotations
    }

    fn get(&self, entry: &ToolEntry, shape: Shape) -> Option<Bytes> {
        self.shapes.get(slot(shape))?.clone().filter(|_| self.is_of(entry))
    }
}

fn slot(shape: Shape) -> usize {
    match shape {
        Shape::Plain => 0,
        Shape::Session => 1,
        Shape::Stateless => 2,
    }
}

/// The remembered entries of one generation.
#[derive(Debug, Default)]
pub(super) struct Entries(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    generation: Generation,
    kept: HashMap<Arc<str>, Kept>,
}

impl Entries {
    /// Appends `[entry, entry, …]` in the shape of `revision`.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        generation: Generation,
        revision: Revision,
        tools: &[ToolEntry],
    ) {
        let wanted = Shape::of(revision);
        let mut fresh: Vec<(&ToolEntry, Shape, Bytes)> = Vec::new();
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        out.push(b'[');
        for (i, entry) in tools.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            let kept = table.kept.get(&entry.name);
            // The wanted slot is also filled where the bytes are shared, so that nothing is folded twice.
            if let Some(bytes) = kept.and_then(|k| k.get(entry, wanted)) {
                out.extend_from_slice(&bytes);
                continue;
            }
            let folded = wanted.folded(entry);
            let bytes = kept.and_then(|k| k.get(entry, folded)).unwrap_or_else(|| serialise(entry, folded));
            out.extend_from_slice(&bytes);
            fresh.push((entry, folded, bytes));
        }
        out.push(b']');
        drop(table);
        if !fresh.is_empty() {
            self.keep(generation, wanted, fresh);
        }
    }

    fn keep(&self, generation: Generation, wanted: Shape, fresh: Vec<(&ToolEntry, Shape, Bytes)>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if table.generation != generation {
            (table.generation, table.kept) = (generation, HashMap::new());
        }
        for (entry, folded, bytes) in fresh {
            let kept = table
                .kept
                .entry(Arc::clone(&entry.name))
                .or_insert_with(|| Kept { entry: entry.clone(), shapes: [None, None, None] });
            if !kept.is_of(entry) {
                *kept = Kept { entry: entry.clone(), shapes: [None, None, None] };
            }
            for shape in [wanted, folded] {
                if let Some(place) = kept.shapes.get_mut(slot(shape)) {
                    *place = Some(bytes.clone());
                }
            }
        }
    }
}

/// One entry. The session and stateless shapes differ in nothing but which output schemas they take.
fn serialise(entry: &ToolEntry, shape: Shape) -> Bytes {
    let mut out = Vec::with_capacity(entry.description.len() + entry.input_schema.len() + 256);
    out.extend_from_slice(b"{\"name\":");
    write_json(&mut out, &*entry.name);
    if let Some(title) = entry.title.as_deref().filter(|_| shape != Shape::Plain) {
        out.extend_from_slice(b",\"title\":");
        write_json(&mut out, title);
    }
    out.extend_from_slice(b",\"description\":");
    write_json(&mut out, &*entry.description);
    out.extend_from_slice(b",\"inputSchema\":");
    out.extend_from_slice(entry.input_schema.as_str().as_bytes());
    let output = entry.output_schema.as_ref().filter(|schema| match shape {
        Shape::Plain => false,
        Shape::Session => is_object_schema(schema),
        Shape::Stateless => true,
    });
    if let Some(schema) = output {
        out.extend_from_slice(b",\"outputSchema\":");
        out.extend_from_slice(schema.as_str().as_bytes());
    }
    if entry.annotations != ToolAnnotations::default() {
        out.extend_from_slice(b",\"annotations\":");
        write_json(&mut out, &entry.annotations);
    }
    out.push(b'}');
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::json;

    fn entry(name: &str, output: Option<Value>) -> ToolEntry {
        ToolEntry {
            name: Arc::from(name),
            title: Some(Arc::from("T \"quoted\"")),
            description: Arc::from("does\nthings"),
            input_schema: SchemaText::empty_object(),
            output_schema: output.map(|v| SchemaText::of(&v)),
            annotations: ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() },
        }
    }

    fn list(entries: &Entries, generation: u64, revision: Revision, tools: &[ToolEntry]) -> Value {
        let mut out = Vec::new();
        entries.write(&mut out, Generation(generation), revision, tools);
        json::parse(&out, 100_000).unwrap()
    }

    #[test]
    fn every_revision_gets_its_shape_first_and_warm() {
        let entries = Entries::default();
        let tools = [entry("a", Some(json!({"type": "object"}))), entry("b", Some(json!({"type": "array"})))];
        for _ in 0..2 {
            let oldest = list(&entries, 1, Revision::V2025_03_26, &tools);
            assert!(oldest[0].get("title").is_none() && oldest[0].get("outputSchema").is_none());
            assert_eq!(oldest[0]["annotations"], json!({"readOnlyHint": true}));
            let session = list(&entries, 1, Revision::V2025_11_25, &tools);
            assert_eq!(session[0]["outputSchema"], json!({"type": "object"}));
            assert!(session[1].get("outputSchema").is_none(), "the session wire takes objects only");
            assert_eq!(session[1]["title"], "T \"quoted\"");
            let stateless = list(&entries, 1, Revision::V2026_07_28, &tools);
            assert_eq!(stateless[1]["outputSchema"], json!({"type": "array"}));
        }
    }

    #[test]
    fn a_changed_tool_is_never_answered_from_memory() {
        let entries = Entries::default();
        let mut tool = entry("a", None);
        let before = list(&entries, 1, Revision::V2026_07_28, std::slice::from_ref(&tool));
        tool.description = Arc::from("another");
        let after = list(&entries, 1, Revision::V2026_07_28, std::slice::from_ref(&tool));
        assert_eq!(
            (&before[0]["description"], &after[0]["description"]),
            (&json!("does\nthings"), &json!("another"))
        );
        tool.annotations.read_only = None;
        let last = list(&entries, 2, Revision::V2026_07_28, std::slice::from_ref(&tool));
        assert!(last[0].get("annotations").is_none());
        assert_eq!(entries.0.read().unwrap().kept.len(), 1);
    }
}
