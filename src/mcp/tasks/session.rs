//! Tasks of the session wire (MCP 2025-11-25, tasks): the client asks for one with its call, polls it, and gets what
//! came of it from `tasks/result`, which waits.
//!
//! Whatever comes of such a call comes as a task, a refusal as well: its client reads nothing else.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{TaskParams, is_fault, no_task, put_task};
use crate::call::{ToolCall, ToolOutcome};
use crate::catalog::TaskSupport;
use crate::gateway::{CallAnswer, ClientQuestion, JobAnswer};
use crate::jobs::{JobState, JobView};
use crate::json;
use crate::mcp::core::{Answer, Exchange, Mcp};
use crate::mcp::encode::{Form, ResultWriter, tool_outcome};
use crate::mcp::envelope::{Params, RequestId};
use crate::mcp::error::{INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError};
use crate::mcp::revision::Revision;

/// The member of `_meta` that names the task of a message.
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// How long one look of `tasks/result` at its task takes at most; then it looks again.
const LOOK: Duration = Duration::from_mins(1);
/// Between looks at a task that asks what this client cannot be asked: another one of the caller's may answer.
const ASKED_ELSEWHERE: Duration = Duration::from_millis(250);
/// How long `tasks/cancel` waits for the end that it asked for: a task that is said to be cancelled stays so.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

/// `params.task` of a call. The lifetime is the server's: a client that wants another learns the one it gets.
#[derive(Deserialize)]
struct Wanted {
    #[serde(rename = "ttl")]
    _ttl: Option<f64>,
}

impl Exchange {
    /// Whether its call is to be answered with a task of this revision.
    pub(in crate::mcp) fn wants_task(&self) -> bool {
        self.revision == Revision::V2025_11_25 && self.ctx.negotiated.tasks
    }
}

impl Mcp {
    /// A call that its client wants as a task, or that can be nothing else. Other revisions have no such thing, and
    /// what their clients say of it is passed over.
    pub(in crate::mcp) fn as_task(
        &self,
        exchange: &mut Exchange,
        mut call: ToolCall,
        params: &Params,
    ) -> Result<ToolCall, RpcError> {
        if exchange.revision != Revision::V2025_11_25 {
            return Ok(call);
        }
        let Some(gateway) = self.service.gateway() else { return Ok(call) };
        let wanted = params.member("task").filter(|raw| *raw != "null");
        if let Some(raw) = wanted {
            let read = json::parse_as::<Wanted>(raw.as_bytes(), raw.len());
            // A list would do as a struct, but it says nothing by name.
            if read.is_err() || !raw.starts_with('{') {
                let why = "wrong parameters: `task` is an object, and its `ttl` a number of milliseconds";
                return Err(RpcError::invalid_params(why));
            }
        }
        if wanted.is_none() {
            if !gateway.requires_task(&exchange.ctx, &call.tool) {
                return Ok(call);
            }
            let server = self.service.name();
            let why = format!(
                "this tool is answered with a task only: call it with `params.task`, or run it with {server}_run_tool"
            );
            return Err(RpcError::new(METHOD_NOT_FOUND, why));
        }
        match gateway.task_support(&exchange.ctx, &call.tool) {
            Some(TaskSupport::Forbidden) => {
                let why = "this tool is not answered with a task: call it without `params.task`";
                Err(RpcError::new(METHOD_NOT_FOUND, why))
            }
            Some(TaskSupport::Optional | TaskSupport::Required) => {
                exchange.ctx.negotiated.tasks = true;
                call.wait = Duration::ZERO;
                Ok(call)
            }
            // A tool that is unknown or hidden goes on to the answer of those.
            None => Ok(call),
        }
    }

    /// What came of a call before it was a task, as a task that has ended.
    pub(in crate::mcp) async fn ended_task(
        &self,
        exchange: &Exchange,
        tool: &str,
        outcome: ToolOutcome,
    ) -> CallAnswer {
        let Some(gateway) = self.service.gateway() else { return CallAnswer::Outcome(outcome) };
        match gateway.ended_job(&exchange.ctx, tool, outcome).await {
            Ok(job) => CallAnswer::Running(Box::new(job)),
            Err(error) => error.into(),
        }
    }

    /// The answer to a call that is a task now. Every task begins as a working one, however soon it ends.
    pub(super) fn created(&self, id: &RequestId, job: &JobView) -> Bytes {
        let begun = JobView { state: JobState::Running, open: Vec::new(), outcome: None, ..job.clone() };
        let mut task = ResultWriter::bare();
        put_task(&mut task, &begun, Revision::V2025_11_25);
        let mut writer = ResultWriter::new(id, 512);
        writer.member("task").extend_from_slice(&task.object());
        writer.finish(Revision::V2025_11_25, Some(&related(&job.id)), &self.server_info())
    }

    /// `tasks/cancel`: what has ended cannot be ended.
    pub(super) async fn cancel_core_task(&self, exchange: &Exchange, task: &str) -> JobAnswer {
        match self.service.job(&exchange.ctx, task, Duration::ZERO).await {
            JobAnswer::Job(job) if job.state.is_ended() => {
                let message = format!("the task has ended already: it is {}", job.state.as_str());
                JobAnswer::Refused(crate::call::ToolError::new(crate::call::ErrorCode::Conflict, message))
            }
            JobAnswer::Job(_) => self.service.cancel_job(&exchange.ctx, task, CANCEL_WAIT).await,
            other => other,
        }
    }

    /// `tasks/result`: waits for the end of a task and answers as its call would have. What the task asks meanwhile is
    /// asked here, where the client can be.
    pub(in crate::mcp) async fn task_result(
        &self,
        mut exchange: Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Answer {
        let task = match params.read::<TaskParams>() {
            Ok(params) => params.task,
            Err(error) => return Answer::Failed(error),
        };
        let job = loop {
            let job = match self.service.job(&exchange.ctx, &task, LOOK).await {
                JobAnswer::Job(job) => job,
                other => return no_task(other),
            };
            if job.state.is_ended() {
                break job;
            }
            if exchange.ctx.cancel.is_cancelled() {
                return Answer::Cancelled;
            }
            if !job.open.is_empty() && !self.ask_for(&mut exchange, &job).await {
                tokio::time::sleep(ASKED_ELSEWHERE).await;
            }
        };
        self.result_of(&exchange, id, &job)
    }

    /// Asks this client what a task asks, and brings the answers; whether it could.
    async fn ask_for(&self, exchange: &mut Exchange, job: &JobView) -> bool {
        if !job.open.iter().all(|q| exchange.ctx.negotiated.can(q.asking)) {
            return false;
        }
        let Some(asker) = exchange.asker.take() else { return false };
        let mut requests = job.open.clone();
        for request in &mut requests {
            request.params.insert("_meta".to_owned(), related(&job.id));
        }
        let question = ClientQuestion { requests, state: String::new() };
        let Some(reply) = asker.ask(&question, &exchange.ctx.cancel).await else { return false };
        // Kept only while it answers: a client that does not is not asked again.
        exchange.asker = Some(asker);
        self.service.answer_job(&exchange.ctx, &job.id, &reply.responses, Duration::ZERO).await;
        true
    }

    fn result_of(&self, exchange: &Exchange, id: &RequestId, job: &JobView) -> Answer {
        let Some(outcome) = job.outcome.as_deref() else { return no_task(JobAnswer::Unknown) };
        if let (true, ToolOutcome::Failed(error)) = (is_fault(job), outcome) {
            return Answer::Failed(RpcError::new(INTERNAL_ERROR, error.message.clone()));
        }
        let mut writer = ResultWriter::new(id, 1024);
        let is_canonical = exchange.ctx.negotiated.is_progressive();
        let form = Form { revision: exchange.revision, is_canonical };
        let outcome = self.told(&exchange.ctx, &job.tool, outcome.clone());
        let meta = tool_outcome(&mut writer, form, &job.tool, &exchange.ctx.correlation_id, outcome);
        let mut meta = meta.filter(Value::is_object).unwrap_or_else(|| json!({}));
        if let (Some(members), Value::Object(own)) = (meta.as_object_mut(), related(&job.id)) {
            members.extend(own);
        }
        Answer::Done(writer.finish(exchange.revision, Some(&meta), &self.server_info()))
    }
}

/// The `_meta` that names a task.
fn related(task: &str) -> Value {
    json!({ RELATED: { "taskId": task } })
}
