//! Who may come in: the boundary, the callers, and what a client is told about getting a token. A reload
//! replaces it whole.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;

use super::origin::Boundary;
use crate::audit::Audit;
use crate::auth::{AuthRefusal, Authenticator};
use crate::policy::ScopeChallenge;

/// What stands between a connection and the first method.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Hosts and origins.
    pub boundary: Boundary,
    /// Callers and their tokens.
    pub callers: Arc<Authenticator>,
    /// How callers reach the server, without a final `/`; the request's own host where there is none.
    pub public_url: Option<Arc<str>>,
    /// `auth.issuer`: where tokens come from, for the protected resource metadata.
    pub issuer: Option<Arc<str>>,
    /// `auth.scopes_supported`, for the same.
    pub scopes_supported: Vec<String>,
    /// Where refused tokens are recorded.
    pub audit: Audit,
}

/// The current [`Access`], shared by all connections.
#[derive(Debug, Clone, Default)]
pub struct AccessHandle(Arc<ArcSwap<Access>>);

impl AccessHandle {
    /// Starts with a first one.
    pub fn new(access: Access) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(access)))
    }

    /// The current one. Take it once per request.
    pub fn current(&self) -> Arc<Access> {
        self.0.load_full()
    }

    /// Replaces it, for the requests to come.
    pub fn replace(&self, access: Access) {
        self.0.store(Arc::new(access));
    }
}

/// Path of the protected resource metadata (RFC 9728 §3.1), and the same for the endpoint's own path.
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";
pub(super) const METADATA_OF_MCP: &str = "/.well-known/oauth-protected-resource/mcp";

/// RFC 9728 §2.
#[derive(Debug, Serialize)]
pub(super) struct Metadata<'a> {
    resource: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    authorization_servers: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    scopes_supported: &'a [String],
    bearer_methods_supported: [&'static str; 1],
}

impl Access {
    /// The server's address as this client knows it. `host` was let in by the boundary.
    fn base(&self, host: Option<&str>) -> String {
        match (&self.public_url, host) {
            (Some(url), _) => url.trim_end_matches('/').to_owned(),
            (None, Some(host)) => format!("http://{host}"),
            (None, None) => "http://localhost".to_owned(),
        }
    }

    /// The protected resource metadata.
    pub(super) fn metadata(&self, host: Option<&str>) -> Metadata<'_> {
        Metadata {
            resource: format!("{}/mcp", self.base(host)),
            authorization_servers: self.issuer.as_deref().into_iter().collect(),
            scopes_supported: &self.scopes_supported,
            bearer_methods_supported: ["header"],
        }
    }

    fn resource_metadata(&self, host: Option<&str>) -> String {
        format!("resource_metadata=\"{}{METADATA_OF_MCP}\"", self.base(host))
    }

    /// `WWW-Authenticate` for a request without a caller, and its status (RFC 6750 §3).
    pub(super) fn unauthorized(&self, refusal: AuthRefusal, host: Option<&str>) -> (u16, String) {
        let metadata = self.resource_metadata(host);
        match refusal {
            AuthRefusal::Missing => (401, format!("Bearer {metadata}")),
            AuthRefusal::Invalid => (401, format!("Bearer error=\"invalid_token\", {metadata}")),
            // The texts have neither quote nor backslash.
            AuthRefusal::Token(why) => {
                (401, format!("Bearer error=\"invalid_token\", error_description=\"{why}\", {metadata}"))
            }
            AuthRefusal::NoKeys => (503, format!("Bearer {metadata}")),
            AuthRefusal::Malformed => (400, format!("Bearer error=\"invalid_request\", {metadata}")),
        }
    }

    /// `WWW-Authenticate` for a call that needs more scopes, all of them at once (RFC 6750 §3.1).
    pub(super) fn insufficient_scope(&self, challenge: &ScopeChallenge, host: Option<&str>) -> String {
        // Scopes have no quote and no backslash in their alphabet.
        let scopes: Vec<&str> = challenge.scopes.iter().map(crate::id::Scope::as_str).collect();
        format!(
            "Bearer error=\"insufficient_scope\", scope=\"{}\", {}",
            scopes.join(" "),
            self.resource_metadata(host)
        )
    }
}
