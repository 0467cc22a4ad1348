//! `tools/call`: the one way in for direct calls, for both dispatchers and for scripts that call tools.
//!
//! In this order: what the caller may know of, what policy says, whether the arguments fit, then the upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use crate::audit::{Dedup, Via};
use crate::call::{ErrorCode, ToolCall, ToolError, ToolOutcome, ToolResult};
use crate::catalog::{Availability, TaskSupport, Tool};
use crate::id::ToolNo;
use crate::json::{JsonText, Object, cut};
use crate::limits::{CALL_WAIT, TASK_WAIT};
use crate::policy::{Decision, Permit, Reason};
use crate::projection::{Fields, Projection, Shaped};
use crate::snapshot::MetaTool;

use super::file_arguments::FileArgument;
use super::invoke::Decided;
use super::record::code_of;
use super::script::Reentry;
use super::view::View;
use super::work::{Came, Work, mark_deduplicated, replay_key};
use super::{CallAnswer, Gateway, RequestContext, arguments, failure, meta, redact};

impl Gateway {
    /// One call: a catalog tool or a meta-tool, by id or wire name.
    pub async fn call_tool(&self, ctx: &RequestContext, call: ToolCall) -> CallAnswer {
        let view = View::of(self, ctx);
        let snapshot = Arc::clone(&view.snapshot);
        let answer = match MetaTool::of(view.server(), &call.tool) {
            // A dispatcher is recorded as what it runs.
            Some(tool @ (MetaTool::RunTool | MetaTool::RunReadonlyTool)) => match dispatched(call) {
                // Boxed: a direct call need not carry the room of these.
                Ok(arguments) => Box::pin(meta::call(self, ctx, view, tool, arguments)).await,
                Err(e) => e.into(),
            },
            Some(tool) => {
                let mut record = self.begin_record(ctx, &view, &call, Via::Direct);
                record.own(&tool.wire_name(view.server()));
                let answer = Box::pin(meta::call(self, ctx, view, tool, call.arguments)).await;
                record.answered(&answer);
                answer
            }
            None => {
                let (call, lacks_task) = with_patience(ctx, &view, call);
                self.call_in(ctx, &view, with_key(&view, call), Reentry::direct(lacks_task)).await
            }
        };
        match answer {
            // Some clients cannot read a 403: to them it is told as a result.
            CallAnswer::Challenge(challenge) if snapshot.settings.tells_step_up_as_result(&ctx.principal) => {
                failure::challenge_error(&challenge).into()
            }
            answer => answer,
        }
    }

    /// A call of a catalog tool in a view that was taken before.
    pub(super) async fn call_in(
        &self,
        ctx: &RequestContext,
        view: &View,
        call: ToolCall,
        place: Reentry,
    ) -> CallAnswer {
        let mut record = self.begin_record(ctx, view, &call, place.via());
        let Some((no, tool)) = view.find(&call.tool) else { return record.refused(CallAnswer::UnknownTool) };
        record.tool(tool);
        let mut call = call;
        let resolved = match self.resolve_results(view, &ctx.principal, &mut call.arguments).await {
            Ok(resolved) => resolved,
            Err(e) => return record.refused(e.into()),
        };
        let files = match self.file_arguments(ctx, &call.arguments).await {
            Ok(files) => files,
            Err(e) => return record.refused(e.into()),
        };
        if let Err(e) = self.renew_owned(&view.snapshot).await {
            return record.refused(e.into());
        }
        let decision = view.snapshot.policy.decide(view.catalog(), &ctx.principal, no, Some(&call.arguments));
        record.decided(&decision);
        if let Some(shadow) = &view.snapshot.shadow {
            let at = self.clock().unix_ms();
            shadow.observe(view.catalog(), &ctx.principal, no, &call.arguments, (&decision, at));
        }
        let (permit, confirmed) =
            match self.permitted(ctx, view, (no, tool), (&mut call, &files), &place, decision).await {
                Ok(permitted) => permitted,
                Err(answer) => return record.refused(*answer),
            };
        // Asked before anything is sent: a policy that cannot say what to withhold stops the call.
        let withheld = match view.snapshot.policy.redactions(&ctx.principal, tool) {
            Ok(withheld) => withheld,
            Err(reason) => {
                let decision = Decision::Deny { reason, rule: permit.rule().clone() };
                record.decided(&decision);
                return record.refused(Self::refuse(ctx, tool, decision));
            }
        };
        let (is_outermost, asked) = (place.is_outermost(), place.asked());
        let hints = view.snapshot.plan(no).map(|plan| &plan.hints);
        let is_listed = hints.is_some_and(|h| h.dedup.is_some());
        let (caller, given) = (&ctx.principal.subject, call.request_key.as_deref());
        let key = match replay_key(caller, tool.id.as_str(), given, is_listed, &call.arguments) {
            // What a script calls is part of its own call, and repeated or not with that.
            Ok(key) => key.filter(|_| is_outermost),
            Err(e) => return record.refused(e.into()),
        };
        let mut decided = match self.decided(ctx, view, no, permit, (&call, is_outermost), withheld) {
            Ok(decided) => decided,
            Err(e) => return record.refused(e.into()),
        };
        decided.arguments = record.take_arguments().filter(|_| !resolved && files.is_empty()).map(Arc::from);
        let projection = decided.projection.clone();
        let shaping = (tool, projection.as_deref());
        if !files.is_empty() {
            match Box::pin(self.put_files(&files, &mut call.arguments, shaping, view)).await {
                Ok(lent) => decided.lent = Arc::new(lent),
                Err(e) => return record.refused(e.into()),
            }
        }
        let (patience, becomes_job) = (call.wait, decided.may_queue);
        let work = Work { decided, no, arguments: call.arguments, confirmed, place, record };
        let came = match key {
            Some(key) => self.run_once(ctx, work, key, patience).await,
            None if becomes_job => self.run_or_hand_over(ctx, work, patience).await,
            None => Came::Outcome(work.run(self.clone()).await, None),
        };
        if let Some(answer) = asked.take().filter(|_| is_outermost) {
            // The script waits for its client: nothing has come of the call yet.
            return answer;
        }
        answer(ctx, came, projection.filter(|_| is_outermost).as_deref())
    }

    /// The permit that a decision is or comes to, with the `_meta` of the confirmation behind it; else what its
    /// caller is told.
    async fn permitted(
        &self,
        ctx: &RequestContext,
        view: &View,
        (no, tool): (ToolNo, &Tool),
        (call, files): (&mut ToolCall, &[FileArgument]),
        place: &Reentry,
        decision: Decision,
    ) -> Result<(Permit, Option<Value>), Box<CallAnswer>> {
        if matches!(decision, Decision::Permit(_) | Decision::Confirm(_)) {
            // Nobody is asked about a call that cannot be made.
            if place.lacks_task() {
                return Err(Box::new(CallAnswer::NeedsTask));
            }
            self.ready_to_send(tool, call, files).map_err(|e| Box::new(e.into()))?;
        }
        match decision {
            Decision::Permit(permit) => Ok((permit, None)),
            Decision::Confirm(asked) => {
                // Boxed: most calls need no confirmation and need not carry its state.
                let confirmed =
                    Box::pin(self.confirmed(ctx, view, (no, tool), call, (&asked, place.is_outermost())));
                let confirmed = confirmed.await?;
                place.asked().confirmed.store(confirmed.by_client, Ordering::Relaxed);
                Ok((confirmed.permit, confirmed.meta))
            }
            other => Err(Box::new(Self::refuse(ctx, tool, other))),
        }
    }

    fn ready_to_send(
        &self,
        tool: &Tool,
        call: &mut ToolCall,
        files: &[FileArgument],
    ) -> Result<(), ToolError> {
        let places: Vec<&str> = files.iter().map(|f| &*f.place).collect();
        let schema = &tool.input_schema;
        arguments::check(self.validators(), &tool.wire_name, schema, &mut call.arguments, &places)?;
        match &tool.availability {
            Availability::Available => Ok(()),
            Availability::Unavailable(reason) => Err(ToolError::new(
                ErrorCode::UpstreamUnavailable,
                format!("`{}` cannot be run here: {}.", tool.wire_name, cut(reason, 500)),
            )),
        }
    }

    fn decided(
        &self,
        ctx: &RequestContext,
        view: &View,
        no: ToolNo,
        permit: Permit,
        (call, is_outermost): (&ToolCall, bool),
        withheld: Vec<Arc<str>>,
    ) -> Result<Decided, ToolError> {
        let plan = view.snapshot.plan(no);
        let projection = plan.and_then(|p| p.projection.clone());
        let fields = fields(&call.fields, projection.as_deref())?;
        let started = self.clock().now();
        let timeout = plan.map_or(call.wait, |p| p.hints.timeout);
        Ok(Decided {
            snapshot: Arc::clone(&view.snapshot),
            ctx: ctx.clone(),
            tool: view.catalog().share(no).ok_or_else(failure::not_found)?,
            lent: Arc::default(),
            arguments: None,
            projection,
            fields,
            withheld,
            permit,
            started,
            // What a script calls ends with the script; what a caller calls may outlive its patience.
            deadline: started + if is_outermost { timeout } else { timeout.min(call.wait) },
            timeout,
            may_queue: is_outermost && call.wait < timeout,
            job: None,
        })
    }

    /// Takes out what policy withholds. A result that then breaks the schema its tool advertises is marked as
    /// an error, since clients refuse it otherwise; nothing is invented to fill the gap.
    pub(super) fn withhold(&self, tool: &Tool, result: &mut ToolResult, fields: &[Arc<str>]) {
        if fields.is_empty() {
            return;
        }
        redact::redact(result, fields);
        let (Some(schema), Some(structured)) = (&tool.output_schema, &result.structured) else { return };
        let fits = self.validators().check(schema, &structured.value()).is_ok_and(|p| p.is_empty());
        if !fits && !result.is_error {
            tracing::warn!(tool.id = %tool.id, "a policy withholds a field that the output schema requires");
            result.is_error = true;
        }
    }

    /// What a caller is told of a call that policy did not permit.
    pub(super) fn refuse(ctx: &RequestContext, tool: &Tool, decision: Decision) -> CallAnswer {
        match decision {
            Decision::Challenge(challenge) => CallAnswer::Challenge(challenge),
            Decision::Confirm(asked) => failure::confirmation(&tool.wire_name, &asked).into(),
            Decision::Deny { reason: Reason::Hidden, .. } => CallAnswer::UnknownTool,
            Decision::Deny { reason, rule } => {
                if let Reason::PolicyFault(detail) = &reason {
                    tracing::error!(
                        tool.id = %tool.id,
                        principal.id = %ctx.principal.subject,
                        policy.rule = %rule,
                        error = %detail,
                        "a policy could not be evaluated"
                    );
                }
                failure::denial(&tool.wire_name, &reason).into()
            }
            // The caller of this function has taken permits out; a second look never sends a call.
            Decision::Permit(_) => failure::internal().into(),
        }
    }

    /// The one event of a call. No argument, no result, no token is in it.
    pub(super) fn tell(&self, of: &Decided, shaped: &Shaped) {
        let (ctx, tool) = (&of.ctx, &of.tool);
        let code = code_of(&shaped.outcome);
        if shaped.is_success() && shaped.bytes_in > 0 {
            self.savings().count(tool.id.as_str(), shaped.bytes_in, shaped.bytes_out);
        }
        let duration = self.clock().now().saturating_duration_since(of.started);
        tracing::debug!(
            tool.id = %tool.id,
            upstream.id = %tool.upstream,
            principal.id = %ctx.principal.subject,
            request.id = %ctx.correlation_id,
            policy.rule = %of.permit.rule(),
            snapshot.generation = of.snapshot.generation.0,
            error.code = code,
            duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            bytes_in = shaped.bytes_in,
            bytes_out = shaped.bytes_out,
            omitted = shaped.omitted.len(),
            "tool called"
        );
        if let Some(detail) = &shaped.detail {
            tracing::warn!(
                tool.id = %tool.id,
                request.id = %ctx.correlation_id,
                error = detail,
                "a projection or schema failed"
            );
        }
    }
}

/// The members that a caller asks for, where it names any.
fn fields(names: &[String], projection: Option<&Projection>) -> Result<Option<Arc<Fields>>, ToolError> {
    if names.is_empty() {
        return Ok(None);
    }
    let fields = Fields::parse(names.iter().map(String::as_str))?;
    projection.map_or(Ok(()), |p| p.check_fields(&fields))?;
    Ok(Some(Arc::new(fields)))
}

/// A direct call with its patience: the tool's own where it says one, little where the client takes a task, none where
/// the tool is answered with a task only. And whether it is such a tool's while its client takes no task.
fn with_patience(ctx: &RequestContext, view: &View, mut call: ToolCall) -> (ToolCall, bool) {
    // A command is patient by itself.
    if call.wait != CALL_WAIT {
        return (call, false);
    }
    let Some((no, tool)) = view.find(&call.tool) else { return (call, false) };
    if tool.tasks == Some(TaskSupport::Required) {
        call.wait = Duration::ZERO;
        return (call, !ctx.negotiated.tasks);
    }
    call.wait = view.snapshot.plan(no).and_then(|plan| plan.hints.wait).unwrap_or(CALL_WAIT);
    if ctx.negotiated.tasks && tool.tasks != Some(TaskSupport::Forbidden) {
        call.wait = call.wait.min(TASK_WAIT);
    }
    (call, false)
}

/// The arguments of a dispatcher, with what its own `_meta` says of the call that it makes: a key there is no less
/// meant than one among the arguments.
fn dispatched(call: ToolCall) -> Result<Object, ToolError> {
    let mut arguments = call.arguments;
    if let Some(key) = call.request_key {
        let given = arguments.entry("request_key").or_insert_with(|| Value::from(key.as_str()));
        if *given != key.as_str() {
            let message = "`_meta` and the arguments name two different request keys. Give one of them.";
            return Err(ToolError::new(ErrorCode::InvalidArgument, message).field("/request_key"));
        }
    }
    if !call.fields.is_empty() {
        arguments.entry("fields").or_insert_with(|| Value::from(call.fields));
    }
    Ok(arguments)
}

/// A key among the arguments of a tool that has no such argument is the call's: some clients cannot send `_meta`.
fn with_key(view: &View, mut call: ToolCall) -> ToolCall {
    const NAME: &str = "request_key";
    if call.request_key.is_none() && call.arguments.get(NAME).is_some_and(Value::is_string) {
        let properties = view.find(&call.tool).map(|(_, tool)| tool.input_schema.value());
        let has_own = properties.is_some_and(|s| s.pointer("/properties/request_key").is_some());
        if let (false, Some(Value::String(key))) = (has_own, call.arguments.get(NAME)) {
            call.request_key = Some(key.clone());
            call.arguments.shift_remove(NAME);
        }
    }
    call
}

impl Gateway {
    /// An outcome as its caller reads it: a failure in the envelope of the tool, where this caller may know of
    /// it, under the name that its successes have (seed 001: `operation` is the tool's name, not a route).
    /// `tool` is an id or a wire name.
    pub fn told(&self, ctx: &RequestContext, tool: &str, outcome: ToolOutcome) -> ToolOutcome {
        let ToolOutcome::Failed(error) = &outcome else { return outcome };
        let view = View::of(self, ctx);
        let Some((no, tool)) = view.find(tool) else { return outcome };
        let projection = view.snapshot.plan(no).and_then(|plan| plan.projection.clone());
        let own = projection.and_then(|projection| projection.failure(error, &ctx.correlation_id));
        let envelope = own.unwrap_or_else(|| error.envelope(&tool.name, &ctx.correlation_id));
        ToolOutcome::Completed(ToolResult {
            structured: Some(JsonText::of(&envelope)),
            is_error: true,
            ..ToolResult::default()
        })
    }
}

/// What the caller reads of it. A script that called the tool wants an error itself, not in its envelope.
fn answer(ctx: &RequestContext, came: Came, projection: Option<&Projection>) -> CallAnswer {
    match came {
        Came::Running(job) => CallAnswer::Running(job),
        Came::Outcome(mut outcome, dedup) => {
            if matches!(dedup, Some(Dedup::Replayed | Dedup::Joined)) {
                mark_deduplicated(&mut outcome);
            }
            match (outcome, projection) {
                (ToolOutcome::Failed(e), Some(projection)) => in_envelope(projection, e, ctx),
                (outcome, _) => CallAnswer::Outcome(outcome),
            }
        }
    }
}

/// A failure of a tool that promises an envelope is told in it, so that it fits the schema as well.
fn in_envelope(projection: &Projection, error: ToolError, ctx: &RequestContext) -> CallAnswer {
    match projection.failure(&error, &ctx.correlation_id) {
        Some(value) => CallAnswer::Outcome(ToolOutcome::Completed(ToolResult {
            structured: Some(JsonText::of(&value)),
            is_error: true,
            ..ToolResult::default()
        })),
        None => error.into(),
    }
}

/// Adds members to the `_meta` of a result.
pub(super) fn add_meta(result: &mut ToolResult, members: Option<Value>) {
    let Some(Value::Object(members)) = members else { return };
    if let Value::Object(meta) = result.meta.get_or_insert_with(|| Value::Object(Object::new())) {
        meta.extend(members);
    }
}
