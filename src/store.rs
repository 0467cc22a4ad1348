//! What must survive a restart, in one `SQLite` file of the data directory. The only module that knows rusqlite.
//!
//! One thread writes: writes that wait together are committed together. Reads have connections of their own and
//! never wait for a writer (WAL). Several processes may hold the same directory open (two pipes of one home do).
//!
//! A subject is one file `store/SUBJECT.rs`: a [`Family`] with its migrations, named in [`FAMILIES`], and an
//! `impl Store` with the typed methods that the rest of docent calls. SQL stands in these files only. A method
//! is `self.write(|db| …).await` or `self.read(|db| …).await`; the closure gets a `&rusqlite::Connection`
//! inside a transaction, runs off the async workers, and what it returns is handed back after the commit.

mod agents;
pub mod confirmations;
pub mod files;
mod instances;
pub mod jobs;
mod open;
pub mod owned;
pub mod results;
pub mod usage;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc, oneshot};

use instances::Instance;
use writer::Op;

/// Writes that wait for the writer at most; more wait in their own tasks.
const QUEUE: usize = 1_024;
/// Reads at once: each takes microseconds, so two keep up with every worker of a small machine.
const READERS: usize = 2;
/// How long a write waits for another process's write. Theirs take milliseconds; one that hangs is told.
const BUSY: Duration = Duration::from_secs(5);
/// Bytes of the file at most: results and the index of files have ceilings of their own far below, this one
/// keeps a mistake from filling a disk.
const BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// The subjects, in the order of their migrations. A new one is added at the end.
const FAMILIES: &[&Family] = &[
    &jobs::FAMILY,
    &results::FAMILY,
    &agents::FAMILY,
    &files::FAMILY,
    &usage::FAMILY,
    &confirmations::FAMILY,
    &owned::FAMILY,
];

/// The tables of one subject.
#[derive(Debug)]
struct Family {
    /// Its name, which stays: migrations that were done are counted under it.
    name: &'static str,
    /// SQL by version: the first makes the tables, each later one changes them. What was released is never edited.
    migrations: &'static [&'static str],
    /// Run at every opening, inside its transaction: what the rows of processes that are gone come to.
    opened: Option<fn(&Connection, &Opening) -> rusqlite::Result<()>>,
    /// Run now and then: takes out what has expired at this time (milliseconds since the epoch).
    sweep: Option<fn(&Connection, i64) -> rusqlite::Result<()>>,
}

/// What a family learns at an opening.
#[derive(Debug)]
struct Opening {
    /// The processes that hold the directory open, this one among them ([`Store::instance`]).
    alive: Vec<String>,
    /// The time, in milliseconds since the epoch.
    now_ms: u64,
}

/// Why something was not kept or not found. The text is safe to show to an operator, not to a caller.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot hold the state.
    #[error("the state in {path} cannot be opened: {why}")]
    Open {
        /// The directory.
        path: String,
        /// What is wrong and the way out.
        why: String,
    },
    /// A statement failed.
    #[error("the state cannot be read or written: {0}")]
    Failed(String),
    /// The store was closed, or its thread is gone.
    #[error("the state is closed")]
    Closed,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A handle to the state. Clones are the same store; the last one that goes ends the writer.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    writer: mpsc::Sender<Op>,
    /// Empty for a store in memory: its one connection is the writer's.
    readers: Mutex<Vec<Connection>>,
    reading: Semaphore,
    /// Holds this process's entry among those that have the directory open.
    instance: Instance,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("instance", &self.instance()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the state of a data directory, which is made if it is not there. Blocking, some milliseconds.
    pub fn open(data: &Path) -> Result<Self, StoreError> {
        let opened = open::on_disk(data)?;
        Self::start(opened.connection, opened.readers, opened.instance)
    }

    /// A store that keeps everything until the process ends: for commands without a data directory and tests.
    /// Never fails; where there is no memory for it, every use of it does.
    pub fn in_memory() -> Self {
        let opened = open::in_memory()
            .and_then(|(connection, instance)| Self::start(connection, Vec::new(), instance));
        opened.unwrap_or_else(|error| {
            tracing::error!(error = %error, "nothing can be kept: this process has neither memory nor threads");
            let (writer, _closed) = mpsc::channel(1);
            let (readers, reading) = (Mutex::default(), Semaphore::new(0));
            Self(Arc::new(Inner { writer, readers, reading, instance: Instance::alone() }))
        })
    }

    fn start(
        connection: Connection,
        readers: Vec<Connection>,
        instance: Instance,
    ) -> Result<Self, StoreError> {
        let writer = writer::start(connection, QUEUE)?;
        let reading = Semaphore::new(readers.len());
        Ok(Self(Arc::new(Inner { writer, readers: Mutex::new(readers), reading, instance })))
    }

    /// The name under which this process writes: no two that are alive share one, and none comes again.
    pub fn instance(&self) -> &str {
        self.0.instance.id()
    }

    /// Takes out what has expired. To be called now and then; nothing expired is ever handed out, however late
    /// this is.
    pub async fn sweep(&self, now_ms: u64) -> Result<(), StoreError> {
        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
        self.write(move |db| {
            for family in FAMILIES {
                if let Some(sweep) = family.sweep {
                    sweep(db, now)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Runs `work` on the writer's thread in a transaction: all of it happens or nothing. The answer comes
    /// after the commit. Once it waits in the queue it is done even if the caller goes away.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let op: Op = Box::new(move |db| {
            let done = db.and_then(|db| work(db).map_err(StoreError::from));
            match done {
                Ok(value) => writer::Ran::kept(move |committed| {
                    // A caller that went away wants no answer.
                    sender.send(committed.map(|()| value)).ok();
                }),
                Err(error) => {
                    sender.send(Err(error)).ok();
                    writer::Ran::undone()
                }
            }
        });
        self.0.writer.send(op).await.map_err(|_closed| StoreError::Closed)?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Runs `work` on a reading connection, on a thread where it may block.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.0.instance.is_alone() {
            return self.write(work).await;
        }
        let _turn = self.0.reading.acquire().await.map_err(|_closed| StoreError::Closed)?;
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || {
            let connection = inner.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = connection.ok_or(StoreError::Closed)?;
            let done = work(&connection).map_err(StoreError::from);
            inner.readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            done
        });
        done.await.unwrap_or_else(|e| Err(StoreError::Failed(e.to_string())))
    }
}

#[cfg(test)]
mod tests;
