//! What goes into and comes out of the use cases of resources, prompts and completion.

use std::sync::Arc;

use serde_json::Value;

use crate::call::ToolError;
use crate::catalog::{PromptEntry, ResourceEntry};
use crate::json::Object;
use crate::policy::ScopeChallenge;

use super::super::ClientQuestion;

/// What became of a request for something offered.
#[derive(Debug, Clone)]
pub enum OfferAnswer<T> {
    /// Here it is.
    Done(T),
    /// There is no such thing for this caller: absent and hidden give this one answer.
    NotFound,
    /// More scopes are needed first.
    Challenge(ScopeChallenge),
    /// It failed, or is refused.
    Failed(ToolError),
    /// A tool behind it asks its client: ask for it again with the answers.
    Ask(Box<ClientQuestion>),
}

/// One page of resources or of templates.
#[derive(Debug, Clone, Default)]
pub struct ResourcePage {
    /// In the order of their addresses; the caller's own files come last.
    pub resources: Vec<Arc<ResourceEntry>>,
    /// The token of the next page, if there is one.
    pub next_cursor: Option<String>,
}

/// One page of prompts.
#[derive(Debug, Clone, Default)]
pub struct PromptPage {
    /// In the order of their names.
    pub prompts: Vec<Arc<PromptEntry>>,
    /// The token of the next page, if there is one.
    pub next_cursor: Option<String>,
}

/// A part of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceContent {
    /// Its address.
    pub uri: String,
    /// Its media type.
    pub mime: Option<String>,
    /// The content.
    pub body: ContentBody,
}

/// Text as it is, or bytes in base64.
#[derive(Debug, Clone, PartialEq)]
pub enum ContentBody {
    /// A text.
    Text(String),
    /// Base64 (RFC 4648 §4).
    Blob(String),
}

impl ContentBody {
    /// What it takes.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) | Self::Blob(text) => text.len(),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A prompt with its arguments put in.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptText {
    /// What it is for.
    pub description: Option<Arc<str>>,
    /// Its messages.
    pub messages: Vec<PromptMessage>,
}

/// One message: `user` or `assistant`, and a content block (MCP, content).
#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    /// Who says it.
    pub role: &'static str,
    /// The block.
    pub content: Value,
}

/// What is to be completed.
#[derive(Debug, Clone)]
pub enum Completing {
    /// An argument of a prompt, by the prompt's name.
    Prompt(String),
    /// A variable of a template, by the template.
    Resource(String),
}

/// A question for completions.
#[derive(Debug, Clone)]
pub struct Completion {
    /// Of what.
    pub of: Completing,
    /// The argument or variable.
    pub argument: String,
    /// What was typed so far.
    pub value: String,
    /// Other arguments, as far as they are settled.
    pub context: Object,
}
