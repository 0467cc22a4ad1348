//! The use cases, without any wire: list, search, describe, call.
//!
//! Every entry point takes a [`RequestContext`] first, takes one snapshot, and asks policy before anything
//! else. It knows neither JSON-RPC nor HTTP nor files; `mcp` turns its answers into wire shapes.

mod agents;
mod api;
mod arguments;
mod artifacts;
mod ask;
mod call;
mod confirm;
mod failure;
mod file_arguments;
mod files;
mod instructions;
mod interrogate;
mod invoke;
mod jobs;
mod list;
mod meta;
mod offers;
mod owned;
mod record;
mod redact;
mod references;
mod results;
mod savings;
mod script;
mod server;
mod state;
mod surface;
mod tape;
mod usage;
mod view;
mod work;

pub use agents::{AgentAnswer, AgentCard, AgentDetails, AgentOverview, AgentPage, PublishError};
pub use api::{CallAnswer, ListError, Negotiated, Readiness, RequestContext, Surface, ToolEntry, ToolPage};
pub use ask::{ClientQuestion, ClientReply};
pub use confirm::{GrantView, PendingView, SettleError, Verdict};
pub use failure::{cannot_ask, challenge_error, needs_task};
pub use files::{FileEntry, file_failure};
pub use interrogate::NoExplanation;
pub use jobs::{JOBS_LISTED_MAX, JobAnswer, JobReport};
pub use offers::{
    Completed, Completing, Completion, ContentBody, OfferAnswer, PromptMessage, PromptPage, PromptText,
    ResourceContent, ResourcePage, Watched,
};
pub use savings::Saved;
pub use server::{Gateway, Services};
pub use surface::{Manifest, ManifestTool};
pub use tape::{Tape, Taped};

#[cfg(test)]
mod tests;
