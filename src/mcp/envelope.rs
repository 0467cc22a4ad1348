//! The JSON-RPC envelope: bytes in, messages out. Parameters stay raw until a method reads them, ids are
//! echoed byte for byte. It knows no method and no era.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::RpcError;
use crate::json::{self, JsonError, Object};
use crate::limits::{BATCH_MESSAGES_MAX, RPC_ID_BYTES_MAX};

/// A request id as it stood in the message: `"1"` and `1` stay what they are.
#[derive(Debug, Clone)]
pub(super) struct RequestId(Box<RawValue>);

impl RequestId {
    /// An id is a string or an integer, never null (MCP, base protocol).
    fn read(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let integer = || {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        };
        (text.len() <= RPC_ID_BYTES_MAX && (text.starts_with('"') || integer())).then(|| Self(raw.to_owned()))
    }

    /// The id's JSON.
    pub(super) fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The id as a value, type preserved.
    pub(super) fn value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or(Value::Null)
    }

    /// The id that a `requestId` parameter names.
    pub(super) fn from_raw(raw: &RawValue) -> Option<Self> {
        Self::read(raw)
    }
}

/// The parameters of a message, raw.
#[derive(Debug, Clone, Default)]
pub(super) struct Params(Option<Box<RawValue>>);

impl Params {
    /// Their JSON; `{}` where there are none.
    pub(super) fn as_str(&self) -> &str {
        self.0.as_deref().map_or("{}", RawValue::get)
    }

    /// A text member of theirs, decoded.
    pub(super) fn text_member(&self, name: &str) -> Option<String> {
        let bytes = self.as_str().as_bytes();
        let members: HashMap<Cow<'_, str>, &RawValue> = json::parse_as(bytes, bytes.len()).ok()?;
        let raw = members.get(name)?.get();
        json::parse_as(raw.as_bytes(), raw.len()).ok()
    }

    /// Reads them as `T`. The message of a mismatch names the member, never its value.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        let bytes = self.as_str().as_bytes();
        json::parse_as(bytes, bytes.len())
            .map_err(|e| RpcError::invalid_params(format!("wrong parameters: {e}")))
    }
}

/// Reads a raw value as an object whose depth is bounded.
pub(super) fn read_object(raw: &RawValue) -> Result<Object, RpcError> {
    let bytes = raw.get().as_bytes();
    if let Some(number) = json::wide_integer(raw.get()) {
        return Err(RpcError::invalid_params(format!(
            "the number {} in `arguments` does not fit 64 bits and would arrive as another one: give it as a text",
            json::cut(number, 80)
        )));
    }
    match json::parse(bytes, bytes.len()) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(RpcError::invalid_params("`arguments` must be an object")),
        Err(JsonError::TooDeep) => {
            Err(RpcError::invalid_params(format!("`arguments` are {}", JsonError::TooDeep)))
        }
        Err(_) => Err(RpcError::invalid_params("`arguments` are not JSON that docent takes")),
    }
}

/// One message.
#[derive(Debug, Clone)]
pub(super) enum Message {
    /// It wants an answer.
    Request {
        /// Echoed in the answer.
        id: RequestId,
        /// What it asks for.
        method: String,
        /// With what.
        params: Params,
    },
    /// It wants none.
    Notification {
        /// What it tells.
        method: String,
        /// With what.
        params: Params,
    },
    /// An answer to a request of ours.
    Response {
        /// The request.
        id: RequestId,
        /// Its result; nothing where the client answers with an error.
        result: Option<Box<RawValue>>,
    },
}

/// A message that is none, with its id where one could be read.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// The id to echo.
    pub id: Option<RequestId>,
    /// What is wrong.
    pub error: RpcError,
}

/// What a body holds.
#[derive(Debug)]
pub(super) enum Incoming {
    /// One message.
    One(Message),
    /// An array of messages, each good or faulty, in order; never empty.
    Batch(Vec<Result<Message, Fault>>),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Keeps `null` apart from absence: an id of `null` is a fault, an absent one makes a notification.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(d: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// Decodes a body of at most `max` bytes.
pub(super) fn decode(body: &[u8], max: usize) -> Result<Incoming, Fault> {
    let whole: &RawValue =
        json::parse_as(body, max).map_err(|e| Fault { id: None, error: RpcError::parse(e) })?;
    if !whole.get().starts_with('[') {
        return one(whole).map(Incoming::One);
    }
    let items: Vec<&RawValue> = json::parse_as(whole.get().as_bytes(), max)
        .map_err(|e| Fault { id: None, error: RpcError::parse(e) })?;
    if items.is_empty() || items.len() > BATCH_MESSAGES_MAX {
        let why = format!("a batch holds 1 to {BATCH_MESSAGES_MAX} messages");
        return Err(Fault { id: None, error: RpcError::invalid_request(why) });
    }
    Ok(Incoming::Batch(items.into_iter().map(one).collect()))
}

fn one(raw: &RawValue) -> Result<Message, Fault> {
    let fault =
        |id: Option<RequestId>, why: &'static str| Fault { id, error: RpcError::invalid_request(why) };
    let text = raw.get();
    if !text.starts_with('{') {
        return Err(fault(None, "a message is a JSON object"));
    }
    let envelope: Envelope<'_> = json::parse_as(text.as_bytes(), text.len()).map_err(|e| Fault {
        id: None,
        error: RpcError::invalid_request(format!("not a JSON-RPC message: {e}")),
    })?;
    let id = envelope.id.map(RequestId::read);
    let known = id.clone().flatten();
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return Err(fault(known, "`jsonrpc` must be \"2.0\""));
    }
    let Some(method) = envelope.method else {
        return match known {
            Some(id) if envelope.result.is_some() != envelope.error.is_some() => {
                Ok(Message::Response { id, result: envelope.result.map(ToOwned::to_owned) })
            }
            known => {
                Err(fault(known, "a message has a `method`, or an `id` with either `result` or `error`"))
            }
        };
    };
    // A few clients send `null` where they have no parameters.
    let given = envelope.params.filter(|p| p.get() != "null");
    if given.is_some_and(|p| !p.get().starts_with('{')) {
        return Err(fault(known, "`params` must be an object"));
    }
    let params = Params(given.map(ToOwned::to_owned));
    match id {
        None => Ok(Message::Notification { method: method.into_owned(), params }),
        Some(Some(id)) => Ok(Message::Request { id, method: method.into_owned(), params }),
        Some(None) => {
            Err(fault(None, "an `id` is a string or an integer, not null and not longer than 1 KiB"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::{INVALID_REQUEST, PARSE_ERROR};
    use super::*;

    fn decode_text(text: &str) -> Result<Incoming, Fault> {
        decode(text.as_bytes(), 10_000)
    }

    fn fault(text: &str) -> (Option<String>, i32) {
        let fault = decode_text(text).unwrap_err();
        (fault.id.map(|i| i.as_str().to_owned()), fault.error.code)
    }

    #[test]
    fn ids_keep_their_exact_json() {
        for id in ["1", "-7", "\"1\"", "\"\\u0041\"", "9007199254740993", "\"\""] {
            let body = format!(r#" {{"jsonrpc":"2.0", "id": {id} ,"method":"ping"}}"#);
            let Ok(Incoming::One(Message::Request { id: read, .. })) = decode_text(&body) else {
                panic!("{body}")
            };
            assert_eq!(read.as_str(), id);
        }
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_id_where_there_is_one() {
        for text in ["", "{", "nope", "{\"jsonrpc\":\"2.0\",}", "\u{0}"] {
            assert_eq!(fault(text), (None, PARSE_ERROR), "{text}");
        }
        for text in [
            "1",
            "null",
            "\"x\"",
            "[]",
            "{}",
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        ] {
            assert_eq!(fault(text), (None, INVALID_REQUEST), "{text}");
        }
        for text in [
            r#"{"id":5,"method":"ping"}"#,
            r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":5}"#,
            r#"{"jsonrpc":"2.0","id":5,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}"#,
        ] {
            assert_eq!(fault(text), (Some("5".to_owned()), INVALID_REQUEST), "{text}");
        }
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(2_000));
        assert_eq!(fault(&long), (None, INVALID_REQUEST));
    }

    #[test]
    fn a_batch_keeps_order_and_its_faults() {
        let text = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},7,{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"result":{}}]"#;
        let Ok(Incoming::Batch(items)) = decode_text(text) else { panic!() };
        assert!(matches!(items[0], Ok(Message::Request { .. })));
        assert!(items[1].is_err());
        assert!(matches!(items[2], Ok(Message::Notification { .. })));
        assert!(matches!(items[3], Ok(Message::Response { .. })));
        let many = format!("[{}]", vec!["1"; BATCH_MESSAGES_MAX + 1].join(","));
        assert_eq!(fault(&many), (None, INVALID_REQUEST));
    }
}
