//! The caller: whom a request speaks for, and what is known of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use crate::id::{AgentId, Scope};
use crate::json::Object;

/// How much of the catalog `tools/list` shows (seed 000). Listing is never authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscoveryMode {
    /// Every permitted tool, in pages, after the meta-tools.
    Full,
    /// The meta-tools only.
    Compact,
    /// `Full` while the permitted list is short, else `Compact`.
    Auto,
}

impl DiscoveryMode {
    /// The words and their modes, for settings, flags and query strings.
    pub const WORDS: [(&'static str, Self); 3] =
        [("full", Self::Full), ("compact", Self::Compact), ("auto", Self::Auto)];

    /// The mode of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(w, _)| *w == word).map(|(_, m)| m)
    }

    /// The word of the mode.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Compact => "compact",
            Self::Auto => "auto",
        }
    }
}

/// What the client says of itself. Never a ground for a right, only for shapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ClientFacts {
    /// `clientInfo.name`.
    pub name: Option<Arc<str>>,
    /// `clientInfo.version`.
    pub version: Option<Arc<str>>,
}

/// A caller, as authentication found it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Principal {
    /// The name: a key of `[callers]`, a token's subject, or `anonymous`.
    pub subject: Arc<str>,
    /// The scopes it holds.
    pub scopes: BTreeSet<Scope>,
    /// The agent it speaks as.
    pub agent: Option<AgentId>,
    /// Its tier.
    pub tier: Option<Arc<str>>,
    /// Free facts that policies may read.
    pub claims: Arc<Object>,
    /// The discovery mode of its entry or token.
    pub discovery: Option<DiscoveryMode>,
    /// What its client says of itself.
    pub client: ClientFacts,
}

impl Principal {
    /// The caller without credentials, in `auth.mode = "none"`.
    pub fn anonymous() -> Self {
        Self { subject: Arc::from("anonymous"), ..Self::default() }
    }

    /// Whether it holds a scope, spelled exactly.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.contains(scope)
    }
}
