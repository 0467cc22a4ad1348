//! `[auth]`: docent's own credentials at an HTTP upstream. Callers' tokens are never sent on.

use std::time::Duration;

use super::{Reader, SecretPair, kind::secret_pairs};
use crate::secret::Secret;
use crate::settings::Section;

/// OAuth 2.0 client credentials (RFC 6749 §4.4): a token is fetched, cached until it expires, sent as bearer.
#[derive(Debug, Clone)]
pub struct OauthClient {
    /// The token endpoint.
    pub token_url: url::Url,
    /// The client's id.
    pub client_id: String,
    /// The client's secret.
    pub client_secret: Secret,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// `audience`, for servers that want it.
    pub audience: Option<String>,
    /// `resource` (RFC 8707), for servers that want it.
    pub resource: Option<String>,
    /// How long a token is used where the server does not say.
    pub default_lifetime: Duration,
}

/// How docent proves itself. Several may be set: two keys in headers are common.
#[derive(Debug, Clone, Default)]
pub struct AuthConfig {
    /// `Authorization: Bearer …`
    pub bearer: Option<Secret>,
    /// Headers with secret values.
    pub headers: Vec<SecretPair>,
    /// Query parameters with secret values.
    pub query: Vec<SecretPair>,
    /// `Authorization: Basic …`
    pub basic: Option<(Secret, Secret)>,
    /// A token fetched with client credentials.
    pub oauth2: Option<OauthClient>,
    /// Where the table stands.
    pub offset: usize,
}

impl AuthConfig {
    /// Whether there are no credentials at all.
    pub fn is_none(&self) -> bool {
        self.bearer.is_none()
            && self.headers.is_empty()
            && self.query.is_empty()
            && self.basic.is_none()
            && self.oauth2.is_none()
    }

    pub(super) fn read(section: &mut Section, reader: &mut Reader<'_>) -> Self {
        let mut auth = Self { offset: section.offset(), ..Self::default() };
        if let Some(text) = section.string("bearer") {
            auth.bearer = reader.expand_secret(section, &text);
        }
        auth.headers = secret_pairs(section, "header", reader, true);
        auth.query = secret_pairs(section, "query", reader, false);
        if let Some(mut basic) = section.section("basic") {
            let username = basic.required_string("username");
            let password = basic.required_string("password");
            auth.basic = reader.expand_name(&basic, &username).zip(reader.expand_secret(&basic, &password));
        }
        auth.oauth2 = section.section("oauth2").and_then(|mut s| oauth2(&mut s, reader));
        if section.has("token_exchange") {
            let found = section.json("token_exchange").map_or(section.offset(), |t| t.offset);
            section.error(
                found,
                "not-built-yet",
                "`auth.token_exchange` is not built yet",
                "use `bearer`, `header`, `query`, `basic` or `oauth2` for now",
            );
        }
        let authorizations = usize::from(auth.bearer.is_some())
            + usize::from(auth.basic.is_some())
            + usize::from(auth.oauth2.is_some());
        if authorizations > 1 {
            section.error(
                auth.offset,
                "several-credentials",
                "`bearer`, `basic` and `oauth2` all fill the header `authorization`",
                "keep one of them",
            );
        }
        auth
    }
}

fn oauth2(section: &mut Section, reader: &mut Reader<'_>) -> Option<OauthClient> {
    let token_url = section.required_string("token_url");
    let client_id = section.required_string("client_id");
    let secret = section.required_string("client_secret");
    let scopes = section.plain_strings("scopes");
    let audience = section.string("audience").map(|t| t.value);
    let resource = section.string("resource").map(|t| t.value);
    let lifetime = section.integer("default_lifetime_seconds", 1..=86_400).unwrap_or(300);
    let url = super::kind::http_url(section, &token_url)?;
    Some(OauthClient {
        token_url: url,
        client_id: reader.expand_name(section, &client_id)?.expose().to_owned(),
        client_secret: reader.expand_secret(section, &secret)?,
        scopes,
        audience,
        resource,
        default_lifetime: Duration::from_secs(lifetime),
    })
}
