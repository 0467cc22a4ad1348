//! The schemas of one tool as text: its root with the definitions it reaches, within budgets.
//!
//! Definitions come nearest first. What does not fit is replaced by a marker that takes any value, so a schema
//! that was cut never refuses what the whole would take. Descriptions of definitions go before definitions do.

use std::collections::{HashSet, VecDeque};

use serde_json::{Value, json};

use super::convert::{Converter, Def, DefId, strip};
use crate::json::{self, Object};
use crate::limits::SCHEMA_BYTES_PER_TOOL;
use crate::schema::{SchemaText, fold};

/// Bytes of the schema that validates: Kubernetes' pod without its texts has 60 KB, and a thousand of its
/// operations take one.
const STRICT_BYTES_MAX: usize = 96 * 1024;
/// Bytes of a root alone, descriptions gone, beyond which the operation is no tool: it could not be shown.
const ROOT_BYTES_MAX: usize = 256 * 1024;
/// References from the root to the furthest definition.
const LEVELS_MAX: usize = 32;

/// The validating and the shown schema; the same text where nothing was folded or cut.
pub(super) struct Schemas {
    pub strict: SchemaText,
    pub wire: SchemaText,
}

/// Puts a root and what it refers to together. The error says why the operation cannot be a tool.
pub(super) fn close(converter: &mut Converter<'_>, root: Object, refs: &[DefId]) -> Result<Schemas, String> {
    let mut root = Value::Object(root);
    if json::encoded_len(&root) > ROOT_BYTES_MAX {
        strip(&mut root);
        let bytes = json::encoded_len(&root);
        if bytes > ROOT_BYTES_MAX {
            return Err(format!(
                "its arguments alone take {bytes} bytes of schema, {ROOT_BYTES_MAX} are allowed"
            ));
        }
    }
    let text = json::to_text(&root);
    let definitions = reached(converter, refs);
    let folded = fold::fold(&root).map(|value| json::to_text(&value));
    if let Some(whole) = write(&text, &definitions, Flavour::Full, SCHEMA_BYTES_PER_TOOL) {
        let strict = SchemaText::from_json(whole);
        let wire = folded
            .and_then(|f| write(&f, &definitions, Flavour::Full, usize::MAX))
            .map_or_else(|| strict.clone(), SchemaText::from_json);
        return Ok(Schemas { strict, wire });
    }
    let shown = folded.as_ref().unwrap_or(&text);
    let strict = write(&text, &definitions, Flavour::Bare, STRICT_BYTES_MAX)
        .unwrap_or_else(|| cut(&text, refs, &definitions, STRICT_BYTES_MAX));
    let wire = write(shown, &definitions, Flavour::Bare, SCHEMA_BYTES_PER_TOOL)
        .unwrap_or_else(|| cut(shown, refs, &definitions, SCHEMA_BYTES_PER_TOOL));
    let strict = SchemaText::from_json(strict);
    let wire = if strict.as_str() == wire { strict.clone() } else { SchemaText::from_json(wire) };
    Ok(Schemas { strict, wire })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Full,
    Bare,
}

/// A definition that a tool reaches; `None` is one beyond the levels.
struct Reached {
    id: DefId,
    def: Option<Def>,
    name: std::sync::Arc<str>,
}

/// All definitions that a tool reaches, nearest first.
fn reached(converter: &mut Converter<'_>, refs: &[DefId]) -> Vec<Reached> {
    let mut out = Vec::new();
    let mut seen: HashSet<DefId> = refs.iter().copied().collect();
    let mut queue: VecDeque<(DefId, usize)> = refs.iter().map(|id| (*id, 0)).collect();
    while let Some((id, level)) = queue.pop_front() {
        let Some(def) = converter.def(id) else { continue };
        let name = std::sync::Arc::clone(&def.name);
        if level >= LEVELS_MAX {
            out.push(Reached { id, def: None, name });
            continue;
        }
        for inner in def.refs.iter().copied() {
            if seen.insert(inner) {
                queue.push_back((inner, level + 1));
            }
        }
        out.push(Reached { id, def: Some(def), name });
    }
    out
}

fn marker() -> String {
    json::to_text(
        &json!({"description": "(left out: this schema is too large to show whole; any value is taken)"}),
    )
}

/// Root and definitions, if they fit.
fn write(root: &str, definitions: &[Reached], flavour: Flavour, max: usize) -> Option<String> {
    let marker = marker();
    let parts: Vec<(&str, &str)> = definitions
        .iter()
        .map(|r| {
            let text = match (&r.def, flavour) {
                (Some(def), Flavour::Full) => &*def.full,
                (Some(def), Flavour::Bare) => &*def.bare,
                (None, _) => marker.as_str(),
            };
            (&*r.name, text)
        })
        .collect();
    let bytes = root.len() + 10 + parts.iter().map(|(n, t)| n.len() + t.len() + 4).sum::<usize>();
    (bytes <= max).then(|| assemble(root, &parts, bytes))
}

/// Root and as many definitions as fit, nearest first, in their bare form; markers for the others that are
/// still referred to.
fn cut(root: &str, refs: &[DefId], definitions: &[Reached], max: usize) -> String {
    let marker = marker();
    let mut kept: HashSet<DefId> = HashSet::new();
    let mut wanted: HashSet<DefId> = refs.iter().copied().collect();
    let mut bytes = root.len() + 10;
    for reached in definitions {
        let Some(def) = reached.def.as_ref().filter(|_| wanted.contains(&reached.id)) else { continue };
        // A definition may bring markers for all it refers to.
        let size = def.name.len() + def.bare.len() + 4 + def.refs.len() * (marker.len() + 40);
        if bytes + size <= max {
            bytes += size;
            kept.insert(reached.id);
            wanted.extend(def.refs.iter().copied());
        }
    }
    let parts: Vec<(&str, &str)> = definitions
        .iter()
        .filter(|r| wanted.contains(&r.id))
        .map(|r| match &r.def {
            Some(def) if kept.contains(&r.id) => (&*r.name, &*def.bare),
            _ => (&*r.name, marker.as_str()),
        })
        .collect();
    assemble(root, &parts, bytes)
}

fn assemble(root: &str, parts: &[(&str, &str)], bytes: usize) -> String {
    if parts.is_empty() {
        return root.to_owned();
    }
    let mut out = String::with_capacity(bytes + 16);
    out.push_str(root.strip_suffix('}').unwrap_or(root));
    out.push_str(",\"$defs\":{");
    for (i, (name, text)) in parts.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&json::to_text(name));
        out.push(':');
        out.push_str(text);
    }
    out.push_str("}}");
    out
}
