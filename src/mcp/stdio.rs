//! The wire over a pipe: one message a line, both eras in one process, calls side by side.
//!
//! It takes lines and gives lines; reading and writing them is for `transport`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::ask::{self, Asker, Questions};
use super::client::{Declared, Initialize, with_client};
use super::core::{Answer, Exchange, Mcp};
use super::encode::{array, error_response, notification};
use super::envelope::{Fault, Incoming, Message, Params, RequestId, decode};
use super::error::RpcError;
use super::methods::Method;
use super::progress;
use super::revision::Revision;
use super::session::Running;
use super::subscriptions::{self, Subscriptions, UPDATED};
use super::topics::{Seen, Topic};
use crate::gateway::{Negotiated, RequestContext};
use crate::limits::STDIO_CALLS_MAX;
use crate::policy::{ClientFacts, DiscoveryMode, Principal};

/// The one client at the other end of a pipe.
#[derive(Debug)]
pub struct StdioPeer {
    mcp: Arc<Mcp>,
    principal: Arc<Principal>,
    discovery: Option<DiscoveryMode>,
    out: mpsc::Sender<Bytes>,
    /// What `initialize` settled on; requests without the stateless wire's `_meta` go by it.
    session: Mutex<Option<Settled>>,
    running: Running,
    /// Requests of the server's own that wait for the client.
    questions: Arc<Questions>,
    /// What the client watches on the session wire.
    subscriptions: Arc<Subscriptions>,
    /// Calls among them.
    calls: AtomicUsize,
    call_ended: Notify,
    /// Fires when the pipe ends: with it end all calls.
    closed: CancellationToken,
}

/// What an `initialize` settled on.
#[derive(Debug, Clone)]
struct Settled {
    revision: Revision,
    client: ClientFacts,
    negotiated: Negotiated,
}

impl StdioPeer {
    /// A peer that speaks for one caller and is answered through `out`.
    pub fn new(
        mcp: Arc<Mcp>,
        principal: Arc<Principal>,
        discovery: Option<DiscoveryMode>,
        out: mpsc::Sender<Bytes>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mcp,
            principal,
            discovery,
            out,
            session: Mutex::default(),
            running: Running::default(),
            questions: Arc::default(),
            subscriptions: Arc::default(),
            calls: AtomicUsize::new(0),
            call_ended: Notify::new(),
            closed: CancellationToken::new(),
        })
    }

    /// The pipe has ended: what still runs may end within `patience`, then it is cancelled.
    pub async fn finish(&self, patience: Duration) {
        // Subscriptions never end by themselves, so they do not count.
        let idle = async {
            while self.calls.load(Ordering::Acquire) > 0 {
                self.call_ended.notified().await;
            }
        };
        tokio::time::timeout(patience, idle).await.ok();
        self.closed.cancel();
    }

    /// A line that is longer than the limit: it was skipped unread.
    pub async fn oversized(&self, max: usize) {
        let error = RpcError::invalid_request(format!("a message has at most {max} bytes"));
        self.send(error_response(None, &error)).await;
    }

    /// Takes one line. Calls and subscriptions go on by themselves; the rest is answered before it returns.
    pub async fn line(self: &Arc<Self>, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match decode(line, line.len()) {
            Err(Fault { id, error }) => self.send(error_response(id.as_ref(), &error)).await,
            Ok(Incoming::Batch(items)) if self.settled().is_some_and(|s| s.revision.takes_batches()) => {
                self.calls.fetch_add(1, Ordering::AcqRel);
                tokio::spawn(Arc::clone(self).batch(items));
            }
            Ok(Incoming::Batch(_)) => {
                let error =
                    RpcError::invalid_request("a batch is taken only after `initialize` with 2025-03-26");
                self.send(error_response(None, &error)).await;
            }
            Ok(Incoming::One(Message::Notification { method, params })) => {
                self.running.notified(&method, &params);
            }
            Ok(Incoming::One(Message::Response { id, result })) => {
                self.questions.answered(&id, result.as_deref());
            }
            Ok(Incoming::One(Message::Request { id, method, params })) => {
                self.request(id, method, params).await;
            }
        }
    }

    async fn send(&self, message: Bytes) {
        // The writer is gone only when the pipe is.
        self.out.send(message).await.ok();
    }

    fn settled(&self) -> Option<Settled> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn exchange(&self, settled: Settled) -> Exchange {
        let Settled { revision, client, negotiated } = settled;
        let principal = with_client(Arc::clone(&self.principal), client);
        let mut ctx = RequestContext::new(principal, self.mcp.correlation_id());
        ctx.discovery = self.discovery;
        ctx.negotiated = negotiated;
        ctx.cancel = self.closed.child_token();
        let subscriptions = (!revision.is_stateless()).then(|| Arc::clone(&self.subscriptions));
        Exchange { revision, ctx, subscriptions, underway: None, asker: None }
    }

    /// The era of a request and its context (MCP 2026-07-28, versioning).
    fn era(&self, method: &str, declared: &Declared) -> Result<Exchange, RpcError> {
        if declared.is_stateless() || method == "server/discover" {
            let version = declared.version()?;
            let revision = Revision::parse(version)
                .filter(|r| r.is_stateless())
                .ok_or_else(|| RpcError::unsupported_version(version))?;
            let (client, negotiated) = (declared.facts(), declared.negotiated());
            return Ok(self.exchange(Settled { revision, client, negotiated }));
        }
        match self.settled() {
            Some(settled) => Ok(self.exchange(settled)),
            None => Err(RpcError::invalid_request(
                "send `initialize` first, or `params._meta` with `io.modelcontextprotocol/protocolVersion`",
            )),
        }
    }

    async fn request(self: &Arc<Self>, id: RequestId, method: String, params: Params) {
        if method == "initialize" && params.text_member("protocolVersion").is_some() {
            return self.initialize(&id, &params).await;
        }
        let declared = Declared::of(&params);
        let mut exchange = match self.era(&method, &declared) {
            Ok(exchange) => exchange,
            Err(error) => return self.send(error_response(Some(&id), &error)).await,
        };
        let kind = Method::find(&method, exchange.revision);
        if !kind.is_some_and(|k| k.is_slow() || k == Method::Listen) {
            let answer = self.mcp.answer(exchange, &id, &method, params).await;
            return self.reply(&id, answer).await;
        }
        let key = id.as_str().to_owned();
        if self.running.len() >= STDIO_CALLS_MAX {
            let error = RpcError::invalid_request(format!("at most {STDIO_CALLS_MAX} requests run at once"));
            return self.send(error_response(Some(&id), &error)).await;
        }
        if !self.running.begin(&key, exchange.ctx.cancel.clone()) {
            let error = RpcError::invalid_request("a request with this id is still running");
            return self.send(error_response(Some(&id), &error)).await;
        }
        if kind != Some(Method::Listen) {
            if let Some(token) = declared.progress_token() {
                let out = self.out.clone();
                // A full queue means a slow reader: the next report says more anyway.
                let send = move |message| drop(out.try_send(message));
                exchange.ctx.progress = Some(progress::sink(token, exchange.ctx.cancel.clone(), send));
            }
            if let Err(error) = self.prepare(&mut exchange, &params) {
                self.running.end(&key);
                return self.send(error_response(Some(&id), &error)).await;
            }
            self.calls.fetch_add(1, Ordering::AcqRel);
            tokio::spawn(Arc::clone(self).call(exchange, id, method, params));
        } else {
            match self.mcp.listen(exchange, &id, &params) {
                Ok(messages) => drop(tokio::spawn(Arc::clone(self).forward(messages, key))),
                Err(error) => {
                    self.running.end(&key);
                    self.send(error_response(Some(&id), &error)).await;
                }
            }
        }
    }

    /// How a call may ask the person in front of the client: by a request of its own in a session, by its result
    /// on the stateless wire.
    fn prepare(&self, exchange: &mut Exchange, params: &Params) -> Result<(), RpcError> {
        if exchange.revision.is_stateless() {
            exchange.ctx.reply = ask::brought(params)?.map(Arc::new);
        } else if exchange.ctx.negotiated.can_be_asked() {
            let (outbox, questions) = (self.out.clone(), Arc::clone(&self.questions));
            exchange.asker = Some(Asker { outbox, questions });
        }
        Ok(())
    }

    async fn call(self: Arc<Self>, exchange: Exchange, id: RequestId, method: String, params: Params) {
        let answer = self.mcp.answer(exchange, &id, &method, params).await;
        self.running.end(id.as_str());
        self.reply(&id, answer).await;
        self.call_done();
    }

    fn call_done(&self) {
        self.calls.fetch_sub(1, Ordering::AcqRel);
        self.call_ended.notify_one();
    }

    /// Passes a subscription's messages on; a cancelled one ends by itself.
    async fn forward(self: Arc<Self>, mut messages: super::streams::Messages, key: String) {
        while let Some(message) = messages.next().await {
            self.send(message).await;
        }
        self.running.end(&key);
    }

    async fn reply(&self, id: &RequestId, answer: Answer) {
        if let Some(message) = answer.message(id) {
            self.send(message).await;
        }
    }

    async fn initialize(self: &Arc<Self>, id: &RequestId, params: &Params) {
        let hello: Initialize = match params.read() {
            Ok(hello) => hello,
            Err(error) => return self.send(error_response(Some(id), &error)).await,
        };
        let revision = Revision::negotiate(hello.version.as_deref().unwrap_or_default());
        let settled = Settled { revision, client: hello.facts(), negotiated: hello.negotiated(revision) };
        let exchange = self.exchange(settled.clone());
        let body = self.mcp.initialized(&exchange, id);
        let before = {
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            session.replace(settled)
        };
        self.send(body).await;
        if before.is_none() {
            tokio::spawn(Arc::clone(self).tell_changes(exchange));
        }
    }

    /// `list_changed` for the session wire, whenever a list that the caller is shown has changed.
    async fn tell_changes(self: Arc<Self>, exchange: Exchange) {
        let service = &*self.mcp.service;
        let mut changes = service.changes();
        let mut seen = Seen::now(Topic::told(exchange.ctx.negotiated), service, &exchange.ctx);
        let mut news = service.gateway().map(crate::gateway::Gateway::resource_updates);
        loop {
            tokio::select! {
                () = self.closed.cancelled() => return,
                () = self.mcp.drain.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
                told = subscriptions::next(&mut news) => {
                    for params in self.subscriptions.told(service, &exchange.ctx, told) {
                        self.send(notification(UPDATED, &params)).await;
                    }
                    continue;
                }
            }
            for topic in seen.moved(service, &exchange.ctx) {
                self.send(notification(topic.notification(), &json!({}))).await;
            }
        }
    }

    /// A batch of 2025-03-26: answered as one line, in order.
    async fn batch(self: Arc<Self>, items: Vec<Result<Message, Fault>>) {
        let answers =
            futures_util::future::join_all(items.into_iter().map(|item| self.batch_item(item))).await;
        let answers: Vec<Bytes> = answers.into_iter().flatten().collect();
        if !answers.is_empty() {
            self.send(array(&answers)).await;
        }
        self.call_done();
    }

    async fn batch_item(&self, item: Result<Message, Fault>) -> Option<Bytes> {
        let (id, method, params) = match item {
            Err(fault) => return Some(error_response(fault.id.as_ref(), &fault.error)),
            Ok(Message::Response { id, result }) => {
                self.questions.answered(&id, result.as_deref());
                return None;
            }
            Ok(Message::Notification { method, params }) => {
                self.running.notified(&method, &params);
                return None;
            }
            Ok(Message::Request { id, method, params }) => (id, method, params),
        };
        let answer = match self.era(&method, &Declared::of(&params)) {
            Ok(exchange) if self.running.begin(id.as_str(), exchange.ctx.cancel.clone()) => {
                let answer = self.mcp.answer(exchange, &id, &method, params).await;
                self.running.end(id.as_str());
                answer
            }
            Ok(_) => Answer::Failed(RpcError::invalid_request("a request with this id is still running")),
            Err(error) => Answer::Failed(error),
        };
        answer.message(&id)
    }
}
