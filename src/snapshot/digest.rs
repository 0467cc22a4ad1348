//! Digests that tell whether something changed: of one tool as it is shown, of what ranking reads, of
//! everything that a page token depends on.

use crate::catalog::{Availability, Catalog, Tool};
use crate::cursor::{Digest, Parts};
use crate::diagnostic::SourceFile;
use crate::json;

/// Files that may be absent.
pub(super) fn of_files(files: &[&Option<SourceFile>]) -> Digest {
    let mut parts = Parts::default();
    for file in files {
        parts.add(&[u8::from(file.is_some())]);
        parts.add(file.as_ref().map_or("", |f| &f.text).as_bytes());
    }
    parts.digest()
}

/// A tool as callers are shown it: names, texts, schemas, hints.
pub(super) fn of_tool(tool: &Tool) -> Digest {
    let mut parts = Parts::default();
    parts.add(tool.id.as_str().as_bytes());
    parts.add(tool.wire_name.as_bytes());
    parts.add(tool.title.as_deref().unwrap_or("").as_bytes());
    parts.add(tool.description.as_bytes());
    parts.add(tool.input_schema.as_str().as_bytes());
    if tool.wire_schema != tool.input_schema {
        parts.add(tool.wire_schema.as_str().as_bytes());
    }
    parts.add(tool.output_schema.as_ref().map_or("", |s| s.as_str()).as_bytes());
    parts.add(&json::to_bytes(&tool.annotations));
    parts.add(&json::to_bytes(&tool.deprecated));
    parts.add(tool.tasks.map_or("", |t| t.as_str()).as_bytes());
    parts.digest()
}

/// What search reads: the tools as shown, and the words, labels and files besides.
pub(super) fn of_ranked(catalog: &Catalog, tools: &[Digest], files: &Digest) -> Digest {
    let mut parts = Parts::default();
    parts.add(files);
    for (tool, shown) in catalog.tools().iter().zip(tools) {
        parts.add(shown);
        parts.add(tool.upstream.as_str().as_bytes());
        parts.add(tool.name.as_bytes());
        parts.add(tool.category.as_bytes());
        parts.add(tool.search_hints.as_bytes());
        parts.add(&json::to_bytes(&tool.tags));
    }
    parts.digest()
}

/// What decides which tools a caller sees in which order: page tokens live as long as this stays.
pub(super) fn of_state(ranked: &Digest, policy: &Digest, catalog: &Catalog) -> Digest {
    let mut parts = Parts::default();
    parts.add(ranked);
    parts.add(policy);
    for tool in catalog.tools() {
        parts.add(tool.tier.as_deref().unwrap_or("").as_bytes());
        parts.add(&json::to_bytes(&tool.scopes));
        parts.add(&json::to_bytes(&tool.facts));
        parts.add(match &tool.availability {
            Availability::Available => b"",
            Availability::Unavailable(reason) => reason.as_bytes(),
        });
    }
    parts.digest()
}
