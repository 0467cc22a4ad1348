//! Requests of the session wire: `initialize` opens a session, `DELETE` ends it, `GET` listens.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;

use super::{HttpReply, HttpRequest, neither, refusal};
use crate::mcp::client::{Declared, Initialize, with_client};
use crate::mcp::core::{Exchange, Mcp};
use crate::mcp::encode::{array, error_response};
use crate::mcp::envelope::{Fault, Message, Params, RequestId};
use crate::mcp::error::RpcError;
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::methods::Method;
use crate::mcp::revision::Revision;
use crate::mcp::session::{Session, Underway};
use crate::mcp::topics::{Seen, Topic};

impl Mcp {
    /// `initialize`.
    pub(super) fn open_session(
        &self,
        request: HttpRequest<'_>,
        id: &RequestId,
        params: &Params,
    ) -> HttpReply {
        let hello: Initialize = match params.read() {
            Ok(hello) => hello,
            Err(error) => return HttpReply::error(Revision::NEWEST_SESSION, Some(id), &error),
        };
        let revision = Revision::negotiate(hello.version.as_deref().unwrap_or_default());
        let principal = with_client(Arc::clone(request.principal), hello.facts());
        let mut exchange = self.exchange(revision, principal, &request);
        exchange.ctx.negotiated = hello.negotiated(revision);
        let seen = Seen::now(Topic::told(exchange.ctx.negotiated), &*self.service, &exchange.ctx);
        let opened = self.sessions.open(
            &request.principal.subject,
            revision,
            (hello.facts(), exchange.ctx.negotiated),
            seen,
        );
        let Some(session) = opened else {
            let error =
                RpcError::invalid_request("the server holds as many sessions as it can: try again later");
            return HttpReply::json(503, error_response(Some(id), &error));
        };
        HttpReply::Json {
            status: 200,
            body: self.initialized(&exchange, id),
            session: Some(session.id.clone()),
            challenge: None,
        }
    }

    /// A request within a session.
    pub(super) async fn session_request(
        self: &Arc<Self>,
        request: HttpRequest<'_>,
        session: Arc<Session>,
        id: RequestId,
        method: &str,
        params: Params,
    ) -> HttpReply {
        if let Some(version) = request.header(PROTOCOL_VERSION)
            && Revision::parse(version).is_none()
        {
            let why = format!(
                "`MCP-Protocol-Version` must be `{}`, as settled on in `initialize`",
                session.revision
            );
            return HttpReply::json(400, error_response(Some(&id), &RpcError::invalid_request(why)));
        }
        let exchange = self.session_exchange(&request, &session);
        let revision = session.revision;
        let kind = Method::find(method, revision);
        match kind {
            Some(Method::ListTools) => session.listed(Topic::Tools),
            Some(Method::ListResources | Method::ListTemplates) => session.listed(Topic::Resources),
            Some(Method::ListPrompts) => session.listed(Topic::Prompts),
            Some(Method::ListAgents) => session.listed(Topic::Agents),
            _ => {}
        }
        if !kind.is_some_and(Method::is_slow) {
            let answer = self.answer(exchange, &id, method, params).await;
            return HttpReply::answer(revision, &id, answer);
        }
        let mut exchange = exchange;
        let Some(underway) = Underway::begin(&session, &id, &exchange.ctx.cancel) else {
            return HttpReply::json(400, error_response(Some(&id), &still_running()));
        };
        // It goes with the call, which is a task of its own: on this wire a connection that goes away cancels
        // nothing, and the call can still be cancelled by name.
        exchange.underway = Some(underway);
        let Some(asking @ (Method::CallTool | Method::TaskResult)) = kind else {
            let answer = self.answer(exchange, &id, method, params).await;
            return HttpReply::answer(revision, &id, answer);
        };
        let declared = Declared::of(&params);
        let streams = request.asks_for_events();
        let token = declared.progress_token().filter(|_| streams);
        // A client that takes no events cannot be asked anything.
        if !streams {
            exchange.ctx.negotiated = exchange.ctx.negotiated.without_asking();
        }
        let can_be_asked = exchange.ctx.negotiated.can_be_asked();
        let questions = can_be_asked.then(|| Arc::clone(&session.questions));
        self.post_call(exchange, id, (asking, params), (token, questions), None).await
    }

    /// The context of a request within a session: this request's principal, the session's client and extensions.
    fn session_exchange(&self, request: &HttpRequest<'_>, session: &Session) -> Exchange {
        let principal = with_client(Arc::clone(request.principal), session.client.clone());
        let mut exchange = self.exchange(session.revision, principal, request);
        exchange.ctx.negotiated = session.negotiated;
        exchange.subscriptions = Some(Arc::clone(&session.subscriptions));
        exchange
    }

    /// A notification within a session.
    pub(super) fn session_notification(
        &self,
        request: HttpRequest<'_>,
        method: &str,
        params: &Params,
    ) -> HttpReply {
        let Some(id) = request.header(SESSION_ID) else { return neither(None) };
        let Some(session) = self.sessions.find(id, &request.principal.subject) else {
            return HttpReply::no_session(None);
        };
        session.running.notified(method, params);
        HttpReply::Empty(202)
    }

    /// A batch, which only a 2025-03-26 session may send.
    pub(super) async fn post_batch(
        self: &Arc<Self>,
        request: HttpRequest<'_>,
        items: Vec<Result<Message, Fault>>,
    ) -> HttpReply {
        let session = match request.header(SESSION_ID) {
            None => None,
            Some(id) => match self.sessions.find(id, &request.principal.subject) {
                None => return HttpReply::no_session(None),
                found => found.filter(|s| s.revision.takes_batches()),
            },
        };
        let Some(session) = session else {
            return refusal(
                400,
                "a batch is taken only in a session of 2025-03-26: send one message at a time",
            );
        };
        let answers = join_all(items.into_iter().map(|item| self.batch_item(&request, &session, item))).await;
        let answers: Vec<Bytes> = answers.into_iter().flatten().collect();
        if answers.is_empty() {
            return HttpReply::Empty(202);
        }
        HttpReply::json(200, array(&answers))
    }

    async fn batch_item(
        self: &Arc<Self>,
        request: &HttpRequest<'_>,
        session: &Arc<Session>,
        item: Result<Message, Fault>,
    ) -> Option<Bytes> {
        match item {
            Err(fault) => Some(error_response(fault.id.as_ref(), &fault.error)),
            Ok(Message::Response { id, result }) => {
                session.questions.answered(&id, result.as_deref());
                None
            }
            Ok(Message::Notification { method, params }) => {
                session.running.notified(&method, &params);
                None
            }
            Ok(Message::Request { id, method, params }) => {
                let mut exchange = self.session_exchange(request, session);
                exchange.ctx.negotiated = exchange.ctx.negotiated.without_asking();
                let Some(underway) = Underway::begin(session, &id, &exchange.ctx.cancel) else {
                    return Some(error_response(Some(&id), &still_running()));
                };
                exchange.underway = Some(underway);
                self.answer(exchange, &id, &method, params).await.message(&id)
            }
        }
    }

    /// `GET /mcp`: the session's event stream.
    pub fn get(self: &Arc<Self>, request: HttpRequest<'_>) -> HttpReply {
        // Without a session this is a client of the stateless wire, which has no GET.
        let Some(id) = request.header(SESSION_ID) else { return HttpReply::Empty(405) };
        if !request.accepts("text/event-stream") {
            return refusal(406, "`Accept` must take `text/event-stream`");
        }
        let Some(session) = self.sessions.find(id, &request.principal.subject) else {
            return HttpReply::no_session(None);
        };
        let exchange = self.session_exchange(&request, &session);
        match self.session_stream(exchange, session) {
            Ok(messages) => HttpReply::Events(messages),
            Err(error) => HttpReply::json(429, error_response(None, &error)),
        }
    }

    /// `DELETE /mcp`: ends a session.
    pub fn delete(&self, request: HttpRequest<'_>) -> HttpReply {
        match request.header(SESSION_ID) {
            None => HttpReply::Empty(405),
            Some(id) if self.sessions.end(id, &request.principal.subject) => HttpReply::Empty(204),
            Some(_) => HttpReply::no_session(None),
        }
    }
}

fn still_running() -> RpcError {
    RpcError::invalid_request("a request with this id is still running in this session")
}
