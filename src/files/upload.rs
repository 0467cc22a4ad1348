//! One file on its way in: hashed and counted while it is written, so that nothing is ever held whole.

use tokio::io::AsyncWriteExt as _;

use super::blobs::Draft;
use super::{FileError, FileLimits, FileMeta, Files, ID_BYTES};
use crate::id;
use crate::store::files::FileRow;

/// An upload under way. Dropped before [`Upload::finish`], nothing of it stays.
#[derive(Debug)]
pub struct Upload {
    files: Files,
    draft: Draft,
    owner: String,
    name: String,
    mime: String,
    limits: FileLimits,
    hasher: blake3::Hasher,
    size: u64,
    /// Bytes and files that its owner had when it began.
    used: (u64, u64),
}

impl Upload {
    pub(super) fn new(
        files: Files,
        draft: Draft,
        owner: &str,
        (name, mime): (String, String),
        limits: FileLimits,
        used: (u64, u64),
    ) -> Self {
        let owner = owner.to_owned();
        Self { files, draft, owner, name, mime, limits, hasher: blake3::Hasher::new(), size: 0, used }
    }

    /// Its bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether its owner has room for it beside others of `bytes` that are not kept yet either. Asked while it comes
    /// in, so that no more than the quota ever lies on the disk for one request; what counts is asked at the end.
    pub fn fits_beside(&self, bytes: u64) -> Result<(), FileError> {
        let (kept, files) = self.used;
        if kept.saturating_add(bytes).saturating_add(self.size) > self.limits.quota_bytes {
            return Err(FileError::Full { bytes: kept, files, max: self.limits.quota_bytes });
        }
        Ok(())
    }

    /// Takes some bytes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.size = self.size.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.size > self.limits.max_bytes {
            return Err(FileError::TooLarge { max: self.limits.max_bytes });
        }
        self.fits_beside(0)?;
        self.hasher.update(bytes);
        self.draft.file.write_all(bytes).await?;
        Ok(())
    }

    /// All bytes are there: the file is kept.
    pub async fn finish(self, origin: &str) -> Result<FileMeta, FileError> {
        let created_ms = self.files.now();
        let keep_ms = u64::try_from(self.limits.keep.as_millis()).unwrap_or(u64::MAX);
        let row = FileRow {
            seq: 0,
            id: random_id()?,
            owner: self.owner,
            name: self.name,
            mime: self.mime,
            size: self.size,
            hash: self.hasher.finalize().to_hex().to_string(),
            origin: origin.to_owned(),
            created_ms,
            expires_ms: created_ms.saturating_add(keep_ms),
        };
        self.files.keep(&self.limits, row, self.draft).await
    }
}

/// An id that nobody guesses, in hex.
pub(super) fn random_id() -> std::io::Result<String> {
    let drawn = id::random::<ID_BYTES>().map_err(std::io::Error::other)?;
    Ok(id::hex(&drawn))
}
