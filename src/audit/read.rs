//! Reading records back: the newest for `docent audit tail`, all of them for `docent policy replay`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::log::{LINE_BYTES_MAX, files};
use crate::json;

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or folder cannot be opened or read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What was read, and how many lines were no records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Read {
    /// Records given.
    pub records: u64,
    /// Lines that are not JSON objects, or are longer than a record can be.
    pub skipped: u64,
}

/// Reads every record of a file, or of all files of a folder (`DATA/audit`, oldest first).
pub fn read(path: &Path, mut each: impl FnMut(Value)) -> Result<Read, ReadError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReadError::Io { path, source }
    };
    let paths = if path.is_dir() {
        let files = files(path).map_err(failed(path))?;
        files.into_iter().map(|f| path.join(f.name)).collect()
    } else {
        vec![path.to_owned()]
    };
    let mut done = Read::default();
    for path in paths {
        let mut reader = BufReader::new(File::open(&path).map_err(failed(&path))?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
            let read = io::Read::take(&mut reader, limit).read_until(b'\n', &mut line);
            if read.map_err(failed(&path))? == 0 {
                break;
            }
            match json::parse(&line, LINE_BYTES_MAX) {
                Ok(record @ Value::Object(_)) => {
                    done.records += 1;
                    each(record);
                }
                _ => done.skipped += 1,
            }
        }
    }
    Ok(done)
}

/// The newest `count` records of a folder, oldest first.
pub fn tail(dir: &Path, count: usize) -> Result<Vec<Value>, ReadError> {
    let mut last = VecDeque::new();
    if dir.is_dir() {
        read(dir, |record| {
            last.push_back(record);
            if last.len() > count {
                last.pop_front();
            }
        })?;
    }
    Ok(last.into())
}
