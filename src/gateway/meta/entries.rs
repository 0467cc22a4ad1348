//! How docent's own tools look in a list: descriptions for models, strict schemas, hints.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};

use crate::catalog::ToolAnnotations;
use crate::limits;
use crate::projection::{FIELD_BYTES_MAX, FIELDS_MAX};
use crate::schema::SchemaText;
use crate::snapshot::MetaTool;

use super::super::ToolEntry;
use super::super::view::Shelf;

/// Bytes that the list of categories may take in the description of search: it is paid in every session.
const CATEGORIES_BYTES_MAX: usize = 600;
/// Needs that one search may bring.
pub(super) const NEEDS_MAX: usize = 8;
/// Rows of one search at most.
pub(super) const LIMIT_MAX: usize = 100;
/// Tokens below which no answer fits (seed 004).
pub(super) const BUDGET_MIN: usize = 128;
/// How long `job_cancel` waits for the end when it does not say: a process group is gone by then.
pub(super) const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// Bytes of any name or cursor in an argument.
const TEXT_MAX: usize = 512;
/// Bytes of a JSON Pointer.
const PATH_MAX: usize = 2_048;

/// Schemas never change; they are made once for all callers.
static SCHEMAS: LazyLock<[SchemaText; MetaTool::ALL.len()]> =
    LazyLock::new(|| MetaTool::ALL.map(|m| SchemaText::of(&schema(m))));

/// The strict schema of a meta-tool's arguments.
pub(in super::super) fn input_schema(tool: MetaTool) -> SchemaText {
    let at = MetaTool::ALL.iter().position(|m| *m == tool).unwrap_or(0);
    SCHEMAS.get(at).cloned().unwrap_or_else(SchemaText::empty_object)
}

/// The entries of all meta-tools for one class of callers, in the order of listing.
pub(in super::super) fn entries(server: &str, shelf: &Shelf) -> Vec<Arc<ToolEntry>> {
    MetaTool::ALL
        .into_iter()
        .map(|tool| ToolEntry {
            name: tool.wire_name(server),
            title: None,
            description: Arc::from(description(tool, server, shelf)),
            input_schema: input_schema(tool),
            output_schema: None,
            annotations: annotations(tool),
            tasks: None,
        })
        .map(Arc::new)
        .collect()
}

fn annotations(tool: MetaTool) -> ToolAnnotations {
    let dispatches = matches!(tool, MetaTool::RunTool | MetaTool::RunReadonlyTool);
    let writes = matches!(tool, MetaTool::RunTool | MetaTool::JobCancel);
    // Adds something of the caller's own and changes nothing that is there.
    let adds = tool == MetaTool::UploadFile;
    ToolAnnotations {
        title: None,
        read_only: Some(!writes && !adds),
        destructive: Some(writes),
        idempotent: Some(tool != MetaTool::RunTool && !adds),
        open_world: Some(dispatches),
    }
}

fn description(tool: MetaTool, server: &str, shelf: &Shelf) -> String {
    match tool {
        MetaTool::SearchTools => search_description(server, shelf),
        MetaTool::DescribeTool => format!(
            "The full entry of one tool: strict input schema, output schema, hints, whether you may call it \
             and what is missing if not. Read it before `{server}_run_tool`. Takes an id or a name."
        ),
        MetaTool::RunTool => format!(
            "Runs any tool you may use, listed or not, by id or name, with its own `arguments`. The same \
             rules as for a direct call apply. Waits up to `wait_seconds` for the result, then answers with a \
             `job_id` for `{server}_job_status`. Use \
             `{server}_run_readonly_tool` where you only want to read."
        ),
        MetaTool::RunReadonlyTool => format!(
            "Runs a tool that is marked as reading only, by id or name; refuses every other one. Otherwise \
             the same as `{server}_run_tool`."
        ),
        MetaTool::JobStatus => format!(
            "How a call stands that went on as a job: `status` queued, running, completed, failed or cancelled, \
             in the end with its `result` or `error`. `wait_seconds` waits for that. `{server}_job_cancel` ends it."
        ),
        MetaTool::JobCancel => {
            "Ends a job of yours and its work upstream. A change that was sent may have happened: `error` says so."
                .to_owned()
        }
        MetaTool::ListCategories => {
            "The categories of the tools you may use, with the number of tools in each.".to_owned()
        }
        MetaTool::ReadResult => {
            "A part of a result that was too large to be shown: its `result_id` stands in the result's warnings. \
             `path` is a JSON Pointer into it. An argument of another tool may be the kept result itself: \
             {\"$result\": \"<result_id>\", \"path\": \"/items/0/id\"}."
                .to_owned()
        }
        MetaTool::UploadFile => "Keeps a file of yours for a while and gives its `file_id`. An argument of any tool may then be the \
             file: {\"$file\": \"<file_id>\"}. Large files and raw bytes go to `POST /api/v1/files` over HTTP."
            .to_owned(),
        MetaTool::ListFiles => "Your own files: those you uploaded and those that tools made for you, oldest first, with their \
             `file_id`, `uri` for reading and `url` for HTTP."
            .to_owned(),
        MetaTool::Surface => format!(
            "What your code may rely on, as data: every tool you may use with its tier and hints, and one hash \
             over all of their contracts. Words never move the hash, arguments do: compare it at the start \
             instead of the list. `{server}_describe_tool` has the hash of one tool."
        ),
        MetaTool::Context => {
            "Who you are here: caller, agent, tier, scopes, discovery mode and why, how many tools you may \
             use, and which of their upstreams are down or incomplete."
                .to_owned()
        }
    }
}

fn search_description(server: &str, shelf: &Shelf) -> String {
    let mut text = format!(
        "Finds tools among the {} you may use, best first: say what you need in `query`, or several needs in \
         `queries`. Then `{server}_describe_tool` and `{server}_run_tool`.",
        shelf.tools
    );
    let mut listed = Vec::new();
    let mut bytes = 0;
    for (name, tools) in &shelf.categories {
        let item = format!("{} ({tools})", if name.is_empty() { "uncategorised" } else { name });
        bytes += item.len() + 2;
        if bytes > CATEGORIES_BYTES_MAX {
            break;
        }
        listed.push(item);
    }
    if !listed.is_empty() {
        let rest = shelf.categories.len() - listed.len();
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        text.push_str(&format_categories(&listed, &more));
    }
    text
}

fn format_categories(listed: &[String], more: &str) -> String {
    format!(" Categories: {}{more}.", listed.join(", "))
}

/// A strict object: nothing besides `properties`, so that a misspelt argument is an error.
fn object(properties: &Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if let (false, Some(map)) = (required.is_empty(), schema.as_object_mut()) {
        map.insert("required".to_owned(), json!(required));
    }
    schema
}

fn schema(tool: MetaTool) -> Value {
    match tool {
        MetaTool::SearchTools => search_schema(),
        MetaTool::DescribeTool => object(&json!({"tool": name("Id or name of the tool.")}), &["tool"]),
        MetaTool::RunTool | MetaTool::RunReadonlyTool => run_schema(),
        MetaTool::ReadResult => read_result_schema(),
        MetaTool::JobStatus => job_schema(0),
        MetaTool::JobCancel => job_schema(CANCEL_WAIT.as_secs()),
        MetaTool::UploadFile => object(
            &json!({
                "name": name("Its name, with the ending that tells what it is."),
                "content": {"type": "string", "maxLength": limits::REQUEST_BODY_BYTES_MAX, "description": "The bytes in base64."},
                "mime": name("Its media type; by the name's ending where absent."),
            }),
            &["name", "content"],
        ),
        MetaTool::ListFiles => object(
            &json!({
                "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_MAX, "description": "Files at most."},
                "cursor": cursor("`next_cursor` of the answer before."),
            }),
            &[],
        ),
        MetaTool::Surface => object(&json!({"cursor": cursor("`next_cursor` of the answer before.")}), &[]),
        MetaTool::ListCategories | MetaTool::Context => object(&json!({}), &[]),
    }
}

fn name(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": TEXT_MAX, "description": description})
}

/// Any text: what is no cursor, empty or long, has the one answer of every bad cursor, and is not decoded where it is
/// longer than one.
fn cursor(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn search_schema() -> Value {
    let query = |d: &str| json!({"type": "string", "minLength": 1, "maxLength": limits::QUERY_CHARS_MAX, "description": d});
    object(
        &json!({
            "query": query("What you need, in your own words, or a tool's name. Without it: browse by category or upstream."),
            "queries": {
                "type": "array", "items": query("One need."), "minItems": 1, "maxItems": NEEDS_MAX,
                "description": "Several needs at once, instead of `query`; each row says in `for` which it serves.",
            },
            "category": name("Only this category."),
            "upstream": name("Only this upstream."),
            "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": 10, "description": "Rows at most."},
            "cursor": cursor("`next_cursor` of the answer before, with the same query and filters."),
            "detail": {
                "enum": ["brief", "schema", "explain"], "default": "brief",
                "description": "`schema` adds input schemas, `explain` the score and its signals.",
            },
            "budget_tokens": {
                "type": "integer", "minimum": BUDGET_MIN,
                "description": "Tokens (bytes / 4) that the answer may take; rows that do not fit come with `next_cursor`.",
            },
        }),
        &[],
    )
}

fn read_result_schema() -> Value {
    object(
        &json!({
            "result_id": name("The id of the kept result."),
            "path": {
                "type": "string", "maxLength": PATH_MAX, "default": "",
                "description": "JSON Pointer (RFC 6901) to the part, such as `/items/120`; the whole if absent.",
            },
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Element, member, or byte of a text to begin with: `next_offset` of the answer before."},
            "limit": {"type": "integer", "minimum": 1, "description": "Elements, members or bytes at most; as many as fit if absent."},
        }),
        &["result_id"],
    )
}

fn run_schema() -> Value {
    let longest = limits::RUN_WAIT_MAX.as_secs();
    object(
        &json!({
            "tool": name("Id or name of the tool."),
            "arguments": {"type": "object", "description": "The tool's own arguments."},
            "wait_seconds": {
                "type": "integer", "minimum": 0, "maximum": longest, "default": limits::RUN_WAIT.as_secs(),
                "description": "How long to wait for the result; 0 starts a job at once.",
            },
            "request_key": {
                "type": "string", "minLength": 1, "maxLength": limits::REQUEST_KEY_BYTES_MAX,
                "description": "Your own key, such as a UUID: a repeat within two minutes gets the first result.",
            },
            "fields": {
                "type": "array", "items": {"type": "string", "minLength": 1, "maxLength": FIELD_BYTES_MAX}, "minItems": 1, "maxItems": FIELDS_MAX,
                "description": "Only these members of every record of the result; required ones come too.",
            },
        }),
        &["tool"],
    )
}

fn job_schema(wait_seconds: u64) -> Value {
    let longest = limits::RUN_WAIT_MAX.as_secs();
    object(
        &json!({
            "job_id": name("The `job_id` of an earlier answer."),
            "wait_seconds": {
                "type": "integer", "minimum": 0, "maximum": longest, "default": wait_seconds,
                "description": "How long to wait for its end.",
            },
        }),
        &["job_id"],
    )
}
