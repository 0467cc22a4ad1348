//! `tools/list` and `tools/call`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::ask;
use super::core::{Answer, Exchange, Mcp};
use super::counters::Outcome;
use super::discover::put_caching;
use super::encode::{Form, ResultWriter, tool_outcome};
use super::envelope::{Params, RequestId, read_object};
use super::error::{INTERNAL_ERROR, MISSING_CAPABILITY, RpcError};
use super::extensions::tasks_required;
use super::outlive::Outliving;
use crate::call::{ToolCall, ToolOutcome};
use crate::gateway::{CallAnswer, RequestContext, cannot_ask, needs_task};
use crate::json::{self, Object};
use crate::limits::{CALL_WAIT, CANCEL_GRACE};

/// Rounds of questions of one call: a script may ask for one thing after the other, but not without end.
const ASK_ROUNDS_MAX: usize = 8;

/// What a call must have, for telling what is wrong with one.
#[derive(Deserialize)]
struct CallParams {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "arguments")]
    _arguments: Option<IgnoredAny>,
}

/// What the `_meta` of a call asks for besides.
#[derive(Default, Deserialize)]
struct CallMeta {
    /// The members of the result that are wanted, as `fields` of `run_tool`.
    #[serde(rename = "dev.docent/fields", default)]
    fields: Vec<String>,
    /// The caller's own key for a call that it may repeat, in the spellings that are in use.
    #[serde(rename = "dev.docent/request_key")]
    own: Option<Value>,
    request_key: Option<Value>,
    #[serde(rename = "requestKey")]
    camel: Option<Value>,
}

impl CallMeta {
    /// The key as text; one that is no text is refused, not dropped: its sender relies on it.
    fn key(&mut self) -> Result<Option<String>, RpcError> {
        match self.own.take().or(self.request_key.take()).or(self.camel.take()) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(key)) => Ok(Some(key)),
            Some(_) => Err(RpcError::invalid_params("`_meta.request_key` must be a string")),
        }
    }
}

/// The name and the arguments of a call; none is an empty object.
pub(super) fn call_arguments(params: &Params) -> Result<(String, Object), RpcError> {
    read_call(params).map(|(name, arguments, _)| (name, arguments))
}

/// The same with what its `_meta` asks for.
fn read_call(params: &Params) -> Result<(String, Object, CallMeta), RpcError> {
    let name = params.text_member("name").filter(|_| !params.repeats());
    let Some(name) = name else {
        // Missing, repeated or no text: this says which.
        params.read::<CallParams>()?;
        return Err(RpcError::invalid_params("wrong parameters: a member stands there twice"));
    };
    let arguments = params.member("arguments").filter(|a| *a != "null");
    let arguments = arguments.map(read_object).transpose()?.unwrap_or_default();
    let meta = params.member("_meta").filter(|m| *m != "null");
    let meta = meta.map(|raw| json::parse_as::<CallMeta>(raw.as_bytes(), raw.len())).transpose();
    let meta = meta.map_err(|e| RpcError::invalid_params(format!("wrong parameters: `_meta`: {e}")))?;
    Ok((name, arguments, meta.unwrap_or_default()))
}

impl Mcp {
    /// `tools/list`: one page, concatenated from prepared entries.
    pub(super) fn list_tools(
        &self,
        exchange: &Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Result<Bytes, RpcError> {
        let cursor = params.cursor()?;
        let page = self.service.list_tools(&exchange.ctx, cursor.as_deref())?;
        let bytes = page.tools.iter().map(|t| t.description.len() + t.input_schema.len() + 256).sum();
        let mut writer = ResultWriter::new(id, bytes);
        self.entries.write(writer.member("tools"), exchange.revision, &page);
        writer.put_next(page.next_cursor.as_deref());
        put_caching(&mut writer, exchange.revision);
        Ok(writer.finish(exchange.revision, None, &self.server_info()))
    }

    /// `tools/call`. A connection that goes away does not take the call along: only `exchange.ctx.cancel` ends
    /// it, and then it may still tell its upstream.
    pub(super) async fn call_tool(
        self: &Arc<Self>,
        mut exchange: Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Answer {
        let call = read_call(params).and_then(|(tool, arguments, mut meta)| {
            let request_key = meta.key()?;
            Ok(ToolCall { tool, arguments, wait: CALL_WAIT, request_key, fields: meta.fields })
        });
        let call = call.and_then(|call| self.as_task(&mut exchange, call, params));
        let call = match call {
            Ok(call) => call,
            Err(error) => return Answer::Failed(error),
        };
        let cancel = exchange.ctx.cancel.clone();
        let running = AssertUnwindSafe(Arc::clone(self).run_call(exchange, id.clone(), call)).catch_unwind();
        let mut running = Outliving::new(running);
        let answer = tokio::select! {
            biased;
            answer = &mut running => answer,
            () = cancel.cancelled() => return Answer::Cancelled,
        };
        answer.unwrap_or_else(|_panic| {
            // The panic hook has logged what and where.
            tracing::error!("a call ended abnormally");
            Answer::Failed(RpcError::new(
                INTERNAL_ERROR,
                "a fault inside docent ended the call; its log says more",
            ))
        })
    }

    /// Makes a call, and again with the person's answer where it asks for one and the client can be asked now.
    async fn settle(&self, exchange: &mut Exchange, call: ToolCall) -> CallAnswer {
        let Some(asker) = exchange.asker.take() else {
            return self.service.call_tool(&exchange.ctx, call).await;
        };
        for _ in 0..ASK_ROUNDS_MAX {
            let answer = self.service.call_tool(&exchange.ctx, call.clone()).await;
            let CallAnswer::Ask(question) = answer else { return answer };
            let Some(given) = asker.ask(&question, &exchange.ctx.cancel).await else { break };
            exchange.ctx.reply = Some(Arc::new(given));
        }
        // Nobody answered, or nothing that is an answer: from here on as with a client that cannot ask.
        exchange.ctx.negotiated = exchange.ctx.negotiated.without_asking();
        exchange.ctx.reply = None;
        self.service.call_tool(&exchange.ctx, call).await
    }

    /// An outcome as its caller reads it.
    pub(super) fn told(&self, ctx: &RequestContext, tool: &str, outcome: ToolOutcome) -> ToolOutcome {
        match self.service.gateway() {
            Some(gateway) => gateway.told(ctx, tool, outcome),
            None => outcome,
        }
    }

    async fn run_call(self: Arc<Self>, mut exchange: Exchange, id: RequestId, call: ToolCall) -> Answer {
        let tool = call.tool.clone();
        let cancel = exchange.ctx.cancel.clone();
        let answer = tokio::select! {
            biased;
            answer = self.settle(&mut exchange, call) => answer,
            () = given_up(&cancel) => CallAnswer::UnknownTool,
        };
        let answer = match answer {
            // The session wire has no error for it: the model reads what is missing.
            CallAnswer::CannotAsk(missing) if !exchange.revision.is_stateless() => {
                cannot_ask(&missing).into()
            }
            CallAnswer::NeedsTask if !exchange.revision.is_stateless() => {
                needs_task(&self.service.name()).into()
            }
            answer => answer,
        };
        if exchange.ctx.cancel.is_cancelled() {
            self.counters.count(Outcome::Cancelled);
            return Answer::Cancelled;
        }
        let answer = match answer {
            CallAnswer::Outcome(outcome) if exchange.wants_task() => {
                self.ended_task(&exchange, &tool, outcome).await
            }
            answer => answer,
        };
        match answer {
            CallAnswer::UnknownTool => {
                self.counters.count(Outcome::Unknown);
                Answer::Failed(RpcError::unknown_tool())
            }
            CallAnswer::Challenge(challenge) => {
                self.counters.count(Outcome::Challenged);
                Answer::Challenge(challenge)
            }
            CallAnswer::Ask(question) if exchange.revision.is_stateless() => {
                self.counters.count(Outcome::Asked);
                Answer::Done(ask::input_required(&id, &question, &self.server_info()))
            }
            // `settle` has asked whom it could.
            CallAnswer::Ask(_) => Answer::Failed(RpcError::new(INTERNAL_ERROR, "nobody can be asked here")),
            CallAnswer::CannotAsk(missing) => {
                self.counters.count(Outcome::Failed);
                Answer::Failed(RpcError::missing_capability(&missing))
            }
            CallAnswer::NeedsTask => {
                self.counters.count(Outcome::Failed);
                let why =
                    "this tool is answered with a task, and the client did not declare that it takes one";
                Answer::Failed(RpcError::new(MISSING_CAPABILITY, why).data(tasks_required()))
            }
            CallAnswer::BadState => {
                self.counters.count(Outcome::Failed);
                let why = "`requestState` is not one that was given for this call: send the call without it";
                Answer::Failed(RpcError::invalid_params(why))
            }
            CallAnswer::Running(job) => {
                self.counters.count(Outcome::Running);
                Answer::Done(self.running(&exchange, &id, &tool, &job))
            }
            CallAnswer::Outcome(outcome) => self.ended(&exchange, &id, &tool, outcome),
        }
    }

    /// The answer to a call that has ended.
    fn ended(&self, exchange: &Exchange, id: &RequestId, tool: &str, outcome: ToolOutcome) -> Answer {
        self.counters.count(match &outcome {
            ToolOutcome::Completed(result) if !result.is_error => Outcome::Completed,
            _ => Outcome::Failed,
        });
        let outcome = self.told(&exchange.ctx, tool, outcome);
        let mut writer = ResultWriter::new(id, outcome_bytes(&outcome));
        let form =
            Form { revision: exchange.revision, is_canonical: exchange.ctx.negotiated.is_progressive() };
        let meta = tool_outcome(&mut writer, form, tool, &exchange.ctx.correlation_id, outcome);
        Answer::Done(writer.finish(exchange.revision, meta.as_ref(), &self.server_info()))
    }
}

/// A guess at the bytes of an outcome: the structured half stands twice in it, once escaped.
fn outcome_bytes(outcome: &ToolOutcome) -> usize {
    match outcome {
        ToolOutcome::Completed(r) => {
            let blocks: usize = r.blocks.iter().map(|b| b.get().len() + 1).sum();
            r.structured.as_ref().map_or(0, |s| s.len() * 9 / 4)
                + r.text.as_ref().map_or(0, |t| t.len() * 9 / 8)
                + blocks
        }
        ToolOutcome::Failed(_) => 1024,
    }
}

/// Waits for a cancellation and the grace after it.
async fn given_up(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(CANCEL_GRACE).await;
}
