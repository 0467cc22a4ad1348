//! One tool, as every other part of docent sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::id::{Scope, ToolId, UpstreamId};
use crate::schema::SchemaText;

/// The hints of MCP's `ToolAnnotations`. `None` means that nobody said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// A title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Arc<str>>,
    /// Reads only.
    #[serde(rename = "readOnlyHint", skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// May destroy; meaningful only where it is not read-only.
    #[serde(rename = "destructiveHint", skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Doing it twice is doing it once.
    #[serde(rename = "idempotentHint", skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Talks to an open world.
    #[serde(rename = "openWorldHint", skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl ToolAnnotations {
    /// Whether the tool is known to read only. Unknown is not.
    pub fn is_read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    /// Whether the tool may destroy: MCP's default for a tool that is not read-only is yes.
    pub fn is_destructive(&self) -> bool {
        !self.is_read_only() && self.destructive != Some(false)
    }
}

/// Why a tool should no longer be used, and what to use instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deprecation {
    /// Why.
    pub reason: Arc<str>,
    /// The id of the tool to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<ToolId>,
}

/// Whether a call can work at all, known when the catalog was built.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Availability {
    /// As far as is known.
    #[default]
    Available,
    /// Calls answer this reason: a program is missing, a definition has no upstream.
    Unavailable(Arc<str>),
}

/// Whether a direct call of a tool is answered with a task (MCP 2025-11-25, `execution.taskSupport`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskSupport {
    /// Never: its result is waited for.
    Forbidden,
    /// Where its client takes tasks.
    Optional,
    /// Always: it takes longer than anybody should wait on a connection.
    Required,
}

impl TaskSupport {
    /// MCP's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// A tool of the catalog.
#[derive(Debug, Clone)]
pub struct Tool {
    /// `<upstream>.<name>`, or the id that a catalog record brings.
    pub id: ToolId,
    /// The name on the wire: at most 48 bytes of `[A-Za-z0-9_-]`, unique; given by [`super::CatalogBuilder`].
    pub wire_name: Arc<str>,
    /// Names under which its clients knew it before it came behind docent: taken in calls, never listed.
    pub aliases: Arc<[Arc<str>]>,
    /// The upstream that runs it.
    pub upstream: UpstreamId,
    /// Its name at the upstream.
    pub name: Arc<str>,
    /// A title for people.
    pub title: Option<Arc<str>>,
    /// What it does, for models.
    pub description: Arc<str>,
    /// Its category; empty where none is known.
    pub category: Arc<str>,
    /// Free labels.
    pub tags: Arc<[Arc<str>]>,
    /// MCP's hints.
    pub annotations: ToolAnnotations,
    /// The tier that a caller needs.
    pub tier: Option<Arc<str>>,
    /// Scopes that a caller needs, all of them.
    pub scopes: Arc<[Scope]>,
    /// Whether it is on its way out.
    pub deprecated: Option<Deprecation>,
    /// The strict schema: arguments are validated against it.
    pub input_schema: SchemaText,
    /// The schema as shown: an object at the root without combinators. The same text where nothing was folded.
    pub wire_schema: SchemaText,
    /// The schema that every success fits, where docent guarantees one.
    pub output_schema: Option<SchemaText>,
    /// Facts from `upstream.toml` that policies may read.
    pub facts: Arc<BTreeMap<String, Value>>,
    /// Names further words under which it is found (path, method, server), for search only.
    pub search_hints: Arc<str>,
    /// Whether a call can work at all.
    pub availability: Availability,
    /// Whether a direct call is answered with a task. Where nobody said, a client that takes tasks gets one for a call
    /// that takes long, and no session is offered one.
    pub tasks: Option<TaskSupport>,
}

impl Tool {
    /// A tool with a name and nothing else set: for adapters and tests to fill.
    pub fn new(
        id: ToolId,
        upstream: UpstreamId,
        name: impl Into<Arc<str>>,
        input_schema: SchemaText,
    ) -> Self {
        Self {
            wire_name: Arc::from(""),
            aliases: Arc::default(),
            upstream,
            name: name.into(),
            title: None,
            description: Arc::from(""),
            category: Arc::from(""),
            tags: Arc::from([]),
            annotations: ToolAnnotations::default(),
            tier: None,
            scopes: Arc::from([]),
            deprecated: None,
            wire_schema: input_schema.clone(),
            input_schema,
            output_schema: None,
            facts: Arc::default(),
            search_hints: Arc::from(""),
            availability: Availability::default(),
            tasks: None,
            id,
        }
    }
}
