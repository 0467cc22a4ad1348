//! Which processes hold a data directory open: each has a file that it keeps locked, and the system lets go of
//! the lock when the process ends, however it ends. A number of a process would come again; a lock does not.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::id;

/// The folder of the locked files.
const DIR: &str = "instances";
/// Names of processes in one directory that are looked at: more were never alive at once.
const ENTRIES_MAX: usize = 10_000;

/// This process's entry.
#[derive(Debug)]
pub(super) struct Instance {
    id: String,
    /// `None` for a store in memory.
    held: Option<(File, PathBuf)>,
}

impl Instance {
    /// An entry that no other process can see.
    pub(super) fn alone() -> Self {
        Self { id: fresh_id(), held: None }
    }

    /// Makes an entry in a directory. To be called while the directory is locked as a whole, so that nobody
    /// takes the file for a dead one's before it is locked.
    pub(super) fn enter(data: &Path) -> io::Result<Self> {
        let dir = data.join(DIR);
        std::fs::create_dir_all(&dir)?;
        let id = fresh_id();
        let path = dir.join(&id);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.try_lock().map_err(|e| match e {
            TryLockError::Error(e) => e,
            TryLockError::WouldBlock => io::Error::other("a fresh file is locked by somebody else"),
        })?;
        Ok(Self { id, held: Some((file, path)) })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn is_alone(&self) -> bool {
        self.held.is_none()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some((file, path)) = self.held.take() {
            // Removed while still locked: nobody else looks at it in between.
            std::fs::remove_file(path).ok();
            drop(file);
        }
    }
}

/// The processes that hold the directory open; the files of those that are gone are removed. To be called while
/// the directory is locked as a whole.
pub(super) fn alive(data: &Path) -> io::Result<Vec<String>> {
    let mut alive = Vec::new();
    for entry in std::fs::read_dir(data.join(DIR))?.take(ENTRIES_MAX) {
        let path = entry?.path();
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else { continue };
        // One that cannot even be opened counts as alive: its rows are left to it.
        let is_gone = OpenOptions::new().write(true).open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if is_gone {
            std::fs::remove_file(&path).ok();
        } else {
            alive.push(name);
        }
    }
    Ok(alive)
}

fn fresh_id() -> String {
    id::hex(&id::unique::<12>())
}
