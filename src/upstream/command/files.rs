//! `output = "files"`: a folder for one run, and what the program left in it.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::{McpReply, ReplyBody};
use crate::json;
use crate::limits;
use crate::media;
use crate::upstream::{UpstreamError, text};

/// Entries of a folder that are looked at; a few more than the files that are taken, so that the rest can be named.
const SEEN_MAX: usize = limits::COMMAND_FILES_MAX * 4;
/// Folders inside of folders.
const DEPTH_MAX: usize = 4;
/// Files that are named with the reason why they were left out.
const TOLD_MAX: usize = 20;

/// A folder that is removed with the run.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// An empty folder that only this user may read.
    pub(super) fn new() -> Result<Self, UpstreamError> {
        let mut random = [0u8; 16];
        let failed = |e: String| UpstreamError::internal("no folder for the run's files").detail(&e);
        getrandom::fill(&mut random).map_err(|e| failed(e.to_string()))?;
        let name = u128::from_le_bytes(random);
        let path = std::env::temp_dir().join(format!("docent-run-{name:032x}"));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|e| failed(e.to_string()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The files as content blocks: what the program printed, then text files as text and others as blobs,
    /// in name order, within the budget. What does not fit is named in the warnings.
    pub(super) fn collect(
        &self,
        budget: usize,
        stdout: &[u8],
        warnings: &mut Vec<String>,
    ) -> Result<ReplyBody, UpstreamError> {
        let read = |e: &std::io::Error| UpstreamError::internal("the run's files cannot be read").detail(e);
        let mut found = Found::default();
        found.walk(&self.0, 0).map_err(|e| read(&e))?;
        let Found { files: mut paths, mut passed } = found;
        paths.sort();
        let mut content: Vec<Box<RawValue>> = Vec::new();
        let mut names = Vec::new();
        let printed = String::from_utf8_lossy(stdout);
        if !printed.trim().is_empty() {
            content.extend(raw(&json!({"type": "text", "text": text::plain(&printed)})));
        }
        let mut left = budget.saturating_sub(stdout.len());
        for path in paths {
            let name = path.strip_prefix(&self.0).unwrap_or(&path).to_string_lossy().into_owned();
            let size = path.metadata().map_or(usize::MAX, |m| usize::try_from(m.len()).unwrap_or(usize::MAX));
            let fits = size.saturating_mul(4) / 3 <= left;
            if names.len() >= limits::COMMAND_FILES_MAX || !fits {
                passed.push((path, "over the budget"));
                continue;
            }
            let Ok(bytes) = json::read_capped(&path, size) else {
                passed.push((path, "it cannot be read"));
                continue;
            };
            left = left.saturating_sub(bytes.len().saturating_mul(4) / 3);
            content.extend(raw(&block(&name, bytes)));
            names.push(json!({"name": name, "bytes": size}));
        }
        self.tell(&passed, warnings);
        let structured = raw(&json!({"files": names}));
        Ok(ReplyBody::Mcp(McpReply {
            content,
            structured,
            is_error: false,
            meta: None,
            artifacts: Some(Vec::new()),
        }))
    }

    /// Names what was left out, as far as a warning is worth its line.
    fn tell(&self, passed: &[(PathBuf, &str)], warnings: &mut Vec<String>) {
        for (path, why) in passed.iter().take(TOLD_MAX) {
            let name = path.strip_prefix(&self.0).unwrap_or(path).to_string_lossy();
            let size = path.symlink_metadata().map_or(0, |m| m.len());
            warnings.push(format!("the file `{name}` ({size} bytes) was left out: {why}"));
        }
        if passed.len() > TOLD_MAX {
            warnings.push(format!("{} more files were left out", passed.len() - TOLD_MAX));
        }
    }
}

fn raw(value: &Value) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(value).ok()
}

/// An embedded resource of MCP: text where the bytes are UTF-8, else base64.
fn block(name: &str, bytes: Vec<u8>) -> Value {
    let media = media::of_name(name);
    let uri = format!("file:///{}", name.replace(' ', "%20"));
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => {
            json!({"type": "resource", "resource": {"uri": uri, "mimeType": media, "text": text}})
        }
        other => {
            let bytes = other.map_or_else(std::string::FromUtf8Error::into_bytes, String::into_bytes);
            let blob = STANDARD.encode(bytes);
            if media.starts_with("image/") {
                return json!({"type": "image", "mimeType": media, "data": blob});
            }
            json!({"type": "resource", "resource": {"uri": uri, "mimeType": media, "blob": blob}})
        }
    }
}

/// What a run left behind: its plain files, and what is none of them with the reason.
#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    passed: Vec<(PathBuf, &'static str)>,
}

impl Found {
    /// Looks below a folder. Links are not followed: they lead out of it. Depth and number are bounded.
    fn walk(&mut self, dir: &Path, depth: usize) -> std::io::Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if self.files.len() + self.passed.len() >= SEEN_MAX {
                self.passed.push((entry.path(), "there are too many"));
                return Ok(());
            }
            if kind.is_file() {
                self.files.push(entry.path());
            } else if !kind.is_dir() {
                self.passed.push((entry.path(), "it is no plain file"));
            } else if depth < DEPTH_MAX {
                self.walk(&entry.path(), depth + 1)?;
            } else {
                self.passed.push((entry.path(), "it lies too deep"));
            }
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(error = %e, "the folder of a run was not removed");
        }
    }
}
