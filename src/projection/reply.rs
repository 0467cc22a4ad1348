//! A reply as shaping sees it: its JSON text, its plain text, and what its status says went wrong.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::scan;
use super::scrub::scrub;
use crate::call::{ErrorCode, McpReply, ReplyBody, ToolError, UpstreamReply};
use crate::json;

/// Bytes of an upstream's own error message that a caller is told: enough for a sentence, too little for a
/// stack trace.
const MESSAGE_BYTES: usize = 600;
/// Where services put their message, in order of preference (RFC 9457 `detail` and `title` among them).
const MESSAGE_KEYS: [&str; 7] =
    ["message", "detail", "error_description", "errorMessage", "error", "title", "reason"];

/// The JSON of a reply as text; a body of bytes is not checked yet. `Err` says why there is none.
pub(super) fn json_text(reply: &UpstreamReply) -> Result<Cow<'_, str>, String> {
    match &reply.body {
        ReplyBody::Bytes { bytes, .. } if bytes.iter().all(u8::is_ascii_whitespace) => {
            Err("the upstream's answer is empty".to_owned())
        }
        ReplyBody::Bytes { bytes, media_type } => json::utf8(bytes)
            .map(Cow::Borrowed)
            .map_err(|e| format!("the upstream's answer ({media_type}) is not UTF-8: {e}")),
        ReplyBody::Value(value) => Ok(Cow::Owned(json::to_text(value))),
        ReplyBody::Empty => Err("the upstream's answer is empty".to_owned()),
        ReplyBody::Mcp(mcp) => mcp_json(mcp),
    }
}

/// The structured half of an MCP answer, else its only text block where that is JSON.
fn mcp_json(mcp: &McpReply) -> Result<Cow<'_, str>, String> {
    if let Some(structured) = &mcp.structured {
        return Ok(Cow::Borrowed(structured.get()));
    }
    let text = mcp_text(mcp);
    scan::checked(text.as_bytes())
        .map_err(|e| format!("the upstream's answer has no structured half and its text is not JSON: {e}"))?;
    Ok(Cow::Owned(text))
}

/// All text blocks of an MCP answer, one after the other.
pub(super) fn mcp_text(mcp: &McpReply) -> String {
    let mut out = String::new();
    for block in &mcp.content {
        let Ok(block) = serde_json::from_str::<Value>(block.get()) else { continue };
        if block.get("type").and_then(Value::as_str) == Some("text") {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(block.get("text").and_then(Value::as_str).unwrap_or_default());
        }
    }
    out
}

/// The plain text of a reply: text bodies as they are (invalid UTF-8 replaced), JSON as its text.
pub(super) fn plain_text(reply: &UpstreamReply) -> Cow<'_, str> {
    match &reply.body {
        ReplyBody::Empty => Cow::Borrowed(""),
        ReplyBody::Bytes { bytes, .. } => String::from_utf8_lossy(bytes),
        ReplyBody::Value(Value::String(text)) => Cow::Borrowed(text),
        ReplyBody::Value(value) => Cow::Owned(json::to_text(value)),
        ReplyBody::Mcp(mcp) => Cow::Owned(mcp_text(mcp)),
    }
}

/// Bytes of a reply's body.
pub(super) fn size(reply: &UpstreamReply) -> usize {
    match &reply.body {
        ReplyBody::Empty => 0,
        ReplyBody::Bytes { bytes, .. } => bytes.len(),
        ReplyBody::Value(value) => json::encoded_len(value),
        ReplyBody::Mcp(mcp) => {
            mcp.content.iter().map(|b| b.get().len()).sum::<usize>()
                + mcp.structured.as_ref().map_or(0, |s| s.get().len())
        }
    }
}

/// Whether a media type is JSON: `application/json` or `…+json`.
pub(super) fn is_json(media_type: &str) -> bool {
    media_type == "application/json" || media_type == "text/json" || media_type.ends_with("+json")
}

/// Whether bytes of this type can be shown as text.
pub(super) fn is_text(media_type: &str, bytes: &[u8]) -> bool {
    media_type.starts_with("text/")
        || matches!(
            media_type,
            "application/xml"
                | "application/yaml"
                | "application/javascript"
                | "application/x-www-form-urlencoded"
        )
        || media_type.ends_with("+xml")
        || (matches!(media_type, "" | "application/octet-stream")
            && std::str::from_utf8(bytes).is_ok_and(|t| !t.contains('\0')))
}

/// The failure that a status tells, `None` for 2xx and 3xx. `read_only` decides whether a lost answer may be
/// asked for again.
pub(super) fn failure(reply: &UpstreamReply, read_only: bool) -> Option<ToolError> {
    let status = reply.status;
    if status < 400 {
        return None;
    }
    let (code, retry) = match status {
        400 | 413 | 415 | 422 => (ErrorCode::InvalidArgument, false),
        401 | 407 => (ErrorCode::AuthenticationFailed, false),
        403 => (ErrorCode::Forbidden, false),
        404 | 410 => (ErrorCode::NotFound, false),
        405 | 501 => (ErrorCode::UnsupportedCapability, false),
        409 | 412 | 423 => (ErrorCode::Conflict, false),
        429 => (ErrorCode::RateLimited, true),
        503 => (ErrorCode::UpstreamUnavailable, true),
        // A gateway on the way lost the answer: a write may have been done.
        408 | 502 | 504 if !read_only => (ErrorCode::UnknownOutcome, false),
        408 | 504 => (ErrorCode::Timeout, true),
        502 => (ErrorCode::UpstreamUnavailable, true),
        500.. => (ErrorCode::InternalError, read_only),
        _ => (ErrorCode::UpstreamRejected, false),
    };
    let said = message(reply);
    let text = if said.is_empty() {
        format!("the upstream answered {status}")
    } else {
        format!("the upstream answered {status}: {said}")
    };
    let mut error = ToolError::new(code, text).details(serde_json::json!({"http_status": status}));
    error.retryable = retry;
    if retry {
        error.retry_after_seconds = retry_after(reply);
    }
    Some(error)
}

/// `Retry-After` in seconds; the date form is left alone (it needs a clock).
fn retry_after(reply: &UpstreamReply) -> Option<u64> {
    let (_, value) = reply.headers.iter().find(|(name, _)| name == "retry-after")?;
    value.trim().parse().ok()
}

/// The upstream's own words, made safe: one field of a JSON answer or a short plain text; never HTML, never
/// more lines than one would read, secrets scrubbed over more than is kept.
pub(super) fn message(reply: &UpstreamReply) -> String {
    let text = match &reply.body {
        ReplyBody::Bytes { media_type, .. } if media_type.contains("html") => return String::new(),
        ReplyBody::Bytes { media_type, bytes } if !is_text(media_type, bytes) && !is_json(media_type) => {
            return String::new();
        }
        _ => plain_text(reply),
    };
    let trimmed = text.trim_start();
    if trimmed.starts_with('<') {
        return String::new();
    }
    let said = match serde_json::from_str::<Value>(json_window(trimmed)) {
        Ok(value) => json_message(&value).unwrap_or_default(),
        Err(_) if trimmed.starts_with('{') || trimmed.starts_with('[') => String::new(),
        Err(_) => json::cut(trimmed, MESSAGE_BYTES * 4).to_owned(),
    };
    let lines = said.lines().map(str::trim).filter(|l| !l.is_empty() && !is_stack_frame(l));
    let joined = lines.take(8).collect::<Vec<_>>().join(" · ");
    let joined = scrub(&joined);
    let cut = json::cut(&joined, MESSAGE_BYTES);
    if cut.len() < joined.len() { format!("{cut}{}", scan::ELLIPSIS) } else { joined.into_owned() }
}

/// Error bodies are small; a larger one is no message.
fn json_window(text: &str) -> &str {
    if text.len() > 64 * 1024 { "" } else { text }
}

fn json_message(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(map) => MESSAGE_KEYS.iter().find_map(|key| match map.get(*key)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            nested @ Value::Object(_) => json_message(nested),
            _ => None,
        }),
        Value::Array(items) => items.first().and_then(json_message),
        _ => None,
    }
}

/// Lines that are frames of a stack trace in the common languages.
fn is_stack_frame(line: &str) -> bool {
    line.starts_with("at ") || line.starts_with("File \"") || line.starts_with("Traceback (")
}

/// Base64 for content blocks.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn reply(status: u16, media_type: &str, body: &str) -> UpstreamReply {
        UpstreamReply {
            status,
            headers: vec![("retry-after".to_owned(), "7".to_owned())],
            body: ReplyBody::Bytes { media_type: media_type.to_owned(), bytes: Bytes::from(body.to_owned()) },
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_status_tells_what_went_wrong_and_whether_to_retry() {
        let json = "application/json";
        assert!(failure(&reply(204, json, ""), true).is_none());
        let limited = failure(&reply(429, json, r#"{"message":"slow down"}"#), false).unwrap();
        assert_eq!(
            (limited.code, limited.retryable, limited.retry_after_seconds),
            (ErrorCode::RateLimited, true, Some(7))
        );
        assert_eq!(limited.message, "the upstream answered 429: slow down");
        let read = failure(&reply(504, json, ""), true).unwrap();
        let write = failure(&reply(504, json, ""), false).unwrap();
        assert_eq!((read.code, read.retryable), (ErrorCode::Timeout, true));
        assert_eq!((write.code, write.retryable), (ErrorCode::UnknownOutcome, false));
        assert!(!failure(&reply(500, json, ""), false).unwrap().retryable);
    }

    #[test]
    fn upstream_words_are_made_safe() {
        assert_eq!(message(&reply(500, "text/html", "<h1>boom</h1>")), "");
        assert_eq!(message(&reply(500, "text/plain", "  <!doctype html>")), "");
        assert_eq!(
            message(&reply(400, "application/problem+json", r#"{"title":"Bad","traceId":"x"}"#)),
            "Bad"
        );
        assert_eq!(message(&reply(400, "application/json", r#"{"error":{"message":"inner"}}"#)), "inner");
        assert_eq!(
            message(&reply(500, "text/plain", "Boom happened\n   at A.B() in C:line 3\n   at D.E()\n")),
            "Boom happened"
        );
        let long = message(&reply(400, "text/plain", &"ä".repeat(2_000)));
        assert!(long.len() <= MESSAGE_BYTES + 3 && long.ends_with('…'));
        assert!(
            !message(&reply(400, "text/plain", "bad key ghp_abcdefghijklmnopqrstuvwxyz0123456789"))
                .contains("ghp_")
        );
    }
}
