//! What upstreams offer besides tools, as far as they are MCP servers: found with the tools, asked for through
//! the same port, with the same proof that policy allowed it.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::catalog::{PromptEntry, ResourceEntry, UriTemplate};
use crate::json::Object;
use crate::policy::Permit;

/// A resource of an upstream, or a template of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedResource {
    /// As docent's callers are shown it: the address is docent's.
    pub entry: ResourceEntry,
    /// The upstream's own address.
    pub origin: Arc<str>,
    /// The template, where it is one (of docent's address).
    pub template: Option<UriTemplate>,
}

/// Everything that an upstream offers besides tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offered {
    /// Whether it serves resources at all: then addresses that it did not list may be read too.
    pub reads: bool,
    /// Resources and templates, in the upstream's order.
    pub resources: Vec<OfferedResource>,
    /// Prompts by the names that the upstream gives them.
    pub prompts: Vec<PromptEntry>,
}

/// What is asked of an upstream besides calls of tools. The answer is the result of the MCP method, raw.
#[derive(Debug, Clone, Copy)]
pub enum OfferAsk<'a> {
    /// `resources/read`, by the upstream's own address.
    Read(&'a str),
    /// `prompts/get`.
    Prompt(&'a str, &'a Object),
    /// `completion/complete` with these parameters, its reference in the upstream's own words.
    Complete(&'a Value),
}

/// One decided request on its way.
#[derive(Debug, Clone)]
pub struct OfferCall<'a> {
    /// The proof that policy allowed it.
    pub permit: &'a Permit,
    /// What is asked.
    pub ask: OfferAsk<'a>,
    /// When to give up.
    pub deadline: Instant,
    /// Fires when the caller gives up.
    pub cancel: CancellationToken,
}
