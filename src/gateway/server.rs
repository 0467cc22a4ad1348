//! The gateway itself: the handles that the use cases share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::watch;

use crate::audit::Audit;
use crate::cache::{ClassCache, Replays};
use crate::call::{ToolError, ToolOutcome};
use crate::clock::Clock;
use crate::cursor::CursorKey;
use crate::files::Files;
use crate::id::{self, Generation};
use crate::jobs::{Job, Jobs};
use crate::policy::DiscoveryMode;
use crate::schema::{SchemaText, Validators};
use crate::snapshot::{MetaTool, Publisher, Snapshot};
use crate::store::Store;

use super::agents::{AgentRoster, AgentTable, Published};
use super::confirm::Book;
use super::list::Listing;
use super::offers::Watches;
use super::savings::{Saved, Savings};
use super::usage::Usage;
use super::view::{Shelf, View};
use super::{CallAnswer, RequestContext, meta};

/// All use cases over the current snapshot. Shared by every connection; clones are the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    publisher: Arc<Publisher>,
    clock: Clock,
    validators: Arc<Validators>,
    shelves: ClassCache<Shelf>,
    listings: ClassCache<Listing>,
    /// For page tokens where the settings name no key: they end with the process.
    own_key: CursorKey,
    watches: Arc<Watches>,
    announced: watch::Sender<Generation>,
    store: Store,
    confirmations: Book,
    published: Published,
    agent_tables: ClassCache<AgentTable>,
    agent_rosters: ClassCache<AgentRoster>,
    audit: Audit,
    savings: Savings,
    jobs: Jobs,
    replays: Replays<Arc<Job>, Arc<ToolOutcome>>,
    files: Files,
    usage: Usage,
    /// The date of the newest thing that the ledger of `owns` has from the store.
    owned_until: AtomicU64,
}

/// What a gateway is given besides its snapshots. The default keeps nothing beyond the process.
#[derive(Debug)]
pub struct Services {
    /// Compiled schemas, shared with the projections.
    pub validators: Arc<Validators>,
    /// The state of a data directory.
    pub store: Store,
    /// Where calls and refusals are recorded.
    pub audit: Audit,
    /// Callers' files.
    pub files: Files,
}

impl Default for Services {
    fn default() -> Self {
        let store = Store::in_memory();
        let files = Files::new(None, store.clone(), Clock::default());
        Self { validators: Arc::default(), store, audit: Audit::default(), files }
    }
}

impl Gateway {
    /// docent's version.
    pub const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    /// A gateway over a publisher's snapshots, which keeps nothing beyond the process.
    pub fn new(publisher: Arc<Publisher>, clock: Clock) -> Self {
        Self::with(publisher, clock, Services::default())
    }

    /// The same with services that outlive a generation.
    pub fn with(publisher: Arc<Publisher>, clock: Clock, services: Services) -> Self {
        let Services { validators, store, audit, files } = services;
        let (announced, _) = watch::channel(publisher.current().generation);
        let jobs = Jobs::new(clock.clone(), store.clone());
        Self(Arc::new(Shared {
            publisher,
            clock,
            validators,
            shelves: ClassCache::default(),
            listings: ClassCache::default(),
            own_key: random_key(),
            watches: Arc::default(),
            announced,
            store,
            audit,
            files,
            confirmations: Book::default(),
            published: Published::default(),
            agent_tables: ClassCache::default(),
            agent_rosters: ClassCache::default(),
            savings: Savings::default(),
            jobs,
            replays: Replays::default(),
            usage: Usage::default(),
            owned_until: AtomicU64::new(0),
        }))
    }

    /// The snapshot that serves now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.publisher.current()
    }

    /// Where snapshots come from.
    pub fn publisher(&self) -> &Arc<Publisher> {
        &self.0.publisher
    }

    /// The clock of the gateway.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The server's name.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.snapshot().settings.name)
    }

    /// The discovery mode of this request: connection, caller, agent, server; `Auto` already decided.
    pub fn mode(&self, ctx: &RequestContext) -> DiscoveryMode {
        View::of(self, ctx).mode
    }

    /// The input schema of a tool as this caller is shown it, if it holds a word; nothing for one that is unknown
    /// or hidden. Almost no schema does, so that is looked at before anything is worked out for the caller.
    pub fn shown_schema_with(&self, ctx: &RequestContext, tool: &str, word: &str) -> Option<SchemaText> {
        let snapshot = self.snapshot();
        let known = snapshot.catalog.lookup(tool);
        if known.is_some_and(|(_, tool)| !tool.wire_schema.as_str().contains(word)) {
            return None;
        }
        let view = View::over(self, ctx, Arc::clone(&snapshot));
        match MetaTool::of(view.server(), tool) {
            Some(own) => Some(meta::input_schema(own)).filter(|schema| schema.as_str().contains(word)),
            None => view.find(tool).map(|(_, tool)| tool.wire_schema.clone()),
        }
    }

    /// Tells when surfaces may have changed, at most twice a second. Compare [`Gateway::surface`] per caller
    /// before a `list_changed`.
    pub fn changes(&self) -> watch::Receiver<Generation> {
        self.0.announced.subscribe()
    }

    /// What shaping saved so far, tool by tool.
    pub fn saved(&self) -> Vec<Saved> {
        self.0.savings.all()
    }

    pub(super) fn savings(&self) -> &Savings {
        &self.0.savings
    }

    /// What survives a restart.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The audit: the newest records and how it does.
    pub fn audit(&self) -> &Audit {
        &self.0.audit
    }

    /// The jobs of this process and the way to those of others.
    pub fn jobs(&self) -> &Jobs {
        &self.0.jobs
    }

    /// Equal calls and their answers.
    pub fn replays(&self) -> &Replays<Arc<Job>, Arc<ToolOutcome>> {
        &self.0.replays
    }

    pub(super) fn announced(&self) -> &watch::Sender<Generation> {
        &self.0.announced
    }

    pub(super) fn validators(&self) -> &Validators {
        &self.0.validators
    }

    /// Callers' files.
    pub fn files(&self) -> &Files {
        &self.0.files
    }

    pub(super) fn watches(&self) -> &Arc<Watches> {
        &self.0.watches
    }

    pub(super) fn owned_until(&self) -> &AtomicU64 {
        &self.0.owned_until
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.0.usage
    }

    pub(super) fn shelves(&self) -> &ClassCache<Shelf> {
        &self.0.shelves
    }

    pub(super) fn confirmations(&self) -> &Book {
        &self.0.confirmations
    }

    pub(super) fn published(&self) -> &Published {
        &self.0.published
    }

    pub(super) fn agent_tables(&self) -> &ClassCache<AgentTable> {
        &self.0.agent_tables
    }

    pub(super) fn agent_rosters(&self) -> &ClassCache<AgentRoster> {
        &self.0.agent_rosters
    }

    /// The entries of a generation's tools. They are one class: an entry does not depend on who sees it.
    pub(super) fn listing(&self, snapshot: &Snapshot) -> Arc<Listing> {
        self.0.listings.get(snapshot.generation, [0; 32], || Listing::of(snapshot))
    }

    /// The key of page tokens: the settings', so that nodes share it, else this process's own.
    pub(super) fn cursor_key(&self, snapshot: &Snapshot) -> CursorKey {
        match &snapshot.settings.cursor_key {
            Some(secret) => CursorKey::new(secret.expose().as_bytes()),
            None => self.0.own_key.clone(),
        }
    }
}

fn random_key() -> CursorKey {
    let material = id::random::<32>().unwrap_or_else(|e| {
        tracing::error!(error = %e, "the system gives no random bytes; page tokens are weaker");
        id::unique()
    });
    CursorKey::new(&material)
}

impl From<ToolError> for CallAnswer {
    fn from(error: ToolError) -> Self {
        Self::Outcome(ToolOutcome::Failed(error))
    }
}
