//! Copies of files for a program: private, under their own names, gone with the call that needed them.

use std::path::PathBuf;

use super::{FileError, FileMeta, Files};

/// Copies that a program may read, and change as it likes: the files stay what they are.
#[derive(Debug, Default)]
pub struct Lent {
    folder: Option<PathBuf>,
    /// Where each copy lies, in the order of the files.
    pub paths: Vec<PathBuf>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder
            && let Err(e) = std::fs::remove_dir_all(folder)
        {
            tracing::warn!(error = %e, "copies of files for a call were not removed; a sweep does it later");
        }
    }
}

impl Files {
    /// Copies for one call.
    pub async fn lend(&self, files: &[FileMeta]) -> Result<Lent, FileError> {
        if files.is_empty() {
            return Ok(Lent::default());
        }
        let blobs = self.blobs()?;
        let folder = blobs.lending().await?;
        let mut lent = Lent { folder: Some(folder.clone()), paths: Vec::with_capacity(files.len()) };
        for (n, file) in files.iter().enumerate() {
            // One folder each: two files may have one name.
            let own = folder.join(n.to_string());
            tokio::fs::create_dir(&own).await?;
            let path = own.join(&file.name);
            tokio::fs::copy(blobs.path(&file.blake3), &path).await?;
            lent.paths.push(path);
        }
        Ok(lent)
    }
}
