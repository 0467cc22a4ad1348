//! `/api/v1/agents`: agents published and withdrawn while the server runs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Response;
use serde_json::{Value, json};

use super::super::http::Server;
use super::super::reply::{failure, json_value, of};
use super::{admit, object};
use crate::call::{ErrorCode, ToolError};
use crate::gateway::PublishError;
use crate::snapshot::AgentSettings;

/// `GET /api/v1/agents`: every agent, the home's and the published ones, with its definition.
pub(in super::super) async fn list_agents(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    match admit(&server, &parts).await {
        Ok(admitted) => json_value(200, &json!({ "agents": admitted.gateway.agents_overview() })),
        Err(refused) => *refused,
    }
}

/// `POST /api/v1/agents`: publishes an agent, `{"name": …}` with the members of `[agents.N]`, or replaces a
/// published one. 201 where it is new, else 200.
pub(in super::super) async fn publish_agent(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let admitted = match admit(&server, &parts).await {
        Ok(admitted) => admitted,
        Err(refused) => return *refused,
    };
    let mut members = match object(&parts.headers, body).await {
        Ok(members) => members,
        Err(refused) => return *refused,
    };
    let Some(Value::String(name)) = members.remove("name") else {
        return wrong("`name` must be the agent's name.".to_owned(), "/name");
    };
    let definition: AgentSettings = match serde_json::from_value(Value::Object(members)) {
        Ok(definition) => definition,
        Err(e) => return wrong(format!("The definition does not fit: {e}."), ""),
    };
    match admitted.gateway.publish_agent(&name, definition).await {
        Ok(new) => {
            let published = admitted.gateway.agents_overview().into_iter();
            let made = published.filter(|a| a.source == "published").find(|a| a.name.as_str() == name);
            json_value(if new { 201 } else { 200 }, &made)
        }
        Err(error) => refused(&error),
    }
}

/// `DELETE /api/v1/agents/{name}`: withdraws a published agent.
pub(in super::super) async fn withdraw_agent(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let admitted = match admit(&server, &parts).await {
        Ok(admitted) => admitted,
        Err(refused) => return *refused,
    };
    match admitted.gateway.withdraw_agent(&name).await {
        Ok(()) => of(204, Body::empty()),
        Err(error) => refused(&error),
    }
}

fn wrong(message: String, field: &str) -> Response<Body> {
    failure(400, &ToolError::new(ErrorCode::InvalidArgument, message).field(field))
}

fn refused(error: &PublishError) -> Response<Body> {
    let (status, code, field) = match error {
        PublishError::Name(_) => (400, ErrorCode::InvalidArgument, "/name"),
        PublishError::Member { key, .. } => (400, ErrorCode::InvalidArgument, *key),
        PublishError::OfTheHome | PublishError::TooMany => (409, ErrorCode::Conflict, "/name"),
        PublishError::NotKept => (500, ErrorCode::InternalError, ""),
        PublishError::NotPublished => (404, ErrorCode::NotFound, "/name"),
    };
    let field = format!("/{}", field.trim_start_matches('/'));
    failure(status, &ToolError::new(code, error.to_string()).field(field))
}
