//! `describe_tool`: everything a caller may know of one tool, its rights on it included.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::{Omission, ToolError};
use crate::catalog::{Deprecation, Hash, TaskSupport, Tool, ToolAnnotations};
use crate::id::{Scope, ToolId, ToolNo, UpstreamId};
use crate::json::{self, JsonText, Object};
use crate::policy::{Decision, Principal, Reason, Standing};
use crate::projection::{PLAIN_SCHEMA, Projection};
use crate::schema::SchemaText;

use super::super::failure;
use super::super::view::View;
use super::{args, search};

/// Properties named in the outline of a schema that is too large to be shown.
const OUTLINE_PROPERTIES_MAX: usize = 200;
/// Tools named as dependencies at most.
const DEPENDENCIES_MAX: usize = 20;

#[derive(Serialize)]
struct Entry<'a> {
    id: &'a ToolId,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    description: &'a str,
    upstream: &'a UpstreamId,
    category: &'a str,
    tags: Vec<&'a str>,
    annotations: &'a ToolAnnotations,
    #[serde(skip_serializing_if = "Option::is_none")]
    deprecated: Option<&'a Deprecation>,
    /// `{"taskSupport": "required"}` where a direct call is answered with a task only.
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<Value>,
    input_schema: Schema<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a RawValue>,
    /// What the `kind` of a result's data may be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output_families: Vec<&'a str>,
    dependencies: Vec<&'a ToolId>,
    permissions: Permissions<'a>,
    availability: String,
    /// Of the tool's contract, as in the surface.
    hash: Option<Hash>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    omitted: Vec<Omission>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Schema<'a> {
    Whole(Option<&'a RawValue>),
    Outline(Value),
}

/// What the caller may do with the tool, and what is missing.
#[derive(Serialize)]
struct Permissions<'a> {
    callable: bool,
    /// Whether the arguments decide: some calls of it are refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    depends_on_arguments: bool,
    /// What stands in the way: `scopes`, `confirmation`, `tier` or `policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    required_scopes: Vec<Scope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'a str>,
    confirmation: bool,
    /// Whether someone could grant what is missing.
    grantable: bool,
}

/// Describes a tool. Unknown, hidden and forbidden tools have one answer.
pub(in super::super) fn describe(
    view: &View,
    who: &Principal,
    arguments: &Object,
) -> Result<JsonText, ToolError> {
    let asked = args::text(arguments, "tool").unwrap_or_default();
    let Some((no, tool)) = view.find(asked) else { return Err(failure::not_found()) };
    let mut entry = entry(view, who, no, tool);
    let max = view.snapshot.settings.budgets.result_bytes;
    if json::encoded_len(&entry) > max && entry.output_schema.take().is_some() {
        entry.omitted.push(left_out("output_schema", tool.output_schema.as_ref(), "no call needs it"));
    }
    if json::encoded_len(&entry) > max {
        entry.input_schema = Schema::Outline(outline(&tool.input_schema));
        let way = "call the tool: errors name the argument that is wrong";
        entry.omitted.push(left_out("input_schema", Some(&tool.input_schema), way));
    }
    JsonText::parse(json::to_text(&entry))
        .map_err(|e| ToolError::new(crate::call::ErrorCode::InternalError, e.to_string()))
}

fn left_out(name: &str, schema: Option<&SchemaText>, restore_with: &str) -> Omission {
    Omission {
        name: name.to_owned(),
        count: schema.and_then(|s| u64::try_from(s.len()).ok()),
        reason: "byte_budget".to_owned(),
        restore_with: restore_with.to_owned(),
    }
}

fn entry<'a>(view: &'a View, who: &Principal, no: ToolNo, tool: &'a Tool) -> Entry<'a> {
    let projection = view.snapshot.plan(no).and_then(|plan| plan.projection.as_deref());
    let plain = || view.snapshot.is_plain(tool, projection).then(plain_schema).flatten();
    Entry {
        id: &tool.id,
        name: &tool.wire_name,
        title: tool.title.as_deref(),
        description: &tool.description,
        upstream: &tool.upstream,
        category: &tool.category,
        tags: tool.tags.iter().map(|t| &**t).collect(),
        annotations: &tool.annotations,
        deprecated: tool.deprecated.as_ref(),
        execution: tool
            .tasks
            .filter(|t| *t == TaskSupport::Required)
            .map(|t| json!({ "taskSupport": t.as_str() })),
        input_schema: Schema::Whole(tool.input_schema.raw()),
        output_schema: tool.output_schema.as_ref().and_then(SchemaText::raw).or_else(plain),
        output_families: projection.map(Projection::families).unwrap_or_default(),
        dependencies: dependencies(view, no, tool),
        permissions: permissions(view, who, no, tool),
        availability: search::availability(view, tool),
        hash: view.snapshot.contract_hash(no),
        omitted: Vec::new(),
    }
}

fn permissions<'a>(view: &View, who: &Principal, no: ToolNo, tool: &'a Tool) -> Permissions<'a> {
    let decision = view.snapshot.policy.decide(view.catalog(), who, no, None);
    let mut out = Permissions {
        callable: false,
        depends_on_arguments: view.roster.standing(no) == Some(Standing::Conditional),
        reason: None,
        why_not: None,
        required_scopes: tool.scopes.to_vec(),
        tier: tool.tier.as_deref(),
        confirmation: false,
        grantable: false,
    };
    match decision {
        Decision::Permit(_) => out.callable = true,
        // Without arguments there is no answer yet, only the promise that some calls are permitted.
        Decision::Deny { .. } if out.depends_on_arguments => out.callable = true,
        Decision::Challenge(challenge) => {
            out.reason = Some("scopes");
            out.why_not = Some(failure::challenge_error(&challenge).message);
            out.required_scopes = challenge.scopes;
            out.grantable = true;
        }
        Decision::Confirm(asked) => {
            out.reason = Some("confirmation");
            out.why_not = Some(failure::confirmation(&tool.wire_name, &asked).message);
            (out.confirmation, out.grantable) = (true, true);
        }
        Decision::Deny { reason, .. } => {
            out.grantable = matches!(reason, Reason::Tier { .. });
            out.reason = Some(if out.grantable { "tier" } else { "policy" });
            out.why_not = Some(failure::denial(&tool.wire_name, &reason).message);
        }
    }
    out
}

/// The schema of results of tools that have none of their own.
fn plain_schema() -> Option<&'static RawValue> {
    serde_json::from_str(PLAIN_SCHEMA).ok()
}

/// Other tools that the description names and the caller may know of. A plain word is no name: only what is
/// written like one counts.
fn dependencies<'a>(view: &'a View, no: ToolNo, tool: &Tool) -> Vec<&'a ToolId> {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let words = tool.description.split(|c| !is_name_char(c)).map(|w| w.trim_matches(['.', '-']));
    let mut found = BTreeSet::new();
    for word in words.filter(|w| w.contains(['_', '.', '-'])) {
        let sibling = || view.find(&format!("{}.{word}", tool.upstream));
        if let Some((other, named)) = view.find(word).or_else(sibling)
            && other != no
        {
            found.insert(&named.id);
        }
    }
    found.into_iter().take(DEPENDENCIES_MAX).collect()
}

/// A schema's first level: names, types, what is required.
fn outline(schema: &SchemaText) -> Value {
    let whole = schema.value();
    let mut properties = Object::new();
    let all = whole.get("properties").and_then(Value::as_object);
    for (name, property) in all.into_iter().flatten().take(OUTLINE_PROPERTIES_MAX) {
        let kind = property.get("type").map(|t| json!({ "type": t }));
        properties.insert(json::cut(name, 120).to_owned(), kind.unwrap_or_else(|| json!({})));
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": whole.get("required").cloned().unwrap_or_else(|| json!([])),
    })
}
