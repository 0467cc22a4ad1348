//! From shaped data to a result: the budget kept exactly, the schema checked, the receipts written.

use serde_json::Value;

use super::bare::internal;
use super::contract::{Breach, Contract, Enveloped};
use super::envelope::{Notes, elements, prefix, reduce};
use super::scan::{self, Ceilings, Cuts, Scan};
use super::sink::shrink;
use super::{ResultBudget, Shaped, bare};
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
        /// Each record as compact JSON.
        items: Vec<String>,
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
    },
}

/// What finishing needs besides the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish<'a> {
    pub(super) contract: &'a Contract,
    pub(super) validators: &'a Validators,
    pub(super) budget: &'a ResultBudget,
    pub(super) correlation_id: &'a str,
    pub(super) bytes_in: usize,
}

impl Finish<'_> {
    /// The result of a success under the tool's contract.
    pub(super) fn success(&self, data: Data, notes: Notes) -> Shaped {
        match self.contract {
            Contract::Enveloped(envelope) => self.enveloped(envelope, data, notes),
            Contract::Free | Contract::Bare(_) => self.bare(&data.text(), notes),
        }
    }

    /// A failure: in the tool's envelope where it has one, so that it fits the advertised schema too.
    pub(super) fn failure(&self, error: ToolError) -> Shaped {
        Shaped::failed(error, self.bytes_in)
    }

    fn enveloped(&self, envelope: &Enveloped, mut data: Data, mut notes: Notes) -> Shaped {
        if let Data::Page { beyond: 1.., .. } = &data {
            data.note_limit(&mut notes);
        }
        let max = self.budget.result_bytes;
        let mut text = envelope.success(&data.text(), &notes, self.correlation_id);
        for _ in 0..ROUNDS {
            if text.len() <= max {
                break;
            }
            let room = data.text().len().saturating_sub(text.len() - max);
            // The next warning takes room itself.
            let room = room.saturating_sub(if notes.truncated { 64 } else { 160 });
            if !data.reduce(room, envelope, &mut notes) {
                break;
            }
            text = envelope.success(&data.text(), &notes, self.correlation_id);
        }
        if text.len() > max {
            let message = format!("not even one record fits into {max} bytes; ask for fewer fields");
            return self.failure(ToolError::new(ErrorCode::BudgetTooSmall, message));
        }
        let value: Value = serde_json::from_str(&data.text()).unwrap_or_default();
        if let Err(breach) = envelope.check(&value, self.validators) {
            return self.mismatch(&breach);
        }
        self.completed(&text, notes)
    }

    /// A result without an envelope: objects are the structured half, anything else is text.
    fn bare(&self, text: &str, mut notes: Notes) -> Shaped {
        if !text.starts_with('{') {
            if !matches!(self.contract, Contract::Free) {
                let breach =
                    Breach { pointer: String::new(), message: "the result is not an object".to_owned() };
                return self.mismatch(&breach);
            }
            let (kept, omission) = bare::cut_text(text, self.budget.text_bytes);
            notes.omitted.extend(omission);
            let result = ToolResult { text: Some(kept.into_owned()), ..ToolResult::default() };
            return Shaped::completed(result, self.bytes_in, notes.omitted);
        }
        let Some(less) = reduce(text, self.budget.result_bytes, &[], &mut notes) else {
            let message =
                format!("the result does not fit into {} bytes; ask for less", self.budget.result_bytes);
            return self.failure(ToolError::new(ErrorCode::BudgetTooSmall, message));
        };
        let value: Value = serde_json::from_str(&less).unwrap_or_default();
        if let Err(breach) = self.contract.check_bare(&value, self.validators) {
            return self.mismatch(&breach);
        }
        self.completed(&less, notes)
    }

    fn completed(&self, text: &str, notes: Notes) -> Shaped {
        // A secret is replaced inside its JSON string; the envelope stays JSON.
        let scrubbed = super::scrub::scrub(text).into_owned();
        match JsonText::parse(scrubbed) {
            Ok(structured) => {
                let mut result = ToolResult { structured: Some(structured), ..ToolResult::default() };
                if !matches!(self.contract, Contract::Enveloped(_)) && !notes.warnings().is_empty() {
                    let note = serde_json::json!({"type": "text", "text": format!("[{}]", notes.warnings().join("; "))});
                    result.blocks.extend(bare::raw(&note));
                }
                Shaped::completed(result, self.bytes_in, notes.omitted)
            }
            Err(error) => self
                .failure(internal(self.correlation_id))
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
    /// Reads what a script or a single record gave: accepted compact JSON.
    pub(super) fn read(text: &str, records_max: usize, notes: &mut Notes) -> Result<Self, String> {
        let mut scan = Scan::new(text);
        if scan.peek() != b'{' {
            let mut out = String::new();
            let cuts = scan::copy(text, Ceilings::RECORD, &mut out).map_err(|e| e.to_string())?;
            notes.cuts(cuts);
            return Ok(Self::Other { family: String::new(), text: out });
        }
        let mut members = Vec::new();
        scan.step();
        let mut open = !scan.closes(b'}');
        while open {
            let key = scan::decode(scan.key()).ok_or("a key is not text")?.into_owned();
            members.push((key, scan.skip()));
            open = scan.more(b'}');
        }
        let find = |name: &str| members.iter().find(|(k, _)| k == name).map(|(_, v)| *v);
        let family =
            find("kind").and_then(scan::decode).map(std::borrow::Cow::into_owned).unwrap_or_default();
        let page = find("page").and_then(|p| serde_json::from_str::<Object>(p).ok());
        if let (Some(items), Some(page), 3) =
            (find("items").filter(|i| i.starts_with('[')), page, members.len())
        {
            return Self::read_page(family, items, page, records_max, notes);
        }
        let mut out = String::with_capacity(text.len());
        let mut cuts = Cuts::default();
        out.push('{');
        for (i, (key, value)) in members.iter().enumerate() {
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
        Ok(Self::Other { family, text: out })
    }

    fn read_page(
        family: String,
        items: &str,
        page: Object,
        records_max: usize,
        notes: &mut Notes,
    ) -> Result<Self, String> {
        let all = elements(items);
        let mut cuts = Cuts::default();
        let mut kept = Vec::with_capacity(all.len().min(records_max));
        for item in all.iter().take(records_max) {
            let mut out = String::with_capacity(item.len());
            cuts.add(scan::copy(item, Ceilings::RECORD, &mut out).map_err(|e| e.to_string())?);
            kept.push(out);
        }
        notes.cuts(cuts);
        let beyond = u64::try_from(all.len() - kept.len()).unwrap_or(u64::MAX);
        let mut data = Self::Page { family, items: kept, page, beyond, why: "limit" };
        if beyond > 0 {
            data.settle(true);
        }
        Ok(data)
    }

    /// The compact JSON.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Other { text, .. } => text.clone(),
            Self::Page { family, items, page, .. } => format!(
                "{{\"kind\":{},\"items\":[{}],\"page\":{}}}",
                bounded::to_text(family.as_str()),
                items.join(","),
                bounded::to_text(page)
            ),
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
        let whole = self.text().len();
        match self {
            Self::Other { family, text } => {
                let keep: Vec<String> = envelope.required(family).0.to_vec();
                reduce(text, room, &keep, notes).is_some_and(|less| {
                    let smaller = less.len() < text.len();
                    *text = less;
                    smaller
                })
            }
            Self::Page { family, items, .. } => {
                let frame = whole - items.iter().map(|i| i.len() + 1).sum::<usize>().saturating_sub(1);
                let room = room.saturating_sub(frame);
                let kept = prefix(items, room);
                if kept == 0 {
                    let required = envelope.required(family).1.to_vec();
                    let Some(less) = items.first().and_then(|i| shrink(i, room, &required)) else {
                        return false;
                    };
                    notes.omit("members and texts of a record", None, "byte_budget", "ask for fewer fields");
                    items.splice(..1, [less]);
                }
                let dropped = items.len() - kept.max(1);
                items.truncate(kept.max(1));
                if dropped > 0 {
                    let count = u64::try_from(dropped).unwrap_or(u64::MAX);
                    notes.omit("records", Some(count), "byte_budget", "ask for fewer records at a time");
                    self.settle(true);
                }
                true
            }
        }
    }

    /// Keeps `page` true after records were left out.
    fn settle(&mut self, cut: bool) {
        let Self::Page { items, page, .. } = self else { return };
        let returned = u64::try_from(items.len()).unwrap_or(u64::MAX);
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
