//! What can be read in one way only: numbers that no reader changes, objects that name no member twice.

use std::borrow::Cow;

use serde_json::Value;

use super::walk::{Notes, Walk};
use super::{JsonError, cut, parse, parse_text};

/// Bytes of a number without a power of ten that any double gives back: its digits are fifteen at most.
const SURE_BYTES: usize = 15;

/// A text, bounded already, of what is judged before it is sent on: nothing in it may be read in two ways. Numbers are
/// exact, and no object names a member twice.
pub fn parse_exact(text: &str) -> Result<Value, JsonError> {
    let value = parse_text(text)?;
    let Numbers { inexact, names } = numbers(text);
    if let Some((_, number)) = inexact.first() {
        return Err(JsonError::Inexact(cut(number, 80).to_owned()));
    }
    if names == members(&value) { Ok(value) } else { Err(JsonError::Repeated) }
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

/// Members of all objects in a value.
fn members(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(members).sum::<usize>(),
        Value::Array(items) => items.iter().map(members).sum(),
        _ => 0,
    }
}

/// The first number of a JSON text that would become another one as a value: an integer that no 64-bit type
/// holds, or a decimal with more digits than its nearest double can give back (RFC 8259 §6 warns of both).
pub fn inexact_number(text: &str) -> Option<&str> {
    numbers(text).inexact.first().map(|(_, number)| *number)
}

/// A JSON text in which such numbers stand as texts, digit for digit: for places that write numbers as texts anyway.
pub fn quote_inexact(text: &str) -> Cow<'_, str> {
    let (mut out, mut from) = (String::new(), 0);
    for (at, number) in numbers(text).inexact {
        out.push_str(text.get(from..at).unwrap_or_default());
        out.push('"');
        out.push_str(number);
        out.push('"');
        from = at + number.len();
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(out)
}

/// What a walk over a text tells of its numbers and members. What is no JSON is walked over up to its fault.
#[derive(Default)]
struct Numbers<'a> {
    /// The numbers that would become others, each with its place.
    inexact: Vec<(usize, &'a str)>,
    /// Members of all objects, as written.
    names: usize,
}

impl<'a> Notes<'a> for Numbers<'a> {
    fn name(&mut self) {
        self.names += 1;
    }

    fn number(&mut self, at: usize, digits: &'a str) {
        if !is_exact(digits) {
            self.inexact.push((at, digits));
        }
    }
}

fn numbers(text: &str) -> Numbers<'_> {
    let mut walk = Walk::noting(text, Numbers::default());
    // Who has a text that is no JSON hears of it from the parser.
    walk.skip().ok();
    walk.into_notes()
}

/// Whether a number comes back from a value as the same decimal, however it is written.
fn is_exact(number: &str) -> bool {
    let plain = !number.contains(['e', 'E']);
    if plain && number.len() <= SURE_BYTES {
        return true;
    }
    if plain && !number.contains('.') {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::to_text;

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

        #[test]
        fn such_a_number_is_found_wherever_it_stands(before in 0usize..200, after in 0usize..200) {
            for number in ["1e400", "1234567890123456789012"] {
                let text = format!("{}{number}{}", " ".repeat(before), " ".repeat(after));
                prop_assert_eq!(inexact_number(&text), Some(number));
            }
        }
    }
}
