//! What the wire asks of the house: the use cases as a port, and the gateway behind it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::audit::Audit;
use crate::cache::ReplayCounts;
use crate::call::ToolCall;
use crate::gateway::{
    AgentAnswer, AgentPage, CallAnswer, Gateway, JobAnswer, ListError, Readiness, RequestContext, Saved,
    Surface, ToolPage,
};
use crate::id::Generation;
use crate::jobs::{JobCounts, JobView};
use crate::json::Object;

use super::params::{HeaderParam, KEYWORD, header_params};

/// A call under way.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = CallAnswer> + Send + 'a>>;

/// A job that is looked at.
pub type JobFuture<'a> = Pin<Box<dyn Future<Output = JobAnswer> + Send + 'a>>;

/// The caller's jobs on their way.
pub type JobsFuture<'a> = Pin<Box<dyn Future<Output = Vec<JobView>> + Send + 'a>>;

/// The use cases that have a method on the wire. [`Gateway`] is the one behind a server; tests of the wire
/// bring their own, so that every answer can be provoked.
pub trait Service: Send + Sync + 'static {
    /// The server's name, for `serverInfo`.
    fn name(&self) -> Arc<str>;
    /// What a model should know before its first call; empty for nothing.
    fn instructions(&self, ctx: &RequestContext) -> String;
    /// One page of what this caller is shown.
    fn list_tools(&self, ctx: &RequestContext, cursor: Option<&str>) -> Result<ToolPage, ListError>;
    /// One call.
    fn call_tool<'a>(&'a self, ctx: &'a RequestContext, call: ToolCall) -> CallFuture<'a>;
    /// One page of the agents that this caller may know of.
    fn list_agents(&self, ctx: &RequestContext, cursor: Option<&str>) -> Result<AgentPage, ListError>;
    /// Opens an agent.
    fn get_agent(&self, ctx: &RequestContext, name: &str) -> AgentAnswer;
    /// The digest of the agents that this caller is shown now.
    fn agent_surface(&self, ctx: &RequestContext) -> Surface;
    /// How a job of this caller stands, once it has ended or `patience` is over.
    fn job<'a>(&'a self, _ctx: &'a RequestContext, _id: &'a str, _patience: Duration) -> JobFuture<'a> {
        Box::pin(std::future::ready(JobAnswer::Unknown))
    }
    /// The same after bringing answers to what it asks.
    fn answer_job<'a>(
        &'a self,
        _ctx: &'a RequestContext,
        _id: &'a str,
        _responses: &'a Object,
        _patience: Duration,
    ) -> JobFuture<'a> {
        Box::pin(std::future::ready(JobAnswer::Unknown))
    }
    /// The same after asking for its end.
    fn cancel_job<'a>(
        &'a self,
        _ctx: &'a RequestContext,
        _id: &'a str,
        _patience: Duration,
    ) -> JobFuture<'a> {
        Box::pin(std::future::ready(JobAnswer::Unknown))
    }
    /// The caller's jobs, newest first.
    fn list_jobs<'a>(&'a self, _ctx: &'a RequestContext) -> JobsFuture<'a> {
        Box::pin(std::future::ready(Vec::new()))
    }
    /// What is counted of jobs and of equal calls.
    fn job_counts(&self) -> (JobCounts, ReplayCounts) {
        Default::default()
    }
    /// The arguments of a tool that a client has to repeat as `Mcp-Param-*` headers. Nothing for a tool that
    /// is unknown or hidden, so that the header checks betray neither.
    fn header_params(&self, ctx: &RequestContext, tool: &str) -> Vec<HeaderParam>;
    /// The digest of what this caller is shown now.
    fn surface(&self, ctx: &RequestContext) -> Surface;
    /// Tells when surfaces may have changed.
    fn changes(&self) -> watch::Receiver<Generation>;
    /// Whether the server does its work.
    fn readiness(&self) -> Readiness;
    /// What shaping saved so far, tool by tool.
    fn saved(&self) -> Vec<Saved> {
        Vec::new()
    }
    /// The audit: the newest records and how it does.
    fn audit(&self) -> Audit {
        Audit::default()
    }
    /// The gateway itself, for what it offers besides tools and for the operators' API; a test's double has none.
    fn gateway(&self) -> Option<&Gateway> {
        None
    }
}

impl Service for Gateway {
    fn name(&self) -> Arc<str> {
        self.name()
    }

    fn instructions(&self, ctx: &RequestContext) -> String {
        self.instructions(ctx)
    }

    fn list_tools(&self, ctx: &RequestContext, cursor: Option<&str>) -> Result<ToolPage, ListError> {
        self.list_tools(ctx, cursor)
    }

    fn call_tool<'a>(&'a self, ctx: &'a RequestContext, call: ToolCall) -> CallFuture<'a> {
        Box::pin(self.call_tool(ctx, call))
    }

    fn list_agents(&self, ctx: &RequestContext, cursor: Option<&str>) -> Result<AgentPage, ListError> {
        self.list_agents(ctx, cursor)
    }

    fn get_agent(&self, ctx: &RequestContext, name: &str) -> AgentAnswer {
        self.get_agent(ctx, name)
    }

    fn agent_surface(&self, ctx: &RequestContext) -> Surface {
        self.agent_surface(ctx)
    }

    fn job<'a>(&'a self, ctx: &'a RequestContext, id: &'a str, patience: Duration) -> JobFuture<'a> {
        Box::pin(self.job(ctx, id, patience))
    }

    fn answer_job<'a>(
        &'a self,
        ctx: &'a RequestContext,
        id: &'a str,
        responses: &'a Object,
        patience: Duration,
    ) -> JobFuture<'a> {
        Box::pin(self.answer_job(ctx, id, responses, patience))
    }

    fn cancel_job<'a>(&'a self, ctx: &'a RequestContext, id: &'a str, patience: Duration) -> JobFuture<'a> {
        Box::pin(self.cancel_job(ctx, id, patience))
    }

    fn list_jobs<'a>(&'a self, ctx: &'a RequestContext) -> JobsFuture<'a> {
        Box::pin(self.list_jobs(ctx))
    }

    fn job_counts(&self) -> (JobCounts, ReplayCounts) {
        (self.jobs().counts(), self.replays().counts())
    }

    fn header_params(&self, ctx: &RequestContext, tool: &str) -> Vec<HeaderParam> {
        self.shown_schema_with(ctx, tool, KEYWORD).map(|s| header_params(&s.value())).unwrap_or_default()
    }

    fn surface(&self, ctx: &RequestContext) -> Surface {
        self.surface(ctx)
    }

    fn changes(&self) -> watch::Receiver<Generation> {
        self.changes()
    }

    fn saved(&self) -> Vec<Saved> {
        self.saved()
    }

    fn readiness(&self) -> Readiness {
        self.readiness()
    }

    fn audit(&self) -> Audit {
        self.audit().clone()
    }

    fn gateway(&self) -> Option<&Gateway> {
        Some(self)
    }
}
