//! `/api/v1/jobs`: a caller's own jobs for programs that speak no MCP. The same tools answer as on the wire.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::admin::object;
use super::api::{call, identify};
use super::http::Server;
use super::reply::{Answer, json_value};
use crate::call::{ErrorCode, ToolError};
use crate::gateway::{JOBS_LISTED_MAX, JobReport, RequestContext};
use crate::json::Object;
use crate::snapshot::MetaTool;

/// `GET /api/v1/jobs`: the caller's jobs, newest first, without their results.
pub(super) async fn list(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let who = identify(&server.access.current(), request.headers()).await?;
    let ctx = RequestContext::new(who, server.mcp.correlation_id());
    let (service, jobs) = (server.mcp.service(), server.mcp.service().list_jobs(&ctx).await);
    let name = service.name();
    let rows: Vec<JobReport<'_>> = jobs.iter().map(|job| JobReport::of(job, &name)).collect();
    // A list that is as long as it may be is perhaps not whole.
    Ok(json_value(200, &json!({ "jobs": rows, "truncated": rows.len() >= JOBS_LISTED_MAX })))
}

/// `POST /api/v1/jobs`: runs a tool as the run tool does, with its arguments as the body. Unless `wait_seconds` says
/// otherwise the call is a job at once (202).
pub(super) async fn start(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    // Nobody unknown has four megabytes read.
    identify(&server.access.current(), &parts.headers).await?;
    let mut arguments = object(&parts.headers, body).await?;
    arguments.entry("wait_seconds").or_insert(Value::from(0));
    call(&server, &parts, MetaTool::RunTool, Ok(arguments)).await
}

/// `GET /api/v1/jobs/{id}?wait_seconds=…`: how a job stands, with its result once it has ended.
pub(super) async fn read(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    about(&server, MetaTool::JobStatus, id, request).await
}

/// `DELETE /api/v1/jobs/{id}`: asks for the end of a job, and tells how it stands then.
pub(super) async fn cancel(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    about(&server, MetaTool::JobCancel, id, request).await
}

async fn about(server: &Server, tool: MetaTool, id: String, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let arguments = arguments(id, parts.uri.query().unwrap_or_default());
    call(server, &parts, tool, arguments).await
}

/// The arguments of the job tools. A number that is none stays text, for the schema to refuse.
fn arguments(id: String, query: &str) -> Result<Object, ToolError> {
    let mut out = Object::new();
    out.insert("job_id".to_owned(), Value::from(id));
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = value.parse::<u64>().map_or_else(|_| Value::from(&*value), Value::from);
        if out.insert(name.to_string(), value).is_some() {
            let message = "Give every parameter once; the id stands in the path.";
            return Err(ToolError::new(ErrorCode::InvalidArgument, message));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_and_the_query_become_arguments() {
        let read = |query| arguments("job_1".to_owned(), query).map(Value::Object);
        assert_eq!(read("").unwrap(), json!({"job_id": "job_1"}));
        assert_eq!(read("wait_seconds=5").unwrap(), json!({"job_id": "job_1", "wait_seconds": 5}));
        assert_eq!(read("wait_seconds=x").unwrap(), json!({"job_id": "job_1", "wait_seconds": "x"}));
        assert!(read("job_id=job_2").is_err() && read("wait_seconds=1&wait_seconds=2").is_err());
    }
}
