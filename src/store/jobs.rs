//! Jobs that outlive their call: whose they are, how far they came, and their results until they expire.
//!
//! An outcome is bytes here; what they mean is for `jobs`.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Family, Opening, Store, StoreError};
use crate::limits::REPLAY_WINDOW;

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
            shown INTEGER NOT NULL,
            cancel INTEGER NOT NULL,
            replay_key BLOB,
            args BLOB,
            replay_until_ms INTEGER NOT NULL,
            outcome BLOB
        ) STRICT;
        CREATE INDEX jobs_of_caller ON jobs (caller, updated_ms);
        CREATE INDEX jobs_by_key ON jobs (replay_key) WHERE replay_key IS NOT NULL;
        CREATE INDEX jobs_by_expiry ON jobs (expires_ms);
        CREATE INDEX jobs_underway ON jobs (instance) WHERE state IN ('queued', 'running');"],
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
    /// Whether its caller was given its id.
    pub shown: bool,
    /// Whether somebody asked for its end; the process that runs it looks now and then.
    pub cancel: bool,
    /// What makes another call the same one.
    pub replay_key: Option<Vec<u8>>,
    /// The digest of its arguments.
    pub args: Option<Vec<u8>>,
    /// Until when equal calls are answered with `outcome`.
    pub replay_until_ms: u64,
    /// What came of it.
    pub outcome: Option<Vec<u8>>,
}

/// Whether a key was free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It was; the row stands.
    Mine,
    /// This row has it.
    Taken(Box<JobRow>),
}

/// A running job of a process that is gone has an unknown fate; one that only waited was never started.
fn opened(db: &Connection, opening: &Opening) -> rusqlite::Result<()> {
    let mut statement =
        db.prepare("SELECT DISTINCT instance FROM jobs WHERE state IN ('queued', 'running')")?;
    let window = u64::try_from(REPLAY_WINDOW.as_millis()).unwrap_or(u64::MAX);
    let found: Vec<String> = statement.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
    for gone in found.iter().filter(|i| !opening.alive.contains(i)) {
        // An equal call must not be sent again for a while: nobody knows whether the first one took effect.
        db.execute(
            "UPDATE jobs SET state = CASE state WHEN 'queued' THEN 'never_started' ELSE 'lost' END,
                             replay_until_ms = CASE state WHEN 'queued' THEN 0 ELSE ?2 END
             WHERE instance = ?1 AND state IN ('queued', 'running')",
            params![gone, ms(opening.now_ms + window)],
        )?;
    }
    Ok(())
}

fn sweep(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM jobs WHERE expires_ms <= ?1", params![now_ms]).map(drop)
}

const COLUMNS: &str = "id, caller, tool, read_only, state, instance, created_ms, updated_ms, expires_ms, shown, \
                       cancel, replay_key, args, replay_until_ms, outcome";

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
        shown: row.get(9)?,
        cancel: row.get(10)?,
        replay_key: row.get(11)?,
        args: row.get(12)?,
        replay_until_ms: time(13)?,
        outcome: row.get(14)?,
    })
}

fn put(db: &Connection, job: &JobRow) -> rusqlite::Result<()> {
    db.execute(
        &format!(
            "INSERT INTO jobs ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT (id) DO UPDATE SET state = ?5, updated_ms = ?8, expires_ms = ?9, shown = ?10,
                                            replay_until_ms = ?14, outcome = ?15"
        ),
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
            job.shown,
            job.cancel,
            job.replay_key,
            job.args,
            ms(job.replay_until_ms),
            job.outcome,
        ],
    )
    .map(drop)
}

fn ms(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

impl Store {
    /// Writes a job, new or changed. A wish for its end that stands in the row stays. Of the caller's jobs that
    /// have ended, the newest `kept` are kept.
    pub async fn put_job(&self, job: JobRow, kept: usize) -> Result<(), StoreError> {
        self.write(move |db| {
            put(db, &job)?;
            if job.outcome.is_none() || !job.shown {
                return Ok(());
            }
            db.execute(
                "DELETE FROM jobs WHERE id IN (
                    SELECT id FROM jobs WHERE caller = ?1 AND shown AND outcome IS NOT NULL
                    ORDER BY updated_ms DESC LIMIT -1 OFFSET ?2)",
                params![job.caller, i64::try_from(kept).unwrap_or(i64::MAX)],
            )
            .map(drop)
        })
        .await
    }

    /// Writes a job if no other one has its key: none that runs, and none whose outcome equal calls share at
    /// `now_ms`.
    pub async fn claim_job(&self, job: JobRow, now_ms: u64) -> Result<Claim, StoreError> {
        self.write(move |db| {
            let taken = db
                .query_row(
                    &format!(
                        "SELECT {COLUMNS} FROM jobs
                         WHERE replay_key = ?1 AND id <> ?2
                           AND (state IN ('queued', 'running') OR replay_until_ms > ?3)
                         ORDER BY created_ms DESC LIMIT 1"
                    ),
                    params![job.replay_key, job.id, ms(now_ms)],
                    row,
                )
                .optional()?;
            match taken {
                Some(other) => Ok(Claim::Taken(Box::new(other))),
                None => put(db, &job).map(|()| Claim::Mine),
            }
        })
        .await
    }

    /// A caller's job that has not expired at `now_ms`.
    pub async fn job(&self, caller: &str, id: &str, now_ms: u64) -> Result<Option<JobRow>, StoreError> {
        let (caller, id) = (caller.to_owned(), id.to_owned());
        self.read(move |db| {
            db.query_row(
                &format!(
                    "SELECT {COLUMNS} FROM jobs WHERE id = ?1 AND caller = ?2 AND shown AND expires_ms > ?3"
                ),
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
                "SELECT {columns} FROM jobs WHERE caller = ?1 AND shown AND expires_ms > ?2
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
                 WHERE id = ?1 AND caller = ?2 AND state IN ('queued', 'running')",
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
                "SELECT id FROM jobs WHERE instance = ?1 AND state IN ('queued', 'running') AND cancel = 1",
            )?;
            statement.query_map(params![instance], |r| r.get(0))?.collect()
        })
        .await
    }
}
