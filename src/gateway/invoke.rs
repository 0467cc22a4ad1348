//! One decided call on its way: a slot of the upstream, the deadline, the caller's patience, the shaping.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::call::{ToolError, ToolOutcome, UpstreamReply, UpstreamRequest};
use crate::catalog::Tool;
use crate::files::Lent;
use crate::jobs::{Job, Slot};
use crate::json::Object;
use crate::limits;
use crate::policy::Permit;
use crate::projection::{CallFacts, Elapsed, Fields, Projection, ResultBudget, Shaped, unprojected};
use crate::snapshot::Snapshot;
use crate::upstream::{ErrorSource, Invocation, Retry, Upstream, UpstreamConfig, UpstreamError};

use super::failure::{self, Failed};
use super::script::Reentry;
use super::{ClientReply, Gateway, RequestContext, Taped, artifacts, redact, results};

/// After the deadline or a cancel, how long an adapter has to end in order: to kill a process group, to tell
/// an MCP server, or to hand over a reply that was already there.
const GRACE: Duration = limits::KILL_GRACE.saturating_mul(2);
/// Replies from here on are shaped off the async workers: parsing 256 KiB takes about a millisecond.
const SHAPE_INLINE_BYTES_MAX: usize = 256 * 1024;

/// A call that policy has permitted and whose arguments fit.
#[derive(Debug, Clone)]
pub(super) struct Decided {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) ctx: RequestContext,
    pub(super) tool: Arc<Tool>,
    pub(super) projection: Option<Arc<Projection>>,
    /// The members of the result that the caller asks for.
    pub(super) fields: Option<Arc<Fields>>,
    /// What policy withholds of the result.
    pub(super) withheld: Vec<Arc<str>>,
    pub(super) permit: Permit,
    /// Copies of files that the arguments name; gone when the last clone of this is.
    pub(super) lent: Arc<Lent>,
    /// The arguments' compact JSON as they came in, if nothing was put into them since.
    pub(super) arguments: Option<Arc<str>>,
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    /// How long the upstream may take, once there is a slot for the call.
    pub(super) timeout: Duration,
    /// Whether the call may wait for a slot beyond its deadline, since it can go on as a job.
    pub(super) may_queue: bool,
    /// The job whose work it is.
    pub(super) job: Option<Arc<Job>>,
}

impl Decided {
    pub(super) fn failed(&self, gateway: &Gateway) -> Failed<'_> {
        Failed {
            tool: &self.tool.wire_name,
            read_only: self.tool.annotations.is_read_only(),
            waited_ms: gateway.clock().now().saturating_duration_since(self.started).as_millis(),
        }
    }

    fn facts(&self, gateway: &Gateway, place: &Reentry) -> CallFacts {
        let settings = &self.snapshot.settings;
        // What a script calls is its own affair: only the result that a caller sees is kept.
        let keeping =
            place.is_outermost().then(|| results::keeping(&settings.name, &settings.budgets)).flatten();
        CallFacts {
            subject: Arc::clone(&self.ctx.principal.subject),
            claims: Arc::clone(&self.ctx.principal.claims),
            now_ms: gateway.clock().unix_ms(),
            correlation_id: Arc::clone(&self.ctx.correlation_id),
            tool: self.tool.id.shared(),
            fields: self.fields.clone(),
            keeping,
            elapsed: if self.is_plain() { self.elapsed(gateway) } else { Elapsed::default() },
        }
    }

    /// Whether the result takes the form of tools that have none of their own.
    fn is_plain(&self) -> bool {
        self.snapshot.is_plain(&self.tool, self.projection.as_deref())
    }

    fn elapsed(&self, gateway: &Gateway) -> Elapsed {
        let (clock, started) = (gateway.clock().clone(), self.started);
        Elapsed::by(move || clock.now().saturating_duration_since(started))
    }

    fn budget(&self) -> ResultBudget {
        self.snapshot.settings.budgets.of_result()
    }

    /// Begins anew with what the client answered; the time that a person took is not the call's.
    pub(super) fn answered(&mut self, gateway: &Gateway, reply: ClientReply) {
        self.ctx.reply = Some(Arc::new(reply));
        self.deadline = gateway.clock().now() + self.timeout;
    }

    /// Asks the upstream once. Waits for a slot, at most until the deadline, and never beyond it or a cancel.
    pub(super) async fn ask(
        &self,
        gateway: &Gateway,
        request: UpstreamRequest,
    ) -> Result<UpstreamReply, ToolError> {
        let Some(upstream) = self.snapshot.upstreams.get(self.tool.upstream.as_str()) else {
            return Err(failure::gone(&self.tool.wire_name));
        };
        let slot = self.slot(gateway).await?;
        // Boxed: thousands of calls may wait for their slots, and none of them needs the room for what comes then.
        Box::pin(self.send(gateway, upstream, request, slot)).await
    }

    /// Sends a request that has its slot.
    async fn send(
        &self,
        gateway: &Gateway,
        upstream: &Arc<dyn Upstream>,
        request: UpstreamRequest,
        _slot: Option<Slot>,
    ) -> Result<UpstreamReply, ToolError> {
        let taped = self.ctx.tape.as_ref().map(|tape| (tape, request.clone()));
        let deadline = self.deadline_from_now(gateway);
        let cancel = self.ctx.cancel.child_token();
        // A caller that is gone takes this future with it: the adapter still hears of it.
        let _told = cancel.clone().drop_guard();
        let call = Invocation {
            permit: &self.permit,
            name: &self.tool.name,
            request,
            deadline,
            cancel: cancel.clone(),
            progress: self.ctx.progress.clone(),
            correlation_id: &self.ctx.correlation_id,
            read_only: self.tool.annotations.is_read_only(),
            lent: &self.lent.paths,
            arguments: self.arguments.as_deref().filter(|_| self.projection.is_none()),
        };
        let asking = upstream.invoke(call);
        match self.within_time(gateway, asking, (deadline, &cancel)).await {
            Ended::Answered(answer) => {
                let config = self.snapshot.upstreams.config(self.tool.upstream.as_str());
                let secrets = config.map_or(&[][..], UpstreamConfig::echoes);
                match answer {
                    Ok(reply) => {
                        let reply = reply.without(secrets);
                        if let Some((tape, request)) = taped {
                            tape.add(Taped::Asked(request, Box::new(reply.clone())));
                        }
                        Ok(reply)
                    }
                    Err(e) => Err(self.upstream_failed(gateway, &e.without(secrets))),
                }
            }
            Ended::TimedOut => {
                Err(failure::timed_out(self.failed(gateway), "The upstream did not answer in time."))
            }
            Ended::Cancelled => Err(failure::cancelled(self.failed(gateway))),
        }
    }

    fn upstream_failed(&self, gateway: &Gateway, error: &UpstreamError) -> ToolError {
        tracing::debug!(
            tool.id = %self.tool.id,
            upstream.id = %self.tool.upstream,
            request.id = %self.ctx.correlation_id,
            error = error.message,
            error.detail = error.detail,
            "upstream call failed"
        );
        failure::upstream_failure(error, self.failed(gateway))
    }

    async fn slot(&self, gateway: &Gateway) -> Result<Option<Slot>, ToolError> {
        let Some(lane) = self.snapshot.lane(&self.tool.upstream) else { return Ok(None) };
        let caller = &self.ctx.principal.subject;
        if let Some(slot) = lane.try_enter(caller) {
            return Ok(Some(slot));
        }
        let turn = lane.wait(caller).map_err(|full| failure::queue_full(full, &self.tool.wire_name))?;
        let queued = |is| {
            if let Some(job) = &self.job {
                job.set_queued(is);
            }
        };
        let patience = if self.may_queue { limits::JOB_QUEUE_TIME } else { left(gateway, self.deadline) };
        queued(true);
        let slot = tokio::select! {
            slot = turn => Ok(slot),
            () = tokio::time::sleep(patience) => Err(failure::too_busy(self.failed(gateway))),
            // Nothing was sent: a cancelled write is as harmless as a read here.
            () = self.ctx.cancel.cancelled() => {
                Err(failure::cancelled(Failed { read_only: true, ..self.failed(gateway) }))
            }
        };
        queued(false);
        // Before anything is sent: after a crash this job must not be taken for one that only waited.
        if let (Some(job), Ok(_)) = (&self.job, &slot)
            && let Err(error) = Box::pin(gateway.jobs().began(job)).await
        {
            tracing::error!(job.id = &*job.id, error = %error, "a job cannot be written down, so it is not sent");
            return Err(failure::not_kept());
        }
        slot
    }

    /// Until when the upstream may take. A job's time begins with its slot: it may have waited long for that.
    fn deadline_from_now(&self, gateway: &Gateway) -> Instant {
        if self.may_queue { gateway.clock().now() + self.timeout } else { self.deadline }
    }

    async fn within_time(
        &self,
        gateway: &Gateway,
        asking: impl Future<Output = Result<UpstreamReply, UpstreamError>>,
        (deadline, cancel): (Instant, &CancellationToken),
    ) -> Ended {
        tokio::pin!(asking);
        let late = tokio::select! {
            // What is there is taken, and nothing else is asked then.
            biased;
            answer = &mut asking => return Ended::Answered(answer),
            () = tokio::time::sleep(left(gateway, deadline)) => Ended::TimedOut,
            () = self.ctx.cancel.cancelled() => Ended::Cancelled,
        };
        cancel.cancel();
        match tokio::time::timeout(GRACE, asking).await {
            // It was there after all, or the adapter knows that nothing was sent.
            Ok(Ok(reply)) => Ended::Answered(Ok(reply)),
            Ok(Err(e)) if e.retry == Retry::Safe => match late {
                // The adapter heard of the deadline as a cancel; nobody gave up.
                Ended::TimedOut if e.source_kind == ErrorSource::Cancelled => {
                    let message = "The upstream did not answer in time.".to_owned();
                    Ended::Answered(Err(UpstreamError { source_kind: ErrorSource::Timeout, message, ..e }))
                }
                _ => Ended::Answered(Err(e)),
            },
            Ok(Err(_)) | Err(_) => late,
        }
    }

    /// The whole way of a permitted call: request, upstream, shape.
    pub(super) async fn carry_out(&self, gateway: &Gateway, arguments: Object, depth: Reentry) -> Shaped {
        let facts = self.facts(gateway, &depth);
        match self.projection.clone() {
            Some(p) if p.is_script() => Box::pin(self.run_script(gateway, p, arguments, facts, depth)).await,
            Some(p) => match request(&p, &arguments, &facts).await {
                Ok(request) => match self.ask(gateway, request).await {
                    Ok(mut reply) => {
                        if p.is_plain() {
                            self.keep_artifacts(gateway, &mut reply).await;
                        }
                        Box::pin(self.shape(Some(p), reply, arguments, facts)).await
                    }
                    Err(e) => failed(e),
                },
                Err(e) => failed(e),
            },
            None => match self.ask(gateway, UpstreamRequest::Arguments(arguments)).await {
                Ok(mut reply) => {
                    self.keep_artifacts(gateway, &mut reply).await;
                    Box::pin(self.shape(None, reply, Object::new(), facts)).await
                }
                Err(e) => failed(e),
            },
        }
    }

    async fn keep_artifacts(&self, gateway: &Gateway, reply: &mut UpstreamReply) {
        if artifacts::may_be_in(reply) {
            Box::pin(gateway.keep_artifacts(&self.snapshot, &self.ctx, &self.tool, reply)).await;
        }
    }

    async fn shape(
        &self,
        projection: Option<Arc<Projection>>,
        mut reply: UpstreamReply,
        arguments: Object,
        facts: CallFacts,
    ) -> Shaped {
        if projection.as_ref().is_none_or(|p| p.is_plain()) {
            // Before anything is cut: fields can be found in JSON only, and half of it is none.
            redact::reply(&mut reply, &self.withheld);
        }
        let budget = self.budget();
        let long = projection.as_ref().is_some_and(|p| p.has_script())
            || reply_bytes(&reply) > SHAPE_INLINE_BYTES_MAX;
        let shape = move || match &projection {
            Some(p) => p.shape(&reply, &arguments, &facts, &budget),
            None => unprojected(&reply, &facts, &budget),
        };
        if !long {
            return shape();
        }
        off_the_workers(shape).await.unwrap_or_else(failed)
    }

    async fn run_script(
        &self,
        gateway: &Gateway,
        projection: Arc<Projection>,
        arguments: Object,
        facts: CallFacts,
        depth: Reentry,
    ) -> Shaped {
        let budget = self.budget();
        let of = Failed { waited_ms: 0, ..self.failed(gateway) };
        let busy = failure::too_busy(of);
        let kept = if self.ctx.negotiated.can_be_asked() { arguments.clone() } else { Object::new() };
        let Ok(calls) = depth.calls(gateway.clone(), self.clone(), kept) else { return failed(busy) };
        let run = move || projection.run(&arguments, &facts, &calls, &budget);
        off_the_workers(run).await.unwrap_or_else(failed)
    }
}

fn left(gateway: &Gateway, deadline: Instant) -> Duration {
    deadline.saturating_duration_since(gateway.clock().now())
}

#[derive(Debug)]
enum Ended {
    Answered(Result<UpstreamReply, UpstreamError>),
    TimedOut,
    Cancelled,
}

pub(super) fn failed(error: ToolError) -> Shaped {
    Shaped {
        outcome: ToolOutcome::Failed(error),
        bytes_in: 0,
        bytes_out: 0,
        omitted: Vec::new(),
        kept: None,
        detail: None,
    }
}

fn reply_bytes(reply: &UpstreamReply) -> usize {
    use crate::call::ReplyBody;
    match &reply.body {
        ReplyBody::Empty => 0,
        ReplyBody::Bytes { bytes, .. } => bytes.len(),
        ReplyBody::Mcp(mcp) => mcp.content.iter().chain(&mcp.structured).map(|raw| raw.get().len()).sum(),
        ReplyBody::Value(value) => crate::json::encoded_len(value),
    }
}

/// What to ask, worked out off the async workers where a script does it.
async fn request(
    projection: &Arc<Projection>,
    arguments: &Object,
    facts: &CallFacts,
) -> Result<UpstreamRequest, ToolError> {
    if !projection.has_script() {
        return projection.request(arguments, facts);
    }
    let (projection, arguments, facts) = (Arc::clone(projection), arguments.clone(), facts.clone());
    off_the_workers(move || projection.request(&arguments, &facts)).await?
}

/// Runs what may take milliseconds on a thread of its own.
async fn off_the_workers<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ToolError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| {
        tracing::error!(error = %e, "shaping a request or result panicked");
        failure::internal()
    })
}

#[cfg(test)]
mod tests {
    use super::super::work::Work;
    use super::*;

    /// What a waiting job takes is mostly the states of its call: what comes after the wait is boxed.
    #[test]
    fn a_call_that_waits_is_small() {
        fn size<A, F>(_: impl Fn(A) -> F) -> usize {
            size_of::<F>()
        }
        type Carried = (&'static Decided, &'static Gateway, Object, Reentry);
        let run = size(|(work, gateway): (Work, Gateway)| work.run(gateway));
        let carry = size(|(of, gateway, arguments, place): Carried| of.carry_out(gateway, arguments, place));
        let sizes = [("run", run, 3_072), ("carry_out", carry, 2_048)];
        for (name, bytes, max) in sizes {
            assert!(bytes <= max, "{name} takes {bytes} bytes while it waits");
        }
    }
}
