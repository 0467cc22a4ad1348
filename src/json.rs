//! Bounded JSON: the only place that turns bytes into values. Byte and depth ceilings, canonical bytes,
//! exact encoded length, cuts at character boundaries, capped file reads.

mod shallow;

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use shallow::Shallow;

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

/// The first number of a JSON text that would become another one as a value: an integer that no 64-bit type
/// holds, or a decimal with more digits than its nearest double can give back (RFC 8259 §6 warns of both).
pub fn inexact_number(text: &str) -> Option<&str> {
    inexact_numbers(text).next().and_then(|at| text.get(at))
}

/// A JSON text in which such numbers stand as texts, digit for digit: for places that write numbers as texts anyway.
pub fn quote_inexact(text: &str) -> Cow<'_, str> {
    let (mut out, mut from) = (String::new(), 0);
    for at in inexact_numbers(text) {
        out.push_str(text.get(from..at.start).unwrap_or_default());
        out.push('"');
        out.push_str(text.get(at.clone()).unwrap_or_default());
        out.push('"');
        from = at.end;
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(out)
}

fn inexact_numbers(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let (mut at, mut quoted) = (if may_be_inexact(bytes) { 0 } else { bytes.len() }, false);
    std::iter::from_fn(move || {
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\\' if quoted => at += 1,
                b'"' => quoted = !quoted,
                b'-' | b'0'..=b'9' if !quoted => {
                    let begin = at;
                    let in_number = |b: &u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    at += bytes.iter().skip(at).take_while(|b| in_number(b)).count();
                    if text.get(begin..at).is_some_and(|number| !is_exact(number)) {
                        return Some(begin..at);
                    }
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        None
    })
}

/// Whether a number comes back from a value as the same decimal, however it is written.
fn is_exact(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        return number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    }
    // Rust writes the shortest decimal that reads back as the same double.
    number
        .parse::<f64>()
        .is_ok_and(|value| value.is_finite() && decimal(number) == decimal(&format!("{value:e}")))
}

/// A decimal as its digits without outer zeros and the power of ten of a point before them.
fn decimal(number: &str) -> (String, i64) {
    let number = number.trim_start_matches('-');
    let (mantissa, power) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{part}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return (String::new(), 0);
    }
    let zeros = digits.len() - significant.len();
    let point = i64::try_from(whole.len()).unwrap_or(i64::MAX) - i64::try_from(zeros).unwrap_or(i64::MAX);
    let power = power.parse::<i64>().unwrap_or(i64::MAX);
    (significant.trim_end_matches('0').to_owned(), power.saturating_add(point))
}

/// A number of more than 15 digits, which any double holds, has at least so many in a row on one side of its point.
const LONG_DIGITS: usize = 8;
/// Bytes that are looked at together for a digit.
const DIGIT_BLOCK: usize = 64;

/// Whether many digits stand in a row somewhere, or an `e` behind a digit. Blocks without a digit, most of a text, are
/// passed by without a branch per byte.
fn may_be_inexact(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<DIGIT_BLOCK>();
    let has_digit = |block: &[u8]| block.iter().fold(0, |any, b| any | u8::from(b.is_ascii_digit())) != 0;
    let is_suspect = |(number, block): (usize, &[u8])| {
        has_digit(block) && {
            let at = number * DIGIT_BLOCK;
            has_long_run(bytes, at..at + block.len()) || has_power(bytes.get(at..).unwrap_or_default())
        }
    };
    let blocks = blocks.iter().map(<[u8; DIGIT_BLOCK]>::as_slice).chain([rest]);
    blocks.enumerate().any(is_suspect)
}

/// Whether an `e` stands behind a digit of the first block.
fn has_power(bytes: &[u8]) -> bool {
    bytes.windows(2).take(DIGIT_BLOCK).any(|pair| matches!(pair, [b'0'..=b'9', b'e' | b'E']))
}

/// Whether a long run of digits has part in a block: one look at every eighth byte tells where there is none.
fn has_long_run(bytes: &[u8], block: Range<usize>) -> bool {
    let is_digit = |b: &u8| b.is_ascii_digit();
    let begin = block.start;
    let looked_at = bytes.get(block).unwrap_or_default().iter().enumerate().skip(LONG_DIGITS - 1);
    looked_at.step_by(LONG_DIGITS).filter(|(_, b)| is_digit(b)).any(|(at, _)| {
        let (before, after) = bytes.split_at(begin + at);
        let before = before.iter().rev().take_while(|b| is_digit(b)).count();
        before + after.iter().take_while(|b| is_digit(b)).count() >= LONG_DIGITS
    })
}

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

/// A text, bounded already, of what is judged before it is sent on: nothing in it may be read in two ways. Numbers are
/// exact, and no object names a member twice.
pub fn parse_exact(text: &str) -> Result<Value, JsonError> {
    let value = parse_text(text)?;
    if let Some(number) = inexact_number(text) {
        return Err(JsonError::Inexact(cut(number, 80).to_owned()));
    }
    let (held, colons) = (members(&value), text.bytes().filter(|b| *b == b':').count());
    // No colon inside of a text, as mostly: then each is a member's, and all of them are looked at together.
    if colons == held || members_written(text.as_bytes()) == held {
        Ok(value)
    } else {
        Err(JsonError::Repeated)
    }
}

/// The same of bytes of which at most `max` are taken.
pub fn parse_exact_bytes(bytes: &[u8], max: usize) -> Result<Value, JsonError> {
    if bytes.len() > max {
        return Err(JsonError::TooLarge { bytes: bytes.len(), max });
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => parse_exact(text),
        // For its error.
        Err(_not_utf8) => parse(bytes, max),
    }
}

/// Members that a JSON text writes: each has one colon outside of texts.
fn members_written(bytes: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b':' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

/// Members of all objects in a value.
fn members(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(members).sum::<usize>(),
        Value::Array(items) => items.iter().map(members).sum(),
        _ => 0,
    }
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
    // Without a branch per byte, so that many are looked at together.
    let is_escaped = |b: &u8| *b < b' ' || *b == b'"' || *b == b'\\';
    if text.as_bytes().iter().fold(false, |any, b| any | is_escaped(b)) {
        out.push_str(&to_text(text));
        return;
    }
    out.reserve(text.len() + 2);
    out.push('"');
    out.push_str(text);
    out.push('"');
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
    fn what_can_be_read_in_two_ways_is_not_taken() {
        let exact = parse_exact;
        for text in [
            r#"{"a":1,"b":{"a":1},"c":[{"a":1},{"a":"x:y"}],"d":"\\\":\""}"#,
            r#"{"a\":":{}, "b":[]}"#,
            "[]",
            r#"":""#,
        ] {
            assert!(exact(text).is_ok(), "{text}");
        }
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"b":2,"\u0061":3}]}"#, r#"{"":0,"":{}}"#] {
            assert!(matches!(exact(text), Err(JsonError::Repeated)), "{text}");
        }
        assert!(
            matches!(exact(r#"{"n":123456789012345678901}"#), Err(JsonError::Inexact(n)) if n.ends_with("901"))
        );
        assert!(matches!(exact("{"), Err(JsonError::Malformed(_))));
    }

    #[test]
    fn numbers_that_would_become_others_are_found_and_nothing_else() {
        for fits in [
            "18446744073709551615",
            "-9223372036854775808",
            "{}",
            "0.1",
            "-0.10",
            "1.0",
            "1e2",
            "12.5E-3",
            "0.30000000000000004",
            "123456789.123456",
            "0e5",
            "00000000.0",
            "1e22",
        ] {
            assert_eq!(inexact_number(fits), None, "{fits}");
        }
        for other in [
            "18446744073709551616",
            "1e400",
            "1e-400",
            "0.12345678901234567890123",
            "123456789.1234567891",
            "3.141592653589793238",
            "1.00000000000000000001",
        ] {
            assert_eq!(inexact_number(other), Some(other));
        }
        assert_eq!(
            quote_inexact(r#"[1,3.141592653589793238,"18446744073709551616",18446744073709551616]"#),
            r#"[1,"3.141592653589793238","18446744073709551616","18446744073709551616"]"#
        );
        assert!(matches!(quote_inexact("[1,2.5]"), Cow::Borrowed(_)));
        let quoted = r#"{"99999999999999999999":"\"99999999999999999999","b":1}"#;
        assert_eq!(inexact_number(quoted), None);
        let wide = r#"{"a":[1,-9223372036854775809],"b":18446744073709551616}"#;
        assert_eq!(inexact_number(wide), Some("-9223372036854775809"));
    }

    proptest! {
        #[test]
        fn no_number_that_passes_is_changed(number in "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?") {
            if inexact_number(&number).is_none() {
                let value: Value = serde_json::from_str(&number).unwrap();
                prop_assert_eq!(decimal(&to_text(&value)), decimal(&number));
            }
        }

        #[test]
        fn every_double_passes(value in any::<f64>()) {
            let text = to_text(&value);
            prop_assert_eq!(inexact_number(&text), None, "{}", text);
        }
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
        fn such_a_number_is_found_wherever_it_stands(before in 0usize..200, after in 0usize..200) {
            for number in ["1e400", "1234567890123456789012"] {
                let text = format!("{}{number}{}", " ".repeat(before), " ".repeat(after));
                prop_assert_eq!(inexact_number(&text), Some(number));
            }
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
