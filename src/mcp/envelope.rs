//! The JSON-RPC envelope: bytes in, messages out. Parameters stay raw until a method reads them, ids are
//! echoed byte for byte. It knows no method and no era.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::RpcError;
use crate::json::walk::{NotJson, Walk};
use crate::json::{self, JsonError, Object, Shallow};
use crate::limits::{BATCH_MESSAGES_MAX, RPC_ID_BYTES_MAX};

/// A request id as it stood in the message: `"1"` and `1` stay what they are.
#[derive(Debug, Clone)]
pub(super) struct RequestId(Box<str>);

impl RequestId {
    /// From its JSON. An id is a string or an integer, never null (MCP, base protocol).
    pub(super) fn read(text: &str) -> Option<Self> {
        let integer = || {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        };
        (text.len() <= RPC_ID_BYTES_MAX && (text.starts_with('"') || integer())).then(|| Self(text.into()))
    }

    /// The id's JSON.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as a value, type preserved.
    pub(super) fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

/// The parameters of a message: their JSON, and where each member stands in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Params {
    /// An object without space between its members; empty where there are none.
    text: String,
    members: Vec<(Box<str>, Range<usize>)>,
}

impl Params {
    fn new(found: &[(Cow<'_, str>, &str)]) -> Self {
        let room = found.iter().map(|(name, value)| name.len() + value.len() + MEMBER_SIGNS).sum();
        let mut text = String::with_capacity(room);
        let mut members = Vec::with_capacity(found.len());
        text.push('{');
        for (at, (name, value)) in found.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&json::to_text(&**name));
            text.push(':');
            let begin = text.len();
            text.push_str(value);
            members.push((Box::from(&**name), begin..text.len()));
        }
        text.push('}');
        Self { text, members }
    }

    /// Their JSON; `{}` where there are none.
    pub(super) fn as_str(&self) -> &str {
        if self.text.is_empty() { "{}" } else { &self.text }
    }

    /// The JSON of a member, which must stand there once.
    pub(super) fn member(&self, name: &str) -> Option<&str> {
        let mut all = self.members.iter().filter(|(n, _)| &**n == name);
        let (_, place) = all.next()?;
        all.next().is_none().then(|| self.as_str().get(place.clone())).flatten()
    }

    /// Whether a member of this name stands there, once or more often.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(n, _)| &**n == name)
    }

    /// Whether a member stands there more than once, which no method takes.
    pub(super) fn repeats(&self) -> bool {
        // Few names are compared sooner than hashed; many would be compared for a second.
        if self.members.len() > NAMES_COMPARED_MAX {
            let mut seen = HashSet::with_capacity(self.members.len());
            return !self.members.iter().all(|(name, _)| seen.insert(name));
        }
        self.members
            .iter()
            .enumerate()
            .any(|(at, (name, _))| self.members.iter().take(at).any(|(n, _)| n == name))
    }

    /// A text member of theirs, decoded.
    pub(super) fn text_member(&self, name: &str) -> Option<String> {
        let raw = self.member(name)?;
        json::parse_as(raw.as_bytes(), raw.len()).ok()
    }

    /// The page of a list that is asked for.
    pub(super) fn cursor(&self) -> Result<Option<String>, RpcError> {
        #[derive(Deserialize)]
        struct ListParams {
            cursor: Option<String>,
        }
        Ok(self.read::<ListParams>()?.cursor)
    }

    /// Reads them as `T`. The message of a mismatch names the member, never its value.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        let bytes = self.as_str().as_bytes();
        json::parse_as(bytes, bytes.len())
            .map_err(|e| RpcError::invalid_params(format!("wrong parameters: {e}")))
    }
}

/// Up to so many names, each is compared with each.
const NAMES_COMPARED_MAX: usize = 16;
/// Signs that a member is written with: quotes, colon, comma, and room for the braces.
const MEMBER_SIGNS: usize = 6;

/// Reads a raw value as an object whose depth is bounded, and which nobody can read otherwise.
pub(super) fn read_object(raw: &str) -> Result<Object, RpcError> {
    match json::parse_exact(raw) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(RpcError::invalid_params("`arguments` must be an object")),
        Err(JsonError::Malformed(_)) => {
            Err(RpcError::invalid_params("`arguments` are not JSON that docent takes"))
        }
        Err(why) => Err(RpcError::invalid_params(format!("`arguments` cannot be taken: {why}"))),
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
        result: Option<Box<str>>,
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

/// The members of a message as they stand in it. An id of `null` is kept apart from none: it is a fault, where none
/// makes a notification.
#[derive(Debug, Default, PartialEq)]
struct Envelope<'a> {
    jsonrpc: Option<Cow<'a, str>>,
    id: Option<&'a str>,
    method: Option<Cow<'a, str>>,
    params: Given<'a>,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

/// `params` as they stand in a message.
#[derive(Debug, Default, PartialEq)]
enum Given<'a> {
    /// Nothing, or `null`.
    #[default]
    Nothing,
    Members(Vec<(Cow<'a, str>, &'a str)>),
    /// Anything but an object.
    Wrong,
}

impl<'a> Given<'a> {
    /// What a walk stands before, stepping over it.
    fn walked(walk: &mut Walk<'a>) -> Result<Self, NotJson> {
        if walk.peek() == b'{' {
            let members = json::members_of(walk)?;
            return Ok(Self::Members(
                members.into_iter().map(|(name, raw)| (Cow::Borrowed(name), raw)).collect(),
            ));
        }
        Ok(if walk.skip()? == "null" { Self::Nothing } else { Self::Wrong })
    }
}

impl<'a> Envelope<'a> {
    /// By a walk. `None` where the parser is to be asked, for the escapes in a name or for its message.
    fn walked(text: &'a str) -> Option<Self> {
        let mut found = Self::default();
        let (mut jsonrpc, mut method, mut params) = (None, None, None);
        json::walk_members(text, |walk, name| {
            let member = match name {
                "params" => {
                    let given = Given::walked(walk)?;
                    return params.replace(given).map_or(Ok(()), |_twice| Err(NotJson));
                }
                "jsonrpc" => &mut jsonrpc,
                "id" => &mut found.id,
                "method" => &mut method,
                "result" => &mut found.result,
                "error" => &mut found.error,
                _ => return walk.skip().map(drop),
            };
            member.replace(walk.skip()?).map_or(Ok(()), |_twice| Err(NotJson))
        })?;
        let plain = |raw| Some(Cow::Borrowed(json::unescaped(raw)?));
        found.jsonrpc = Some(plain(jsonrpc?)?);
        if let Some(method) = method {
            found.method = Some(plain(method)?);
        }
        found.params = params.unwrap_or_default();
        Some(found)
    }

    /// By the parser, of at most `max` bytes.
    fn parsed(body: &'a [u8], max: usize) -> Result<Self, JsonError> {
        #[derive(Deserialize)]
        struct Parsed<'a> {
            #[serde(borrow)]
            jsonrpc: Option<Cow<'a, str>>,
            #[serde(default, borrow, deserialize_with = "present")]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
            #[serde(default, borrow)]
            params: Shallow<'a>,
            #[serde(default, borrow, deserialize_with = "present")]
            result: Option<&'a RawValue>,
            #[serde(default, borrow, deserialize_with = "present")]
            error: Option<&'a RawValue>,
        }
        let Parsed { jsonrpc, id, method, params, result, error } = json::parse_as(body, max)?;
        let [id, result, error] = [id, result, error].map(|raw| raw.map(RawValue::get));
        let params = match params {
            Shallow::Null => Given::Nothing,
            Shallow::Object(members) => {
                Given::Members(members.into_iter().map(|(name, raw)| (name, raw.get())).collect())
            }
            Shallow::List(_) | Shallow::Scalar => Given::Wrong,
        };
        Ok(Self { jsonrpc, id, method, params, result, error })
    }
}

/// Keeps `null` apart from absence.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(d: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// Decodes a body of at most `max` bytes.
pub(super) fn decode(body: &[u8], max: usize) -> Result<Incoming, Fault> {
    // The common case; whatever else it is, is found out below.
    let walked = json::utf8(body).ok().filter(|text| text.len() <= max).and_then(Envelope::walked);
    if let Some(envelope) = walked {
        return message(envelope).map(Incoming::One);
    }
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
    let text = raw.get();
    if !text.starts_with('{') {
        return Err(fault(None, "a message is a JSON object"));
    }
    let envelope = Envelope::parsed(text.as_bytes(), text.len()).map_err(|e| Fault {
        id: None,
        error: RpcError::invalid_request(format!("not a JSON-RPC message: {e}")),
    })?;
    message(envelope)
}

fn fault(id: Option<RequestId>, why: &'static str) -> Fault {
    Fault { id, error: RpcError::invalid_request(why) }
}

fn message(envelope: Envelope<'_>) -> Result<Message, Fault> {
    let id = envelope.id.map(RequestId::read);
    let known = id.clone().flatten();
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return Err(fault(known, "`jsonrpc` must be \"2.0\""));
    }
    let Some(method) = envelope.method else {
        return match known {
            Some(id) if envelope.result.is_some() != envelope.error.is_some() => {
                Ok(Message::Response { id, result: envelope.result.map(Box::from) })
            }
            known => {
                Err(fault(known, "a message has a `method`, or an `id` with either `result` or `error`"))
            }
        };
    };
    let params = match &envelope.params {
        // A few clients send `null` where they have no parameters.
        Given::Nothing => Params::default(),
        Given::Members(members) => Params::new(members),
        Given::Wrong => return Err(fault(known, "`params` must be an object")),
    };
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
    use proptest::prelude::*;

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
            r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":"a"}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":-7}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":1.5}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":true}"#,
        ] {
            assert_eq!(fault(text), (Some("5".to_owned()), INVALID_REQUEST), "{text}");
        }
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(2_000));
        assert_eq!(fault(&long), (None, INVALID_REQUEST));
    }

    #[test]
    fn members_are_found_by_name_and_repeated_ones_are_not_guessed() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{ "a" : {"b":[1, 2]} ,"n\u0061me":"t\"x","two":1,"two":2}}"#;
        let Ok(Incoming::One(Message::Request { params, .. })) = decode_text(text) else { panic!() };
        assert_eq!(params.member("a"), Some(r#"{"b":[1, 2]}"#));
        assert_eq!(params.text_member("name").as_deref(), Some("t\"x"));
        assert_eq!((params.member("two"), params.member("b"), params.repeats()), (None, None, true));
        assert_eq!(params.as_str(), r#"{"a":{"b":[1, 2]},"name":"t\"x","two":1,"two":2}"#);
        for none in ["", r#","params":null"#, r#","params":{ }"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x"{none}}}"#);
            let Ok(Incoming::One(Message::Request { params, .. })) = decode_text(&text) else {
                panic!("{text}")
            };
            assert_eq!(params.as_str(), "{}");
        }
        assert!(!Params::default().repeats() && Params::default().as_str() == "{}");
    }

    proptest! {
        #[test]
        fn a_message_that_is_walked_is_read_as_the_parser_reads_it(
            members in prop::collection::vec(prop::sample::select(vec![
                r#""jsonrpc":"2.0""#, r#""jsonrpc" : "1.0""#, r#""jsonrpc":2"#, r#""json\u0072pc":"2.0""#,
                r#""id":1"#, r#""id":null"#, r#""id": "\u0041" "#, r#""id":{"a":[1]}"#, r#""method":"ping""#,
                r#""method":"p\u0069ng""#, r#""method":null"#, r#""method":7"#, r#""params":{}"#, r#""params":null"#,
                r#""params":{"a":1,"a": [2] ,"é":"x\"y"}"#, r#""params":{"n\u0061me":"t"}"#, r#""params":[1]"#,
                r#""params":"x""#, r#""params":{"a":tru}"#, r#""result":{}"#, r#""result":null"#,
                r#""error":{"code":1}"#, r#""other":[{"id":2}]"#, r#""broken"#,
            ]), 0..6),
        ) {
            let text = format!(" {{ {} }} ", members.join(","));
            if let Some(walked) = Envelope::walked(&text) {
                prop_assert_eq!(Some(walked), Envelope::parsed(text.as_bytes(), 10_000).ok(), "{}", text);
            }
        }
    }

    #[test]
    fn what_most_clients_send_is_walked() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"x\ny"}}}"#;
        let Some(Envelope { params: Given::Members(members), .. }) = Envelope::walked(text) else { panic!() };
        assert_eq!(members, [("name".into(), r#""t""#), ("arguments".into(), r#"{"a":"x\ny"}"#)]);
    }

    #[test]
    fn parameters_are_bounded_in_number() {
        let body = |count: usize| {
            let params = vec![r#""a":1"#; count].join(",");
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{{params}}}}}"#)
        };
        let most = body(crate::limits::LEVEL_ITEMS_MAX);
        let Ok(Incoming::One(Message::Request { params, .. })) = decode(most.as_bytes(), most.len()) else {
            panic!("as many are taken")
        };
        assert!(params.repeats());
        let names: Vec<String> = (0..100).map(|n| format!(r#""a{n}":1"#)).collect();
        let body_of = |names: &[String]| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{{}}}}}"#, names.join(","))
        };
        for (take, again) in [(15, false), (15, true), (100, false), (100, true)] {
            let mut names = names[..take].to_vec();
            names.extend(again.then(|| names[3].clone()));
            let Ok(Incoming::One(Message::Request { params, .. })) = decode_text(&body_of(&names)) else {
                panic!()
            };
            assert_eq!(params.repeats(), again, "{take}");
        }
        let more = body(crate::limits::LEVEL_ITEMS_MAX + 1);
        let fault = decode(more.as_bytes(), more.len()).unwrap_err();
        assert_eq!(fault.error.code, INVALID_REQUEST);
        assert!(fault.error.message.contains("more than 20000 members"), "{}", fault.error.message);
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
