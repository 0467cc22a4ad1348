//! What one request sees: one snapshot, the caller's roster, the discovery mode and why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::cache::ClassDigest;
use crate::catalog::{Catalog, Hash, Tool, ToolSet};
use crate::cursor::{Binding, Digest};
use crate::id::{ToolNo, UpstreamId};
use crate::policy::{DiscoveryMode, Roster};
use crate::snapshot::Snapshot;

use super::meta;
use super::{Gateway, RequestContext, ToolEntry};

/// Which setting decided the discovery mode, from the nearest to the caller to the farthest (seed 000).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ModeSource {
    /// An extension that the client negotiated.
    Extension,
    /// `?discovery=` or `--discovery`.
    Connection,
    /// The caller's entry or token.
    Caller,
    /// The agent it speaks as.
    Agent,
    /// `server.discovery`.
    Server,
}

/// What is the same for all callers who see the same tools.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    /// How many tools they see.
    pub(super) tools: usize,
    /// Categories by name with the number of tools, largest first.
    pub(super) categories: Vec<(Arc<str>, usize)>,
    /// Upstreams in id order with the number of tools.
    pub(super) upstreams: BTreeMap<UpstreamId, usize>,
    /// The meta-tools as they are listed.
    pub(super) meta: Vec<Arc<ToolEntry>>,
    /// What they take on the wire.
    pub(super) meta_bytes: usize,
    /// Surface hashes by the tier of the caller, which is part of them.
    hashes: Mutex<BTreeMap<Option<Arc<str>>, Hash>>,
}

impl Shelf {
    fn of(snapshot: &Snapshot, visible: &ToolSet) -> Self {
        let mut categories: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut upstreams: BTreeMap<UpstreamId, usize> = BTreeMap::new();
        for tool in visible.iter().filter_map(|no| snapshot.catalog.get(no)) {
            count(&mut categories, &tool.category);
            count(&mut upstreams, &tool.upstream);
        }
        let mut categories: Vec<_> = categories.into_iter().collect();
        // Stable: names of equal size stay in order.
        categories.sort_by_key(|(_, tools)| std::cmp::Reverse(*tools));
        let mut shelf = Self { tools: visible.count(), categories, upstreams, ..Self::default() };
        shelf.meta = meta::entries(&snapshot.settings.name, &shelf);
        shelf.meta_bytes = shelf.meta.iter().map(|entry| entry.bytes()).sum();
        shelf
    }

    /// The surface hash of a tier, made on first use.
    pub(super) fn hash(&self, tier: Option<&Arc<str>>, make: impl FnOnce() -> Hash) -> Hash {
        let key = tier.cloned();
        if let Some(hash) = self.hashes.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return *hash;
        }
        // Made without the lock: 10,000 tools take a while, and twins come to the same.
        let hash = make();
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner).insert(key, hash);
        hash
    }
}

fn count<K: Ord + Clone>(map: &mut BTreeMap<K, usize>, key: &K) {
    match map.get_mut(key) {
        Some(n) => *n += 1,
        None => {
            map.insert(key.clone(), 1);
        }
    }
}

/// One request's view. Everything in it belongs to one generation.
#[derive(Debug)]
pub(super) struct View {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) roster: Arc<Roster>,
    /// `Full` or `Compact`: `Auto` is decided.
    pub(super) mode: DiscoveryMode,
    /// The setting before `Auto` was decided, and where it stands.
    pub(super) asked: (DiscoveryMode, ModeSource),
    pub(super) shelf: Arc<Shelf>,
    pub(super) class: ClassDigest,
    /// The caller's tier.
    pub(super) tier: Option<Arc<str>>,
}

impl View {
    /// The view of a request: takes the snapshot that serves now.
    pub(super) fn of(gateway: &Gateway, ctx: &RequestContext) -> Self {
        Self::over(gateway, ctx, gateway.snapshot())
    }

    /// The view over a snapshot that was taken before: a request sees one only.
    pub(super) fn over(gateway: &Gateway, ctx: &RequestContext, snapshot: Arc<Snapshot>) -> Self {
        let roster = snapshot.policy.roster(&snapshot.catalog, &ctx.principal);
        // The class of a caller is the set of tools it sees, nothing else: equal sets share pages and tokens.
        let class = roster.shown();
        let shelf =
            gateway.shelves().get(snapshot.generation, class, || Shelf::of(&snapshot, &roster.visible));
        let asked = asked_mode(&snapshot, ctx);
        let mode = match asked.0 {
            DiscoveryMode::Auto if shelf.tools <= snapshot.settings.listed_tools_max => DiscoveryMode::Full,
            DiscoveryMode::Auto | DiscoveryMode::Compact => DiscoveryMode::Compact,
            DiscoveryMode::Full => DiscoveryMode::Full,
        };
        Self { snapshot, roster, mode, asked, shelf, class, tier: ctx.principal.tier.clone() }
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.snapshot.catalog
    }

    pub(super) fn server(&self) -> &str {
        &self.snapshot.settings.name
    }

    /// A tool that this caller may know of, by id or wire name. Hidden and unknown take the same way out.
    pub(super) fn find(&self, name: &str) -> Option<(ToolNo, &Tool)> {
        self.catalog().lookup(name).filter(|(no, _)| self.roster.visible.contains(*no))
    }

    /// What a page token of this view is bound to.
    pub(super) fn binding<'a>(&self, purpose: &'a str, question: Digest) -> Binding<'a> {
        Binding { purpose, class: self.class, question, state: self.snapshot.state }
    }
}

fn asked_mode(snapshot: &Snapshot, ctx: &RequestContext) -> (DiscoveryMode, ModeSource) {
    if ctx.negotiated.agents {
        return (DiscoveryMode::Full, ModeSource::Extension);
    }
    if ctx.negotiated.is_progressive() {
        return (DiscoveryMode::Compact, ModeSource::Extension);
    }
    let agent = || {
        let agent = snapshot.settings.agents.get(ctx.principal.agent.as_ref()?)?;
        Some((agent.discovery?, ModeSource::Agent))
    };
    ctx.discovery
        .map(|m| (m, ModeSource::Connection))
        .or_else(|| ctx.principal.discovery.map(|m| (m, ModeSource::Caller)))
        .or_else(agent)
        .unwrap_or((snapshot.settings.discovery, ModeSource::Server))
}
