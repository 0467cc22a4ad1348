//! A caller's surface: what its code may rely on, as data with one hash (seed 002, "Reading your own surface").
//!
//! The same hash decides whether a `list_changed` is due, so that both always agree. Approvals that pass and
//! upstreams that are down are no part of it.

use std::sync::Arc;

use serde::Serialize;

use crate::catalog::{Deprecation, Hash, Tool, ToolContract, surface_hash};
use crate::policy::DiscoveryMode;

use super::view::View;
use super::{Gateway, RequestContext, Surface, ToolEntry};

/// The shape of the manifest: raised when a member is added, taken away, or means something else.
const MANIFEST_VERSION: u32 = 1;

/// One caller's surface without schemas: those are in the list already.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Whether a reader can still take it apart.
    pub manifest_version: u32,
    /// docent's version; not part of the hash.
    pub app_version: &'static str,
    /// The tier of the caller.
    pub tier: Option<Arc<str>>,
    /// Over all contracts of the tools below (see [`surface_hash`]).
    pub hash: Hash,
    /// By id.
    pub tools: Vec<ManifestTool>,
}

/// One tool of a surface.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestTool {
    /// The id; of docent's own tools their name.
    pub id: Arc<str>,
    /// The tier that it needs.
    pub tier: Option<Arc<str>>,
    /// Reads only.
    pub read_only_hint: bool,
    /// Doing it twice is doing it once.
    pub idempotent_hint: bool,
    /// Why it is on its way out, and what to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecation>,
}

impl ManifestTool {
    fn of(tool: &Tool) -> Self {
        Self {
            id: Arc::from(tool.id.as_str()),
            tier: tool.tier.clone(),
            read_only_hint: tool.annotations.is_read_only(),
            idempotent_hint: tool.annotations.is_read_only() || tool.annotations.idempotent == Some(true),
            deprecated: tool.deprecated.clone(),
        }
    }

    fn own(tool: &ToolEntry) -> Self {
        Self {
            id: Arc::clone(&tool.name),
            tier: None,
            read_only_hint: tool.annotations.is_read_only(),
            idempotent_hint: tool.annotations.is_read_only() || tool.annotations.idempotent == Some(true),
            deprecated: None,
        }
    }
}

fn own_contract(tool: &ToolEntry) -> ToolContract {
    ToolContract::plain(&tool.name, &tool.annotations, (&tool.input_schema, tool.output_schema.as_ref()))
}

impl Gateway {
    /// What a `list_changed` depends on: the surface hash and the discovery mode.
    pub fn surface(&self, ctx: &RequestContext) -> Surface {
        let view = View::of(self, ctx);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&view.surface_hash().0);
        hasher.update(&[u8::from(view.mode == DiscoveryMode::Full)]);
        Surface(*hasher.finalize().as_bytes())
    }

    /// The surface of this caller.
    pub fn manifest(&self, ctx: &RequestContext) -> Manifest {
        View::of(self, ctx).manifest()
    }

    /// The rows that the hash of [`Gateway::manifest`] is made of, by id: for comparing two surfaces.
    pub fn contracts(&self, ctx: &RequestContext) -> Vec<ToolContract> {
        let view = View::of(self, ctx);
        let mut rows: Vec<ToolContract> = view.tools().map(|(_, tool)| ToolContract::of(tool)).collect();
        rows.extend(view.shelf.meta.iter().map(|tool| own_contract(tool)));
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        rows
    }
}

impl View {
    fn tools(&self) -> impl Iterator<Item = (crate::id::ToolNo, &Tool)> {
        self.roster.visible.iter().filter_map(|no| Some((no, self.catalog().get(no)?)))
    }

    pub(super) fn surface_hash(&self) -> Hash {
        self.shelf.hash(self.tier.as_ref(), || {
            let own = self.shelf.meta.iter().map(|tool| (&*tool.name, own_contract(tool).hash()));
            let mut rows: Vec<(&str, Hash)> = own.collect();
            let row = |(no, tool)| -> Option<(&str, Hash)> {
                let tool: &Tool = tool;
                Some((tool.id.as_str(), self.snapshot.contract_hash(no)?))
            };
            rows.extend(self.tools().filter_map(row));
            rows.sort_unstable_by_key(|(id, _)| *id);
            surface_hash(self.tier.as_deref(), rows.into_iter().map(|(_, hash)| hash))
        })
    }

    pub(super) fn manifest(&self) -> Manifest {
        let mut tools: Vec<ManifestTool> = self.tools().map(|(_, tool)| ManifestTool::of(tool)).collect();
        tools.extend(self.shelf.meta.iter().map(|tool| ManifestTool::own(tool)));
        tools.sort_by(|a, b| a.id.cmp(&b.id));
        Manifest {
            manifest_version: MANIFEST_VERSION,
            app_version: Gateway::VERSION,
            tier: self.tier.clone(),
            hash: self.surface_hash(),
            tools,
        }
    }
}
