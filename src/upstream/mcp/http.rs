//! Streamable HTTP on both wires: one POST a request, the era found out once, a session re-made on 404.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use tokio::sync::Mutex;

use super::conn::{Exchange, Pool, SendFault};
use super::rpc::{self, Fault, Message, Outgoing, Progress, RpcError, ServerFacts};
use super::signals::Signals;
use super::sse::Events;
use super::{Asked, Track};
use crate::clock::Clock;
use crate::json;
use crate::limits;
use crate::upstream::config::{Era, HttpTarget, UpstreamConfig};
use crate::upstream::http::Credentials;
use crate::upstream::{ErrorSource, ProgressSink, Retry, UpstreamError};

/// How long a server may take over the first question before the older handshake is tried.
const PROBE: Duration = Duration::from_secs(5);
/// Bytes of a handshake's answer.
const HANDSHAKE_BYTES: usize = 1024 * 1024;
/// Headers of a request, those that hyper adds included. More only take longer.
const HEADERS: usize = 12;
/// The pause before a lost event stream is opened again; it doubles up to 64 times.
const LISTEN_PAUSE: Duration = Duration::from_secs(2);
/// Several resources that begin to be watched are one new stream.
const GATHER: Duration = Duration::from_millis(20);
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL: HeaderName = HeaderName::from_static("mcp-protocol-version");
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What was agreed with a server, and the headers that follow from it.
#[derive(Debug)]
struct Session {
    facts: ServerFacts,
    stateless: bool,
    has_id: bool,
    headers: HeaderMap,
    meta: Option<String>,
}

/// An MCP server behind an address.
#[derive(Debug)]
pub(super) struct HttpLink {
    upstream: String,
    url: url::Url,
    /// Path and query of `url`.
    target: hyper::Uri,
    pool: Pool,
    plain: HeaderMap,
    credentials: Credentials,
    era: Era,
    session: ArcSwapOption<Session>,
    opening: Mutex<()>,
    ids: AtomicU64,
    signals: Arc<Signals>,
}

impl HttpLink {
    /// A link that opens nothing yet. The error is the operator's to mend.
    pub(super) fn new(
        config: &UpstreamConfig,
        target: &HttpTarget,
        era: Era,
        signals: Arc<Signals>,
        clock: Clock,
    ) -> Result<Self, String> {
        let url = target.base_url.clone();
        let pool = Pool::new(&url, config.concurrency, clock.clone())?;
        // With room for what hyper adds: the copy of a call need not grow.
        let mut plain = HeaderMap::with_capacity(HEADERS);
        for (name, value) in &target.headers {
            let (name, value) = crate::upstream::http::header(name, value.expose(), true)?;
            plain.insert(name, value);
        }
        let host = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
            None => url.host_str().unwrap_or_default().to_owned(),
        };
        plain.insert(HOST, HeaderValue::from_str(&host).map_err(|e| e.to_string())?);
        plain.insert(USER_AGENT, HeaderValue::from_static(concat!("docent/", env!("CARGO_PKG_VERSION"))));
        plain.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        plain.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Ok(Self {
            upstream: config.id.as_str().to_owned(),
            target: request_target(&url)?,
            url,
            pool,
            plain,
            credentials: Credentials::for_pool(&config.auth, clock),
            era,
            session: ArcSwapOption::empty(),
            opening: Mutex::new(()),
            ids: AtomicU64::new(1),
            signals,
        })
    }

    /// Sends one request and waits for its answer. The caller bounds it in time.
    pub(super) async fn request(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        track: &Track,
    ) -> Result<Box<str>, Fault> {
        let (mut renewed, mut reopened) = (false, false);
        loop {
            let session = self.session().await?;
            let id = self.ids.fetch_add(1, Ordering::Relaxed);
            track.begin(id, !session.stateless);
            let body = asked.out.text(id, session.meta.as_deref());
            let mut headers = session.headers.clone();
            if session.stateless {
                name_request(&mut headers, &asked.out);
                headers.extend(asked.headers.iter().cloned());
            }
            let exchange = self.post(headers, body, asked.read_only).await?;
            match exchange.status() {
                404 if session.has_id && !reopened => {
                    // The server has forgotten the session: nothing was done. Told by the status alone.
                    reopened = true;
                    self.forget(&session);
                }
                401 if !renewed && self.credentials.forget().await => renewed = true,
                401 | 403 => return Err(self.refused(exchange.status()).into()),
                status => {
                    let outcome = self.answer(exchange, id, asked, &session).await;
                    let unread = matches!(&outcome, Err(Fault::Rpc(e)) if !e.addressed);
                    if !(status == 400 && unread && session.has_id && !reopened) {
                        return outcome;
                    }
                    // Some servers say so with 400 and an error that names no request.
                    reopened = true;
                    self.forget(&session);
                }
            }
        }
    }

    /// Tells the server that the caller of a request gave up. Best effort.
    pub(super) async fn cancel(&self, id: u64) {
        let session = self.session.load_full();
        if let Some(session) = session.filter(|s| !s.stateless) {
            self.notify(&session, rpc::cancelled(id)).await;
        }
    }

    /// Ends the session. Best effort.
    pub(super) async fn close(&self) {
        let Some(session) = self.session.swap(None).filter(|s| s.has_id) else { return };
        let ending = async {
            let request = self.build(Method::DELETE, session.headers.clone(), String::new()).await?;
            self.pool.send(request).await.map(drop).map_err(|f| self.fault(f, true))
        };
        drop(tokio::time::timeout(Duration::from_secs(1), ending).await);
    }

    fn forget(&self, session: &Arc<Session>) {
        let current = self.session.load();
        if current.as_ref().is_some_and(|c| Arc::ptr_eq(c, session)) {
            self.session.compare_and_swap(&*current, None);
        }
    }

    async fn session(self: &Arc<Self>) -> Result<Arc<Session>, Fault> {
        match self.session.load_full() {
            Some(session) => Ok(session),
            // Boxed: most calls find a session and need not carry the room for opening one.
            None => Box::pin(self.opened()).await,
        }
    }

    async fn opened(self: &Arc<Self>) -> Result<Arc<Session>, Fault> {
        let _opening = self.opening.lock().await;
        if let Some(session) = self.session.load_full() {
            return Ok(session);
        }
        let session = Arc::new(self.open().await?);
        self.session.store(Some(Arc::clone(&session)));
        if session.facts.tells_changes {
            tokio::spawn(listen(Arc::downgrade(self), Arc::downgrade(&session)));
        }
        if !session.stateless && !self.signals.watched().is_empty() {
            tokio::spawn(Arc::clone(self).watch_again());
        }
        Ok(session)
    }

    async fn open(&self) -> Result<Session, Fault> {
        if self.era != Era::Session {
            match tokio::time::timeout(PROBE, self.discover()).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(Fault::Upstream(e))) if e.retry == Retry::Safe || self.era == Era::Stateless => {
                    return Err(e.into());
                }
                Ok(Err(fault)) if self.era == Era::Stateless => return Err(fault),
                Err(_) if self.era == Era::Stateless => {
                    return Err(UpstreamError::timeout(&self.upstream, false, true).into());
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        self.initialize().await
    }

    async fn discover(&self) -> Result<Session, Fault> {
        let mut headers = self.plain.clone();
        headers.insert(PROTOCOL, HeaderValue::from_static(rpc::STATELESS_VERSION));
        let meta = rpc::stateless_meta();
        let out = Outgoing { method: "server/discover", params: "", name: None, progress: false };
        let mut probe = headers.clone();
        name_request(&mut probe, &out);
        let exchange = self.post(probe, out.text(0, Some(&meta)), true).await?;
        let result = self.read(exchange, 0, HANDSHAKE_BYTES, None, None).await?;
        if !rpc::offers_stateless(&result) {
            let message = "the server does not offer the stateless revision".to_owned();
            return Err(Fault::Rpc(RpcError {
                code: -32022,
                message,
                data: serde_json::Value::Null,
                addressed: true,
            }));
        }
        let facts = ServerFacts::read(&result, Some(rpc::STATELESS_VERSION));
        Ok(Session { facts, stateless: true, has_id: false, headers, meta: Some(meta) })
    }

    async fn initialize(&self) -> Result<Session, Fault> {
        let params = rpc::initialize_params();
        let out = Outgoing { method: "initialize", params: &params, name: None, progress: false };
        let exchange = self.post(self.plain.clone(), out.text(0, None), true).await?;
        if matches!(exchange.status(), 401 | 403) {
            return Err(self.refused(exchange.status()).into());
        }
        let id = exchange.header("mcp-session-id").map(str::to_owned);
        let result = self.read(exchange, 0, HANDSHAKE_BYTES, None, None).await?;
        let facts = ServerFacts::read(&result, None);
        let mut headers = self.plain.clone();
        let version =
            HeaderValue::from_str(&facts.version).unwrap_or(HeaderValue::from_static(rpc::SESSION_VERSION));
        headers.insert(PROTOCOL, version);
        let has_id = match id.as_deref().map(HeaderValue::from_str) {
            Some(Ok(id)) => headers.insert(SESSION_ID, id).is_none(),
            _ => false,
        };
        let session = Session { facts, stateless: false, has_id, headers, meta: None };
        self.notify(&session, rpc::INITIALIZED.to_owned()).await;
        Ok(session)
    }

    /// Sends a notification or an answer; what comes back does not matter.
    async fn notify(&self, session: &Session, body: String) {
        if let Ok(mut exchange) = self.post(session.headers.clone(), body, true).await {
            drop(exchange.read(HANDSHAKE_BYTES).await);
        }
    }

    async fn build(
        &self,
        method: Method,
        mut headers: HeaderMap,
        body: String,
    ) -> Result<Request<Full<Bytes>>, UpstreamError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = self.target.clone();
        if !self.credentials.is_none() {
            let mut url = self.url.clone();
            Box::pin(self.credentials.place(&mut headers, &mut url)).await?;
            *request.uri_mut() = request_target(&url)
                .map_err(|e| UpstreamError::internal("the address cannot be requested").detail(&e))?;
        }
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn post(&self, headers: HeaderMap, body: String, read_only: bool) -> Result<Exchange<'_>, Fault> {
        let request = self.build(Method::POST, headers, body).await?;
        Ok(self.pool.send(request).await.map_err(|f| self.fault(f, read_only))?)
    }

    fn fault(&self, fault: SendFault, read_only: bool) -> UpstreamError {
        match fault {
            SendFault::Connect(why) => {
                UpstreamError::unreachable(&self.upstream, "no connection").detail(&why)
            }
            SendFault::Lost(why) => {
                let lost = "closed the connection without an answer";
                UpstreamError::lost(&self.upstream, lost, read_only).detail(&why)
            }
        }
    }

    fn refused(&self, status: u16) -> UpstreamError {
        let message = format!(
            "upstream `{}` refused docent's credentials (HTTP {status}); the operator should look at `[auth]`",
            self.upstream
        );
        UpstreamError::new(ErrorSource::Credentials, Retry::Never, message)
    }

    async fn answer(
        &self,
        exchange: Exchange<'_>,
        id: u64,
        asked: &Asked<'_>,
        session: &Session,
    ) -> Result<Box<str>, Fault> {
        let mut found = self.read(exchange, id, asked.max, asked.progress, Some(session)).await;
        if let Err(Fault::Upstream(e)) = &mut found
            && e.retry == Retry::Unknown
            && asked.read_only
        {
            e.retry = Retry::Safe;
        }
        found
    }

    /// Reads an answer of at most `max` bytes, as one JSON body or as events.
    async fn read(
        &self,
        mut exchange: Exchange<'_>,
        id: u64,
        max: usize,
        progress: Option<&ProgressSink>,
        session: Option<&Session>,
    ) -> Result<Box<str>, Fault> {
        let status = exchange.status();
        let broken =
            |why: &str| UpstreamError::lost(&self.upstream, "broke off its answer", false).detail(&why);
        if is_events(exchange.header("content-type")) {
            return Box::pin(self.events(exchange, id, max, progress, session)).await;
        }
        let bytes = exchange.read(max).await.map_err(|e| broken(&e))?;
        let bytes = bytes.ok_or_else(|| UpstreamError::too_large(&self.upstream, max))?;
        let text = json::utf8(&bytes).unwrap_or_default();
        let messages = Message::all(text);
        if let Some(own) = messages.iter().find(|m| m.answers() == Some(id)) {
            return own.outcome().map_err(Fault::Rpc);
        }
        // An error without an id answers a request that could not be read.
        if let Some(error) = messages.iter().find(|m| m.id.is_none()).and_then(|m| m.error) {
            return Err(Fault::Rpc(RpcError { addressed: false, ..RpcError::read(error) }));
        }
        let retry = if status >= 500 { Retry::Unknown } else { Retry::Never };
        let message = match status {
            200..=299 => format!("upstream `{}` answered something that is no MCP answer", self.upstream),
            _ => format!("upstream `{}` answered HTTP {status}", self.upstream),
        };
        let source =
            if (200..=299).contains(&status) { ErrorSource::Malformed } else { ErrorSource::Upstream };
        Err(UpstreamError::new(source, retry, message).into())
    }

    async fn events(
        &self,
        mut exchange: Exchange<'_>,
        id: u64,
        max: usize,
        progress: Option<&ProgressSink>,
        session: Option<&Session>,
    ) -> Result<Box<str>, Fault> {
        let too_large = || UpstreamError::too_large(&self.upstream, max);
        let mut events = Events::new(max);
        let mut total = 0usize;
        loop {
            while let Some(data) = events.next().map_err(|_large| too_large())? {
                for message in Message::all(&data) {
                    if message.answers() == Some(id) {
                        let outcome = message.outcome().map_err(Fault::Rpc);
                        // The stream ends with the answer; its end gives the connection back.
                        drop(tokio::time::timeout(Duration::from_millis(5), exchange.chunk()).await);
                        return outcome;
                    }
                    if let (Some(reply), Some(session)) = (message.reply(), session) {
                        self.notify(session, reply).await;
                    }
                    self.note(&message, id, progress);
                }
            }
            let lost =
                |why: &str| UpstreamError::lost(&self.upstream, "broke off its answer", false).detail(&why);
            match exchange.chunk().await.map_err(|e| lost(&e))? {
                None => return Err(lost("the stream ended before the answer").into()),
                Some(piece) => {
                    total += piece.len();
                    if total > max.saturating_mul(2) {
                        return Err(too_large().into());
                    }
                    events.push(&piece).map_err(|_large| too_large())?;
                }
            }
        }
    }

    /// Takes note of what a server says besides its answers.
    fn note(&self, message: &Message<'_>, id: u64, progress: Option<&ProgressSink>) {
        match message.method.as_deref() {
            _ if self.signals.note(message) => {}
            Some("notifications/progress") => {
                if let (Some(sink), Some(params)) = (progress, message.params)
                    && let Ok(step) = serde_json::from_str::<Progress<'_>>(params)
                    && step.token.get().trim_matches('"').parse() == Ok(id)
                {
                    sink.report(step.done, step.total, step.message.as_deref());
                }
            }
            _ => {}
        }
    }
}

/// Whether a `Content-Type` is that of an event stream; its case says nothing (RFC 9110 §8.3.1).
fn is_events(content_type: Option<&str>) -> bool {
    const EVENTS: &str = "text/event-stream";
    content_type.and_then(|t| t.get(..EVENTS.len())).is_some_and(|t| t.eq_ignore_ascii_case(EVENTS))
}

/// Path and query, as a request line has them.
fn request_target(url: &url::Url) -> Result<hyper::Uri, String> {
    let text = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    hyper::Uri::try_from(text).map_err(|e| e.to_string())
}

/// The headers that name a request on the stateless wire.
fn name_request(headers: &mut HeaderMap, out: &Outgoing<'_>) {
    if let Ok(method) = HeaderValue::from_str(out.method) {
        headers.insert(MCP_METHOD, method);
    }
    if let Some(name) = out.name {
        headers.insert(MCP_NAME, super::headers::encode(name));
    }
}

/// Listens for changes of the tools as long as the session lives: the GET stream of the session wire, or
/// `subscriptions/listen` of the stateless one.
async fn listen(link: Weak<HttpLink>, session: Weak<Session>) {
    let mut failures = 0u32;
    loop {
        let (Some(link), Some(session)) = (link.upgrade(), session.upgrade()) else { return };
        if !link.session.load().as_ref().is_some_and(|s| Arc::ptr_eq(s, &session)) {
            return;
        }
        let began = tokio::time::Instant::now();
        match link.listen_once(&session).await {
            // The server has no such stream.
            Ok(Listened::Nothing) => return,
            // Opened again at once: what is watched is part of the request.
            Ok(Listened::OtherSet) => {
                tokio::time::sleep(GATHER).await;
                continue;
            }
            Ok(Listened::ToItsEnd) | Err(_) => {}
        }
        failures = if began.elapsed() > limits::DISCOVERY_TIMEOUT { 0 } else { failures.saturating_add(1) };
        // What changed while nobody listened is found by the next look.
        link.signals.mark_changed();
        drop((link, session));
        tokio::time::sleep(LISTEN_PAUSE.saturating_mul(1 << failures.min(6))).await;
    }
}

/// How an event stream ended.
enum Listened {
    /// The server offers none.
    Nothing,
    /// By itself.
    ToItsEnd,
    /// Other resources are watched than it was opened for.
    OtherSet,
}

impl HttpLink {
    /// What was agreed, once something was.
    pub(super) fn facts(&self) -> Option<ServerFacts> {
        self.session.load().as_ref().map(|s| s.facts.clone())
    }

    /// Whether watching is a request of its own, as on the session wire.
    pub(super) fn subscribes(&self) -> bool {
        self.session.load().as_ref().is_none_or(|s| !s.stateless)
    }

    /// A new session knows nothing of what was watched in the one before.
    fn watch_again(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            for uri in self.signals.watched() {
                let params = format!("\"uri\":{}", json::to_text(&uri));
                let (method, max) = ("resources/subscribe", HANDSHAKE_BYTES);
                let out = Outgoing { method, params: &params, name: None, progress: false };
                let asked = Asked { out, headers: Vec::new(), max, progress: None, read_only: true };
                // Whoever watches reads anew at times; a server that does not tell costs only that.
                drop(self.request(&asked, &Track::default()).await);
            }
        })
    }

    /// One event stream to its end.
    async fn listen_once(&self, session: &Session) -> Result<Listened, Fault> {
        let mut headers = session.headers.clone();
        let mut watched = self.signals.set_changes();
        let mut exchange = if session.stateless {
            let params = self.signals.filter();
            let out =
                Outgoing { method: "subscriptions/listen", params: &params, name: None, progress: false };
            name_request(&mut headers, &out);
            let id = self.ids.fetch_add(1, Ordering::Relaxed);
            self.post(headers, out.text(id, session.meta.as_deref()), true).await?
        } else {
            headers.remove(CONTENT_TYPE);
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            let request = self.build(Method::GET, headers, String::new()).await?;
            self.pool.send(request).await.map_err(|f| self.fault(f, true))?
        };
        let streams = is_events(exchange.header("content-type"));
        if exchange.status() != 200 || !streams {
            return Ok(Listened::Nothing);
        }
        let mut events = Events::new(HANDSHAKE_BYTES);
        loop {
            let piece = tokio::select! {
                piece = exchange.chunk() => piece,
                _ = watched.changed(), if session.stateless => return Ok(Listened::OtherSet),
            };
            let Ok(Some(piece)) = piece else { break };
            if events.push(&piece).is_err() {
                break;
            }
            while let Ok(Some(data)) = events.next() {
                for message in Message::all(&data) {
                    if let Some(reply) = message.reply() {
                        self.notify(session, reply).await;
                    }
                    self.note(&message, 0, None);
                }
            }
        }
        Ok(Listened::ToItsEnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_events_is_one_however_its_type_is_written() {
        for kind in ["text/event-stream", "Text/Event-Stream", "text/event-stream; charset=utf-8"] {
            assert!(is_events(Some(kind)), "{kind}");
        }
        for kind in [None, Some(""), Some("text"), Some("application/json"), Some("text/événement")] {
            assert!(!is_events(kind), "{kind:?}");
        }
    }
}
