//! The paths of the server, and what each request passes before `mcp` sees it, in this order: Host and
//! Origin, then (on `/mcp`) the caller, the discovery mode, the body.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response, Uri};
use axum::routing::{delete, get, post};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use url::form_urlencoded;

use super::access::{Access, AccessHandle, METADATA, METADATA_OF_MCP};
use super::body::{self, BodyRefusal};
use super::compress;
use super::files;
use super::metrics::Requests;
use super::reply::{json_value, respond, typed, with_authenticate};
use super::{admin, api, jobs};
use crate::auth::AuthRefusal;
use crate::limits::REQUEST_BODY_BYTES_MAX;
use crate::mcp::{Header, Headers, HttpReply, HttpRequest, Mcp, refusal};
use crate::media;
use crate::policy::{DiscoveryMode, Principal};

#[derive(Debug)]
pub(super) struct Server {
    pub(super) mcp: Arc<Mcp>,
    pub(super) access: AccessHandle,
    requests: Requests,
}

/// The HTTP side of a server.
#[derive(Debug, Clone)]
pub struct Front {
    server: Arc<Server>,
    router: Router,
}

/// The HTTP side over the wire.
pub fn front(mcp: Arc<Mcp>, access: AccessHandle) -> Front {
    let server = Arc::new(Server { mcp, access, requests: Requests::default() });
    let router = Router::new()
        .route("/api/v1/search", get(api::search))
        .route("/api/v1/jobs", get(jobs::list).post(jobs::start))
        .route("/api/v1/jobs/{id}", get(jobs::read).delete(jobs::cancel))
        .route("/api/v1/files", get(files::list).post(files::upload))
        .route("/api/v1/files/{id}", get(files::one).delete(files::one))
        .route("/api/v1/files/{id}/content", get(files::content))
        .route("/api/v1/audit", get(admin::audit))
        .route("/api/v1/agents", get(admin::list_agents).post(admin::publish_agent))
        .route("/api/v1/agents/{name}", delete(admin::withdraw_agent))
        .route("/api/v1/confirmations", get(admin::list_confirmations))
        .route("/api/v1/confirmations/{id}/{verdict}", post(admin::settle_confirmation))
        .route("/api/v1/grants/{id}", delete(admin::revoke_grant))
        .route("/api/v1/policy/explain", get(admin::explain))
        .route("/api/v1/policy/shadow", get(admin::shadow))
        .route("/healthz", get(|| async { typed(200, "text/plain; charset=utf-8", Body::from("ok\n")) }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route(METADATA, get(metadata))
        .route(METADATA_OF_MCP, get(metadata))
        .fallback(|| async { json_value(404, &json!({ "error": "there is nothing at this path" })) })
        // Uploads are bounded by `[files]` while they are streamed; everything else has a bounded reader of its own.
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::clone(&server));
    Front { server, router }
}

impl Front {
    /// Answers one request. What every path and method passes first is Host and Origin; `/mcp` is then answered
    /// here, since a router's boxes and clones cost as much as reading the request does.
    pub(super) async fn answer(self, request: Request) -> Response<Body> {
        let server = &self.server;
        let access = server.access.current();
        let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
        let row = Requests::row(request.uri().path());
        let takes_gzip = compress::takes_gzip(request.headers());
        let response = match access.boundary.check(request.headers(), authority) {
            Err(why) => respond(refusal(403, why), &access, None),
            // Addresses stand in logs and histories, so a token there is as good as lost (OAuth 2.1 §5.1.1).
            Ok(()) if token_in_query(request.uri()) => respond(
                refusal(400, "a token is sent in the Authorization header, never in the address"),
                &access,
                None,
            ),
            Ok(()) if row == Requests::MCP => mcp_endpoint(server, &access, request).await,
            // A router never fails.
            Ok(()) => TowerToHyperService::new(self.router)
                .call(request)
                .await
                .unwrap_or_else(|never| match never {}),
        };
        let response = if takes_gzip { compress::compressed(response).await } else { response };
        let status = response.status().as_u16();
        tracing::debug!(http.path = Requests::name(row), http.status = status, "request answered");
        server.requests.count(row, status);
        response
    }
}

fn token_in_query(uri: &Uri) -> bool {
    uri.query().is_some_and(|q| form_urlencoded::parse(q.as_bytes()).any(|(name, _)| name == "access_token"))
}

async fn readyz(State(server): State<Arc<Server>>, request: Request) -> Response<Body> {
    let readiness = server.mcp.service().readiness();
    let status = if readiness.ready { 200 } else { 503 };
    let (parts, _) = request.into_parts();
    if sees_inside(&server, &parts).await {
        return json_value(status, &readiness);
    }
    // A probe has no token, and names of upstreams are for those who may know of them.
    let count = readiness.reasons.len();
    let told: Vec<String> = (count > 0)
        .then(|| {
            format!("{count} reason(s): ask with a token that has the scope `docent:admin`, or read the log")
        })
        .into_iter()
        .collect();
    json_value(
        status,
        &json!({ "ready": readiness.ready, "generation": readiness.generation, "reasons": told }),
    )
}

/// Whether somebody may read what the server is made of: everybody where nobody needs a token, else operators.
async fn sees_inside(server: &Server, parts: &Parts) -> bool {
    !server.access.current().callers.needs_token() || admin::admin(server, parts).await.is_ok()
}

async fn metrics(State(server): State<Arc<Server>>, request: Request) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let names = sees_inside(&server, &parts).await;
    let text = server.requests.text(&server.mcp, names);
    typed(200, "text/plain; version=0.0.4; charset=utf-8", Body::from(text))
}

async fn metadata(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response<Body> {
    json_value(200, &server.access.current().metadata(host(&headers)))
}

async fn mcp_endpoint(server: &Server, access: &Access, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let host = host(&parts.headers);
    let reply = match admit(access, &parts.headers, &parts.uri, host).await {
        Err(response) => return *response,
        Ok((principal, discovery)) => {
            let headers = HeaderView(&parts.headers);
            let request = HttpRequest { headers: &headers, principal: &principal, discovery };
            match parts.method {
                Method::POST => post_message(&server.mcp, request, &parts.headers, body).await,
                Method::GET => server.mcp.get(request),
                Method::DELETE => server.mcp.delete(request),
                _ => HttpReply::Empty(405),
            }
        }
    };
    respond(reply, access, host)
}

/// The caller that a request's token names.
pub(super) async fn caller(access: &Access, headers: &HeaderMap) -> Result<Arc<Principal>, AuthRefusal> {
    let view = HeaderView(headers);
    let header = match view.find(AUTHORIZATION.as_str()) {
        Header::Absent => None,
        Header::Value(text) => Some(text),
        // Twice, or not text: no caller's token.
        Header::Unreadable => Some(""),
    };
    let found = access.callers.authenticate(header).await;
    if let Some(reason) = found.as_ref().err().and_then(|why| why.reason()) {
        access.audit.refused(reason);
    }
    found
}

type Admitted = (Arc<Principal>, Option<DiscoveryMode>);

/// Finds the caller and the discovery mode of the connection.
async fn admit(
    access: &Access,
    headers: &HeaderMap,
    uri: &Uri,
    host: Option<&str>,
) -> Result<Admitted, Box<Response<Body>>> {
    let principal = caller(access, headers).await.map_err(|why| {
        let (status, challenge) = access.unauthorized(why, host);
        Box::new(with_authenticate(respond(refusal(status, why.to_string()), access, host), &challenge))
    })?;
    let word = uri.query().and_then(|q| q.split('&').find_map(|pair| pair.strip_prefix("discovery=")));
    match word.map(|w| DiscoveryMode::parse(w).ok_or(w)).transpose() {
        Ok(discovery) => Ok((principal, discovery)),
        Err(_) => {
            let why = "`?discovery=` must be `full`, `compact` or `auto`";
            Err(Box::new(respond(refusal(400, why), access, host)))
        }
    }
}

async fn post_message(
    mcp: &Arc<Mcp>,
    request: HttpRequest<'_>,
    headers: &HeaderMap,
    body: Body,
) -> HttpReply {
    let kind = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let is_json = kind.is_some_and(|kind| media::is(kind, "application/json"));
    let read = body::read(headers, body).await;
    match read {
        Ok(_) if !is_json => refusal(415, "`Content-Type` must be `application/json`"),
        Ok(bytes) => mcp.post(request, &bytes).await,
        Err(BodyRefusal::TooLarge) => {
            refusal(413, format!("a request body has at most {REQUEST_BODY_BYTES_MAX} bytes"))
        }
        Err(BodyRefusal::TooSlow) => refusal(408, "the request body did not arrive in time"),
        Err(BodyRefusal::Broken) => refusal(400, "the request body broke off"),
    }
}

pub(super) fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST).and_then(|h| h.to_str().ok())
}

/// A header map as `mcp` reads it.
struct HeaderView<'a>(&'a HeaderMap);

impl Headers for HeaderView<'_> {
    fn find(&self, name: &str) -> Header<'_> {
        let mut values = self.0.get_all(name).iter();
        let Some(first) = values.next() else { return Header::Absent };
        if values.next().is_some() {
            return Header::Unreadable;
        }
        first.to_str().map_or(Header::Unreadable, |text| Header::Value(text.trim_matches([' ', '\t'])))
    }
    fn list(&self, name: &str) -> Vec<&str> {
        self.0.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect()
    }
}
