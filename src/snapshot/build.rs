//! From a parsed home and what its upstreams brought to a snapshot. Pure: no file, no socket, no clock.
//!
//! What did not change since the snapshot before is taken over: compiled projections of an upstream, the
//! index. A reload of one policy costs one policy.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::catalog::{Catalog, CatalogBuilder, Hash, TaskSupport, Tool};
use crate::cursor::Digest;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::id::{Generation, ToolId, UpstreamId};
use crate::jobs::{self, Lane};
use crate::limits::CALL_WAIT;
use crate::policy::{PolicySet, PolicyTables, Shadow};
use crate::projection::{Projection, Projector};
use crate::schema::Validators;
use crate::search::sentence::Sense;
use crate::search::{Earlier, Ranking, ToolIndex};
use crate::upstream::{CallHints, Discovered, Discovery, UpstreamSet};

use super::digest;
use super::offers;
use super::{Home, MetaTool, Snapshot};

/// How a tool's calls are made: its shaping and its times.
#[derive(Debug, Clone, Default)]
pub struct CallPlan {
    /// Request and result shaping, where the tool has any.
    pub projection: Option<Arc<Projection>>,
    /// Times and whether equal calls may share an answer.
    pub hints: CallHints,
}

/// The compiled tools of one upstream, kept while neither its tools nor its shaping change.
#[derive(Debug)]
pub(super) struct Part {
    /// What it was made of: the same discovery and the same configuration.
    discovery: Arc<Discovery>,
    config: blake3::Hash,
    tools: Vec<(Tool, CallPlan)>,
}

/// Builds a snapshot. Every mistake is in `diagnostics`; `None` where one of the home's own files is wrong, so
/// that the last good snapshot serves on. What an upstream got wrong never stops the others.
pub fn build(
    home: &Home,
    upstreams: UpstreamSet,
    validators: &Arc<Validators>,
    previous: Option<&Snapshot>,
    generation: Generation,
    diagnostics: &mut Diagnostics,
) -> Option<Snapshot> {
    let before = Before { snapshot: previous, index: None };
    build_over(home, upstreams, validators, before, generation, diagnostics)
}

/// What a snapshot may take over instead of making it anew.
#[derive(Debug, Clone, Copy, Default)]
pub struct Before<'a> {
    /// The snapshot before it.
    pub snapshot: Option<&'a Snapshot>,
    /// A search index that an earlier run saved; looked at where there is no snapshot before.
    pub index: Option<&'a [u8]>,
}

/// The same over what there was before.
pub fn build_over(
    home: &Home,
    upstreams: UpstreamSet,
    validators: &Arc<Validators>,
    before: Before<'_>,
    generation: Generation,
    diagnostics: &mut Diagnostics,
) -> Option<Snapshot> {
    let previous = before.snapshot;
    let mut own = Diagnostics::default();
    let mut theirs = Diagnostics::default();
    let parts = parts(&upstreams, validators, previous, &mut own, &mut theirs);
    let (catalog, plans) = catalog(&home.settings.name, &parts, &mut theirs);
    let ranking = Ranking::read(home.ranking.as_ref(), home.synonyms.as_ref(), &mut own);
    let tiers = &home.settings.tiers;
    let policy = PolicySet::load(&home.policies, tables(home), tiers, &mut own);
    let policy = match previous {
        Some(previous) => policy.with_ledger(Arc::clone(previous.policy.ledger())),
        None => policy,
    };
    let offers = offers::build(&upstreams, &catalog, &policy.digest(), &mut theirs);
    warn_of_unknown_agents_tools(home, &catalog, &mut theirs);
    let broken = own.has_errors();
    diagnostics.extend(own);
    diagnostics.extend(theirs);
    if broken {
        return None;
    }
    let digests: Vec<Digest> = catalog.tools().iter().map(|tool| digest::of_tool(tool)).collect();
    let contracts = contracts(&catalog, &digests, previous);
    let ranked = digest::of_ranked(&catalog, &digests, &digest::of_files(&[&home.ranking, &home.synonyms]));
    let index = match previous.filter(|p| p.ranked == ranked) {
        Some(same) => Arc::clone(&same.index),
        None => ToolIndex::over(earlier(before, &ranking), &catalog, &ranking),
    };
    Some(Snapshot {
        generation,
        state: digest::of_state(&ranked, &policy.digest(), &catalog),
        catalog: Arc::new(catalog),
        offers: Arc::new(offers),
        shadow: shadow(home, &policy, previous, diagnostics),
        policy: Arc::new(policy),
        index,
        sense: Sense::default(),
        settings: Arc::new(home.settings.clone()),
        callers: Arc::clone(&home.callers),
        lanes: lanes(&upstreams, previous),
        upstreams,
        plans,
        digests,
        contracts,
        ranked,
        parts,
    })
}

/// The index that a new one is made over.
fn earlier<'a>(before: Before<'a>, ranking: &Ranking) -> Option<Earlier<'a>> {
    if let Some(previous) = before.snapshot {
        return Some(Earlier { index: Arc::clone(&previous.index), catalog: Some(&previous.catalog) });
    }
    let opened = ToolIndex::open(before.index?, ranking);
    opened
        .inspect_err(|why| tracing::info!(%why, "the saved search index is not used: it is built anew"))
        .ok()
        .map(|index| Earlier { index: Arc::new(index), catalog: None })
}

/// The contracts' hashes as far as they are known from the snapshot before.
fn contracts(catalog: &Catalog, digests: &[Digest], previous: Option<&Snapshot>) -> Vec<OnceLock<Hash>> {
    let known = |tool: &Tool, digest: &Digest| {
        let previous = previous?;
        let (no, before) = previous.catalog.lookup(tool.id.as_str())?;
        let same = before.tier == tool.tier && previous.digest(no) == Some(digest);
        same.then(|| previous.contracts.get(no.index()).cloned()).flatten()
    };
    catalog
        .tools()
        .iter()
        .zip(digests)
        .map(|(tool, digest)| known(tool, digest).unwrap_or_default())
        .collect()
}

fn parts(
    upstreams: &UpstreamSet,
    validators: &Arc<Validators>,
    previous: Option<&Snapshot>,
    own: &mut Diagnostics,
    theirs: &mut Diagnostics,
) -> BTreeMap<UpstreamId, Arc<Part>> {
    let projector = Projector::new(Arc::clone(validators));
    let mut parts = BTreeMap::new();
    for (id, discovery) in upstreams.discoveries() {
        let Some(config) = upstreams.config(id.as_str()).map(crate::upstream::UpstreamConfig::digest) else {
            continue;
        };
        theirs.extend(discovery.problems.clone());
        let kept = previous
            .and_then(|p| p.parts.get(&id))
            .filter(|part| Arc::ptr_eq(&part.discovery, &discovery) && part.config == config);
        let part = match kept {
            Some(part) => Arc::clone(part),
            None => {
                let tools = discovery.tools.iter().filter_map(|t| compile(&projector, t, own)).collect();
                Arc::new(Part { discovery, config, tools })
            }
        };
        parts.insert(id, part);
    }
    parts
}

fn compile(projector: &Projector, found: &Discovered, own: &mut Diagnostics) -> Option<(Tool, CallPlan)> {
    let mut tool = found.tool.clone();
    let projection = match &found.projection {
        None => None,
        // A tool whose shaping is wrong is not served bare: the operator meant to hide something.
        Some(spec) => Some(Arc::new(projector.compile(&tool, spec, own)?)),
    };
    if let Some(schema) = projection.as_ref().and_then(|p| p.output_schema()) {
        tool.output_schema = Some(schema.clone());
    }
    let outlasts = found.hints.timeout > found.hints.wait.unwrap_or(CALL_WAIT);
    if outlasts && tool.tasks.is_none() {
        tool.tasks = Some(TaskSupport::Optional);
    }
    // A direct call that can outlast its caller's patience has two kinds of answers; a client that checks results
    // must know of both. What is answered with tasks only is told in them.
    if outlasts && tool.tasks != Some(TaskSupport::Required) {
        tool.output_schema = tool.output_schema.as_ref().map(jobs::or_running);
    }
    Some((tool, CallPlan { projection, hints: found.hints.clone() }))
}

fn catalog(
    server: &str,
    parts: &BTreeMap<UpstreamId, Arc<Part>>,
    diagnostics: &mut Diagnostics,
) -> (Catalog, Vec<CallPlan>) {
    let mut builder = CatalogBuilder::new(MetaTool::reserved(server));
    let mut plans: BTreeMap<ToolId, &CallPlan> = BTreeMap::new();
    for (tool, plan) in parts.values().flat_map(|p| &p.tools) {
        builder.push(tool.clone());
        // The builder keeps the first of two tools with one id; so does this.
        plans.entry(tool.id.clone()).or_insert(plan);
    }
    let catalog = builder.build(diagnostics);
    let plans =
        catalog.tools().iter().map(|t| plans.get(&t.id).copied().cloned().unwrap_or_default()).collect();
    (catalog, plans)
}

/// How many calls each upstream takes at once. A lane lives on while its width stays, calls in it included.
fn lanes(upstreams: &UpstreamSet, previous: Option<&Snapshot>) -> BTreeMap<UpstreamId, Arc<Lane>> {
    let lane = |id: &UpstreamId| {
        let config = upstreams.config(id.as_str())?;
        let width = config.concurrency.max(1);
        let shape = (width, config.concurrency_per_caller.unwrap_or(width).clamp(1, width));
        let kept = previous.and_then(|p| p.lanes.get(id)).filter(|l| l.shape() == shape).cloned();
        let lane = kept.unwrap_or_else(|| Lane::new(shape.0, shape.1));
        Some((id.clone(), lane))
    };
    upstreams.ids().filter_map(lane).collect()
}

/// The candidate beside the policies. One that does not load is told of and left out: it decides nothing, so it
/// stops nothing. What was seen of it is kept while both sides stay the same.
fn shadow(
    home: &Home,
    live: &PolicySet,
    previous: Option<&Snapshot>,
    diagnostics: &mut Diagnostics,
) -> Option<Arc<Shadow>> {
    let mut found = Diagnostics::default();
    let candidate = PolicySet::load(home.shadow.as_ref()?, tables(home), &home.settings.tiers, &mut found);
    let broken = found.has_errors();
    for d in found.0 {
        diagnostics.push(Diagnostic { severity: d.severity.max(Severity::Warning), ..d });
    }
    if broken {
        return None;
    }
    // It sees what callers own; it adds nothing to it.
    let shadow = Shadow::new(candidate.with_ledger(Arc::clone(live.ledger())), live);
    let kept = previous.and_then(|p| p.shadow.as_ref()).filter(|p| p.is_same(&shadow));
    Some(kept.map_or_else(|| Arc::new(shadow), Arc::clone))
}

/// The tables of docent.toml, and what its agents narrow.
fn tables(home: &Home) -> PolicyTables {
    let mut tables = home.tables.clone();
    for (agent, settings) in &home.settings.agents {
        tables.narrow_agent(agent, &settings.tools);
    }
    tables
}

/// An agent whose tool list names nothing was meant otherwise.
fn warn_of_unknown_agents_tools(home: &Home, catalog: &Catalog, diagnostics: &mut Diagnostics) {
    for (agent, settings) in &home.settings.agents {
        let plain = settings.tools.iter().filter(|t| !t.contains(['*', '?', '[', '{']));
        let is_own = |t: &String| MetaTool::of(&home.settings.name, t).is_some();
        for tool in plain.filter(|t| catalog.lookup(t).is_none() && !is_own(t)) {
            diagnostics.push(
                Diagnostic::warning(
                    "unknown-tool",
                    "docent.toml",
                    format!("the agent `{agent}` names the tool `{tool}`, which is not in the catalog"),
                )
                .help("correct the id, or enable the upstream that brings it"),
            );
        }
    }
}
