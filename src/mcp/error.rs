//! JSON-RPC errors: the only place with their numbers.
//!
//! They are for faults of the protocol. What a model should read and act on is a tool error inside a result.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

use super::revision::Revision;
use crate::call::Asking;
use crate::gateway::ListError;

/// The bytes are not JSON (JSON-RPC 2.0 §5.1).
pub(super) const PARSE_ERROR: i32 = -32700;
/// The JSON is not a JSON-RPC message, or not one that fits here.
pub(super) const INVALID_REQUEST: i32 = -32600;
/// No such method on this wire.
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
/// Missing or wrong parameters; also unknown tools and bad cursors.
pub(super) const INVALID_PARAMS: i32 = -32602;
/// A resource that is not there, on the session wire (MCP 2025-11-25, resources). Never on the stateless one.
pub(super) const RESOURCE_NOT_FOUND: i32 = -32002;
/// A fault inside docent.
pub(super) const INTERNAL_ERROR: i32 = -32603;
/// A header is missing or differs from the body (MCP 2026-07-28, streamable HTTP).
pub(super) const HEADER_MISMATCH: i32 = -32020;
/// The request needs a capability that the client did not declare (MCP 2026-07-28).
pub(super) const MISSING_CAPABILITY: i32 = -32021;
/// The request names a version that is not spoken here (MCP 2026-07-28).
pub(super) const UNSUPPORTED_VERSION: i32 = -32022;
/// docent's own: more scopes are needed. Outside the range that JSON-RPC reserves, as MCP asks of own codes;
/// it is the HTTP status that says the same.
pub(super) const INSUFFICIENT_SCOPE: i32 = 403;

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RpcError {
    /// One of the numbers above.
    pub code: i32,
    /// One sentence that says what to do.
    pub message: Cow<'static, str>,
    /// What a program needs of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Whether the envelope itself was at fault, not what it asks for: answered 400 on HTTP.
    #[serde(skip)]
    pub malformed: bool,
}

impl From<ListError> for RpcError {
    fn from(error: ListError) -> Self {
        Self::invalid_params(error.to_string())
    }
}

impl RpcError {
    /// An error without data.
    pub(super) fn new(code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None, malformed: false }
    }

    /// Adds data.
    #[must_use]
    pub(super) fn data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Marks the envelope itself as at fault.
    #[must_use]
    pub(super) fn malformed(mut self) -> Self {
        self.malformed = true;
        self
    }

    /// Not JSON.
    pub(super) fn parse(why: impl std::fmt::Display) -> Self {
        Self::new(PARSE_ERROR, format!("the body is not JSON: {why}")).malformed()
    }

    /// Not a message that fits here.
    pub(super) fn invalid_request(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(INVALID_REQUEST, why).malformed()
    }

    /// Wrong parameters.
    pub(super) fn invalid_params(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(INVALID_PARAMS, why)
    }

    /// No such method on this wire.
    pub(super) fn method_not_found(method: &str, revision: Revision) -> Self {
        let shown: String = method.chars().take(100).collect();
        Self::new(METHOD_NOT_FOUND, format!("there is no method `{shown}` in {revision} on this server"))
    }

    /// The answer to a tool that does not exist or is hidden: one text for both, without the tool's name.
    pub(super) fn unknown_tool() -> Self {
        Self::invalid_params("there is no such tool; `tools/list` names those there are")
    }

    /// The answer to an agent that does not exist or is hidden: one text for both, without the agent's name.
    pub(super) fn agent_not_found() -> Self {
        Self::invalid_params("there is no such agent; `agents/list` names those there are")
            .data(json!({ "reason": "agent_not_found" }))
    }

    /// An agent names a tool that the configuration does not have: only the operator can mend that.
    pub(super) fn invalid_agent_definition() -> Self {
        let message = "the agent's definition names a tool that this server does not have: tell its operator";
        Self::new(INTERNAL_ERROR, message).data(json!({ "reason": "invalid_agent_definition" }))
    }

    /// A policy says no to opening an agent that the caller may know of.
    pub(super) fn agent_refused(why: &str) -> Self {
        Self::invalid_params(format!("the agent cannot be opened: {why}"))
            .data(json!({ "reason": "agent_refused" }))
    }

    /// A header that is missing or differs from the body.
    pub(super) fn header_mismatch(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(HEADER_MISMATCH, why)
    }

    /// What a call asks of its client, and the client did not declare (MCP 2026-07-28).
    pub(super) fn missing_capability(missing: &[Asking]) -> Self {
        let required: serde_json::Map<String, Value> =
            missing.iter().map(|asking| (asking.capability().to_owned(), json!({}))).collect();
        Self::new(
            MISSING_CAPABILITY,
            "this tool asks its client for something that the client did not declare",
        )
        .data(json!({ "requiredCapabilities": required }))
    }

    /// A version that is not spoken here.
    pub(super) fn unsupported_version(requested: &str) -> Self {
        let requested: String = requested.chars().take(100).collect();
        let supported: Vec<&str> = Revision::ALL.iter().map(|r| r.as_str()).collect();
        Self::new(UNSUPPORTED_VERSION, "this protocol version is not spoken here")
            .data(json!({ "supported": supported, "requested": requested }))
    }

    /// The HTTP status with which the stateless wire sends it (MCP 2026-07-28, streamable HTTP).
    pub(super) fn stateless_status(&self) -> u16 {
        match self.code {
            METHOD_NOT_FOUND => 404,
            HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION | PARSE_ERROR | INVALID_REQUEST => 400,
            INSUFFICIENT_SCOPE => 403,
            _ if self.malformed => 400,
            _ => 200,
        }
    }

    /// The HTTP status with which the session wire sends it: errors of a method travel as 200.
    pub(super) fn session_status(&self) -> u16 {
        match self.code {
            INSUFFICIENT_SCOPE => 403,
            _ if self.malformed => 400,
            _ => 200,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_status_on_either_wire() {
        let rows = [
            (RpcError::parse("x"), 400, 400),
            (RpcError::invalid_request("x"), 400, 400),
            (RpcError::method_not_found("x", Revision::V2026_07_28), 404, 200),
            (RpcError::invalid_params("x"), 200, 200),
            (RpcError::invalid_params("no _meta").malformed(), 400, 400),
            (RpcError::new(INTERNAL_ERROR, "x"), 200, 200),
            (RpcError::header_mismatch("x"), 400, 200),
            (RpcError::new(MISSING_CAPABILITY, "x"), 400, 200),
            (RpcError::unsupported_version("1999-01-01"), 400, 200),
            (RpcError::new(INSUFFICIENT_SCOPE, "x"), 403, 403),
        ];
        for (error, stateless, session) in rows {
            assert_eq!((error.stateless_status(), error.session_status()), (stateless, session), "{error:?}");
        }
    }
}
