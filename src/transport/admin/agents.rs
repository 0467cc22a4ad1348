//! `/api/v1/agents`: agents published and withdrawn while the server runs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Response;
use serde_json::{Value, json};

use super::super::http::Server;
use super::super::reply::{Answer, failure, json_value, of};
use super::{admit, object};
use crate::call::{ErrorCode, ToolError};
use crate::gateway::PublishError;
use crate::snapshot::AgentSettings;

/// `GET /api/v1/agents`: every agent, the home's and the published ones, with its definition.
pub(in super::super) async fn list_agents(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let admitted = admit(&server, &parts).await?;
    Ok(json_value(200, &json!({ "agents": admitted.gateway.agents_overview() })))
}

/// `POST /api/v1/agents`: publishes an agent, `{"name": …}` with the members of `[agents.N]`, or replaces a
/// published one. 201 where it is new, else 200.
pub(in super::super) async fn publish_agent(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let admitted = admit(&server, &parts).await?;
    let mut members = object(&parts.headers, body).await?;
    let Some(Value::String(name)) = members.remove("name") else {
        return Err(wrong("`name` must be the agent's name.".to_owned(), "/name").into());
    };
    let definition: AgentSettings = serde_json::from_value(Value::Object(members))
        .map_err(|e| wrong(format!("The definition does not fit: {e}."), ""))?;
    let new = admitted.gateway.publish_agent(&name, definition).await.map_err(|e| refused(&e))?;
    let published = admitted.gateway.agents_overview().into_iter();
    let made = published.filter(|a| a.source == "published").find(|a| a.name.as_str() == name);
    Ok(json_value(if new { 201 } else { 200 }, &made))
}

/// `DELETE /api/v1/agents/{name}`: withdraws a published agent.
pub(in super::super) async fn withdraw_agent(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Answer {
    let (parts, _) = request.into_parts();
    let admitted = admit(&server, &parts).await?;
    admitted.gateway.withdraw_agent(&name).await.map_err(|e| refused(&e))?;
    Ok(of(204, Body::empty()))
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
