//! What an upstream offers besides tools: resources, templates of resources, prompts. What they are, not where
//! they come from nor who may use them.

use std::sync::Arc;

use crate::json::JsonText;

/// A resource, or a template of resources, as a list shows it (MCP, resources).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceEntry {
    /// The address; of a template, the template (RFC 6570).
    pub uri: Arc<str>,
    /// A short name for programs.
    pub name: Arc<str>,
    /// A title for people.
    pub title: Option<Arc<str>>,
    /// What it holds, for models.
    pub description: Option<Arc<str>>,
    /// Its media type.
    pub mime: Option<Arc<str>>,
    /// Its bytes, where known.
    pub size: Option<u64>,
    /// MCP's annotations: audience, priority, lastModified.
    pub annotations: Option<JsonText>,
}

/// A prompt as a list shows it (MCP, prompts).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptEntry {
    /// The name on the wire.
    pub name: Arc<str>,
    /// A title for people.
    pub title: Option<Arc<str>>,
    /// What it is for.
    pub description: Option<Arc<str>>,
    /// What it takes.
    pub arguments: Vec<PromptArgument>,
}

/// One argument of a prompt. Its value is always a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptArgument {
    /// Its name.
    pub name: Arc<str>,
    /// A title for people.
    pub title: Option<Arc<str>>,
    /// What it is.
    pub description: Option<Arc<str>>,
    /// Whether the prompt cannot do without.
    pub required: bool,
}

/// The scheme of docent's own addresses.
pub const SCHEME: &str = "docent";
/// What stands before the address that an upstream gives a resource: `docent://upstream/<id>/<address>`.
const OF_UPSTREAMS: &str = "docent://upstream/";

/// An upstream's address as docent's callers are shown it. The address itself stays as it is, so that a
/// template of the upstream stays one.
pub fn upstream_uri(upstream: &str, uri: &str) -> String {
    format!("{OF_UPSTREAMS}{upstream}/{uri}")
}

/// The upstream and its own address of an address made by [`upstream_uri`].
pub fn of_upstream(uri: &str) -> Option<(&str, &str)> {
    uri.strip_prefix(OF_UPSTREAMS)?.split_once('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstreams_address_comes_back_as_it_was() {
        for uri in ["file:///a b", "test://x/{id}?q=1#f", "plain", ""] {
            assert_eq!(of_upstream(&upstream_uri("fs", uri)), Some(("fs", uri)));
        }
        assert_eq!(of_upstream("docent://files/1"), None);
    }
}
