//! The one thread that writes: takes what waits, runs it in one transaction, commits, answers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::StoreError;

/// Operations of one commit at most: more would make the first of them wait for the last.
const BATCH: usize = 256;

/// One write, and what is to be told when its fate is known. It gets an error where there is no transaction.
pub(super) type Op = Box<dyn FnOnce(Result<&Connection, StoreError>) -> Ran + Send>;

/// How an operation went.
pub(super) struct Ran(Option<Answer>);

type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

impl Ran {
    /// It is to be kept; `answer` is told whether it was.
    pub(super) fn kept(answer: impl FnOnce(Result<(), StoreError>) + Send + 'static) -> Self {
        Self(Some(Box::new(answer)))
    }

    /// It failed: what it wrote is undone, and it has answered.
    pub(super) fn undone() -> Self {
        Self(None)
    }
}

/// Starts the thread. It ends when the last sender is gone, and closes the file.
pub(super) fn start(connection: Connection, queue: usize) -> Result<mpsc::Sender<Op>, StoreError> {
    let (sender, receiver) = mpsc::channel(queue);
    std::thread::Builder::new()
        .name("docent-store".to_owned())
        .spawn(move || run(&connection, receiver))
        .map_err(|e| StoreError::Failed(format!("no thread can be started: {e}")))?;
    Ok(sender)
}

fn run(db: &Connection, mut queue: mpsc::Receiver<Op>) {
    while let Some(first) = queue.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(next) = queue.try_recv()
        {
            batch.push(next);
        }
        commit(db, batch);
    }
}

fn commit(db: &Connection, batch: Vec<Op>) {
    // Immediate: two processes that both read first and write then would refuse each other.
    if let Err(error) = db.execute_batch("BEGIN IMMEDIATE") {
        let error = StoreError::from(error);
        tracing::error!(error = %error, "the state cannot be written");
        for op in batch {
            drop(op(Err(error.clone())));
        }
        return;
    }
    let answers: Vec<Answer> = batch.into_iter().filter_map(|op| one(db, op)).collect();
    let done = db.execute_batch("COMMIT").map_err(StoreError::from);
    if let Err(error) = &done {
        tracing::error!(error = %error, "the state cannot be written");
        if !db.is_autocommit() {
            db.execute_batch("ROLLBACK").ok();
        }
    }
    for answer in answers {
        answer(done.clone());
    }
}

/// Runs one operation in a savepoint, so that its failure is its own.
fn one(db: &Connection, op: Op) -> Option<Answer> {
    if let Err(error) = db.execute_batch("SAVEPOINT op") {
        return op(Err(error.into())).0;
    }
    let ran = catch_unwind(AssertUnwindSafe(|| op(Ok(db))));
    let answer = ran.ok().and_then(|ran| ran.0);
    let end = if answer.is_some() { "RELEASE op" } else { "ROLLBACK TO op; RELEASE op" };
    match (db.execute_batch(end), answer) {
        (Ok(()), answer) => answer,
        (Err(error), Some(answer)) => {
            answer(Err(error.into()));
            None
        }
        (Err(_), None) => None,
    }
}
