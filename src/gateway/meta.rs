//! docent's own tools: the same gate, the same budgets, the same errors as every other tool.

pub(super) mod args;
mod describe;
mod entries;
mod overview;
mod search;
mod surface;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::audit::Via;
use crate::call::{ErrorCode, ToolCall, ToolError, ToolOutcome, ToolResult};
use crate::json::{self, JsonText, Object};
use crate::limits;
use crate::snapshot::MetaTool;

use super::script::Reentry;
use super::view::View;
use super::{CallAnswer, Gateway, RequestContext, arguments, failure};

pub(super) use describe::describe;
pub(super) use entries::{entries, input_schema};

/// Runs a meta-tool.
pub(super) async fn call(
    gateway: &Gateway,
    ctx: &RequestContext,
    view: View,
    tool: MetaTool,
    mut given: Object,
) -> CallAnswer {
    let name = tool.wire_name(view.server());
    if let Err(e) = arguments::check(gateway.validators(), &name, &input_schema(tool), &mut given, &[]) {
        return e.into();
    }
    let answer = match tool {
        MetaTool::SearchTools => {
            let usage = gateway.usage_views(ctx, &view).await;
            search::think(ctx, &view, &given).await;
            search::search(gateway, ctx, &view, &usage, &given)
        }
        MetaTool::DescribeTool => describe(&view, &ctx.principal, &given),
        MetaTool::ListCategories => overview::categories(&view),
        MetaTool::ReadResult => gateway.read_result(&view, &ctx.principal, &given).await,
        MetaTool::UploadFile => gateway.upload_file(ctx, &given).await,
        MetaTool::ListFiles => gateway.list_files(&view, ctx, &given).await,
        MetaTool::Surface => surface::surface(gateway, &view, &given),
        MetaTool::Context => overview::context(&view, &ctx.principal),
        MetaTool::JobStatus | MetaTool::JobCancel => return job(gateway, ctx, &view, tool, &given).await,
        MetaTool::RunTool => return run(gateway, ctx, view, given, false).await,
        MetaTool::RunReadonlyTool => return run(gateway, ctx, view, given, true).await,
    };
    match answer {
        Ok(structured) => CallAnswer::Outcome(ToolOutcome::Completed(ToolResult {
            structured: Some(structured),
            ..ToolResult::default()
        })),
        Err(e) => e.into(),
    }
}

/// How a job stands, or its end.
async fn job(
    gateway: &Gateway,
    ctx: &RequestContext,
    view: &View,
    tool: MetaTool,
    given: &Object,
) -> CallAnswer {
    let id = args::text(given, "job_id").unwrap_or_default();
    let patience = args::number(given, "wait_seconds").map(Duration::from_secs);
    if tool == MetaTool::JobCancel {
        let patience = patience.unwrap_or(entries::CANCEL_WAIT);
        // Whoever wants its end is not asked on.
        let deaf = RequestContext { negotiated: ctx.negotiated.without_asking(), ..ctx.clone() };
        return gateway.cancel_job(ctx, id, patience).await.into_call(&deaf, view.server(), false);
    }
    let patience = patience.unwrap_or_default();
    let found = match ctx.reply.as_deref() {
        // Once it is answered the job is given a moment: most have little left to do.
        Some(reply) => gateway.answer_job(ctx, id, &reply.responses, patience.max(limits::TASK_WAIT)).await,
        None => gateway.job(ctx, id, patience).await,
    };
    found.into_call(ctx, view.server(), true)
}

/// Both dispatchers: the named tool goes the way of a direct call.
async fn run(
    gateway: &Gateway,
    ctx: &RequestContext,
    view: View,
    mut given: Object,
    only_reading: bool,
) -> CallAnswer {
    let wanted = args::text(&given, "tool").unwrap_or_default().to_owned();
    if MetaTool::of(view.server(), &wanted).is_some() {
        let e = ToolError::new(
            ErrorCode::InvalidArgument,
            format!("`{wanted}` is one of the server's own tools: call it directly."),
        );
        return e.field("/tool").into();
    }
    let wait = args::number(&given, "wait_seconds").map_or(limits::RUN_WAIT, Duration::from_secs);
    let via = if only_reading { Via::RunReadonly } else { Via::Run };
    let arguments = match given.remove("arguments") {
        Some(Value::Object(map)) => map,
        _ => Object::new(),
    };
    let fields = given.get("fields").and_then(Value::as_array);
    let fields = fields.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let request_key = args::text(&given, "request_key").map(str::to_owned);
    let call = ToolCall { tool: wanted, arguments, wait, request_key, fields };
    if let Some((_, tool)) = view.find(&call.tool)
        && only_reading
        && !tool.annotations.is_read_only()
    {
        let e = ToolError::new(
            ErrorCode::InvalidArgument,
            format!(
                "`{}` is not marked as reading only: run it with `{}`, if a change is meant.",
                tool.wire_name,
                MetaTool::RunTool.wire_name(view.server()),
            ),
        );
        let mut record = gateway.begin_record(ctx, &view, &call, via);
        record.tool(tool);
        return record.refused(e.field("/tool").into());
    }
    let name = call.tool.clone();
    match gateway.call_in(ctx, &view, call, Reentry::by(via)).await {
        // A result is due here, not a protocol error.
        CallAnswer::UnknownTool => failure::not_found().into(),
        CallAnswer::Outcome(outcome) => CallAnswer::Outcome(gateway.told(ctx, &name, outcome)),
        answer => answer,
    }
}

/// An answer as JSON text.
fn text<T: Serialize>(answer: &T) -> Result<JsonText, ToolError> {
    JsonText::parse(json::to_text(answer))
        .map_err(|e| ToolError::new(ErrorCode::InternalError, e.to_string()))
}
