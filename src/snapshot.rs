//! One generation: catalog, policies, projections, index; built whole, published whole.
//!
//! A request takes one [`Snapshot`] and sees nothing else. Building is a pure function of a [`Home`] and the
//! upstreams' tools; a home that does not build leaves the last good snapshot in place. Nothing here knows
//! callers' requests or the wire.

mod agent;
mod build;
mod digest;
mod home;
mod interrogate;
mod meta;
mod offers;
mod publish;
mod settings;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub use agent::{AgentSettings, ModelHint};
pub use build::{Before, CallPlan, build, build_over};
pub use home::{Home, ModelSetting, Pack};
pub use interrogate::OfferedRow;
pub use meta::MetaTool;
pub use offers::{Found, Offers, Prompt, PromptSource, Resource, Source, Subject, described};
pub use publish::Publisher;
pub use settings::{Budgets, ServerSettings};
pub use watch::{HomeWatch, watch};

use crate::auth::Authenticator;
use crate::catalog::{Catalog, Hash, Tool, ToolContract};
use crate::cursor::Digest;
use crate::id::{Generation, ToolNo, UpstreamId};
use crate::jobs::Lane;
use crate::policy::{PolicySet, Shadow};
use crate::projection::Projection;
use crate::search::ToolIndex;
use crate::search::sentence::Sense;
use crate::upstream::UpstreamSet;
use crate::upstream::config::KindConfig;

/// One generation, immutable. One `Arc` of it serves one request.
#[derive(Debug)]
pub struct Snapshot {
    /// Its number; it only grows.
    pub generation: Generation,
    /// What page tokens are bound to: changes with anything that changes what a caller finds, not with a mere
    /// rebuild, and is the same on every node with the same home and upstreams.
    pub state: Digest,
    /// Every tool.
    pub catalog: Arc<Catalog>,
    /// Resources and prompts.
    pub offers: Arc<Offers>,
    /// Who may do what.
    pub policy: Arc<PolicySet>,
    /// The candidate beside it, and what it would decide otherwise.
    pub shadow: Option<Arc<Shadow>>,
    /// Ranked search over the catalog.
    pub index: Arc<ToolIndex>,
    /// Where the semantic signal is from: a sentence model, if one is configured and has read every tool.
    pub sense: Sense,
    /// What docent.toml says of the server.
    pub settings: Arc<ServerSettings>,
    /// Who may come.
    pub callers: Arc<Authenticator>,
    /// The adapters.
    pub upstreams: UpstreamSet,
    lanes: BTreeMap<UpstreamId, Arc<Lane>>,
    plans: Vec<CallPlan>,
    digests: Vec<Digest>,
    /// Hashes of the tools' contracts, made when first asked for and taken over while a tool stays the same.
    contracts: Vec<OnceLock<Hash>>,
    ranked: Digest,
    parts: BTreeMap<UpstreamId, Arc<build::Part>>,
}

impl Snapshot {
    /// The same with another semantic signal. What ranks otherwise has page tokens of its own.
    #[must_use]
    pub fn with_sense(mut self, sense: Sense) -> Self {
        if let Sense::Model(sentences) = &sense {
            let model = sentences.model().digest();
            self.state = *blake3::Hasher::new_keyed(&self.state).update(model).finalize().as_bytes();
        }
        self.sense = sense;
        self
    }

    /// How a tool's calls are made.
    pub fn plan(&self, tool: ToolNo) -> Option<&CallPlan> {
        self.plans.get(tool.index())
    }

    /// Whether the tool's results take the form of tools that have none of their own (seed 000). An MCP server's
    /// answers keep the form that it gave them.
    pub fn is_plain(&self, tool: &Tool, projection: Option<&Projection>) -> bool {
        let kind = || self.upstreams.config(tool.upstream.as_str()).map(|config| &config.kind);
        match projection {
            Some(projection) => projection.is_plain() && !matches!(kind(), Some(KindConfig::Mcp(_))),
            None => !matches!(kind(), None | Some(KindConfig::Mcp(_) | KindConfig::Catalog(_))),
        }
    }

    /// Whether this generation was built with what the upstream brings. An upstream may have answered just now,
    /// and its tools come with the next generation.
    pub fn lists(&self, upstream: &UpstreamId) -> bool {
        self.parts.contains_key(upstream)
    }

    /// The slots of an upstream: a call holds one while it is under way.
    pub fn lane(&self, upstream: &UpstreamId) -> Option<&Arc<Lane>> {
        self.lanes.get(upstream)
    }

    /// The digest of a tool's definition as callers are shown it.
    pub fn digest(&self, tool: ToolNo) -> Option<&Digest> {
        self.digests.get(tool.index())
    }

    /// The hash of what callers' code may rely on of a tool; nothing for a number that is no tool's.
    pub fn contract_hash(&self, tool: ToolNo) -> Option<Hash> {
        let definition = self.catalog.get(tool)?;
        Some(*self.contracts.get(tool.index())?.get_or_init(|| ToolContract::of(definition).hash()))
    }
}
