//! A file of the data directory that is a memory only: whole or not there, and nothing stops where it is neither read nor
//! written.

use std::path::{Path, PathBuf};

use crate::json;

/// Where something is kept between two runs, if anywhere.
#[derive(Debug, Clone)]
pub(super) struct KeptFile {
    path: Option<PathBuf>,
    bytes_max: usize,
}

impl KeptFile {
    /// A file of a data directory, of at most so many bytes.
    pub(super) fn of(data: Option<&Path>, name: &str, bytes_max: usize) -> Self {
        Self { path: data.map(|dir| dir.join(name)), bytes_max }
    }

    /// Whether there is a place at all.
    pub(super) fn is_somewhere(&self) -> bool {
        self.path.is_some()
    }

    /// Its bytes. Blocking.
    pub(super) fn read(&self) -> Option<Vec<u8>> {
        let path = self.path.as_deref().filter(|path| path.exists())?;
        let told = |error: &json::JsonError| {
            tracing::warn!(error = %error, path = %path.display(), "what was kept cannot be read");
        };
        json::read_capped(path, self.bytes_max).inspect_err(told).ok()
    }

    /// Puts bytes in its place, all of them or none. Blocking.
    pub(super) fn write(&self, bytes: &[u8]) {
        let Some(path) = self.path.as_deref() else { return };
        // Each process has a draft of its own: two of them may write at once, the last one stays.
        let draft = path.with_extension(format!("{}.draft", std::process::id()));
        let written = path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&draft, bytes))
            .and_then(|()| std::fs::rename(&draft, path));
        if let Err(error) = written {
            std::fs::remove_file(&draft).ok();
            tracing::warn!(error = %error, path = %path.display(), "it cannot be kept for the next start");
        }
    }
}
