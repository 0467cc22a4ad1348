//! The operator's credentials, placed on each request, and the OAuth token that is fetched for it.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::json;
use crate::secret::Secret;
use crate::upstream::config::{AuthConfig, OauthClient};
use crate::upstream::{ErrorSource, Retry, UpstreamError};

/// Bytes of a token endpoint's answer.
const TOKEN_REPLY_BYTES_MAX: usize = 64 * 1024;
/// A token is renewed this long before it expires.
const RENEW_BEFORE: Duration = Duration::from_secs(30);
/// Fetching a token takes no longer.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(in crate::upstream) struct Credentials {
    config: AuthConfig,
    client: reqwest::Client,
    clock: Clock,
    token: Mutex<Option<(Secret, Instant)>>,
}

/// The members of RFC 6749 §5.1 that matter.
#[derive(Deserialize)]
struct TokenReply {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
}

impl Credentials {
    pub(in crate::upstream) fn new(config: &AuthConfig, client: reqwest::Client, clock: Clock) -> Self {
        Self { config: config.clone(), client, clock, token: Mutex::new(None) }
    }

    /// Credentials of a kind that has its own connections; only tokens are fetched with this client.
    pub(in crate::upstream) fn for_pool(config: &AuthConfig, clock: Clock) -> Self {
        Self::new(config, super::build_client(), clock)
    }

    pub(in crate::upstream) fn is_none(&self) -> bool {
        self.config.is_none()
    }

    /// Puts the credentials on a request; they win over anything an argument has set.
    pub(in crate::upstream) async fn place(
        &self,
        headers: &mut HeaderMap,
        url: &mut url::Url,
    ) -> Result<(), UpstreamError> {
        for (name, value) in &self.config.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(unusable)?;
            headers.insert(name, sensitive(value.expose())?);
        }
        if let Some(token) = &self.config.bearer {
            headers.insert(AUTHORIZATION, sensitive(&format!("Bearer {}", token.expose()))?);
        }
        if let Some((user, password)) = &self.config.basic {
            headers.insert(AUTHORIZATION, sensitive(&basic(user.expose(), password.expose()))?);
        }
        if let Some(client) = &self.config.oauth2 {
            let token = self.token(client).await?;
            headers.insert(AUTHORIZATION, sensitive(&format!("Bearer {}", token.expose()))?);
        }
        if !self.config.query.is_empty() {
            let secret: Vec<&str> = self.config.query.iter().map(|(n, _)| n.as_str()).collect();
            let kept: Vec<(String, String)> = url
                .query_pairs()
                .filter(|(n, _)| !secret.contains(&n.as_ref()))
                .map(|(n, v)| (n.into_owned(), v.into_owned()))
                .collect();
            let own = self.config.query.iter().map(|(n, v)| (n.as_str(), v.expose()));
            url.query_pairs_mut().clear().extend_pairs(kept).extend_pairs(own);
        }
        Ok(())
    }

    /// Drops a fetched token that the upstream refused. Whether there was one.
    pub(in crate::upstream) async fn forget(&self) -> bool {
        self.config.oauth2.is_some() && self.token.lock().await.take().is_some()
    }

    /// The cached token, or a new one. Callers that come meanwhile wait for the same fetch.
    async fn token(&self, client: &OauthClient) -> Result<Secret, UpstreamError> {
        let mut cached = self.token.lock().await;
        if let Some((token, until)) = cached.as_ref()
            && *until > self.clock.now()
        {
            return Ok(token.clone());
        }
        let reply = tokio::time::timeout(TOKEN_TIMEOUT, self.fetch(client))
            .await
            .map_err(|_ignored| refused("the token endpoint did not answer in time", Retry::Safe))??;
        let lifetime = reply.expires_in.map_or(client.default_lifetime, Duration::from_secs);
        let token = Secret::new(reply.access_token);
        let until = self.clock.now() + lifetime.saturating_sub(RENEW_BEFORE).max(Duration::from_secs(1));
        *cached = Some((token.clone(), until));
        Ok(token)
    }

    async fn fetch(&self, client: &OauthClient) -> Result<TokenReply, UpstreamError> {
        // RFC 6749 §2.3.1: id and secret are form-encoded before they go into the Basic scheme.
        let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let basic = basic(&encode(&client.client_id), &encode(client.client_secret.expose()));
        let mut response = self
            .client
            .post(client.token_url.clone())
            .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(reqwest::header::ACCEPT, "application/json")
            .header(AUTHORIZATION, sensitive(&basic)?)
            .body(token_form(client))
            .send()
            .await
            .map_err(|e| {
                refused("the token endpoint cannot be reached", Retry::Safe).detail(&e.without_url())
            })?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|e| refused("the token endpoint broke off", Retry::Safe).detail(&e.without_url()))?
        {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > TOKEN_REPLY_BYTES_MAX {
                return Err(refused("the token endpoint's answer is too large", Retry::Never));
            }
        }
        if !status.is_success() {
            let why = format!("the token endpoint answered {}", status.as_u16());
            return Err(refused(&why, Retry::Never));
        }
        let reply: TokenReply = json::parse_as(&bytes, TOKEN_REPLY_BYTES_MAX)
            .map_err(|_ignored| refused("the token endpoint's answer is not a token", Retry::Never))?;
        if reply.token_type.as_deref().is_some_and(|t| !t.eq_ignore_ascii_case("bearer")) {
            return Err(refused("the token is not a bearer token", Retry::Never));
        }
        Ok(reply)
    }
}

fn token_form(client: &OauthClient) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if !client.scopes.is_empty() {
        form.append_pair("scope", &client.scopes.join(" "));
    }
    for (name, value) in [("audience", &client.audience), ("resource", &client.resource)] {
        if let Some(value) = value {
            form.append_pair(name, value);
        }
    }
    form.finish()
}

fn refused(why: &str, retry: Retry) -> UpstreamError {
    UpstreamError::new(
        ErrorSource::Credentials,
        retry,
        format!("docent could not get its own credentials: {why}; the operator should look at `[auth]`"),
    )
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn unusable<E>(_: E) -> UpstreamError {
    UpstreamError::internal("the credentials have characters that cannot be sent in a header")
}

fn sensitive(text: &str) -> Result<HeaderValue, UpstreamError> {
    let mut value = HeaderValue::from_str(text).map_err(unusable)?;
    value.set_sensitive(true);
    Ok(value)
}
