//! What an MCP server offers besides tools, as it is written down and read back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::catalog::{PromptArgument, PromptEntry, ResourceEntry, UriTemplate, upstream_uri};
use crate::json::JsonText;
use crate::upstream::{Offered, OfferedResource};

/// Title and description, as far as there are any.
type Words = (Option<String>, Option<String>);

/// All of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct KeptOffers {
    #[serde(default)]
    reads: bool,
    #[serde(default)]
    resources: Vec<KeptResource>,
    #[serde(default)]
    prompts: Vec<KeptPrompt>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptResource {
    /// The upstream's own address, or its template.
    origin: String,
    is_template: bool,
    name: String,
    words: Words,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mime: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptPrompt {
    name: String,
    words: Words,
    arguments: Vec<KeptArgument>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptArgument {
    name: String,
    words: Words,
    required: bool,
}

fn words(title: Option<&Arc<str>>, description: Option<&Arc<str>>) -> Words {
    let text = |t: &Arc<str>| t.as_ref().to_owned();
    (title.map(text), description.map(text))
}

impl KeptOffers {
    /// As it is written down.
    pub(super) fn of(offered: &Offered) -> Self {
        let resource = |r: &OfferedResource| KeptResource {
            origin: r.origin.as_ref().to_owned(),
            is_template: r.template.is_some(),
            name: r.entry.name.as_ref().to_owned(),
            words: words(r.entry.title.as_ref(), r.entry.description.as_ref()),
            mime: r.entry.mime.as_ref().map(|m| m.as_ref().to_owned()),
            size: r.entry.size,
            annotations: r.entry.annotations.as_ref().map(|a| a.raw().to_owned()),
        };
        let argument = |a: &PromptArgument| KeptArgument {
            name: a.name.as_ref().to_owned(),
            words: words(a.title.as_ref(), a.description.as_ref()),
            required: a.required,
        };
        let prompt = |p: &PromptEntry| KeptPrompt {
            name: p.name.as_ref().to_owned(),
            words: words(p.title.as_ref(), p.description.as_ref()),
            arguments: p.arguments.iter().map(argument).collect(),
        };
        Self {
            reads: offered.reads,
            resources: offered.resources.iter().map(resource).collect(),
            prompts: offered.prompts.iter().map(prompt).collect(),
        }
    }

    /// What it was, under docent's addresses. A template that cannot be read any more is left out.
    pub(super) fn recall(self, upstream: &str) -> Offered {
        let resource = |kept: KeptResource| {
            let uri = upstream_uri(upstream, &kept.origin);
            let template = if kept.is_template { Some(UriTemplate::lenient(&uri).ok()?) } else { None };
            let (title, description) = kept.words;
            let entry = ResourceEntry {
                uri: Arc::from(uri),
                name: Arc::from(kept.name),
                title: title.map(Arc::from),
                description: description.map(Arc::from),
                mime: kept.mime.map(Arc::from),
                size: kept.size,
                annotations: kept.annotations.and_then(|raw| JsonText::parse(raw.get().to_owned()).ok()),
            };
            Some(OfferedResource { entry, origin: Arc::from(kept.origin), template })
        };
        let argument = |kept: KeptArgument| PromptArgument {
            name: Arc::from(kept.name),
            title: kept.words.0.map(Arc::from),
            description: kept.words.1.map(Arc::from),
            required: kept.required,
        };
        let prompt = |kept: KeptPrompt| PromptEntry {
            name: Arc::from(kept.name),
            title: kept.words.0.map(Arc::from),
            description: kept.words.1.map(Arc::from),
            arguments: kept.arguments.into_iter().map(argument).collect(),
        };
        Offered {
            reads: self.reads,
            resources: self.resources.into_iter().filter_map(resource).collect(),
            prompts: self.prompts.into_iter().map(prompt).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_offered_comes_back_as_it_was() {
        let entry = ResourceEntry {
            uri: Arc::from(upstream_uri("fs", "file:///{path}")),
            name: Arc::from("a file"),
            description: Some(Arc::from("Any file.")),
            mime: Some(Arc::from("text/plain")),
            size: Some(7),
            annotations: Some(JsonText::of(&json!({"priority": 0.5}))),
            ..ResourceEntry::default()
        };
        let template = UriTemplate::lenient(&entry.uri).ok();
        assert!(template.is_some());
        let plain = ResourceEntry {
            uri: Arc::from(upstream_uri("fs", "x://y")),
            name: Arc::from("y"),
            ..ResourceEntry::default()
        };
        let argument = PromptArgument { name: Arc::from("n"), required: true, ..PromptArgument::default() };
        let offered = Offered {
            reads: true,
            resources: vec![
                OfferedResource { entry, origin: Arc::from("file:///{path}"), template },
                OfferedResource { entry: plain, origin: Arc::from("x://y"), template: None },
            ],
            prompts: vec![PromptEntry {
                name: Arc::from("ask"),
                title: Some(Arc::from("Ask")),
                description: None,
                arguments: vec![argument],
            }],
        };
        let bytes = crate::json::to_bytes(&KeptOffers::of(&offered));
        let kept: KeptOffers = crate::json::parse_as(&bytes, bytes.len()).unwrap();
        assert_eq!(kept.recall("fs"), offered);
        let none: KeptOffers = crate::json::parse_as(b"{}", 10).unwrap();
        assert_eq!(none.recall("fs"), Offered::default());
    }
}
