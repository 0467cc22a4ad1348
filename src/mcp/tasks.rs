//! Tasks: jobs as the extension `io.modelcontextprotocol/tasks` of the stateless wire shows them (SEP-2663), and as
//! the core of 2025-11-25 does (`session.rs`).
//!
//! On the stateless wire the server alone decides when a call becomes a task: when it has not ended after a moment,
//! and only for a request that declared the extension. What a tool asks its client after that stands in the task
//! until `tasks/update` answers it.

mod session;

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::input_requests;
use super::core::{Answer, Exchange, Mcp};
use super::encode::{Form, ResultWriter, tool_outcome};
use super::envelope::{Params, RequestId};
use super::error::{INTERNAL_ERROR, MISSING_CAPABILITY, RpcError};
use super::extensions::tasks_required;
use super::revision::Revision;
use crate::call::{ErrorCode, ToolOutcome, ToolResult};
use crate::catalog::TaskSupport;
use crate::clock::rfc3339_ms;
use crate::gateway::{JobAnswer, JobReport};
use crate::jobs::{INPUT_REQUIRED, JobState, JobView};
use crate::json::{self, JsonText, Object};
use crate::limits::{JOB_KEPT, TASK_POLL};
use crate::snapshot::MetaTool;

#[derive(Deserialize)]
struct TaskParams {
    #[serde(rename = "taskId")]
    task: String,
    /// Of `tasks/update`: answers by the keys of the task's `inputRequests`.
    #[serde(rename = "inputResponses", default)]
    responses: Object,
}

/// What a task is asked for.
#[derive(Clone, Copy)]
enum Ask {
    Get,
    Update,
    Cancel,
}

/// The status of a task. On the stateless wire a tool that failed has completed its task: `failed` is for faults of
/// the server.
fn status(job: &JobView, revision: Revision) -> &'static str {
    match job.state {
        JobState::Failed if !revision.is_stateless() => "failed",
        JobState::Queued | JobState::Running if !job.open.is_empty() => INPUT_REQUIRED,
        JobState::Queued | JobState::Running => "working",
        JobState::Cancelled => "cancelled",
        JobState::Completed => "completed",
        JobState::Failed if is_fault(job) => "failed",
        JobState::Failed => "completed",
    }
}

fn is_fault(job: &JobView) -> bool {
    matches!(job.outcome.as_deref(), Some(ToolOutcome::Failed(e)) if e.code == ErrorCode::InternalError)
}

/// The members that every task has.
fn put_task(writer: &mut ResultWriter, job: &JobView, revision: Revision) {
    let (ttl, interval) =
        if revision.is_stateless() { ("ttlMs", "pollIntervalMs") } else { ("ttl", "pollInterval") };
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    writer.put("taskId", &*job.id);
    writer.put("status", status(job, revision));
    if let Some(message) = job.progress.as_ref().and_then(|p| p.message.as_deref()) {
        writer.put("statusMessage", message);
    }
    writer.put("createdAt", &rfc3339_ms(job.created_ms));
    writer.put("lastUpdatedAt", &rfc3339_ms(job.updated_ms));
    // Counted from the beginning; the result is kept for that long after the end.
    writer.put(ttl, &millis(JOB_KEPT));
    writer.put(interval, &millis(TASK_POLL));
}

impl Mcp {
    /// The answer to a call that goes on as a job: a task for a direct call of a client that takes them, else a
    /// result that says so.
    pub(super) fn running(&self, exchange: &Exchange, id: &RequestId, tool: &str, job: &JobView) -> Bytes {
        let (revision, server) = (exchange.revision, self.service.name());
        if exchange.wants_task() {
            return self.created(id, job);
        }
        let forbids = || {
            let support = self.service.gateway().and_then(|g| g.task_said(&exchange.ctx, tool));
            support == Some(TaskSupport::Forbidden)
        };
        if exchange.ctx.negotiated.tasks && MetaTool::of(&server, tool).is_none() && !forbids() {
            let mut writer = ResultWriter::new(id, 512);
            put_task(&mut writer, job, revision);
            return writer.finish_as("task", revision, None, &self.server_info());
        }
        let report = JsonText::parse(json::to_text(&JobReport::of(job, &server)));
        let outcome = ToolOutcome::Completed(ToolResult { structured: report.ok(), ..ToolResult::default() });
        let mut writer = ResultWriter::new(id, 1024);
        let form = Form { revision, is_canonical: exchange.ctx.negotiated.is_progressive() };
        let meta = tool_outcome(&mut writer, form, tool, &exchange.ctx.correlation_id, outcome);
        writer.finish(revision, meta.as_ref(), &self.server_info())
    }

    /// `tasks/get`.
    pub(super) async fn get_task(&self, exchange: &Exchange, id: &RequestId, params: &Params) -> Answer {
        self.task(exchange, id, params, Ask::Get).await
    }

    /// `tasks/update`.
    pub(super) async fn update_task(&self, exchange: &Exchange, id: &RequestId, params: &Params) -> Answer {
        self.task(exchange, id, params, Ask::Update).await
    }

    /// `tasks/cancel`: acknowledged at once, for a task that has ended too.
    pub(super) async fn cancel_task(&self, exchange: &Exchange, id: &RequestId, params: &Params) -> Answer {
        self.task(exchange, id, params, Ask::Cancel).await
    }

    async fn task(&self, exchange: &Exchange, id: &RequestId, params: &Params, ask: Ask) -> Answer {
        if exchange.revision.is_stateless() && !exchange.ctx.negotiated.tasks {
            let why = "this method is for clients that declare the extension `io.modelcontextprotocol/tasks`";
            return Answer::Failed(RpcError::new(MISSING_CAPABILITY, why).data(tasks_required()));
        }
        let (task, responses) = match params.read::<TaskParams>() {
            Ok(params) => (params.task, params.responses),
            Err(error) => return Answer::Failed(error),
        };
        let now = Duration::ZERO;
        let found = match ask {
            Ask::Cancel if !exchange.revision.is_stateless() => self.cancel_core_task(exchange, &task).await,
            Ask::Cancel => self.service.cancel_job(&exchange.ctx, &task, now).await,
            Ask::Update if responses.values().any(|answer| !answer.is_object()) => {
                let why = "every member of `inputResponses` must be an object";
                return Answer::Failed(RpcError::invalid_params(why));
            }
            Ask::Update => self.service.answer_job(&exchange.ctx, &task, &responses, now).await,
            Ask::Get => self.service.job(&exchange.ctx, &task, now).await,
        };
        let job = match found {
            JobAnswer::Job(job) => job,
            other => return no_task(other),
        };
        let mut writer = ResultWriter::new(id, 1024);
        match ask {
            _ if !exchange.revision.is_stateless() => put_task(&mut writer, &job, exchange.revision),
            Ask::Get => self.put_whole(&mut writer, exchange, &job),
            Ask::Update | Ask::Cancel => {}
        }
        Answer::Done(writer.finish(exchange.revision, None, &self.server_info()))
    }

    /// A task with what it asks or what came of it.
    fn put_whole(&self, writer: &mut ResultWriter, exchange: &Exchange, job: &JobView) {
        put_task(writer, job, exchange.revision);
        if status(job, exchange.revision) == INPUT_REQUIRED {
            writer.put("inputRequests", &input_requests(&job.open));
        }
        self.put_end(writer, exchange, job);
    }

    /// The tasks among `ids` that are this caller's, and what each is now.
    pub(super) async fn followed_tasks(&self, exchange: &Exchange, ids: &[String]) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        for id in ids {
            if let Some(task) = self.task_now(exchange, id).await {
                found.push((id.clone(), task));
            }
        }
        found
    }

    /// A task of this caller as `tasks/get` shows it: what `notifications/tasks` tells.
    pub(super) async fn task_now(&self, exchange: &Exchange, id: &str) -> Option<Value> {
        let JobAnswer::Job(job) = self.service.job(&exchange.ctx, id, Duration::ZERO).await else {
            return None;
        };
        let mut writer = ResultWriter::bare();
        self.put_whole(&mut writer, exchange, &job);
        let task = writer.object();
        json::parse(&task, task.len()).ok()
    }

    /// What came of a task that has ended: a result, or the fault that took its place.
    fn put_end(&self, writer: &mut ResultWriter, exchange: &Exchange, job: &JobView) {
        let Some(outcome) = job.outcome.as_deref() else { return };
        if let (true, ToolOutcome::Failed(error)) = (is_fault(job), outcome) {
            writer.put("error", &RpcError::new(INTERNAL_ERROR, error.message.clone()));
            return;
        }
        if status(job, exchange.revision) != "completed" {
            return;
        }
        let mut inner = ResultWriter::bare();
        let form =
            Form { revision: exchange.revision, is_canonical: exchange.ctx.negotiated.is_progressive() };
        let correlation_id = &exchange.ctx.correlation_id;
        let outcome = self.told(&exchange.ctx, &job.tool, outcome.clone());
        let meta = tool_outcome(&mut inner, form, &job.tool, correlation_id, outcome);
        if let Some(meta) = meta {
            inner.put("_meta", &meta);
        }
        writer.member("result").extend_from_slice(&inner.object());
    }
}

/// The answer where there is no task to show.
fn no_task(found: JobAnswer) -> Answer {
    match found {
        JobAnswer::Challenge(challenge) => Answer::Challenge(challenge),
        JobAnswer::Refused(error) => Answer::Failed(RpcError::invalid_params(error.message)),
        // One that is there has been shown.
        JobAnswer::Unknown | JobAnswer::Job(_) => Answer::Failed(unknown_task()),
    }
}

fn unknown_task() -> RpcError {
    RpcError::invalid_params("there is no such task (any more)").data(json!({ "reason": "unknown_task" }))
}
