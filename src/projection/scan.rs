//! Walking over JSON text that a parser has already accepted: copying parts of it compactly, digit for
//! digit, within limits on lists, texts and depth. Nothing is built in memory but the output.

use serde::de::IgnoredAny;

use super::scrub;
use crate::json::walk::special;
use crate::json::{self, JsonError};
use crate::limits::{JSON_DEPTH_MAX, RESULT_NESTED};

/// Ends a text that was cut.
pub(super) const ELLIPSIS: &str = "…";

/// What a copy may keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ceilings {
    /// Elements of any list.
    pub(super) nested: usize,
    /// Bytes of any text, its ellipsis included.
    pub(super) text: Option<usize>,
    /// Whether null members of objects are left out.
    pub(super) drop_null: bool,
}

impl Ceilings {
    /// No ceiling: only whitespace goes.
    pub(super) const NONE: Self = Self { nested: usize::MAX, text: None, drop_null: false };
    /// Seed 001's ceiling on lists inside a record.
    pub(super) const RECORD: Self = Self { nested: RESULT_NESTED, text: None, drop_null: false };
}

/// What a copy left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cuts {
    /// Elements of lists beyond the ceiling.
    pub(super) elements: u64,
    /// Texts that were cut.
    pub(super) texts: u64,
}

impl Cuts {
    /// Whether anything was left out.
    pub(super) fn any(self) -> bool {
        self.elements > 0 || self.texts > 0
    }

    /// Adds those of another copy.
    pub(super) fn add(&mut self, other: Self) {
        self.elements += other.elements;
        self.texts += other.texts;
    }
}

/// Checks bytes: UTF-8 and JSON, at parsing speed, without building anything.
pub(super) fn checked(bytes: &[u8]) -> Result<&str, String> {
    let text = json::utf8(bytes).map_err(|e| format!("not UTF-8 at byte {}", e.valid_up_to()))?;
    valid(text)?;
    Ok(text)
}

/// Whether a text is JSON; `Err` says where it is not.
pub(super) fn valid(text: &str) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|e| e.to_string())
}

/// Copies accepted JSON compactly within ceilings.
pub(super) fn copy(text: &str, ceilings: Ceilings, out: &mut String) -> Result<Cuts, JsonError> {
    let mut cuts = Cuts::default();
    Scan::new(text).copy_value(ceilings, out, &mut cuts, 0)?;
    Ok(cuts)
}

/// Decodes a raw JSON string, quotes included; `None` for a lone surrogate, which no text can hold.
pub(super) fn decode(raw: &str) -> Option<std::borrow::Cow<'_, str>> {
    let inner = raw.get(1..raw.len().saturating_sub(1))?;
    if inner.contains('\\') {
        return serde_json::from_str::<String>(raw).ok().map(std::borrow::Cow::Owned);
    }
    Some(std::borrow::Cow::Borrowed(inner))
}

/// Writes a text as a JSON string. Most texts need no escapes and are copied.
pub(super) fn quote(text: &str, out: &mut String) {
    if text.bytes().any(|b| b < b' ' || b == b'"' || b == b'\\') {
        out.push_str(&json::to_text(text));
        return;
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// Writes a text as a JSON string, cut to `max` bytes (before escaping, ellipsis included).
pub(super) fn write_text(text: &str, max: Option<usize>, out: &mut String) -> bool {
    match max {
        Some(max) if text.len() > max => {
            let kept = scrub::cut(text, max.saturating_sub(ELLIPSIS.len()));
            out.push_str(&json::to_text(&format!("{kept}{ELLIPSIS}")));
            true
        }
        _ => {
            quote(text, out);
            false
        }
    }
}

/// The elements of a list as they stand; none of what is no list.
pub(super) fn elements(list: &str) -> impl Iterator<Item = &str> {
    each(list, b'[', b']', Scan::skip)
}

/// The members of an object as they stand, names with their quotes; none of what is no object.
pub(super) fn members(object: &str) -> impl Iterator<Item = (&str, &str)> {
    each(object, b'{', b'}', |scan| (scan.key(), scan.skip()))
}

fn each<'a, T>(
    text: &'a str,
    open: u8,
    close: u8,
    next: impl Fn(&mut Scan<'a>) -> T,
) -> impl Iterator<Item = T> {
    let mut scan = Scan::new(text);
    let mut more = scan.peek() == open;
    if more {
        scan.step();
        more = !scan.closes(close);
    }
    std::iter::from_fn(move || {
        let found = more.then(|| next(&mut scan))?;
        more = scan.more(close);
        Some(found)
    })
}

/// A cursor over accepted JSON.
#[derive(Debug, Clone)]
pub(super) struct Scan<'a> {
    text: &'a str,
    pos: usize,
}

impl<'a> Scan<'a> {
    /// At the beginning of a text.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, pos: 0 }
    }

    /// At a place in a text.
    pub(super) fn at(text: &'a str, pos: usize) -> Self {
        Self { text, pos }
    }

    /// Goes on at a place found before.
    pub(super) fn go_to(&mut self, pos: usize) {
        self.pos = pos;
    }

    /// Bytes walked so far.
    pub(super) fn position(&self) -> usize {
        self.pos
    }

    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.pos).copied().unwrap_or(0)
    }

    /// The next byte that is not whitespace; 0 at the end.
    pub(super) fn peek(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\r' | b'\t') {
            self.pos += 1;
        }
        self.byte()
    }

    /// Steps over one structural byte.
    pub(super) fn step(&mut self) {
        self.pos += 1;
    }

    /// Between members: steps over a comma, or over the closing byte and says that it was the last.
    pub(super) fn more(&mut self, close: u8) -> bool {
        let next = self.peek();
        self.pos += usize::from(next != 0);
        next != close && next != 0
    }

    /// After an opening byte: whether the collection is empty, stepping over its end if so.
    pub(super) fn closes(&mut self, close: u8) -> bool {
        let empty = self.peek() == close;
        self.pos += usize::from(empty);
        empty
    }

    /// A key with its colon.
    pub(super) fn key(&mut self) -> &'a str {
        self.peek();
        let key = self.string();
        self.peek();
        self.step();
        key
    }

    /// A string with its quotes.
    pub(super) fn string(&mut self) -> &'a str {
        let start = self.pos;
        self.pass_string();
        self.text.get(start..self.pos).unwrap_or_default()
    }

    /// Steps over a string.
    fn pass_string(&mut self) {
        let bytes = self.text.as_bytes();
        self.pos += 1;
        loop {
            self.pos = special::<false>(bytes, self.pos);
            match bytes.get(self.pos) {
                Some(b'\\') => self.pos += 2,
                Some(_) => {
                    self.pos += 1;
                    return;
                }
                None => return,
            }
        }
    }

    /// Steps over one string or one other byte and gives its first; 0 at the end, where nothing is left to
    /// step over.
    pub(super) fn next_structure(&mut self) -> u8 {
        let first = self.byte();
        match first {
            b'"' => self.pass_string(),
            _ => self.pos += usize::from(self.pos < self.text.len()),
        }
        first
    }

    /// A number or a literal.
    pub(super) fn scalar(&mut self) -> &'a str {
        let start = self.pos;
        while !matches!(self.byte(), 0 | b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t') {
            self.pos += 1;
        }
        self.text.get(start..self.pos).unwrap_or_default()
    }

    /// Steps over a whole value and gives its text.
    pub(super) fn skip(&mut self) -> &'a str {
        let first = self.peek();
        let start = self.pos;
        match first {
            b'"' => self.pass_string(),
            b'{' | b'[' => self.skip_nested(),
            _ => drop(self.scalar()),
        }
        self.text.get(start..self.pos).unwrap_or_default()
    }

    fn skip_nested(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.next_structure() {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                0 => return,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn copy_value(
        &mut self,
        ceilings: Ceilings,
        out: &mut String,
        cuts: &mut Cuts,
        depth: usize,
    ) -> Result<(), JsonError> {
        if depth > JSON_DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        match self.peek() {
            b'"' => self.copy_text(ceilings.text, out, cuts),
            b'[' => self.copy_list(ceilings, out, cuts, depth)?,
            b'{' => self.copy_object(ceilings, out, cuts, depth)?,
            _ => out.push_str(self.scalar()),
        }
        Ok(())
    }

    fn copy_text(&mut self, max: Option<usize>, out: &mut String, cuts: &mut Cuts) {
        let raw = self.string();
        match max {
            // Escapes only ever make a raw text longer than what it says.
            Some(max) if raw.len() > max.saturating_add(2) => {
                let decoded = decode(raw).unwrap_or_default();
                cuts.texts += u64::from(write_text(&decoded, Some(max), out));
            }
            _ => out.push_str(raw),
        }
    }

    fn copy_list(
        &mut self,
        ceilings: Ceilings,
        out: &mut String,
        cuts: &mut Cuts,
        depth: usize,
    ) -> Result<(), JsonError> {
        self.step();
        out.push('[');
        if !self.closes(b']') {
            let mut kept = 0usize;
            loop {
                if kept < ceilings.nested {
                    if kept > 0 {
                        out.push(',');
                    }
                    self.copy_value(ceilings, out, cuts, depth + 1)?;
                    kept += 1;
                } else {
                    self.skip();
                    cuts.elements += 1;
                }
                if !self.more(b']') {
                    break;
                }
            }
        }
        out.push(']');
        Ok(())
    }

    fn copy_object(
        &mut self,
        ceilings: Ceilings,
        out: &mut String,
        cuts: &mut Cuts,
        depth: usize,
    ) -> Result<(), JsonError> {
        self.step();
        out.push('{');
        let begin = out.len();
        if !self.closes(b'}') {
            loop {
                let key = self.key();
                if ceilings.drop_null && self.peek() == b'n' {
                    self.skip();
                } else {
                    if out.len() > begin {
                        out.push(',');
                    }
                    out.push_str(key);
                    out.push(':');
                    self.copy_value(ceilings, out, cuts, depth + 1)?;
                }
                if !self.more(b'}') {
                    break;
                }
            }
        }
        out.push('}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn copied(text: &str, ceilings: Ceilings) -> (String, Cuts) {
        let mut out = String::new();
        let cuts = copy(checked(text.as_bytes()).unwrap(), ceilings, &mut out).unwrap();
        (out, cuts)
    }

    #[test]
    fn a_copy_is_compact_and_keeps_every_digit() {
        let text = " { \"a\" : [ 1 , 18446744073709551616, 0.10 , \"x \\\" y\" ] , \"b\":{ } ,\"c\" : [ ] }";
        assert_eq!(
            copied(text, Ceilings::NONE).0,
            r#"{"a":[1,18446744073709551616,0.10,"x \" y"],"b":{},"c":[]}"#
        );
    }

    #[test]
    fn ceilings_cut_lists_texts_and_nulls_and_count_them() {
        let ceilings = Ceilings { nested: 2, text: Some(8), drop_null: true };
        let (out, cuts) = copied(r#"{"n":null,"l":[1,2,3,4],"t":"abcdefghij","u":"12345678"}"#, ceilings);
        assert_eq!(out, r#"{"l":[1,2],"t":"abcde…","u":"12345678"}"#);
        assert_eq!(cuts, Cuts { elements: 2, texts: 1 });
        // Four-byte characters are never split, whatever the phase of the cut.
        for pad in 0..4 {
            let text = format!("\"{}{}\"", "a".repeat(pad), "😀".repeat(4));
            let (out, _) = copied(&text, Ceilings { text: Some(12), ..Ceilings::NONE });
            let said: String = serde_json::from_str(&out).unwrap();
            assert!(said.len() <= 12 && said.ends_with(ELLIPSIS), "{said}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        let mut out = String::new();
        assert!(matches!(copy(&deep, Ceilings::NONE, &mut out), Err(JsonError::TooDeep)));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,12}|[\\\\\"\n\t\u{0}]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec(("\\PC{0,6}", inner), 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_copy_says_the_same(value in any_json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let (out, cuts) = copied(&pretty, Ceilings::NONE);
            prop_assert_eq!(out, json::to_text(&value));
            prop_assert_eq!(cuts, Cuts::default());
        }

        #[test]
        fn a_cut_copy_is_json_again(value in any_json(), nested in 0usize..4, text in 8usize..12) {
            let ceilings = Ceilings { nested, text: Some(text), drop_null: true };
            let (out, _) = copied(&json::to_text(&value), ceilings);
            prop_assert!(serde_json::from_str::<Value>(&out).is_ok(), "{}", out);
        }
    }

    #[test]
    fn a_quoted_text_is_what_a_serializer_writes() {
        for text in ["", "plain \u{e9} text \u{7f}", "a\"b", "a\\b", "line\nnext", "\u{1}"] {
            let mut out = String::new();
            quote(text, &mut out);
            assert_eq!(out, json::to_text(text));
        }
    }

    #[test]
    fn skipping_lands_behind_the_value() {
        let mut scan = Scan::new(r#"{"a":"}]\"","b":[{}]} , 7"#);
        assert_eq!(scan.skip(), r#"{"a":"}]\"","b":[{}]}"#);
        assert_eq!(scan.peek(), b',');
        assert_eq!(json!(1).to_string(), "1");
    }
}
