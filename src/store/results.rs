//! Results of which a caller was shown a part: the whole, until it expires or has to make room.
//!
//! One that made room leaves its row without a body until it expires, so that its owner can be told.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Family, Store, StoreError};

/// The table.
pub(super) const FAMILY: Family = Family {
    name: "results",
    migrations: &["CREATE TABLE results (
            id TEXT PRIMARY KEY,
            caller TEXT NOT NULL,
            tool TEXT NOT NULL,
            is_whole INTEGER NOT NULL,
            is_data INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            created_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            body TEXT
        ) STRICT;
        CREATE INDEX results_of_caller ON results (caller, created_ms) WHERE body IS NOT NULL;
        CREATE INDEX results_by_age ON results (created_ms) WHERE body IS NOT NULL;
        CREATE INDEX results_by_expiry ON results (expires_ms);"],
    opened: None,
    sweep: Some(sweep),
};

/// One kept result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRow {
    /// Its id.
    pub id: String,
    /// The subject whose call it was.
    pub caller: String,
    /// The tool's id.
    pub tool: String,
    /// Whether the body is all there was.
    pub is_whole: bool,
    /// Whether the body is the `data` of an envelope.
    pub is_data: bool,
    /// When it was kept, in milliseconds since the epoch.
    pub created_ms: u64,
    /// From when on it is unknown.
    pub expires_ms: u64,
    /// The JSON; nothing where it had to make room.
    pub body: Option<String>,
}

/// How many bytes of bodies are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultRoom {
    /// Of one caller.
    pub per_caller: u64,
    /// Of all.
    pub total: u64,
}

fn sweep(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM results WHERE expires_ms <= ?1", params![now_ms]).map(drop)
}

fn ms(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// Takes the bodies out of the oldest rows until those that are left fit into `room`. `caller` names whose
/// rows count, nobody all. Gives how many went.
fn make_room(db: &Connection, caller: Option<&str>, room: u64) -> rusqlite::Result<u64> {
    let which = "body IS NOT NULL AND (?1 IS NULL OR caller = ?1)";
    let sum = format!("SELECT coalesce(sum(bytes), 0) FROM results WHERE {which}");
    let mut left: i64 = db.query_row(&sum, params![caller], |r| r.get(0))?;
    let room = i64::try_from(room).unwrap_or(i64::MAX);
    if left <= room {
        return Ok(0);
    }
    let oldest = format!("SELECT id, bytes FROM results WHERE {which} ORDER BY created_ms, rowid");
    let mut statement = db.prepare(&oldest)?;
    let mut rows = statement.query(params![caller])?;
    let mut gone: Vec<String> = Vec::new();
    while left > room
        && let Some(row) = rows.next()?
    {
        gone.push(row.get(0)?);
        left -= row.get::<_, i64>(1)?;
    }
    for id in &gone {
        db.execute("UPDATE results SET body = NULL WHERE id = ?1", params![id])?;
    }
    Ok(u64::try_from(gone.len()).unwrap_or(u64::MAX))
}

impl Store {
    /// Keeps a result. The oldest of its caller, then the oldest of all, make room; gives how many did.
    pub async fn put_result(&self, row: ResultRow, room: ResultRoom) -> Result<u64, StoreError> {
        self.write(move |db| {
            sweep(db, ms(row.created_ms))?;
            let bytes = row.body.as_ref().map_or(0, String::len);
            db.execute(
                "INSERT INTO results (id, caller, tool, is_whole, is_data, bytes, created_ms, expires_ms, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    row.id,
                    row.caller,
                    row.tool,
                    row.is_whole,
                    row.is_data,
                    i64::try_from(bytes).unwrap_or(i64::MAX),
                    ms(row.created_ms),
                    ms(row.expires_ms),
                    row.body,
                ],
            )?;
            let own = make_room(db, Some(&row.caller), room.per_caller)?;
            Ok(own + make_room(db, None, room.total)?)
        })
        .await
    }

    /// A caller's results that have not expired at `now_ms` and are still whole, newest first: id and tool.
    pub async fn results_of(
        &self,
        caller: &str,
        now_ms: u64,
        most: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let caller = caller.to_owned();
        self.read(move |db| {
            let mut statement = db.prepare(
                "SELECT id, tool FROM results WHERE caller = ?1 AND expires_ms > ?2 AND body IS NOT NULL
                 ORDER BY created_ms DESC, rowid DESC LIMIT ?3",
            )?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            statement
                .query_map(params![caller, ms(now_ms), most], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
        .await
    }

    /// A caller's result that has not expired at `now_ms`.
    pub async fn result(&self, caller: &str, id: &str, now_ms: u64) -> Result<Option<ResultRow>, StoreError> {
        let (caller, id) = (caller.to_owned(), id.to_owned());
        self.read(move |db| {
            let time = |ms: i64| u64::try_from(ms).unwrap_or(0);
            db.query_row(
                "SELECT id, caller, tool, is_whole, is_data, created_ms, expires_ms, body FROM results
                 WHERE id = ?1 AND caller = ?2 AND expires_ms > ?3",
                params![id, caller, ms(now_ms)],
                |row| {
                    Ok(ResultRow {
                        id: row.get(0)?,
                        caller: row.get(1)?,
                        tool: row.get(2)?,
                        is_whole: row.get(3)?,
                        is_data: row.get(4)?,
                        created_ms: time(row.get(5)?),
                        expires_ms: time(row.get(6)?),
                        body: row.get(7)?,
                    })
                },
            )
            .optional()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, caller: &str, at: u64, bytes: usize) -> ResultRow {
        ResultRow {
            id: id.to_owned(),
            caller: caller.to_owned(),
            tool: "git.log".to_owned(),
            is_whole: true,
            is_data: true,
            created_ms: at,
            expires_ms: at + 1_000,
            body: Some("x".repeat(bytes)),
        }
    }

    const ROOM: ResultRoom = ResultRoom { per_caller: 100, total: 150 };

    #[tokio::test]
    async fn a_result_is_its_callers_until_it_expires() {
        let store = Store::in_memory();
        assert_eq!(store.put_result(row("r_1", "alice", 1, 10), ROOM).await.unwrap(), 0);
        assert_eq!(store.result("alice", "r_1", 500).await.unwrap(), Some(row("r_1", "alice", 1, 10)));
        assert_eq!(store.result("bob", "r_1", 500).await.unwrap(), None);
        let listed = store.results_of("alice", 500, 9).await.unwrap();
        assert_eq!(listed, [("r_1".to_owned(), "git.log".to_owned())]);
        assert_eq!(store.results_of("bob", 500, 9).await.unwrap(), []);
        assert_eq!(store.result("alice", "r_1", 1_001).await.unwrap(), None);
    }

    #[tokio::test]
    async fn the_oldest_make_room_first_of_the_caller_then_of_all() {
        let store = Store::in_memory();
        for (id, caller, at, bytes) in
            [("a1", "alice", 1, 60), ("b1", "bob", 2, 60), ("a2", "alice", 3, 60), ("b2", "bob", 4, 30)]
        {
            store.put_result(row(id, caller, at, bytes), ROOM).await.unwrap();
        }
        let mut left = Vec::new();
        for (id, caller) in [("a1", "alice"), ("b1", "bob"), ("a2", "alice"), ("b2", "bob")] {
            // Its owner still learns that it was there.
            let row = store.result(caller, id, 10).await.unwrap().unwrap();
            left.push(row.body.map_or(0, |b| b.len()));
        }
        assert_eq!(left, [0, 60, 60, 30]);
        assert_eq!(store.put_result(row("c1", "carol", 5, 90), ROOM).await.unwrap(), 2);
        assert!(store.result("bob", "b1", 10).await.unwrap().unwrap().body.is_none());
        assert!(store.result("bob", "b2", 10).await.unwrap().unwrap().body.is_some());
    }
}
