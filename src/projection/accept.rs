//! One walk over a text that accepts it as JSON and remembers where its larger values end. What this walk does not
//! accept is given to the parser, whose word counts and whose message is told.

use super::document::Span;
use super::scan::special;

/// Bytes from which the end of a value is remembered: a smaller one is walked over in less time than it is
/// looked up.
const EXTENT_BYTES: u32 = 64;
/// Levels below which no end is remembered: what is remembered stays smaller than the text itself.
const EXTENT_DEPTH: usize = 8;

/// The larger values of a JSON text in the order of their beginnings; `None` where this walk does not take it for
/// JSON (RFC 8259).
pub(super) fn extents(text: &str) -> Option<Vec<Span>> {
    let mut walk = Walk { bytes: text.as_bytes(), at: 0, open: Vec::new(), found: Vec::new() };
    walk.document()?;
    Some(walk.found)
}

/// An object or a list that is not closed yet.
struct Open {
    close: u8,
    /// Its place among what was found, where it is remembered.
    slot: Option<usize>,
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    open: Vec<Open>,
    found: Vec<Span>,
}

impl Walk<'_> {
    fn byte(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.byte()
    }

    fn document(&mut self) -> Option<()> {
        loop {
            match self.space() {
                b'{' => {
                    self.enter(b'}');
                    if self.space() != b'}' {
                        self.key()?;
                        continue;
                    }
                }
                b'[' => {
                    self.enter(b']');
                    if self.space() != b']' {
                        continue;
                    }
                }
                b'"' => self.text_value()?,
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => self.number()?,
            }
            if self.after_value()? {
                return Some(());
            }
        }
    }

    /// Closes what ends here; whether that was all.
    fn after_value(&mut self) -> Option<bool> {
        loop {
            let next = self.space();
            let Some(close) = self.open.last().map(|open| open.close) else {
                return (self.at == self.bytes.len()).then_some(true);
            };
            if next == close {
                self.leave();
                continue;
            }
            if next != b',' {
                return None;
            }
            self.at += 1;
            if close == b'}' {
                self.key()?;
            }
            return Some(false);
        }
    }

    fn enter(&mut self, close: u8) {
        let remembered = self.open.len() < EXTENT_DEPTH;
        self.open.push(Open { close, slot: remembered.then_some(self.found.len()) });
        if remembered {
            self.found.push(Span::of(self.at, self.at));
        }
        self.at += 1;
    }

    fn leave(&mut self) {
        self.at += 1;
        let Some(slot) = self.open.pop().and_then(|open| open.slot) else { return };
        let Some(span) = self.found.get_mut(slot) else { return };
        *span = span.until(self.at);
        // Whatever stood inside was smaller still and is gone.
        if span.len() < EXTENT_BYTES {
            self.found.truncate(slot);
        }
    }

    /// A name with its colon.
    fn key(&mut self) -> Option<()> {
        if self.space() != b'"' {
            return None;
        }
        self.text()?;
        let colon = self.space() == b':';
        self.at += 1;
        colon.then_some(())
    }

    fn text_value(&mut self) -> Option<()> {
        let start = self.at;
        self.text()?;
        let span = Span::of(start, self.at);
        if span.len() >= EXTENT_BYTES && self.open.len() <= EXTENT_DEPTH {
            self.found.push(span);
        }
        Some(())
    }

    fn text(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.at = special::<true>(self.bytes, self.at);
            match self.byte() {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => {
                    let hex = |b: &u8| b.is_ascii_hexdigit();
                    match self.bytes.get(self.at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                        b'u' if self.bytes.get(self.at + 2..self.at + 6)?.iter().all(hex) => self.at += 6,
                        _ => return None,
                    }
                }
                // A control character, or the end.
                _ => return None,
            }
        }
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        let is_it = self.bytes.get(self.at..)?.starts_with(word);
        self.at += word.len();
        is_it.then_some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.byte().is_ascii_digit() {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        self.at += usize::from(self.byte() == b'-');
        let leading_zero = self.byte() == b'0';
        let start = self.at;
        self.digits()?;
        if leading_zero && self.at > start + 1 {
            return None;
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
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::projection::scan;

    fn agrees(text: &str) {
        let (ours, parsers) = (extents(text).is_some(), scan::valid(text));
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
