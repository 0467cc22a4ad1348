//! An upstream reply as scripts see it: a view over its text. Touching a field finds that field; nothing
//! else is built, and what a script passes on is copied digit for digit.

use std::sync::{Arc, OnceLock};

use super::document::{Document, Index, Member, Span};
use super::scan::{self, Ceilings};
use super::seen::Seen;
use crate::json;
use crate::script::{Array, Dynamic, HostResult, Text, fault};

/// Elements that a script may hold as a list of its own; longer ones are read by `for` or by index.
const LIST_MAX: usize = 1_000;
/// Significant digits that a float holds without fail.
const FLOAT_DIGITS: usize = 15;

/// A value inside a reply. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct View(Arc<Node>);

#[derive(Debug)]
struct Node {
    document: Arc<Document>,
    part: Span,
    /// Its children, found when the first of them is asked for.
    index: OnceLock<Index<View>>,
}

impl View {
    /// A view over a text; `Err` says why it is no JSON.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        Self::watched(text, None)
    }

    /// The same, which notes the secrets that it hands out.
    pub(super) fn watched(text: &str, seen: Option<&Seen>) -> Result<Self, String> {
        let document = Arc::new(Document::new(text, seen)?);
        let part = document.whole();
        Ok(Self::over(document, part))
    }

    /// A value of ours, as scripts see it.
    pub(super) fn of<T: serde::Serialize + ?Sized>(value: &T) -> Dynamic {
        // What was written as JSON a moment ago is JSON.
        Self::new(&json::to_text(value)).map_or(Dynamic::UNIT, |view| view.value())
    }

    fn over(document: Arc<Document>, part: Span) -> Self {
        Self(Arc::new(Node { document, part, index: OnceLock::new() }))
    }

    /// Its JSON as it came.
    pub(super) fn text(&self) -> &str {
        self.0.document.text(self.0.part)
    }

    fn index(&self) -> &Index<Self> {
        self.0.index.get_or_init(|| self.0.document.index(self.0.part))
    }

    /// A member by name; `()` where there is none. The last of two with one name counts.
    pub(super) fn member(&self, name: &str) -> Dynamic {
        let Index::Object(members) = self.index() else { return Dynamic::UNIT };
        let found = members.named(&self.0.document, name);
        found.map_or(Dynamic::UNIT, |member| self.of_member(member, Some(&member.kept)))
    }

    /// Whether a member of that name is there, null or not.
    pub(super) fn has(&self, name: &str) -> bool {
        matches!(self.index(), Index::Object(members) if members.named(&self.0.document, name).is_some())
    }

    /// An element by number, from the end where negative; `()` where there is none.
    pub(super) fn element(&self, at: i64) -> Dynamic {
        let Index::List(items) = self.index() else { return Dynamic::UNIT };
        let from_end = usize::try_from(at.unsigned_abs()).ok().and_then(|n| items.found.len().checked_sub(n));
        let at = if at < 0 { from_end } else { usize::try_from(at).ok() };
        let found = at.and_then(|at| Some((at, *items.found.get(at)?)));
        found.map_or(Dynamic::UNIT, |(at, part)| {
            let nested = self.0.document.text(part).starts_with(['{', '[']);
            self.child(part, if nested { items.kept(at) } else { None })
        })
    }

    /// Members or elements.
    pub(super) fn len(&self) -> usize {
        match self.index() {
            Index::Object(members) => members.all().len(),
            Index::List(items) => items.found.len(),
            Index::Scalar => 0,
        }
    }

    /// Whether it is a list.
    pub(super) fn is_list(&self) -> bool {
        self.text().starts_with('[')
    }

    /// The names of its members.
    pub(super) fn keys(&self) -> Vec<String> {
        let Index::Object(members) = self.index() else { return Vec::new() };
        members.all().iter().map(|member| self.0.document.name(member).into_owned()).collect()
    }

    /// An element, or the value of a member, by number. What was found inside it is not remembered.
    fn nth(&self, at: usize) -> Option<Dynamic> {
        match self.index() {
            Index::Object(members) => Some(self.of_member(members.all().get(at)?, None)),
            Index::List(items) => Some(self.child(*items.found.get(at)?, None)),
            Index::Scalar => None,
        }
    }

    /// Its elements, or the values of its members.
    pub(super) fn values(&self) -> Items {
        Items { of: self.clone(), at: 0 }
    }

    /// The same as a list of the script, for `map`, `filter`, `sort` and the like.
    pub(super) fn to_array(&self) -> HostResult<Array> {
        let len = self.len();
        if len > LIST_MAX {
            return Err(fault(format!(
                "{len} elements are more than the {LIST_MAX} of a script's own list; read them with `for`"
            )));
        }
        Ok(self.values().collect())
    }

    /// Texts, booleans and ordinary numbers as values of the script; everything else stays a view.
    pub(super) fn value(&self) -> Dynamic {
        self.0.document.plain(self.text()).unwrap_or_else(|| Dynamic::from(self.clone()))
    }

    fn of_member(&self, member: &Member<Self>, kept: Option<&OnceLock<Self>>) -> Dynamic {
        let document = &self.0.document;
        // A text only: an object of that name is about secrets, and names them.
        let text = document.text(member.value);
        if let (Some(seen), Some(text)) = (document.seen(), text.strip_prefix('"')) {
            seen.note_member(&document.name(member), text.trim_end_matches('"'));
        }
        self.child(member.value, kept)
    }

    /// The same of a part of it. Its view is kept where that is wanted, with what is found in it.
    fn child(&self, part: Span, kept: Option<&OnceLock<Self>>) -> Dynamic {
        let document = &self.0.document;
        document.plain(document.text(part)).unwrap_or_else(|| {
            let new = || Self::over(Arc::clone(document), part);
            Dynamic::from(kept.map_or_else(new, |kept| kept.get_or_init(new).clone()))
        })
    }

    /// As text: the digits of a number, compact JSON of anything else.
    pub(super) fn shown(&self) -> String {
        let mut out = String::new();
        match scan::copy(self.text(), Ceilings::NONE, &mut out) {
            Ok(_) => {
                self.0.document.note(&out);
                out
            }
            Err(_) => String::new(),
        }
    }
}

impl Document {
    fn note(&self, text: &str) {
        if let Some(seen) = self.seen() {
            seen.note(text);
        }
    }

    /// A value that the script's own types hold exactly.
    fn plain(&self, text: &str) -> Option<Dynamic> {
        Some(match text.as_bytes().first() {
            Some(b'"') => match scan::decode(text) {
                Some(decoded) => {
                    self.note(&decoded);
                    Dynamic::from(Text::from(&*decoded))
                }
                None => Dynamic::UNIT,
            },
            Some(b't') => Dynamic::TRUE,
            Some(b'f') => Dynamic::FALSE,
            Some(b'n') | None => Dynamic::UNIT,
            Some(b'{' | b'[') => return None,
            Some(_) => return number(text),
        })
    }
}

/// A number that the script's own types hold exactly.
fn number(text: &str) -> Option<Dynamic> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Dynamic::from_int(whole));
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).skip_while(|d| *d == b'0').count();
    let value: f64 = text.parse().ok()?;
    (digits <= FLOAT_DIGITS && value.is_finite()).then(|| Dynamic::from_float(value))
}

/// The elements of a view one after the other: each is made when it is asked for and let go after it, so that
/// a loop over many holds one.
#[derive(Debug, Clone)]
pub(super) struct Items {
    of: View,
    at: usize,
}

impl Iterator for Items {
    type Item = Dynamic;

    fn next(&mut self) -> Option<Dynamic> {
        let item = self.of.nth(self.at)?;
        self.at += 1;
        Some(item)
    }
}

impl IntoIterator for View {
    type Item = Dynamic;
    type IntoIter = Items;

    fn into_iter(self) -> Items {
        Items { of: self, at: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str) -> View {
        View::new(text).unwrap()
    }

    #[test]
    fn members_are_found_wherever_they_stand() {
        let v = view(r#" {"a": {"b\"c": [1, "x", {"d": null}]}, "k": 1, "k": 2, "t": true} "#);
        let a = v.member("a").try_cast::<View>().unwrap();
        let list = a.member("b\"c").try_cast::<View>().unwrap();
        assert_eq!((list.len(), list.element(0).as_int().unwrap()), (3, 1));
        assert_eq!(list.element(-2).into_string().unwrap(), "x");
        assert!(
            list.element(7).is_unit()
                && list.element(-4).is_unit()
                && list.element(2).try_cast::<View>().unwrap().has("d")
        );
        assert_eq!(v.member("k").as_int().unwrap(), 2);
        assert!(v.member("none").is_unit() && !v.has("none") && v.has("t"));
        assert_eq!(a.keys(), ["b\"c"]);
        assert_eq!(list.shown(), r#"[1,"x",{"d":null}]"#);
        assert_eq!(view("[1,2]").into_iter().filter_map(|d| d.as_int().ok()).sum::<i64>(), 3);
    }

    #[test]
    fn numbers_that_a_float_would_change_stay_exact() {
        for exact in ["18446744073709551616", "0.1234567890123456789", "1e999"] {
            assert_eq!(view(exact).value().try_cast::<View>().unwrap().shown(), exact);
        }
        assert_eq!(view("-9223372036854775808").value().as_int(), Ok(i64::MIN));
        assert_eq!(view("2.50").value().as_float(), Ok(2.5));
    }
}
