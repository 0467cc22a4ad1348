//! Entries of `tools/list`, serialised once per tool and shape.
//!
//! An entry is remembered under its own address and held as long as it is remembered, so its bytes can never be
//! another's; all are dropped with their generation.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;

use super::encode::write_json;
use super::revision::Revision;
use crate::catalog::{TaskSupport, ToolAnnotations};
use crate::gateway::{ToolEntry, ToolPage};
use crate::id::Generation;
use crate::schema::SchemaText;

/// How a tool looks to a group of revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// 2025-03-26: neither title nor output schema.
    Plain,
    /// 2025-06-18: an output schema only with an object at its root.
    Session,
    /// 2025-11-25: the same, and whether a call is answered with a task.
    Tasks,
    /// 2026-07-28.
    Stateless,
}

impl Shape {
    fn of(revision: Revision) -> Self {
        match revision {
            Revision::V2025_03_26 => Self::Plain,
            Revision::V2025_06_18 => Self::Session,
            Revision::V2025_11_25 => Self::Tasks,
            Revision::V2026_07_28 => Self::Stateless,
        }
    }

    /// The shape that gives the same bytes for this tool, so that most tools are kept once.
    fn folded(self, entry: &ToolEntry) -> Self {
        let object_root = || entry.output_schema.as_ref().is_none_or(is_object_schema);
        match self {
            Self::Plain if entry.title.is_some() || entry.output_schema.is_some() => Self::Plain,
            Self::Plain => Self::Stateless,
            Self::Tasks if told_tasks(entry).is_some() => Self::Tasks,
            Self::Session | Self::Tasks if object_root() => Self::Stateless,
            Self::Tasks => Self::Session,
            other => other,
        }
    }
}

/// What the list says of tasks. Absent is as good as forbidden.
fn told_tasks(entry: &ToolEntry) -> Option<&'static str> {
    entry.tasks.filter(|t| *t != TaskSupport::Forbidden).map(TaskSupport::as_str)
}

/// Whether the root of a schema says `"type":"object"`: the session wire takes no other output schema.
fn is_object_schema(schema: &SchemaText) -> bool {
    schema.value().get("type").and_then(serde_json::Value::as_str) == Some("object")
}

/// Entries remembered at once: more than a catalog has. Meta-tools come anew with every class of callers, and
/// what does not fit is serialised each time.
const KEPT_MAX: usize = 65_536;

#[derive(Debug)]
struct Kept {
    /// Held so that no other entry can come to lie at its address, which is its key.
    entry: Arc<ToolEntry>,
    shapes: [Option<Bytes>; 4],
}

impl Kept {
    fn get(&self, shape: Shape) -> Option<&Bytes> {
        self.shapes.get(slot(shape))?.as_ref()
    }
}

fn slot(shape: Shape) -> usize {
    match shape {
        Shape::Plain => 0,
        Shape::Session => 1,
        Shape::Stateless => 2,
        Shape::Tasks => 3,
    }
}

/// The remembered entries of one generation.
#[derive(Debug, Default)]
pub(super) struct Entries(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    generation: Generation,
    /// By the address of the entry.
    kept: HashMap<usize, Kept>,
}

fn key(entry: &Arc<ToolEntry>) -> usize {
    Arc::as_ptr(entry).addr()
}

impl Entries {
    /// Appends `[entry, entry, …]` in the shape of `revision`.
    pub(super) fn write(&self, out: &mut Vec<u8>, revision: Revision, page: &ToolPage) {
        let wanted = Shape::of(revision);
        let mut fresh: Vec<(&Arc<ToolEntry>, Shape, Bytes)> = Vec::new();
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        out.push(b'[');
        for (i, entry) in page.tools.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            let kept = table.kept.get(&key(entry));
            // The wanted slot is also filled where the bytes are shared, so that nothing is folded twice.
            if let Some(bytes) = kept.and_then(|k| k.get(wanted)) {
                out.extend_from_slice(bytes);
                continue;
            }
            let folded = wanted.folded(entry);
            let bytes = kept.and_then(|k| k.get(folded)).cloned().unwrap_or_else(|| serialise(entry, folded));
            out.extend_from_slice(&bytes);
            fresh.push((entry, folded, bytes));
        }
        out.push(b']');
        drop(table);
        if !fresh.is_empty() {
            self.keep(page.generation, wanted, fresh);
        }
    }

    fn keep(&self, generation: Generation, wanted: Shape, fresh: Vec<(&Arc<ToolEntry>, Shape, Bytes)>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match generation.cmp(&table.generation) {
            // A page that began before the reload: its entries will not be asked for again.
            std::cmp::Ordering::Less => return,
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => *table = Table { generation, kept: HashMap::new() },
        }
        let room = KEPT_MAX.saturating_sub(table.kept.len());
        for (entry, folded, bytes) in fresh.into_iter().take(room) {
            let kept = table
                .kept
                .entry(key(entry))
                .or_insert_with(|| Kept { entry: Arc::clone(entry), shapes: [None, None, None, None] });
            debug_assert!(Arc::ptr_eq(&kept.entry, entry), "an address is one entry");
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
        Shape::Session | Shape::Tasks => is_object_schema(schema),
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
    if let Some(support) = told_tasks(entry).filter(|_| shape == Shape::Tasks) {
        out.extend_from_slice(b",\"execution\":{\"taskSupport\":");
        write_json(&mut out, support);
        out.push(b'}');
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
            tasks: None,
        }
    }

    fn page(generation: u64, tools: Vec<ToolEntry>) -> ToolPage {
        ToolPage {
            generation: Generation(generation),
            tools: tools.into_iter().map(Arc::new).collect(),
            next_cursor: None,
        }
    }

    fn list(entries: &Entries, revision: Revision, page: &ToolPage) -> Value {
        let mut out = Vec::new();
        entries.write(&mut out, revision, page);
        json::parse(&out, 100_000).unwrap()
    }

    #[test]
    fn every_revision_gets_its_shape_first_and_warm() {
        let entries = Entries::default();
        let tools =
            vec![entry("a", Some(json!({"type": "object"}))), entry("b", Some(json!({"type": "array"})))];
        let page = page(1, tools);
        for _ in 0..2 {
            let oldest = list(&entries, Revision::V2025_03_26, &page);
            assert!(oldest[0].get("title").is_none() && oldest[0].get("outputSchema").is_none());
            assert_eq!(oldest[0]["annotations"], json!({"readOnlyHint": true}));
            let session = list(&entries, Revision::V2025_11_25, &page);
            assert_eq!(session[0]["outputSchema"], json!({"type": "object"}));
            assert!(session[1].get("outputSchema").is_none(), "the session wire takes objects only");
            assert_eq!(session[1]["title"], "T \"quoted\"");
            let stateless = list(&entries, Revision::V2026_07_28, &page);
            assert_eq!(stateless[1]["outputSchema"], json!({"type": "array"}));
        }
    }

    #[test]
    fn only_the_revision_with_tasks_in_its_core_is_told_of_them() {
        let entries = Entries::default();
        let array = Some(json!({"type": "array"}));
        let of = |tasks, output| ToolEntry { tasks, ..entry("a", output) };
        let tools = vec![
            of(Some(TaskSupport::Required), None),
            of(Some(TaskSupport::Optional), array.clone()),
            of(Some(TaskSupport::Forbidden), array),
        ];
        let page = page(1, tools);
        for _ in 0..2 {
            let told = list(&entries, Revision::V2025_11_25, &page);
            assert_eq!(told[0]["execution"], json!({"taskSupport": "required"}));
            assert_eq!(told[1]["execution"], json!({"taskSupport": "optional"}));
            for n in 0..3 {
                assert!(told[n].get("outputSchema").is_none(), "{told}");
                for other in [Revision::V2025_03_26, Revision::V2025_06_18, Revision::V2026_07_28] {
                    assert!(list(&entries, other, &page)[n].get("execution").is_none(), "{other}");
                }
            }
            assert!(told[2].get("execution").is_none());
        }
    }

    #[test]
    fn a_changed_tool_is_never_answered_from_memory() {
        let entries = Entries::default();
        let tool = entry("a", None);
        let old = page(1, vec![tool.clone()]);
        assert_eq!(list(&entries, Revision::V2026_07_28, &old)[0]["description"], "does\nthings");
        let changed = ToolEntry { description: Arc::from("another"), ..tool };
        let new = page(2, vec![changed]);
        assert_eq!(list(&entries, Revision::V2026_07_28, &new)[0]["description"], "another");
        assert_eq!(list(&entries, Revision::V2026_07_28, &old)[0]["description"], "does\nthings");
        let kept: Vec<usize> = entries.0.read().unwrap().kept.keys().copied().collect();
        assert_eq!(kept, [key(&new.tools[0])], "a late page of an old generation leaves nothing behind");
    }
}
