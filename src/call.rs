//! The nouns of one exchange: what a caller asks, what an upstream is asked and answers, what came of it.
//!
//! No wire shapes here: only `mcp` knows how an outcome looks on the wire.

pub mod tokens;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::{JsonText, Object};
use crate::secret::{self, Secret};

/// The closed set of error codes: thirteen of seed 001, and those that gates and discovery need besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// The arguments break the tool's schema or rules.
    InvalidArgument,
    /// The upstream refused docent's own credentials.
    AuthenticationFailed,
    /// The caller or the upstream user may not do this.
    Forbidden,
    /// The thing asked for does not exist (or is hidden, which is the same answer).
    NotFound,
    /// The state upstream does not allow it now.
    Conflict,
    /// Too many calls; `retry_after_seconds` tells when.
    RateLimited,
    /// The upstream cannot be reached, or is not there at all.
    UpstreamUnavailable,
    /// The upstream did not answer in time, and nothing was changed.
    Timeout,
    /// The upstream answered something that does not fit its contract.
    UpstreamSchemaMismatch,
    /// The upstream (or this version of it) has no such function.
    UnsupportedCapability,
    /// The upstream understood the call and refused it by a rule of its own.
    UpstreamRejected,
    /// A part was done and a part was not.
    PartialFailure,
    /// A write was sent and its outcome is not known: never retry blindly.
    UnknownOutcome,
    /// A fault inside docent.
    InternalError,
    /// The caller's tier does not reach the tool.
    TierNotPermitted,
    /// A person has to confirm first.
    ConfirmationRequired,
    /// The same request key came with other arguments.
    ReplayKeyCollision,
    /// Not even one row fits the token budget; the message names one that works.
    BudgetTooSmall,
    /// The cursor is not valid (any more): start again without it.
    StaleCursor,
}

impl ErrorCode {
    /// The code as it stands in results, e.g. `INVALID_ARGUMENT`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::AuthenticationFailed => "AUTHENTICATION_FAILED",
            Self::Forbidden => "FORBIDDEN",
            Self::NotFound => "NOT_FOUND",
            Self::Conflict => "CONFLICT",
            Self::RateLimited => "RATE_LIMITED",
            Self::UpstreamUnavailable => "UPSTREAM_UNAVAILABLE",
            Self::Timeout => "TIMEOUT",
            Self::UpstreamSchemaMismatch => "UPSTREAM_SCHEMA_MISMATCH",
            Self::UnsupportedCapability => "UNSUPPORTED_CAPABILITY",
            Self::UpstreamRejected => "UPSTREAM_REJECTED",
            Self::PartialFailure => "PARTIAL_FAILURE",
            Self::UnknownOutcome => "UNKNOWN_OUTCOME",
            Self::InternalError => "INTERNAL_ERROR",
            Self::TierNotPermitted => "TIER_NOT_PERMITTED",
            Self::ConfirmationRequired => "CONFIRMATION_REQUIRED",
            Self::ReplayKeyCollision => "REPLAY_KEY_COLLISION",
            Self::BudgetTooSmall => "BUDGET_TOO_SMALL",
            Self::StaleCursor => "STALE_CURSOR",
        }
    }

    /// All codes, for tables and for scripts that name one.
    pub const ALL: [Self; 19] = [
        Self::InvalidArgument,
        Self::AuthenticationFailed,
        Self::Forbidden,
        Self::NotFound,
        Self::Conflict,
        Self::RateLimited,
        Self::UpstreamUnavailable,
        Self::Timeout,
        Self::UpstreamSchemaMismatch,
        Self::UnsupportedCapability,
        Self::UpstreamRejected,
        Self::PartialFailure,
        Self::UnknownOutcome,
        Self::InternalError,
        Self::TierNotPermitted,
        Self::ConfirmationRequired,
        Self::ReplayKeyCollision,
        Self::BudgetTooSmall,
        Self::StaleCursor,
    ];

    /// The code of a text such as `NOT_FOUND`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.as_str() == text)
    }
}

/// A failed call, for people and for models: a code, a message that says what to do, whether to retry.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("{code_text}: {message}", code_text = code.as_str())]
pub struct ToolError {
    /// The closed code.
    pub code: ErrorCode,
    /// One or two sentences, safe to show: no secrets, no stack traces, no rejected values.
    pub message: String,
    /// Whether the same call may be sent again and could succeed.
    pub retryable: bool,
    /// The argument that is wrong, as a JSON Pointer such as `/limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// When to retry, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// Anything further that helps, e.g. required scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Value>>,
}

impl ToolError {
    /// An error that is not to be retried.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retryable: false,
            field: None,
            retry_after_seconds: None,
            details: None,
        }
    }

    /// The envelope of seed 001 around it, for tools that have none of their own: `operation` is the tool's name.
    pub fn envelope(&self, operation: &str, correlation_id: &str) -> Value {
        serde_json::json!({
            "ok": false,
            "operation": operation,
            "error": self,
            "warnings": [],
            "truncated": false,
            "correlation_id": correlation_id,
        })
    }

    /// Marks it as safe to retry.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Names the wrong argument by JSON Pointer.
    #[must_use]
    pub fn field(mut self, pointer: impl Into<String>) -> Self {
        self.field = Some(pointer.into());
        self
    }

    /// Adds details.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Says when to retry.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        (self.retry_after_seconds, self.retryable) = (Some(seconds), true);
        self
    }
}

/// One call as a caller asks it, after the wire and before anything was decided.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The id or the wire name, as the caller wrote it.
    pub tool: String,
    /// The arguments.
    pub arguments: Object,
    /// How long to wait before the call becomes a job.
    pub wait: Duration,
    /// The caller's own key for a replay.
    pub request_key: Option<String>,
    /// The members of the result that the caller asks for; all where none is named.
    pub fields: Vec<String>,
}

/// What a client can be asked for while a call of it runs (MCP: requests of the server's own).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asking {
    /// An answer of the person in front of it.
    Elicitation,
    /// A message of its model.
    Sampling,
    /// The folders that it works on.
    Roots,
}

impl Asking {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Elicitation, Self::Sampling, Self::Roots];

    /// The method.
    pub fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// The capability that a client declares for it.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }
}

/// One thing that a client is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientRequest {
    /// Under which key the answer is expected.
    pub key: String,
    /// What for.
    pub asking: Asking,
    /// The parameters of the method.
    pub params: Object,
}

/// What docent asks an upstream for one call.
#[derive(Debug, Clone)]
pub enum UpstreamRequest {
    /// The tool's arguments, for the adapter's own binding to shape (OpenAPI, MCP, command).
    Arguments(Object),
    /// An HTTP request that a template or a script shaped, below the upstream's `base_url`.
    Http(HttpRequest),
}

/// An HTTP request below an upstream's `base_url`. Host and scheme are never part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// Begins with `/`; every segment is already percent-encoded, no segment is `.` or `..`.
    pub path: String,
    /// Decoded pairs in order; encoded when sent.
    pub query: Vec<(String, String)>,
    /// Headers besides those of the upstream itself; `authorization` and `host` are refused.
    pub headers: Vec<(String, String)>,
    /// The body, if any.
    pub body: Option<HttpBody>,
}

/// A request body.
#[derive(Debug, Clone, PartialEq)]
pub enum HttpBody {
    /// Sent as `application/json` unless a content type header says otherwise.
    Json(Value),
    /// Sent as `application/x-www-form-urlencoded`.
    Form(Vec<(String, String)>),
    /// Sent as `multipart/form-data`.
    Multipart(Vec<Part>),
    /// Sent as they are.
    Raw {
        /// The content type.
        content_type: String,
        /// The bytes.
        bytes: Bytes,
    },
}

/// One part of a multipart body.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The field's name.
    pub name: String,
    /// The file name, for files.
    pub file_name: Option<String>,
    /// The part's own content type.
    pub content_type: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

/// What an upstream answered, read within its budget.
#[derive(Debug, Clone)]
pub struct UpstreamReply {
    /// The HTTP status; 200 for kinds without one, 500 for an MCP `isError`, the exit code's stand-in for commands.
    pub status: u16,
    /// Allow-listed headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// What came.
    pub body: ReplyBody,
    /// Things worth telling the caller: cut output, ignored parts.
    pub warnings: Vec<String>,
}

/// The body of a reply.
#[derive(Debug, Clone)]
pub enum ReplyBody {
    /// Nothing.
    Empty,
    /// Bytes with their media type (without parameters, lower case), e.g. an HTTP body or a command's output.
    Bytes {
        /// `application/json`, `text/plain`, …
        media_type: String,
        /// The bytes.
        bytes: Bytes,
    },
    /// The answer of an MCP server, its blocks kept as they came so that nothing unknown is lost.
    Mcp(McpReply),
    /// A value made inside docent (scripts).
    Value(Value),
}

impl UpstreamReply {
    /// The same without the upstream's own credentials, should it have echoed them: whoever may call a tool
    /// may not have its key.
    #[must_use]
    pub fn without(mut self, secrets: &[Secret]) -> Self {
        if secrets.is_empty() {
            return self;
        }
        let clean = |text: &mut String| {
            if let Some(clean) = secret::remove(text, secrets) {
                *text = clean;
            }
        };
        self.headers.iter_mut().for_each(|(_, value)| clean(value));
        self.warnings.iter_mut().for_each(clean);
        match &mut self.body {
            ReplyBody::Bytes { bytes, .. } => {
                let text = std::str::from_utf8(bytes).ok();
                if let Some(clean) = text.and_then(|t| secret::remove(t, secrets)) {
                    *bytes = clean.into();
                }
            }
            ReplyBody::Mcp(reply) => {
                let raws = reply.content.iter_mut().chain(&mut reply.structured).chain(&mut reply.meta);
                raws.for_each(|raw| remove_raw(raw, secrets));
            }
            // Nothing came, or docent made it itself.
            ReplyBody::Empty | ReplyBody::Value(_) => {}
        }
        self
    }
}

/// Takes secrets out of raw JSON. One that is all digits may stand outside a string: then nothing is kept.
fn remove_raw(raw: &mut Box<RawValue>, secrets: &[Secret]) {
    if let Some(clean) = secret::remove(raw.get(), secrets) {
        *raw = RawValue::from_string(clean).unwrap_or_else(|_| RawValue::NULL.to_owned());
    }
}

/// A `CallToolResult` of an upstream MCP server, or what came of a run that brought files.
#[derive(Debug, Clone, Default)]
pub struct McpReply {
    /// The content blocks, each as raw JSON.
    pub content: Vec<Box<RawValue>>,
    /// The structured half, as raw JSON.
    pub structured: Option<Box<RawValue>>,
    /// The upstream's own verdict.
    pub is_error: bool,
    /// `_meta` of the result.
    pub meta: Option<Box<RawValue>>,
    /// The files that were kept of a program's run or of a body of bytes; `None` for an answer of an MCP server,
    /// whose form is its own.
    pub artifacts: Option<Vec<Artifact>>,
}

/// A file that a call brought, kept for its caller (seed 000).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Artifact {
    /// Its id: the end of `docent://files/…`, and what `{"$file": id}` takes.
    pub id: String,
    /// Its name, made safe.
    pub name: String,
    /// Its media type.
    pub mime: String,
    /// Its bytes.
    pub size: u64,
    /// Where it is read over HTTP: below the server's public address where that is known, else a path.
    pub url: String,
}

/// The text of a content block of the type `text`; `None` for every other block. Borrowed from the block where
/// no escape stands in it: texts are most of what upstreams answer, and this is all that is read of them.
pub fn text_of_block(block: &RawValue) -> Option<Cow<'_, str>> {
    // A type of its own: within an `Option` serde always copies a `Cow`.
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow, default)]
        text: Option<Text<'a>>,
    }
    if let Some(text) = plain_text(block.get()) {
        return Some(Cow::Borrowed(text));
    }
    match serde_json::from_str::<Block<'_>>(block.get()) {
        Ok(block) => block.text.filter(|_| block.kind == "text").map(|text| text.0),
        // A member of another type, or one that stands there twice: read as leniently as everything else.
        Err(_) => {
            let block: Value = serde_json::from_str(block.get()).ok()?;
            (block.get("type")? == "text")
                .then(|| block.get("text")?.as_str().map(str::to_owned).map(Cow::Owned))?
        }
    }
}

/// The text of a block in its most frequent form, where it needs no reading: nothing escaped, nothing behind it.
fn plain_text(block: &str) -> Option<&str> {
    let text = block.strip_prefix(r#"{"type":"text","text":""#)?.strip_suffix("\"}")?;
    memchr::memchr2(b'"', b'\\', text.as_bytes()).is_none().then_some(text)
}

/// What came of a call. Every consumer matches it whole.
#[derive(Debug, Clone)]
pub enum ToolOutcome {
    /// A result.
    Completed(ToolResult),
    /// A failure that the caller is told.
    Failed(ToolError),
}

/// A successful, bounded result.
#[derive(Debug, Clone, Default)]
pub struct ToolResult {
    /// The structured half. Its compact JSON is also the text half, byte for byte.
    pub structured: Option<JsonText>,
    /// The text half where there is no structured one (already bounded).
    pub text: Option<String>,
    /// Further content blocks as raw JSON (images, audio, resource links), already bounded.
    pub blocks: Vec<Box<RawValue>>,
    /// `_meta` members to pass through.
    pub meta: Option<Value>,
    /// Whether the result is marked as an error although it was delivered (an upstream's own `isError`).
    pub is_error: bool,
    /// Whether the structured half is the form of tools that have none of their own (seed 000: `text`, `data`,
    /// `artifacts`, …), and so its `text` is a text as it came.
    pub is_plain: bool,
}

impl ToolResult {
    /// Of the form of tools that have none of their own: the text or JSON that came, with its media type, where
    /// there is one.
    pub fn plain_body(&self) -> Option<(String, String)> {
        let value = self.structured.as_ref().filter(|_| self.is_plain)?.value();
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        match (text("text"), value.get("data")) {
            (Some(body), _) => Some((body, text("text_mime").unwrap_or_default())),
            (None, None | Some(Value::Null)) => None,
            (None, Some(data)) => Some((crate::json::to_text(data), "application/json".to_owned())),
        }
    }
}

/// One thing that was left out of an answer: what, how many, why, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Omission {
    /// What was left out, e.g. `records`, `input_schema`, `/data/0/body`.
    pub name: String,
    /// How many, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Why: `limit`, `token_budget`, `byte_budget`, `compact_projection`, …
    pub reason: String,
    /// How to get it.
    pub restore_with: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_text() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(code));
            assert_eq!(serde_json::to_value(code).unwrap(), Value::from(code.as_str()));
        }
    }

    #[test]
    fn the_text_of_a_block_is_read_leniently_and_borrowed_where_it_can_be() {
        let text = |block: &str| {
            let raw = RawValue::from_string(block.to_owned()).unwrap();
            text_of_block(&raw).map(|t| (t.to_string(), matches!(t, Cow::Borrowed(_))))
        };
        assert_eq!(text(r#"{"type":"text","text":"a b","x":1}"#), Some(("a b".to_owned(), true)));
        assert_eq!(text(r#"{"type":"text","text":"a b"}"#), Some(("a b".to_owned(), true)));
        assert_eq!(text(r#"{"type":"text","text":""}"#), Some((String::new(), true)));
        assert_eq!(text(r#"{"type":"text","text":"a\tb"}"#), Some(("a\tb".to_owned(), false)));
        assert_eq!(text(r#"{"text":"a\nb","type":"text"}"#), Some(("a\nb".to_owned(), false)));
        // The last one counts, as for every reader of JSON values: no text escapes the scrubber.
        assert_eq!(text(r#"{"type":"text","text":"a","text":"b"}"#), Some(("b".to_owned(), false)));
        for other in [
            r#"{"type":"image","text":"a"}"#,
            r#"{"type":"text"}"#,
            r#"{"text":"a"}"#,
            r#"{"type":"text","text":7}"#,
            "[]",
            "7",
        ] {
            assert_eq!(text(other), None, "{other}");
        }
    }
}
