//! Answers as JSON-RPC bytes, in the shape of each revision. Written straight into one buffer: a page of
//! 200 tools is a copy of prepared slices.

use std::sync::Arc;

use bytes::Bytes;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::envelope::RequestId;
use super::error::RpcError;
use super::extensions::{Canonical, canonical};
use super::revision::Revision;
use crate::call::{ToolError, ToolOutcome, ToolResult};
use crate::json::{self, JsonText, Object};

/// The member of `_meta` of every result of the stateless wire that says whose it is.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// docent as it names itself: in some answers, so it is written only there.
#[derive(Debug, Serialize)]
pub(super) struct ServerInfo {
    /// The name of the settings.
    pub(super) name: Arc<str>,
    /// Its version.
    pub(super) version: &'static str,
}

/// `_meta` of a result.
struct Meta<'a> {
    members: Option<&'a Object>,
    server: Option<&'a ServerInfo>,
}

impl Serialize for Meta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let own = |name: &str| self.server.is_some() && name == SERVER_INFO;
        for (name, value) in self.members.into_iter().flatten().filter(|(name, _)| !own(name)) {
            map.serialize_entry(name, value)?;
        }
        if let Some(server) = self.server {
            map.serialize_entry(SERVER_INFO, server)?;
        }
        map.end()
    }
}

/// A response under construction: `{"jsonrpc":"2.0","id":…,"result":{…}}`.
#[derive(Debug)]
pub(super) struct ResultWriter {
    buffer: Vec<u8>,
    empty: bool,
}

impl ResultWriter {
    /// Starts the result of a request; `capacity` is a guess at its bytes.
    pub(super) fn new(id: &RequestId, capacity: usize) -> Self {
        let mut buffer = Vec::with_capacity(capacity + 256 + id.as_str().len());
        buffer.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        buffer.extend_from_slice(id.as_str().as_bytes());
        buffer.extend_from_slice(br#","result":{"#);
        Self { buffer, empty: true }
    }

    /// Begins a member; its JSON is to be written next. Names are our own and need no escaping.
    pub(super) fn member(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.empty {
            self.buffer.push(b',');
        }
        self.empty = false;
        self.buffer.push(b'"');
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.extend_from_slice(b"\":");
        &mut self.buffer
    }

    /// Writes a member by its value.
    pub(super) fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        write_json(self.member(name), value);
    }

    /// Writes where a list goes on, if it does.
    pub(super) fn put_next(&mut self, cursor: Option<&str>) {
        if let Some(cursor) = cursor {
            self.put("nextCursor", cursor);
        }
    }

    /// Starts an object that stands alone or inside of another one.
    pub(super) fn bare() -> Self {
        Self { buffer: b"{".to_vec(), empty: true }
    }

    /// Ends a bare object.
    pub(super) fn object(mut self) -> Vec<u8> {
        self.buffer.push(b'}');
        self.buffer
    }

    /// Ends the response. On the stateless wire every result has its type and the server's name.
    pub(super) fn finish(self, revision: Revision, meta: Option<&Value>, server: &ServerInfo) -> Bytes {
        self.finish_as("complete", revision, meta, server)
    }

    /// The same with a result type of its own.
    pub(super) fn finish_as(
        mut self,
        result_type: &str,
        revision: Revision,
        meta: Option<&Value>,
        server: &ServerInfo,
    ) -> Bytes {
        let meta = meta.and_then(Value::as_object);
        let server = revision.is_stateless().then_some(server);
        if server.is_some() {
            self.put("resultType", result_type);
        }
        if meta.is_some() || server.is_some() {
            self.put("_meta", &Meta { members: meta, server });
        }
        self.buffer.extend_from_slice(b"}}");
        Bytes::from(self.buffer)
    }
}

/// Appends compact JSON.
pub(super) fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        // Writing to memory cannot fail and our own types serialise; a half-written member would spoil all.
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// An error response; without an id where none could be read.
pub(super) fn error_response(id: Option<&RequestId>, error: &RpcError) -> Bytes {
    let mut out = br#"{"jsonrpc":"2.0","#.to_vec();
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        out.extend_from_slice(id.as_str().as_bytes());
        out.push(b',');
    }
    out.extend_from_slice(b"\"error\":");
    write_json(&mut out, error);
    out.push(b'}');
    Bytes::from(out)
}

/// A message on one line, as event streams and pipes need it. Line breaks of JSON can only stand between its
/// tokens (upstreams' own blocks may bring some), so blanks say the same.
pub fn single_line(message: Bytes) -> Bytes {
    let breaks = |b: &u8| matches!(b, b'\n' | b'\r');
    if !message.iter().any(breaks) {
        return message;
    }
    message.iter().map(|b| if breaks(b) { b' ' } else { *b }).collect()
}

/// Several messages as one array: the answer to a batch.
pub(super) fn array(messages: &[Bytes]) -> Bytes {
    let mut out = Vec::with_capacity(messages.iter().map(|m| m.len() + 1).sum::<usize>() + 1);
    out.push(b'[');
    for (i, message) in messages.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(message);
    }
    out.push(b']');
    Bytes::from(out)
}

/// A notification. Its parameters are an object, never null: some clients drop the latter.
pub(super) fn notification(method: &str, params: &Value) -> Bytes {
    Bytes::from(json::to_bytes(&json!({ "jsonrpc": "2.0", "method": method, "params": params })))
}

/// How a client takes results.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// The revision that it speaks.
    pub(super) revision: Revision,
    /// Whether it negotiated results with one canonical half: data in `structuredContent`, a pointer as text.
    pub(super) is_canonical: bool,
}

/// The result of a call. `tool` is the name as the caller wrote it, for the envelope of a failure that
/// [`crate::gateway::Gateway::told`] has not put into that of a tool.
pub(super) fn tool_outcome(
    writer: &mut ResultWriter,
    Form { revision, is_canonical }: Form,
    tool: &str,
    correlation_id: &str,
    outcome: ToolOutcome,
) -> Option<Value> {
    let result = match outcome {
        ToolOutcome::Completed(result) => result,
        ToolOutcome::Failed(error) => failure(tool, correlation_id, &error),
    };
    let Canonical { result, pointer } =
        if is_canonical { canonical(result) } else { Canonical::none(result) };
    let content = writer.member("content");
    content.push(b'[');
    let mut first = true;
    let text = pointer.or(result.structured.as_ref().map(JsonText::as_str)).or(result.text.as_deref());
    if let Some(text) = text {
        content.extend_from_slice(br#"{"type":"text","text":"#);
        write_json(content, text);
        content.push(b'}');
        first = false;
    }
    for block in &result.blocks {
        if !std::mem::take(&mut first) {
            content.push(b',');
        }
        write_block(content, revision, block);
    }
    content.push(b']');
    if let Some(structured) = &result.structured
        && (revision.is_stateless() || (revision.is_structured() && structured.as_str().starts_with('{')))
    {
        writer.member("structuredContent").extend_from_slice(structured.as_str().as_bytes());
    }
    writer.put("isError", &result.is_error);
    result.meta
}

/// The `CallToolResult` of an outcome in the newest session revision, for callers that are on no wire (the
/// command line).
pub fn call_tool_result(tool: &str, correlation_id: &str, outcome: ToolOutcome) -> Value {
    let form = Form { revision: Revision::NEWEST_SESSION, is_canonical: false };
    let mut writer = ResultWriter::bare();
    if let Some(meta) = tool_outcome(&mut writer, form, tool, correlation_id, outcome) {
        writer.put("_meta", &meta);
    }
    serde_json::from_str(&String::from_utf8_lossy(&writer.object())).unwrap_or_default()
}

/// The envelope of a failure (seed 001), for models as text and for programs as data.
fn failure(tool: &str, correlation_id: &str, error: &ToolError) -> ToolResult {
    let envelope = error.envelope(tool, correlation_id);
    ToolResult { structured: Some((&envelope).into()), is_error: true, ..ToolResult::default() }
}

/// A content block. 2025-03-26 does not know resource links and would refuse the whole result: there it
/// becomes a text that says the same.
fn write_block(out: &mut Vec<u8>, revision: Revision, block: &RawValue) {
    if !revision.is_structured()
        && let Ok(Value::Object(link)) = serde_json::from_str::<Value>(block.get())
        && link.get("type").and_then(Value::as_str) == Some("resource_link")
    {
        let part = |key| link.get(key).and_then(Value::as_str).unwrap_or_default();
        write_json(out, &json!({ "type": "text", "text": format!("{}: {}", part("name"), part("uri")) }));
        return;
    }
    out.extend_from_slice(block.get().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::ErrorCode;
    use crate::mcp::envelope::{Incoming, Message, decode};

    fn id(text: &str) -> RequestId {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{text},"method":"x"}}"#);
        match decode(body.as_bytes(), 1_000) {
            Ok(Incoming::One(Message::Request { id, .. })) => id,
            other => panic!("{other:?}"),
        }
    }

    fn shape(revision: Revision, outcome: ToolOutcome) -> Value {
        let mut writer = ResultWriter::new(&id("\"a\""), 100);
        let form = Form { revision, is_canonical: false };
        let meta = tool_outcome(&mut writer, form, "git_log", "c-1", outcome);
        let bytes =
            writer.finish(revision, meta.as_ref(), &ServerInfo { name: "docent".into(), version: "1" });
        json::parse(&bytes, 10_000).unwrap()
    }

    fn structured(value: &Value) -> ToolOutcome {
        ToolOutcome::Completed(ToolResult { structured: Some(value.into()), ..ToolResult::default() })
    }

    #[test]
    fn a_structured_result_takes_the_shape_of_the_revision() {
        let value = json!({"n": 1});
        let session = json!({"content": [{"type": "text", "text": "{\"n\":1}"}], "structuredContent": {"n": 1}, "isError": false});
        for revision in [Revision::V2025_06_18, Revision::V2025_11_25] {
            assert_eq!(shape(revision, structured(&value))["result"], session);
        }
        let oldest = shape(Revision::V2025_03_26, structured(&value));
        assert_eq!(oldest["result"].as_object().unwrap().keys().collect::<Vec<_>>(), ["content", "isError"]);
        let stateless = shape(Revision::V2026_07_28, structured(&value));
        assert_eq!(stateless["result"]["resultType"], "complete");
        assert_eq!(stateless["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "docent");
        assert_eq!(stateless["id"], "a");
    }

    #[test]
    fn only_the_stateless_wire_takes_structured_values_that_are_no_objects() {
        let list = json!([1, 2]);
        assert!(shape(Revision::V2025_11_25, structured(&list))["result"].get("structuredContent").is_none());
        assert_eq!(shape(Revision::V2026_07_28, structured(&list))["result"]["structuredContent"], list);
    }

    #[test]
    fn a_failure_is_an_envelope_in_both_halves() {
        let error = ToolError::new(ErrorCode::RateLimited, "Too many calls.").retry_after(3);
        let result = shape(Revision::V2025_11_25, ToolOutcome::Failed(error));
        let envelope = &result["result"]["structuredContent"];
        assert_eq!(result["result"]["isError"], true);
        assert_eq!((&envelope["ok"], &envelope["error"]["code"]), (&json!(false), &json!("RATE_LIMITED")));
        let text = result["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, json::to_text(envelope), "the text half is the structured half, byte for byte");
    }

    #[test]
    fn a_resource_link_is_a_text_for_those_who_do_not_know_it() {
        let block =
            RawValue::from_string(r#"{"type":"resource_link","uri":"a://b","name":"log"}"#.to_owned())
                .unwrap();
        let outcome =
            || ToolOutcome::Completed(ToolResult { blocks: vec![block.clone()], ..ToolResult::default() });
        assert_eq!(shape(Revision::V2025_03_26, outcome())["result"]["content"][0]["text"], "log: a://b");
        assert_eq!(shape(Revision::V2025_06_18, outcome())["result"]["content"][0]["type"], "resource_link");
    }

    #[test]
    fn a_message_fits_on_one_line() {
        let pretty = Bytes::from_static(b"{\n  \"a\": \"x\\n\"\r\n}");
        assert_eq!(&single_line(pretty)[..], b"{   \"a\": \"x\\n\"  }");
    }

    #[test]
    fn an_error_without_a_readable_id_has_none() {
        let error = RpcError::parse("x");
        assert!(json::parse(&error_response(None, &error), 1_000).unwrap().get("id").is_none());
        assert_eq!(json::parse(&error_response(Some(&id("7")), &error), 1_000).unwrap()["id"], 7);
    }
}
