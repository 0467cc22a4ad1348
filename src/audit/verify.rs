//! Whether a log is what was written: every tag, every number, both ends.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde::Serialize;

use super::chain::{AuditKey, Head, Tag, from_hex, hex};
use super::log::{LINE_BYTES_MAX, LogFile, files};

/// What the check of a log found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Whether every record is as it was written, and none is missing.
    pub ok: bool,
    /// Records that were checked and are good.
    pub records: u64,
    /// The number of the first record that was changed, or is missing. 0 where the head itself is bad.
    pub first_bad: Option<u64>,
    /// The file and line of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What is wrong, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the first record that is kept: older ones were let go by retention.
    pub first: u64,
}

impl Verified {
    fn bad(self, seq: u64, place: Option<String>, reason: impl Into<String>) -> Self {
        Self { ok: false, first_bad: Some(seq), place, reason: Some(reason.into()), ..self }
    }
}

struct Walk<'a> {
    key: &'a AuditKey,
    head: &'a Head,
    /// The number and tag of the last good record.
    seq: u64,
    tag: Tag,
    found: Verified,
}

/// Checks the log of a folder. A folder without a log is a log without records.
pub fn verify(dir: &Path, key: &AuditKey) -> io::Result<Verified> {
    let none = Verified { ok: true, records: 0, first_bad: None, place: None, reason: None, first: 1 };
    // The head first: what is written from now on is behind it.
    let head = match Head::read(dir, key) {
        Ok(head) => head,
        Err(reason) => return Ok(none.bad(0, Some("head.json".to_owned()), reason)),
    };
    let files = if dir.is_dir() { files(dir)? } else { Vec::new() };
    let Some(head) = head else {
        return Ok(match files.first() {
            None => none,
            Some(_) => none.bad(0, None, "there are records, and the head is gone"),
        });
    };
    let before = from_hex(&head.before).unwrap_or_default();
    let found = Verified { first: head.first, ..none };
    let mut walk = Walk { key, head: &head, seq: head.first - 1, tag: before, found };
    // A file that retention was about to remove is behind the beginning.
    for file in files.iter().filter(|f| f.first >= head.first) {
        if let Some(bad) = walk.file(dir, file)? {
            return Ok(bad);
        }
    }
    let Walk { seq, found, .. } = walk;
    if seq < head.seq {
        return Ok(found.bad(seq + 1, None, format!("records {} to {} are missing", seq + 1, head.seq)));
    }
    Ok(found)
}

impl Walk<'_> {
    /// Checks one file. `Some` is the end of the check.
    fn file(&mut self, dir: &Path, file: &LogFile) -> io::Result<Option<Verified>> {
        let mut reader = BufReader::new(File::open(dir.join(&file.name))?);
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
            let read = io::Read::take(&mut reader, limit).read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            let place = || Some(format!("{}:{number}", file.name));
            let next = self.seq + 1;
            let Some(text) = line.strip_suffix(b"\n") else {
                // Half a line behind the head is being written, or was when its process died.
                if next > self.head.seq {
                    break;
                }
                return Ok(Some(self.found.clone().bad(next, place(), "the line is not whole")));
            };
            let opened = std::str::from_utf8(text).ok().and_then(|t| self.key.open(&self.tag, t));
            let Some(tag) = opened else {
                let reason = "it was changed, or what stood before it is gone";
                return Ok(Some(self.found.clone().bad(next, place(), reason)));
            };
            (self.seq, self.tag) = (next, tag);
            self.found.records += 1;
            if next == self.head.seq && hex(&tag) != self.head.tag {
                return Ok(Some(self.found.clone().bad(
                    next,
                    place(),
                    "it is not the record that the head names",
                )));
            }
        }
        Ok(None)
    }
}
