//! The use cases of jobs: how one stands, its end, the list of a caller's own.
//!
//! A job is its caller's alone, and only while that caller may know of the tool and is not refused it: one that
//! is unknown, expired, another caller's or of a hidden tool is one answer.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::call::{ErrorCode, ToolError, ToolOutcome, ToolResult};
use crate::catalog::TaskSupport;
use crate::clock::rfc3339;
use crate::jobs::{INPUT_REQUIRED, Job, JobState, JobView, Progress};
use crate::json::{self, JsonText, Object};
use crate::limits::JOB_ANSWER_TIME;
use crate::policy::{Decision, Reason, ScopeChallenge, Standing};
use crate::snapshot::MetaTool;

use super::view::View;
use super::{CallAnswer, ClientQuestion, Gateway, RequestContext, failure, redact};

/// Jobs that a list brings at most.
pub const JOBS_LISTED_MAX: usize = 200;

/// A job asked for by its id.
#[derive(Debug, Clone)]
pub enum JobAnswer {
    /// It is the caller's.
    Job(Box<JobView>),
    /// There is no such job for this caller.
    Unknown,
    /// Policy refuses the tool by now.
    Refused(ToolError),
    /// More scopes are needed by now.
    Challenge(ScopeChallenge),
}

/// How a job looks as data, for models and for programs: `{job_id, tool, status, progress, …}`.
#[derive(Debug, Serialize)]
pub struct JobReport<'a> {
    job_id: &'a str,
    tool: &'a str,
    status: &'static str,
    progress: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ToolError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl<'a> JobReport<'a> {
    /// The report of a job on a server of this name.
    pub fn of(job: &'a JobView, server: &str) -> Self {
        let progress = job.progress.as_ref();
        let (result, error) = match job.outcome.as_deref() {
            Some(ToolOutcome::Completed(result)) => (Some(raw(result)), None),
            Some(ToolOutcome::Failed(error)) => (None, Some(error)),
            None => (None, None),
        };
        let next = (!job.state.is_ended()).then(|| match job.open.as_slice() {
            [] => format!(
                "Still under way: ask {server}_job_status with this job_id and wait_seconds for its result."
            ),
            open => {
                let needed: Vec<&str> = open.iter().map(|q| q.asking.capability()).collect();
                format!(
                    "It waits for an answer of its client. Ask {server}_job_status with this job_id from a client \
                     that can be asked ({}), within {} minutes.",
                    needed.join(", "),
                    JOB_ANSWER_TIME.as_secs() / 60
                )
            }
        });
        Self {
            job_id: &job.id,
            tool: &job.tool,
            status: job.status(),
            progress: progress.map_or(0.0, |p| p.done),
            total: progress.and_then(|p| p.total),
            message: progress.and_then(|p| p.message.as_deref()),
            created_at: rfc3339(job.created_ms),
            updated_at: rfc3339(job.updated_ms),
            expires_at: job.expires_ms.map(rfc3339),
            result,
            error,
            next,
        }
    }
}

/// The result of a tool as one member: its structured half, else its text.
fn raw(result: &ToolResult) -> Box<RawValue> {
    match &result.structured {
        Some(structured) => structured.raw().to_owned(),
        None => {
            RawValue::from_string(json::to_text(&result.text)).unwrap_or_else(|_| RawValue::NULL.to_owned())
        }
    }
}

/// A job as the result of a tool call. `counts`: a failed job makes a failed result.
pub(super) fn report(job: &JobView, server: &str, counts: bool) -> ToolResult {
    let text = json::to_text(&JobReport::of(job, server));
    let mut out = ToolResult { structured: JsonText::parse(text).ok(), ..ToolResult::default() };
    if let Some(ToolOutcome::Completed(result)) = job.outcome.as_deref() {
        out.blocks.clone_from(&result.blocks);
        out.meta.clone_from(&result.meta);
    }
    out.is_error = counts && matches!(job.state, JobState::Failed | JobState::Cancelled);
    out
}

/// The answer to an id that is no job of the caller's.
fn no_job() -> ToolError {
    ToolError::new(
        ErrorCode::NotFound,
        "There is no such job for you (any more). Results are kept for a while after a job's end; then make the \
         call again.",
    )
    .field("/job_id")
}

impl JobAnswer {
    /// The answer of a meta-tool. What a job asks is asked on, where this client can be asked.
    pub(super) fn into_call(self, ctx: &RequestContext, server: &str, counts: bool) -> CallAnswer {
        match self {
            Self::Job(job)
                if job.status() == INPUT_REQUIRED
                    && job.open.iter().all(|q| ctx.negotiated.can(q.asking)) =>
            {
                let question = ClientQuestion { requests: job.open, state: job.id.to_string() };
                CallAnswer::Ask(Box::new(question))
            }
            Self::Job(job) => CallAnswer::Outcome(ToolOutcome::Completed(report(&job, server, counts))),
            Self::Unknown => no_job().into(),
            Self::Refused(error) => error.into(),
            Self::Challenge(challenge) => CallAnswer::Challenge(challenge),
        }
    }
}

impl Gateway {
    /// How a job stands, once it has ended or `patience` is over. Progress goes to the context's sink meanwhile.
    pub async fn job(&self, ctx: &RequestContext, id: &str, patience: Duration) -> JobAnswer {
        let caller = &ctx.principal.subject;
        // Asked before waiting and after: a right may go in between.
        let Some(found) = self.jobs().find(caller, id).await else { return JobAnswer::Unknown };
        if let Err(refused) = self.may_see(ctx, &found) {
            return refused;
        }
        if found.state.is_ended() {
            return self.shown_to(ctx, found);
        }
        let tell = |p: &Progress| {
            if let Some(sink) = &ctx.progress {
                sink.report(p.done, p.total, p.message.as_deref());
            }
        };
        let waited = tokio::select! {
            waited = self.jobs().wait(caller, id, patience, tell) => waited,
            () = ctx.cancel.cancelled() => Some(found),
        };
        waited.map_or(JobAnswer::Unknown, |job| self.shown_to(ctx, job))
    }

    /// Brings a client's answers to what a job asks, and tells how it stands once it has ended, asks on or
    /// `patience` is over.
    pub async fn answer_job(
        &self,
        ctx: &RequestContext,
        id: &str,
        responses: &Object,
        patience: Duration,
    ) -> JobAnswer {
        let caller = &ctx.principal.subject;
        let Some(found) = self.jobs().find(caller, id).await else { return JobAnswer::Unknown };
        if let Err(refused) = self.may_see(ctx, &found) {
            return refused;
        }
        self.jobs().answer(caller, id, responses);
        self.job(ctx, id, patience).await
    }

    /// Asks for the end of a job, and tells how it stands once it has ended or `patience` is over.
    pub async fn cancel_job(&self, ctx: &RequestContext, id: &str, patience: Duration) -> JobAnswer {
        let caller = &ctx.principal.subject;
        let Some(found) = self.jobs().find(caller, id).await else { return JobAnswer::Unknown };
        if let Err(refused) = self.may_see(ctx, &found) {
            return refused;
        }
        self.jobs().cancel(caller, id).await;
        self.job(ctx, id, patience).await
    }

    /// The caller's jobs, newest first, without their results.
    pub async fn list_jobs(&self, ctx: &RequestContext) -> Vec<JobView> {
        let jobs = self.jobs().list(&ctx.principal.subject, JOBS_LISTED_MAX).await;
        jobs.into_iter().filter(|job| self.may_see(ctx, job).is_ok()).collect()
    }

    /// What a tool that this caller may know of says of tasks. docent's own tools never become one.
    pub fn task_support(&self, ctx: &RequestContext, tool: &str) -> Option<TaskSupport> {
        let view = View::of(self, ctx);
        if MetaTool::of(view.server(), tool).is_some() {
            return Some(TaskSupport::Forbidden);
        }
        view.find(tool).map(|(_, tool)| tool.tasks.unwrap_or(TaskSupport::Forbidden))
    }

    /// Whether a tool that this caller may know of is answered with a task only. Every call asks; what its caller sees
    /// is worked out for such tools only.
    pub fn requires_task(&self, ctx: &RequestContext, tool: &str) -> bool {
        let required = Some(TaskSupport::Required);
        let snapshot = self.snapshot();
        snapshot.catalog.lookup(tool).is_some_and(|(_, tool)| tool.tasks == required)
            && self.task_support(ctx, tool) == required
    }

    /// The same where somebody said it.
    pub fn task_said(&self, ctx: &RequestContext, tool: &str) -> Option<TaskSupport> {
        View::of(self, ctx).find(tool).and_then(|(_, tool)| tool.tasks)
    }

    /// Makes a job of a call that has ended already, for a client that is to read everything from one. Brings it as
    /// it stood at its beginning.
    pub async fn ended_job(
        &self,
        ctx: &RequestContext,
        tool: &str,
        outcome: ToolOutcome,
    ) -> Result<JobView, ToolError> {
        let view = View::of(self, ctx);
        let (_, tool) = view.find(tool).ok_or_else(failure::not_found)?;
        let read_only = tool.annotations.is_read_only();
        let job = Job::new(&ctx.principal.subject, &tool.id, read_only, self.clock().unix_ms());
        self.jobs().admit(&job).map_err(failure::too_many)?;
        let begun = job.view();
        if let Err(error) = self.jobs().show(&job).await {
            tracing::error!(job.id = &*job.id, error = %error, "a job cannot be written down");
        }
        self.jobs().finish(&job, outcome).await;
        Ok(begun)
    }

    fn shown_to(&self, ctx: &RequestContext, mut job: JobView) -> JobAnswer {
        match self.may_see(ctx, &job) {
            Err(refused) => refused,
            Ok(withheld) => {
                // What policy withholds today goes out of a result of yesterday too.
                if let (false, Some(ToolOutcome::Completed(result))) =
                    (withheld.is_empty(), job.outcome.as_deref())
                {
                    let mut result = result.clone();
                    redact::redact(&mut result, &withheld);
                    job.outcome = Some(Arc::new(ToolOutcome::Completed(result)));
                }
                JobAnswer::Job(Box::new(job))
            }
        }
    }

    /// The one decision on a job: that on its tool, as far as it is certain without arguments, which were
    /// decided on when the call was made. Brings the fields to withhold.
    fn may_see(&self, ctx: &RequestContext, job: &JobView) -> Result<Vec<Arc<str>>, JobAnswer> {
        let view = View::of(self, ctx);
        let Some((no, tool)) = view.find(&job.tool) else { return Err(JobAnswer::Unknown) };
        let decision = view.snapshot.policy.decide(view.catalog(), &ctx.principal, no, None);
        match decision {
            Decision::Permit(_) | Decision::Confirm(_) => {}
            Decision::Challenge(challenge) => return Err(JobAnswer::Challenge(challenge)),
            Decision::Deny { reason: Reason::Hidden, .. } => return Err(JobAnswer::Unknown),
            Decision::Deny { .. } if view.roster.standing(no) == Some(Standing::Conditional) => {}
            Decision::Deny { reason, .. } => {
                return Err(JobAnswer::Refused(failure::denial(&tool.wire_name, &reason)));
            }
        }
        view.snapshot
            .policy
            .redactions(&ctx.principal, tool)
            .map_err(|reason| JobAnswer::Refused(failure::denial(&tool.wire_name, &reason)))
    }
}
