//! Agents resolved against one generation's catalog, and the part of them that one caller sees.
//!
//! A roster is made once per class of callers: those equal in everything that the policies on agents look at
//! and in the tools they see.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::cursor::Digest;
use crate::id::{AgentId, ToolNo};
use crate::json;
use crate::limits::LIST_TTL;
use crate::policy::{AgentDecision, AgentFacts};
use crate::snapshot::{AgentSettings, MetaTool, Snapshot};

use super::super::view::View;
use super::super::{Gateway, RequestContext};
use super::publish::PublishedSet;

/// A tool of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    Tool(ToolNo),
    Own(MetaTool),
}

/// An agent with its tools found.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) facts: AgentFacts,
    pub(super) settings: Arc<AgentSettings>,
    /// In the order of the definition, what a pattern covers in the order of ids; each once.
    pub(super) tools: Vec<Named>,
    /// Names that no tool of the catalog has.
    pub(super) unknown: Vec<String>,
    /// Names below an upstream that has not brought all its tools yet: they may still come.
    pub(super) pending: usize,
}

impl Agent {
    fn of(snapshot: &Snapshot, id: &AgentId, settings: &Arc<AgentSettings>) -> Self {
        let mut agent = Self {
            facts: settings.facts(id),
            settings: Arc::clone(settings),
            tools: Vec::new(),
            unknown: unknown(snapshot, settings),
            pending: 0,
        };
        let mut seen = BTreeSet::new();
        for text in &settings.tools {
            let found = find(snapshot, text);
            let missing = found.is_empty() && !is_pattern(text);
            agent.pending += usize::from(missing && may_still_come(snapshot, text));
            agent.tools.extend(found.into_iter().filter(|named| seen.insert(*named)));
        }
        agent
    }

    pub(super) fn ttl_ms(&self) -> u64 {
        self.settings.ttl_ms.unwrap_or_else(default_ttl_ms)
    }

    /// Whether every tool of it is hidden from the caller. One that names no tool, or one that does not exist,
    /// hides nothing.
    pub(super) fn is_out_of_sight(&self, view: &View) -> bool {
        let hidden = |named: &Named| matches!(named, Named::Tool(no) if !view.roster.visible.contains(*no));
        !self.tools.is_empty()
            && self.unknown.is_empty()
            && self.pending == 0
            && self.tools.iter().all(hidden)
    }
}

fn default_ttl_ms() -> u64 {
    u64::try_from(LIST_TTL.as_millis()).unwrap_or(u64::MAX)
}

/// Names in a definition that no tool of the catalog has, nor an upstream that is still listing may bring.
pub(super) fn unknown(snapshot: &Snapshot, settings: &AgentSettings) -> Vec<String> {
    let is_missing = |text: &&String| {
        !is_pattern(text) && find(snapshot, text).is_empty() && !may_still_come(snapshot, text)
    };
    settings.tools.iter().filter(is_missing).cloned().collect()
}

/// Whether a text of `agents.N.tools` is a pattern and not a name.
fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

fn find(snapshot: &Snapshot, text: &str) -> Vec<Named> {
    if let Some(own) = MetaTool::of(&snapshot.settings.name, text) {
        return vec![Named::Own(own)];
    }
    if !is_pattern(text) {
        return snapshot.catalog.lookup(text).map(|(no, _)| Named::Tool(no)).into_iter().collect();
    }
    covered(&snapshot.catalog, text)
}

fn covered(catalog: &Catalog, pattern: &str) -> Vec<Named> {
    // Both sources of definitions refuse bad patterns before they come here.
    let Ok(glob) = globset::Glob::new(pattern) else { return Vec::new() };
    let glob = glob.compile_matcher();
    catalog.iter().filter(|(_, t)| glob.is_match(t.id.as_str())).map(|(no, _)| Named::Tool(no)).collect()
}

fn may_still_come(snapshot: &Snapshot, tool: &str) -> bool {
    let statuses = snapshot.upstreams.statuses();
    let is_of = |upstream: &str| tool.strip_prefix(upstream).is_some_and(|rest| rest.starts_with(['.', '_']));
    statuses.iter().any(|s| !s.complete && is_of(s.id.as_str()))
}

/// All agents of a generation, by name.
#[derive(Debug)]
pub(in super::super) struct AgentTable {
    agents: Vec<Agent>,
    pub(super) digest: Digest,
}

impl AgentTable {
    /// The home's agents and the published ones; of two with one name the home's counts.
    fn of(snapshot: &Snapshot, published: &PublishedSet) -> Self {
        let home = snapshot.settings.agents.iter().map(|(id, s)| (id, Arc::new(s.clone())));
        let more = published.agents.iter().filter(|(id, _)| !snapshot.settings.agents.contains_key(*id));
        let all = home.chain(more.map(|(id, s)| (id, Arc::clone(s))));
        let mut agents: Vec<Agent> = all.map(|(id, s)| Agent::of(snapshot, id, &s)).collect();
        agents.sort_by(|a, b| a.facts.id.cmp(&b.facts.id));
        Self { agents, digest: definitions(snapshot, published) }
    }

    /// An agent by its name.
    pub(super) fn find(&self, name: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.facts.id.as_str() == name)
    }
}

/// A hash of all definitions: what everybody's roster is made of.
pub(in super::super) fn definitions(snapshot: &Snapshot, published: &PublishedSet) -> Digest {
    let mut hash = blake3::Hasher::new();
    hash.update(&json::to_bytes(&snapshot.settings.agents));
    hash.update(&published.digest);
    *hash.finalize().as_bytes()
}

/// The agents of one class of callers.
#[derive(Debug)]
pub(in super::super) struct AgentRoster {
    /// Places in the table, with the answer to opening each.
    visible: Vec<(usize, AgentDecision)>,
    /// Of what the caller sees of them: it moves exactly when a host has to look again.
    pub(super) digest: Digest,
    /// How long the roster may be kept: as long as the most short-lived card in it.
    pub(super) ttl_ms: u64,
}

impl AgentRoster {
    fn of(table: &AgentTable, view: &View, decisions: Vec<AgentDecision>) -> Self {
        let silent = !view.snapshot.policy.speaks_of_agents();
        let mut visible = Vec::new();
        let mut hash = blake3::Hasher::new();
        let mut ttl_ms = None;
        for (place, (agent, decision)) in table.agents.iter().zip(decisions).enumerate() {
            if decision.is_hidden() || (silent && agent.is_out_of_sight(view)) {
                continue;
            }
            let seen = |named: &&Named| match named {
                Named::Tool(no) => view.roster.visible.contains(*no),
                Named::Own(_) => true,
            };
            let tools = agent.tools.iter().filter(seen).map(|named| match named {
                Named::Tool(no) => view.catalog().get(*no).map_or("", |t| &*t.wire_name).to_owned(),
                Named::Own(own) => own.wire_name(view.server()).to_string(),
            });
            let shown = (&agent.facts.id, &*agent.settings, tools.collect::<Vec<_>>());
            hash.update(blake3::hash(&json::to_bytes(&shown)).as_bytes());
            ttl_ms = Some(ttl_ms.map_or(agent.ttl_ms(), |least: u64| least.min(agent.ttl_ms())));
            visible.push((place, decision));
        }
        Self { visible, digest: *hash.finalize().as_bytes(), ttl_ms: ttl_ms.unwrap_or_else(default_ttl_ms) }
    }

    /// The visible agents in order, with the answer to opening each.
    pub(super) fn agents<'a>(
        &'a self,
        table: &'a AgentTable,
    ) -> impl Iterator<Item = (&'a Agent, &'a AgentDecision)> {
        self.visible.iter().filter_map(|(place, decision)| Some((table.agents.get(*place)?, decision)))
    }
}

impl Gateway {
    /// The agents of a view's generation, and what its caller sees of them.
    pub(super) fn agent_roster(
        &self,
        view: &View,
        ctx: &RequestContext,
    ) -> (Arc<AgentTable>, Arc<AgentRoster>) {
        let (snapshot, published) = (&view.snapshot, self.published().current());
        let made = || AgentTable::of(snapshot, &published);
        let table = self.agent_tables().get(snapshot.generation, published.digest, made);
        let class = || {
            let mut hash = blake3::Hasher::new();
            for part in [table.digest, snapshot.policy.agent_class(&ctx.principal), view.class] {
                hash.update(&part);
            }
            *hash.finalize().as_bytes()
        };
        if let Some(kept) = self.agent_rosters().find(snapshot.generation, class()) {
            return (table, kept);
        }
        let decided = snapshot.policy.agents(&ctx.principal, table.agents.iter().map(|a| &a.facts));
        let roster = Arc::new(AgentRoster::of(&table, view, decided.of));
        if decided.complete {
            // By now the policies have shown what they look at: the class takes it in.
            self.agent_rosters().keep(snapshot.generation, class(), Arc::clone(&roster));
        }
        (table, roster)
    }
}
