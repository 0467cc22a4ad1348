//! Questions to the policies that serve now: why a call is decided as it is, and what a candidate would change.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::request::Parts;
use serde_json::Value;

use super::super::http::Server;
use super::super::reply::{failure, json_value};
use super::{admit, parameters};
use crate::call::{ErrorCode, ToolError};
use crate::json;
use crate::limits::REQUEST_BODY_BYTES_MAX;
use crate::policy::Explanation;

/// `GET /api/v1/policy/explain?tool=&as=&args=`: what `docent policy explain --json` prints, of the generation that
/// serves now.
pub(in crate::transport) async fn explain(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    match explanation(&server, &parts).await {
        Ok(answer) => json_value(200, &answer),
        Err(response) => *response,
    }
}

async fn explanation(server: &Server, parts: &Parts) -> Result<Explanation, Box<Response<Body>>> {
    let refuse = |status, code, message: String| Box::new(failure(status, &ToolError::new(code, message)));
    let admitted = admit(server, parts).await?;
    let given = parameters(&parts.uri, &["tool", "as", "args"])?;
    let of = |name: &str| given.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let bad = |message: &str| refuse(400, ErrorCode::InvalidArgument, message.to_owned());
    let tool = of("tool").ok_or_else(|| bad("Name a tool: `?tool=ID`."))?;
    let arguments = match of("args").map(|text| json::parse(text.as_bytes(), REQUEST_BODY_BYTES_MAX)) {
        None => None,
        Some(Ok(Value::Object(arguments))) => Some(arguments),
        Some(_) => return Err(bad("`args` must be a JSON object.")),
    };
    let caller = of("as").unwrap_or("anonymous");
    let found = admitted.gateway.explain_policy(caller, tool, arguments.as_ref());
    found.map_err(|why| refuse(404, ErrorCode::NotFound, format!("{why}.")))
}

/// `GET /api/v1/policy/shadow`: what the candidate of `policies.shadow` would decide otherwise.
pub(in crate::transport) async fn shadow(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    match admit(&server, &parts).await {
        Ok(admitted) => json_value(200, &admitted.gateway.shadow()),
        Err(response) => *response,
    }
}
