//! JSON-RPC as an MCP client needs it: requests written as text, messages read without losing what is
//! unknown.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json;
use crate::json::walk::NotJson;
use crate::upstream::{ErrorSource, Retry, UpstreamError, text};

/// The newest revision of the session wire.
pub(super) const SESSION_VERSION: &str = "2025-11-25";
/// The revision of the stateless wire.
pub(super) const STATELESS_VERSION: &str = "2026-07-28";
/// Characters of an upstream's error message that are shown.
const MESSAGE_BYTES: usize = 1024;

/// One message of the other side, its members as they stand in it; one that is `null` is as one that is not there.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) params: Option<&'a str>,
    pub(super) result: Option<&'a str>,
    pub(super) error: Option<&'a str>,
}

/// An error that the other side answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Value,
    /// Whether it names the request that it answers. An error without an id comes from before the request was
    /// looked at.
    pub(super) addressed: bool,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Fault {
    /// The other side answered an error.
    Rpc(RpcError),
    /// There was no answer.
    Upstream(UpstreamError),
}

impl From<UpstreamError> for Fault {
    fn from(error: UpstreamError) -> Self {
        Self::Upstream(error)
    }
}

impl Fault {
    /// The error of a call, whose answer it is.
    pub(super) fn into_error(self, upstream: &str) -> UpstreamError {
        let error = match self {
            Self::Upstream(error) => return error,
            Self::Rpc(error) => error,
        };
        let source = match error.code {
            -32601 => ErrorSource::Unsupported,
            // -32002: a resource that is not there, on the session wire.
            -32602 | -32002 => ErrorSource::Caller,
            _ => ErrorSource::Upstream,
        };
        let shown = text::plain(json::cut(&error.message, MESSAGE_BYTES));
        let message = format!("upstream `{upstream}` refused the call ({}): {shown}", error.code);
        UpstreamError::new(source, Retry::Never, message)
    }
}

impl Message<'_> {
    /// The messages of a text: one, or those of a batch. A part that is not a message is left out.
    pub(super) fn all(text: &str) -> Vec<Message<'_>> {
        if text.trim_ascii_start().starts_with('[') {
            let parts: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            return parts.iter().filter_map(|p| Message::read(p.get())).collect();
        }
        Message::read(text).into_iter().collect()
    }

    /// By a walk, which is all that most messages take; what it does not take for one is read by the parser.
    fn read(text: &str) -> Option<Message<'_>> {
        Message::walked(text).or_else(|| Message::parsed(text))
    }

    /// `None` where a member repeats, or the method is no plain text.
    fn walked(text: &str) -> Option<Message<'_>> {
        let [mut id, mut method, mut params, mut result, mut error] = [None; 5];
        json::walk_members(text, |walk, name| {
            let member = match name {
                "id" => &mut id,
                "method" => &mut method,
                "params" => &mut params,
                "result" => &mut result,
                "error" => &mut error,
                _ => return walk.skip().map(drop),
            };
            member.replace(walk.skip()?).map_or(Ok(()), |_twice| Err(NotJson))
        })?;
        let [id, method, params, result, error] =
            [id, method, params, result, error].map(|member| member.filter(|value| *value != "null"));
        let method = match method {
            Some(text) => Some(Cow::Borrowed(json::unescaped(text)?)),
            None => None,
        };
        Some(Message { id, method, params, result, error })
    }

    fn parsed(text: &str) -> Option<Message<'_>> {
        #[derive(Deserialize)]
        struct Parsed<'a> {
            #[serde(borrow, default)]
            id: Option<&'a RawValue>,
            #[serde(borrow, default)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            params: Option<&'a RawValue>,
            #[serde(borrow, default)]
            result: Option<&'a RawValue>,
            #[serde(borrow, default)]
            error: Option<&'a RawValue>,
        }
        // A list would do as a struct, but it names nothing.
        let object = text.trim_ascii_start().starts_with('{').then_some(text)?;
        let Parsed { id, method, params, result, error } = serde_json::from_str(object).ok()?;
        let [id, params, result, error] = [id, params, result, error].map(|raw| raw.map(RawValue::get));
        Some(Message { id, method, params, result, error })
    }

    /// The number of the request that this answers.
    pub(super) fn answers(&self) -> Option<u64> {
        if self.method.is_some() {
            return None;
        }
        self.id?.trim_matches('"').parse().ok()
    }

    /// The result or the error of an answer.
    pub(super) fn outcome(&self) -> Result<Box<str>, RpcError> {
        if let Some(error) = self.error {
            return Err(RpcError::read(error));
        }
        Ok(self.result.unwrap_or("null").into())
    }

    /// The answer to a request of the other side: `ping` is answered, the rest is not offered.
    pub(super) fn reply(&self) -> Option<String> {
        let (id, method) = (self.id?, self.method.as_deref()?);
        Some(if method == "ping" {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        } else {
            let message = "this client offers no such method";
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"{message}"}}}}"#)
        })
    }
}

impl RpcError {
    /// Takes any shape that an error comes in.
    pub(super) fn read(raw: &str) -> Self {
        let value: Value = serde_json::from_str(raw).unwrap_or_default();
        let message = value.get("message").and_then(Value::as_str).or_else(|| value.as_str());
        Self {
            code: value.get("code").and_then(Value::as_i64).unwrap_or(-32603),
            message: message.unwrap_or("no message").to_owned(),
            data: value.get("data").cloned().unwrap_or_default(),
            addressed: true,
        }
    }
}

/// Progress of a running request.
#[derive(Debug, Deserialize)]
pub(super) struct Progress<'a> {
    #[serde(borrow, rename = "progressToken")]
    pub(super) token: &'a RawValue,
    #[serde(rename = "progress")]
    pub(super) done: f64,
    #[serde(default)]
    pub(super) total: Option<f64>,
    #[serde(borrow, default)]
    pub(super) message: Option<Cow<'a, str>>,
}

/// A request's own members; `params` is an object's inside (without braces), without `_meta`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) method: &'a str,
    pub(super) params: &'a str,
    /// `Mcp-Name` of the stateless wire.
    pub(super) name: Option<&'a str>,
    /// Whether progress is wanted.
    pub(super) progress: bool,
}

/// The members of `_meta` that every request of the stateless wire carries.
pub(super) fn stateless_meta() -> String {
    format!(
        r#""io.modelcontextprotocol/protocolVersion":"{STATELESS_VERSION}","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{{}}"#,
        client_info()
    )
}

/// docent as a client.
pub(super) fn client_info() -> String {
    concat!(r#"{"name":"docent","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#).to_owned()
}

impl Outgoing<'_> {
    /// The text of the request. `meta` are further members of `_meta`.
    pub(super) fn text(&self, id: u64, meta: Option<&str>) -> String {
        let mut out = String::with_capacity(self.params.len() + meta.map_or(0, str::len) + 160);
        out.push_str(r#"{"jsonrpc":"2.0","id":"#);
        out.push_str(&id.to_string());
        out.push_str(r#","method":""#);
        out.push_str(self.method);
        out.push_str(r#"","params":{"#);
        out.push_str(self.params);
        if meta.is_some() || self.progress {
            out.push_str(if self.params.is_empty() { r#""_meta":{"# } else { r#","_meta":{"# });
            if self.progress {
                out.push_str(r#""progressToken":"#);
                out.push_str(&id.to_string());
            }
            if let Some(meta) = meta {
                out.push_str(if self.progress { "," } else { "" });
                out.push_str(meta);
            }
            out.push('}');
        }
        out.push_str("}}");
        out
    }
}

/// `initialize` of the session wire.
pub(super) fn initialize_params() -> String {
    format!(r#""protocolVersion":"{SESSION_VERSION}","capabilities":{{}},"clientInfo":{}"#, client_info())
}

/// `notifications/cancelled` for a request.
pub(super) fn cancelled(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"the caller gave up"}}}}"#
    )
}

/// `notifications/initialized`.
pub(super) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// What a server says of itself on either wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerFacts {
    /// The revision that is spoken with it.
    pub(super) version: String,
    /// Whether it tells when one of its lists or a watched resource changes.
    pub(super) tells_changes: bool,
    /// Whether it has tools at all.
    pub(super) has_tools: bool,
    /// Whether it has resources.
    pub(super) has_resources: bool,
    /// Whether its resources can be watched.
    pub(super) can_watch: bool,
    /// Whether it has prompts.
    pub(super) has_prompts: bool,
    /// Whether it completes arguments.
    pub(super) completes: bool,
}

impl ServerFacts {
    /// From the result of `initialize` or `server/discover`.
    pub(super) fn read(result: &str, version: Option<&str>) -> Self {
        let value: Value = serde_json::from_str(result).unwrap_or_default();
        let capability = |name: &str| value.get("capabilities")?.get(name).filter(|c| !c.is_null());
        let tells =
            |name: &str, what: &str| capability(name).and_then(|c| c.get(what)) == Some(&Value::Bool(true));
        let can_watch = tells("resources", "subscribe");
        let lists = ["tools", "resources", "prompts"].iter().any(|name| tells(name, "listChanged"));
        let said = value.get("protocolVersion").and_then(Value::as_str).unwrap_or(SESSION_VERSION);
        Self {
            version: version.unwrap_or(said).to_owned(),
            tells_changes: lists || can_watch,
            has_tools: capability("tools").is_some(),
            has_resources: capability("resources").is_some(),
            can_watch,
            has_prompts: capability("prompts").is_some(),
            completes: capability("completions").is_some(),
        }
    }
}

/// Whether a `server/discover` result offers the stateless revision.
pub(super) fn offers_stateless(result: &str) -> bool {
    let value: Value = serde_json::from_str(result).unwrap_or_default();
    let versions = value.get("supportedVersions").and_then(Value::as_array);
    versions.is_some_and(|v| v.iter().any(|v| v.as_str() == Some(STATELESS_VERSION)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_valid_json_with_and_without_meta() {
        for (params, meta, progress) in [("", None, false), (r#""name":"x""#, Some(stateless_meta()), true)] {
            let out = Outgoing { method: "tools/call", params, name: None, progress };
            let value: Value = serde_json::from_str(&out.text(7, meta.as_deref())).unwrap();
            assert_eq!(value["id"], 7);
            assert_eq!(
                value["params"]["_meta"]["progressToken"],
                if progress { Value::from(7) } else { Value::Null }
            );
        }
        let first: Value = serde_json::from_str(&format!("{{{}}}", initialize_params())).unwrap();
        assert_eq!(first["clientInfo"]["name"], "docent");
        assert!(serde_json::from_str::<Value>(&cancelled(3)).is_ok());
    }

    #[test]
    fn a_message_is_read_however_it_is_written() {
        let read = |text: &str| Message::all(text).first().map(|m| (m.answers(), m.outcome().ok()));
        let whole = Some((Some(4), Some(r#"{"a": [1]}"#.into())));
        for text in [
            r#"{"jsonrpc":"2.0","id":4,"result":{"a": [1]}}"#,
            r#" { "r\u0065sult" : {"a": [1]} , "id" : "4" , "other" : null, "error":null } "#,
            r#"[{"id":4,"method":null,"result":{"a": [1]}}]"#,
        ] {
            assert_eq!(read(text), whole, "{text}");
        }
        assert_eq!(read(r#"{"id":4,"result":null}"#), Some((Some(4), Some("null".into()))));
        assert_eq!(read(r#"{"id":null,"meth\u006fd":"p\u0069ng"}"#), Some((None, Some("null".into()))));
        assert_eq!(Message::all(r#"{"id":1,"method":"p\u0069ng"}"#)[0].method.as_deref(), Some("ping"));
        for none in [r#"{"id":4,"id":5,"result":{}}"#, r#"{"id":4,"method":7}"#, r#"{"id":4"#, "[[4]]", "7"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn messages_are_told_apart_and_batches_lose_only_what_is_broken() {
        let text = r#"[{"id":"4","result":{"a":1}}, 5, {"method":"ping","id":"p1"}, {"id":6,"error":"no"}]"#;
        let all = Message::all(text);
        assert_eq!(all.iter().map(Message::answers).collect::<Vec<_>>(), [Some(4), None, Some(6)]);
        assert_eq!(all[1].reply().unwrap(), r#"{"jsonrpc":"2.0","id":"p1","result":{}}"#);
        assert_eq!(all[2].outcome().unwrap_err().message, "no");
        assert!(Message::all("garbage").is_empty());
    }
}
