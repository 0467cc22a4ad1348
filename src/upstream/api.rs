//! The port that every adapter implements.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::offer::{OfferCall, Offered};
use crate::call::{UpstreamReply, UpstreamRequest};
use crate::catalog::Tool;
use crate::diagnostic::Diagnostics;
use crate::id::UpstreamId;
use crate::limits;
use crate::policy::Permit;
use crate::projection::ProjectionSpec;

type Report = dyn Fn(f64, Option<f64>, Option<&str>) + Send + Sync;

/// Where progress of a running call goes: `(progress, total, message)`. Must not block.
#[derive(Clone)]
pub struct ProgressSink(Arc<Report>);

impl ProgressSink {
    /// A sink from a function.
    pub fn new(sink: impl Fn(f64, Option<f64>, Option<&str>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// Reports progress.
    pub fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        (self.0)(progress, total, message);
    }
}

impl fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressSink")
    }
}

/// One decided call on its way out.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// The proof that policy allowed it.
    pub permit: &'a Permit,
    /// The tool's name at the upstream.
    pub name: &'a str,
    /// What to ask.
    pub request: UpstreamRequest,
    /// When to give up.
    pub deadline: Instant,
    /// Fires when the caller gives up: abort the request, kill the process group, send `cancelled`.
    pub cancel: CancellationToken,
    /// Where progress goes, if the caller wants it.
    pub progress: Option<ProgressSink>,
    /// Correlation id, sent along where the upstream's kind has a place for it.
    pub correlation_id: &'a str,
    /// Whether the tool only reads: decides if a lost answer is safe to retry.
    pub read_only: bool,
    /// Copies of the caller's files that stand as paths in the arguments.
    pub lent: &'a [PathBuf],
    /// The compact JSON of [`UpstreamRequest::Arguments`], where the caller has it already.
    pub arguments: Option<&'a str>,
}

/// Whether the same request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It would fail again.
    Never,
    /// Nothing was done; sending again is safe.
    Safe,
    /// After this many seconds.
    After(u64),
    /// It was sent, its outcome is not known.
    Unknown,
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorSource {
    /// The caller's arguments.
    Caller,
    /// docent or its configuration.
    Internal,
    /// The upstream.
    Upstream,
    /// The caller gave up.
    Cancelled,
    /// The deadline passed.
    Timeout,
    /// The reply was larger than its budget.
    TooLarge,
    /// The reply is not of the upstream's own contract.
    Malformed,
    /// The upstream refused docent's credentials.
    Credentials,
    /// The upstream knows no such tool or route.
    Unsupported,
}

/// A call that brought no reply. The message is safe to show: no secret, no address with credentials.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct UpstreamError {
    /// Whose fault.
    pub source_kind: ErrorSource,
    /// Whether to send again.
    pub retry: Retry,
    /// What happened, for the caller.
    pub message: String,
    /// More, for the log only.
    pub detail: String,
}

/// Whether an upstream can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    /// Its tools are known and calls work as far as is known.
    Up,
    /// Not asked yet.
    Unknown,
    /// Asked just now; no answer yet.
    Connecting,
    /// Calls fail; the tools shown are the last ones known.
    Down,
}

/// What is known of an upstream, for `/readyz`, `docent_context` and search receipts.
#[derive(Debug, Clone, Serialize)]
pub struct UpstreamStatus {
    /// Its id.
    pub id: UpstreamId,
    /// Its kind: `mcp`, `openapi`, …
    pub kind: &'static str,
    /// Whether it can be used.
    pub state: UpstreamState,
    /// Whether its whole list of tools is known; `false` says why in `note`.
    pub complete: bool,
    /// How many tools it brings.
    pub tools: usize,
    /// The last failure or what is incomplete.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A tool of an upstream and how its calls are shaped.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// The tool, overrides of `upstream.toml` applied.
    pub tool: Tool,
    /// Request and result shaping, where `upstream.toml` has any.
    pub projection: Option<Arc<ProjectionSpec>>,
    /// How its calls are made.
    pub hints: CallHints,
}

/// How the calls of one tool are made, as `upstream.toml` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHints {
    /// How long one call may take; the gateway makes the deadline of it and the caller's own.
    pub timeout: Duration,
    /// How long a direct call waits before it becomes a job; `None` takes the server's default.
    pub wait: Option<Duration>,
    /// Why equal calls may share one answer (seed 002); `None` means that they never do.
    pub dedup: Option<Arc<str>>,
    /// What a successful call creates, which its caller then owns.
    pub creates: Option<Created>,
}

/// What a tool creates: the ground of `owns(kind, id)` in policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The kind of thing, a word of the operator's.
    pub kind: Arc<str>,
    /// Where its id stands in the result: a JSON Pointer.
    pub id: Arc<str>,
}

impl Default for CallHints {
    fn default() -> Self {
        Self { timeout: limits::UPSTREAM_TIMEOUT, wait: None, dedup: None, creates: None }
    }
}

/// All tools of an upstream, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// The tools.
    pub tools: Vec<Discovered>,
    /// Whether these are all: `false` when a page, a bound or a malformed entry cost some.
    pub complete: bool,
    /// Whether the list broke off, so that tools known from before may still be there.
    pub broke_off: bool,
    /// What was skipped and why.
    pub problems: Diagnostics,
    /// What it offers besides tools.
    pub offered: Offered,
}

/// The code of a problem that cost a list some of its tools.
pub(super) const INCOMPLETE_LIST: &str = "incomplete-list";

/// An adapter to one upstream. Shared; all methods may run at once.
pub trait Upstream: Send + Sync + fmt::Debug {
    /// Its id.
    fn id(&self) -> &UpstreamId;

    /// Finds its tools. Static kinds answer from their files at once; MCP upstreams connect.
    fn discover(&self) -> BoxFuture<'_, Result<Discovery, UpstreamError>>;

    /// Runs one decided call. Bounded in time by `deadline`, in bytes by the upstream's read budget.
    fn invoke<'a>(&'a self, call: Invocation<'a>) -> BoxFuture<'a, Result<UpstreamReply, UpstreamError>>;

    /// What is known of it now.
    fn status(&self) -> UpstreamStatus;

    /// Whether the upstream said, since the last discovery, that its tools changed.
    fn list_changed(&self) -> bool {
        false
    }

    /// Asks for something it offers besides tools. Only MCP servers offer such things.
    fn offer<'a>(&'a self, call: OfferCall<'a>) -> BoxFuture<'a, Result<Box<RawValue>, UpstreamError>> {
        drop(call);
        let message = format!("upstream `{}` has neither resources nor prompts", self.id());
        let error = UpstreamError::new(ErrorSource::Unsupported, Retry::Never, message);
        Box::pin(std::future::ready(Err(error)))
    }

    /// Begins (or ends) watching one of its resources; `false` where it tells of no changes. Begun as often as
    /// ended.
    fn watch(&self, uri: &str, on: bool) -> bool {
        let _ = (uri, on);
        false
    }

    /// Tells of watched resources that changed, by their addresses at the upstream.
    fn updates(&self) -> Option<broadcast::Receiver<Arc<str>>> {
        None
    }

    /// Ends its connections and processes.
    fn close(&self) -> BoxFuture<'_, ()>;
}
