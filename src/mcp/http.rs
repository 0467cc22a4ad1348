//! The wire over HTTP, without an HTTP library: which era a request belongs to, and what it is answered.
//!
//! Origin, Host, body size and credentials were looked at before, by `transport`.

mod call;
mod session;
mod stateless;

use std::sync::Arc;

use bytes::Bytes;

use super::client::Declared;
use super::core::{Answer, Exchange, Mcp, challenge_error};
use super::encode::error_response;
use super::envelope::{Fault, Incoming, Message, Params, RequestId, decode};
use super::error::RpcError;
use super::headers::{Headers, PROTOCOL_VERSION, SESSION_ID};
use super::revision::Revision;
use super::streams::Messages;
use crate::gateway::RequestContext;
use crate::media;
use crate::policy::{DiscoveryMode, Principal, ScopeChallenge};

/// A request as `transport` found it.
#[derive(Clone, Copy)]
pub struct HttpRequest<'a> {
    /// Its headers.
    pub headers: &'a dyn Headers,
    /// Who sent it.
    pub principal: &'a Arc<Principal>,
    /// `?discovery=`.
    pub discovery: Option<DiscoveryMode>,
}

impl std::fmt::Debug for HttpRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest").field("subject", &self.principal.subject).finish_non_exhaustive()
    }
}

/// What is to be sent back.
pub enum HttpReply {
    /// A status without a body: 202, 204, 405.
    Empty(u16),
    /// One JSON body.
    Json {
        /// The status.
        status: u16,
        /// The body.
        body: Bytes,
        /// `Mcp-Session-Id`, when a session was opened.
        session: Option<String>,
        /// What `WWW-Authenticate` has to ask for, on a 403.
        challenge: Option<ScopeChallenge>,
    },
    /// An event stream of JSON-RPC messages.
    Events(Messages),
}

impl std::fmt::Debug for HttpReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty(status) => f.debug_tuple("Empty").field(status).finish(),
            Self::Json { status, body, .. } => f.debug_tuple("Json").field(status).field(body).finish(),
            Self::Events(_) => f.write_str("Events"),
        }
    }
}

impl HttpReply {
    fn json(status: u16, body: Bytes) -> Self {
        Self::Json { status, body, session: None, challenge: None }
    }

    /// An error as a reply, with the status of its wire.
    fn error(revision: Revision, id: Option<&RequestId>, error: &RpcError) -> Self {
        let status = if revision.is_stateless() { error.stateless_status() } else { error.session_status() };
        Self::json(status, error_response(id, error))
    }

    /// What a request came to, as a reply.
    fn answer(revision: Revision, id: &RequestId, answer: Answer) -> Self {
        match answer {
            Answer::Done(body) => Self::json(200, body),
            Answer::Failed(error) => Self::error(revision, Some(id), &error),
            Answer::Cancelled => Self::Empty(202),
            Answer::Challenge(challenge) => {
                let error = challenge_error(&challenge);
                let body = error_response(Some(id), &error);
                Self::Json { status: 403, body, session: None, challenge: Some(challenge) }
            }
        }
    }

    /// A session that does not exist (any more) for this caller: the client has to start anew.
    fn no_session(id: Option<&RequestId>) -> Self {
        let error = RpcError::invalid_request("there is no such session (any more): send `initialize` again");
        Self::json(404, error_response(id, &error))
    }
}

/// An error reply without an id, for `transport`: what is wrong was found before the body was read.
pub fn refusal(status: u16, message: impl Into<std::borrow::Cow<'static, str>>) -> HttpReply {
    HttpReply::json(status, error_response(None, &RpcError::invalid_request(message)))
}

/// What a request without session and without the stateless wire's `_meta` is told.
fn neither(id: Option<&RequestId>) -> HttpReply {
    let why = "neither wire: send `initialize` and then `Mcp-Session-Id`, or send \
               `params._meta` with `io.modelcontextprotocol/protocolVersion`";
    HttpReply::json(400, error_response(id, &RpcError::invalid_request(why)))
}

impl HttpRequest<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.find(name).value()
    }

    /// Whether `Accept` takes a media type; a request without the header takes everything.
    fn accepts(&self, media_type: &str) -> bool {
        let family = media_type.split('/').next().unwrap_or_default();
        let lines = self.headers.list("accept");
        let mut ranges = lines
            .iter()
            .flat_map(|line| line.split(','))
            .map(|r| r.split(';').next().unwrap_or_default().trim());
        lines.is_empty()
            || ranges.any(|range| {
                range.eq_ignore_ascii_case(media_type)
                    || range == "*/*"
                    || range.strip_suffix("/*").is_some_and(|f| f.eq_ignore_ascii_case(family))
            })
    }

    /// Whether `Accept` names event streams, not merely anything.
    fn asks_for_events(&self) -> bool {
        let lines = self.headers.list("accept");
        lines.iter().flat_map(|line| line.split(',')).any(|range| media::is(range, "text/event-stream"))
    }

    fn names_stateless_version(&self) -> bool {
        self.header(PROTOCOL_VERSION).is_some_and(Revision::text_is_stateless)
    }
}

impl Mcp {
    /// A context for a request of a principal whose client facts are already set.
    fn exchange(&self, revision: Revision, principal: Arc<Principal>, request: &HttpRequest<'_>) -> Exchange {
        let mut ctx = RequestContext::new(principal, self.correlation_id());
        ctx.discovery = request.discovery;
        Exchange { revision, ctx, subscriptions: None, underway: None, asker: None }
    }

    /// `POST /mcp`.
    pub async fn post(self: &Arc<Self>, request: HttpRequest<'_>, body: &[u8]) -> HttpReply {
        if !request.accepts("application/json") && !request.accepts("text/event-stream") {
            return refusal(406, "`Accept` must take `application/json` and `text/event-stream`");
        }
        match decode(body, body.len()) {
            Err(Fault { id, error }) => HttpReply::json(400, error_response(id.as_ref(), &error)),
            Ok(Incoming::Batch(items)) => self.post_batch(request, items).await,
            Ok(Incoming::One(Message::Request { id, method, params })) => {
                self.post_request(request, id, &method, params).await
            }
            Ok(Incoming::One(Message::Notification { method, params })) => {
                if Declared::of(&params).is_stateless() || request.names_stateless_version() {
                    // The stateless wire has no notifications from clients over HTTP that mean anything.
                    HttpReply::Empty(202)
                } else {
                    self.session_notification(request, &method, &params)
                }
            }
            Ok(Incoming::One(Message::Response { id, result })) => match request.header(SESSION_ID) {
                None => neither(None),
                Some(session) => match self.sessions.find(session, &request.principal.subject) {
                    Some(session) => {
                        session.questions.answered(&id, result.as_deref());
                        HttpReply::Empty(202)
                    }
                    None => HttpReply::no_session(None),
                },
            },
        }
    }

    /// One request: the first row that matches decides its era (MCP 2026-07-28, versioning).
    async fn post_request(
        self: &Arc<Self>,
        request: HttpRequest<'_>,
        id: RequestId,
        method: &str,
        params: Params,
    ) -> HttpReply {
        if method == "initialize" && params.text_member("protocolVersion").is_some() {
            return self.open_session(request, &id, &params);
        }
        let declared = Declared::of(&params);
        if declared.is_stateless() || request.names_stateless_version() || method == "server/discover" {
            return self.stateless_request(request, id, method, params, &declared).await;
        }
        match request.header(SESSION_ID) {
            Some(session) => match self.sessions.find(session, &request.principal.subject) {
                Some(session) => self.session_request(request, session, id, method, params).await,
                None => HttpReply::no_session(Some(&id)),
            },
            None => neither(Some(&id)),
        }
    }
}
