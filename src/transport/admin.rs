//! `/api/v1/…` for the console and for operators: every path of it asks for the scope `docent:admin` first.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Response, Uri};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::http::{Server, caller, host};
use super::reply::{json_value, with_authenticate};
use crate::audit::Query;
use crate::call::{ErrorCode, ToolError};
use crate::gateway::challenge_error;
use crate::id::Scope;
use crate::policy::{Principal, RuleRef, ScopeChallenge};

/// The scope that opens the paths of the console.
const ADMIN: &str = "docent:admin";

/// The caller of a request for the console, or the answer to somebody who is none or may not: 401, or 403 with
/// the scope to come back with.
pub(super) async fn admin(server: &Server, parts: &Parts) -> Result<Arc<Principal>, Box<Response<Body>>> {
    let access = server.access.current();
    let host = host(&parts.headers);
    let who = caller(&access, &parts.headers).await.map_err(|why| {
        let (status, challenge) = access.unauthorized(why, host);
        let error = ToolError::new(ErrorCode::AuthenticationFailed, format!("{why}."));
        Box::new(with_authenticate(failure(status, &error), &challenge))
    })?;
    if who.has_scope(ADMIN) {
        return Ok(who);
    }
    let scopes = Scope::parse(ADMIN).into_iter().collect();
    let challenge = ScopeChallenge { scopes, rule: RuleRef { file: Arc::from(""), line: 0 } };
    let header = access.insufficient_scope(&challenge, host);
    Err(Box::new(with_authenticate(failure(403, &challenge_error(&challenge)), &header)))
}

/// An error in the shape that tools have.
pub(super) fn failure(status: u16, error: &ToolError) -> Response<Body> {
    json_value(status, &json!({ "error": error }))
}

/// The parameters of a path; one that is not known is refused, so that a typo does not widen an answer.
fn parameters(uri: &Uri, known: &[&str]) -> Result<Vec<(String, String)>, Box<Response<Body>>> {
    let mut out: Vec<(String, String)> = Vec::new();
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let twice = out.iter().any(|(n, _)| *n == name);
        if twice || !known.contains(&&*name) {
            let message = format!("Give each of {} at most once, and nothing else.", known.join(", "));
            return Err(Box::new(failure(400, &ToolError::new(ErrorCode::InvalidArgument, message))));
        }
        out.push((name.into_owned(), value.into_owned()));
    }
    Ok(out)
}

/// `GET /api/v1/audit?kind=&caller=&tool=&outcome=&after=&limit=`: the newest records, newest first.
pub(super) async fn audit(State(server): State<Arc<Server>>, request: Request) -> Response<Body> {
    let (parts, _) = request.into_parts();
    match read_audit(&server, &parts).await {
        Ok(answer) => json_value(200, &answer),
        Err(response) => *response,
    }
}

async fn read_audit(server: &Server, parts: &Parts) -> Result<Value, Box<Response<Body>>> {
    admin(server, parts).await?;
    let given = parameters(&parts.uri, &["kind", "caller", "tool", "outcome", "after", "limit"])?;
    let mut query = Query::default();
    for (name, value) in given {
        let number = || {
            value.parse::<u32>().map_err(|_not| {
                let message = format!("`{name}` must be a number.");
                Box::new(failure(400, &ToolError::new(ErrorCode::InvalidArgument, message)))
            })
        };
        match name.as_str() {
            "kind" => query.kind = value,
            "caller" => query.caller = value,
            "tool" => query.tool = value,
            "outcome" => query.outcome = value,
            "after" => query.after = u64::from(number()?),
            _ => query.limit = usize::try_from(number()?).unwrap_or(usize::MAX),
        }
    }
    let audit = server.mcp.service().audit();
    let records = audit.recent(&query);
    let records: Vec<_> = records.iter().filter_map(|r| r.json()).collect();
    Ok(json!({ "status": audit.status(), "records": records }))
}
