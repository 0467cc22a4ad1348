//! The use cases, without any wire: list, search, describe, call.
//!
//! Every entry point takes a [`RequestContext`] first, takes one snapshot, and asks policy before anything
//! else. It knows neither JSON-RPC nor HTTP nor files; `mcp` turns its answers into wire shapes.

mod api;
mod core;

pub use api::{CallAnswer, ListError, Readiness, RequestContext, Surface, ToolEntry, ToolPage};
pub use core::{Gateway, challenge_error};
