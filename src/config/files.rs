//! Reading the files of a home: capped, UTF-8, in name order, a file that cannot be read reported.

use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile};
use crate::json::{self, JsonError};

/// Entries of one folder of a home looked at: more are a mistake, such as a data directory put there.
const FOLDER_ENTRIES_MAX: usize = 2_000;

/// The files of one home.
#[derive(Debug)]
pub(super) struct Files<'a> {
    dir: &'a Path,
}

impl<'a> Files<'a> {
    pub(super) fn new(dir: &'a Path) -> Self {
        Self { dir }
    }

    /// The full path of a file named relative to the home.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A file that may be absent; one that is there and cannot be read is an error.
    pub(super) fn optional(
        &self,
        name: &str,
        max: usize,
        diagnostics: &mut Diagnostics,
    ) -> Option<SourceFile> {
        let error = match json::read_text_capped(&self.path(name), max) {
            Ok(text) => return Some(SourceFile::new(name, text)),
            Err(JsonError::Io(e)) if e.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => error,
        };
        diagnostics.push(
            Diagnostic::error("unreadable-file", name, format!("the file cannot be read: {error}"))
                .help("files of a home are UTF-8 text of a bounded size that docent may read"),
        );
        None
    }

    /// All files of a folder with an ending such as `.rhai`, in name order. A missing folder has none.
    pub(super) fn all(
        &self,
        folder: &str,
        ending: &str,
        max: usize,
        diagnostics: &mut Diagnostics,
    ) -> Vec<SourceFile> {
        self.names(folder, diagnostics)
            .into_iter()
            .filter(|n| n.ends_with(ending) && !n.starts_with('.') && self.path(folder).join(n).is_file())
            .filter_map(|n| self.optional(&format!("{folder}/{n}"), max, diagnostics))
            .collect()
    }

    /// The names in a folder, sorted. Names that are not UTF-8 are not part of a home.
    pub(super) fn names(&self, folder: &str, diagnostics: &mut Diagnostics) -> Vec<String> {
        let entries = match std::fs::read_dir(self.path(folder)) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            Err(e) => {
                diagnostics.push(
                    Diagnostic::error("unreadable-folder", folder, format!("the folder cannot be read: {e}"))
                        .help("let docent read it, or remove it"),
                );
                return Vec::new();
            }
        };
        let mut names: Vec<String> = entries
            .take(FOLDER_ENTRIES_MAX + 1)
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .collect();
        if names.len() > FOLDER_ENTRIES_MAX {
            diagnostics.push(
                Diagnostic::error(
                    "too-many-files",
                    folder,
                    format!("the folder has more than {FOLDER_ENTRIES_MAX} entries"),
                )
                .help("keep state and data outside of the home (`--data DIR`)"),
            );
            names.clear();
        }
        names.sort_unstable();
        names
    }
}
