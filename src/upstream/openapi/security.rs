//! Which credentials a document wants, and where they go. The values come from `[auth]` by reference and are
//! put there by `upstream::http`; here is only the shape.

use std::sync::Arc;

use super::document::{At, Documents, Version};
use super::operation::Location;

/// A place of a request where a credential goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialPlace {
    /// Header, query or cookie.
    pub location: Location,
    /// The name there; headers ignore case.
    pub name: String,
}

impl CredentialPlace {
    /// A place by location and name.
    pub fn new(location: Location, name: impl Into<String>) -> Self {
        Self { location, name: name.into() }
    }

    /// Whether a parameter of a request stands at this place.
    pub fn is(&self, location: Location, name: &str) -> bool {
        self.location == location
            && if location == Location::Header {
                self.name.eq_ignore_ascii_case(name)
            } else {
                self.name == name
            }
    }
}

/// What kind of credential a scheme is (OpenAPI 3.1 §4.8.27, Swagger 2 "Security Scheme Object").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemeKind {
    /// A key at a place of its own: `[auth] header` or `query`.
    ApiKey(CredentialPlace),
    /// `Authorization: Bearer …`: `[auth] bearer`.
    Bearer,
    /// `Authorization: Basic …`: `[auth] basic`.
    Basic,
    /// A bearer token that an authorization server hands out: `[auth] oauth2`.
    OAuth2 {
        /// Where tokens are had, if a flow names it.
        token_url: Option<String>,
        /// All scopes the document knows.
        scopes: Vec<String>,
    },
    /// OpenID Connect discovery; a bearer token in the end.
    OpenIdConnect,
    /// Anything else, by its name: mutual TLS, digest, …
    Other(String),
}

/// A security scheme of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityScheme {
    /// Its name in the document.
    pub name: Arc<str>,
    /// What it is.
    pub kind: SchemeKind,
}

/// One scheme that an operation needs, with the scopes it needs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The scheme's name.
    pub scheme: Arc<str>,
    /// Scopes, for OAuth 2 and OpenID Connect.
    pub scopes: Arc<[Arc<str>]>,
}

/// The schemes of a document; one that cannot be read is left out.
pub(super) fn schemes(documents: &Documents) -> Vec<SecurityScheme> {
    let root = documents.root();
    let holder = match documents.version {
        Version::Swagger2 => Some(root),
        Version::V30 | Version::V31 => root.get("components"),
    };
    let key = if documents.version == Version::Swagger2 { "securityDefinitions" } else { "securitySchemes" };
    let Some(holder) = holder else { return Vec::new() };
    holder
        .members(key)
        .filter_map(|(name, at)| {
            let (at, _) = documents.resolve(at).ok()?;
            Some(SecurityScheme { name: Arc::from(name), kind: kind(at)? })
        })
        .collect()
}

fn kind(at: At<'_>) -> Option<SchemeKind> {
    Some(match at.text("type")? {
        "apiKey" => {
            let location = match at.text("in")? {
                "query" => Location::Query,
                "cookie" => Location::Cookie,
                _ => Location::Header,
            };
            SchemeKind::ApiKey(CredentialPlace::new(location, at.text("name")?))
        }
        "basic" => SchemeKind::Basic,
        "http" => match at.text("scheme")?.to_ascii_lowercase().as_str() {
            "bearer" => SchemeKind::Bearer,
            "basic" => SchemeKind::Basic,
            other => SchemeKind::Other(other.to_owned()),
        },
        "oauth2" => oauth2(at),
        "openIdConnect" => SchemeKind::OpenIdConnect,
        other => SchemeKind::Other(other.to_owned()),
    })
}

fn oauth2(at: At<'_>) -> SchemeKind {
    let flows: Vec<At<'_>> = if at.get("flows").is_some() {
        at.members("flows").map(|(_, flow)| flow).collect()
    } else {
        vec![at]
    };
    let mut scopes: Vec<String> =
        flows.iter().flat_map(|f| f.members("scopes")).map(|(name, _)| name.to_owned()).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let token_url = flows.iter().find_map(|f| f.text("tokenUrl")).map(str::to_owned);
    SchemeKind::OAuth2 { token_url, scopes }
}

/// The alternatives that stand under `security`; `None` where the key is absent.
pub(super) fn requirements(at: At<'_>) -> Option<Arc<[Vec<Requirement>]>> {
    at.get("security")?;
    Some(
        at.items("security")
            .filter_map(|alternative| {
                let map = alternative.object()?;
                let scopes = |v: &serde_json::Value| -> Arc<[Arc<str>]> {
                    v.as_array().into_iter().flatten().filter_map(|s| s.as_str()).map(Arc::from).collect()
                };
                Some(
                    map.iter()
                        .map(|(name, v)| Requirement { scheme: Arc::from(name.as_str()), scopes: scopes(v) })
                        .collect(),
                )
            })
            .collect(),
    )
}
