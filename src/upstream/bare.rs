//! Kind `script`: the tools are defined here and run by the gateway, which has the scripts and may make
//! further decided calls for them.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::config::{ToolConfig, UpstreamConfig};
use super::{
    CallHints, Discovered, Discovery, ErrorSource, Invocation, Retry, Upstream, UpstreamError, UpstreamState,
    UpstreamStatus,
};
use crate::call::UpstreamReply;
use crate::catalog::Tool;
use crate::id::UpstreamId;
use crate::schema::SchemaText;
use crate::schema::fold::fold;

/// An adapter that only defines tools.
#[derive(Debug)]
pub(super) struct Definitions {
    config: UpstreamConfig,
}

impl Definitions {
    pub(super) fn new(config: &UpstreamConfig) -> Self {
        Self { config: config.clone() }
    }
}

impl Upstream for Definitions {
    fn id(&self) -> &UpstreamId {
        &self.config.id
    }

    fn discover(&self) -> BoxFuture<'_, Result<Discovery, UpstreamError>> {
        let tools = self.config.tools.iter().filter_map(|t| by_hand(&self.config, t)).collect();
        Box::pin(std::future::ready(Ok(Discovery { tools, complete: true, ..Discovery::default() })))
    }

    fn invoke<'a>(&'a self, _call: Invocation<'a>) -> BoxFuture<'a, Result<UpstreamReply, UpstreamError>> {
        let error = UpstreamError {
            source_kind: ErrorSource::Internal,
            retry: Retry::Never,
            message: format!("the tools of `{}` are run by scripts, not by an upstream", self.config.id),
            detail: String::new(),
        };
        Box::pin(std::future::ready(Err(error)))
    }

    fn status(&self) -> UpstreamStatus {
        UpstreamStatus {
            id: self.config.id.clone(),
            kind: self.config.kind.word(),
            state: UpstreamState::Up,
            complete: true,
            tools: self.config.tools.len(),
            note: String::new(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A tool written by hand in `[[tool]]`.
pub(super) fn by_hand(config: &UpstreamConfig, own: &ToolConfig) -> Option<Discovered> {
    let schema = own.input_schema.clone().unwrap_or_else(SchemaText::empty_object);
    let id = config.tool_id(&own.name)?;
    Some(discovered(config, Tool::new(id, config.id.clone(), Arc::clone(&own.name), schema), Some(own)))
}

/// The schema as it is shown: an object at the root without combinators.
fn shown(schema: &SchemaText) -> SchemaText {
    // Only a schema that says one of these words can need it, and parsing 10,000 schemas is not free.
    let text = schema.as_str();
    if !["Of\"", "\"$ref\"", "\"not\"", "\"if\"", "\"nullable\""].iter().any(|w| text.contains(w))
        && text.contains("\"object\"")
    {
        return schema.clone();
    }
    fold(&schema.value()).map_or_else(|| schema.clone(), |folded| SchemaText::of(&folded))
}

/// Fills a tool with what the upstream's file says of all tools and of this one.
pub(super) fn discovered(config: &UpstreamConfig, mut tool: Tool, own: Option<&ToolConfig>) -> Discovered {
    let defaults = &config.defaults;
    if let (true, Some(category)) = (tool.category.is_empty(), &defaults.category) {
        tool.category = Arc::clone(category);
    }
    if !defaults.tags.is_empty() {
        let tags: Vec<Arc<str>> = tool.tags.iter().chain(&defaults.tags).cloned().collect();
        tool.tags = Arc::from(tags);
    }
    if defaults.tier.is_some() {
        tool.tier.clone_from(&defaults.tier);
    }
    if !defaults.scopes.is_empty() {
        tool.scopes = Arc::from(defaults.scopes.as_slice());
    }
    if !defaults.facts.is_empty() {
        tool.facts = Arc::new(defaults.facts.clone());
    }
    if let Some(own) = own {
        own.apply(&mut tool);
    }
    let folded = own.and_then(|o| o.fold_schema).unwrap_or(true);
    if folded && tool.wire_schema == tool.input_schema {
        tool.wire_schema = shown(&tool.input_schema);
    }
    let hints = CallHints {
        timeout: own.and_then(|o| o.timeout).unwrap_or(config.timeout),
        wait: own.and_then(|o| o.wait),
        dedup: own.and_then(|o| o.dedup.clone()),
        creates: own.and_then(|o| o.creates.clone()),
    };
    Discovered { tool, projection: own.and_then(|o| o.projection.clone()), hints }
}
