//! The index of files: whose they are, what they are called, which bytes they are, until when. The bytes
//! themselves lie beside the database, under their hashes.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Family, Store, StoreError};

/// The table. `seq` numbers files in the order of their making and is never given twice.
pub(super) const FAMILY: Family = Family {
    name: "files",
    migrations: &["CREATE TABLE files (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL,
            name TEXT NOT NULL,
            mime TEXT NOT NULL,
            size INTEGER NOT NULL,
            hash TEXT NOT NULL,
            origin TEXT NOT NULL,
            created_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX files_of_owner ON files (owner, seq);
        CREATE INDEX files_by_hash ON files (hash);
        CREATE INDEX files_by_expiry ON files (expires_ms);"],
    opened: None,
    sweep: Some(sweep),
};

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// Its place among all files, in the order of their making; given by the store.
    pub seq: u64,
    /// Its id, which cannot be guessed.
    pub id: String,
    /// The subject whose it is.
    pub owner: String,
    /// Its name, safe for headers and file systems.
    pub name: String,
    /// Its media type.
    pub mime: String,
    /// Its bytes.
    pub size: u64,
    /// The blake3 hash of its bytes, in hex: the name under which they lie.
    pub hash: String,
    /// Where it came from: `upload`, or the id of the tool that made it.
    pub origin: String,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: u64,
    /// From when on it is unknown.
    pub expires_ms: u64,
}

/// What one caller may keep.
#[derive(Debug, Clone, Copy)]
pub struct FileQuota {
    /// Bytes of all its files.
    pub bytes: u64,
    /// How many.
    pub files: u64,
}

/// Whether a file was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAdded {
    /// Under this number.
    Kept(u64),
    /// The caller has no room for it; it has used this many bytes and files.
    Full {
        /// Bytes of its files.
        bytes: u64,
        /// How many.
        files: u64,
    },
}

fn sweep(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM files WHERE expires_ms <= ?1", params![now_ms]).map(drop)
}

const COLUMNS: &str = "seq, id, owner, name, mime, size, hash, origin, created_ms, expires_ms";

fn row(row: &Row<'_>) -> rusqlite::Result<FileRow> {
    let number = |at: usize| row.get::<_, i64>(at).map(unsigned);
    Ok(FileRow {
        seq: number(0)?,
        id: row.get(1)?,
        owner: row.get(2)?,
        name: row.get(3)?,
        mime: row.get(4)?,
        size: number(5)?,
        hash: row.get(6)?,
        origin: row.get(7)?,
        created_ms: number(8)?,
        expires_ms: number(9)?,
    })
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Bytes and number of what an owner keeps.
fn used(db: &Connection, owner: &str, now_ms: u64) -> rusqlite::Result<(u64, u64)> {
    db.query_row(
        "SELECT COALESCE(SUM(size), 0), COUNT(*) FROM files WHERE owner = ?1 AND expires_ms > ?2",
        params![owner, signed(now_ms)],
        |r| Ok((unsigned(r.get(0)?), unsigned(r.get(1)?))),
    )
}

impl Store {
    /// Takes a file into the index, if its owner has room for it.
    pub async fn add_file(&self, file: FileRow, quota: FileQuota) -> Result<FileAdded, StoreError> {
        self.write(move |db| {
            let (bytes, files) = used(db, &file.owner, file.created_ms)?;
            if bytes.saturating_add(file.size) > quota.bytes || files >= quota.files {
                return Ok(FileAdded::Full { bytes, files });
            }
            db.execute(
                "INSERT INTO files (id, owner, name, mime, size, hash, origin, created_ms, expires_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    file.id,
                    file.owner,
                    file.name,
                    file.mime,
                    signed(file.size),
                    file.hash,
                    file.origin,
                    signed(file.created_ms),
                    signed(file.expires_ms),
                ],
            )?;
            Ok(FileAdded::Kept(unsigned(db.last_insert_rowid())))
        })
        .await
    }

    /// A caller's file that has not expired.
    pub async fn file(&self, owner: &str, id: &str, now_ms: u64) -> Result<Option<FileRow>, StoreError> {
        let (owner, id) = (owner.to_owned(), id.to_owned());
        self.read(move |db| {
            db.query_row(
                &format!("SELECT {COLUMNS} FROM files WHERE id = ?1 AND owner = ?2 AND expires_ms > ?3"),
                params![id, owner, signed(now_ms)],
                row,
            )
            .optional()
        })
        .await
    }

    /// A caller's files from a number on, in the order of their making.
    pub async fn files(
        &self,
        owner: &str,
        from_seq: u64,
        most: usize,
        now_ms: u64,
    ) -> Result<Vec<FileRow>, StoreError> {
        let owner = owner.to_owned();
        self.read(move |db| {
            let mut statement = db.prepare(&format!(
                "SELECT {COLUMNS} FROM files WHERE owner = ?1 AND seq >= ?2 AND expires_ms > ?3
                 ORDER BY seq LIMIT ?4"
            ))?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![owner, signed(from_seq), signed(now_ms), most], row)?;
            rows.collect()
        })
        .await
    }

    /// Bytes and number of what a caller keeps.
    pub async fn files_used(&self, owner: &str, now_ms: u64) -> Result<(u64, u64), StoreError> {
        let owner = owner.to_owned();
        self.read(move |db| used(db, &owner, now_ms)).await
    }

    /// Takes a caller's file out of the index; whether there was one.
    pub async fn remove_file(&self, owner: &str, id: &str) -> Result<bool, StoreError> {
        let (owner, id) = (owner.to_owned(), id.to_owned());
        self.write(move |db| {
            db.execute("DELETE FROM files WHERE id = ?1 AND owner = ?2", params![id, owner]).map(|n| n > 0)
        })
        .await
    }

    /// Those of some hashes that no file has (any more).
    pub async fn unused_hashes(&self, hashes: Vec<String>) -> Result<Vec<String>, StoreError> {
        self.read(move |db| {
            let mut statement = db.prepare("SELECT 1 FROM files WHERE hash = ?1 LIMIT 1")?;
            let mut unused = Vec::new();
            for hash in hashes {
                if !statement.exists(params![hash])? {
                    unused.push(hash);
                }
            }
            Ok(unused)
        })
        .await
    }
}
