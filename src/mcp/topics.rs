//! The lists that a client may be told of when they change: one row each, the same on every kind of stream.

use serde_json::{Map, Value};

use super::service::Service;
use crate::gateway::{Negotiated, RequestContext, Surface};

/// Of lists that a service does not have.
const NOTHING: Surface = Surface([0; 32]);

/// A list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    /// `tools/list`
    Tools,
    /// `resources/list` and `resources/templates/list`
    Resources,
    /// `prompts/list`
    Prompts,
    /// `agents/list`
    Agents,
}

impl Topic {
    pub(super) const ALL: [Self; 4] = [Self::Tools, Self::Resources, Self::Prompts, Self::Agents];

    /// Its member in the filter of `subscriptions/listen`.
    pub(super) fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Resources => "resourcesListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Agents => "agentsListChanged",
        }
    }

    /// Its notification.
    pub(super) fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Resources => "notifications/resources/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Agents => "notifications/agents/list_changed",
        }
    }

    /// Whether a client of the session wire is told without asking: of an extension only where it has declared
    /// that it knows it.
    pub(super) fn is_told(self, negotiated: Negotiated) -> bool {
        match self {
            Self::Tools | Self::Resources | Self::Prompts => true,
            Self::Agents => negotiated.agents,
        }
    }

    /// The lists that a client of the session wire is told of.
    pub(super) fn told(negotiated: Negotiated) -> Vec<Self> {
        Self::ALL.into_iter().filter(|t| t.is_told(negotiated)).collect()
    }

    /// The lists that a filter asks for. What is not named here is not honoured and not acknowledged.
    pub(super) fn asked(filter: &Map<String, Value>) -> Vec<Self> {
        Self::ALL.into_iter().filter(|t| filter.get(t.filter()) == Some(&Value::Bool(true))).collect()
    }

    /// Whether there is such a list at all.
    pub(super) fn is_offered(self, service: &dyn Service) -> bool {
        match self {
            Self::Tools | Self::Agents => true,
            Self::Resources | Self::Prompts => service.gateway().is_some(),
        }
    }

    /// The digest of what this caller is shown of it now.
    pub(super) fn surface(self, service: &dyn Service, ctx: &RequestContext) -> Surface {
        match self {
            Self::Tools => service.surface(ctx),
            Self::Resources => service.gateway().map_or(NOTHING, |g| g.resource_surface(ctx)),
            Self::Prompts => service.gateway().map_or(NOTHING, |g| g.prompt_surface(ctx)),
            Self::Agents => service.agent_surface(ctx),
        }
    }
}

/// Some lists as a caller was last shown them.
#[derive(Debug, Clone)]
pub(super) struct Seen(pub(super) Vec<(Topic, Surface)>);

impl Seen {
    /// The lists as they are now.
    pub(super) fn now(topics: Vec<Topic>, service: &dyn Service, ctx: &RequestContext) -> Self {
        Self(topics.into_iter().map(|t| (t, t.surface(service, ctx))).collect())
    }

    /// Looks again: those that are not as they were.
    pub(super) fn moved(&mut self, service: &dyn Service, ctx: &RequestContext) -> Vec<Topic> {
        let mut moved = Vec::new();
        for (topic, surface) in &mut self.0 {
            let now = topic.surface(service, ctx);
            if std::mem::replace(surface, now) != now {
                moved.push(*topic);
            }
        }
        moved
    }
}
