//! The store as its users meet it: reopened, shared, refused, damaged.

use super::jobs::JobRow;
use super::*;

fn job(store: &Store, id: &str, state: &str) -> JobRow {
    JobRow {
        id: id.to_owned(),
        caller: "ann".to_owned(),
        tool: "u.t".to_owned(),
        read_only: false,
        state: state.to_owned(),
        instance: store.instance().to_owned(),
        created_ms: 10,
        updated_ms: 10,
        expires_ms: 1_000,
        shown: true,
        cancel: false,
        replay_key: None,
        args: None,
        replay_until_ms: 0,
        outcome: None,
    }
}

async fn state(store: &Store, id: &str) -> Option<String> {
    store.job("ann", id, 20).await.unwrap().map(|j| j.state)
}

#[tokio::test]
async fn what_was_written_is_there_after_a_restart_and_running_jobs_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path()).unwrap();
    for (id, at) in [("a", "queued"), ("b", "running"), ("c", "completed")] {
        first.put_job(job(&first, id, at), 9).await.unwrap();
    }
    let beside = Store::open(dir.path()).unwrap();
    assert_eq!(state(&beside, "b").await.as_deref(), Some("running"), "its process is alive");
    drop((first, beside));
    let second = Store::open(dir.path()).unwrap();
    let after = [state(&second, "a").await, state(&second, "b").await, state(&second, "c").await];
    assert_eq!(after.map(Option::unwrap), ["never_started", "lost", "completed"]);
}

#[tokio::test]
async fn a_job_is_its_callers_and_ends_with_its_time() {
    for store in [Store::in_memory(), Store::open(tempfile::tempdir().unwrap().path()).unwrap()] {
        store.put_job(job(&store, "a", "completed"), 9).await.unwrap();
        assert!(store.job("ann", "a", 999).await.unwrap().is_some());
        assert!(store.job("ann", "a", 1_000).await.unwrap().is_none(), "expired, swept or not");
        assert!(store.job("bob", "a", 20).await.unwrap().is_none());
        assert_eq!(store.jobs_of("ann", 20, 10).await.unwrap().len(), 1);
        store.sweep(1_000).await.unwrap();
        assert!(store.job("ann", "a", 20).await.unwrap().is_none(), "swept");
    }
}

#[tokio::test]
async fn a_wish_for_the_end_reaches_the_process_that_runs_the_job_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, asks) = (Store::open(dir.path()).unwrap(), Store::open(dir.path()).unwrap());
    runs.put_job(job(&runs, "a", "running"), 9).await.unwrap();
    asks.ask_job_to_end("bob", "a").await.unwrap();
    assert!(runs.jobs_to_end().await.unwrap().is_empty(), "another caller's wish is none");
    asks.ask_job_to_end("ann", "a").await.unwrap();
    assert_eq!(runs.jobs_to_end().await.unwrap(), ["a"]);
    assert!(asks.jobs_to_end().await.unwrap().is_empty());
    runs.put_job(job(&runs, "a", "completed"), 9).await.unwrap();
    assert!(runs.jobs_to_end().await.unwrap().is_empty());
}

#[tokio::test]
async fn one_write_that_fails_or_panics_takes_no_other_with_it() {
    let store = Store::in_memory();
    let fails = store.write(|db| {
        db.execute("INSERT INTO families VALUES ('half', 1)", [])?;
        db.execute("INSERT INTO nowhere VALUES (1)", []).map(drop)
    });
    let panics = store.write(|db| {
        db.execute("INSERT INTO families VALUES ('half', 1)", []).unwrap();
        assert!(db.is_autocommit(), "a fault in an operation");
        Ok(())
    });
    let works = store.put_job(job(&store, "a", "running"), 9);
    let (fails, panics, works) = tokio::join!(fails, panics, works);
    assert!(matches!(fails, Err(StoreError::Failed(_))));
    assert!(matches!(panics, Err(StoreError::Closed)));
    works.unwrap();
    let half = store.read(|db| {
        db.query_row("SELECT count(*) FROM families WHERE name = 'half'", [], |r| r.get::<_, i64>(0))
    });
    assert_eq!(half.await.unwrap(), 0, "what a failed write had done is undone");
    assert_eq!(state(&store, "a").await.as_deref(), Some("running"));
}

#[test]
fn a_directory_that_cannot_hold_the_state_is_told_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = Store::open(&file.join("below")).unwrap_err().to_string();
    assert!(error.contains("file/below") && error.contains("--data DIR"), "{error}");
    let damaged = dir.path().join("damaged");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join("state.db"), vec![b'x'; 8_192]).unwrap();
    let error = Store::open(&damaged).unwrap_err().to_string();
    assert!(error.contains("not a database") && error.contains("move it away"), "{error}");
}

#[test]
fn migrations_run_once_each_and_never_backwards() {
    const FIRST: Family =
        Family { name: "t", migrations: &["CREATE TABLE t (a)"], opened: None, sweep: None };
    const SECOND: Family = Family {
        name: "t",
        migrations: &["CREATE TABLE t (a)", "ALTER TABLE t ADD COLUMN b"],
        opened: None,
        sweep: None,
    };
    let db = Connection::open_in_memory().unwrap();
    for family in [&FIRST, &FIRST, &SECOND, &SECOND] {
        open::migrate(&db, &[family]).unwrap();
    }
    db.execute("INSERT INTO t (a, b) VALUES (1, 2)", []).unwrap();
    assert!(matches!(open::migrate(&db, &[&FIRST]), Err(open::Migration::Newer("t"))));
}

#[cfg(unix)]
#[test]
fn the_state_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let _store = Store::open(dir.path()).unwrap();
    for name in ["state.db", "state.db-wal"] {
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
}
