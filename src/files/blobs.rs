//! Bytes under their hashes: written to a draft, moved to their place when they are whole.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Bytes that nobody names are removed after this long: an upload names them only when it is finished.
const UNNAMED: Duration = Duration::from_hours(1);
/// The folder of unfinished uploads.
const DRAFTS: &str = "drafts";
/// The folder of copies that programs read.
const LENT: &str = "lent";

/// The folder of blobs: `files/ab/abcdef…`.
#[derive(Debug)]
pub(super) struct Blobs {
    dir: PathBuf,
}

/// Bytes on their way; removed when this is dropped before they were kept.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) file: tokio::fs::File,
    path: PathBuf,
    kept: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            // One system call; a draft that stays is swept later.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

impl Blobs {
    pub(super) fn new(data: &Path) -> Self {
        Self { dir: data.join("files") }
    }

    pub(super) fn path(&self, hash: &str) -> PathBuf {
        self.dir.join(hash.get(..2).unwrap_or("00")).join(hash)
    }

    pub(super) async fn draft(&self) -> std::io::Result<Draft> {
        let dir = self.dir.join(DRAFTS);
        tokio::fs::create_dir_all(&dir).await?;
        let path = dir.join(super::upload::random_id()?);
        let mut options = tokio::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        options.mode(0o600);
        Ok(Draft { file: options.open(&path).await?, path, kept: false })
    }

    /// A new folder for copies of one call, by its absolute path: programs run elsewhere.
    pub(super) async fn lending(&self) -> std::io::Result<PathBuf> {
        let dir = self.dir.join(LENT);
        tokio::fs::create_dir_all(&dir).await?;
        let folder = tokio::fs::canonicalize(&dir).await?.join(super::upload::random_id()?);
        let mut builder = tokio::fs::DirBuilder::new();
        #[cfg(unix)]
        builder.mode(0o700);
        builder.create(&folder).await?;
        Ok(folder)
    }

    /// Moves a draft to its place; where the same bytes are there already, those stay and count as new.
    pub(super) async fn keep(&self, mut draft: Draft, hash: &str) -> std::io::Result<()> {
        use tokio::io::AsyncWriteExt as _;
        draft.file.flush().await?;
        draft.file.sync_all().await?;
        let to = self.path(hash);
        if let Some(folder) = to.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        // The newer of two equal files replaces the other: readers that have it open are not disturbed, and its
        // age keeps a sweep away until it is named.
        tokio::fs::rename(&draft.path, &to).await?;
        draft.kept = true;
        Ok(())
    }

    /// Hashes of bytes that have lain here for some time; drafts that old are removed.
    pub(super) async fn old(&self, now_ms: u64) -> std::io::Result<Vec<String>> {
        let dir = self.dir.clone();
        let walk = move || walk(&dir, now_ms);
        tokio::task::spawn_blocking(walk).await.map_err(std::io::Error::other)?
    }

    /// Removes bytes, unless they were written again meanwhile (by another process, say).
    pub(super) async fn remove_old(&self, hash: &str, now_ms: u64) -> bool {
        let path = self.path(hash);
        let is_old =
            tokio::fs::metadata(&path).await.and_then(|m| age(&m, now_ms)).is_ok_and(|a| a >= UNNAMED);
        is_old && tokio::fs::remove_file(path).await.is_ok()
    }
}

fn walk(dir: &Path, now_ms: u64) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    let folders = match std::fs::read_dir(dir) {
        Ok(folders) => folders,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(e),
    };
    for folder in folders {
        let folder = folder?;
        let (drafts, lent) = (folder.file_name() == DRAFTS, folder.file_name() == LENT);
        let Ok(entries) = std::fs::read_dir(folder.path()) else { continue };
        for entry in entries {
            let entry = entry?;
            if age(&entry.metadata()?, now_ms)? < UNNAMED {
                continue;
            }
            if lent {
                // No call lasts that long: its process ended before it could clear up.
                std::fs::remove_dir_all(entry.path()).ok();
            } else if drafts {
                std::fs::remove_file(entry.path()).ok();
            } else if let Ok(name) = entry.file_name().into_string() {
                found.push(name);
            }
        }
    }
    Ok(found)
}

fn age(of: &std::fs::Metadata, now_ms: u64) -> std::io::Result<Duration> {
    let modified = of.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Duration::from_millis(now_ms).saturating_sub(modified))
}
