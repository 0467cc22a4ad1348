//! Where records go: JSON text within a byte and a record budget, written once, never rebuilt.

use std::sync::Arc;

use super::keep::members;
use super::scan::{self, Ceilings};
use super::select::Fields;

/// Ceilings on texts tried one after the other on a record that alone is too large.
const TEXT_STEPS: [usize; 5] = [8_192, 2_048, 512, 128, 32];

/// Records as JSON text, one behind the other with commas between them.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    text: String,
    /// Where each record ends in `text`.
    ends: Vec<usize>,
}

impl Records {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes that one more would take them to.
    fn with(&self, record: &str) -> usize {
        self.text.len() + usize::from(!self.ends.is_empty()) + record.len()
    }

    /// Adds one. Room is made in few steps, and none beyond `most` bytes as long as they suffice.
    pub(super) fn push(&mut self, record: &str, most: usize) {
        let (needed, has) = (self.with(record), self.text.capacity());
        if needed > has {
            let wanted = has.saturating_mul(2).max(1_024);
            let wanted = if needed <= most { wanted.min(most) } else { wanted };
            self.text.reserve_exact(wanted.max(needed) - self.text.len());
        }
        if !self.ends.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(record);
        self.ends.push(self.text.len());
    }

    /// The text of the first so many.
    pub(super) fn first(&self, records: usize) -> &str {
        let end = records.checked_sub(1).and_then(|last| self.ends.get(last));
        end.and_then(|end| self.text.get(..*end)).unwrap_or_default()
    }

    /// One after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|end| end + 1));
        starts.zip(&self.ends).map(|(start, end)| self.text.get(start..*end).unwrap_or_default())
    }

    /// The text of the first so many, without a copy of it.
    pub(super) fn into_first(mut self, records: usize) -> String {
        let end = self.first(records).len();
        self.text.truncate(end);
        self.text
    }
}

impl FromIterator<String> for Records {
    fn from_iter<T: IntoIterator<Item = String>>(all: T) -> Self {
        let mut records = Self::default();
        all.into_iter().for_each(|record| records.push(&record, usize::MAX));
        records
    }
}

/// A bounded list of records as JSON text.
#[derive(Debug)]
pub(super) struct RecordSink {
    records: Records,
    /// A record while it is written.
    draft: String,
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
            records: Records::default(),
            draft: String::new(),
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
        let aside = self.aside.is_none_or(|(records, _)| self.aside_full || self.records.len() >= records);
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

    /// Takes the record that `write` writes, or drops it where it does not fit.
    pub(super) fn record(&mut self, write: impl FnOnce(&mut String) -> Result<(), String>) {
        if self.is_full() {
            return;
        }
        let mut draft = std::mem::take(&mut self.draft);
        draft.clear();
        match write(&mut draft) {
            Ok(()) => self.take(&mut draft),
            Err(fault) => self.fault = Some(fault),
        }
        self.draft = draft;
    }

    fn take(&mut self, draft: &mut String) {
        if let Some(fields) = &self.select {
            let record = std::mem::take(draft);
            fields.select(&record, &self.keep, draft);
        }
        if !self.shows_all() && self.shows(draft) {
            return;
        }
        // Beyond what is shown: set aside where that was asked for.
        match self.aside {
            Some((_, bytes)) if self.records.with(draft) <= bytes => self.records.push(draft, bytes),
            _ => self.aside_full = true,
        }
    }

    /// Whether a record is shown. The only one is reduced first: its fields, then its texts, before nothing at
    /// all is said.
    fn shows(&mut self, draft: &mut String) -> bool {
        if self.records.with(draft) > self.bytes_max {
            let is_first = self.records.len() == 0;
            let Some(less) = is_first.then(|| shrink(draft, self.bytes_max, &self.keep)).flatten() else {
                self.over_bytes = true;
                return false;
            };
            self.shrunk = Some(std::mem::replace(draft, less));
        }
        self.records.push(draft, self.bytes_max);
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

    /// The records, those set aside last.
    pub(super) fn into_records(self) -> Records {
        self.records
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

    fn parts(sink: RecordSink) -> Vec<String> {
        sink.into_records().iter().map(str::to_owned).collect()
    }

    fn joined(sink: RecordSink) -> String {
        let records = sink.into_records();
        records.first(records.len()).to_owned()
    }

    #[test]
    fn records_stand_behind_each_other_and_take_no_more_room_than_they_may() {
        let mut records = Records::default();
        assert_eq!((records.len(), records.first(0), records.first(3)), (0, "", ""));
        for n in 0..300 {
            records.push(&format!("{{\"n\":{n}}}"), 3_000);
        }
        assert_eq!(records.iter().nth(299), Some("{\"n\":299}"));
        assert_eq!(records.first(2), "{\"n\":0},{\"n\":1}");
        assert!(records.text.len() < 3_000 && records.text.capacity() == 3_000);
        records.push(&"7".repeat(4_000), 3_000);
        assert_eq!(records.iter().last().map(str::len), Some(4_000));
        assert_eq!(records.into_first(1), "{\"n\":0}");
    }

    #[test]
    fn a_sink_is_full_at_its_limit_and_not_before() {
        let mut sink = RecordSink::new(10, 15);
        push(&mut sink, r#"{"a":1}"#);
        push(&mut sink, r#"{"a":2}"#);
        assert!(!sink.is_full() && sink.shown() == 2);
        push(&mut sink, "1");
        assert!(sink.is_full() && sink.over_bytes());
        assert_eq!(joined(sink), r#"{"a":1},{"a":2}"#);
        let mut sink = RecordSink::new(1, 100);
        push(&mut sink, "{}");
        push(&mut sink, "{}");
        assert!(sink.is_full() && !sink.over_bytes());
        assert_eq!(parts(sink), ["{}"]);
    }

    #[test]
    fn records_beyond_what_is_shown_are_set_aside() {
        let mut sink = RecordSink::new(2, 100).aside(4, 1_000);
        for text in ["{}", "{}", "[1]", "[2]", "[3]"] {
            push(&mut sink, text);
        }
        assert!(sink.is_full() && sink.shown() == 2 && !sink.over_bytes());
        assert_eq!(parts(sink), ["{}", "{}", "[1]", "[2]"]);
        let mut sink = RecordSink::new(9, 7).aside(9, 12);
        for text in ["{\"a\":1}", "[1]", "[23456]"] {
            push(&mut sink, text);
        }
        assert!(sink.is_full() && sink.over_bytes());
        assert_eq!((sink.shown(), parts(sink).len()), (1, 2));
    }

    #[test]
    fn a_single_large_record_loses_fields_before_texts() {
        let mut sink = RecordSink::new(10, 60);
        push(&mut sink, &format!(r#"{{"id":1,"body":"{}","t":"short"}}"#, "x".repeat(100)));
        assert!(sink.shrunk().is_some());
        assert_eq!(joined(sink), r#"{"id":1,"t":"short"}"#);
        let only = format!(r#"{{"body":"{}"}}"#, "😀".repeat(100));
        let less = shrink(&only, 60, &["body".to_owned()]).unwrap();
        assert!(less.len() <= 60 && less.contains('…'), "{less}");
        assert_eq!(shrink("{\"a\":1}", 3, &[]), None);
    }
}
