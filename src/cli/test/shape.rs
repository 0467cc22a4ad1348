//! Runs the case of a pack: the request that the arguments make, the result that the recorded reply becomes.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};

use super::case::{ProjectionCase, Reply};
use crate::call::{
    ErrorCode, HttpBody, HttpRequest, McpReply, ReplyBody, ToolError, ToolOutcome, UpstreamReply,
    UpstreamRequest,
};
use crate::json::{self, Object};
use crate::limits;
use crate::projection::{CallFacts, Projection, ResultBudget, ScriptCalls, unprojected};

/// What a case made, as it would stand in the case file.
#[derive(Debug)]
pub(super) struct Made {
    /// The request, where the case names one.
    pub(super) request: Option<Value>,
    /// The requests that a script's `run` made, where the case names them.
    pub(super) requests: Option<Vec<Value>>,
    /// `expect`, `text` or `error`, and its value.
    pub(super) result: Option<(&'static str, Value)>,
    /// For the operator: what went wrong inside.
    pub(super) detail: Option<String>,
    /// Bytes of the replies and of the result.
    pub(super) bytes: (usize, usize),
}

/// Runs one case. `folder` is where its files are.
pub(super) fn run(
    case: &ProjectionCase,
    tool: &str,
    projection: Option<&Projection>,
    budget: &ResultBudget,
    folder: &Path,
) -> Result<Made, String> {
    let facts = CallFacts {
        subject: Arc::from(case.caller.subject.as_str()),
        claims: Arc::new(case.caller.claims.clone()),
        now_ms: case.now_ms,
        correlation_id: Arc::from("case"),
        tool: Arc::from(tool),
        ..CallFacts::default()
    };
    let mut made = Made { request: None, requests: None, result: None, detail: None, bytes: (0, 0) };
    if case.request.is_some() {
        made.request = Some(match projection.map(|p| p.request(&case.args, &facts)) {
            Some(Ok(request)) => request_value(&request),
            Some(Err(error)) => json!({ "error": error }),
            None => request_value(&UpstreamRequest::Arguments(case.args.clone())),
        });
    }
    let shaped = match (projection, &case.reply) {
        (Some(p), _) if p.is_script() => {
            let recorded = Arc::new(Recorded::new(case, folder)?);
            let calls: Arc<dyn ScriptCalls> = Arc::<Recorded>::clone(&recorded);
            let shaped = p.run(&case.args, &facts, &calls, budget);
            made.requests = case.requests.as_ref().map(|_| recorded.made());
            shaped
        }
        (_, None) => return Ok(made),
        (Some(p), Some(reply)) => p.shape(&upstream_reply(reply, folder)?, &case.args, &facts, budget),
        (None, Some(reply)) => unprojected(&upstream_reply(reply, folder)?, &facts, budget),
    };
    made.bytes = (shaped.bytes_in, shaped.bytes_out);
    made.result = Some(outcome(shaped.outcome, case.text.is_some()));
    made.detail = shaped.detail;
    Ok(made)
}

/// A case that states the `text` of a result without a form of its own means its member.
fn outcome(outcome: ToolOutcome, is_text: bool) -> (&'static str, Value) {
    match outcome {
        ToolOutcome::Failed(error) => ("error", serde_json::to_value(error).unwrap_or_default()),
        ToolOutcome::Completed(result) => match result.structured {
            Some(structured) if is_text && result.is_plain => {
                ("text", structured.value().get("text").cloned().unwrap_or_default())
            }
            Some(structured) => ("expect", structured.value()),
            None => ("text", Value::from(result.text.unwrap_or_default())),
        },
    }
}

/// A request as a case states it.
pub(in crate::cli) fn request_value(request: &UpstreamRequest) -> Value {
    let http = match request {
        UpstreamRequest::Arguments(args) => return json!({ "arguments": args }),
        UpstreamRequest::Http(http) => http,
    };
    let pairs = |list: &[(String, String)]| -> Value {
        // A name that stands twice has a list of values.
        let mut map = Object::new();
        for (name, value) in list {
            match map.get_mut(name) {
                Some(Value::Array(values)) => values.push(Value::from(value.as_str())),
                Some(first) => *first = json!([first.clone(), value]),
                None => drop(map.insert(name.clone(), Value::from(value.as_str()))),
            }
        }
        Value::Object(map)
    };
    let mut out = Object::new();
    out.insert("method".to_owned(), Value::from(http.method.as_str()));
    out.insert("path".to_owned(), Value::from(http.path.as_str()));
    if !http.query.is_empty() {
        out.insert("query".to_owned(), pairs(&http.query));
    }
    if !http.headers.is_empty() {
        out.insert("headers".to_owned(), pairs(&http.headers));
    }
    match &http.body {
        None => {}
        Some(HttpBody::Json(value)) => drop(out.insert("body".to_owned(), value.clone())),
        Some(HttpBody::Form(form)) => drop(out.insert("form".to_owned(), pairs(form))),
        Some(HttpBody::Raw { content_type, bytes }) => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            out.insert("body".to_owned(), json!({ "content_type": content_type, "text": text }));
        }
        Some(HttpBody::Multipart(parts)) => {
            let names: Vec<&str> = parts.iter().map(|p| p.name.as_str()).collect();
            out.insert("multipart".to_owned(), json!(names));
        }
    }
    Value::Object(out)
}

/// A recorded reply as an adapter would hand it over.
pub(in crate::cli) fn upstream_reply(reply: &Reply, folder: &Path) -> Result<UpstreamReply, String> {
    let headers: Vec<(String, String)> =
        reply.headers.iter().map(|(n, v)| (n.to_ascii_lowercase(), v.clone())).collect();
    let told = headers.iter().find(|(n, _)| n == "content-type").map(|(_, v)| v.as_str());
    let media = |default: &str| {
        let text = told.unwrap_or(default);
        text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    };
    let bytes = |default: &str, bytes: Vec<u8>| ReplyBody::Bytes {
        media_type: media(default),
        bytes: Bytes::from(bytes),
    };
    let body = match (&reply.body, &reply.text, &reply.body_file, &reply.mcp) {
        (None, None, None, None) => ReplyBody::Empty,
        (Some(value), None, None, None) => bytes("application/json", json::to_bytes(value)),
        (None, Some(text), None, None) => bytes("text/plain", text.clone().into_bytes()),
        (None, None, Some(file), None) => {
            let read = json::read_capped(&folder.join(file), limits::UPSTREAM_READ_BYTES)
                .map_err(|e| format!("`body_file` {file} cannot be read: {e}"))?;
            let default = match Path::new(file).extension().and_then(|e| e.to_str()) {
                Some("json") => "application/json",
                Some("html") => "text/html",
                Some("xml") => "application/xml",
                _ => "text/plain",
            };
            bytes(default, read)
        }
        (None, None, None, Some(result)) => ReplyBody::Mcp(mcp_reply(result)?),
        _ => return Err("a reply has one of `body`, `text`, `body_file` and `mcp`".to_owned()),
    };
    Ok(UpstreamReply { status: reply.status, headers, body, warnings: Vec::new() })
}

fn mcp_reply(result: &Value) -> Result<McpReply, String> {
    let raw = |value: &Value| serde_json::value::to_raw_value(value).map_err(|e| e.to_string());
    let content = result.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(McpReply {
        content: content.iter().map(raw).collect::<Result<_, _>>()?,
        structured: result.get("structuredContent").map(raw).transpose()?,
        is_error: result.get("isError").and_then(Value::as_bool).unwrap_or(false),
        meta: result.get("_meta").map(raw).transpose()?,
        // A program's run; nobody keeps its files here.
        artifacts: result.get("artifacts").map(|_files| Vec::new()),
    })
}

/// The recorded answers that a script gets.
struct Recorded {
    replies: Mutex<VecDeque<UpstreamReply>>,
    calls: Mutex<BTreeMap<String, VecDeque<Value>>>,
    /// What was asked, as a case would state it.
    asked: Mutex<Vec<Value>>,
}

impl Recorded {
    fn new(case: &ProjectionCase, folder: &Path) -> Result<Self, String> {
        let all = case.reply.iter().chain(&case.replies);
        let replies = all.map(|r| upstream_reply(r, folder)).collect::<Result<_, _>>()?;
        let calls =
            case.calls.iter().map(|(id, results)| (id.clone(), results.iter().cloned().collect())).collect();
        Ok(Self { replies: Mutex::new(replies), calls: Mutex::new(calls), asked: Mutex::default() })
    }

    fn made(&self) -> Vec<Value> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn not_recorded(what: &str) -> ToolError {
    ToolError::new(ErrorCode::UpstreamUnavailable, format!("the case has no further answer for {what}"))
}

impl ScriptCalls for Recorded {
    fn fetch(&self, request: HttpRequest) -> Result<UpstreamReply, ToolError> {
        let next = self.replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let unknown = next.ok_or_else(|| not_recorded(&format!("{} {}", request.method, request.path)));
        let asked = request_value(&UpstreamRequest::Http(request));
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        unknown
    }

    fn call(&self, tool: &str, _arguments: Object) -> Result<Value, ToolError> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get_mut(tool).and_then(VecDeque::pop_front).ok_or_else(|| not_recorded(tool))
    }

    fn progress(&self, _progress: f64, _total: Option<f64>, _message: Option<&str>) {}
}
