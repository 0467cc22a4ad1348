//! Files of callers: uploaded, or made by tools. Bytes lie under their blake3 hashes in the data directory, the
//! index of whose they are in the store.
//!
//! Another caller's file is an unknown file. Nothing here knows callers' rights, HTTP or MCP.

mod blobs;
mod lend;
mod upload;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::clock::Clock;
use crate::media;
use crate::store::files::{FileAdded, FileQuota, FileRow};
use crate::store::{Store, StoreError};
use blobs::Blobs;
pub use lend::Lent;
pub use upload::Upload;

/// Hex digits of an id: 128 bits cannot be guessed.
const ID_BYTES: usize = 16;
/// What a file that was uploaded has as its origin.
pub const UPLOADED: &str = "upload";

/// `[files]` of docent.toml: what callers may keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLimits {
    /// `max_bytes`: bytes of one file.
    pub max_bytes: u64,
    /// `quota_bytes`: bytes of all files of one caller.
    pub quota_bytes: u64,
    /// `quota_files`: how many files one caller may keep.
    pub quota_files: u64,
    /// `keep_hours`: how long a file is kept.
    pub keep: Duration,
    /// `types`: media types that are taken, as globs such as `image/*`; empty takes all.
    pub types: Vec<String>,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self {
            max_bytes: 64 * 1024 * 1024,
            quota_bytes: 1024 * 1024 * 1024,
            quota_files: 10_000,
            keep: Duration::from_hours(7 * 24),
            types: Vec::new(),
        }
    }
}

impl FileLimits {
    /// Whether a media type is taken.
    pub fn takes(&self, mime: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix("/*") {
            Some(kind) => mime.split('/').next() == Some(kind) || kind == "*",
            None => pattern == mime,
        };
        self.types.is_empty() || self.types.iter().any(fits)
    }
}

/// What callers are told of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileMeta {
    /// Its id.
    #[serde(rename = "file_id")]
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its media type.
    pub mime: String,
    /// Its bytes.
    pub size: u64,
    /// The blake3 hash of its bytes.
    pub blake3: String,
    /// `upload`, or the tool that made it.
    pub origin: String,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: u64,
    /// From when on it is unknown.
    pub expires_ms: u64,
    /// Its place in the order of making: for pages.
    #[serde(skip)]
    pub seq: u64,
}

impl FileMeta {
    /// Its address as a resource.
    pub fn uri(&self) -> String {
        format!("{URI_PREFIX}{}", self.id)
    }

    /// Where its bytes are over HTTP, on this server.
    pub fn path(&self) -> String {
        format!("/api/v1/files/{}/content", self.id)
    }
}

/// What stands before the id in a file's address.
pub const URI_PREFIX: &str = "docent://files/";

impl From<FileRow> for FileMeta {
    fn from(row: FileRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            mime: row.mime,
            size: row.size,
            blake3: row.hash,
            origin: row.origin,
            created_ms: row.created_ms,
            expires_ms: row.expires_ms,
            seq: row.seq,
        }
    }
}

/// Why a file was not taken or not given.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No such file for this caller.
    #[error("there is no such file")]
    NotFound,
    /// Larger than one file may be.
    #[error("a file has at most {max} bytes here")]
    TooLarge {
        /// `files.max_bytes`
        max: u64,
    },
    /// Its owner keeps as much as it may.
    #[error(
        "your files take {bytes} bytes in {files} files already, {max} bytes are allowed: delete some or wait until they expire"
    )]
    Full {
        /// Bytes of its files.
        bytes: u64,
        /// How many.
        files: u64,
        /// `files.quota_bytes`
        max: u64,
    },
    /// A media type that is not taken.
    #[error("files of the type `{0}` are not taken here (`files.types`)")]
    Type(String),
    /// The server has no data directory.
    #[error("this server keeps no files: it has no data directory")]
    NoPlace,
    /// The index failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk failed.
    #[error("the file cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
}

/// The files of all callers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Files(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    blobs: Option<Blobs>,
    store: Store,
    clock: Clock,
    /// Held shared between writing bytes and naming them, alone while unnamed bytes are removed.
    naming: tokio::sync::RwLock<()>,
}

impl Files {
    /// Files below a data directory; without one nothing is kept.
    pub fn new(data: Option<&Path>, store: Store, clock: Clock) -> Self {
        let naming = tokio::sync::RwLock::default();
        Self(Arc::new(Inner { blobs: data.map(Blobs::new), store, clock, naming }))
    }

    /// Whether files are kept at all.
    pub fn are_kept(&self) -> bool {
        self.0.blobs.is_some()
    }

    fn blobs(&self) -> Result<&Blobs, FileError> {
        self.0.blobs.as_ref().ok_or(FileError::NoPlace)
    }

    fn now(&self) -> u64 {
        self.0.clock.unix_ms()
    }

    /// Begins to take a file. `announced` are the bytes that the sender says it has.
    pub async fn begin(
        &self,
        limits: &FileLimits,
        owner: &str,
        mime: Option<&str>,
        name: &str,
        announced: Option<u64>,
    ) -> Result<Upload, FileError> {
        let name = media::safe_name(name);
        // What clients say of bytes that they know nothing of: a form is none of the types of a file.
        let is_default = |m: &str| matches!(m, media::BINARY | "application/x-www-form-urlencoded");
        let mime = mime.and_then(media::essence).filter(|m| !is_default(m));
        let mime = mime.unwrap_or_else(|| media::of_name(&name).to_owned());
        if !limits.takes(&mime) {
            return Err(FileError::Type(mime));
        }
        let blobs = self.blobs()?;
        if announced.is_some_and(|n| n > limits.max_bytes) {
            return Err(FileError::TooLarge { max: limits.max_bytes });
        }
        let (bytes, files) = self.0.store.files_used(owner, self.now()).await?;
        let room = limits.quota_bytes.saturating_sub(bytes);
        if files >= limits.quota_files || announced.unwrap_or(0) > room {
            return Err(FileError::Full { bytes, files, max: limits.quota_bytes });
        }
        let draft = blobs.draft().await?;
        Ok(Upload::new(self.clone(), draft, owner, (name, mime), limits.clone(), (bytes, files)))
    }

    /// Takes bytes that are in memory already.
    pub async fn put(
        &self,
        limits: &FileLimits,
        owner: &str,
        (name, mime): (&str, Option<&str>),
        origin: &str,
        bytes: &[u8],
    ) -> Result<FileMeta, FileError> {
        let announced = u64::try_from(bytes.len()).ok();
        let mut upload = self.begin(limits, owner, mime, name, announced).await?;
        upload.write(bytes).await?;
        upload.finish(origin).await
    }

    async fn keep(
        &self,
        limits: &FileLimits,
        row: FileRow,
        draft: blobs::Draft,
    ) -> Result<FileMeta, FileError> {
        let blobs = self.blobs()?;
        let _naming = self.0.naming.read().await;
        // The bytes first: a row without them would be a file that cannot be read.
        blobs.keep(draft, &row.hash).await?;
        let quota = FileQuota { bytes: limits.quota_bytes, files: limits.quota_files };
        match self.0.store.add_file(row.clone(), quota).await? {
            FileAdded::Kept(seq) => Ok(FileRow { seq, ..row }.into()),
            FileAdded::Full { bytes, files } => {
                Err(FileError::Full { bytes, files, max: limits.quota_bytes })
            }
        }
    }

    /// A caller's file.
    pub async fn get(&self, owner: &str, id: &str) -> Result<FileMeta, FileError> {
        // No id has another shape: nothing is asked for one.
        if id.len() != 2 * ID_BYTES || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(FileError::NotFound);
        }
        let found = self.0.store.file(owner, id, self.now()).await?;
        found.map(FileMeta::from).ok_or(FileError::NotFound)
    }

    /// A caller's files in the order of their making, from a place in it on.
    pub async fn list(&self, owner: &str, from: u64, most: usize) -> Result<Vec<FileMeta>, FileError> {
        if !self.are_kept() {
            return Ok(Vec::new());
        }
        let rows = self.0.store.files(owner, from, most, self.now()).await?;
        Ok(rows.into_iter().map(FileMeta::from).collect())
    }

    /// Forgets a caller's file. Its bytes go when no other file has them.
    pub async fn remove(&self, owner: &str, id: &str) -> Result<(), FileError> {
        if self.0.store.remove_file(owner, id).await? { Ok(()) } else { Err(FileError::NotFound) }
    }

    /// Opens the bytes of a file that [`Files::get`] gave.
    pub async fn open(&self, file: &FileMeta) -> Result<tokio::fs::File, FileError> {
        Ok(tokio::fs::File::open(self.blobs()?.path(&file.blake3)).await?)
    }

    /// The bytes of a file that is at most `max` large.
    pub async fn read(&self, file: &FileMeta, max: u64) -> Result<Vec<u8>, FileError> {
        use tokio::io::AsyncReadExt as _;
        if file.size > max {
            return Err(FileError::TooLarge { max });
        }
        let mut bytes = Vec::new();
        self.open(file).await?.take(max).read_to_end(&mut bytes).await?;
        Ok(bytes)
    }

    /// Bytes and number of what a caller keeps.
    pub async fn used(&self, owner: &str) -> Result<(u64, u64), FileError> {
        Ok(self.0.store.files_used(owner, self.now()).await?)
    }

    /// Removes bytes that no file has any more, and drafts that were never finished.
    pub async fn sweep(&self) -> Result<usize, FileError> {
        let Some(blobs) = &self.0.blobs else { return Ok(0) };
        let mut removed = 0;
        for batch in blobs.old(self.now()).await?.chunks(500) {
            let _alone = self.0.naming.write().await;
            for hash in self.0.store.unused_hashes(batch.to_vec()).await? {
                removed += usize::from(blobs.remove_old(&hash, self.now()).await);
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
