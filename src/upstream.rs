//! Adapters to what runs the tools: HTTP and OpenAPI services, MCP servers, local commands, catalogs.
//!
//! An adapter owns its sockets and processes and bounds what it reads. It knows neither callers nor
//! policies: it is handed a [`Permit`](crate::policy::Permit) as proof that the call was decided.

mod api;

pub use api::{
    Discovered, Discovery, ErrorSource, Invocation, ProgressSink, Retry, Upstream, UpstreamError,
    UpstreamState, UpstreamStatus,
};
