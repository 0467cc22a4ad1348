//! What callers' own successful calls created: the ground of `owns(kind, id)` in policies.

use rusqlite::{Connection, params};

use super::{Family, Store, StoreError};

/// The table.
pub(super) const FAMILY: Family = Family {
    name: "owned",
    migrations: &["CREATE TABLE owned (
            caller TEXT NOT NULL,
            kind TEXT NOT NULL,
            id TEXT NOT NULL,
            at_ms INTEGER NOT NULL,
            PRIMARY KEY (caller, kind, id)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX owned_by_age ON owned (caller, at_ms);
        CREATE INDEX owned_by_time ON owned (at_ms);"],
    opened: None,
    sweep: Some(sweep),
};

/// Things of one caller at most, the newest.
pub const OWNED_PER_CALLER_MAX: usize = 1_000;
/// Things of all callers at most, the newest: some tens of megabytes, here and in memory.
const OWNED_MAX: usize = 200_000;

/// A thing and who created it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRow {
    /// The caller.
    pub caller: String,
    /// What kind of thing, in the words of the tool that made it.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// When, Unix milliseconds of the process that noted it.
    pub at_ms: u64,
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn sweep(db: &Connection, _now_ms: i64) -> rusqlite::Result<()> {
    let oldest = "SELECT at_ms FROM owned ORDER BY at_ms DESC LIMIT 1 OFFSET ?1";
    db.execute(&format!("DELETE FROM owned WHERE at_ms <= ({oldest})"), params![count(OWNED_MAX)]).map(drop)
}

impl Store {
    /// Notes that a caller created a thing.
    pub async fn created(&self, row: OwnedRow) -> Result<(), StoreError> {
        let at_ms = i64::try_from(row.at_ms).unwrap_or(i64::MAX);
        self.write(move |db| {
            db.execute(
                "INSERT INTO owned (caller, kind, id, at_ms) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET at_ms = max(at_ms, excluded.at_ms)",
                params![row.caller, row.kind, row.id, at_ms],
            )?;
            let sql = "DELETE FROM owned WHERE caller = ?1 AND (kind, id) IN (
                SELECT kind, id FROM owned WHERE caller = ?1 ORDER BY at_ms DESC, kind, id LIMIT -1 OFFSET ?2)";
            db.execute(sql, params![row.caller, count(OWNED_PER_CALLER_MAX)]).map(drop)
        })
        .await
    }

    /// What is known to be somebody's and was noted at `since_ms` or later, oldest first; 0 for everything.
    pub async fn owned(&self, since_ms: u64) -> Result<Vec<OwnedRow>, StoreError> {
        let since = i64::try_from(since_ms).unwrap_or(i64::MAX);
        self.read(move |db| {
            let sql = "SELECT caller, kind, id, at_ms FROM owned WHERE at_ms >= ?1
                ORDER BY at_ms, caller, kind, id";
            let row = |r: &rusqlite::Row<'_>| {
                let at_ms = u64::try_from(r.get::<_, i64>(3)?).unwrap_or(0);
                Ok(OwnedRow { caller: r.get(0)?, kind: r.get(1)?, id: r.get(2)?, at_ms })
            };
            db.prepare(sql)?.query_map([since], row)?.collect()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_things_of_a_caller_are_kept() {
        let store = Store::in_memory();
        let thing = |caller: &str, id: u64, at_ms: u64| OwnedRow {
            caller: caller.to_owned(),
            kind: "issue".to_owned(),
            id: id.to_string(),
            at_ms,
        };
        store.created(thing("bob", 1, 0)).await.unwrap();
        for n in 0..=u64::try_from(OWNED_PER_CALLER_MAX).unwrap() {
            store.created(thing("alice", n, n)).await.unwrap();
        }
        let kept = store.owned(0).await.unwrap();
        assert_eq!(kept.len(), OWNED_PER_CALLER_MAX + 1);
        assert_eq!(
            (&kept[0], &kept[1]),
            (&thing("bob", 1, 0), &thing("alice", 1, 1)),
            "alice's oldest is gone"
        );
        let newest = store.owned(999).await.unwrap();
        assert_eq!(newest, [thing("alice", 999, 999), thing("alice", 1_000, 1_000)]);
    }
}
