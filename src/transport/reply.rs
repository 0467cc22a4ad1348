//! What `mcp` answers, as HTTP responses; event streams framed (HTML standard, server-sent events).

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use serde::Serialize;

use super::access::Access;
use crate::call::ToolError;
use crate::json;
use crate::limits::STREAM_KEEP_ALIVE;
use crate::mcp::{HttpReply, Messages, single_line};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The response to a reply. `host` is the name by which the client calls this server.
pub(super) fn respond(reply: HttpReply, access: &Access, host: Option<&str>) -> Response<Body> {
    match reply {
        HttpReply::Empty(status) => {
            let mut response = of(status, Body::empty());
            if status == 405 {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            }
            response
        }
        HttpReply::Json { status, body, session, challenge } => {
            let mut response = json_bytes(status, body);
            if let Some(id) = session.and_then(|id| HeaderValue::try_from(id).ok()) {
                response.headers_mut().insert(SESSION_ID, id);
            }
            match challenge {
                Some(challenge) => with_authenticate(response, &access.insufficient_scope(&challenge, host)),
                None => response,
            }
        }
        HttpReply::Events(messages) => events(messages),
    }
}

/// A response without a body.
pub(super) fn of(status: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn json_bytes(status: u16, body: Bytes) -> Response<Body> {
    typed(status, "application/json", Body::from(body))
}

/// A response with a JSON value.
pub(super) fn json_value(status: u16, value: &impl Serialize) -> Response<Body> {
    json_bytes(status, Bytes::from(json::to_bytes(value)))
}

/// The answer to a request that goes no further, boxed: it is larger than what it stands in for.
#[derive(Debug)]
pub(super) struct Refusal(Box<Response<Body>>);

impl From<Response<Body>> for Refusal {
    fn from(response: Response<Body>) -> Self {
        Self(Box::new(response))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        *self.0
    }
}

/// What a path answers: either way a response.
pub(super) type Answer = Result<Response<Body>, Refusal>;

/// An error in the shape that tools have, for the plain HTTP side.
pub(super) fn failure(status: u16, error: &ToolError) -> Response<Body> {
    json_value(status, &serde_json::json!({ "error": error }))
}

/// A response with a content type; nothing of it may be kept by a cache or taken for another type.
pub(super) fn typed(status: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = of(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Adds `WWW-Authenticate`.
pub(super) fn with_authenticate(mut response: Response<Body>, challenge: &str) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
    response
}

fn events(messages: Messages) -> Response<Body> {
    let framed = unfold(messages, |mut messages| async move {
        let chunk = match tokio::time::timeout(STREAM_KEEP_ALIVE, messages.next()).await {
            Ok(Some(message)) => frame(message),
            Ok(None) => return None,
            Err(_) => Bytes::from_static(b": still here\n\n"),
        };
        Some((Ok::<_, Infallible>(chunk), messages))
    });
    let mut response = typed(200, "text/event-stream", Body::from_stream(framed));
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// One event: the message stands on one line, as a line break would end it.
fn frame(message: Bytes) -> Bytes {
    let message = single_line(message);
    let mut out = BytesMut::with_capacity(message.len() + 32);
    out.put_slice(b"event: message\ndata: ");
    out.put_slice(&message);
    out.put_slice(b"\n\n");
    out.freeze()
}
