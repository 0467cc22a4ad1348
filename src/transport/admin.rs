//! `/api/v1/…` for the console and for operators: every path of it asks for the scope `docent:admin` first.

mod agents;
mod confirmations;
mod policy;

pub(super) use agents::{list_agents, publish_agent, withdraw_agent};
pub(super) use confirmations::{list_confirmations, revoke_grant, settle_confirmation};
pub(super) use policy::{explain, shadow};

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::api::identify;
use super::body::{self, BodyRefusal};
use super::http::{Server, host};
use super::reply::{Answer, Refusal, failure, json_value, with_authenticate};
use crate::audit::Query;
use crate::call::{ErrorCode, ToolError};
use crate::gateway::{Gateway, challenge_error};
use crate::id::Scope;
use crate::json::{self, JsonError};
use crate::limits::REQUEST_BODY_BYTES_MAX;
use crate::media;
use crate::policy::{Principal, RuleRef, ScopeChallenge};

/// The scope that opens the paths of the console.
const ADMIN: &str = "docent:admin";

/// The caller of a request for the console, or the answer to somebody who is none or may not: 401, or 403 with
/// the scope to come back with.
pub(super) async fn admin(server: &Server, parts: &Parts) -> Result<Arc<Principal>, Refusal> {
    let access = server.access.current();
    let who = identify(&access, &parts.headers).await?;
    if who.has_scope(ADMIN) {
        return Ok(who);
    }
    let scopes = Scope::parse(ADMIN).into_iter().collect();
    let challenge = ScopeChallenge { scopes, rule: RuleRef { file: Arc::from(""), line: 0 } };
    let header = access.insufficient_scope(&challenge, host(&parts.headers));
    Err(with_authenticate(failure(403, &challenge_error(&challenge)), &header).into())
}

/// An operator and what it may work on.
pub(super) struct Admitted<'a> {
    pub(super) who: Arc<Principal>,
    pub(super) gateway: &'a Gateway,
}

/// Lets operators in, where there is a gateway to work on.
pub(super) async fn admit<'a>(server: &'a Server, parts: &Parts) -> Result<Admitted<'a>, Refusal> {
    let who = admin(server, parts).await?;
    let gateway = server.mcp.service().gateway();
    let nothing = || failure(404, &ToolError::new(ErrorCode::NotFound, "There is nothing here.")).into();
    gateway.map(|gateway| Admitted { who, gateway }).ok_or_else(nothing)
}

/// The JSON object of a request's body. Only `application/json` is taken: a page of another origin cannot send
/// that without being asked first. No body is an empty object.
pub(super) async fn object(headers: &HeaderMap, body: Body) -> Result<json::Object, Refusal> {
    let refuse = |status, message: String| {
        Refusal::from(failure(status, &ToolError::new(ErrorCode::InvalidArgument, message)))
    };
    let kind = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let is_json = kind.is_some_and(|kind| media::is(kind, "application/json"));
    let bytes = body::read(headers, body).await.map_err(|why| match why {
        BodyRefusal::TooLarge => refuse(413, format!("A body has at most {REQUEST_BODY_BYTES_MAX} bytes.")),
        BodyRefusal::TooSlow => refuse(408, "The body did not arrive in time.".to_owned()),
        BodyRefusal::Broken => refuse(400, "The body broke off.".to_owned()),
    })?;
    if bytes.is_empty() {
        return Ok(json::Object::new());
    }
    if !is_json {
        return Err(refuse(415, "`Content-Type` must be `application/json`.".to_owned()));
    }
    match json::parse_exact_bytes(&bytes, bytes.len()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(refuse(400, "The body must be a JSON object.".to_owned())),
        Err(JsonError::Malformed(e)) => Err(refuse(400, format!("The body is not JSON: {e}."))),
        Err(e) => Err(refuse(400, format!("The body cannot be taken: {e}."))),
    }
}

/// The parameters of a path; one that is not known is refused, so that a typo does not widen an answer.
fn parameters(uri: &Uri, known: &[&str]) -> Result<Vec<(String, String)>, Refusal> {
    let mut out: Vec<(String, String)> = Vec::new();
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let twice = out.iter().any(|(n, _)| *n == name);
        if twice || !known.contains(&&*name) {
            let message = format!("Give each of {} at most once, and nothing else.", known.join(", "));
            return Err(failure(400, &ToolError::new(ErrorCode::InvalidArgument, message)).into());
        }
        out.push((name.into_owned(), value.into_owned()));
    }
    Ok(out)
}

/// `GET /api/v1/audit?kind=&caller=&tool=&outcome=&after=&limit=`: the newest records, newest first.
pub(super) async fn audit(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    admin(&server, &parts).await?;
    let given = parameters(&parts.uri, &["kind", "caller", "tool", "outcome", "after", "limit"])?;
    let mut query = Query::default();
    for (name, value) in given {
        let number = || {
            value.parse::<u32>().map_err(|_not| {
                let message = format!("`{name}` must be a number.");
                Refusal::from(failure(400, &ToolError::new(ErrorCode::InvalidArgument, message)))
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
    Ok(json_value(200, &json!({ "status": audit.status(), "records": records })))
}
