//! The gateway itself: the handles that the use cases share.

use std::sync::Arc;

use tokio::sync::watch;

use crate::call::{ErrorCode, ToolCall, ToolError, ToolOutcome};
use crate::clock::Clock;
use crate::id::Generation;
use crate::policy::{DiscoveryMode, ScopeChallenge};
use crate::snapshot::{Publisher, Snapshot};

use super::{CallAnswer, ListError, Readiness, RequestContext, Surface, ToolPage};

/// All use cases over the current snapshot. Shared by every connection.
#[derive(Debug)]
pub struct Gateway {
    publisher: Arc<Publisher>,
    clock: Clock,
}

impl Gateway {
    /// A gateway over a publisher's snapshots.
    pub fn new(publisher: Arc<Publisher>, clock: Clock) -> Self {
        Self { publisher, clock }
    }

    /// The snapshot that serves now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.publisher.current()
    }

    /// The clock of the gateway.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The server's name.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.snapshot().settings.name)
    }

    /// The instructions for this caller, at most `budgets.instructions_bytes`.
    pub fn instructions(&self, _ctx: &RequestContext) -> String {
        self.snapshot().settings.instructions.as_deref().unwrap_or_default().to_owned()
    }

    /// The discovery mode of this request: connection, caller, agent, server; `Auto` already decided.
    pub fn mode(&self, ctx: &RequestContext) -> DiscoveryMode {
        ctx.discovery.or(ctx.principal.discovery).unwrap_or(self.snapshot().settings.discovery)
    }

    /// One page of the tools this caller is shown.
    pub fn list_tools(&self, _ctx: &RequestContext, cursor: Option<&str>) -> Result<ToolPage, ListError> {
        match cursor {
            None => Ok(ToolPage::default()),
            Some(_) => Err(ListError::BadCursor),
        }
    }

    /// One call: a catalog tool or a meta-tool, by id or wire name.
    #[expect(clippy::unused_async, reason = "the upstream is invoked here as soon as one can be")]
    pub async fn call_tool(&self, _ctx: &RequestContext, _call: ToolCall) -> CallAnswer {
        CallAnswer::UnknownTool
    }

    /// The digest of what this caller is shown now.
    pub fn surface(&self, _ctx: &RequestContext) -> Surface {
        Surface([0; 32])
    }

    /// Tells when surfaces may have changed: debounced, at most once a second. Compare [`Gateway::surface`]
    /// per caller before a `list_changed`.
    pub fn changes(&self) -> watch::Receiver<Generation> {
        self.publisher.subscribe()
    }

    /// Whether the server does its work.
    pub fn readiness(&self) -> Readiness {
        let failure = self.publisher.failure();
        let reasons: Vec<String> = failure
            .iter()
            .map(|_| "the home has mistakes; the last good generation serves".to_owned())
            .collect();
        Readiness {
            ready: reasons.is_empty(),
            generation: self.snapshot().generation,
            reasons,
            diagnostics: failure.map(|d| d.0.clone()).unwrap_or_default(),
            upstreams: Vec::new(),
        }
    }
}

/// A challenge as a tool error, for clients and wires that cannot act on a 403.
pub fn challenge_error(challenge: &ScopeChallenge) -> ToolError {
    let scopes: Vec<&str> = challenge.scopes.iter().map(crate::id::Scope::as_str).collect();
    ToolError::new(
        ErrorCode::Forbidden,
        format!("This call needs the scopes {}: sign in again with them, then repeat it.", scopes.join(", ")),
    )
    .details(serde_json::json!({ "required_scopes": scopes }))
}

impl From<ToolError> for CallAnswer {
    fn from(error: ToolError) -> Self {
        Self::Outcome(ToolOutcome::Failed(error))
    }
}
