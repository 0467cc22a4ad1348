//! What does not fit into a result and is kept aside: who names it, how the result tells of it, and the
//! parts of it that are read later. Pure: storing it is the gateway's part.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

use super::scan;
use super::scrub;
use crate::json::{self as bounded, JsonText};

/// Where a kept result is found as a resource.
pub const RESULT_URI: &str = "docent://results/";
/// The member of a result's `_meta` that tells of what was kept.
pub const RESULT_META: &str = "dev.docent/result";
/// Members or elements that a part names as too large for an answer.
const TOO_LARGE_MAX: usize = 20;

/// That what is left out of a result may be kept, and how its reader comes to it. One per call: the id is
/// made when it is first needed.
#[derive(Clone)]
pub struct Keeping(Arc<State>);

struct State {
    reader: Arc<str>,
    bytes_max: usize,
    life: Duration,
    mint: fn() -> Arc<str>,
    id: OnceLock<Arc<str>>,
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").field("bytes_max", &self.0.bytes_max).finish_non_exhaustive()
    }
}

/// The whole of a result of which a part is shown.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The id under which it is to be kept.
    pub id: Arc<str>,
    /// The whole: an object or list as it would have been shown, a text as a JSON string.
    pub json: JsonText,
    /// Whether nothing at all is missing; a text of more than the ceiling keeps its beginning.
    pub is_whole: bool,
    /// Whether it is the `data` of an envelope (and not the result itself).
    pub is_data: bool,
}

impl Keeping {
    /// `reader` is the name of the tool that reads kept results, `life` how long they are kept, `mint` makes
    /// an id that nobody guesses.
    pub fn new(reader: Arc<str>, bytes_max: usize, life: Duration, mint: fn() -> Arc<str>) -> Self {
        Self(Arc::new(State { reader, bytes_max, life, mint, id: OnceLock::new() }))
    }

    /// Bytes of one kept result at most.
    pub(super) fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    fn id(&self) -> &Arc<str> {
        self.0.id.get_or_init(self.0.mint)
    }

    /// Takes JSON aside, scrubbed. `None` where it is too large, or is no JSON once its secrets are gone.
    pub(super) fn take<'t>(&self, text: impl Into<Cow<'t, str>>, is_data: bool) -> Option<Kept> {
        let text = text.into();
        if text.len() > self.0.bytes_max {
            return None;
        }
        let json = JsonText::parse(scrub::scrubbed(text.into_owned())).ok()?;
        Some(Kept { id: Arc::clone(self.id()), json, is_whole: true, is_data })
    }

    /// Takes a text aside, scrubbed, its beginning where it is too large.
    pub(super) fn take_text(&self, text: &str) -> Option<Kept> {
        // Escapes of JSON take room too: control characters six bytes for one, all others at most two.
        let mut max = self.0.bytes_max;
        while max > 0 {
            let quoted = bounded::to_text(&*scrub::cut(text, max));
            if quoted.len() <= self.0.bytes_max {
                let is_whole = text.len() <= max;
                let json = JsonText::parse(quoted).ok()?;
                return Some(Kept { id: Arc::clone(self.id()), json, is_whole, is_data: false });
            }
            max /= 2;
        }
        None
    }

    /// How a result says where the rest is.
    pub(super) fn told(&self, kept: &Kept) -> String {
        let what = if kept.is_whole { "the whole is" } else { "more of it, not all, is" };
        let minutes = self.0.life.as_secs().div_ceil(60);
        format!("{what} kept for {minutes} min: `{}` with result_id `{}`", self.0.reader, kept.id)
    }

    /// The link to it as a content block.
    pub(super) fn link(&self, kept: &Kept) -> Value {
        json!({
            "type": "resource_link",
            "uri": format!("{RESULT_URI}{}", kept.id),
            "name": "whole result",
            "description": self.told(kept),
            "mimeType": "application/json",
            "size": kept.json.len(),
        })
    }

    /// What `_meta` says of it.
    pub(super) fn meta(&self, kept: &Kept) -> Value {
        json!({
            "result_id": kept.id,
            "bytes": kept.json.len(),
            "complete": kept.is_whole,
            "expires_in_seconds": self.0.life.as_secs(),
        })
    }
}

/// A part of a kept result.
#[derive(Debug, Clone)]
pub struct Part {
    /// `object`, `array`, `string`, `number`, `boolean` or `null`: what stands at the path.
    pub kind: &'static str,
    /// Members, elements or bytes of it; 1 for a plain value.
    pub total: usize,
    /// How many of them this part has.
    pub returned: usize,
    /// Where the next part begins.
    pub next: Option<usize>,
    /// The part, as compact JSON of the same kind.
    pub value: JsonText,
    /// Members or elements that alone are larger than an answer: their paths and bytes.
    pub too_large: Vec<(String, usize)>,
}

/// Why there is no part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// The path is no JSON Pointer.
    #[error("`path` is a JSON Pointer (RFC 6901): empty, or beginning with `/`")]
    BadPointer,
    /// Nothing stands there; up to where the path leads, and what there is.
    #[error("nothing stands at this path; up to `{at}` it leads, and there is {there}")]
    Missing {
        /// The longest beginning of the path that leads somewhere.
        at: String,
        /// What stands there, and its members where they are few.
        there: String,
    },
}

/// The JSON at a JSON Pointer, digit for digit as it was kept.
pub fn at<'a>(json: &'a JsonText, path: &str) -> Result<&'a str, PartError> {
    let mut here = json.as_str();
    if path.is_empty() {
        return Ok(here);
    }
    let rest = path.strip_prefix('/').ok_or(PartError::BadPointer)?;
    let mut walked = String::new();
    for token in rest.split('/') {
        let key = bounded::pointer_name(token);
        match child(here, &key) {
            Some(found) => here = found,
            None => return Err(PartError::Missing { at: walked, there: described(here) }),
        }
        walked.push('/');
        walked.push_str(token);
    }
    Ok(here)
}

/// The member or element of that name.
pub(super) fn child<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    match kind(json) {
        // The last of two members of one name counts, as everywhere in JSON.
        "object" => members(json)
            .into_iter()
            .rev()
            .find(|(k, _)| scan::decode(k).is_some_and(|k| k == key))
            .map(|m| m.1),
        "array" => {
            let plain = key == "0" || (!key.starts_with('0') && key.bytes().all(|b| b.is_ascii_digit()));
            let index: usize = plain.then(|| key.parse().ok()).flatten()?;
            super::envelope::elements(json).get(index).copied()
        }
        _ => None,
    }
}

fn described(json: &str) -> String {
    const NAMES_MAX: usize = 20;
    match kind(json) {
        "object" => {
            let members = members(json);
            let names: Vec<&str> = members.iter().take(NAMES_MAX).map(|(k, _)| bounded::cut(k, 60)).collect();
            let more = if members.len() > NAMES_MAX { ", …" } else { "" };
            format!("an object with {}{more}", names.join(", "))
        }
        "array" => format!("a list of {}", super::envelope::elements(json).len()),
        other => format!("a {other}"),
    }
}

fn kind(json: &str) -> &'static str {
    match json.trim_start().bytes().next() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}

/// The members of an object as they stand: names with their quotes, values as text.
pub(super) fn members(object: &str) -> Vec<(&str, &str)> {
    scan::members(object).collect()
}

/// The part of what stands at `path` that begins at member, element or byte `offset`: at most `limit` of
/// them, and as many as fit into `room` bytes.
pub fn part(
    json: &JsonText,
    path: &str,
    offset: usize,
    limit: usize,
    room: usize,
) -> Result<Part, PartError> {
    let here = at(json, path)?;
    let kind = kind(here);
    Ok(match kind {
        "object" => {
            let members = members(here);
            let write = |(key, value): &(&str, &str)| format!("{key}:{value}");
            let name = |(key, _): &(&str, &str)| scan::decode(key).unwrap_or_default().into_owned();
            pieces(kind, &members, (offset, limit, room), path, write, name)
        }
        "array" => {
            let all: Vec<(usize, &str)> = super::envelope::elements(here).into_iter().enumerate().collect();
            let write = |(_, value): &(usize, &str)| (*value).to_owned();
            pieces(kind, &all, (offset, limit, room), path, write, |(at, _)| at.to_string())
        }
        "string" => text(here, offset, limit, room),
        _ => Part {
            kind,
            total: 1,
            returned: 1,
            next: None,
            value: JsonText::parse(here.to_owned()).unwrap_or_else(|_| JsonText::of(&Value::Null)),
            too_large: Vec::new(),
        },
    })
}

/// Members or elements one after the other. One that does not fit ends the part; one that alone is larger
/// than the room is passed over and named.
fn pieces<T>(
    kind: &'static str,
    all: &[T],
    (offset, limit, room): (usize, usize, usize),
    path: &str,
    write: impl Fn(&T) -> String,
    name: impl Fn(&T) -> String,
) -> Part {
    let (open, close) = if kind == "object" { ('{', '}') } else { ('[', ']') };
    let mut out = String::from(open);
    let (mut returned, mut at) = (0, offset.min(all.len()));
    let mut too_large = Vec::new();
    for piece in all.iter().skip(offset).take(limit) {
        let text = write(piece);
        if text.len() + 2 > room {
            // A hole in a list would move what follows: the part ends before it, or consists of it alone.
            if kind == "array" && returned > 0 || too_large.len() >= TOO_LARGE_MAX {
                break;
            }
            let escaped = bounded::pointer_token(&name(piece));
            too_large.push((format!("{path}/{escaped}"), text.len()));
            at += 1;
            if kind == "array" {
                break;
            }
            continue;
        }
        if out.len() + text.len() + 2 > room {
            break;
        }
        if returned > 0 {
            out.push(',');
        }
        out.push_str(&text);
        returned += 1;
        at += 1;
    }
    out.push(close);
    let value = JsonText::parse(out).unwrap_or_else(|_| JsonText::of(&Value::Null));
    Part { kind, total: all.len(), returned, next: (at < all.len()).then_some(at), value, too_large }
}

/// A part of a text: offsets are bytes, moved back to the beginning of a character.
fn text(quoted: &str, offset: usize, limit: usize, room: usize) -> Part {
    let whole = scan::decode(quoted).unwrap_or_default();
    let from = whole.floor_char_boundary(offset);
    let rest = whole.get(from..).unwrap_or_default();
    let mut max = limit.min(room);
    let (shown, value) = loop {
        let mut shown = bounded::cut(rest, max);
        if shown.is_empty() {
            // A limit below one character would never come to an end.
            shown = bounded::cut(rest, rest.chars().next().map_or(0, char::len_utf8));
        }
        let value = bounded::to_text(shown);
        if value.len() <= room || max <= 4 {
            break (shown.len(), value);
        }
        max -= (value.len() - room).max(1).min(max / 2);
    };
    let end = from + shown;
    Part {
        kind: "string",
        total: whole.len(),
        returned: shown,
        next: (end < whole.len()).then_some(end),
        value: JsonText::parse(value).unwrap_or_else(|_| JsonText::of(&Value::Null)),
        too_large: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(value: &Value) -> JsonText {
        JsonText::of(value)
    }

    fn keeping(bytes: usize) -> Keeping {
        Keeping::new(Arc::from("docent_read_result"), bytes, Duration::from_hours(1), || Arc::from("r_1"))
    }

    #[test]
    fn paths_lead_to_what_was_kept_digit_for_digit() {
        let json =
            JsonText::parse(r#"{"a":{"b/c":[1.50,{"~":12345678901234567890123}]},"a2":"x"}"#.to_owned());
        let json = json.unwrap();
        assert_eq!(at(&json, "/a/b~1c/1/~0"), Ok("12345678901234567890123"));
        assert_eq!(at(&json, "/a/b~1c/0"), Ok("1.50"));
        assert_eq!(at(&json, "a"), Err(PartError::BadPointer));
        for wrong in ["/a/b~1c/01", "/a/b~1c/2", "/a/b~1c/-", "/a2/x"] {
            assert!(matches!(at(&json, wrong), Err(PartError::Missing { .. })), "{wrong}");
        }
        let missing = at(&json, "/a/q/r").unwrap_err().to_string();
        assert!(missing.contains("`/a`") && missing.contains("\"b/c\""), "{missing}");
    }

    #[test]
    fn parts_of_a_list_follow_each_other_without_a_gap() {
        let json = kept(&json!({ "items": (0..50).collect::<Vec<_>>() }));
        let (mut seen, mut from) = (Vec::new(), Some(0));
        while let Some(offset) = from {
            let part = part(&json, "/items", offset, 1_000, 30).unwrap();
            assert!(part.value.len() <= 30 && part.returned > 0 && part.total == 50);
            seen.extend(part.value.value().as_array().unwrap().clone());
            from = part.next;
        }
        assert_eq!(Value::from(seen), json!((0..50).collect::<Vec<_>>()));
        let few = part(&json, "/items", 10, 3, 1_000).unwrap();
        assert_eq!((few.value.as_str(), few.next), ("[10,11,12]", Some(13)));
        assert_eq!(part(&json, "/items", 99, 3, 1_000).unwrap().next, None);
    }

    #[test]
    fn what_alone_is_too_large_is_named_with_its_path() {
        let json = kept(&json!({"small": 1, "x/y": "z".repeat(100), "more": true}));
        let one = part(&json, "", 0, 10, 60).unwrap();
        assert_eq!(one.value.as_str(), r#"{"small":1,"more":true}"#);
        assert_eq!(one.too_large, [("/x~1y".to_owned(), 108)]);
        assert_eq!(one.next, None);
        let list = kept(&json!([1, "z".repeat(100), 3]));
        let first = part(&list, "", 0, 10, 60).unwrap();
        assert_eq!((first.value.as_str(), first.next), ("[1]", Some(1)));
        let second = part(&list, "", 1, 10, 60).unwrap();
        assert_eq!((second.value.as_str(), second.next, second.too_large.len()), ("[]", Some(2), 1));
        let inside = part(&list, &second.too_large[0].0, 0, 1_000, 60).unwrap();
        assert_eq!((inside.kind, inside.total, inside.returned), ("string", 100, 58));
    }

    #[test]
    fn a_text_too_large_to_keep_keeps_its_beginning_and_says_so() {
        let small = keeping(50).take_text(&"ab\n".repeat(30)).unwrap();
        assert!(!small.is_whole && small.json.len() <= 50);
        assert!(keeping(50).told(&small).contains("not all"));
        let all = keeping(5_000).take_text("ab").unwrap();
        assert!(all.is_whole && all.json.as_str() == "\"ab\"");
        assert!(keeping(5).take("{\"a\":1}", true).is_none());
    }

    #[test]
    fn secrets_are_not_kept() {
        let text = format!("{{\"a\":\"ghp_{}\"}}", "a1b2c3d4".repeat(8));
        assert!(!keeping(5_000).take(&text, true).unwrap().json.as_str().contains("ghp_"));
        assert!(!keeping(5_000).take_text(&text).unwrap().json.as_str().contains("ghp_"));
    }

    proptest! {
        #[test]
        fn parts_of_any_text_are_the_text(text in "[\\PC\n\"]{0,60}", limit in 1usize..20, room in 16usize..40) {
            let json = kept(&Value::from(text.as_str()));
            let (mut seen, mut from, mut rounds) = (String::new(), Some(0), 0);
            while let Some(offset) = from {
                let part = part(&json, "", offset, limit, room).unwrap();
                prop_assert!(part.value.len() <= room);
                seen.push_str(part.value.value().as_str().unwrap());
                from = part.next;
                rounds += 1;
                prop_assert!(rounds < 500);
            }
            prop_assert_eq!(seen, text);
        }
    }
}
