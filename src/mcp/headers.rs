//! The headers that the wire reads, without an HTTP library: `transport` shows its header map through
//! [`Headers`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::client::Declared;
use super::envelope::Params;
use super::error::RpcError;
use super::revision::Revision;

/// One header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header<'a> {
    /// It was not sent.
    Absent,
    /// Its value, without surrounding white space.
    Value(&'a str),
    /// It came more than once, or with bytes outside visible ASCII.
    Unreadable,
}

impl<'a> Header<'a> {
    /// The value, if there is a readable one.
    pub fn value(self) -> Option<&'a str> {
        match self {
            Self::Value(text) => Some(text),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// The headers of a request.
pub trait Headers: Send + Sync {
    /// A header by name, in any case.
    fn find(&self, name: &str) -> Header<'_>;
    /// All readable values of a header that is a list, which may come in several lines (RFC 9110 §5.3).
    fn list(&self, name: &str) -> Vec<&str>;
}

/// Session id of the session wire.
pub(super) const SESSION_ID: &str = "mcp-session-id";
/// Protocol version, on every request after the first.
pub(super) const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// A header value in its clear form: `=?base64?…?=` is decoded (MCP 2026-07-28, value encoding).
/// `None` for what looks encoded and is not.
pub(super) fn decode(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|v| v.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    String::from_utf8(STANDARD.decode(inner).ok()?).ok()
}

/// The parameter that `Mcp-Name` repeats, by method.
fn name_parameter(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

fn mismatch(why: impl Into<String>) -> RpcError {
    RpcError::header_mismatch(why.into())
}

/// The standard headers of a request of the stateless wire, against its body (MCP 2026-07-28, standard
/// request headers), and the version it settles on.
pub(super) fn check_stateless(
    headers: &dyn Headers,
    method: &str,
    params: &Params,
    declared: &Declared,
) -> Result<Revision, RpcError> {
    let version = declared.version()?;
    match headers.find(PROTOCOL_VERSION) {
        Header::Value(text) if text == version => {}
        Header::Value(_) => return Err(mismatch("`MCP-Protocol-Version` differs from `_meta`")),
        Header::Absent => return Err(mismatch("`MCP-Protocol-Version` is missing")),
        Header::Unreadable => return Err(mismatch("`MCP-Protocol-Version` cannot be read")),
    }
    let revision = Revision::parse(version)
        .filter(|r| r.is_stateless())
        .ok_or_else(|| RpcError::unsupported_version(version))?;
    match headers.find(METHOD) {
        Header::Value(text) if text == method => {}
        Header::Value(_) => return Err(mismatch("`Mcp-Method` differs from the body's `method`")),
        Header::Absent => return Err(mismatch("`Mcp-Method` is missing")),
        Header::Unreadable => return Err(mismatch("`Mcp-Method` cannot be read")),
    }
    if let Some(member) = name_parameter(method) {
        check_name(headers, member, params)?;
    }
    Ok(revision)
}

fn check_name(headers: &dyn Headers, member: &'static str, params: &Params) -> Result<(), RpcError> {
    let body = params.text_member(member);
    match (headers.find(NAME), body) {
        (Header::Value(text), Some(body)) => match decode(text) {
            Some(name) if name == body => Ok(()),
            Some(_) => Err(mismatch(format!("`Mcp-Name` differs from `params.{member}`"))),
            None => Err(mismatch("`Mcp-Name` cannot be decoded")),
        },
        (Header::Absent, Some(_)) => Err(mismatch("`Mcp-Name` is missing")),
        (Header::Unreadable, _) => Err(mismatch("`Mcp-Name` cannot be read")),
        // Without the parameter the method itself answers what is wrong.
        (_, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_decode_only_where_they_say_so() {
        assert_eq!(decode("git_log").as_deref(), Some("git_log"));
        assert_eq!(decode("=?base64?Z3LDvG4=?=").as_deref(), Some("gr\u{fc}n"));
        assert_eq!(decode("=?base64?/w==?="), None, "not UTF-8");
        assert_eq!(decode("=?base64?Z3L?="), None, "not padded");
        assert_eq!(decode("=?base64?Z3L").as_deref(), Some("=?base64?Z3L"), "no end, so not encoded");
    }
}
