//! What a caller's code depends on of a tool, as one row with a hash; what became of it between two surfaces.
//!
//! Words are not part of it: a description that is reworded moves no hash, a maximum that is tightened does
//! (seed 002). The strict schemas count, not those that are shown folded.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::tool::{Deprecation, TaskSupport, Tool, ToolAnnotations};
use crate::json;
use crate::schema::{SchemaText, Use, compat, schema_changes};

/// A SHA-256, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// One row of a surface. Hints that nobody gave have MCP's defaults, so that spelling one out changes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolContract {
    /// The tool's id.
    pub id: String,
    /// The tier that a caller needs.
    pub tier: Option<String>,
    /// Reads only.
    pub read_only: bool,
    /// Doing it twice is doing it once.
    pub idempotent: bool,
    /// May destroy.
    pub destructive: bool,
    /// Talks to an open world.
    pub open_world: bool,
    /// Whether and why it is on its way out.
    pub deprecated: Option<Value>,
    /// The strict input schema without its prose.
    pub input_schema: Value,
    /// The output schema without its prose, where one is guaranteed.
    pub output_schema: Option<Value>,
    /// `required` where a direct call is answered with a task only; else it stands nowhere, so that the rows of all
    /// other tools keep their hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<String>,
}

impl ToolContract {
    /// The row of a tool of the catalog.
    pub fn of(tool: &Tool) -> Self {
        let schemas = (&tool.input_schema, tool.output_schema.as_ref());
        Self {
            tier: tool.tier.as_deref().map(str::to_owned),
            deprecated: tool.deprecated.as_ref().map(|d: &Deprecation| json!(d)),
            tasks: tool.tasks.filter(|t| *t == TaskSupport::Required).map(|t| t.as_str().to_owned()),
            ..Self::plain(tool.id.as_str(), &tool.annotations, schemas)
        }
    }

    /// A row without tier and deprecation, as docent's own tools have.
    pub fn plain(
        id: &str,
        hints: &ToolAnnotations,
        (input, output): (&SchemaText, Option<&SchemaText>),
    ) -> Self {
        let read_only = hints.is_read_only();
        Self {
            id: id.to_owned(),
            tier: None,
            read_only,
            idempotent: read_only || hints.idempotent == Some(true),
            destructive: hints.is_destructive(),
            open_world: hints.open_world != Some(false),
            deprecated: None,
            input_schema: compat(&input.value()),
            output_schema: output.map(|s| compat(&s.value())),
            tasks: None,
        }
    }

    /// SHA-256 over the row's canonical JSON: keys sorted, nothing left out.
    pub fn hash(&self) -> Hash {
        Hash(Sha256::digest(json::canonical(&json!(self))).into())
    }
}

/// The hash of a surface: SHA-256 over the canonical JSON of `{tier, tools}`, where `tier` is the caller's and
/// `tools` are the hashes of the rows, in the order of their ids. Rows are hashed by themselves so that a
/// change of one tool among 10,000 costs one row.
pub fn surface_hash(tier: Option<&str>, rows: impl Iterator<Item = Hash>) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(br#"{"tier":"#);
    hasher.update(json::to_bytes(&tier));
    hasher.update(br#","tools":["#);
    for (n, row) in rows.enumerate() {
        if n > 0 {
            hasher.update(b",");
        }
        hasher.update(json::to_bytes(&row));
    }
    hasher.update(b"]}");
    Hash(hasher.finalize().into())
}

/// One difference between two surfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContractChange {
    /// Whether a caller written for the older surface can fail.
    pub breaking: bool,
    /// The tool.
    pub tool: String,
    /// Where: `tool`, a member of the row, or `input_schema`/`output_schema` with a JSON Pointer into it.
    pub at: String,
    /// What, in a few words.
    pub what: String,
}

/// All differences between two surfaces, by tool in the order of ids.
pub fn changes(old: &[ToolContract], new: &[ToolContract]) -> Vec<ContractChange> {
    let by_id = |rows| -> BTreeMap<&str, &ToolContract> {
        let rows: &[ToolContract] = rows;
        rows.iter().map(|row| (row.id.as_str(), row)).collect()
    };
    let (before, after) = (by_id(old), by_id(new));
    let mut ids: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let mut found = Found(Vec::new());
    for id in ids {
        match (before.get(id), after.get(id)) {
            (Some(a), Some(b)) => found.row(a, b),
            (Some(_), None) => found.tell(true, id, "tool", "the tool was removed".to_owned()),
            (None, Some(_)) => found.tell(false, id, "tool", "the tool was added".to_owned()),
            (None, None) => {}
        }
    }
    found.0
}

struct Found(Vec<ContractChange>);

impl Found {
    fn tell(&mut self, breaking: bool, tool: &str, at: &str, what: String) {
        self.0.push(ContractChange { breaking, tool: tool.to_owned(), at: at.to_owned(), what });
    }

    fn row(&mut self, old: &ToolContract, new: &ToolContract) {
        if old == new {
            return;
        }
        let id = &new.id;
        // A hint that promised something may not be taken back; giving a further promise harms nobody.
        for (at, before, after, promise) in [
            ("read_only", old.read_only, new.read_only, true),
            ("idempotent", old.idempotent, new.idempotent, true),
            ("destructive", old.destructive, new.destructive, false),
            ("open_world", old.open_world, new.open_world, false),
        ] {
            if before != after {
                self.tell(before == promise, id, at, format!("was {before}, is {after}"));
            }
        }
        if old.tier != new.tier {
            let word = |t: &Option<String>| t.as_deref().unwrap_or("none").to_owned();
            let what = format!("the tier that it needs was {}, is {}", word(&old.tier), word(&new.tier));
            self.tell(new.tier.is_some(), id, "tier", what);
        }
        if old.tasks != new.tasks {
            let what = if new.tasks.is_some() {
                "a direct call is answered with a task only"
            } else {
                "a direct call is answered with its result again"
            };
            self.tell(new.tasks.is_some(), id, "tasks", what.to_owned());
        }
        if old.deprecated != new.deprecated {
            let what =
                if new.deprecated.is_some() { "it is deprecated" } else { "it is no longer deprecated" };
            self.tell(false, id, "deprecated", what.to_owned());
        }
        self.schema(id, Use::Input, &old.input_schema, &new.input_schema);
        match (&old.output_schema, &new.output_schema) {
            (Some(a), Some(b)) => self.schema(id, Use::Output, a, b),
            (Some(_), None) => {
                self.tell(true, id, "output_schema", "results no longer have a guaranteed shape".to_owned());
            }
            (None, Some(_)) => {
                self.tell(false, id, "output_schema", "results now have a guaranteed shape".to_owned());
            }
            (None, None) => {}
        }
    }

    fn schema(&mut self, id: &str, used: Use, old: &Value, new: &Value) {
        let name = if used == Use::Input { "input_schema" } else { "output_schema" };
        for change in schema_changes(old, new, used) {
            self.tell(change.breaking, id, &format!("{name}{}", change.at), change.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ToolId, UpstreamId};

    fn tool(schema: &Value) -> Tool {
        let id = ToolId::parse("a.b").unwrap();
        let mut tool = Tool::new(id, UpstreamId::parse("a").unwrap(), "b", SchemaText::of(schema));
        tool.description = "Does b.".into();
        tool
    }

    /// The hash is part of the contract with callers: this number moves only with `manifestVersion`.
    #[test]
    fn the_hash_is_this_one() {
        let row = ToolContract::of(&tool(
            &json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}}),
        ));
        let canonical = String::from_utf8(json::canonical(&json!(row))).unwrap();
        assert_eq!(
            canonical,
            r#"{"deprecated":null,"destructive":true,"id":"a.b","idempotent":false,"input_schema":{"properties":{"n":{"maximum":9,"type":"integer"}},"type":"object"},"open_world":true,"output_schema":null,"read_only":false,"tier":null}"#
        );
        assert_eq!(row.hash().to_string().len(), 64);
        let whole = surface_hash(Some("action"), [row.hash()].into_iter());
        let preimage = format!(r#"{{"tier":"action","tools":["{}"]}}"#, row.hash());
        assert_eq!(whole, Hash(Sha256::digest(preimage).into()));
        assert_ne!(whole, surface_hash(None, [row.hash()].into_iter()));
    }

    #[test]
    fn words_never_move_the_hash_and_a_tightened_maximum_does() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "description": "n"}}});
        let hash = |tool: &Tool| ToolContract::of(tool).hash();
        let before = tool(&schema);
        let mut reworded = tool(
            &json!({"properties": {"n": {"description": "N!", "maximum": 9, "type": "integer"}}, "type": "object", "title": "t"}),
        );
        reworded.description = "Quite other words.".into();
        reworded.title = Some("B".into());
        reworded.annotations.title = Some("B".into());
        reworded.annotations.open_world = Some(true);
        assert_eq!(hash(&before), hash(&reworded));
        let mut tightened = schema.clone();
        tightened["properties"]["n"]["maximum"] = json!(8);
        assert_ne!(hash(&before), hash(&tool(&tightened)));
        let mut folded = before.clone();
        folded.wire_schema = SchemaText::empty_object();
        assert_eq!(hash(&before), hash(&folded), "the strict schema counts");
        let mut reading = before.clone();
        reading.annotations.read_only = Some(true);
        assert_ne!(hash(&before), hash(&reading));
    }

    #[test]
    fn breaking_and_compatible_changes_are_told_apart() {
        let row = |schema: Value| ToolContract::of(&tool(&schema));
        let plain = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let breaking = |old: &[ToolContract], new: &[ToolContract]| {
            let found = changes(old, new);
            assert!(!found.is_empty());
            found.iter().any(|c| c.breaking)
        };
        assert!(breaking(&[row(plain.clone())], &[]));
        assert!(!breaking(&[], &[row(plain.clone())]));
        let mut required = plain.clone();
        required["required"] = json!(["n"]);
        assert!(breaking(&[row(plain.clone())], &[row(required.clone())]));
        assert!(!breaking(&[row(required)], &[row(plain.clone())]));
        let (mut reads, mut old_tool) = (row(plain.clone()), row(plain.clone()));
        (reads.read_only, reads.destructive) = (true, false);
        assert!(breaking(&[reads.clone()], &[row(plain.clone())]));
        assert!(!breaking(&[row(plain.clone())], &[reads]));
        let mut task_only = tool(&plain);
        task_only.tasks = Some(TaskSupport::Required);
        let task_only = ToolContract::of(&task_only);
        assert_ne!(task_only.hash(), row(plain.clone()).hash());
        assert!(breaking(&[row(plain.clone())], std::slice::from_ref(&task_only)));
        assert!(!breaking(&[task_only], &[row(plain.clone())]));
        old_tool.deprecated = Some(json!({"reason": "r", "replacement": "a.c"}));
        assert!(!breaking(&[row(plain.clone())], &[old_tool]));
        assert!(changes(&[row(plain.clone())], &[row(plain)]).is_empty());
    }
}
