//! Opening the file: locked against a second opener, its settings, its migrations, what dead processes left.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::instances::{self, Instance};
use super::{BUSY, BYTES_MAX, FAMILIES, Family, Opening, READERS, StoreError};
use crate::clock::Clock;

/// The file of the state, beside which `SQLite` keeps `state.db-wal` and `state.db-shm`.
const FILE: &str = "state.db";
/// Held while the directory is opened, so that two openers come one after the other.
const LOCK: &str = "state.lock";
/// Bytes of a page; `SQLite`'s own default, named because [`BYTES_MAX`] is counted in pages.
const PAGE_BYTES: u64 = 4_096;
/// Bytes that the log of writes keeps after a checkpoint.
const LOG_BYTES: u64 = 64 * 1024 * 1024;

/// An opened directory.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) readers: Vec<Connection>,
    pub(super) instance: Instance,
}

/// Opens the state of a data directory.
pub(super) fn on_disk(data: &Path) -> Result<Opened, StoreError> {
    let open = |why: String| StoreError::Open { path: data.display().to_string(), why };
    let io = |what: &str| {
        let what = what.to_owned();
        move |e: io::Error| {
            open(format!(
                "{what}: {e}. Give a directory that this user may write with `--data DIR` or DOCENT_DATA"
            ))
        }
    };
    std::fs::create_dir_all(data).map_err(io("it cannot be made"))?;
    let lock = own_file(&data.join(LOCK)).map_err(io("it cannot be written"))?;
    lock.lock().map_err(io("it cannot be locked"))?;
    let instance = Instance::enter(data).map_err(io("it cannot be written"))?;
    let alive = instances::alive(data).map_err(io("it cannot be read"))?;
    let path = data.join(FILE);
    // Made here, so that results of calls are for this user's eyes only from the first byte.
    drop(own_file(&path).map_err(io("it cannot be written"))?);
    let sql = |e: rusqlite::Error| {
        open(format!(
            "{FILE}: {e}. If the file is damaged, move it away: jobs and results in it are lost, nothing else"
        ))
    };
    let connection = Connection::open(&path).map_err(sql)?;
    prepare(&connection).map_err(sql)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    migrate(&connection, FAMILIES).map_err(|e| match e {
        Migration::Sql(e) => sql(e),
        Migration::Newer(name) => open(format!(
            "{FILE}: `{name}` was written by a newer docent. Run that version, or give another directory with `--data DIR`"
        )),
    })?;
    let opening = Opening { alive, now_ms: Clock::system().unix_ms() };
    for opened in FAMILIES.iter().filter_map(|f| f.opened) {
        opened(&connection, &opening).map_err(sql)?;
    }
    connection.execute_batch("COMMIT").map_err(sql)?;
    let readers = (0..READERS).map(|_| reader(&path)).collect::<Result<_, _>>().map_err(sql)?;
    drop(lock);
    Ok(Opened { connection, readers, instance })
}

/// A store of this process alone.
pub(super) fn in_memory() -> Result<(Connection, Instance), StoreError> {
    let connection = Connection::open_in_memory()?;
    prepare(&connection)?;
    match migrate(&connection, FAMILIES) {
        Ok(()) => Ok((connection, Instance::alone())),
        Err(Migration::Sql(e)) => Err(e.into()),
        Err(Migration::Newer(name)) => Err(StoreError::Failed(format!("`{name}` is newer in memory"))),
    }
}

fn own_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(path)
}

fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "page_size", PAGE_BYTES.to_string())?;
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    // A killed process loses nothing of the log; only a power cut may take the last commits, never the file.
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES.to_string(), |_| Ok(()))?;
    db.pragma_update_and_check(None, "max_page_count", (BYTES_MAX / PAGE_BYTES).to_string(), |_| Ok(()))?;
    db.pragma_update(None, "foreign_keys", "ON")?;
    db.pragma_update(None, "trusted_schema", "OFF")
}

fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Why the tables are not as this version needs them.
#[derive(Debug)]
pub(super) enum Migration {
    /// `SQLite` refused.
    Sql(rusqlite::Error),
    /// A family has more migrations behind it than this version knows.
    Newer(&'static str),
}

impl From<rusqlite::Error> for Migration {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Brings every family to its newest version.
pub(super) fn migrate(db: &Connection, families: &[&Family]) -> Result<(), Migration> {
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS families (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT",
    )?;
    for family in families {
        let version: Option<i64> = db
            .query_row("SELECT version FROM families WHERE name = ?1", params![family.name], |r| r.get(0))
            .optional()?;
        let done = usize::try_from(version.unwrap_or(0)).unwrap_or(usize::MAX);
        let Some(due) = family.migrations.get(done..) else { return Err(Migration::Newer(family.name)) };
        for sql in due {
            db.execute_batch(sql)?;
        }
        let newest = i64::try_from(family.migrations.len()).unwrap_or(i64::MAX);
        db.execute(
            "INSERT INTO families (name, version) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET version = ?2",
            params![family.name, newest],
        )?;
    }
    Ok(())
}
