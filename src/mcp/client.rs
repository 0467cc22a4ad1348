//! What a client says of itself: `_meta` on the stateless wire, `initialize` on the session wire.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::envelope::Params;
use super::error::RpcError;
use super::extensions;
use super::revision::Revision;
use crate::gateway::Negotiated;
use crate::limits::{CLIENT_FACT_BYTES_MAX, RPC_ID_BYTES_MAX};
use crate::policy::{ClientFacts, Principal};

/// `_meta` of a request, as far as the wire reads it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Declared {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    info: Option<Value>,
    #[serde(rename = "progressToken")]
    progress_token: Option<Box<RawValue>>,
}

impl Declared {
    /// Reads `_meta`; nothing where there is none or it is no object.
    pub(super) fn of(params: &Params) -> Self {
        let meta = params.member("_meta").map(|raw| crate::json::parse_as(raw.as_bytes(), raw.len()));
        meta.and_then(Result::ok).unwrap_or_default()
    }

    /// Whether the request belongs to the stateless wire.
    pub(super) fn is_stateless(&self) -> bool {
        self.version.is_some()
    }

    /// The version, once the members that every request must carry are there (MCP 2026-07-28, `_meta`).
    pub(super) fn version(&self) -> Result<&str, RpcError> {
        let missing = |what: &str| {
            RpcError::invalid_params(format!("`params._meta` must have `io.modelcontextprotocol/{what}"))
                .malformed()
        };
        let version = self
            .version
            .as_ref()
            .and_then(Value::as_str)
            .ok_or_else(|| missing("protocolVersion` as a string"))?;
        if !self.capabilities.as_ref().is_some_and(Value::is_object) {
            return Err(missing("clientCapabilities` as an object"));
        }
        Ok(version)
    }

    /// The progress token, if it is a string or an integer.
    pub(super) fn progress_token(&self) -> Option<&RawValue> {
        self.progress_token.as_deref().filter(|raw| {
            let text = raw.get();
            text.len() <= RPC_ID_BYTES_MAX && (text.starts_with('"') || text.parse::<i64>().is_ok())
        })
    }

    /// The client's name and version.
    pub(super) fn facts(&self) -> ClientFacts {
        facts(self.info.as_ref())
    }

    /// The extensions of this request.
    pub(super) fn negotiated(&self) -> Negotiated {
        extensions::negotiated(self.capabilities.as_ref())
    }
}

/// The parameters of `initialize`.
#[derive(Debug, Deserialize)]
pub(super) struct Initialize {
    /// The version that the client would like.
    #[serde(rename = "protocolVersion")]
    pub version: Option<String>,
    #[serde(rename = "clientInfo")]
    info: Option<Value>,
    capabilities: Option<Value>,
}

impl Initialize {
    /// The extensions of the session. 2025-03-26 has no structured results, so nothing is negotiated there.
    pub(super) fn negotiated(&self, revision: Revision) -> Negotiated {
        if revision.is_structured() {
            // Tasks of this kind came with the stateless wire; a session has the job tools.
            Negotiated { tasks: false, ..extensions::negotiated(self.capabilities.as_ref()) }
        } else {
            Negotiated::default()
        }
    }

    /// The client's name and version.
    pub(super) fn facts(&self) -> ClientFacts {
        facts(self.info.as_ref())
    }
}

fn facts(info: Option<&Value>) -> ClientFacts {
    let text = |key| {
        let value = info?.get(key)?.as_str()?;
        (!value.is_empty()).then(|| Arc::from(crate::json::cut(value, CLIENT_FACT_BYTES_MAX)))
    };
    ClientFacts { name: text("name"), version: text("version") }
}

/// The principal together with what its client says of itself.
pub(super) fn with_client(principal: Arc<Principal>, client: ClientFacts) -> Arc<Principal> {
    if principal.client == client {
        return principal;
    }
    Arc::new(Principal { client, ..Principal::clone(&principal) })
}
