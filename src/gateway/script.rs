//! What a running script may ask for: its own upstream, and other tools as the same caller.
//!
//! Every inner call goes the whole way of an outer one: roster, policy, arguments, shaping. Depth and number
//! are bounded over the whole tree of calls, so that tools which call each other come to an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;

use crate::audit::Via;
use crate::call::{
    Asking, ClientRequest, ErrorCode, HttpRequest, ToolCall, ToolError, ToolOutcome, ToolResult,
    UpstreamReply, UpstreamRequest,
};
use crate::json::Object;
use crate::projection::ScriptCalls;

use super::ask::Asked;
use super::invoke::Decided;
use super::view::View;
use super::{CallAnswer, Gateway, RequestContext, Taped, challenge_error, failure};

/// Scripts inside scripts.
const DEPTH_MAX: usize = 4;
/// Requests and calls of one outer call, over all depths.
const CALLS_MAX: usize = 64;

/// Where a call stands in a tree of calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Reentry {
    depth: usize,
    made: Arc<AtomicUsize>,
    via: Via,
    /// What the outermost script asked its client.
    asked: Arc<Asked>,
    /// Whether the tool is answered with a task only, and the client of this call takes none.
    lacks_task: bool,
}

impl Reentry {
    /// What a script at this depth may use. Fails outside of a runtime, which never is.
    pub(super) fn calls(
        self,
        gateway: Gateway,
        call: Decided,
        arguments: Object,
    ) -> Result<Arc<dyn ScriptCalls>, NoRuntime> {
        let runtime = Handle::try_current().map_err(|_outside| NoRuntime)?;
        Ok(Arc::new(Calls { gateway, call, arguments, place: self, runtime }))
    }

    /// What the outermost script asked its client.
    pub(super) fn asked(&self) -> Arc<Asked> {
        Arc::clone(&self.asked)
    }

    /// The place of a call by `tools/call`. `lacks_task`: its tool is answered with a task, which its client does not
    /// take.
    pub(super) fn direct(lacks_task: bool) -> Self {
        Self { lacks_task, ..Self::default() }
    }

    /// Whether the call cannot be answered in a form that its client takes.
    pub(super) fn lacks_task(&self) -> bool {
        self.lacks_task
    }

    /// The place of a call that came in by one of the dispatchers.
    pub(super) fn by(via: Via) -> Self {
        Self { via, ..Self::default() }
    }

    /// How the call came in, for the audit.
    pub(super) fn via(&self) -> Via {
        self.via
    }

    /// Whether a caller asked, not a script.
    pub(super) fn is_outermost(&self) -> bool {
        self.depth == 0
    }

    fn count(&self) -> Result<(), ToolError> {
        if self.made.fetch_add(1, Ordering::Relaxed) < CALLS_MAX {
            return Ok(());
        }
        Err(ToolError::new(
            ErrorCode::InternalError,
            format!("The script made more than {CALLS_MAX} calls and was stopped. Tell the operator."),
        ))
    }

    fn deeper(&self) -> Result<Self, ToolError> {
        if self.depth < DEPTH_MAX {
            return Ok(Self {
                depth: self.depth + 1,
                made: Arc::clone(&self.made),
                via: Via::Script,
                asked: Arc::clone(&self.asked),
                lacks_task: false,
            });
        }
        Err(ToolError::new(
            ErrorCode::InternalError,
            format!("Scripts call each other more than {DEPTH_MAX} deep. Tell the operator."),
        ))
    }
}

/// There is no runtime to wait in.
#[derive(Debug)]
pub(super) struct NoRuntime;

struct Calls {
    gateway: Gateway,
    call: Decided,
    /// The call's arguments, where its client can be asked: answers are bound to them.
    arguments: Object,
    place: Reentry,
    runtime: Handle,
}

impl ScriptCalls for Calls {
    fn fetch(&self, request: HttpRequest) -> Result<UpstreamReply, ToolError> {
        self.place.count()?;
        self.runtime.block_on(self.call.ask(&self.gateway, UpstreamRequest::Http(request)))
    }

    fn call(&self, tool: &str, arguments: Object) -> Result<Value, ToolError> {
        self.place.count()?;
        let deeper = self.place.deeper()?;
        let left = self.call.deadline.saturating_duration_since(self.gateway.clock().now());
        let call =
            ToolCall { tool: tool.to_owned(), arguments, wait: left, request_key: None, fields: Vec::new() };
        let view = View::over(&self.gateway, &self.call.ctx, Arc::clone(&self.call.snapshot));
        // Of a taped call only what its own script was answered counts.
        let ctx = RequestContext { tape: None, ..self.call.ctx.clone() };
        let answer = self.runtime.block_on(self.gateway.call_in(&ctx, &view, call, deeper));
        match answer {
            CallAnswer::Outcome(ToolOutcome::Completed(result)) => {
                let value = value(result)?;
                if let Some(tape) = &self.call.ctx.tape {
                    tape.add(Taped::Called(tool.to_owned(), value.clone()));
                }
                Ok(value)
            }
            CallAnswer::Outcome(ToolOutcome::Failed(e)) => Err(e),
            CallAnswer::UnknownTool => {
                // Named in the log only: the caller may not know of it.
                tracing::debug!(tool.name = tool, "a script calls a tool that is not there for its caller");
                Err(failure::not_found())
            }
            CallAnswer::Challenge(challenge) => Err(challenge_error(&challenge)),
            // Only the outermost call may ask its client.
            CallAnswer::Ask(_) | CallAnswer::CannotAsk(_) | CallAnswer::NeedsTask | CallAnswer::BadState => {
                Err(failure::internal())
            }
            // A call inside a script is waited for to its end.
            CallAnswer::Running(_) => Err(failure::internal()),
        }
    }

    fn ask(&self, questions: Vec<ClientRequest>) -> Result<Object, ToolError> {
        if !self.place.is_outermost() {
            let message = "Only a tool that was called itself may ask its client.";
            return Err(ToolError::new(ErrorCode::UnsupportedCapability, message));
        }
        self.place.asked.ask(&self.gateway, &self.call, &self.arguments, questions)
    }

    fn can_ask(&self, what: Asking) -> bool {
        self.place.is_outermost() && self.call.ctx.negotiated.can(what)
    }

    fn pause(&self, time: Duration) -> Result<(), ToolError> {
        let cancelled = &self.call.ctx.cancel;
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => Err(failure::cancelled(self.call.failed(&self.gateway))),
                () = tokio::time::sleep(time) => Ok(()),
            }
        })
    }

    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(sink) = &self.call.ctx.progress {
            sink.report(progress, total, message);
        }
    }
}

fn value(result: ToolResult) -> Result<Value, ToolError> {
    let text = result.text.unwrap_or_default();
    if result.is_error {
        let message = if text.is_empty() { "The inner tool reported a failure." } else { &text };
        return Err(ToolError::new(ErrorCode::UpstreamRejected, message));
    }
    Ok(result.structured.map_or(Value::String(text), |s| s.value()))
}
