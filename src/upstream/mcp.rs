//! Kind `mcp`: a small MCP client of our own.
//!
//! rmcp 3.11's typed client gives up a whole list for one malformed tool and a whole call for one unknown
//! content block, and hands each call to a task of its own; here every part is taken as it comes and passed on
//! as raw JSON, and an HTTP call is driven by its caller's task alone. Both wires, HTTP and stdio.

mod conn;
mod headers;
mod http;
mod list;
mod offer;
mod result;
mod rpc;
mod signals;
mod sse;
mod stdio;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use super::config::{McpSource, McpTransport, UpstreamConfig};
use super::{
    Discovery, ErrorSource, Invocation, OfferCall, ProgressSink, Retry, Upstream, UpstreamError,
    UpstreamState, UpstreamStatus,
};
use crate::call::{McpReply, ReplyBody, UpstreamReply, UpstreamRequest};
use crate::clock::Clock;
use crate::id::UpstreamId;
use crate::json::{self, Shallow};
use crate::limits;
use headers::HeaderMark;
use result::RawResult;
use rpc::{Fault, Outgoing};
use signals::Signals;

/// One request with what bounds its answer.
struct Asked<'a> {
    out: Outgoing<'a>,
    headers: Vec<(HeaderName, HeaderValue)>,
    max: usize,
    progress: Option<&'a ProgressSink>,
    read_only: bool,
}

/// Where a request stands, for telling whether it was sent when its caller gives up.
#[derive(Debug, Default)]
struct Track {
    id: AtomicU64,
    cancellable: AtomicBool,
}

impl Track {
    fn begin(&self, id: u64, cancellable: bool) {
        self.id.store(id, Ordering::Relaxed);
        self.cancellable.store(cancellable, Ordering::Relaxed);
    }

    fn sent(&self) -> bool {
        self.id.load(Ordering::Relaxed) != 0
    }
}

/// How the walk over a list ended.
enum Walked {
    /// At its end.
    Whole,
    /// At its first page.
    Refused(UpstreamError),
    /// Later, for this reason.
    BrokeOff(String),
}

#[derive(Debug, Clone)]
enum Link {
    Http(Arc<http::HttpLink>),
    Stdio(Arc<stdio::StdioLink>),
    /// The configuration cannot be connected to, for this reason.
    Broken(Arc<str>),
}

impl Link {
    async fn request(&self, asked: &Asked<'_>, track: &Track) -> Result<Box<str>, Fault> {
        match self {
            Self::Http(link) => link.request(asked, track).await,
            Self::Stdio(link) => link.request(asked, track).await,
            Self::Broken(why) => Err(UpstreamError::internal(&**why).into()),
        }
    }

    fn cancel(&self, track: &Track) {
        if !track.sent() || !track.cancellable.load(Ordering::Relaxed) {
            return;
        }
        let id = track.id.load(Ordering::Relaxed);
        match self {
            Self::Http(link) => {
                let link = Arc::clone(link);
                tokio::spawn(async move {
                    drop(tokio::time::timeout(limits::CONNECT_TIMEOUT, link.cancel(id)).await);
                });
            }
            Self::Stdio(link) => link.cancel(id),
            Self::Broken(_) => {}
        }
    }
}

/// An MCP server.
#[derive(Debug)]
pub(super) struct McpUpstream {
    config: UpstreamConfig,
    link: Link,
    signals: Arc<Signals>,
    marks: ArcSwap<HashMap<Arc<str>, Vec<HeaderMark>>>,
    slots: Semaphore,
    last_failure: Mutex<Option<String>>,
    answered: AtomicBool,
    /// Whether it said that its resources can be watched.
    watchable: AtomicBool,
}

impl McpUpstream {
    pub(super) fn new(config: &UpstreamConfig, source: &McpSource, clock: Clock) -> Self {
        let signals = Arc::<Signals>::default();
        let link = match &source.transport {
            McpTransport::Http(target) => {
                let made = http::HttpLink::new(config, target, source.era, Arc::clone(&signals), clock);
                made.map_or_else(|why| Link::Broken(Arc::from(why)), |l| Link::Http(Arc::new(l)))
            }
            McpTransport::Stdio(defaults) => {
                let spoken = (source.era, source.idle);
                let made = stdio::StdioLink::new(config, defaults, spoken, Arc::clone(&signals), clock);
                Link::Stdio(Arc::new(made))
            }
        };
        Self {
            slots: Semaphore::new(config.concurrency),
            config: config.clone(),
            link,
            signals,
            marks: ArcSwap::default(),
            last_failure: Mutex::new(None),
            answered: AtomicBool::new(false),
            watchable: AtomicBool::new(false),
        }
    }

    fn name(&self) -> &str {
        self.config.id.as_str()
    }

    async fn list(&self) -> Result<Discovery, UpstreamError> {
        self.signals.forget_change();
        let marked = matches!(self.link, Link::Http(_));
        let mut found = list::Collector::new(&self.config, marked);
        let walked = self.walk("tools/list", &mut |result| found.page(result)).await;
        match walked {
            Walked::Whole => {}
            Walked::Refused(error) => {
                self.note(Some(&error));
                return Err(error);
            }
            Walked::BrokeOff(why) => found.broke_off(why),
        }
        self.note(None);
        let (offered, problems) = self.offers().await;
        for why in problems {
            found.incomplete(why);
        }
        let (mut discovery, marks) = found.finish();
        discovery.offered = offered;
        self.marks.store(Arc::new(marks));
        Ok(discovery)
    }

    /// Walks every page of one list; `page` takes each and gives the cursor of the next.
    async fn walk(
        &self,
        method: &'static str,
        page: &mut (dyn FnMut(&str) -> Option<String> + Send),
    ) -> Walked {
        let mut cursor: Option<String> = None;
        let mut seen = HashSet::new();
        for number in 0.. {
            let params = cursor.as_ref().map(|c| format!(r#""cursor":{}"#, json::to_text(c)));
            let params = params.as_deref().unwrap_or_default();
            let out = Outgoing { method, params, name: None, progress: false };
            let max = limits::DISCOVERY_PAGE_BYTES_MAX;
            let asked = Asked { out, headers: Vec::new(), max, progress: None, read_only: true };
            let next = match self.link.request(&asked, &Track::default()).await {
                Ok(result) => page(&result),
                // A server without such a list may not know the method at all.
                Err(Fault::Rpc(e)) if number == 0 && e.code == -32601 => None,
                Err(fault) if number == 0 => return Walked::Refused(fault.into_error(self.name())),
                Err(fault) => {
                    let why = fault.into_error(self.name()).message;
                    return Walked::BrokeOff(format!("page {} of its list failed: {why}", number + 1));
                }
            };
            let Some(next) = next else { break };
            if !seen.insert(next.clone()) {
                let why = "its list repeats a cursor, so it would never end";
                return Walked::BrokeOff(why.to_owned());
            }
            if number + 1 >= limits::LIST_PAGES_MAX {
                let why = format!("its list has more than {} pages", limits::LIST_PAGES_MAX);
                return Walked::BrokeOff(why);
            }
            cursor = Some(next);
        }
        Walked::Whole
    }

    async fn call(&self, call: Invocation<'_>) -> Result<UpstreamReply, UpstreamError> {
        let UpstreamRequest::Arguments(arguments) = &call.request else {
            return Err(UpstreamError::internal("an MCP server takes arguments, not an HTTP request"));
        };
        let mut params = String::with_capacity(256 + call.arguments.map_or(0, str::len));
        params.push_str(r#""name":"#);
        params.push_str(&json::to_text(call.name));
        params.push_str(r#","arguments":"#);
        match call.arguments {
            Some(text) => params.push_str(text),
            None => params.push_str(&json::to_text(arguments)),
        }
        let out = Outgoing {
            method: "tools/call",
            params: &params,
            name: Some(call.name),
            progress: call.progress.is_some(),
        };
        let marks = self.marks.load();
        let headers = marks.get(call.name).map(|m| headers::of_call(m, arguments)).unwrap_or_default();
        let (max, read_only) = (self.config.read_bytes(), call.read_only);
        let asked = Asked { out, headers, max, progress: call.progress.as_ref(), read_only };
        let reply = self.exchange(&asked, &call.cancel, call.deadline).await.and_then(|r| self.reply(&r));
        self.note(reply.as_ref().err());
        reply
    }

    /// One request within its time, as long as its caller wants the answer. Waits for a slot first.
    async fn exchange(
        &self,
        asked: &Asked<'_>,
        cancel: &CancellationToken,
        deadline: Instant,
    ) -> Result<Box<str>, UpstreamError> {
        let track = Track::default();
        let asking = async {
            let _slot = self.slots.acquire().await;
            self.link.request(asked, &track).await
        };
        tokio::select! {
            biased;
            answer = asking => answer.map_err(|f| f.into_error(self.name())),
            () = cancel.cancelled() => {
                self.link.cancel(&track);
                Err(UpstreamError::cancelled(track.sent(), asked.read_only))
            }
            () = tokio::time::sleep_until(deadline.into()) => {
                self.link.cancel(&track);
                Err(UpstreamError::timeout(self.name(), track.sent(), asked.read_only))
            }
        }
    }

    /// A `CallToolResult`, its blocks as they came.
    fn reply(&self, result: &str) -> Result<UpstreamReply, UpstreamError> {
        let malformed = |why: &str| {
            let message = format!("upstream `{}` answered a result that cannot be read", self.name());
            UpstreamError::new(ErrorSource::Malformed, Retry::Never, message).detail(&why)
        };
        let raw: RawResult<'_> = serde_json::from_str(result).map_err(|e| malformed(&e.to_string()))?;
        if let Some(kind) = raw.kind.as_str().filter(|k| *k != "complete") {
            let message = format!(
                "upstream `{}` answered `{kind}`, which asks for more than docent passes on",
                self.name()
            );
            return Err(UpstreamError::new(ErrorSource::Unsupported, Retry::Never, message));
        }
        let mut warnings = Vec::new();
        let has_content = !matches!(raw.content, Shallow::Null);
        let content = match raw.content {
            Shallow::Null => Vec::new(),
            Shallow::List(blocks) => blocks.into_iter().map(ToOwned::to_owned).collect(),
            Shallow::Object(_) | Shallow::Scalar => {
                warnings.push("the upstream's content was not a list of blocks and was left out".to_owned());
                Vec::new()
            }
        };
        if content.is_empty() && raw.structured.is_none() && !has_content {
            return Err(malformed("neither content nor structuredContent"));
        }
        let is_error = raw.is_error == Value::Bool(true);
        let owned = |r: Option<&RawValue>| r.map(ToOwned::to_owned);
        let (structured, meta) = (owned(raw.structured), owned(raw.meta));
        let reply = McpReply { content, structured, is_error, meta, artifacts: None };
        let status = if is_error { 500 } else { 200 };
        Ok(UpstreamReply { status, headers: Vec::new(), body: ReplyBody::Mcp(reply), warnings })
    }

    /// Remembers that the server failed, or that it works. What says nothing of the server changes nothing.
    fn note(&self, error: Option<&UpstreamError>) {
        let failure = match error {
            None => {
                self.answered.store(true, Ordering::Relaxed);
                None
            }
            Some(e) if matches!(e.source_kind, ErrorSource::Upstream | ErrorSource::Credentials) => {
                Some(e.message.clone())
            }
            Some(_) => return,
        };
        let mut last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != failure {
            *last = failure;
        }
    }
}

impl Upstream for McpUpstream {
    fn id(&self) -> &UpstreamId {
        &self.config.id
    }

    fn discover(&self) -> BoxFuture<'_, Result<Discovery, UpstreamError>> {
        Box::pin(self.list())
    }

    fn invoke<'a>(&'a self, call: Invocation<'a>) -> BoxFuture<'a, Result<UpstreamReply, UpstreamError>> {
        Box::pin(self.call(call))
    }

    fn status(&self) -> UpstreamStatus {
        let note = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let state = match (&note, self.answered.load(Ordering::Relaxed)) {
            (Some(_), _) => UpstreamState::Down,
            (None, true) => UpstreamState::Up,
            (None, false) => UpstreamState::Unknown,
        };
        UpstreamStatus {
            id: self.config.id.clone(),
            kind: self.config.kind.word(),
            state,
            complete: false,
            tools: 0,
            note: note.unwrap_or_default(),
        }
    }

    fn list_changed(&self) -> bool {
        self.signals.has_changed()
    }

    fn offer<'a>(&'a self, call: OfferCall<'a>) -> BoxFuture<'a, Result<Box<RawValue>, UpstreamError>> {
        Box::pin(self.ask(call))
    }

    fn watch(&self, uri: &str, on: bool) -> bool {
        if on && !self.can_watch() {
            return false;
        }
        self.watch_resource(uri, on);
        true
    }

    fn updates(&self) -> Option<broadcast::Receiver<Arc<str>>> {
        Some(self.signals.updates())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match &self.link {
                Link::Http(link) => link.close().await,
                Link::Stdio(link) => link.close().await,
                Link::Broken(_) => {}
            }
        })
    }
}
