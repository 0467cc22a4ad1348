//! A walk over a text that may not be JSON (RFC 8259): whatever is stepped over is checked, once and without being
//! built. Where it does not take a text for JSON the parser is to be asked, whose message is told.

/// This is no JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJson;

/// What a walk tells of on its way. A level is how many objects and lists are open around a value.
pub trait Notes<'a> {
    /// An object or a list begins.
    fn opened(&mut self, _at: usize, _level: usize) {}
    /// It ends before this place.
    fn closed(&mut self, _end: usize, _level: usize) {}
    /// A text that is a value stood from here to there, quotes included.
    fn text(&mut self, _at: usize, _end: usize, _level: usize) {}
    /// The name of a member was passed.
    fn name(&mut self) {}
    /// A number stood here.
    fn number(&mut self, _at: usize, _digits: &'a str) {}
}

/// Nothing is to be told.
impl Notes<'_> for () {}

/// Words of eight bytes that are looked at before `memchr` is called: most names and many texts end within them.
const NEAR_WORDS: usize = 2;

/// Where the next quote or backslash (or, where `CONTROL`, control character) stands from `from` on, else the end.
/// Texts are most of what a reply weighs, so they are looked at in words and blocks.
pub fn special<const CONTROL: bool>(bytes: &[u8], from: usize) -> usize {
    let mut rest = bytes.get(from..).unwrap_or_default();
    let mut at = from;
    for _ in 0..NEAR_WORDS {
        let Some((word, behind)) = rest.split_first_chunk() else { break };
        if let Some(found) = special_in::<CONTROL>(u64::from_le_bytes(*word)) {
            return at + found;
        }
        (at, rest) = (at + word.len(), behind);
    }
    let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    let passed = rest.get(..end).unwrap_or_default();
    // The least byte of all is found in few steps; where the control character stands matters only if there is one.
    let clean = !CONTROL || least(passed) >= b' ';
    let control = if clean { None } else { passed.iter().position(|b| *b < b' ') };
    at + control.unwrap_or(end)
}

/// The least byte, found in blocks.
fn least(bytes: &[u8]) -> u8 {
    bytes.iter().fold(u8::MAX, |least, b| least.min(*b))
}

/// The same within eight bytes, the first of them lowest. A byte below another is told by the borrow that it takes
/// (Hacker's Delight, chapter 6); a borrow can also mark bytes behind the first that is found, which no one looks at.
fn special_in<const CONTROL: bool>(word: u64) -> Option<usize> {
    const EACH: u64 = u64::MAX / 255;
    let below = |word: u64, limit: u64| word.wrapping_sub(EACH * limit) & !word & (EACH * 0x80);
    let is = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    let mut found = is(b'"') | is(b'\\');
    if CONTROL {
        found |= below(word, u64::from(b' '));
    }
    (found != 0).then(|| usize::try_from(found.trailing_zeros() / 8).unwrap_or_default())
}

/// A cursor over text that is checked as it goes.
#[derive(Debug)]
pub struct Walk<'a, N = ()> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Whether a control character stands anywhere: space between values, as a rule, or a fault in a text. Most
    /// replies have none, which is seen at once, and then none is looked for in each text.
    has_controls: bool,
    /// The closing bytes of what is open: one byte a level, so that no text makes this larger than itself.
    open: Vec<u8>,
    notes: N,
}

impl<'a> Walk<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a str) -> Self {
        Self::noting(text, ())
    }
}

impl<'a, N: Notes<'a>> Walk<'a, N> {
    /// The same with somebody who is told of what is passed.
    pub fn noting(text: &'a str, notes: N) -> Self {
        let has_controls = least(text.as_bytes()) < b' ';
        Self { text, bytes: text.as_bytes(), at: 0, has_controls, open: Vec::new(), notes }
    }

    /// Who was told, once all is passed.
    pub fn into_notes(self) -> N {
        self.notes
    }

    /// The next byte that is not whitespace; 0 at the end.
    pub fn peek(&mut self) -> u8 {
        loop {
            match self.byte() {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return byte,
            }
        }
    }

    /// Goes through the members of an object: `member` has the name of each, with its quotes, and steps over its value.
    pub fn members<E: From<NotJson>>(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut more = self.enters(b'}');
        while more {
            let name = self.name()?;
            member(self, name)?;
            more = self.more(b'}')?;
        }
        Ok(())
    }

    /// Goes through the elements of a list: `element` has the number of each and steps over it.
    pub fn elements<E: From<NotJson>>(
        &mut self,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut more, mut at) = (self.enters(b']'), 0);
        while more {
            element(self, at)?;
            at += 1;
            more = self.more(b']')?;
        }
        Ok(())
    }

    /// Steps over the bracket of an object or a list; whether anything stands in it. If not, it is stepped over.
    fn enters(&mut self, close: u8) -> bool {
        self.at += 1;
        let empty = self.peek() == close;
        self.at += usize::from(empty);
        !empty
    }

    /// After a member or an element: steps over the comma, or over the closing byte and says that it was the last.
    fn more(&mut self, close: u8) -> Result<bool, NotJson> {
        let next = self.peek();
        self.at += 1;
        if next == b',' || next == close { Ok(next == b',') } else { Err(NotJson) }
    }

    /// The name of a member with its quotes, stepping over its colon too.
    fn name(&mut self) -> Result<&'a str, NotJson> {
        self.peek();
        let start = self.at;
        let end = self.pass_name()?;
        Ok(self.text.get(start..end).unwrap_or_default())
    }

    /// Steps over a whole value and gives its text.
    pub fn skip(&mut self) -> Result<&'a str, NotJson> {
        self.peek();
        let start = self.at;
        self.pass()?;
        Ok(self.since(start))
    }

    /// Nothing but space follows.
    pub fn end(&mut self) -> Result<(), NotJson> {
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
                        self.pass_name()?;
                        continue;
                    }
                }
                b'[' => {
                    self.open(b']');
                    if self.peek() != b']' {
                        continue;
                    }
                }
                b'"' => {
                    let start = self.at;
                    self.string()?;
                    self.notes.text(start, self.at, self.open.len());
                }
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
                self.pass_name()?;
            }
            return Ok(false);
        }
    }

    /// Steps over a name and its colon; where the name ends.
    fn pass_name(&mut self) -> Result<usize, NotJson> {
        if self.peek() != b'"' {
            return Err(NotJson);
        }
        self.string()?;
        self.notes.name();
        let end = self.at;
        let colon = self.peek() == b':';
        self.at += 1;
        if colon { Ok(end) } else { Err(NotJson) }
    }

    fn open(&mut self, close: u8) {
        self.notes.opened(self.at, self.open.len());
        self.open.push(close);
        self.at += 1;
    }

    fn close(&mut self) {
        self.at += 1;
        self.open.pop();
        self.notes.closed(self.at, self.open.len());
    }

    fn string(&mut self) -> Result<(), NotJson> {
        self.at += 1;
        loop {
            self.at = if self.has_controls {
                special::<true>(self.bytes, self.at)
            } else {
                special::<false>(self.bytes, self.at)
            };
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
        let start = self.at;
        self.at += usize::from(self.byte() == b'-');
        let leading_zero = self.byte() == b'0';
        let whole = self.at;
        self.digits()?;
        if leading_zero && self.at > whole + 1 {
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
        self.notes.number(start, self.since(start));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agrees(text: &str) {
        let mut walk = Walk::new(text);
        let ours = walk.skip().is_ok() && walk.end().is_ok();
        let parsers = serde_json::from_str::<serde::de::IgnoredAny>(text);
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

    #[test]
    fn quotes_escapes_and_controls_are_found_at_every_distance() {
        for len in 0..100 {
            for end in ["\"", "\\", "\u{1f}", "\u{0}", ""] {
                let text = format!("\u{e9}{}{end}#\"\\\n", "!#[]^\u{7f}".repeat(20).get(..len).unwrap());
                let quote = text.bytes().position(|b| b == b'"' || b == b'\\');
                let any = text.bytes().position(|b| b == b'"' || b == b'\\' || b < b' ');
                assert_eq!(Some(special::<false>(text.as_bytes(), 0)), quote, "{text}");
                assert_eq!(Some(special::<true>(text.as_bytes(), 0)), any, "{text}");
            }
        }
        assert_eq!(
            (special::<true>(b"abc", 1), special::<true>(b"", 0), special::<true>(b"a", 9)),
            (3, 0, 9)
        );
    }

    proptest! {
        #[test]
        fn they_are_found_among_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80), from in 0usize..90) {
            let first = |is: fn(&u8) -> bool| {
                bytes.iter().skip(from).position(is).map_or(bytes.len().max(from), |at| from + at)
            };
            prop_assert_eq!(special::<false>(&bytes, from), first(|b| matches!(b, b'"' | b'\\')));
            prop_assert_eq!(special::<true>(&bytes, from), first(|b| matches!(b, b'"' | b'\\' | 0..=31)));
        }
    }
}
