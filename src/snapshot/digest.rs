//! Digests that tell whether something changed: of one tool as it is shown, of what ranking reads, of
//! everything that a page token depends on.

use crate::catalog::{Availability, Catalog, Tool};
use crate::cursor::Digest;
use crate::diagnostic::SourceFile;
use crate::json;

/// Collects length-prefixed parts, so that two lists of parts never look alike.
#[derive(Debug)]
pub(super) struct Texts(blake3::Hasher);

impl Texts {
    pub(super) fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    /// Files that may be absent.
    pub(super) fn of(files: &[&Option<SourceFile>]) -> Self {
        let mut texts = Self::new();
        for file in files {
            texts.add(&[u8::from(file.is_some())]);
            texts.add(file.as_ref().map_or("", |f| &f.text).as_bytes());
        }
        texts
    }

    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.0.update(part);
    }

    pub(super) fn digest(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}

/// A tool as callers are shown it: names, texts, schemas, hints.
pub(super) fn of_tool(tool: &Tool) -> Digest {
    let mut texts = Texts::new();
    texts.add(tool.id.as_str().as_bytes());
    texts.add(tool.wire_name.as_bytes());
    texts.add(tool.title.as_deref().unwrap_or("").as_bytes());
    texts.add(tool.description.as_bytes());
    texts.add(tool.input_schema.as_str().as_bytes());
    if tool.wire_schema != tool.input_schema {
        texts.add(tool.wire_schema.as_str().as_bytes());
    }
    texts.add(tool.output_schema.as_ref().map_or("", |s| s.as_str()).as_bytes());
    texts.add(&json::to_bytes(&tool.annotations));
    texts.add(&json::to_bytes(&tool.deprecated));
    texts.digest()
}

/// What search reads: the tools as shown, and the words, labels and files besides.
pub(super) fn of_ranked(catalog: &Catalog, tools: &[Digest], files: &Texts) -> Digest {
    let mut texts = Texts::new();
    texts.add(&files.digest());
    for (tool, shown) in catalog.tools().iter().zip(tools) {
        texts.add(shown);
        texts.add(tool.name.as_bytes());
        texts.add(tool.category.as_bytes());
        texts.add(tool.search_hints.as_bytes());
        texts.add(&json::to_bytes(&tool.tags));
    }
    texts.digest()
}

/// What decides which tools a caller sees in which order: page tokens live as long as this stays.
pub(super) fn of_state(ranked: &Digest, policy: &Digest, catalog: &Catalog) -> Digest {
    let mut texts = Texts::new();
    texts.add(ranked);
    texts.add(policy);
    for tool in catalog.tools() {
        texts.add(tool.tier.as_deref().unwrap_or("").as_bytes());
        texts.add(&json::to_bytes(&tool.scopes));
        texts.add(&json::to_bytes(&tool.facts));
        texts.add(match &tool.availability {
            Availability::Available => b"",
            Availability::Unavailable(reason) => reason.as_bytes(),
        });
    }
    texts.digest()
}
