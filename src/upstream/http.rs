//! Bounded HTTP: a request below a fixed address, the operator's credentials on it, a reply within budget.
//!
//! An argument never changes host, scheme or prefix; redirects are followed on the same origin only and
//! never with credentials; bytes are counted after decompression, while they arrive.

mod adapter;
mod address;
mod credentials;
mod document;
mod operations;

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode};
use tokio_util::sync::CancellationToken;

pub(super) use adapter::HttpUpstream;
pub(super) use credentials::Credentials;
pub(super) use document::read as read_document;

use super::config::{AuthConfig, HttpTarget};
use super::{ErrorSource, Retry, UpstreamError};
use crate::call::{HttpBody, HttpRequest, Part, ReplyBody, UpstreamReply};
use crate::clock::Clock;
use crate::json;
use crate::limits;

/// Reply headers that projections may read.
const REPLY_HEADERS: [&str; 16] = [
    "content-type",
    "content-disposition",
    "content-language",
    "content-range",
    "etag",
    "last-modified",
    "link",
    "location",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-total-count",
];

/// Request headers that only docent itself may set: framing, routing, credentials.
const OWN_HEADERS: [&str; 12] = [
    "authorization",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "accept-encoding",
];

/// What bounds one call.
#[derive(Debug, Clone)]
pub(super) struct Bounds<'a> {
    pub(super) deadline: Instant,
    pub(super) cancel: &'a CancellationToken,
    pub(super) read_only: bool,
    pub(super) correlation_id: &'a str,
}

/// A client for one upstream: its address, fixed headers, credentials and pool.
#[derive(Debug)]
pub(super) struct HttpClient {
    upstream: String,
    base: url::Url,
    client: reqwest::Client,
    fixed: HeaderMap,
    credentials: Credentials,
    reply_headers: Vec<String>,
    read_bytes: usize,
}

/// rustls takes its cryptography from a provider of the process; whoever comes first installs it.
pub(super) fn install_crypto() {
    // A second installation is refused with the provider handed back, which is what we want.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// A pooled client that follows no redirect by itself and reads no proxy from the environment.
fn build_client() -> reqwest::Client {
    install_crypto();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .gzip(true)
        .tcp_nodelay(true)
        .connect_timeout(limits::CONNECT_TIMEOUT)
        .user_agent(concat!("docent/", env!("CARGO_PKG_VERSION")))
        .build()
        .unwrap_or_default()
}

impl HttpClient {
    pub(super) fn new(
        upstream: &str,
        target: &HttpTarget,
        auth: &AuthConfig,
        read_bytes: usize,
        clock: Clock,
    ) -> Self {
        let fixed = target.headers.iter().filter_map(|(n, v)| header(n, v.expose(), true).ok()).collect();
        let client = build_client();
        Self {
            upstream: upstream.to_owned(),
            base: target.base_url.clone(),
            credentials: Credentials::new(auth, client.clone(), clock),
            client,
            fixed,
            reply_headers: target.reply_headers.clone(),
            read_bytes,
        }
    }

    /// Sends one request and reads its reply within the bounds.
    pub(super) async fn execute(
        &self,
        request: &HttpRequest,
        bounds: &Bounds<'_>,
    ) -> Result<UpstreamReply, UpstreamError> {
        let sent = std::sync::atomic::AtomicBool::new(false);
        let was_sent = || sent.load(std::sync::atomic::Ordering::Relaxed);
        tokio::select! {
            biased;
            () = bounds.cancel.cancelled() => Err(UpstreamError::cancelled(was_sent(), bounds.read_only)),
            () = tokio::time::sleep_until(bounds.deadline.into()) => {
                Err(UpstreamError::timeout(&self.upstream, was_sent(), bounds.read_only))
            }
            reply = self.exchange(request, bounds, &sent) => reply,
        }
    }

    async fn exchange(
        &self,
        request: &HttpRequest,
        bounds: &Bounds<'_>,
        sent: &std::sync::atomic::AtomicBool,
    ) -> Result<UpstreamReply, UpstreamError> {
        let mut url = address::below(&self.base, &request.path, &request.query)
            .map_err(|why| UpstreamError::new(ErrorSource::Caller, Retry::Never, why))?;
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|_ignored| {
            UpstreamError::internal(format!("`{}` is not an HTTP method", request.method))
        })?;
        let mut renewed = false;
        for _ in 0..=limits::REDIRECTS_MAX {
            let built = self.build(&method, url.clone(), request, bounds).await?;
            sent.store(true, std::sync::atomic::Ordering::Relaxed);
            let response = self.client.execute(built).await.map_err(|e| self.fault(e, bounds.read_only))?;
            if response.status() == StatusCode::UNAUTHORIZED && !renewed && self.credentials.forget().await {
                // The token was refused, so nothing was done: a fresh one is worth one more try.
                renewed = true;
                continue;
            }
            match self.redirect(&response, &method)? {
                Some(next) => url = next,
                None => return self.read(response, bounds.read_only).await,
            }
        }
        let why = format!("redirects more than {} times", limits::REDIRECTS_MAX);
        Err(UpstreamError::new(
            ErrorSource::Malformed,
            Retry::Never,
            format!("upstream `{}` {why}", self.upstream),
        ))
    }

    async fn build(
        &self,
        method: &Method,
        mut url: url::Url,
        request: &HttpRequest,
        bounds: &Bounds<'_>,
    ) -> Result<reqwest::Request, UpstreamError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let (name, value) = header(name, value, false)
                .map_err(|why| UpstreamError::new(ErrorSource::Caller, Retry::Never, why))?;
            headers.insert(name, value);
        }
        headers.extend(self.fixed.clone());
        if let Ok(id) = HeaderValue::from_str(bounds.correlation_id)
            && !bounds.correlation_id.is_empty()
        {
            headers.insert(HeaderName::from_static("x-request-id"), id);
        }
        self.credentials.place(&mut headers, &mut url).await?;
        let builder = self.client.request(method.clone(), url);
        let typed = headers.contains_key(CONTENT_TYPE);
        let builder = body(builder, request.body.as_ref(), typed)?.headers(headers);
        builder
            .build()
            .map_err(|e| UpstreamError::internal("the request cannot be built").detail(&e.without_url()))
    }

    /// Where a redirect leads, if it is one that may be followed.
    fn redirect(
        &self,
        response: &reqwest::Response,
        method: &Method,
    ) -> Result<Option<url::Url>, UpstreamError> {
        let follows = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
        let Some(location) = response.headers().get(LOCATION).filter(|_| follows) else { return Ok(None) };
        let target = location.to_str().ok().and_then(|l| response.url().join(l).ok());
        let Some(target) = target else { return Ok(None) };
        let refused = |why: &str| {
            let message = format!(
                "upstream `{}` redirects {why}, which is not followed; the operator should mend `base_url`",
                self.upstream
            );
            Err(UpstreamError::new(ErrorSource::Malformed, Retry::Never, message))
        };
        if target.origin() != self.base.origin() {
            return refused("to another host");
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Ok(None);
        }
        if !self.credentials.is_none() || self.fixed.iter().any(|(_, v)| v.is_sensitive()) {
            return refused("a request with credentials");
        }
        Ok(Some(target))
    }

    async fn read(
        &self,
        mut response: reqwest::Response,
        read_only: bool,
    ) -> Result<UpstreamReply, UpstreamError> {
        let too_large = || UpstreamError::too_large(&self.upstream, self.read_bytes);
        let announced = response.content_length().and_then(|n| usize::try_from(n).ok());
        if announced.is_some_and(|n| n > self.read_bytes) {
            return Err(too_large());
        }
        let status = response.status().as_u16();
        let headers = self.allowed(response.headers());
        let media_type = media_type(response.headers());
        let mut bytes = BytesMut::with_capacity(announced.unwrap_or(0));
        while let Some(chunk) = response.chunk().await.map_err(|e| self.fault(e, read_only))? {
            if bytes.len() + chunk.len() > self.read_bytes {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        let body = if bytes.is_empty() {
            ReplyBody::Empty
        } else {
            ReplyBody::Bytes { media_type, bytes: bytes.freeze() }
        };
        Ok(UpstreamReply { status, headers, body, warnings: Vec::new() })
    }

    fn allowed(&self, headers: &HeaderMap) -> Vec<(String, String)> {
        let wanted = |n: &str| REPLY_HEADERS.contains(&n) || self.reply_headers.iter().any(|o| o == n);
        headers
            .iter()
            .filter(|(n, _)| wanted(n.as_str()))
            .filter_map(|(n, v)| Some((n.as_str().to_owned(), v.to_str().ok()?.to_owned())))
            .collect()
    }

    fn fault(&self, error: reqwest::Error, read_only: bool) -> UpstreamError {
        let error = error.without_url();
        let detail = chain(&error);
        if error.is_connect() {
            let why = if error.is_timeout() { "no connection in time" } else { "no connection" };
            return UpstreamError::unreachable(&self.upstream, why).detail(&detail);
        }
        if error.is_decode() || error.is_body() {
            return UpstreamError::lost(&self.upstream, "broke off its reply", read_only).detail(&detail);
        }
        UpstreamError::lost(&self.upstream, "closed the connection without a whole reply", read_only)
            .detail(&detail)
    }
}

/// An error with its causes, for the log.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

/// A header by typed API: CR, LF and other controls are refused, and what only docent may set.
pub(super) fn header(name: &str, value: &str, own: bool) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_ignored| {
        format!("`{}` is not a header name", json::cut(&name.escape_debug().to_string(), 60))
    })?;
    if !own && OWN_HEADERS.contains(&parsed.as_str()) {
        return Err(format!("the header `{parsed}` is set by docent alone"));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_ignored| {
        format!("the value of the header `{parsed}` has characters that cannot be sent")
    })?;
    value.set_sensitive(own);
    Ok((parsed, value))
}

/// `type/subtype` in lower case, without parameters.
fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let plain = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if plain.is_empty() { "application/octet-stream".to_owned() } else { plain }
}

fn body(
    builder: reqwest::RequestBuilder,
    body: Option<&HttpBody>,
    typed: bool,
) -> Result<reqwest::RequestBuilder, UpstreamError> {
    let with_type = |builder: reqwest::RequestBuilder, content_type: &str| {
        if typed { builder } else { builder.header(CONTENT_TYPE, content_type) }
    };
    Ok(match body {
        None => builder,
        Some(HttpBody::Json(value)) => with_type(builder, "application/json").body(json::to_bytes(value)),
        Some(HttpBody::Form(pairs)) => {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            form.extend_pairs(pairs);
            with_type(builder, "application/x-www-form-urlencoded").body(form.finish())
        }
        Some(HttpBody::Raw { content_type, bytes }) => with_type(builder, content_type).body(bytes.clone()),
        Some(HttpBody::Multipart(parts)) => builder.multipart(multipart(parts)?),
    })
}

fn multipart(parts: &[Part]) -> Result<reqwest::multipart::Form, UpstreamError> {
    let mut form = reqwest::multipart::Form::new();
    for part in parts {
        let length = u64::try_from(part.bytes.len()).unwrap_or(u64::MAX);
        let mut built = reqwest::multipart::Part::stream_with_length(Bytes::clone(&part.bytes), length);
        if let Some(name) = &part.file_name {
            built = built.file_name(name.clone());
        }
        if let Some(media) = &part.content_type {
            built = built.mime_str(media).map_err(|_ignored| {
                let message = format!("the part `{}` has a content type that cannot be sent", part.name);
                UpstreamError::new(ErrorSource::Caller, Retry::Never, message)
            })?;
        }
        form = form.part(part.name.clone(), built);
    }
    Ok(form)
}
