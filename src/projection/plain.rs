//! The one form of results that have none of their own (seed 000): the text or data that came, the files it
//! brought, the warnings, how long it took. Always the same members, so that a reader needs no schema of the tool.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::bare::{attach, cut_text};
use super::envelope::{Notes, elements, prefix, reduce};
use super::keep::Kept;
use super::scrub::scrub;
use super::{CallFacts, ResultBudget, Shaped};
use crate::call::{Artifact, ErrorCode, ToolError, ToolResult};
use crate::json::{self as bounded, JsonText};

/// The JSON Schema (2020-12) of the form, shown when a tool is described. Lists of tools do without it: it is the
/// same for all of them.
pub const PLAIN_SCHEMA: &str = include_str!("plain.json");

/// Bytes that the warnings about what is cut may still take once the room is measured.
const WARNINGS_ROOM: usize = 1_024;
/// The media type of text whose maker said none.
const TEXT: &str = "text/plain";
/// The media type of JSON that did not fit as data and is shown as a cut text.
const JSON: &str = "application/json";

/// What came of a call, before it is bounded.
#[derive(Debug, Default)]
pub(super) struct Plain<'t> {
    /// A text, and its media type (empty: plain).
    pub(super) text: Option<(Cow<'t, str>, &'t str)>,
    /// Compact JSON.
    pub(super) data: Option<Cow<'t, str>>,
    /// The data before ceilings cut inside it, for keeping aside.
    pub(super) whole: Option<&'t str>,
    /// Files that were kept.
    pub(super) artifacts: &'t [Artifact],
    /// Further content blocks, already bounded.
    pub(super) blocks: Vec<Box<RawValue>>,
    /// Warnings, and receipts of what was left out so far.
    pub(super) notes: Notes,
    /// What was kept aside already.
    pub(super) kept: Option<Kept>,
}

/// The members as they are written.
#[derive(Debug, Default)]
struct Members<'t> {
    text: Option<(Cow<'t, str>, &'t str)>,
    data: Option<Cow<'t, str>>,
    artifacts: &'t [Artifact],
}

impl Members<'_> {
    fn write(&self, notes: &Notes, took_ms: u64) -> String {
        let (text, mime) = self.text.as_ref().map(|(text, mime)| (&**text, *mime)).unzip();
        let mut out =
            String::with_capacity(text.map_or(0, str::len) + self.data.as_ref().map_or(0, |d| d.len()) + 256);
        out.push_str("{\"text\":");
        out.push_str(&bounded::to_text(&text));
        out.push_str(",\"text_mime\":");
        out.push_str(&bounded::to_text(&mime.map(|mime| if mime.is_empty() { TEXT } else { mime })));
        out.push_str(",\"data\":");
        out.push_str(self.data.as_deref().unwrap_or("null"));
        out.push_str(",\"artifacts\":");
        out.push_str(&bounded::to_text(self.artifacts));
        out.push_str(",\"warnings\":");
        out.push_str(&bounded::to_text(notes.warnings()));
        out.push_str(",\"duration_ms\":");
        out.push_str(&took_ms.to_string());
        out.push('}');
        out
    }
}

/// What is left of a room when warnings of a cut stand in it too.
fn with_warnings(room: usize) -> usize {
    room - WARNINGS_ROOM.min(room / 2)
}

impl<'t> Plain<'t> {
    /// The bounded result. Of data its longest list goes first; what cannot be made smaller that way is shown as a
    /// cut text. Whatever is left out is kept aside where results are kept.
    pub(super) fn finish(mut self, facts: &CallFacts, budget: &ResultBudget, bytes_in: usize) -> Shaped {
        let artifacts = self.shown_artifacts(budget.result_bytes);
        let mut members = Members { artifacts, ..Members::default() };
        let frame = members.write(&self.notes, facts.elapsed.ms()).len() + TEXT.len().max(JSON.len());
        let room = budget.result_bytes.saturating_sub(frame);
        if let Some(data) = self.data.take() {
            members.data = self.fit_data(&data, room, facts).map(Cow::Owned);
            if members.data.is_none() {
                self.text = Some((Cow::Owned(data.into_owned()), JSON));
            }
        }
        if let Some((text, mime)) = self.text.take() {
            members.text = Some((self.fit_text(&text, room, facts, budget), mime));
        }
        let text = members.write(&self.notes, facts.elapsed.ms());
        let Ok(structured) = JsonText::parse(text) else {
            return Shaped::failed(super::bare::internal(&facts.correlation_id), bytes_in)
                .with_detail("a result without a projection is not JSON after shaping");
        };
        if structured.len() > budget.result_bytes {
            let message = format!("the result does not fit into {} bytes; ask for less", budget.result_bytes);
            return Shaped::failed(ToolError::new(ErrorCode::BudgetTooSmall, message), bytes_in);
        }
        let mut result = ToolResult {
            structured: Some(structured),
            blocks: self.blocks,
            is_plain: true,
            ..ToolResult::default()
        };
        attach(&mut result, facts.keeping.as_ref(), self.kept.as_ref());
        Shaped::completed(result, bytes_in, self.notes.omitted).keeping(self.kept)
    }

    /// As many files as take half of the room; each is also a link of its own.
    fn shown_artifacts(&mut self, max: usize) -> &'t [Artifact] {
        let written: Vec<String> = self.artifacts.iter().map(bounded::to_text).collect();
        let fit = prefix(&written, max / 2);
        let left = self.artifacts.len() - fit;
        if left > 0 {
            let count = u64::try_from(left).ok();
            self.notes.omit(
                "artifacts",
                count,
                "byte_budget",
                "each of them is linked, and list_files names all",
            );
        }
        self.artifacts.get(..fit).unwrap_or_default()
    }

    /// Data as it fits; `None` where no smaller value says anything.
    fn fit_data(&mut self, data: &str, room: usize, facts: &CallFacts) -> Option<String> {
        let clean = scrub(data);
        if clean.len() <= room && self.whole.is_none() {
            return JsonText::parse(clean.into_owned()).ok().map(|json| json.as_str().to_owned());
        }
        if let Some(keeping) = &facts.keeping
            && self.kept.is_none()
        {
            self.kept = keeping.take(self.whole.unwrap_or(data), true);
            if let Some(kept) = &self.kept {
                self.notes.warn(&keeping.told(kept));
            }
        }
        let room = if clean.len() <= room { room } else { with_warnings(room) };
        let less = match clean.as_bytes().first() {
            Some(b'{') => reduce(&clean, room, &[], &mut self.notes)?,
            Some(b'[') => self.fit_list(&clean, room)?,
            _ => clean.into_owned(),
        };
        (less.len() <= room).then(|| JsonText::parse(less).ok())?.map(|json| json.as_str().to_owned())
    }

    fn fit_list(&mut self, list: &str, room: usize) -> Option<String> {
        if list.len() <= room {
            return Some(list.to_owned());
        }
        let all = elements(list);
        let fit = prefix(&all, room.saturating_sub(2));
        if fit == 0 {
            return None;
        }
        let left = u64::try_from(all.len() - fit).ok();
        self.notes.omit("records", left, "byte_budget", "ask for less at a time");
        Some(format!("[{}]", all.get(..fit)?.join(",")))
    }

    /// A text within its budget and, once it is written as JSON, within the room.
    fn fit_text(
        &mut self,
        text: &str,
        room: usize,
        facts: &CallFacts,
        budget: &ResultBudget,
    ) -> Cow<'t, str> {
        let keeping = facts.keeping.as_ref();
        let mut max = budget.text_bytes;
        loop {
            let is_cut = text.len() > max;
            let cut = cut_text(text, max, keeping);
            let written = bounded::encoded_len(&*cut.text);
            let room = if is_cut { with_warnings(room) } else { room };
            // Escapes take room: quotes and line ends two bytes for one, control characters six.
            if written > room && max > 0 {
                max = (text.len().min(max) * room / written).min(max - 1);
                continue;
            }
            if let Some(omission) = cut.omission {
                let left = omission.count.unwrap_or_default();
                self.notes
                    .warn(&format!("left out: the last {left} bytes of the text; {}", omission.restore_with));
                self.notes.omitted.push(omission);
            }
            self.kept = self.kept.take().or(cut.kept);
            return Cow::Owned(cut.text.into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::call::ToolOutcome;
    use crate::projection::{Elapsed, Keeping};
    use crate::schema::{SchemaText, Validators};

    fn facts() -> CallFacts {
        let keeping =
            Keeping::new(Arc::from("docent_read_result"), 1_000_000, Duration::from_mins(15), || {
                Arc::from("r_1")
            });
        let elapsed = Elapsed::by(|| Duration::from_millis(7));
        CallFacts { keeping: Some(keeping), elapsed, ..CallFacts::default() }
    }

    fn shaped(plain: Plain<'_>, max: usize) -> (Value, Option<Kept>, usize) {
        let budget = ResultBudget { result_bytes: max, text_bytes: 50_000, records: 10 };
        let shaped = plain.finish(&facts(), &budget, 1);
        let ToolOutcome::Completed(result) = shaped.outcome else { panic!("{:?}", shaped.outcome) };
        let structured = result.structured.unwrap();
        assert!(structured.len() <= max, "{} of {max}", structured.len());
        let value = structured.value();
        let schema = SchemaText::from_json(PLAIN_SCHEMA.to_owned());
        assert_eq!(Validators::default().check(&schema, &value), Ok(vec![]));
        (value, shaped.kept, result.blocks.len())
    }

    fn data(data: &Value) -> Plain<'static> {
        Plain { data: Some(Cow::Owned(data.to_string())), ..Plain::default() }
    }

    #[test]
    fn records_go_before_fields_and_the_whole_is_kept() {
        let rows: Vec<Value> = (0..500).map(|n| json!({"n": n, "name": "x".repeat(20)})).collect();
        for whole in [json!({"total": 500, "rows": rows}), json!(rows)] {
            let (value, kept, blocks) = shaped(data(&whole), 4_000);
            let list = value["data"].get("rows").unwrap_or(&value["data"]).as_array().unwrap();
            assert!((20..120).contains(&list.len()) && list[3] == rows[3], "{value}");
            assert_eq!(value["warnings"].as_array().unwrap().len(), 2, "what is left out, and where it is");
            assert_eq!(value["duration_ms"], 7);
            let kept = kept.unwrap();
            assert!(kept.is_data && kept.json.value() == whole && blocks == 1);
        }
    }

    #[test]
    fn what_cannot_be_made_smaller_is_a_cut_text() {
        let (value, kept, _) = shaped(data(&json!("y".repeat(10_000))), 4_000);
        assert_eq!((&value["data"], &value["text_mime"]), (&Value::Null, &json!("application/json")));
        assert!(value["text"].as_str().unwrap().starts_with("[cut: the first "), "{value}");
        assert_eq!(kept.unwrap().json.value(), json!("y".repeat(10_000)), "as JSON");
    }

    #[test]
    fn a_text_full_of_escapes_still_fits() {
        for hostile in ["\"", "\u{1}", "\n\u{1f600}"] {
            let text = hostile.repeat(40_000);
            let (value, kept, _) = shaped(Plain::text(Cow::Borrowed(&text), ""), 65_536);
            assert!(value["text"].as_str().unwrap().len() > 5_000, "{hostile:?}");
            assert!(kept.is_some() && value["warnings"][0].as_str().unwrap().contains("r_1"));
        }
    }

    #[test]
    fn files_that_do_not_fit_are_counted() {
        let file = |n: usize| Artifact {
            id: format!("f_{n}"),
            name: "n".repeat(60),
            mime: "text/plain".into(),
            size: 1,
            url: "/x".into(),
        };
        let files: Vec<Artifact> = (0..40).map(file).collect();
        let (value, _, _) = shaped(Plain { artifacts: &files, ..Plain::default() }, 2_000);
        let shown = value["artifacts"].as_array().unwrap().len();
        assert!((3..20).contains(&shown));
        let told = value["warnings"][0].as_str().unwrap();
        assert_eq!(told, format!("left out: {} artifacts (byte budget)", 40 - shown));
    }
}
