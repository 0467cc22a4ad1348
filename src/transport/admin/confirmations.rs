//! `/api/v1/confirmations`: what waits for an operator's yes, the grants that hold, and the operators' answers.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Response;
use serde_json::{Value, json};

use super::super::http::Server;
use super::super::reply::{Answer, failure, json_value, of};
use super::{admit, object};
use crate::call::{ErrorCode, ToolError};
use crate::gateway::{SettleError, Verdict};

/// `GET /api/v1/confirmations`: `{"pending": […], "grants": […]}`.
pub(in super::super) async fn list_confirmations(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Answer {
    let (parts, _) = request.into_parts();
    let admitted = admit(&server, &parts).await?;
    match admitted.gateway.confirmations_overview().await {
        Ok((pending, grants)) => Ok(json_value(200, &json!({ "pending": pending, "grants": grants }))),
        Err(error) => Ok(settled(Err(error))),
    }
}

/// `POST /api/v1/confirmations/{id}/{verdict}`: `approve` or `deny`. An approval holds for the caller and the tool
/// for a while; with the body `{"for": "call"}` for that one call, once.
pub(in super::super) async fn settle_confirmation(
    State(server): State<Arc<Server>>,
    Path((id, verdict)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let admitted = admit(&server, &parts).await?;
    let members = object(&parts.headers, body).await?;
    let verdict = match (verdict.as_str(), members.get("for").and_then(Value::as_str)) {
        ("approve", None) if members.contains_key("for") => return Err(wrong().into()),
        ("approve", None | Some("tool")) => Verdict::Grant,
        ("approve", Some("call")) => Verdict::Once,
        ("approve", Some(_)) => return Err(wrong().into()),
        ("deny", _) => Verdict::Deny,
        _ => {
            let error = ToolError::new(ErrorCode::NotFound, "Say `approve` or `deny`.");
            return Err(failure(404, &error).into());
        }
    };
    Ok(settled(admitted.gateway.settle_confirmation(&id, &admitted.who.subject, verdict).await))
}

/// `DELETE /api/v1/grants/{id}`: ends a grant before its time.
pub(in super::super) async fn revoke_grant(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let (parts, _) = request.into_parts();
    Ok(settled(admit(&server, &parts).await?.gateway.revoke_grant(&id).await))
}

fn wrong() -> Response<Body> {
    let message = "`for` is \"tool\" (a grant for the caller and the tool) or \"call\" (this call, once).";
    failure(400, &ToolError::new(ErrorCode::InvalidArgument, message).field("/for"))
}

fn settled(result: Result<(), SettleError>) -> Response<Body> {
    let (status, code, error) = match result {
        Ok(()) => return of(204, Body::empty()),
        Err(e @ SettleError::Unknown) => (404, ErrorCode::NotFound, e),
        Err(e @ SettleError::Own) => (403, ErrorCode::Forbidden, e),
        Err(e @ SettleError::NotKept) => (503, ErrorCode::InternalError, e),
    };
    failure(status, &ToolError::new(code, error.to_string()))
}
