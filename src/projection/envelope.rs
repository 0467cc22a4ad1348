//! Writing results: the envelope around data, the page around records, and the budget kept exactly.

use serde_json::{Value, json};

use super::contract::{Enveloped, WARNINGS_MAX};
use super::scan::{self, Cuts, Scan};
use super::seen::Seen;
use super::sink::shrink;
use crate::call::{Omission, ToolError};
use crate::json::{self as bounded, Object};

/// Bytes of one warning: a sentence.
const WARNING_BYTES: usize = 300;

/// What is told beside the data: warnings, whether something was cut, and the receipts.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    warnings: Vec<String>,
    /// Whether anything of the result was left out.
    pub(super) truncated: bool,
    /// The receipts.
    pub(super) omitted: Vec<Omission>,
}

impl Notes {
    /// Adds a warning, once, cut to a sentence; beyond the last place they are counted by the last one.
    pub(super) fn warn(&mut self, text: &str) {
        let text = super::scrub::cut(text, WARNING_BYTES).into_owned();
        if self.warnings.len() < WARNINGS_MAX && !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Notes something that was left out, with a receipt and a warning.
    pub(super) fn omit(&mut self, name: &str, count: Option<u64>, reason: &str, restore_with: &str) {
        self.truncated = true;
        let what = count.map_or_else(|| name.to_owned(), |n| format!("{n} {name}"));
        self.warn(&format!("left out: {what} ({})", reason.replace('_', " ")));
        self.omitted.push(Omission {
            name: name.to_owned(),
            count,
            reason: reason.to_owned(),
            restore_with: restore_with.to_owned(),
        });
    }

    /// Notes what ceilings cut inside records.
    pub(super) fn cuts(&mut self, cuts: Cuts) {
        if cuts.elements > 0 {
            self.omit("list elements", Some(cuts.elements), "limit", "ask for one record");
        }
        if cuts.texts > 0 {
            self.omit("ends of texts", Some(cuts.texts), "limit", "ask for one record");
        }
    }

    /// Takes out of them what a script has seen of secrets.
    pub(super) fn without(&mut self, seen: &Seen) {
        let texts = self.warnings.iter_mut().chain(self.omitted.iter_mut().map(|o| &mut o.name));
        for text in texts {
            if let std::borrow::Cow::Owned(clean) = seen.without(text) {
                *text = clean;
            }
        }
    }

    /// The warnings.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl Enveloped {
    /// What stands before the data of a success.
    pub(super) fn head(&self) -> String {
        format!("{{\"ok\":true,\"operation\":{},\"data\":", bounded::to_text(self.operation.as_str()))
    }

    /// A failure in the same envelope. `details.data` (what was done before it failed) becomes `data`,
    /// `details.http_status` a member of the error.
    pub(super) fn failure(&self, error: &ToolError, notes: &Notes, correlation_id: &str) -> Value {
        let mut said = Object::new();
        said.insert("code".to_owned(), Value::from(error.code.as_str()));
        said.insert("message".to_owned(), Value::from(error.message.as_str()));
        said.insert("retryable".to_owned(), Value::from(error.retryable));
        if let Some(field) = &error.field {
            said.insert("field".to_owned(), Value::from(field.as_str()));
        }
        if let Some(seconds) = error.retry_after_seconds {
            said.insert("retry_after_seconds".to_owned(), Value::from(seconds));
        }
        let mut details = match error.details.as_deref() {
            Some(Value::Object(map)) => map.clone(),
            Some(other) => Object::from_iter([("value".to_owned(), other.clone())]),
            None => Object::new(),
        };
        if let Some(status) = details.shift_remove("http_status").filter(Value::is_u64) {
            said.insert("http_status".to_owned(), status);
        }
        let data = details.shift_remove("data");
        if !details.is_empty() {
            said.insert("details".to_owned(), Value::Object(details));
        }
        let mut out = json!({
            "ok": false,
            "operation": self.operation,
            "error": said,
            "warnings": notes.warnings(),
            "truncated": notes.truncated,
            "correlation_id": correlation_id,
        });
        if let (Some(data), Some(map)) = (data, out.as_object_mut()) {
            map.insert("data".to_owned(), data);
        }
        out
    }
}

/// What stands behind the data of a success.
pub(super) fn tail(notes: &Notes, correlation_id: &str) -> String {
    let mut out = String::from(",\"warnings\":");
    out.push_str(&bounded::to_text(notes.warnings()));
    out.push_str(if notes.truncated { ",\"truncated\":true" } else { ",\"truncated\":false" });
    out.push_str(",\"correlation_id\":");
    out.push_str(&bounded::to_text(correlation_id));
    out.push('}');
    out
}

/// Makes an object smaller: elements of its longest list go first, then its members (never those in
/// `keep`), then its texts are cut. `None` where nothing that says anything fits.
pub(super) fn reduce(data: &str, max: usize, keep: &[String], notes: &mut Notes) -> Option<String> {
    if data.len() <= max {
        return Some(data.to_owned());
    }
    if let Some((name, list)) = longest_list(data) {
        let inside = data.get(list.clone())?;
        let elements = elements(inside);
        let frame = data.len() - inside.len() + 2;
        let kept = prefix(&elements, max.saturating_sub(frame));
        if kept > 0 || elements.is_empty() {
            let left = u64::try_from(elements.len() - kept).unwrap_or(u64::MAX);
            notes.omit(&name, Some(left), "byte_budget", "ask for less at a time");
            let head = data.get(..list.start)?;
            let tail = data.get(list.end..)?;
            return Some(format!("{head}[{}]{tail}", elements.get(..kept)?.join(",")));
        }
    }
    let less = shrink(data, max, keep)?;
    notes.omit("members and texts", None, "byte_budget", "ask for less");
    Some(less)
}

/// How many elements, commas included, fit into `room`.
pub(super) fn prefix<T: AsRef<str>>(elements: &[T], room: usize) -> usize {
    let mut size = 0usize;
    let fits = elements.iter().enumerate().take_while(|(i, element)| {
        size += element.as_ref().len() + usize::from(*i > 0);
        size <= room
    });
    fits.count()
}

/// The longest list among the members of an object: its name and where it stands.
fn longest_list(object: &str) -> Option<(String, std::ops::Range<usize>)> {
    let mut scan = Scan::new(object);
    if scan.peek() != b'{' {
        return None;
    }
    scan.step();
    if scan.closes(b'}') {
        return None;
    }
    let mut best: Option<(&str, std::ops::Range<usize>)> = None;
    loop {
        let key = scan.key();
        let value = scan.skip();
        if value.starts_with('[') && value.len() > best.as_ref().map_or(2, |(_, at)| at.len()) {
            best = Some((key, scan.position() - value.len()..scan.position()));
        }
        if !scan.more(b'}') {
            break;
        }
    }
    best.and_then(|(key, at)| Some((scan::decode(key)?.into_owned(), at)))
}

/// The elements of a list.
pub(super) fn elements(list: &str) -> Vec<&str> {
    scan::elements(list).collect()
}
