//! The text behind views: where its larger objects and lists end is found once, so that going down into it
//! never walks over the same bytes level by level.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::accept;
use super::scan::{self, Scan};
use super::seen::Seen;

/// Bytes of a text that views can be over, because places in it are kept in 32 bits. Far above what is read
/// of any upstream.
pub(super) const VIEW_BYTES_MAX: usize = 1 << 30;
/// Bytes of a value inside of which many others may be remembered.
const LEAP_BYTES: u32 = 1_024;
/// Members from which an object is looked up by a sorted order instead of one after the other.
const ORDERED_FROM: usize = 128;

/// Space around JSON.
const SPACE: [char; 4] = [' ', '\n', '\r', '\t'];

/// A part of a document, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// From one place to another.
    pub(super) fn of(start: usize, end: usize) -> Self {
        Self { start: narrow(start), end: narrow(end) }
    }

    /// The same up to another place.
    pub(super) fn until(self, end: usize) -> Self {
        Self { end: narrow(end), ..self }
    }

    /// Its bytes.
    pub(super) fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }
}

/// Accepted JSON, shared by all views over it.
#[derive(Debug)]
pub(super) struct Document {
    text: Arc<str>,
    /// Values of some size, in the order of their beginnings.
    extents: Vec<Span>,
    /// Members of the object looked at last: records are alike.
    members: AtomicUsize,
    /// Where the secrets in it are noted that a script is handed.
    seen: Option<Seen>,
}

/// What stands in an object or a list. `V` is what its owner keeps beside a child that was looked at.
#[derive(Debug)]
pub(super) enum Index<V> {
    Object(Members<V>),
    List(Elements<V>),
    Scalar,
}

/// The members of an object in the order of the text.
#[derive(Debug)]
pub(super) struct Members<V> {
    found: Vec<Member<V>>,
    /// Their numbers by name, where there are many.
    order: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Member<V> {
    /// Between its quotes.
    key: Span,
    pub(super) value: Span,
    pub(super) kept: OnceLock<V>,
}

/// The elements of a list.
#[derive(Debug)]
pub(super) struct Elements<V> {
    pub(super) found: Vec<Span>,
    /// Made when the first of them is kept: most lists hold plain values.
    kept: OnceLock<Vec<OnceLock<V>>>,
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn wide(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl Document {
    /// Over a text of at most [`VIEW_BYTES_MAX`] bytes; `Err` says why it is no JSON.
    pub(super) fn new(text: &str, seen: Option<&Seen>) -> Result<Self, String> {
        if text.len() > VIEW_BYTES_MAX {
            return Err(format!("{} bytes are more than a script can look at", text.len()));
        }
        let extents = match accept::extents(text) {
            Ok(extents) => extents,
            Err(_) => scan::valid(text).map(|()| Vec::new())?,
        };
        Ok(Self { text: Arc::from(text), extents, members: AtomicUsize::new(8), seen: seen.cloned() })
    }

    /// Where secrets are noted, if anywhere.
    pub(super) fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    /// All of it, without the space around it.
    pub(super) fn whole(&self) -> Span {
        let start = self.text.len() - self.text.trim_start_matches(SPACE).len();
        Span::of(start, self.text.trim_end_matches(SPACE).len())
    }

    /// The text of a part.
    pub(super) fn text(&self, part: Span) -> &str {
        self.text.get(wide(part.start)..wide(part.end)).unwrap_or_default()
    }

    /// Steps over a value. `next` is the first extent that may begin here: what stands in one collection is
    /// passed in order, so that each is looked at once.
    fn child(&self, scan: &mut Scan<'_>, next: &mut usize) -> Span {
        scan.peek();
        let start = scan.position();
        let begins = |extent: &Span| wide(extent.start);
        while self.extents.get(*next).is_some_and(|extent| begins(extent) < start) {
            *next += 1;
        }
        match self.extents.get(*next).filter(|extent| begins(extent) == start) {
            Some(extent) => {
                let extent = *extent;
                scan.go_to(wide(extent.end));
                *next += 1;
                // What is remembered inside of it is passed over in one step.
                if extent.len() >= LEAP_BYTES {
                    *next += self
                        .extents
                        .get(*next..)
                        .unwrap_or_default()
                        .partition_point(|e| e.start < extent.end);
                }
                extent
            }
            None => {
                scan.skip();
                Span::of(start, scan.position())
            }
        }
    }

    /// What stands directly in a part.
    pub(super) fn index<V>(&self, part: Span) -> Index<V> {
        let mut scan = Scan::at(&self.text, wide(part.start));
        // The first inside: the part itself may be one.
        let mut next = self.extents.partition_point(|extent| extent.start <= part.start);
        match scan.peek() {
            b'{' => Index::Object(self.members(&mut scan, &mut next)),
            b'[' => {
                scan.step();
                let mut found = Vec::new();
                let mut open = !scan.closes(b']');
                while open {
                    found.push(self.child(&mut scan, &mut next));
                    open = scan.more(b']');
                }
                Index::List(Elements { found, kept: OnceLock::new() })
            }
            _ => Index::Scalar,
        }
    }

    fn members<V>(&self, scan: &mut Scan<'_>, next: &mut usize) -> Members<V> {
        scan.step();
        let mut found = Vec::with_capacity(self.members.load(Ordering::Relaxed));
        let mut open = !scan.closes(b'}');
        while open {
            scan.peek();
            let start = narrow(scan.position());
            let len = narrow(scan.key().len());
            let key = Span { start: start + 1, end: (start + len).saturating_sub(1) };
            found.push(Member { key, value: self.child(scan, next), kept: OnceLock::new() });
            open = scan.more(b'}');
        }
        self.members.store(found.len().min(ORDERED_FROM), Ordering::Relaxed);
        let mut members = Members { found, order: Vec::new() };
        if members.found.len() >= ORDERED_FROM {
            let mut named: Vec<_> = members.found.iter().map(|m| self.name(m)).zip(0u32..).collect();
            named.sort();
            let order = named.into_iter().map(|(_, at)| at).collect();
            members.order = order;
        }
        members
    }

    /// The name of a member as it is meant.
    pub(super) fn name<V>(&self, member: &Member<V>) -> std::borrow::Cow<'_, str> {
        let raw = self.text(member.key);
        if !raw.contains('\\') {
            return std::borrow::Cow::Borrowed(raw);
        }
        let quoted = Span { start: member.key.start - 1, end: member.key.end + 1 };
        // A lone surrogate has no text: it keeps its escapes.
        scan::decode(self.text(quoted)).unwrap_or(std::borrow::Cow::Borrowed(raw))
    }
}

impl<V> Members<V> {
    /// All of them.
    pub(super) fn all(&self) -> &[Member<V>] {
        &self.found
    }

    /// A member by name; the last of several counts.
    pub(super) fn named(&self, document: &Document, name: &str) -> Option<&Member<V>> {
        if self.order.is_empty() {
            let is_it = |member: &&Member<V>| {
                let raw = document.text.as_bytes().get(wide(member.key.start)..wide(member.key.end));
                let raw = raw.unwrap_or_default();
                raw == name.as_bytes() || (raw.contains(&b'\\') && document.name(member) == name)
            };
            return self.found.iter().rev().find(is_it);
        }
        let member = |at: &u32| self.found.get(wide(*at));
        let before = |at: &u32| member(at).is_some_and(|m| *document.name(m) <= *name);
        let last = self.order.partition_point(before).checked_sub(1)?;
        self.order.get(last).and_then(member).filter(|m| document.name(m) == name)
    }
}

impl<V> Elements<V> {
    /// Where what belongs to an element is kept.
    pub(super) fn kept(&self, at: usize) -> Option<&OnceLock<V>> {
        let make = || std::iter::repeat_with(OnceLock::new).take(self.found.len()).collect();
        self.kept.get_or_init(make).get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document::new(text, None).unwrap()
    }

    #[test]
    fn ends_of_large_parts_are_remembered_and_small_ones_are_not() {
        let long = "x".repeat(300);
        let text = format!(r#" {{"a":{{"s":[1,[2]],"t":"]}}\"{long}"}},"b":[{{}},["{long}"]]}} "#);
        let d = document(&text);
        let parts: Vec<&str> = d.extents.iter().map(|e| d.text(*e)).collect();
        assert_eq!(parts.len(), 6, "{parts:?}");
        assert_eq!(parts[0], text.trim());
        assert_eq!(parts[1], format!(r#"{{"s":[1,[2]],"t":"]}}\"{long}"}}"#));
        assert_eq!(parts[2], format!(r#""]}}\"{long}""#));
        assert_eq!(parts[3], format!(r#"[{{}},["{long}"]]"#));
        assert_eq!(parts[4], format!(r#"["{long}"]"#));
        assert_eq!(parts[5], format!(r#""{long}""#));
        assert_eq!(d.text(d.whole()), text.trim());
    }

    #[test]
    fn what_is_remembered_is_smaller_than_the_text() {
        let deep = format!("{}{}{}", "[".repeat(100), "1,".repeat(400) + "1", "]".repeat(100));
        let many = format!("[{}1]", format!("{deep},").repeat(50));
        let d = document(&many);
        assert!(d.extents.len() * size_of::<Span>() < many.len(), "{}", d.extents.len());
        let Index::<()>::List(list) = d.index(d.whole()) else { panic!("a list") };
        assert_eq!(list.found.len(), 51);
        assert!(list.found.iter().take(50).all(|e| d.text(*e) == deep));
    }

    fn walk(d: &Document, part: Span, out: &mut Vec<String>) {
        out.push(d.text(part).to_owned());
        match d.index::<()>(part) {
            Index::Object(members) => members.all().iter().for_each(|m| {
                out.push(d.name(m).into_owned());
                walk(d, m.value, out);
            }),
            Index::List(items) => items.found.iter().for_each(|e| walk(d, *e, out)),
            Index::Scalar => {}
        }
    }

    #[test]
    fn the_same_is_found_with_and_without_extents() {
        let big = |n: usize| {
            format!(
                r#"{{"k":[{}],"t":"{}","o":{{"x":{{"y":[1,2,"{}"]}}}}}}"#,
                "7,".repeat(n) + "7",
                "z".repeat(n),
                "w".repeat(90)
            )
        };
        let text = format!(
            r#"[{},{},"{}",3, {} , {{"a":{},"b":1}}]"#,
            big(3),
            big(400),
            "s".repeat(70),
            big(60),
            big(500)
        );
        let with = document(&text);
        let without = Document { extents: Vec::new(), ..document(&text) };
        assert!(with.extents.len() > 8);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        walk(&with, with.whole(), &mut a);
        walk(&without, without.whole(), &mut b);
        assert_eq!(a, b);
    }

    #[test]
    fn members_of_a_large_object_are_found_by_name_and_the_last_counts() {
        let members: Vec<String> = (0..500).map(|n| format!(r#""k{n}":{n}"#)).collect();
        let d = document(&format!(r#"{{{},"k\u0037":"seven","k10":"ten"}}"#, members.join(",")));
        let Index::<()>::Object(all) = d.index(d.whole()) else { panic!("an object") };
        let of = |name: &str| all.named(&d, name).map(|m| d.text(m.value));
        assert_eq!((of("k499"), of("k0")), (Some("499"), Some("0")));
        assert_eq!((of("k10"), of("k7")), (Some("\"ten\""), Some("\"seven\"")));
        assert_eq!((of("k"), of("k500"), of("z")), (None, None, None));
    }
}
