//! Agents that were published while the server ran: they stand in no file of the home.
//!
//! A definition is JSON text here; what it means is for the gateway.

use rusqlite::params;

use super::{Family, Store, StoreError};

/// The table.
pub(super) const FAMILY: Family = Family {
    name: "agents",
    migrations: &["CREATE TABLE agents (name TEXT PRIMARY KEY, definition TEXT NOT NULL) STRICT;"],
    opened: None,
    sweep: None,
};

impl Store {
    /// Every published agent: name and definition, in order of names.
    pub async fn agents(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare("SELECT name, definition FROM agents ORDER BY name")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .await
    }

    /// Keeps a published agent, new or changed.
    pub async fn put_agent(&self, name: &str, definition: String) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |db| {
            db.execute(
                "INSERT INTO agents (name, definition) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET definition = ?2",
                params![name, definition],
            )
            .map(drop)
        })
        .await
    }

    /// Forgets a published agent.
    pub async fn remove_agent(&self, name: &str) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |db| db.execute("DELETE FROM agents WHERE name = ?1", params![name]).map(drop)).await
    }
}
