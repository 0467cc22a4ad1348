//! What a host needs around the wire: a cache of rosters and opened agents, a watch that empties it, a table from
//! model roles to the host's own models, and the scopes of a step-up refusal.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::wire::{Client, Refused};

/// Answers by token and question, until their `ttlMs` has passed. Another token is another entry; a refusal is
/// never one.
#[derive(Default)]
pub(crate) struct RosterCache {
    kept: Mutex<HashMap<(String, String), (Instant, Value)>>,
    rosters: AtomicUsize,
}

const ROSTER: &str = "";

impl RosterCache {
    fn kept(&self) -> MutexGuard<'_, HashMap<(String, String), (Instant, Value)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, client: &Client, name: &str) -> Option<Value> {
        let key = (client.token.clone(), name.to_owned());
        self.kept().get(&key).filter(|(until, _)| Instant::now() < *until).map(|(_, value)| value.clone())
    }

    fn keep(&self, client: &Client, name: &str, value: &Value) {
        let ttl = Duration::from_millis(value["ttlMs"].as_u64().unwrap_or(0));
        self.kept().insert((client.token.clone(), name.to_owned()), (Instant::now() + ttl, value.clone()));
    }

    /// The roster, all pages of it.
    pub(crate) async fn roster(&self, client: &Client) -> Result<Value, Refused> {
        if let Some(roster) = self.find(client, ROSTER) {
            return Ok(roster);
        }
        self.rosters.fetch_add(1, Ordering::Relaxed);
        let mut roster = client.request("agents/list", json!({})).await?;
        let mut agents = roster["agents"].as_array().cloned().unwrap_or_default();
        while let Some(cursor) = roster["nextCursor"].as_str().map(str::to_owned) {
            roster = client.request("agents/list", json!({ "cursor": cursor })).await?;
            agents.extend(roster["agents"].as_array().cloned().unwrap_or_default());
        }
        roster["agents"] = Value::Array(agents);
        self.keep(client, ROSTER, &roster);
        Ok(roster)
    }

    /// An opened agent. One that is not there (any more) takes the roster with it.
    pub(crate) async fn agent(&self, client: &Client, name: &str) -> Result<Value, Refused> {
        if let Some(agent) = self.find(client, name) {
            return Ok(agent);
        }
        let answer = client.request("agents/get", json!({ "name": name })).await;
        match &answer {
            Ok(agent) => self.keep(client, name, agent),
            Err(Refused::Rpc { reason, .. }) if reason == "agent_not_found" => self.invalidate(),
            Err(_) => {}
        }
        answer
    }

    /// Forgets everything: the roster is asked for again before the next decision.
    pub(crate) fn invalidate(&self) {
        self.kept().clear();
    }

    /// How often a roster was asked of the server.
    pub(crate) fn fetched(&self) -> usize {
        self.rosters.load(Ordering::Relaxed)
    }
}

/// Empties the cache whenever the server says that the roster changed.
pub(crate) async fn watch(client: &Client, cache: Arc<RosterCache>) -> Result<JoinHandle<()>, Refused> {
    let mut events = client.events().await?;
    Ok(tokio::spawn(async move {
        while let Some(message) = events.next().await {
            if message["method"] == "notifications/agents/list_changed" {
                cache.invalidate();
            }
        }
    }))
}

/// The host's models by the role that a server asks for.
pub(crate) struct RoleTable {
    models: HashMap<&'static str, &'static str>,
    other: &'static str,
}

impl Default for RoleTable {
    fn default() -> Self {
        let models = [("small", "house-small"), ("medium", "house-medium"), ("large", "house-large")];
        Self { models: models.into(), other: "house-medium" }
    }
}

impl RoleTable {
    /// The model for a `modelRoutingHint`, which is advice: without one, or with one that is not known, the
    /// host's usual model.
    pub(crate) fn model(&self, hint: &Value) -> &'static str {
        hint["role"].as_str().and_then(|role| self.models.get(role)).unwrap_or(&self.other)
    }
}

/// The scopes that a refusal asks for; `None` for every other refusal.
pub(crate) fn step_up_scopes(refused: &Refused) -> Option<Vec<String>> {
    match refused {
        Refused::StepUp { scopes, .. } => Some(scopes.clone()),
        Refused::Rpc { .. } | Refused::Http { .. } => None,
    }
}
