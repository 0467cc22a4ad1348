//! A walk over a text that may not be JSON (RFC 8259): whatever is stepped over is checked, once and without being
//! built. Where it does not take a text for JSON the parser is asked, whose word counts and whose message is told.

use super::document::Span;
use super::scan::{self, special};

/// Bytes from which the end of a value is remembered: a smaller one is walked over in less time than it is
/// looked up.
const EXTENT_BYTES: u32 = 64;
/// Levels below which no end is remembered: what is remembered stays smaller than the text itself.
const EXTENT_DEPTH: usize = 8;

/// This is no JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotJson;

impl NotJson {
    /// What the parser says of the text.
    pub(super) fn told(self, text: &str) -> String {
        scan::valid(text).err().unwrap_or_else(|| "this is no JSON".to_owned())
    }
}

/// The larger values of a JSON text in the order of their beginnings.
pub(super) fn extents(text: &str) -> Result<Vec<Span>, NotJson> {
    let mut walk = Walk { levels: EXTENT_DEPTH, ..Walk::new(text) };
    walk.pass()?;
    walk.end()?;
    Ok(walk.found)
}

/// A cursor over text that is checked as it goes.
pub(super) struct Walk<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The closing bytes of what is open: one byte a level, so that no text makes this larger than itself.
    open: Vec<u8>,
    /// Levels on which ends are remembered.
    levels: usize,
    /// Their places among what was found.
    slots: Vec<usize>,
    found: Vec<Span>,
}

impl<'a> Walk<'a> {
    /// At the beginning of a text.
    pub(super) fn new(text: &'a str) -> Self {
        let (open, slots, found) = (Vec::new(), Vec::new(), Vec::new());
        Self { text, bytes: text.as_bytes(), at: 0, open, levels: 0, slots, found }
    }

    /// The next byte that is not whitespace; 0 at the end.
    pub(super) fn peek(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.byte()
    }

    /// Steps over the bracket of an object or a list; whether anything stands in it. If not, it is stepped over.
    pub(super) fn enters(&mut self, close: u8) -> bool {
        self.at += 1;
        let empty = self.peek() == close;
        self.at += usize::from(empty);
        !empty
    }

    /// After a member or an element: steps over the comma, or over the closing byte and says that it was the last.
    pub(super) fn more(&mut self, close: u8) -> Result<bool, NotJson> {
        let next = self.peek();
        self.at += 1;
        if next == b',' || next == close { Ok(next == b',') } else { Err(NotJson) }
    }

    /// The name of a member with its quotes, stepping over its colon too.
    pub(super) fn name(&mut self) -> Result<&'a str, NotJson> {
        if self.peek() != b'"' {
            return Err(NotJson);
        }
        let start = self.at;
        self.string()?;
        let name = self.since(start);
        let colon = self.peek() == b':';
        self.at += 1;
        if colon { Ok(name) } else { Err(NotJson) }
    }

    /// Steps over a whole value and gives its text.
    pub(super) fn skip(&mut self) -> Result<&'a str, NotJson> {
        self.peek();
        let start = self.at;
        self.pass()?;
        Ok(self.since(start))
    }

    /// Nothing but space follows.
    pub(super) fn end(&mut self) -> Result<(), NotJson> {
        self.peek();
        if self.at == self.bytes.len() { Ok(()) } else { Err(NotJson) }
    }

    fn byte(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Steps over a value, level by level without recursion.
    fn pass(&mut self) -> Result<(), NotJson> {
        loop {
            match self.peek() {
                b'{' => {
                    self.open(b'}');
                    if self.peek() != b'}' {
                        self.name()?;
                        continue;
                    }
                }
                b'[' => {
                    self.open(b']');
                    if self.peek() != b']' {
                        continue;
                    }
                }
                b'"' => self.text_value()?,
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => self.number()?,
            }
            if self.closes()? {
                return Ok(());
            }
        }
    }

    /// After a value: closes what ends here; whether nothing is open any more.
    fn closes(&mut self) -> Result<bool, NotJson> {
        loop {
            let Some(close) = self.open.last().copied() else { return Ok(true) };
            let next = self.peek();
            if next == close {
                self.close();
                continue;
            }
            if next != b',' {
                return Err(NotJson);
            }
            self.at += 1;
            if close == b'}' {
                self.name()?;
            }
            return Ok(false);
        }
    }

    fn open(&mut self, close: u8) {
        if self.open.len() < self.levels {
            self.slots.push(self.found.len());
            self.found.push(Span::of(self.at, self.at));
        }
        self.open.push(close);
        self.at += 1;
    }

    fn close(&mut self) {
        self.at += 1;
        self.open.pop();
        if self.open.len() >= self.levels {
            return;
        }
        let Some(slot) = self.slots.pop() else { return };
        let Some(span) = self.found.get_mut(slot) else { return };
        *span = span.until(self.at);
        // Whatever stood inside was smaller still and is gone.
        if span.len() < EXTENT_BYTES {
            self.found.truncate(slot);
        }
    }

    fn text_value(&mut self) -> Result<(), NotJson> {
        let start = self.at;
        self.string()?;
        if self.open.len() <= self.levels && self.levels > 0 {
            let span = Span::of(start, self.at);
            if span.len() >= EXTENT_BYTES {
                self.found.push(span);
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), NotJson> {
        self.at += 1;
        loop {
            self.at = special::<true>(self.bytes, self.at);
            match self.byte() {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.at += self.escape().ok_or(NotJson)?,
                // A control character, or the end.
                _ => return Err(NotJson),
            }
        }
    }

    /// Bytes of the escape that begins here.
    fn escape(&self) -> Option<usize> {
        match self.bytes.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
            b'u' => {
                let digits = self.bytes.get(self.at + 2..self.at + 6)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(6)
            }
            _ => None,
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), NotJson> {
        let is_it = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word));
        self.at += word.len();
        if is_it { Ok(()) } else { Err(NotJson) }
    }

    fn digits(&mut self) -> Result<(), NotJson> {
        let start = self.at;
        while self.byte().is_ascii_digit() {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(NotJson) }
    }

    fn number(&mut self) -> Result<(), NotJson> {
        self.at += usize::from(self.byte() == b'-');
        let leading_zero = self.byte() == b'0';
        let start = self.at;
        self.digits()?;
        if leading_zero && self.at > start + 1 {
            return Err(NotJson);
        }
        if self.byte() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), b'+' | b'-'));
            self.digits()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agrees(text: &str) {
        let (ours, parsers) = (extents(text).is_ok(), scan::valid(text));
        assert_eq!(ours, parsers.is_ok(), "{text:?}: {parsers:?}");
    }

    #[test]
    fn what_is_json_is_decided_as_the_parser_decides_it() {
        for text in [
            "",
            " ",
            "null",
            "nul",
            "nulls",
            "true ",
            "tru",
            "\"a\"",
            "\"a",
            "\"\\",
            "\"\\u00e9\"",
            "\"\\u00g9\"",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"a\nb\"",
            "\"a\u{0}b\"",
            "\"\u{7f}\"",
            "-",
            "-1",
            "01",
            "-0",
            "0.5",
            "0.",
            ".5",
            "1e5",
            "1e",
            "1E+",
            "1e-5",
            "+1",
            "1.5e3x",
            "[",
            "[]",
            "[ ]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1,2]",
            "]",
            "{",
            "{}",
            "{ }",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "{a:1}",
            "{\"a\" : [ { } , 1 ] } ",
            "{]",
            "[}",
            "{\"a\":1}{",
            "1 2",
            "[1]]",
            "\u{feff}1",
            "NaN",
            "Infinity",
            "'a'",
            "//1",
            "[1e400]",
            "\u{b}1",
        ] {
            agrees(text);
        }
        let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
        agrees(&deep);
    }

    proptest! {
        #[test]
        fn damaged_json_is_decided_as_the_parser_decides_it(
            text in "[\\[\\]{}\",:0-9eE.+\\-a-f\\\\u \nntr\u{1}é]{0,24}",
            at in 0usize..400,
            put in "[\\[\\]{}\",:\\\\0-9e.\u{1}x ]{0,2}",
        ) {
            agrees(&text);
            let mut whole = format!(
                r#"{{"a":[1,-2.5e3,"x\\\"é{}",true,null,{{}},[]],"b":{{"c":"\u00e9"}}}}"#, "y".repeat(100)
            );
            agrees(&whole);
            let at = whole.floor_char_boundary(at.min(whole.len()));
            whole.insert_str(at, &put);
            agrees(&whole);
            whole.truncate(at);
            agrees(&whole);
        }
    }
}
