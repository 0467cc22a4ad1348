//! From shaped data to a result: the budget kept exactly, the schema checked, the receipts written.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use super::bare::internal;
use super::contract::{Breach, Contract, Enveloped};
use super::envelope::{Notes, elements, prefix, reduce, tail};
use super::keep::{Kept, child, members};
use super::plain::Plain;
use super::scan::{self, Ceilings, Cuts};
use super::scrub::{scrub, scrubbed};
use super::select::Fields;
use super::sink::{Records, shrink};
use super::{CallFacts, ResultBudget, Shaped, bare};
use crate::call::{ErrorCode, ToolError, ToolOutcome, ToolResult};
use crate::json::{self as bounded, JsonText, Object};
use crate::schema::Validators;

/// Plain texts of a list beside `kind` (log lines, seed 001).
const TEXT_LINES_MAX: usize = 500;
/// Rounds of making a result smaller: each one knows the exact size of the last.
const ROUNDS: usize = 6;

/// Data on its way into an envelope.
#[derive(Debug, Clone)]
pub(super) enum Data {
    /// `{kind, items, page}`.
    Page {
        /// The family.
        family: String,
        /// Those that are shown, then those that are kept aside.
        items: Records,
        /// How many of them are shown.
        shown: usize,
        /// What is shown in place of the first, where that alone was too large.
        first: Option<String>,
        /// The page as it was before ceilings cut inside its records, for keeping aside.
        whole: Option<String>,
        /// The paging member; `returned`, `has_more` and `next_offset` are kept true here.
        page: Object,
        /// Records left out before the data came here.
        beyond: u64,
        /// Why: `limit` or `byte_budget`.
        why: &'static str,
    },
    /// Any other object as compact JSON, with its family.
    Other {
        /// The family; empty where the data has no `kind`.
        family: String,
        /// The object.
        text: String,
        /// The same before anything of it was left out, for keeping aside.
        whole: Option<String>,
    },
}

/// What finishing needs besides the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish<'a> {
    pub(super) contract: &'a Contract,
    pub(super) validators: &'a Validators,
    pub(super) budget: &'a ResultBudget,
    /// The call: its correlation id, what of the result is asked for, whether the rest is kept.
    pub(super) facts: &'a CallFacts,
    pub(super) bytes_in: usize,
    /// Whether the result takes the form of tools that have none of their own.
    pub(super) is_plain: bool,
}

impl Finish<'_> {
    /// The result of a success under the tool's contract.
    pub(super) fn success(&self, data: Data, notes: Notes) -> Shaped {
        match self.contract {
            Contract::Free if self.is_plain => self.plain_data(&data, notes),
            Contract::Enveloped(envelope) => self.enveloped(envelope, data, notes),
            Contract::Free | Contract::Bare(_) => {
                let whole = data.is_partial().then(|| data.whole().into_owned());
                self.bare(data.into_text("", "").0, whole, notes)
            }
        }
    }

    /// A failure: in the tool's envelope where it has one, so that it fits the advertised schema too.
    pub(super) fn failure(&self, error: ToolError) -> Shaped {
        Shaped::failed(error, self.bytes_in)
    }

    /// Reads what a script or a single record gave.
    pub(super) fn read(&self, text: &str, notes: &mut Notes) -> Result<Data, String> {
        let required = match self.contract {
            Contract::Enveloped(envelope) => {
                let family = scan::decode(child(text, "kind").unwrap_or_default()).unwrap_or_default();
                envelope.required(&family).1
            }
            Contract::Free | Contract::Bare(_) => &[],
        };
        let reading = Reading {
            records_max: self.budget.records,
            is_keeping: self.facts.keeping.is_some(),
            fields: self.facts.fields.as_deref(),
            required,
        };
        Data::read(text, reading, notes)
    }

    fn enveloped(&self, envelope: &Enveloped, mut data: Data, mut notes: Notes) -> Shaped {
        if let Data::Page { beyond: 1.., .. } = &data {
            data.note_limit(&mut notes);
        }
        if let (Some(fields), Data::Other { family, text, .. }) = (&self.facts.fields, &mut data) {
            let mut keep = envelope.required(family).0.to_vec();
            keep.push("kind".to_owned());
            let whole = std::mem::take(text);
            fields.select(&whole, &keep, text);
        }
        data.scrub();
        let max = self.budget.result_bytes;
        let head = envelope.head();
        let tail = |notes: &Notes| tail(notes, &self.facts.correlation_id);
        let size = |data: &Data, notes: &Notes| head.len() + data.len() + tail(notes).len();
        let mut kept = if data.is_partial() { self.keep_data(&data, &mut notes) } else { None };
        if size(&data, &notes) > max && kept.is_none() {
            kept = self.keep_data(&data, &mut notes);
        }
        for _ in 0..ROUNDS {
            let over = size(&data, &notes).saturating_sub(max);
            if over == 0 {
                break;
            }
            let room = data.len().saturating_sub(over);
            // The next warning takes room itself.
            let room = room.saturating_sub(if notes.truncated { 64 } else { 160 });
            if !data.reduce(room, envelope, &mut notes) {
                break;
            }
        }
        if size(&data, &notes) > max {
            let message = format!("not even one record fits into {max} bytes; ask for fewer fields");
            return self.failure(ToolError::new(ErrorCode::BudgetTooSmall, message));
        }
        let (text, at) = data.into_text(&head, &tail(&notes));
        if let Err(breach) = envelope.check(text.get(at).unwrap_or_default(), self.validators) {
            return self.mismatch(&breach);
        }
        self.completed(text, notes, kept)
    }

    /// Takes the whole of the data aside, where results are kept, and says so.
    fn keep_data(&self, data: &Data, notes: &mut Notes) -> Option<Kept> {
        let keeping = self.facts.keeping.as_ref()?;
        let mut kept = keeping.take(data.whole(), true)?;
        kept.is_whole = data.is_whole_there();
        notes.warn(&keeping.told(&kept));
        Some(kept)
    }

    /// A script's value under no contract.
    fn plain_data(&self, data: &Data, notes: Notes) -> Shaped {
        let text = data.text();
        let text = self.selected(&text).map_or(text, Cow::Owned);
        let whole = data.is_partial().then(|| data.whole());
        let (data, whole) = (Some(text), whole.as_deref());
        Plain { data, whole, notes, ..Plain::default() }.finish(self.facts, self.budget, self.bytes_in)
    }

    /// A result without an envelope: objects are the structured half, anything else is text.
    fn bare(&self, text: String, whole: Option<String>, mut notes: Notes) -> Shaped {
        if !text.starts_with('{') {
            if !matches!(self.contract, Contract::Free) {
                let breach =
                    Breach { pointer: String::new(), message: "the result is not an object".to_owned() };
                return self.mismatch(&breach);
            }
            let cut = bare::cut_text(&text, self.budget.text_bytes, self.facts.keeping.as_ref());
            notes.omitted.extend(cut.omission);
            let mut result = ToolResult { text: Some(cut.text.into_owned()), ..ToolResult::default() };
            bare::attach(&mut result, self.facts.keeping.as_ref(), cut.kept.as_ref());
            return Shaped::completed(result, self.bytes_in, notes.omitted).keeping(cut.kept);
        }
        let text = scrubbed(self.selected(&text).unwrap_or(text));
        let mut kept = None;
        if let Some(keeping) = &self.facts.keeping
            && (text.len() > self.budget.result_bytes || whole.is_some())
        {
            let whole = whole.map_or(Cow::Borrowed(&*text), Cow::Owned);
            kept = keeping.take(whole, false);
            if let Some(kept) = &kept {
                notes.warn(&keeping.told(kept));
            }
        }
        let max = self.budget.result_bytes;
        let fits = text.len() <= max;
        let less = if fits { Some(text) } else { reduce(&text, max, &self.contract.required(), &mut notes) };
        let Some(less) = less else {
            let message = format!("the result does not fit into {max} bytes; ask for less");
            return self.failure(ToolError::new(ErrorCode::BudgetTooSmall, message));
        };
        if let Err(breach) = self.contract.check_bare(&less, self.validators) {
            return self.mismatch(&breach);
        }
        self.completed(less, notes, kept)
    }

    /// A bare object with the members that were asked for.
    fn selected(&self, text: &str) -> Option<String> {
        let fields = self.facts.fields.as_ref()?;
        let mut out = String::with_capacity(text.len());
        fields.select(text, &self.contract.required(), &mut out);
        Some(out)
    }

    fn completed(&self, text: String, notes: Notes, kept: Option<Kept>) -> Shaped {
        match JsonText::parse(text) {
            Ok(structured) => {
                let mut result = ToolResult { structured: Some(structured), ..ToolResult::default() };
                if !matches!(self.contract, Contract::Enveloped(_)) && !notes.warnings().is_empty() {
                    let note = serde_json::json!({"type": "text", "text": format!("[{}]", notes.warnings().join("; "))});
                    result.blocks.extend(bare::raw(&note));
                }
                bare::attach(&mut result, self.facts.keeping.as_ref(), kept.as_ref());
                Shaped::completed(result, self.bytes_in, notes.omitted).keeping(kept)
            }
            Err(error) => self
                .failure(internal(&self.facts.correlation_id))
                .with_detail(format!("the result is not JSON after shaping: {error}")),
        }
    }

    /// The upstream's answer (or the script's view of it) breaks the contract: say where, not what.
    pub(super) fn mismatch(&self, breach: &Breach) -> Shaped {
        let place = if breach.pointer.is_empty() { "the root" } else { &breach.pointer };
        let message = format!(
            "the upstream's answer does not fit this tool's contract at {place}: {}",
            bounded::cut(&breach.message, 300)
        );
        let error = ToolError::new(ErrorCode::UpstreamSchemaMismatch, message);
        self.failure(error).with_detail(format!("{place}: {}", breach.message))
    }

    /// The upstream's answer cannot be read as this tool expects.
    pub(super) fn unreadable(&self, why: &str) -> Shaped {
        self.mismatch(&Breach { pointer: String::new(), message: why.to_owned() })
    }
}

impl Shaped {
    /// Whether it is a success.
    pub fn is_success(&self) -> bool {
        matches!(&self.outcome, ToolOutcome::Completed(result) if !result.is_error)
    }
}

impl Data {
    /// Reads what a script or a single record gave: accepted compact JSON. `reading` says what is kept aside
    /// and which members were asked for.
    pub(super) fn read(text: &str, reading: Reading<'_>, notes: &mut Notes) -> Result<Self, String> {
        if !text.starts_with('{') {
            let mut out = String::new();
            let cuts = scan::copy(text, Ceilings::RECORD, &mut out).map_err(|e| e.to_string())?;
            notes.cuts(cuts);
            let whole = (reading.is_keeping && cuts.any()).then(|| text.to_owned());
            return Ok(Self::Other { family: String::new(), text: out, whole });
        }
        let mut named = Vec::new();
        for (key, value) in members(text) {
            named.push((scan::decode(key).ok_or("a key is not text")?, value));
        }
        let find = |name: &str| named.iter().find(|(k, _)| k == name).map(|(_, v)| *v);
        let family = find("kind").and_then(scan::decode).unwrap_or_default().into_owned();
        let page = find("page").and_then(|p| serde_json::from_str::<Object>(p).ok());
        if let (Some(items), Some(page), 3) =
            (find("items").filter(|i| i.starts_with('[')), page, named.len())
        {
            return Self::read_page(family, items, page, reading, notes);
        }
        let mut out = String::with_capacity(text.len());
        let mut cuts = Cuts::default();
        out.push('{');
        for (i, (key, value)) in named.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(&bounded::to_text(key));
            out.push(':');
            let lines = value.starts_with("[\"");
            let nested = if lines { TEXT_LINES_MAX } else { Ceilings::RECORD.nested };
            cuts.add(
                scan::copy(value, Ceilings { nested, ..Ceilings::RECORD }, &mut out)
                    .map_err(|e| e.to_string())?,
            );
        }
        out.push('}');
        notes.cuts(cuts);
        let whole = (reading.is_keeping && cuts.any()).then(|| text.to_owned());
        Ok(Self::Other { family, text: out, whole })
    }

    fn read_page(
        family: String,
        items: &str,
        page: Object,
        reading: Reading<'_>,
        notes: &mut Notes,
    ) -> Result<Self, String> {
        let all = elements(items);
        let shown = all.len().min(reading.records_max);
        let written = if reading.is_keeping { all.len() } else { shown };
        let mut cuts = Cuts::default();
        let mut kept = Records::default();
        let mut draft = String::new();
        for (at, item) in all.iter().take(written).enumerate() {
            draft.clear();
            let cut =
                scan::copy(&reading.select(item), Ceilings::RECORD, &mut draft).map_err(|e| e.to_string())?;
            if at < shown {
                cuts.add(cut);
            }
            kept.push(&draft, usize::MAX);
        }
        notes.cuts(cuts);
        let whole = (reading.is_keeping && cuts.any()).then(|| {
            let items: Vec<_> = all.iter().map(|item| reading.select(item)).collect();
            page_text(&family, &items.join(","), &whole_page(&page, items.len()))
        });
        let beyond = wide(all.len() - shown);
        let mut data =
            Self::Page { family, items: kept, shown, first: None, whole, page, beyond, why: "limit" };
        if beyond > 0 {
            data.settle(true);
        }
        Ok(data)
    }

    /// The same with all its records as they are without ceilings inside them, for keeping aside.
    pub(super) fn with_whole(mut self, records: Option<Records>) -> Self {
        if let (Self::Page { family, page, whole, .. }, Some(records)) = (&mut self, records) {
            let count = records.len();
            *whole = Some(page_text(family, records.first(count), &whole_page(page, count)));
        }
        self
    }

    /// The same for a tool without an envelope: an object like any other.
    pub(super) fn bare(self) -> Self {
        let whole = self.is_partial().then(|| self.whole().into_owned());
        Self::Other { family: String::new(), text: self.into_text("", "").0, whole }
    }

    /// The compact JSON of what is shown.
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Other { text, .. } => Cow::Borrowed(text),
            Self::Page { family, items, shown, first, page, .. } => {
                let records = items.first(*shown);
                Cow::Owned(match first {
                    None => page_text(family, records, page),
                    Some(first) => {
                        let others = records.get(items.first(1).len()..).unwrap_or_default();
                        page_text(family, &format!("{first}{others}"), page)
                    }
                })
            }
        }
    }

    /// Bytes of that.
    fn len(&self) -> usize {
        match self {
            Self::Other { text, .. } => text.len(),
            Self::Page { family, items, shown, first, page, .. } => {
                let records = items.first(*shown).len();
                let records = first.as_ref().map_or(records, |f| records - items.first(1).len() + f.len());
                page_text(family, "", page).len() + records
            }
        }
    }

    /// That between a head and a tail, and where it stands there. Records are not copied once more: a result takes
    /// no more memory than its own bytes.
    fn into_text(self, head: &str, tail: &str) -> (String, Range<usize>) {
        let (mut text, before, after) = match self {
            Self::Other { text, .. } => (text, String::new(), String::new()),
            Self::Page { family, items, shown, first, page, .. } => {
                let end = items.first(1).len();
                let mut text = items.into_first(shown);
                if let Some(first) = first {
                    text.replace_range(..end, &first);
                }
                (text, page_head(&family), page_tail(&page))
            }
        };
        text.reserve_exact(head.len() + before.len() + after.len() + tail.len());
        text.insert_str(0, &before);
        text.insert_str(0, head);
        text.push_str(&after);
        let end = text.len();
        text.push_str(tail);
        (text, head.len()..end)
    }

    /// The compact JSON with what is not shown.
    fn whole(&self) -> Cow<'_, str> {
        match self {
            Self::Other { whole: Some(whole), .. } | Self::Page { whole: Some(whole), .. } => {
                Cow::Borrowed(whole)
            }
            Self::Other { text, .. } => Cow::Borrowed(text),
            Self::Page { family, items, page, .. } => {
                let count = items.len();
                Cow::Owned(page_text(family, items.first(count), &whole_page(page, count)))
            }
        }
    }

    /// Takes secrets out of what is shown, before it is measured. Each is replaced inside its JSON string, so that
    /// it stays JSON; what is kept aside loses its own where it is taken.
    fn scrub(&mut self) {
        let clean = |text: &mut String| {
            if let Cow::Owned(clean) = scrub(text) {
                *text = clean;
            }
        };
        match self {
            Self::Other { text, .. } => clean(text),
            Self::Page { items, shown, first, .. } => {
                first.iter_mut().for_each(clean);
                if matches!(scrub(items.first(*shown)), Cow::Owned(_)) {
                    *items = items.iter().map(|record| scrub(record).into_owned()).collect();
                }
            }
        }
    }

    /// Whether something is not shown that could be.
    fn is_partial(&self) -> bool {
        match self {
            Self::Other { whole, .. } => whole.is_some(),
            Self::Page { items, shown, first, whole, .. } => {
                *shown < items.len() || first.is_some() || whole.is_some()
            }
        }
    }

    /// Whether nothing was left out of the whole either.
    fn is_whole_there(&self) -> bool {
        match self {
            Self::Other { .. } => true,
            Self::Page { items, shown, beyond, .. } => *beyond <= wide(items.len() - shown),
        }
    }

    fn note_limit(&self, notes: &mut Notes) {
        if let Self::Page { beyond, page, why, .. } = self {
            let way = if page.get("next_offset").is_some_and(Value::is_u64) {
                "call again with `offset` = page.next_offset"
            } else {
                "narrow the query"
            };
            notes.omit("records", Some(*beyond), why, way);
        }
    }

    /// Makes the data fit `room`; `false` where it cannot get smaller.
    fn reduce(&mut self, room: usize, envelope: &Enveloped, notes: &mut Notes) -> bool {
        let size = self.len();
        match self {
            Self::Other { family, text, .. } => {
                let keep: Vec<String> = envelope.required(family).0.to_vec();
                reduce(text, room, &keep, notes).is_some_and(|less| {
                    let smaller = less.len() < text.len();
                    *text = less;
                    smaller
                })
            }
            Self::Page { family, items, shown, first, .. } => {
                let mut now: Vec<&str> = items.iter().take(*shown).collect();
                if let (Some(slot), Some(first)) = (now.first_mut(), &*first) {
                    *slot = first;
                }
                let frame = size - now.iter().map(|i| i.len() + 1).sum::<usize>().saturating_sub(1).min(size);
                let room = room.saturating_sub(frame);
                let kept = prefix(&now, room);
                if kept == 0 {
                    let required = envelope.required(family).1.to_vec();
                    let Some(less) = now.first().and_then(|i| shrink(i, room, &required)) else {
                        return false;
                    };
                    notes.omit("members and texts of a record", None, "byte_budget", "ask for fewer fields");
                    *first = Some(less);
                }
                let dropped = *shown - kept.max(1);
                *shown = kept.max(1);
                if dropped > 0 {
                    notes.omit(
                        "records",
                        Some(wide(dropped)),
                        "byte_budget",
                        "ask for fewer records at a time",
                    );
                    self.settle(true);
                }
                true
            }
        }
    }

    /// Keeps `page` true after records were left out.
    fn settle(&mut self, cut: bool) {
        let Self::Page { shown, page, .. } = self else { return };
        let returned = wide(*shown);
        page.insert("returned".to_owned(), Value::from(returned));
        if !cut {
            return;
        }
        page.insert("has_more".to_owned(), Value::Bool(true));
        let by_offset = page.get("next_offset").is_some_and(Value::is_u64)
            || page.get("mode").and_then(Value::as_str) == Some("local");
        let next = page.get("offset").and_then(Value::as_u64).filter(|_| by_offset).map(|o| o + returned);
        if page.contains_key("next_offset") {
            page.insert("next_offset".to_owned(), next.map_or(Value::Null, Value::from));
        }
    }
}

/// What reading data needs besides its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'a> {
    /// Records shown at most.
    pub(super) records_max: usize,
    /// Whether what is not shown is wanted for keeping aside.
    pub(super) is_keeping: bool,
    /// The members of a record that were asked for.
    pub(super) fields: Option<&'a Fields>,
    /// Those that it cannot do without.
    pub(super) required: &'a [String],
}

impl Reading<'_> {
    fn select<'t>(&self, item: &'t str) -> Cow<'t, str> {
        let Some(fields) = self.fields else { return Cow::Borrowed(item) };
        let mut out = String::with_capacity(item.len());
        fields.select(item, self.required, &mut out);
        Cow::Owned(out)
    }
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn page_head(family: &str) -> String {
    format!("{{\"kind\":{},\"items\":[", bounded::to_text(family))
}

fn page_tail(page: &Object) -> String {
    format!("],\"page\":{}}}", bounded::to_text(page))
}

/// A page around records that have their commas.
fn page_text(family: &str, records: &str, page: &Object) -> String {
    [&*page_head(family), records, &*page_tail(page)].concat()
}

/// The paging member of a page with so many records: what follows is known only where the total is.
fn whole_page(page: &Object, records: usize) -> Object {
    let mut page = page.clone();
    let number = |page: &Object, name: &str| page.get(name).and_then(Value::as_u64);
    let end = number(&page, "offset").unwrap_or(0).saturating_add(wide(records));
    let has_more = number(&page, "total").map(|total| end < total);
    let next = (has_more == Some(true) && number(&page, "next_offset").is_some()).then_some(end);
    page.insert("returned".to_owned(), Value::from(wide(records)));
    page.insert("has_more".to_owned(), has_more.map_or(Value::Null, Value::from));
    page.insert("next_offset".to_owned(), next.map_or(Value::Null, Value::from));
    page
}
