//! Where records go: JSON text within a byte and a record budget, written once, never rebuilt.

use super::scan::{self, Ceilings, Scan};

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
    shrunk: bool,
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
            shrunk: false,
            fault: None,
        }
    }

    /// Members that a record cannot do without when it has to get smaller.
    pub(super) fn keeping(mut self, keep: &[String]) -> Self {
        self.keep = keep.to_vec();
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
        self.over_bytes || self.ends.len() >= self.records_max || self.fault.is_some()
    }

    /// Forgets what was written.
    pub(super) fn restart(&mut self) {
        let keep = std::mem::take(&mut self.keep);
        *self = Self { keep, skip: self.skip, ..Self::new(self.records_max, self.bytes_max) };
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
        if self.out.len() > self.bytes_max {
            if !self.ends.is_empty() {
                self.out.truncate(begin);
                self.over_bytes = true;
                return;
            }
            // The only record: its fields, then its texts are reduced before nothing at all is said.
            let record = self.out.split_off(start);
            self.shrunk = true;
            match shrink(&record, self.bytes_max, &self.keep) {
                Some(less) => self.out.push_str(&less),
                None => {
                    self.over_bytes = true;
                    return;
                }
            }
        }
        self.ends.push(self.out.len());
    }

    /// Records kept.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether records were dropped for their bytes.
    pub(super) fn over_bytes(&self) -> bool {
        self.over_bytes
    }

    /// Whether fields or texts of the only record were reduced.
    pub(super) fn shrunk(&self) -> bool {
        self.shrunk
    }

    /// The first failure of a writer.
    pub(super) fn fault(&self) -> Result<(), String> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// The records one by one.
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
    let mut members = members(object)?;
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

fn members(object: &str) -> Option<Vec<(&str, &str)>> {
    let mut scan = Scan::new(object);
    let mut found = Vec::new();
    if scan.peek() != b'{' {
        return None;
    }
    scan.step();
    if scan.closes(b'}') {
        return Some(found);
    }
    loop {
        let key = scan.key();
        found.push((key, scan.skip()));
        if !scan.more(b'}') {
            return Some(found);
        }
    }
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
        assert!(!sink.is_full() && sink.len() == 2);
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
    fn a_single_large_record_loses_fields_before_texts() {
        let mut sink = RecordSink::new(10, 60);
        push(&mut sink, &format!(r#"{{"id":1,"body":"{}","t":"short"}}"#, "x".repeat(100)));
        assert!(sink.shrunk());
        assert_eq!(sink.into_parts().join(","), r#"{"id":1,"t":"short"}"#);
        let only = format!(r#"{{"body":"{}"}}"#, "😀".repeat(100));
        let less = shrink(&only, 60, &["body".to_owned()]).unwrap();
        assert!(less.len() <= 60 && less.contains('…'), "{less}");
        assert_eq!(shrink("{\"a\":1}", 3, &[]), None);
    }
}
