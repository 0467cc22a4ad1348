//! Bounded JSON: the only place that turns bytes into values. Byte and depth ceilings, canonical bytes,
//! exact encoded length, cuts at character boundaries, capped file reads.

mod exact;
mod shallow;
pub mod walk;

use std::fmt::{Display, Write as _};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use exact::{inexact_number, parse_exact, parse_exact_bytes, quote_inexact};
pub use shallow::{Shallow, members_of, unescaped, walk_members};

use crate::limits::JSON_DEPTH_MAX;

/// A JSON object.
pub type Object = Map<String, Value>;

/// Compact JSON as text: immutable, cheap to clone, written into answers without parsing it again.
///
/// A result is kept in this form so that numbers stay digit for digit what the upstream sent, and so that
/// the text half of a result is the structured half, byte for byte.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct JsonText(Arc<Box<RawValue>>);

impl JsonText {
    /// The text of a value.
    pub fn of(value: &Value) -> Self {
        Self::parse(to_text(value)).unwrap_or_else(|_| Self(Arc::new(RawValue::NULL.to_owned())))
    }

    /// Takes a text that should be JSON.
    pub fn parse(text: String) -> Result<Self, JsonError> {
        // The box is moved, not its bytes: a result may be large.
        Ok(Self(Arc::new(RawValue::from_string(text)?)))
    }

    /// The compact JSON.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The same as raw JSON.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// As a value, for looking inside: numbers beyond 64 bits become floats there, so never send this on.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or(Value::Null)
    }

    /// Bytes of the text.
    pub fn len(&self) -> usize {
        self.0.get().len()
    }

    /// Whether the text is empty, which no JSON is.
    pub fn is_empty(&self) -> bool {
        self.0.get().is_empty()
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        Self::of(value)
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JsonText {}

/// Why bytes are not JSON that docent takes.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// More bytes than the boundary allows.
    #[error("{bytes} bytes are more than the {max} allowed here")]
    TooLarge {
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Nested deeper than [`JSON_DEPTH_MAX`].
    #[error("nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
    /// A number that would arrive as another one.
    #[error(
        "the number {0} has more digits than 64 bits hold and would arrive as another one: give it as a text, or with \
         fewer digits"
    )]
    Inexact(String),
    /// An object names a member twice: one reader would take the first, another one the last (RFC 8259 §4).
    #[error("an object has two members of one name")]
    Repeated,
    /// Not JSON, or not of the expected shape.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    /// A file could not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Parses at most `max` bytes into a value of at most [`JSON_DEPTH_MAX`] levels.
pub fn parse(bytes: &[u8], max: usize) -> Result<Value, JsonError> {
    let value: Value = parse_as(bytes, max)?;
    if depth_exceeds(&value, JSON_DEPTH_MAX) { Err(JsonError::TooDeep) } else { Ok(value) }
}

/// Parses at most `max` bytes into `T`, which may borrow from them. `serde_json` itself refuses more than 128
/// levels.
#[expect(clippy::disallowed_methods, reason = "this is the bounded reader that the ban points to")]
pub fn parse_as<'a, T: Deserialize<'a>>(bytes: &'a [u8], max: usize) -> Result<T, JsonError> {
    if bytes.len() > max {
        return Err(JsonError::TooLarge { bytes: bytes.len(), max });
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// Bytes as text, looked at in blocks, and once more for the place of a fault.
pub fn utf8(bytes: &[u8]) -> Result<&str, std::str::Utf8Error> {
    simdutf8::basic::from_utf8(bytes).or_else(|_| std::str::from_utf8(bytes))
}

/// Parses a text that is bounded already into a value of at most [`JSON_DEPTH_MAX`] levels.
pub fn parse_text(text: &str) -> Result<Value, JsonError> {
    let value: Value = serde_json::from_str(text)?;
    if depth_exceeds(&value, JSON_DEPTH_MAX) { Err(JsonError::TooDeep) } else { Ok(value) }
}

/// Reads a file of at most `max` bytes.
pub fn read_capped(path: &Path, max: usize) -> Result<Vec<u8>, JsonError> {
    let file = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    file.take(u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        let whole =
            std::fs::metadata(path).map_or(bytes.len(), |m| usize::try_from(m.len()).unwrap_or(usize::MAX));
        return Err(JsonError::TooLarge { bytes: whole.max(bytes.len()), max });
    }
    Ok(bytes)
}

/// Reads a UTF-8 file of at most `max` bytes.
pub fn read_text_capped(path: &Path, max: usize) -> Result<String, JsonError> {
    String::from_utf8(read_capped(path, max)?)
        .map_err(|e| JsonError::Io(io::Error::new(io::ErrorKind::InvalidData, format!("not UTF-8: {e}"))))
}

/// Whether a value is nested deeper than `max` levels (a scalar has level 0).
pub fn depth_exceeds(value: &Value, max: usize) -> bool {
    match value {
        Value::Array(items) => max == 0 || items.iter().any(|v| depth_exceeds(v, max - 1)),
        Value::Object(map) => max == 0 || map.values().any(|v| depth_exceeds(v, max - 1)),
        _ => false,
    }
}

/// Compact JSON bytes. A value cannot fail to serialise; a foreign `Serialize` that does gives `null`.
pub fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec())
}

/// Compact JSON text.
pub fn to_text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// The exact length in bytes of the compact JSON of a value, without building it.
pub fn encoded_len<T: Serialize + ?Sized>(value: &T) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0 += buf.len();
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).map_or(4, |()| counter.0)
}

/// Canonical bytes: compact, object keys sorted by code unit at every level, arrays in order.
/// Equal values have equal bytes; used for hashing and for replay keys.
pub fn canonical(value: &Value) -> Vec<u8> {
    let mut out = String::new();
    write_value(value, true, &mut out);
    out.into_bytes()
}

/// The same of an object.
pub fn canonical_object(object: &Object) -> Vec<u8> {
    let mut out = String::new();
    write_object(object, true, &mut out);
    out.into_bytes()
}

/// Bytes of a value that is no text, as a rule.
const VALUE_BYTES: usize = 16;

/// Compact JSON of an object, its keys in their order: what [`to_text`] gives, but texts in which nothing is escaped,
/// most of what arguments hold, are copied whole.
pub fn object_text(object: &Object) -> String {
    let room = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(VALUE_BYTES, str::len) + 6;
    let mut out = String::with_capacity(object.iter().map(room).sum::<usize>() + 2);
    write_object(object, false, &mut out);
    out
}

fn write_object(map: &Object, sorted: bool, out: &mut String) {
    let mut members: Vec<(&String, &Value)> = map.iter().collect();
    if sorted {
        members.sort_unstable_by_key(|(key, _)| *key);
    }
    out.push('{');
    for (i, (key, value)) in members.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(key, out);
        out.push(':');
        write_value(value, sorted, out);
    }
    out.push('}');
}

fn write_value(value: &Value, sorted: bool, out: &mut String) {
    match value {
        Value::Object(map) => write_object(map, sorted, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, sorted, out);
            }
            out.push(']');
        }
        Value::String(text) => write_string(text, out),
        scalar => out.push_str(&to_text(scalar)),
    }
}

fn write_string(text: &str, out: &mut String) {
    if walk::special::<true>(text.as_bytes(), 0) < text.len() {
        out.push_str(&to_text(text));
        return;
    }
    out.reserve(text.len() + 2);
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// An object as text under construction, member by member, for what is written at every call. Names are the program's
/// own and need no escaping.
#[derive(Debug)]
pub struct ObjectWriter(String);

impl ObjectWriter {
    /// An empty object with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes);
        text.push('{');
        Self(text)
    }

    fn name(&mut self, name: &str) -> &mut String {
        self.0.push_str(if self.0.len() > 1 { ",\"" } else { "\"" });
        self.0.push_str(name);
        self.0.push_str("\":");
        &mut self.0
    }

    /// A text.
    pub fn text(&mut self, name: &str, value: &str) {
        write_string(value, self.name(name));
    }

    /// A list of texts.
    pub fn texts<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        let out = self.name(name);
        out.push('[');
        for (at, value) in values.enumerate() {
            if at > 0 {
                out.push(',');
            }
            write_string(value, out);
        }
        out.push(']');
    }

    /// An integer.
    pub fn number(&mut self, name: &str, value: impl Display) {
        let out = self.name(name);
        // A text takes whatever is written.
        write!(out, "{value}").ok();
    }

    /// A value that is JSON already.
    pub fn json(&mut self, name: &str, value: &str) {
        self.name(name).push_str(value);
    }

    /// The object.
    pub fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A name as a token of a JSON Pointer (RFC 6901 §3).
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The name that a token of a JSON Pointer stands for (RFC 6901 §4).
pub fn pointer_name(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// The longest prefix of `text` that has at most `max` bytes and ends at a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_written_as_the_serializer_writes_it() {
        let mut out = ObjectWriter::with_capacity(0);
        assert_eq!(ObjectWriter::with_capacity(9).finish(), "{}");
        out.texts("none", [].into_iter());
        out.text("text", "a\"b\n\u{1}");
        out.texts("texts", ["", "é\\"].into_iter());
        out.number("number", u64::MAX);
        out.json("json", "[1.0]");
        let whole = json!({"none": [], "text": "a\"b\n\u{1}", "texts": ["", "é\\"], "number": u64::MAX, "json": [1.0]});
        assert_eq!(out.finish(), to_text(&whole));
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
        assert!(matches!(parse(deep.as_bytes(), 1_000), Err(JsonError::TooDeep)));
        let fits = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(parse(fits.as_bytes(), 1_000).is_ok());
        assert!(matches!(parse(b"[1]", 2), Err(JsonError::TooLarge { bytes: 3, max: 2 })));
    }

    #[test]
    fn canonical_bytes_ignore_key_order_only() {
        assert_eq!(
            canonical(&json!({"b": [2, 1], "a": {"y": 1, "x": 2}})),
            br#"{"a":{"x":2,"y":1},"b":[2,1]}"#
        );
    }

    #[test]
    fn names_and_tokens_of_pointers_are_each_others_inverse() {
        for (name, token) in [("a/b", "a~1b"), ("~1", "~01"), ("plain", "plain")] {
            assert_eq!((pointer_token(name).as_str(), pointer_name(token).as_str()), (token, name));
        }
    }

    #[test]
    fn json_text_keeps_every_digit() {
        let text = r#"{"id":123456789012345678901234567890,"price":0.1000000000000000055}"#;
        let kept = JsonText::parse(text.to_owned()).unwrap();
        assert_eq!(to_text(&kept), text);
        assert!(JsonText::parse("{".to_owned()).is_err());
        assert_eq!(JsonText::of(&json!([1])).value(), json!([1]));
    }

    proptest! {
        #[test]
        fn an_object_is_written_as_serde_writes_it(texts in proptest::collection::vec("(\\PC|[\\x00-\\x1f\"\\\\]){0,12}", 0..5), n in any::<f64>()) {
            let inner: Object = texts.iter().map(|t| (t.clone(), json!([t, n, null, {"t": t}]))).collect();
            let object: Object = [("z".to_owned(), Value::Object(inner)), ("a".to_owned(), json!(7))].into_iter().collect();
            prop_assert_eq!(object_text(&object), to_text(&object));
        }

        #[test]
        fn a_cut_fits_and_never_splits_a_character(text in "\\PC{0,40}", max in 0usize..200) {
            let part = cut(&text, max);
            prop_assert!(part.len() <= max && text.starts_with(part));
            prop_assert!(part.len() == text.len() || max - part.len() < 4);
        }

        #[test]
        fn encoded_len_is_exact(text in "\\PC{0,40}", n in any::<i64>()) {
            let value = json!({"t": text, "n": [n, null, true]});
            prop_assert_eq!(encoded_len(&value), to_bytes(&value).len());
        }
    }
}
