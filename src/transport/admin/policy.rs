//! Questions to the policies that serve now: why a call is decided as it is, and what a candidate would change.

use std::sync::Arc;

use axum::extract::{Request, State};
use serde_json::Value;

use super::super::http::Server;
use super::super::reply::{Answer, failure, json_value};
use super::{admit, parameters};
use crate::call::{ErrorCode, ToolError};
use crate::json;
use crate::limits::REQUEST_BODY_BYTES_MAX;

/// `GET /api/v1/policy/explain?tool=&as=&args=`: what `docent policy explain --json` prints, of the generation that
/// serves now.
pub(in crate::transport) async fn explain(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let refuse = |status, code, message: String| failure(status, &ToolError::new(code, message));
    let admitted = admit(&server, &parts).await?;
    let given = parameters(&parts.uri, &["tool", "as", "args"])?;
    let of = |name: &str| given.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let bad = |message: &str| refuse(400, ErrorCode::InvalidArgument, message.to_owned());
    let tool = of("tool").ok_or_else(|| bad("Name a tool, resource, prompt or agent: `?tool=ID`."))?;
    let arguments = match of("args").map(|text| json::parse(text.as_bytes(), REQUEST_BODY_BYTES_MAX)) {
        None => None,
        Some(Ok(Value::Object(arguments))) => Some(arguments),
        Some(_) => return Err(bad("`args` must be a JSON object.").into()),
    };
    let caller = of("as").unwrap_or("anonymous");
    let found = admitted.gateway.explain_policy(caller, tool, arguments.as_ref());
    let answer = found.map_err(|why| refuse(404, ErrorCode::NotFound, format!("{why}.")))?;
    Ok(json_value(200, &answer))
}

/// `GET /api/v1/policy/shadow`: what the candidate of `policies.shadow` would decide otherwise.
pub(in crate::transport) async fn shadow(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    Ok(json_value(200, &admit(&server, &parts).await?.gateway.shadow()))
}
