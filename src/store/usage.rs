//! What successful runs after searches have taught, by scope of callers: the memory behind the `usage` signal.

use rusqlite::{Connection, Row, params};

use super::{Family, Store, StoreError};

/// The table. The words are the sorted words of the search, separated by spaces.
pub(super) const FAMILY: Family = Family {
    name: "usage",
    migrations: &["CREATE TABLE usage (
            scope TEXT NOT NULL,
            words TEXT NOT NULL,
            tool TEXT NOT NULL,
            at_ms INTEGER NOT NULL,
            weight REAL NOT NULL,
            PRIMARY KEY (scope, words, tool)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX usage_by_age ON usage (scope, at_ms);"],
    opened: None,
    sweep: Some(sweep),
};

/// Rows of one scope at most, the newest: what a question is compared with stays a few thousand.
pub const USAGE_PER_SCOPE_MAX: usize = 2_000;
/// Rows of all scopes at most: some tens of megabytes.
const USAGE_MAX: usize = 200_000;
/// After this time without a run a row is dropped: at the shipped half-life it counts 1/64 then.
const KEPT_MS: i64 = 360 * 24 * 60 * 60 * 1_000;

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageRow {
    /// The scope of callers that learnt it.
    pub scope: String,
    /// The words of the search, separated by spaces.
    pub words: String,
    /// The tool's id.
    pub tool: String,
    /// When it was run last, in milliseconds since the epoch.
    pub at_ms: u64,
    /// How much it counts, 0 to 1.
    pub weight: f64,
}

fn sweep(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM usage WHERE at_ms <= ?1", params![now_ms.saturating_sub(KEPT_MS)])?;
    let most = i64::try_from(USAGE_MAX).unwrap_or(i64::MAX);
    let oldest = "SELECT at_ms FROM usage ORDER BY at_ms DESC LIMIT 1 OFFSET ?1";
    db.execute(&format!("DELETE FROM usage WHERE at_ms <= ({oldest})"), params![most]).map(drop)
}

fn row(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    Ok(UsageRow {
        scope: row.get(0)?,
        words: row.get(1)?,
        tool: row.get(2)?,
        at_ms: u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
        weight: row.get(4)?,
    })
}

const COLUMNS: &str = "scope, words, tool, at_ms, weight";

impl Store {
    /// Keeps what was learnt; the same words and tool again are one row, as young as the newest.
    pub async fn learn_usage(&self, rows: Vec<UsageRow>) -> Result<(), StoreError> {
        self.write(move |db| {
            for new in &rows {
                db.execute(
                    "INSERT INTO usage (scope, words, tool, at_ms, weight) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT DO UPDATE SET at_ms = max(at_ms, excluded.at_ms),
                                               weight = max(weight, excluded.weight)",
                    params![
                        new.scope,
                        new.words,
                        new.tool,
                        i64::try_from(new.at_ms).unwrap_or(i64::MAX),
                        new.weight
                    ],
                )?;
            }
            Ok(())
        })
        .await
    }

    /// What a scope has learnt, the newest first, at most [`USAGE_PER_SCOPE_MAX`] rows.
    pub async fn usage_of(&self, scope: &str) -> Result<Vec<UsageRow>, StoreError> {
        let scope = scope.to_owned();
        self.read(move |db| {
            let most = i64::try_from(USAGE_PER_SCOPE_MAX).unwrap_or(i64::MAX);
            let sql = format!(
                "SELECT {COLUMNS} FROM usage WHERE scope = ?1 ORDER BY at_ms DESC, words, tool LIMIT ?2"
            );
            db.prepare(&sql)?.query_map(params![scope, most], row)?.collect()
        })
        .await
    }

    /// Everything that was learnt, by scope, oldest first.
    pub async fn usage(&self) -> Result<Vec<UsageRow>, StoreError> {
        self.read(|db| {
            let sql = format!("SELECT {COLUMNS} FROM usage ORDER BY scope, at_ms, words, tool");
            db.prepare(&sql)?.query_map([], row)?.collect()
        })
        .await
    }

    /// Forgets everything that was learnt; how many rows there were.
    pub async fn forget_usage(&self) -> Result<usize, StoreError> {
        self.write(|db| db.execute("DELETE FROM usage", [])).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learnt(scope: &str, words: &str, at_ms: u64) -> UsageRow {
        let (words, tool) = (words.to_owned(), "up.tool".to_owned());
        UsageRow { scope: scope.to_owned(), words, tool, at_ms, weight: 0.5 }
    }

    #[tokio::test]
    async fn a_scope_gets_its_own_rows_back_and_the_old_ones_go() {
        let store = Store::in_memory();
        let day = 24 * 60 * 60 * 1_000;
        let rows =
            vec![learnt("a", "open pr", 1), learnt("b", "send mail", 2), learnt("a", "list pods", 400 * day)];
        store.learn_usage(rows).await.unwrap();
        store.learn_usage(vec![UsageRow { weight: 1.0, ..learnt("a", "open pr", 3) }]).await.unwrap();
        let of_a = store.usage_of("a").await.unwrap();
        let told: Vec<_> = of_a.iter().map(|r| (r.words.as_str(), r.at_ms, r.weight)).collect();
        assert_eq!(told, [("list pods", 400 * day, 0.5), ("open pr", 3, 1.0)]);
        store.sweep(401 * day).await.unwrap();
        assert_eq!(store.usage().await.unwrap(), [learnt("a", "list pods", 400 * day)]);
        assert_eq!(store.forget_usage().await.unwrap(), 1);
        assert_eq!(store.usage().await.unwrap(), []);
    }
}
