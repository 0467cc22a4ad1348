//! The newest records, in memory: what the console shows without reading files.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::log::Written;

/// Records held: a screen of them is a hundred, a busy minute a thousand.
pub(super) const RECENT_MAX: usize = 2_000;
/// Records of one answer at most.
const ANSWER_MAX: usize = 500;

/// One record, as its line.
#[derive(Debug, Clone)]
pub struct RecentRecord {
    /// Its number.
    pub seq: u64,
    /// The line of the log.
    pub line: Arc<str>,
}

impl RecentRecord {
    /// The record as JSON.
    pub fn json(&self) -> Option<&RawValue> {
        serde_json::from_str(&self.line).ok()
    }
}

/// Which records to give, newest first. An empty text fits all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// `call`, `signal`, …
    pub kind: String,
    /// The caller's name.
    pub caller: String,
    /// The tool's id.
    pub tool: String,
    /// `ok`, `error`, `refused`.
    pub outcome: String,
    /// Only records after this one.
    pub after: u64,
    /// At most as many; 0 is a hundred, and never more than 500.
    pub limit: usize,
}

/// The newest records.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<RecentRecord>);

impl Recent {
    pub(super) fn push(&mut self, written: Written) {
        if self.0.len() >= RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(RecentRecord { seq: written.seq, line: written.line });
    }

    /// Lines are read here and not when they are kept: records come by the thousand, questions one by one.
    pub(super) fn find(&self, query: &Query) -> Vec<RecentRecord> {
        let limit = if query.limit == 0 { 100 } else { query.limit.min(ANSWER_MAX) };
        let newest = self.0.iter().rev().take_while(|r| r.seq > query.after);
        newest.filter(|r| query.fits(&r.line)).take(limit).cloned().collect()
    }
}

impl Query {
    fn fits(&self, line: &str) -> bool {
        let wanted = [
            ("kind", &self.kind),
            ("caller", &self.caller),
            ("tool", &self.tool),
            ("outcome", &self.outcome),
        ];
        if wanted.iter().all(|(_, text)| text.is_empty()) {
            return true;
        }
        let record: Value = serde_json::from_str(line).unwrap_or_default();
        wanted.iter().all(|(name, text)| {
            text.is_empty() || record.get(name).and_then(Value::as_str) == Some(text.as_str())
        })
    }
}
