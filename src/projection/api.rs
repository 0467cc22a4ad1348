//! What goes into and comes out of a projection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::keep::{Keeping, Kept};
use super::select::Fields;
use crate::call::{
    Asking, ClientRequest, ErrorCode, HttpRequest, Omission, ToolError, ToolOutcome, UpstreamReply,
};
use crate::diagnostic::SourceFile;
use crate::json::Object;
use crate::limits;

/// The texts of one pack that shaping needs, read by whoever may touch files.
#[derive(Debug, Clone, Default)]
pub struct PackSources {
    /// `scripts/<upstream>/*.rhai` by file name (`git.rhai`).
    pub scripts: BTreeMap<String, SourceFile>,
    /// `scripts/<upstream>/schemas/*.json`, each an object with `$defs`, in name order.
    pub schemas: Vec<SourceFile>,
    /// `scripts/lib/*.rhai`, compiled into every script of every pack, in name order.
    pub library: Vec<SourceFile>,
}

/// Facts of a call that a script may read as `ctx`.
#[derive(Debug, Clone, Default)]
pub struct CallFacts {
    /// The caller's name.
    pub subject: Arc<str>,
    /// The caller's claims that policy lets through.
    pub claims: Arc<Object>,
    /// Milliseconds since the epoch when the call began.
    pub now_ms: u64,
    /// The call's correlation id.
    pub correlation_id: Arc<str>,
    /// The tool's id.
    pub tool: Arc<str>,
    /// The members that the caller asked for; no script sees them.
    pub fields: Option<Arc<Fields>>,
    /// Whether and how what is left out of the result is kept; no script sees it.
    pub keeping: Option<Keeping>,
    /// How long the call has taken, for a result that says so; no script sees it.
    pub elapsed: Elapsed,
}

/// How long a call has taken so far. Whoever has a clock gives it; by itself (recorded cases) it is always 0.
#[derive(Clone, Default)]
pub struct Elapsed(Option<Arc<dyn Fn() -> Duration + Send + Sync>>);

impl Elapsed {
    /// Reads the time from `read`.
    pub fn by(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    /// Milliseconds until now.
    pub(super) fn ms(&self) -> u64 {
        let so_far = self.0.as_ref().map_or(Duration::ZERO, |read| read());
        u64::try_from(so_far.as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Elapsed").field(&self.0.is_some()).finish()
    }
}

/// How large a result may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultBudget {
    /// Bytes of the structured half.
    pub result_bytes: usize,
    /// Bytes of unprojected text.
    pub text_bytes: usize,
    /// Records of a page.
    pub records: usize,
}

impl Default for ResultBudget {
    fn default() -> Self {
        Self {
            result_bytes: limits::RESULT_BYTES,
            text_bytes: limits::TEXT_BYTES,
            records: limits::RESULT_RECORDS,
        }
    }
}

/// A shaped reply and its receipt.
#[derive(Debug, Clone)]
pub struct Shaped {
    /// The result or the failure.
    pub outcome: ToolOutcome,
    /// Bytes of the reply.
    pub bytes_in: usize,
    /// Bytes of the result.
    pub bytes_out: usize,
    /// What was left out.
    pub omitted: Vec<Omission>,
    /// The whole, where a part was left out and results are kept: to be stored, nobody else has it.
    pub kept: Option<Kept>,
    /// For the operator's log, never for the caller: what exactly went wrong in a script or a schema.
    pub detail: Option<String>,
}

/// What a running script may ask of the gateway. Called from the thread that runs the script, which may
/// block: run projections that [`run`](super::Projection::is_script) off the async workers.
pub trait ScriptCalls: Send + Sync {
    /// One request to the tool's own upstream, below its `base_url`.
    fn fetch(&self, request: HttpRequest) -> Result<UpstreamReply, ToolError>;

    /// One call of another tool as the same caller: through policy, validation and projection.
    /// Gives the structured result, or the text as a JSON string where there is none.
    fn call(&self, tool: &str, arguments: Object) -> Result<Value, ToolError>;

    /// Asks the client for things that only it has: an answer of the person in front of it, a message of its
    /// model, its folders. Gives the answers by key; an error ends the script, which runs again from its
    /// beginning once they have come.
    fn ask(&self, questions: Vec<ClientRequest>) -> Result<Object, ToolError> {
        drop(questions);
        Err(ToolError::new(ErrorCode::UnsupportedCapability, "There is no client here that could be asked."))
    }

    /// Whether the client declared that it can be asked for this.
    fn can_ask(&self, _what: Asking) -> bool {
        false
    }

    /// Waits; an error ends the script before its time: whoever made the call wants it no more.
    fn pause(&self, time: Duration) -> Result<(), ToolError> {
        std::thread::sleep(time);
        Ok(())
    }

    /// Progress for the caller, where it asked for it.
    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>);
}

impl fmt::Debug for dyn ScriptCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptCalls")
    }
}
