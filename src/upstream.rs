//! Adapters to what runs the tools: HTTP and OpenAPI services, MCP servers, local commands, catalogs.
//!
//! An adapter owns its sockets and processes and bounds what it reads. It knows neither callers nor
//! policies: it is handed a [`Permit`](crate::policy::Permit) as proof that the call was decided.

mod api;
mod bare;
mod catalog;
mod command;
pub mod config;
mod fault;
mod http;
mod mcp;
mod offer;
pub mod openapi;
mod process;
mod registry;
mod text;

use std::sync::Arc;

use api::INCOMPLETE_LIST;
pub use api::{
    CallHints, Created, Discovered, Discovery, ErrorSource, Invocation, ProgressSink, Retry, Upstream,
    UpstreamError, UpstreamState, UpstreamStatus,
};
pub use config::{Pin, UpstreamConfig};
pub use offer::{OfferAsk, OfferCall, Offered, OfferedResource};
pub use registry::{Registry, UpstreamSet};

use crate::clock::Clock;
use config::KindConfig;

/// Reads a public document of at most `max` bytes: no credentials, no redirects. The error tells why in words;
/// the caller bounds the time.
pub async fn document(url: url::Url, max: usize) -> Result<bytes::Bytes, String> {
    http::read_document(url, max).await
}

/// The adapter for a configuration. Nothing is opened or started before it is used.
pub fn connect(config: &UpstreamConfig, clock: Clock) -> Arc<dyn Upstream> {
    match &config.kind {
        KindConfig::Http(target) => Arc::new(http::HttpUpstream::by_hand(config, target, clock)),
        KindConfig::Catalog(source) => Arc::new(catalog::CatalogUpstream::new(config, source)),
        KindConfig::Command(defaults) => Arc::new(command::Commands::new(config, defaults)),
        KindConfig::Mcp(source) => Arc::new(mcp::McpUpstream::new(config, source, clock)),
        KindConfig::Script => Arc::new(bare::Definitions::new(config)),
        KindConfig::OpenApi(source) => Arc::new(http::HttpUpstream::document(config, source, clock)),
    }
}
