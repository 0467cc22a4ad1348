//! The wire's own state, and the way from one request to its answer. It knows JSON-RPC and the revisions;
//! whether bytes come over HTTP or stdio is for `http.rs` and `stdio.rs`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::ask::Asker;
use super::counters::Counters;
use super::encode::{ResultWriter, ServerInfo, error_response};
use super::entries::Entries;
use super::envelope::{Params, RequestId};
use super::error::RpcError;
use super::methods::Method;
use super::revision::Revision;
use super::service::Service;
use super::session::{Sessions, Underway};
use super::streams::StreamCounts;
use super::subscriptions::Subscriptions;
use crate::clock::Clock;
use crate::gateway::RequestContext;
use crate::id::Scope;
use crate::policy::ScopeChallenge;

/// The MCP server: both eras over any transport. Shared by every connection.
pub struct Mcp {
    pub(super) service: Arc<dyn Service>,
    pub(super) sessions: Sessions,
    pub(super) entries: Entries,
    pub(super) counters: Counters,
    pub(super) streams: StreamCounts,
    pub(super) drain: CancellationToken,
    correlation: Correlation,
}

impl fmt::Debug for Mcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mcp").field("sessions", &self.sessions.count()).finish_non_exhaustive()
    }
}

/// One request on its way: who asks, and in which revision.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    /// The revision that its answer has to fit.
    pub(super) revision: Revision,
    /// The rest, as the use cases see it.
    pub(super) ctx: RequestContext,
    /// What the client watches, where it has a session.
    pub(super) subscriptions: Option<Arc<Subscriptions>>,
    /// Keeps a request of a session known for as long as it runs, whoever still waits for it.
    pub(super) underway: Option<Arc<Underway>>,
    /// The way to the person in front of the client, where the session or the pipe has one.
    pub(super) asker: Option<Asker>,
}

/// What a request comes to.
#[derive(Debug)]
pub(super) enum Answer {
    /// A whole JSON-RPC response with a result.
    Done(Bytes),
    /// A JSON-RPC error.
    Failed(RpcError),
    /// More scopes are needed: 403 on HTTP.
    Challenge(ScopeChallenge),
    /// The caller gave up: nothing is to be sent.
    Cancelled,
}

impl Answer {
    /// The answer as one message, where there is no HTTP status to go with it. Nothing for a cancelled
    /// request: nothing more may be sent for its id.
    pub(super) fn message(self, id: &RequestId) -> Option<Bytes> {
        match self {
            Self::Done(body) => Some(body),
            Self::Failed(error) => Some(error_response(Some(id), &error)),
            Self::Challenge(challenge) => Some(error_response(Some(id), &challenge_error(&challenge))),
            Self::Cancelled => None,
        }
    }
}

/// Correlation ids: unique over restarts, in order within one.
#[derive(Debug)]
struct Correlation {
    /// Eight hexadecimal digits and a dash.
    prefix: String,
    next: AtomicU64,
}

impl Mcp {
    /// A server over the use cases.
    pub fn new(service: Arc<dyn Service>, clock: Clock) -> Arc<Self> {
        let prefix = format!("{:08x}-", getrandom::u32().unwrap_or_default());
        Arc::new(Self {
            service,
            sessions: Sessions::new(clock),
            entries: Entries::default(),
            counters: Counters::default(),
            streams: StreamCounts::default(),
            drain: CancellationToken::new(),
            correlation: Correlation { prefix, next: AtomicU64::new(1) },
        })
    }

    /// Ends all event streams in order; running calls go on until the transport's deadline.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Forgets sessions that were idle for too long. To be called now and then; a session is never used past
    /// its time even if this is late.
    pub fn sweep(&self) {
        self.sessions.sweep();
    }

    /// What was counted, for `/metrics`.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sessions open now.
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// Event streams open now.
    pub fn stream_count(&self) -> usize {
        self.streams.total()
    }

    /// The use cases behind.
    pub fn service(&self) -> &dyn Service {
        &*self.service
    }

    /// A new correlation id.
    pub fn correlation_id(&self) -> Arc<str> {
        let n = self.correlation.next.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(32);
        id.push_str(&self.correlation.prefix);
        id.push_str(&n.to_string());
        Arc::from(id)
    }

    /// `serverInfo`.
    pub(super) fn server_info(&self) -> ServerInfo {
        ServerInfo { name: self.service.name(), version: env!("CARGO_PKG_VERSION") }
    }

    /// Answers a request that needs neither a session opened nor a stream.
    pub(super) async fn answer(
        self: &Arc<Self>,
        exchange: Exchange,
        id: &RequestId,
        method: &str,
        params: Params,
    ) -> Answer {
        let revision = exchange.revision;
        let done = match Method::find(method, revision) {
            None => Err(RpcError::method_not_found(method, revision)),
            Some(Method::Initialize) => Err(RpcError::invalid_request(
                "`initialize` opens a session: it needs `params.protocolVersion` and stands alone",
            )),
            Some(Method::Listen) => Err(RpcError::invalid_request("`subscriptions/listen` stands alone")),
            Some(Method::Ping) => Ok(ResultWriter::new(id, 0).finish(revision, None, &self.server_info())),
            Some(Method::Discover) => Ok(self.discover(&exchange, id)),
            Some(Method::ListTools) => self.list_tools(&exchange, id, &params),
            Some(Method::CallTool) => return self.call_tool(exchange, id, &params).await,
            Some(Method::ListAgents) => self.list_agents(&exchange, id, &params),
            Some(Method::GetAgent) => return self.get_agent(&exchange, id, &params),
            Some(Method::TaskResult) => return self.task_result(exchange, id, &params).await,
            Some(Method::GetTask) => return self.get_task(&exchange, id, &params).await,
            Some(Method::UpdateTask) => return self.update_task(&exchange, id, &params).await,
            Some(Method::CancelTask) => return self.cancel_task(&exchange, id, &params).await,
            Some(
                method @ (Method::ListResources
                | Method::ListTemplates
                | Method::ReadResource
                | Method::Subscribe
                | Method::Unsubscribe
                | Method::ListPrompts
                | Method::GetPrompt
                | Method::Complete),
            ) => return self.offer(&exchange, id, method, &params).await,
        };
        done.map_or_else(Answer::Failed, Answer::Done)
    }
}

/// A challenge as a JSON-RPC error: the body of the 403, and all of it on stdio.
pub(super) fn challenge_error(challenge: &ScopeChallenge) -> RpcError {
    let scopes: Vec<&str> = challenge.scopes.iter().map(Scope::as_str).collect();
    let message =
        format!("this needs the scopes `{}`: get a token with them and repeat it", scopes.join(" "));
    RpcError::new(super::error::INSUFFICIENT_SCOPE, message).data(json!({
        "error": "insufficient_scope",
        "scope": scopes.join(" "),
        "required_scopes": scopes,
    }))
}
