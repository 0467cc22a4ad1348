//! Keeps adapters across reloads, remembers what each last brought, and tells when that changed.
//!
//! A reload *stages* a set of adapters: those whose configuration is the same are the old ones, with their
//! connections and their last discovery. Only when the new generation is published is the set *adopted*; a
//! home that does not build leaves the adopted set as it was.

mod remembered;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Discovery, Upstream, UpstreamConfig, UpstreamState, UpstreamStatus, connect};
use crate::clock::Clock;
use crate::id::UpstreamId;
use crate::limits;
use remembered::Store;

/// One adapter, its configuration and what it last brought.
struct Entry {
    config: UpstreamConfig,
    adapter: Arc<dyn Upstream>,
    /// Shared by the entries of all generations that use this adapter.
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    discovery: Option<Arc<Discovery>>,
    /// From this process, not from an earlier one.
    fresh: bool,
    asked: Option<Instant>,
    /// An answer is waited for.
    asking: bool,
    failures: u32,
    failure: Option<String>,
}

impl Entry {
    /// What the adapter last brought, shaped as this generation's scripts say: a script may have changed
    /// while the adapter stayed.
    fn discovery(&self) -> Option<Arc<Discovery>> {
        let found = self.known().discovery.clone()?;
        if !self.config.shapes() {
            return Some(found);
        }
        let mut bound = found.as_ref().clone();
        for tool in &mut bound.tools {
            let own = self.config.own(&tool.tool.id, &tool.tool.name);
            tool.projection = own.and_then(|o| o.projection.clone());
        }
        Some(Arc::new(bound))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.config.id).finish()
    }
}

/// The adapters of one generation. Cheap to clone; immutable but for what the adapters bring.
#[derive(Debug, Clone, Default)]
pub struct UpstreamSet(Arc<BTreeMap<UpstreamId, Arc<Entry>>>);

impl UpstreamSet {
    /// A set of adapters that were made elsewhere, with what they brought: for embedding and for tests.
    pub fn of(adapters: Vec<(UpstreamConfig, Arc<dyn Upstream>, Discovery)>) -> Self {
        let entries = adapters.into_iter().map(|(config, adapter, discovery)| {
            let known = Known { discovery: Some(Arc::new(discovery)), fresh: true, ..Known::default() };
            (config.id.clone(), Arc::new(Entry { config, adapter, known: Arc::new(Mutex::new(known)) }))
        });
        Self(Arc::new(entries.collect()))
    }

    /// The adapter of an upstream.
    pub fn get(&self, id: &str) -> Option<&Arc<dyn Upstream>> {
        self.0.get(id).map(|e| &e.adapter)
    }

    /// The configuration of an upstream.
    pub fn config(&self, id: &str) -> Option<&UpstreamConfig> {
        self.0.get(id).map(|e| &e.config)
    }

    /// What each upstream last brought, this time or, for MCP servers, in an earlier run.
    pub fn discoveries(&self) -> BTreeMap<UpstreamId, Arc<Discovery>> {
        self.0.iter().filter_map(|(id, e)| Some((id.clone(), e.discovery()?))).collect()
    }

    /// The upstreams in id order.
    pub fn ids(&self) -> impl Iterator<Item = &UpstreamId> {
        self.0.keys()
    }

    /// What is known of one upstream.
    pub fn status(&self, id: &str) -> Option<UpstreamStatus> {
        self.0.get(id).map(|e| status(e))
    }

    /// What is known of every upstream, in id order.
    pub fn statuses(&self) -> Vec<UpstreamStatus> {
        self.0.values().map(|e| status(e)).collect()
    }
}

/// What is known of one upstream: the adapter's own word, and the discovery that stands for it.
fn status(entry: &Entry) -> UpstreamStatus {
    let mut status = entry.adapter.status();
    let known = entry.known();
    if let Some(discovery) = &known.discovery {
        status.tools = discovery.tools.len();
        status.complete = discovery.complete && known.fresh;
        if known.fresh && !discovery.complete && status.note.is_empty() {
            status.note = cost(discovery);
        }
        if !known.fresh && status.note.is_empty() {
            status.note.push_str("its tools are those of an earlier run; not reached yet");
        }
    }
    if let Some(failure) = &known.failure {
        status.state = UpstreamState::Down;
        status.complete = false;
        status.note.clone_from(failure);
    }
    status
}

/// What an incomplete list cost, in a few words.
fn cost(discovery: &Discovery) -> String {
    let missing: Vec<_> = discovery.problems.0.iter().filter(|d| d.code == super::INCOMPLETE_LIST).collect();
    let first = missing.first().map_or("", |d| d.message.as_str());
    // Who it was stands before it already.
    let first = first.split_once("`: ").map_or(first, |(_, why)| why);
    match missing.len() {
        0 | 1 => first.to_owned(),
        n => format!("{first}; and {} more like it, which `docent check` names", n - 1),
    }
}

/// The keeper of all adapters of a process.
#[derive(Debug)]
pub struct Registry {
    clock: Clock,
    store: Option<Store>,
    adopted: Mutex<UpstreamSet>,
    changes: watch::Sender<u64>,
}

impl Registry {
    /// An empty registry. `data` is the folder for remembered discoveries; `None` remembers nothing.
    pub fn new(clock: Clock, data: Option<&Path>) -> Self {
        let (changes, _) = watch::channel(0);
        Self { clock, store: data.map(Store::new), adopted: Mutex::default(), changes }
    }

    /// The adapters for these configurations. An adapter of the adopted set is kept where nothing changed.
    pub fn stage(&self, configs: Vec<UpstreamConfig>) -> UpstreamSet {
        let old = self.current();
        let mut set = BTreeMap::new();
        for config in configs {
            let kept = old.0.get(&config.id).filter(|e| e.config.same_as(&config));
            let entry = match kept {
                Some(old) => {
                    Entry { config, adapter: Arc::clone(&old.adapter), known: Arc::clone(&old.known) }
                }
                None => self.entry(config),
            };
            set.insert(entry.config.id.clone(), Arc::new(entry));
        }
        UpstreamSet(Arc::new(set))
    }

    fn entry(&self, config: UpstreamConfig) -> Entry {
        let discovery = self.store.as_ref().and_then(|s| s.recall(&config)).map(Arc::new);
        let known = Known { discovery, ..Known::default() };
        Entry { adapter: connect(&config, self.clock.clone()), config, known: Arc::new(Mutex::new(known)) }
    }

    /// Makes a staged set the current one. Adapters that fell out are closed once the last call of an older
    /// generation has let go of them; their child processes end with them.
    pub fn adopt(&self, set: UpstreamSet) {
        *self.adopted.lock().unwrap_or_else(PoisonError::into_inner) = set;
    }

    /// The adopted set.
    pub fn current(&self) -> UpstreamSet {
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fires when some upstream's tools or state changed; the number only grows.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Asks every upstream of a set that was not asked yet: files are read, MCP servers are connected to.
    /// `only_static` leaves out those that need a connection, so that a first generation is served at once.
    pub async fn discover(&self, set: &UpstreamSet, only_static: bool) {
        let due = set.0.values().filter(|e| {
            let known = e.known();
            known.asked.is_none() && !known.asking && !(only_static && is_remote(e))
        });
        let mut asking: FuturesUnordered<_> = due.map(|e| self.ask(e)).collect();
        while asking.next().await.is_some() {}
    }

    /// Whether some adopted upstream has neither tools to show nor a reason why not: it was never listed before.
    pub fn awaits_first_lists(&self) -> bool {
        self.current().0.values().any(|e| {
            let known = e.known();
            is_remote(e) && known.discovery.is_none() && known.failure.is_none()
        })
    }

    /// Waits until that is no longer so. Somebody has to ask: [`Registry::keep_fresh`].
    pub async fn first_lists(&self) {
        let mut changes = self.changes();
        while self.awaits_first_lists() && changes.changed().await.is_ok() {}
    }

    async fn ask(&self, entry: &Entry) {
        entry.known().asked = Some(self.clock.now());
        let found = tokio::time::timeout(limits::DISCOVERY_TIMEOUT, entry.adapter.discover()).await;
        let changed = match found {
            Ok(Ok(discovery)) => self.learn(entry, discovery),
            Ok(Err(e)) => fail(entry, e.message),
            Err(_) => {
                fail(entry, format!("no list of tools within {} s", limits::DISCOVERY_TIMEOUT.as_secs()))
            }
        };
        entry.known().asking = false;
        if changed {
            self.changes.send_modify(|n| *n += 1);
        }
    }

    /// Takes what an upstream brought. A list that broke off does not take away tools that are known from a
    /// whole one: they stay, and the list counts as incomplete.
    fn learn(&self, entry: &Entry, mut discovery: Discovery) -> bool {
        let mut known = entry.known();
        if let Some(old) = known.discovery.as_ref().filter(|_| discovery.broke_off) {
            let found: HashSet<_> = discovery.tools.iter().map(|t| t.tool.id.clone()).collect();
            let missing = old.tools.iter().filter(|t| !found.contains(&t.tool.id)).cloned();
            discovery.tools.extend(missing.collect::<Vec<_>>());
        }
        let new = Arc::new(discovery);
        let same = known.discovery.as_ref().is_some_and(|old| remembered::same(old, &new));
        let changed = !same || !known.fresh || known.failure.is_some();
        known.discovery = Some(Arc::clone(&new));
        (known.fresh, known.failures, known.failure) = (true, 0, None);
        drop(known);
        if let (false, Some(store)) = (same, &self.store) {
            store.remember(&entry.config, &new);
        }
        changed
    }

    /// Keeps every adopted upstream's tools fresh until `stop` fires: MCP servers are listed again when they
    /// say so and from time to time; those that are down are tried again with growing pauses. One that hangs
    /// holds up no other.
    pub async fn keep_fresh(&self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(limits::DISCOVERY_TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = asking.next() => {}
                _ = tick.tick() => {
                    for entry in self.current().0.values().filter(|e| self.is_due(e)) {
                        let entry = Arc::clone(entry);
                        entry.known().asking = true;
                        asking.push(async move { self.ask(&entry).await });
                    }
                }
            }
        }
    }

    fn is_due(&self, entry: &Entry) -> bool {
        let known = entry.known();
        let Some(asked) = known.asked else { return !known.asking };
        if known.asking || !is_remote(entry) {
            return false;
        }
        let since = self.clock.now().saturating_duration_since(asked);
        let pause = match known.failures {
            0 if entry.adapter.list_changed() => limits::DISCOVERY_TICK,
            0 => entry.config.refresh().unwrap_or(limits::DISCOVERY_REFRESH),
            n => limits::RECONNECT_PAUSE.saturating_mul(1 << n.min(6)),
        };
        since >= pause
    }

    /// Ends every connection and every child process.
    pub async fn close(&self) {
        let set = self.current();
        let mut closing: FuturesUnordered<_> = set.0.values().map(|e| e.adapter.close()).collect();
        while closing.next().await.is_some() {}
    }
}

fn is_remote(entry: &Entry) -> bool {
    matches!(entry.config.kind, super::config::KindConfig::Mcp(_))
}

fn fail(entry: &Entry, message: String) -> bool {
    let mut known = entry.known();
    known.failures = known.failures.saturating_add(1);
    let changed = known.failure.as_ref() != Some(&message);
    known.failure = Some(message);
    changed
}
