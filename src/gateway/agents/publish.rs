//! Agents published and withdrawn while the server runs. They outlive reloads; the home's own agents of the
//! same name come first.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;
use tokio::sync::watch;

use crate::cursor::Digest;
use crate::id::{AgentId, IdError};
use crate::json;
use crate::snapshot::{AgentSettings, Snapshot};
use crate::store::StoreError;

use super::super::Gateway;

/// Agents published at once: a roster is read by people and models, not by the thousand.
const PUBLISHED_MAX: usize = 1_000;

/// Published agents by name.
type PublishedAgents = BTreeMap<AgentId, Arc<AgentSettings>>;

/// One state of the published agents.
#[derive(Debug, Default)]
pub(in super::super) struct PublishedSet {
    pub(super) agents: PublishedAgents,
    pub(super) digest: Digest,
}

/// The published agents, and who waits for a change of them.
#[derive(Debug, Default)]
pub(in super::super) struct Published {
    set: RwLock<Arc<PublishedSet>>,
    /// Held while one is published or withdrawn, so that the store has the last word of memory.
    writing: tokio::sync::Mutex<()>,
    changes: watch::Sender<u64>,
}

impl Published {
    pub(super) fn current(&self) -> Arc<PublishedSet> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(in super::super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Changes the set; an error, or a change of nothing, leaves it as it was and tells nobody.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut PublishedAgents) -> Result<T, PublishError>,
    ) -> Result<T, PublishError> {
        let mut set = self.set.write().unwrap_or_else(PoisonError::into_inner);
        let mut agents = set.agents.clone();
        let answer = change(&mut agents)?;
        if agents != set.agents {
            let digest = *blake3::hash(&json::to_bytes(&agents)).as_bytes();
            *set = Arc::new(PublishedSet { agents, digest });
            drop(set);
            self.changes.send_modify(|n| *n += 1);
        }
        Ok(answer)
    }
}

/// Why an agent was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The name is not one.
    #[error("{0}")]
    Name(#[from] IdError),
    /// A member of the definition is too large or malformed.
    #[error("`{key}` must be {allowed}")]
    Member {
        /// The member.
        key: &'static str,
        /// What is allowed.
        allowed: String,
    },
    /// The home defines an agent of this name.
    #[error("docent.toml defines an agent of this name: edit it there, or take another name")]
    OfTheHome,
    /// There are as many as can be.
    #[error("{PUBLISHED_MAX} agents are published: withdraw one first")]
    TooMany,
    /// There is no such agent among the published ones.
    #[error("no agent of this name is published; those of docent.toml are edited there")]
    NotPublished,
    /// It is done, but will not outlive the process.
    #[error("it is done, but it will not outlive this process: the state cannot be written")]
    NotKept,
}

impl From<StoreError> for PublishError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = %error, "the state of a published agent cannot be written");
        Self::NotKept
    }
}

/// An agent as an operator sees it.
#[derive(Debug, Clone, Serialize)]
pub struct AgentOverview {
    /// Its name.
    pub name: AgentId,
    /// `home` or `published`.
    pub source: &'static str,
    /// Whether an agent of the home with the same name takes its place.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shadowed: bool,
    /// Its definition.
    #[serde(flatten)]
    pub definition: Arc<AgentSettings>,
    /// Names in it that no tool has: opening it answers `invalid_agent_definition`.
    pub unknown_tools: Vec<String>,
}

impl Gateway {
    /// Publishes an agent, or replaces a published one of the same name; whether it is new. It outlives the
    /// process once this has returned.
    pub async fn publish_agent(&self, name: &str, definition: AgentSettings) -> Result<bool, PublishError> {
        let _turn = self.published().writing.lock().await;
        let text = json::to_text(&definition);
        let new = self.publish(name, definition, false)?;
        tracing::info!(agent.id = name, new, "agent published");
        self.store().put_agent(name, text).await?;
        Ok(new)
    }

    fn publish(
        &self,
        name: &str,
        definition: AgentSettings,
        may_be_shadowed: bool,
    ) -> Result<bool, PublishError> {
        let id = AgentId::parse(name)?;
        if let Some((key, allowed)) = definition.problems().into_iter().next() {
            return Err(PublishError::Member { key, allowed });
        }
        if !may_be_shadowed && self.snapshot().settings.agents.contains_key(&id) {
            return Err(PublishError::OfTheHome);
        }
        self.published().change(|agents| {
            if !agents.contains_key(&id) && agents.len() >= PUBLISHED_MAX {
                return Err(PublishError::TooMany);
            }
            Ok(agents.insert(id.clone(), Arc::new(definition)).is_none())
        })
    }

    /// Withdraws a published agent.
    pub async fn withdraw_agent(&self, name: &str) -> Result<(), PublishError> {
        let _turn = self.published().writing.lock().await;
        self.published().change(|agents| agents.remove(name).map(drop).ok_or(PublishError::NotPublished))?;
        tracing::info!(agent.id = name, "agent withdrawn");
        Ok(self.store().remove_agent(name).await?)
    }

    /// Every agent, the home's first.
    pub fn agents_overview(&self) -> Vec<AgentOverview> {
        let (snapshot, published) = (self.snapshot(), self.published().current());
        let home = snapshot.settings.agents.iter().map(|(id, s)| (id, "home", false, Arc::new(s.clone())));
        let more = published
            .agents
            .iter()
            .map(|(id, s)| (id, "published", snapshot.settings.agents.contains_key(id), Arc::clone(s)));
        home.chain(more)
            .map(|(id, source, shadowed, definition)| AgentOverview {
                name: id.clone(),
                source,
                shadowed,
                unknown_tools: super::roster::unknown(&snapshot, &definition),
                definition,
            })
            .collect()
    }

    /// Publishes again what was kept over a restart. What does not fit (any more) is left out and told in the
    /// log.
    pub async fn restore_agents(&self) -> Result<(), StoreError> {
        for (name, text) in self.store().agents().await? {
            let definition = json::parse_as::<AgentSettings>(text.as_bytes(), text.len());
            let restored = match definition {
                // A home that took the name meanwhile comes first, and gives it back when it goes.
                Ok(definition) => self.publish(&name, definition, true).map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            };
            if let Err(why) = restored {
                tracing::warn!(agent.id = name, error = why, "a kept agent is not published again");
            }
        }
        Ok(())
    }

    /// Tells when agents were published or withdrawn.
    pub fn agent_changes(&self) -> watch::Receiver<u64> {
        self.published().subscribe()
    }

    /// A hash of everything that rosters are made of, besides policies and tools.
    pub(in super::super) fn agent_definitions(&self, snapshot: &Snapshot) -> Digest {
        super::roster::definitions(snapshot, &self.published().current())
    }
}
