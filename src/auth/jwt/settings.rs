//! What `[auth]` of docent.toml says of JWTs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::Algorithm;

use super::keys::KeySource;
use crate::id::{AgentId, Scope};
use crate::policy::Tiers;

/// A signature algorithm that tokens may have (RFC 7518 §3.1, RFC 8037). Only with public keys: `none` and the
/// `HS` family, whose verifier could also sign, are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// With SHA-384.
    Rs384,
    /// With SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// With SHA-384.
    Ps384,
    /// With SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl JwtAlgorithm {
    /// The words of `auth.algorithms`.
    pub const WORDS: [(&'static str, Self); 9] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// The same in the crate's own words.
    pub(super) fn of_crate(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Rs384 => Algorithm::RS384,
            Self::Rs512 => Algorithm::RS512,
            Self::Ps256 => Algorithm::PS256,
            Self::Ps384 => Algorithm::PS384,
            Self::Ps512 => Algorithm::PS512,
            Self::Es256 => Algorithm::ES256,
            Self::Es384 => Algorithm::ES384,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

/// What a role of the issuer is worth here (`[auth.roles.NAME]`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleRights {
    /// Scopes that it brings.
    pub scopes: BTreeSet<Scope>,
    /// The tier that it brings; of several roles the highest rung counts.
    pub tier: Option<Arc<str>>,
}

/// `[auth]` with `mode = "jwt"`, defaults filled in.
#[derive(Debug, Clone)]
pub struct JwtSettings {
    /// `auth.issuer`: the `iss` of every token.
    pub issuer: Arc<str>,
    /// `auth.audience`: one of them is in the token's `aud`.
    pub audiences: Vec<String>,
    /// `auth.jwks_url` or `auth.jwks_file`
    pub keys: KeySource,
    /// `auth.algorithms`
    pub algorithms: Vec<JwtAlgorithm>,
    /// `auth.clock_skew_seconds`
    pub clock_skew: Duration,
    /// `auth.subject_claim`
    pub subject_claim: String,
    /// `auth.scope_claims`: the scopes of all of them together.
    pub scope_claims: Vec<String>,
    /// `auth.roles_claim`, which may be a JSON Pointer.
    pub roles_claim: String,
    /// `auth.agent_claim`: the agent that the token speaks as.
    pub agent_claim: Option<String>,
    /// `auth.tier_claim`
    pub tier_claim: Option<String>,
    /// `[auth.roles]`
    pub roles: BTreeMap<String, RoleRights>,
    /// `tiers.order`, to tell which of two tiers is lower.
    pub tiers: Tiers,
    /// The agents of the home: a token that names another is refused.
    pub agents: BTreeSet<AgentId>,
}
