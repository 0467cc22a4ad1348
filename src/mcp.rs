//! The MCP wire: JSON-RPC, both eras. The only module that knows it.
//!
//! `Mcp` takes messages from a transport and answers them from the use cases behind [`Service`]. It knows
//! neither sockets nor HTTP libraries; what a tool is and who may use it is for the gateway.

mod agents;
mod ask;
mod client;
mod core;
mod counters;
mod discover;
mod encode;
mod entries;
mod envelope;
mod error;
mod extensions;
mod headers;
mod http;
mod listen;
mod methods;
mod offers;
mod outlive;
mod params;
mod progress;
mod revision;
mod service;
mod session;
mod stdio;
mod streams;
mod subscriptions;
mod tasks;
mod tools;
mod topics;

pub use core::Mcp;
pub use counters::{Counters, Outcome};
pub use encode::call_tool_result;
pub use encode::single_line;
pub use headers::{Header, Headers};
pub use http::{HttpReply, HttpRequest, refusal};
pub use params::{HeaderParam, header_params};
pub use revision::Revision;
pub use service::{CallFuture, JobFuture, JobsFuture, Service};
pub use stdio::StdioPeer;
pub use streams::Messages;
