//! Plain HTTP for programs that speak no MCP: the same caller, the same policies, the same answers.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::access::Access;
use super::http::{Server, caller, host};
use super::reply::{Answer, Refusal, failure, json_value, with_authenticate};
use crate::call::{ErrorCode, ToolCall, ToolError, ToolOutcome};
use crate::gateway::{CallAnswer, JobReport, RequestContext, challenge_error};
use crate::json::Object;
use crate::limits::CALL_WAIT;
use crate::policy::Principal;
use crate::snapshot::MetaTool;

/// Parameters of a search that are numbers in the tool's schema.
const NUMBERS: [&str; 2] = ["limit", "budget_tokens"];

/// `GET /api/v1/search?q=…`: the structured half of the search tool's result. `q` is its `query` (several are
/// `queries`), every other parameter has the name that the tool's schema gives it, and is checked by that.
pub(super) async fn search(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    call(&server, &parts, MetaTool::SearchTools, arguments(parts.uri.query().unwrap_or_default())).await
}

/// Calls one of docent's own tools as whoever asks, once that is known; wrong arguments are told only then.
pub(super) async fn call(
    server: &Server,
    parts: &Parts,
    tool: MetaTool,
    arguments: Result<Object, ToolError>,
) -> Answer {
    let access = server.access.current();
    let who = identify(&access, &parts.headers).await?;
    let arguments = arguments.map_err(|error| failure(status(error.code), &error))?;
    let service = server.mcp.service();
    let tool = tool.wire_name(&service.name()).to_string();
    let ctx = RequestContext::new(who, server.mcp.correlation_id());
    let call = ToolCall { tool, arguments, wait: CALL_WAIT, request_key: None, fields: Vec::new() };
    let answer = service.call_tool(&ctx, call).await;
    Ok(respond(answer, &service.name(), &access, host(&parts.headers)))
}

/// The caller of a request, or what it is told instead.
pub(super) async fn identify(access: &Access, headers: &HeaderMap) -> Result<Arc<Principal>, Refusal> {
    caller(access, headers).await.map_err(|why| {
        let (status, challenge) = access.unauthorized(why, host(headers));
        let error = ToolError::new(ErrorCode::AuthenticationFailed, format!("{why}."));
        with_authenticate(failure(status, &error), &challenge).into()
    })
}

/// The answer of a call: the structured half of its result, else its text; 202 for one that goes on as a job.
fn respond(answer: CallAnswer, server: &str, access: &Access, host: Option<&str>) -> Response<Body> {
    match answer {
        CallAnswer::Outcome(ToolOutcome::Completed(result)) => match &result.structured {
            Some(structured) => json_value(200, structured),
            None => json_value(
                200,
                &json!({ "text": result.text, "content": result.blocks, "isError": result.is_error }),
            ),
        },
        CallAnswer::Outcome(ToolOutcome::Failed(error)) => failure(status(error.code), &error),
        CallAnswer::Running(job) => json_value(202, &JobReport::of(&job, server)),
        CallAnswer::Challenge(challenge) => {
            let header = access.insufficient_scope(&challenge, host);
            with_authenticate(failure(403, &challenge_error(&challenge)), &header)
        }
        CallAnswer::UnknownTool
        | CallAnswer::Ask(_)
        | CallAnswer::CannotAsk(_)
        | CallAnswer::NeedsTask
        | CallAnswer::BadState => {
            failure(404, &ToolError::new(ErrorCode::NotFound, "There is no such tool for you."))
        }
    }
}

/// The HTTP status of a tool's error.
fn status(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::InvalidArgument | ErrorCode::BudgetTooSmall | ErrorCode::StaleCursor => 400,
        ErrorCode::Forbidden | ErrorCode::TierNotPermitted => 403,
        ErrorCode::NotFound => 404,
        ErrorCode::Conflict | ErrorCode::ReplayKeyCollision => 409,
        ErrorCode::RateLimited => 429,
        _ => 500,
    }
}

/// A query string as the search tool's arguments. A number that is none stays text, for the schema to refuse.
fn arguments(query: &str) -> Result<Object, ToolError> {
    let mut out = Object::new();
    let mut needs: Vec<String> = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name == "q" {
            needs.push(value.into_owned());
            continue;
        }
        let number = if NUMBERS.contains(&&*name) { value.parse::<u64>().ok() } else { None };
        let value = number.map_or_else(|| Value::from(&*value), Value::from);
        if out.insert(name.to_string(), value).is_some() || matches!(&*name, "query" | "queries") {
            let message = "Give `q` once or several times, and every other parameter once.";
            return Err(ToolError::new(ErrorCode::InvalidArgument, message));
        }
    }
    match <[String; 1]>::try_from(needs) {
        Ok([one]) => out.insert("query".to_owned(), Value::from(one)),
        Err(none) if none.is_empty() => None,
        Err(several) => out.insert("queries".to_owned(), Value::from(several)),
    };
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_query_string_becomes_arguments_and_nothing_is_guessed() {
        let read = |query| arguments(query).map(Value::Object);
        assert_eq!(read("").unwrap(), json!({}));
        assert_eq!(read("q=read+a%20file&limit=5").unwrap(), json!({"query": "read a file", "limit": 5}));
        assert_eq!(read("q=a&q=b").unwrap(), json!({"queries": ["a", "b"]}));
        assert_eq!(read("limit=five&x=1").unwrap(), json!({"limit": "five", "x": "1"}));
        for twice in ["limit=1&limit=2", "query=x", "queries=x"] {
            assert_eq!(read(twice).unwrap_err().code, ErrorCode::InvalidArgument, "{twice}");
        }
    }
}
