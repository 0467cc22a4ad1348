//! Jobs that outlive their call: whose they are, how far they came, and their results until they expire.
//!
//! An outcome is bytes here; what they mean is for `jobs`.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Family, Opening, Store, StoreError};

/// The table.
pub(super) const FAMILY: Family = Family {
    name: "jobs",
    migrations: &["CREATE TABLE jobs (
            id TEXT PRIMARY KEY,
            caller TEXT NOT NULL,
            tool TEXT NOT NULL,
            read_only INTEGER NOT NULL,
            state TEXT NOT NULL,
            instance TEXT NOT NULL,
            created_ms INTEGER NOT NULL,
            updated_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            cancel INTEGER NOT NULL DEFAULT 0,
            outcome BLOB
        ) STRICT;
        CREATE INDEX jobs_of_caller ON jobs (caller, created_ms);
        CREATE INDEX jobs_by_expiry ON jobs (expires_ms);
        CREATE INDEX jobs_underway ON jobs (instance) WHERE state IN ('queued', 'working');"],
    opened: Some(opened),
    sweep: Some(sweep),
};

/// Jobs of one caller that a list brings at most.
const LISTED_MAX: usize = 500;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Its id.
    pub id: String,
    /// The subject that started it.
    pub caller: String,
    /// The tool's id.
    pub tool: String,
    /// Whether the tool only reads.
    pub read_only: bool,
    /// Its state, in the words of `jobs`. `lost` is written here: its process ended before it did.
    pub state: String,
    /// The process that runs it ([`Store::instance`]).
    pub instance: String,
    /// When it was started, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When its state last changed.
    pub updated_ms: u64,
    /// From when on it is unknown.
    pub expires_ms: u64,
    /// Whether somebody asked for its end; the process that runs it looks now and then.
    pub cancel: bool,
    /// What came of it.
    pub outcome: Option<Vec<u8>>,
}

/// A running job of a process that is gone has an unknown fate; one that only waited was never started.
fn opened(db: &Connection, opening: &Opening) -> rusqlite::Result<()> {
    let mut statement =
        db.prepare("SELECT DISTINCT instance FROM jobs WHERE state IN ('queued', 'working')")?;
    let found: Vec<String> = statement.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
    for gone in found.iter().filter(|i| !opening.alive.contains(i)) {
        db.execute(
            "UPDATE jobs SET state = CASE state WHEN 'queued' THEN 'never_started' ELSE 'lost' END
             WHERE instance = ?1 AND state IN ('queued', 'working')",
            params![gone],
        )?;
    }
    Ok(())
}

fn sweep(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM jobs WHERE expires_ms <= ?1", params![now_ms]).map(drop)
}

const COLUMNS: &str =
    "id, caller, tool, read_only, state, instance, created_ms, updated_ms, expires_ms, cancel, outcome";

fn row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let time = |at: usize| row.get::<_, i64>(at).map(|ms| u64::try_from(ms).unwrap_or(0));
    Ok(JobRow {
        id: row.get(0)?,
        caller: row.get(1)?,
        tool: row.get(2)?,
        read_only: row.get(3)?,
        state: row.get(4)?,
        instance: row.get(5)?,
        created_ms: time(6)?,
        updated_ms: time(7)?,
        expires_ms: time(8)?,
        cancel: row.get(9)?,
        outcome: row.get(10)?,
    })
}

fn ms(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

impl Store {
    /// Writes a job, new or changed. A wish for its end that stands in the row stays.
    pub async fn put_job(&self, job: JobRow) -> Result<(), StoreError> {
        self.write(move |db| {
            db.execute(
                "INSERT INTO jobs (id, caller, tool, read_only, state, instance, created_ms, updated_ms,
                                   expires_ms, cancel, outcome)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT (id) DO UPDATE SET state = ?5, updated_ms = ?8, expires_ms = ?9, outcome = ?11",
                params![
                    job.id,
                    job.caller,
                    job.tool,
                    job.read_only,
                    job.state,
                    job.instance,
                    ms(job.created_ms),
                    ms(job.updated_ms),
                    ms(job.expires_ms),
                    job.cancel,
                    job.outcome,
                ],
            )
            .map(drop)
        })
        .await
    }

    /// A caller's job that has not expired at `now_ms`.
    pub async fn job(&self, caller: &str, id: &str, now_ms: u64) -> Result<Option<JobRow>, StoreError> {
        let (caller, id) = (caller.to_owned(), id.to_owned());
        self.read(move |db| {
            db.query_row(
                &format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1 AND caller = ?2 AND expires_ms > ?3"),
                params![id, caller, ms(now_ms)],
                row,
            )
            .optional()
        })
        .await
    }

    /// A caller's jobs that have not expired, newest first, without their outcomes.
    pub async fn jobs_of(&self, caller: &str, now_ms: u64, most: usize) -> Result<Vec<JobRow>, StoreError> {
        let caller = caller.to_owned();
        self.read(move |db| {
            let columns = COLUMNS.replace("outcome", "NULL");
            let mut statement = db.prepare(&format!(
                "SELECT {columns} FROM jobs WHERE caller = ?1 AND expires_ms > ?2
                 ORDER BY created_ms DESC, id LIMIT ?3"
            ))?;
            let most = i64::try_from(most.min(LISTED_MAX)).unwrap_or(0);
            statement.query_map(params![caller, ms(now_ms), most], row)?.collect()
        })
        .await
    }

    /// Asks the process that runs a job to end it. Nothing happens where it has ended.
    pub async fn ask_job_to_end(&self, caller: &str, id: &str) -> Result<(), StoreError> {
        let (caller, id) = (caller.to_owned(), id.to_owned());
        self.write(move |db| {
            db.execute(
                "UPDATE jobs SET cancel = 1
                 WHERE id = ?1 AND caller = ?2 AND state IN ('queued', 'working')",
                params![id, caller],
            )
            .map(drop)
        })
        .await
    }

    /// The running jobs of this process whose end was asked for by another one.
    pub async fn jobs_to_end(&self) -> Result<Vec<String>, StoreError> {
        let instance = self.instance().to_owned();
        self.read(move |db| {
            let mut statement = db.prepare(
                "SELECT id FROM jobs WHERE instance = ?1 AND state IN ('queued', 'working') AND cancel = 1",
            )?;
            statement.query_map(params![instance], |r| r.get(0))?.collect()
        })
        .await
    }
}
