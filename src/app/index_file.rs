//! The search index in the data directory: what was read of the tools before need not be read again at a start.
//!
//! The file is a memory only. Where it is missing, damaged or of another ranking the index is built anew, and the log
//! says so; where it cannot be written the server serves all the same.

use std::path::Path;

use super::kept_file::KeptFile;
use crate::search::ToolIndex;

/// The file's name in the data directory.
const FILE: &str = "search-index.bin";
/// Below so many tools building takes less than reading a file is worth.
const TOOLS_MIN: usize = 500;
/// Bytes of the file at most: 10,000 tools take ten megabytes.
const BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Where the index is kept between two runs, if anywhere.
#[derive(Debug, Clone)]
pub(super) struct IndexFile(KeptFile);

impl IndexFile {
    /// The file of a data directory.
    pub(super) fn of(data: Option<&Path>) -> Self {
        Self(KeptFile::of(data, FILE, BYTES_MAX))
    }

    /// Its bytes. Blocking.
    pub(super) fn read(&self) -> Option<Vec<u8>> {
        self.0.read()
    }

    /// Keeps an index, whole or not at all. Blocking.
    pub(super) fn write(&self, index: &ToolIndex) {
        if self.0.is_somewhere() && index.len() >= TOOLS_MIN {
            self.0.write(&index.to_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{CatalogBuilder, Tool};
    use crate::diagnostic::Diagnostics;
    use crate::id::{ToolId, UpstreamId};
    use crate::schema::SchemaText;
    use crate::search::Ranking;

    fn index(size: usize) -> ToolIndex {
        let mut builder = CatalogBuilder::new(Vec::new());
        for i in 0..size {
            let (id, upstream) = (ToolId::parse(&format!("up.tool_{i}")), UpstreamId::parse("up"));
            builder.push(Tool::new(
                id.unwrap(),
                upstream.unwrap(),
                format!("tool_{i}"),
                SchemaText::empty_object(),
            ));
        }
        ToolIndex::build(&builder.build(&mut Diagnostics::default()), &Ranking::shipped())
    }

    #[test]
    fn a_large_index_comes_back_and_a_small_one_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = IndexFile::of(Some(dir.path()));
        file.write(&index(TOOLS_MIN - 1));
        assert_eq!(file.read(), None);
        let large = index(TOOLS_MIN);
        file.write(&large);
        assert_eq!(file.read(), Some(large.to_bytes()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
        let nowhere = IndexFile::of(None);
        nowhere.write(&large);
        assert_eq!(nowhere.read(), None);
    }
}
