//! The files: append under a lock, so that several processes keep one chain; rotate, recover, let old ones go.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::chain::{AuditKey, Head, SEAL_BYTES, Tag, from_hex, hex};
use super::settings::AuditSettings;
use crate::clock::rfc3339_ms;
use crate::json;

/// Bytes of one file: small enough to hand to somebody, large enough that there are few.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// A file is not written to for longer than this: retention counts whole files.
const FILE_TIME_MAX_MS: u64 = 24 * 60 * 60 * 1_000;
/// Bytes of one line: a record with values of arguments has at most 20 KiB.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;
/// What was written by a process that died before it told the head: one batch at most.
const TAIL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes that a line has before its record's own members, as a rule.
const HEAD_BYTES: usize = 96;

/// A record to write: its kind and its members.
pub(super) struct Pending {
    pub(super) kind: &'static str,
    pub(super) at_ms: u64,
    /// A JSON object.
    pub(super) body: String,
}

/// A record as it stands in the file.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) seq: u64,
    pub(super) line: Arc<str>,
}

/// The log of one folder, as one process holds it.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    key: AuditKey,
    settings: AuditSettings,
    lock: File,
}

fn broken(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl Log {
    /// Opens the log of a folder, which is made where there is none.
    pub(super) fn open(dir: &Path, key: AuditKey, settings: AuditSettings) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join("lock"))?;
        Ok(Self { dir: dir.to_owned(), key, settings, lock })
    }

    /// Appends records. All of them stand in the file, and in the head, when it returns.
    pub(super) fn append(&mut self, records: &[Pending], now_ms: u64) -> io::Result<Vec<Written>> {
        self.lock.lock()?;
        let done = self.append_locked(records, now_ms);
        self.lock.unlock()?;
        done
    }

    fn append_locked(&mut self, records: &[Pending], now_ms: u64) -> io::Result<Vec<Written>> {
        let mut head = Head::read(&self.dir, &self.key).map_err(broken)?.unwrap_or_else(Head::new);
        let mut out = Vec::with_capacity(records.len() + 1);
        let mut file = match self.current(&mut head, now_ms)? {
            Some(file) => file,
            None => self.begin(&mut head, now_ms, &mut out)?,
        };
        let bytes = self.add_all(&mut head, records, &mut out)?;
        file.write_all(&bytes)?;
        head.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        head.write(&self.dir, &self.key)?;
        Ok(out)
    }

    /// Seals records behind the last one: the bytes to append.
    fn add_all(&self, head: &mut Head, records: &[Pending], out: &mut Vec<Written>) -> io::Result<Vec<u8>> {
        let mut before = from_hex(&head.tag).ok_or_else(|| broken("the head has no tag"))?;
        let mut bytes = Vec::new();
        for record in records {
            let (written, tag) = self.add((head.seq + 1, &before), &mut bytes, record);
            (head.seq, before) = (written.seq, tag);
            out.push(written);
        }
        head.tag = hex(&before);
        Ok(bytes)
    }

    /// Seals one record behind the one whose tag is `before`.
    fn add(&self, (seq, before): (u64, &Tag), into: &mut Vec<u8>, record: &Pending) -> (Written, Tag) {
        let members = record.body.strip_prefix('{').filter(|rest| *rest != "}");
        let mut line = String::with_capacity(record.body.len() + HEAD_BYTES + SEAL_BYTES);
        for part in ["{\"seq\":", &seq.to_string(), ",\"at\":\"", &rfc3339_ms(record.at_ms), "\",\"kind\":\""]
        {
            line.push_str(part);
        }
        line.push_str(record.kind);
        line.push_str(if members.is_some() { "\"," } else { "\"}" });
        line.push_str(members.unwrap_or_default());
        let tag = self.key.seal(before, &mut line);
        into.extend_from_slice(line.as_bytes());
        into.push(b'\n');
        (Written { seq, line: Arc::from(line) }, tag)
    }

    /// The file to go on with. `None`: a new one is due.
    fn current(&self, head: &mut Head, now_ms: u64) -> io::Result<Option<File>> {
        if head.file.is_empty() {
            return Ok(None);
        }
        let path = self.dir.join(&head.file);
        let mut file = OpenOptions::new().read(true).append(true).open(&path).map_err(|e| {
            broken(format!("{} cannot be gone on with ({e}); run `docent audit verify`", head.file))
        })?;
        let len = file.metadata()?.len();
        if len < head.bytes {
            return Err(broken(format!("{} was cut; run `docent audit verify`", head.file)));
        }
        if len > head.bytes {
            self.recover(head, &mut file, len)?;
        }
        let began = named(&head.file).map_or(0, |n| n.at_ms);
        let full = head.bytes >= FILE_BYTES_MAX || now_ms.saturating_sub(began) >= FILE_TIME_MAX_MS;
        Ok((!full).then_some(file))
    }

    /// Takes over records that a process wrote before it died, and drops half a line behind them.
    fn recover(&self, head: &mut Head, file: &mut File, len: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(head.bytes))?;
        let mut tail = Vec::new();
        file.take((len - head.bytes).min(TAIL_BYTES_MAX)).read_to_end(&mut tail)?;
        for line in tail.split_inclusive(|b| *b == b'\n') {
            let before = from_hex(&head.tag).unwrap_or_default();
            let whole = line.strip_suffix(b"\n").and_then(|l| std::str::from_utf8(l).ok());
            let Some(tag) = whole.and_then(|l| self.key.open(&before, l)) else { break };
            head.seq += 1;
            head.tag = hex(&tag);
            head.bytes += u64::try_from(line.len()).unwrap_or(u64::MAX);
        }
        if head.bytes < len {
            tracing::warn!(
                file = head.file,
                bytes = len - head.bytes,
                "half a record of the audit was dropped"
            );
            file.set_len(head.bytes)?;
        }
        Ok(())
    }

    /// Begins a file, with a record that ties it to the one before.
    fn begin(&self, head: &mut Head, now_ms: u64, out: &mut Vec<Written>) -> io::Result<File> {
        // What a process began and died over before it told the head: its first record only.
        for stray in files(&self.dir)?.iter().filter(|f| f.first > head.seq) {
            std::fs::remove_file(self.dir.join(&stray.name))?;
        }
        head.file = format!("{:012}-{now_ms}.jsonl", head.seq + 1);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(self.dir.join(&head.file))?;
        let body = json!({ "before": head.tag, "version": env!("CARGO_PKG_VERSION") }).to_string();
        let bytes = self.add_all(head, &[Pending { kind: "open", at_ms: now_ms, body }], out)?;
        file.write_all(&bytes)?;
        head.bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        head.write(&self.dir, &self.key)?;
        self.prune(head, now_ms)?;
        Ok(file)
    }

    /// Lets files go that are too old or too much. The head says first where the chain begins now, so that a
    /// crash in between leaves a file too many, not a chain that seems to be cut.
    fn prune(&self, head: &mut Head, now_ms: u64) -> io::Result<()> {
        let keep_from =
            now_ms.saturating_sub(u64::try_from(self.settings.retention.as_millis()).unwrap_or(0));
        let files = files(&self.dir)?;
        let mut total: u64 = files.iter().map(|f| f.bytes).sum();
        for (file, next) in files.iter().zip(files.iter().skip(1)) {
            let old = next.at_ms <= keep_from || file.first < head.first;
            if !old && total <= self.settings.bytes_max {
                break;
            }
            if let Some(before) = before_of(&self.dir.join(&next.name)) {
                (head.first, head.before) = (next.first, hex(&before));
                head.write(&self.dir, &self.key)?;
            }
            std::fs::remove_file(self.dir.join(&file.name))?;
            total = total.saturating_sub(file.bytes);
        }
        Ok(())
    }
}

/// A file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogFile {
    pub(super) name: String,
    /// The number of its first record.
    pub(super) first: u64,
    /// When it was begun.
    pub(super) at_ms: u64,
    pub(super) bytes: u64,
}

fn named(name: &str) -> Option<LogFile> {
    let (first, at) = name.strip_suffix(".jsonl")?.split_once('-')?;
    Some(LogFile { name: name.to_owned(), first: first.parse().ok()?, at_ms: at.parse().ok()?, bytes: 0 })
}

/// The files of a folder, oldest first.
pub(super) fn files(dir: &Path) -> io::Result<Vec<LogFile>> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let Some(mut file) = entry.file_name().to_str().and_then(named) else { continue };
        file.bytes = entry.metadata()?.len();
        out.push(file);
    }
    out.sort_by_key(|f| f.first);
    Ok(out)
}

/// The tag before the first record of a file, as that record tells it.
fn before_of(path: &Path) -> Option<Tag> {
    let mut start = vec![0; LINE_BYTES_MAX];
    let read = File::open(path).ok()?.read(&mut start).ok()?;
    let line = start.get(..read)?.split(|b| *b == b'\n').next()?;
    let record: Value = json::parse(line, LINE_BYTES_MAX).ok()?;
    from_hex(record.get("before")?.as_str()?)
}
