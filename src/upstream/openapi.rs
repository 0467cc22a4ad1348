//! OpenAPI documents (3.0, 3.1, Swagger 2; JSON or YAML) as tools, and calls of those tools as HTTP requests.
//!
//! Pure: bytes in, tools and requests out. It opens no file (a loader hands it sibling documents), sends
//! nothing, holds no credential; `upstream::http` does. One bad operation is reported and skipped, never the
//! document.

mod argument;
mod body;
mod closure;
mod convert;
mod document;
mod encode;
mod filter;
mod import;
mod keywords;
mod merge;
mod naming;
mod operation;
mod parameter;
mod payload;
mod security;
mod server;
mod text;

use std::sync::Arc;

use crate::catalog::Tool;
use crate::diagnostic::Diagnostics;
use crate::id::UpstreamId;

pub use filter::Filter;
pub use import::import;
pub use operation::{Location, Operation, Rename};
pub use security::{CredentialPlace, Requirement, SchemeKind, SecurityScheme};

/// Reads a sibling document by its path relative to the folder of the main one's name, e.g. `common/Error.yaml`
/// (never absolute, never beginning with `..`). The error is shown in a diagnostic.
pub type Loader<'a> = dyn Fn(&str) -> Result<Vec<u8>, String> + 'a;

/// What to make of a document.
#[derive(Debug, Clone)]
pub struct Options {
    /// The upstream: the first part of every tool id.
    pub upstream: UpstreamId,
    /// Where the service lives, instead of the document's own servers.
    pub base_url: Option<String>,
    /// Operations to take; an empty filter takes all.
    pub include: Filter,
    /// Operations to leave out.
    pub exclude: Filter,
    /// The tools' category.
    pub category: Arc<str>,
    /// Labels given to every tool, before those of the document.
    pub tags: Vec<Arc<str>>,
    /// Where `[auth]` puts credentials: parameters at these places are not shown as arguments.
    pub credentials: Vec<CredentialPlace>,
}

impl Options {
    /// Everything of a document, at its own servers.
    pub fn new(upstream: UpstreamId) -> Self {
        Self {
            upstream,
            base_url: None,
            include: Filter::default(),
            exclude: Filter::default(),
            category: Arc::from(""),
            tags: Vec::new(),
            credentials: Vec::new(),
        }
    }
}

/// An operation that is no tool, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// `GET /users/{id}`, with the operationId in brackets where there is one.
    pub operation: String,
    /// Why, in one sentence.
    pub reason: String,
    /// Whether settings left it out, rather than a fault of the document.
    pub filtered: bool,
}

/// What a document gives.
#[derive(Debug)]
pub struct Import {
    /// The tools, each with the binding that makes its requests; `tool.name` is unique here.
    pub tools: Vec<(Tool, Operation)>,
    /// Operations that are no tool; together with `tools` they are all operations of the document.
    pub skipped: Vec<Skipped>,
    /// Where requests go: the `base_url` of the options, else made from the document's servers. `None` when the
    /// document names no usable one; then `base_url` has to be set.
    pub base_url: Option<String>,
    /// The document's security schemes: which credential has which place.
    pub security: Vec<SecurityScheme>,
    /// The document's own title.
    pub title: String,
    /// What was found on the way: dangling references, schemas that had to be loosened.
    pub diagnostics: Diagnostics,
}

#[cfg(test)]
mod tests;
