//! An upstream reply as scripts see it: a view over its text. Touching a field finds that field; nothing
//! else is built, and what a script passes on is copied digit for digit.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::scan::{self, Ceilings, Scan};
use crate::script::{Array, Dynamic, HostResult, fault};

/// Elements that a script may hold as a list of its own; longer ones are read by `for` or by index.
const LIST_MAX: usize = 1_000;
/// Significant digits that a float holds without fail.
const FLOAT_DIGITS: usize = 15;

/// A value inside a reply. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct View(Arc<Node>);

#[derive(Debug)]
struct Node {
    document: Arc<str>,
    range: Range<usize>,
    /// Its children, found when the first of them is asked for.
    index: OnceLock<Index>,
}

#[derive(Debug)]
enum Index {
    /// Key (between its quotes) and value.
    Object(Vec<(Range<usize>, View)>),
    List(Vec<View>),
    Scalar,
}

impl View {
    /// A view over accepted JSON.
    pub(super) fn new(document: Arc<str>) -> Self {
        let mut scan = Scan::new(&document);
        let len = scan.skip().len();
        let range = scan.position() - len..scan.position();
        Self::over(document, range)
    }

    fn over(document: Arc<str>, range: Range<usize>) -> Self {
        Self(Arc::new(Node { document, range, index: OnceLock::new() }))
    }

    /// Its JSON as it came.
    pub(super) fn text(&self) -> &str {
        self.0.document.get(self.0.range.clone()).unwrap_or_default()
    }

    fn index(&self) -> &Index {
        self.0.index.get_or_init(|| {
            let base = self.0.range.start;
            let mut scan = Scan::new(self.text());
            let child = |scan: &mut Scan<'_>| {
                let len = scan.skip().len();
                let end = base + scan.position();
                Self::over(Arc::clone(&self.0.document), end - len..end)
            };
            match scan.peek() {
                b'{' => {
                    scan.step();
                    let mut found = Vec::new();
                    let mut open = !scan.closes(b'}');
                    while open {
                        scan.peek();
                        let start = base + scan.position();
                        let key = scan.key();
                        found.push((start + 1..start + key.len().saturating_sub(1), child(&mut scan)));
                        open = scan.more(b'}');
                    }
                    Index::Object(found)
                }
                b'[' => {
                    scan.step();
                    let mut found = Vec::new();
                    let mut open = !scan.closes(b']');
                    while open {
                        found.push(child(&mut scan));
                        open = scan.more(b']');
                    }
                    Index::List(found)
                }
                _ => Index::Scalar,
            }
        })
    }

    fn key_is(&self, at: &Range<usize>, name: &str) -> bool {
        let raw = self.0.document.get(at.clone()).unwrap_or_default();
        raw == name || (raw.contains('\\') && scan::decode(&format!("\"{raw}\"")).is_some_and(|k| k == name))
    }

    /// A member by name; `()` where there is none. The last of two with one name counts.
    pub(super) fn member(&self, name: &str) -> Dynamic {
        match self.index() {
            Index::Object(members) => {
                let found = members.iter().rev().find(|(key, _)| self.key_is(key, name));
                found.map_or(Dynamic::UNIT, |(_, view)| view.value())
            }
            Index::List(_) | Index::Scalar => Dynamic::UNIT,
        }
    }

    /// Whether a member of that name is there, null or not.
    pub(super) fn has(&self, name: &str) -> bool {
        matches!(self.index(), Index::Object(members) if members.iter().any(|(key, _)| self.key_is(key, name)))
    }

    /// An element by number, from the end where negative; `()` where there is none.
    pub(super) fn element(&self, at: i64) -> Dynamic {
        let Index::List(items) = self.index() else { return Dynamic::UNIT };
        let from_end = usize::try_from(at.unsigned_abs()).ok().and_then(|n| items.len().checked_sub(n));
        let at = if at < 0 { from_end } else { usize::try_from(at).ok() };
        at.and_then(|i| items.get(i)).map_or(Dynamic::UNIT, Self::value)
    }

    /// Members or elements.
    pub(super) fn len(&self) -> usize {
        match self.index() {
            Index::Object(members) => members.len(),
            Index::List(items) => items.len(),
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
        let raw = |at: &Range<usize>| format!("\"{}\"", self.0.document.get(at.clone()).unwrap_or_default());
        members
            .iter()
            .filter_map(|(key, _)| scan::decode(&raw(key)).map(std::borrow::Cow::into_owned))
            .collect()
    }

    /// Its elements, or the values of its members.
    pub(super) fn values(&self) -> Vec<Dynamic> {
        match self.index() {
            Index::Object(members) => members.iter().map(|(_, v)| v.value()).collect(),
            Index::List(items) => items.iter().map(Self::value).collect(),
            Index::Scalar => Vec::new(),
        }
    }

    /// The same as a list of the script, for `map`, `filter`, `sort` and the like.
    pub(super) fn to_array(&self) -> HostResult<Array> {
        let len = self.len();
        if len > LIST_MAX {
            return Err(fault(format!(
                "{len} elements are more than the {LIST_MAX} of a script's own list; read them with `for`"
            )));
        }
        Ok(self.values())
    }

    /// Texts, booleans and ordinary numbers as values of the script; everything else stays a view.
    pub(super) fn value(&self) -> Dynamic {
        let text = self.text();
        match text.as_bytes().first() {
            Some(b'"') => scan::decode(text).map_or(Dynamic::UNIT, |t| Dynamic::from(t.into_owned())),
            Some(b't') => Dynamic::TRUE,
            Some(b'f') => Dynamic::FALSE,
            Some(b'n') | None => Dynamic::UNIT,
            Some(b'{' | b'[') => Dynamic::from(self.clone()),
            Some(_) => number(text).unwrap_or_else(|| Dynamic::from(self.clone())),
        }
    }

    /// As text: the digits of a number, compact JSON of anything else.
    pub(super) fn shown(&self) -> String {
        let mut out = String::new();
        match scan::copy(self.text(), Ceilings::NONE, &mut out) {
            Ok(_) => out,
            Err(_) => String::new(),
        }
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

impl IntoIterator for View {
    type Item = Dynamic;
    type IntoIter = std::vec::IntoIter<Dynamic>;

    fn into_iter(self) -> Self::IntoIter {
        self.values().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str) -> View {
        View::new(Arc::from(scan::checked(text.as_bytes()).unwrap()))
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
