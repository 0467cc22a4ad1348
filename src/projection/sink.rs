//! Where records go: JSON text within a byte and a record budget, written once, never rebuilt.

use std::sync::Arc;

use super::keep::members;
use super::scan::{self, Ceilings};
use super::select::Fields;

/// Ceilings on texts tried one after the other on a record that alone is too large.
const TEXT_STEPS: [usize; 5] = [8_192, 2_048, 512, 128, 32];

/// A bounded list of records as JSON text.
#[derive(Debug)]
pub(super) struct RecordSink {
    out: String,
    /// Where each record ends in `out`.
    ends: Vec<usize>,
    records_max: usize,
    bytes_max: usize,
    /// Members that a record cannot do without.
    keep: Vec<String>,
    /// Records to pass over at the beginning, and how many were.
    skip: usize,
    skipped: usize,
    over_bytes: bool,
    /// The only record as it was before it was reduced.
    shrunk: Option<String>,
    /// Records of those written that are shown; the others are kept aside.
    shown: usize,
    /// Records and bytes to write beyond those that are shown.
    aside: Option<(usize, usize)>,
    aside_full: bool,
    /// Members that were asked for, `keep` besides; all where nothing was.
    select: Option<Arc<Fields>>,
    fault: Option<String>,
}

impl RecordSink {
    /// A sink for at most so many records and bytes, commas included.
    pub(super) fn new(records_max: usize, bytes_max: usize) -> Self {
        Self {
            out: String::new(),
            ends: Vec::new(),
            records_max,
            bytes_max,
            keep: Vec::new(),
            skip: 0,
            skipped: 0,
            over_bytes: false,
            shrunk: None,
            shown: 0,
            aside: None,
            aside_full: false,
            select: None,
            fault: None,
        }
    }

    /// Members that a record cannot do without when it has to get smaller.
    pub(super) fn keeping(mut self, keep: &[String]) -> Self {
        self.keep = keep.to_vec();
        self
    }

    /// Writes records beyond those that are shown as well, up to so many in all and so many bytes.
    pub(super) fn aside(mut self, records_max: usize, bytes_max: usize) -> Self {
        self.aside = Some((records_max, bytes_max));
        self
    }

    /// Keeps only these members of each record, and those that it cannot do without.
    pub(super) fn selecting(mut self, fields: Option<&Arc<Fields>>) -> Self {
        self.select = fields.cloned();
        self
    }

    /// Passes over the first records.
    pub(super) fn skipping(mut self, records: usize) -> Self {
        self.skip = records;
        self
    }

    /// Whether the next record is to be passed over; counts it.
    pub(super) fn passes(&mut self) -> bool {
        let passes = self.skipped < self.skip;
        self.skipped += usize::from(passes);
        passes
    }

    /// Whether another record would not be kept.
    pub(super) fn is_full(&self) -> bool {
        let aside = self.aside.is_none_or(|(records, _)| self.aside_full || self.ends.len() >= records);
        self.fault.is_some() || (self.shows_all() && aside)
    }

    /// Whether another record would not be shown.
    fn shows_all(&self) -> bool {
        self.over_bytes || self.shown >= self.records_max
    }

    /// Forgets what was written.
    pub(super) fn restart(&mut self) {
        let (keep, select) = (std::mem::take(&mut self.keep), self.select.take());
        let new = Self::new(self.records_max, self.bytes_max);
        *self = Self { keep, select, skip: self.skip, aside: self.aside, ..new };
    }

    /// Takes the record that `write` appends, or drops it where it does not fit.
    pub(super) fn record(&mut self, write: impl FnOnce(&mut String) -> Result<(), String>) {
        if self.is_full() {
            return;
        }
        let begin = self.out.len();
        if begin > 0 {
            self.out.push(',');
        }
        let start = self.out.len();
        if let Err(fault) = write(&mut self.out) {
            self.out.truncate(begin);
            self.fault = Some(fault);
            return;
        }
        if let Some(fields) = &self.select {
            let record = self.out.split_off(start);
            fields.select(&record, &self.keep, &mut self.out);
        }
        if !self.shows_all() && self.shows(begin, start) {
            return;
        }
        // Beyond what is shown: set aside where that was asked for.
        match self.aside {
            Some((_, bytes)) if self.out.len() <= bytes => self.ends.push(self.out.len()),
            _ => {
                self.out.truncate(begin);
                self.aside_full = true;
            }
        }
    }

    /// Whether the record just written is shown. The only one is reduced first: its fields, then its texts,
    /// before nothing at all is said.
    fn shows(&mut self, begin: usize, start: usize) -> bool {
        if self.out.len() > self.bytes_max {
            let reduced = if begin == 0 { self.out.get(start..).map(str::to_owned) } else { None };
            let less = reduced.as_ref().and_then(|record| shrink(record, self.bytes_max, &self.keep));
            let Some(less) = less else {
                self.over_bytes = true;
                return false;
            };
            self.out.truncate(start);
            self.out.push_str(&less);
            self.shrunk = reduced;
        }
        self.ends.push(self.out.len());
        self.shown += 1;
        true
    }

    /// Records that are shown.
    pub(super) fn shown(&self) -> usize {
        self.shown
    }

    /// Whether records were dropped for their bytes.
    pub(super) fn over_bytes(&self) -> bool {
        self.over_bytes
    }

    /// The only record as it was, where its fields or texts were reduced.
    pub(super) fn shrunk(&self) -> Option<&str> {
        self.shrunk.as_deref()
    }

    /// The first failure of a writer.
    pub(super) fn fault(&self) -> Result<(), String> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// The records one by one, those set aside last.
    pub(super) fn into_parts(self) -> Vec<String> {
        let mut parts = Vec::with_capacity(self.ends.len());
        let mut from = 0;
        for end in self.ends {
            parts.push(self.out.get(from..end).unwrap_or_default().trim_start_matches(',').to_owned());
            from = end;
        }
        parts
    }
}

/// Makes a JSON object smaller: its largest members go first (never those in `keep`), then texts are cut.
/// `None` where even that is too much.
pub(super) fn shrink(object: &str, max: usize, keep: &[String]) -> Option<String> {
    if !object.starts_with('{') {
        return None;
    }
    let mut members = members(object);
    let size = |m: &[(&str, &str)]| m.iter().map(|(k, v)| k.len() + v.len() + 2).sum::<usize>() + 1;
    while size(&members) > max && members.len() > 1 {
        let largest = members
            .iter()
            .enumerate()
            .filter(|(_, (k, _))| {
                !keep.iter().any(|name| scan::decode(k).is_some_and(|k| k == name.as_str()))
            })
            .max_by_key(|(_, (_, v))| v.len())
            .map(|(i, _)| i);
        match largest {
            Some(i) => drop(members.remove(i)),
            None => break,
        }
    }
    let joined = |text: Option<usize>, nested: usize| {
        let mut out = String::from("{");
        for (i, (key, value)) in members.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(key);
            out.push(':');
            scan::copy(value, Ceilings { nested, text, drop_null: false }, &mut out).ok()?;
        }
        out.push('}');
        Some(out)
    };
    let whole = joined(None, usize::MAX)?;
    if whole.len() <= max {
        return Some(whole);
    }
    TEXT_STEPS.iter().find_map(|text| joined(Some(*text), text / 16).filter(|out| out.len() <= max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(sink: &mut RecordSink, text: &str) {
        sink.record(|out| {
            out.push_str(text);
            Ok(())
        });
    }

    #[test]
    fn a_sink_is_full_at_its_limit_and_not_before() {
        let mut sink = RecordSink::new(10, 15);
        push(&mut sink, r#"{"a":1}"#);
        push(&mut sink, r#"{"a":2}"#);
        assert!(!sink.is_full() && sink.shown() == 2);
        push(&mut sink, "1");
        assert!(sink.is_full() && sink.over_bytes());
        assert_eq!(sink.into_parts().join(","), r#"{"a":1},{"a":2}"#);
        let mut sink = RecordSink::new(1, 100);
        push(&mut sink, "{}");
        push(&mut sink, "{}");
        assert!(sink.is_full() && !sink.over_bytes());
        assert_eq!(sink.into_parts(), ["{}"]);
    }

    #[test]
    fn records_beyond_what_is_shown_are_set_aside() {
        let mut sink = RecordSink::new(2, 100).aside(4, 1_000);
        for text in ["{}", "{}", "[1]", "[2]", "[3]"] {
            push(&mut sink, text);
        }
        assert!(sink.is_full() && sink.shown() == 2 && !sink.over_bytes());
        assert_eq!(sink.into_parts(), ["{}", "{}", "[1]", "[2]"]);
        let mut sink = RecordSink::new(9, 7).aside(9, 12);
        for text in ["{\"a\":1}", "[1]", "[23456]"] {
            push(&mut sink, text);
        }
        assert!(sink.is_full() && sink.over_bytes());
        assert_eq!((sink.shown(), sink.into_parts().len()), (1, 2));
    }

    #[test]
    fn a_single_large_record_loses_fields_before_texts() {
        let mut sink = RecordSink::new(10, 60);
        push(&mut sink, &format!(r#"{{"id":1,"body":"{}","t":"short"}}"#, "x".repeat(100)));
        assert!(sink.shrunk().is_some());
        assert_eq!(sink.into_parts().join(","), r#"{"id":1,"t":"short"}"#);
        let only = format!(r#"{{"body":"{}"}}"#, "😀".repeat(100));
        let less = shrink(&only, 60, &["body".to_owned()]).unwrap();
        assert!(less.len() <= 60 && less.contains('…'), "{less}");
        assert_eq!(shrink("{\"a\":1}", 3, &[]), None);
    }
}
