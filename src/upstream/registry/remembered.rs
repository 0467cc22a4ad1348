//! Discoveries of MCP servers on disk, so that a restart shows the tools, resources and prompts of an upstream that is
//! not there yet.
//!
//! A file is a cache: one that is missing, too large, of another version or of another configuration is
//! passed over.

mod offers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use offers::KeptOffers;

use crate::catalog::{Tool, ToolAnnotations};
use crate::id::ToolId;
use crate::json;
use crate::limits;
use crate::schema::SchemaText;
use crate::upstream::bare::discovered;
use crate::upstream::config::KindConfig;
use crate::upstream::{Discovery, UpstreamConfig};

/// Of the shape below; another version is not read.
const VERSION: u32 = 1;

/// The folder of remembered discoveries.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    /// Of the configuration that it was found with.
    digest: String,
    tools: Vec<Kept>,
    /// Absent in files of an earlier version.
    #[serde(default)]
    offers: KeptOffers,
}

/// The title and the four hints of MCP.
type Hints = (Option<String>, Option<bool>, Option<bool>, Option<bool>, Option<bool>);

#[derive(Serialize, Deserialize)]
struct Kept {
    id: ToolId,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    description: String,
    schema: Box<RawValue>,
    hints: Hints,
}

impl Store {
    pub(super) fn new(data: &Path) -> Self {
        Self { dir: data.join("upstreams") }
    }

    /// What an MCP server brought in an earlier run under the same configuration. It counts as incomplete.
    pub(super) fn recall(&self, config: &UpstreamConfig) -> Option<Discovery> {
        if !matches!(config.kind, KindConfig::Mcp(_)) {
            return None;
        }
        let bytes = json::read_capped(&self.path(config), limits::DISCOVERY_BYTES_MAX).ok()?;
        let file: File = json::parse_as(&bytes, limits::DISCOVERY_BYTES_MAX).ok()?;
        if file.version != VERSION || file.digest != config.digest().to_hex().as_str() {
            return None;
        }
        let tool = |kept: Kept| {
            let schema = SchemaText::of_raw(&kept.schema);
            let mut tool = Tool::new(kept.id, config.id.clone(), kept.name, schema);
            tool.title = kept.title.map(Arc::from);
            tool.description = Arc::from(kept.description);
            let (title, read_only, destructive, idempotent, open_world) = kept.hints;
            let title = title.map(Arc::from);
            tool.annotations = ToolAnnotations { title, read_only, destructive, idempotent, open_world };
            let own = config.own(&tool.id, &tool.name);
            discovered(config, tool, own)
        };
        let tools = file.tools.into_iter().map(tool).collect();
        let offered = file.offers.recall(config.id.as_str());
        Some(Discovery { tools, complete: false, offered, ..Discovery::default() })
    }

    /// Writes what an MCP server brought, whole or not at all. A failure costs only the next start.
    pub(super) fn remember(&self, config: &UpstreamConfig, discovery: &Discovery) {
        if !matches!(config.kind, KindConfig::Mcp(_)) {
            return;
        }
        if let Err(e) = self.write(config, discovery) {
            tracing::warn!(upstream.id = %config.id, error = %e, "its tools could not be remembered");
        }
    }

    fn write(&self, config: &UpstreamConfig, discovery: &Discovery) -> std::io::Result<()> {
        let tools = discovery.tools.iter().filter_map(|d| {
            let (t, text) = (&d.tool, |t: &Arc<str>| t.as_ref().to_owned());
            let hints = &t.annotations;
            Some(Kept {
                id: t.id.clone(),
                name: text(&t.name),
                title: t.title.as_ref().map(text),
                description: text(&t.description),
                schema: t.input_schema.raw()?.to_owned(),
                hints: (
                    hints.title.as_ref().map(text),
                    hints.read_only,
                    hints.destructive,
                    hints.idempotent,
                    hints.open_world,
                ),
            })
        });
        let digest = config.digest().to_hex().as_str().to_owned();
        let offers = KeptOffers::of(&discovery.offered);
        let bytes = json::to_bytes(&File { version: VERSION, digest, tools: tools.collect(), offers });
        std::fs::create_dir_all(&self.dir)?;
        let path = self.path(config);
        let draft = path.with_extension("json.new");
        std::fs::write(&draft, bytes)?;
        std::fs::rename(&draft, &path)
    }

    fn path(&self, config: &UpstreamConfig) -> PathBuf {
        self.dir.join(format!("{}.json", config.id))
    }
}

/// Whether two discoveries bring the same tools, as callers and policies see them.
pub(super) fn same(a: &Discovery, b: &Discovery) -> bool {
    let tool = |a: &Tool, b: &Tool| {
        a.id == b.id
            && a.description == b.description
            && a.input_schema == b.input_schema
            && a.title == b.title
            && a.annotations == b.annotations
            && a.availability == b.availability
    };
    a.offered == b.offered
        && a.tools.len() == b.tools.len()
        && a.tools.iter().zip(&b.tools).all(|(a, b)| tool(&a.tool, &b.tool))
}
