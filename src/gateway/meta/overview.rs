//! `list_categories` and `context`: what there is for this caller, and who it is here.

use serde::Serialize;
use serde_json::json;

use crate::call::ToolError;
use crate::id::{AgentId, Generation, Scope, UpstreamId};
use crate::json::JsonText;
use crate::policy::Principal;
use crate::upstream::{UpstreamState, UpstreamStatus};

use super::super::Gateway;
use super::super::view::{ModeSource, View};

/// Categories listed at most; the whole has to stay a small result.
const CATEGORIES_MAX: usize = 500;
/// Scopes and upstreams shown at most, for the same reason.
const SHOWN_MAX: usize = 200;

/// The categories with the number of tools in each, largest first.
pub(super) fn categories(view: &View) -> Result<JsonText, ToolError> {
    let shelf = &view.shelf;
    let list: Vec<_> = shelf
        .categories
        .iter()
        .take(CATEGORIES_MAX)
        .map(|(name, tools)| json!({ "category": name, "tools": tools }))
        .collect();
    super::text(&json!({
        "categories": list,
        "total": shelf.categories.len(),
        "tools": shelf.tools,
    }))
}

#[derive(Serialize)]
struct Context<'a> {
    server: &'a str,
    version: &'a str,
    generation: Generation,
    caller: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'a str>,
    scopes: Vec<&'a Scope>,
    discovery: Discovery<'a>,
    tools: usize,
    categories: usize,
    upstreams: Vec<Upstream<'a>>,
    /// Upstreams that have not brought all their tools and of which this caller sees none: counted, not named.
    incomplete_elsewhere: usize,
}

#[derive(Serialize)]
struct Discovery<'a> {
    mode: &'a str,
    setting: &'a str,
    decided_by: ModeSource,
}

#[derive(Serialize)]
struct Upstream<'a> {
    id: &'a UpstreamId,
    tools: usize,
    state: UpstreamState,
    complete: bool,
}

/// Who the caller is here. Of upstreams only those show whose tools it may see.
pub(super) fn context(view: &View, who: &Principal) -> Result<JsonText, ToolError> {
    let statuses = view.snapshot.upstreams.statuses();
    let (seen, unseen): (Vec<&UpstreamStatus>, Vec<_>) =
        statuses.iter().partition(|s| view.shelf.upstreams.contains_key(&s.id));
    super::text(&Context {
        server: view.server(),
        version: Gateway::VERSION,
        generation: view.snapshot.generation,
        caller: &who.subject,
        agent: who.agent.as_ref(),
        tier: who.tier.as_deref(),
        scopes: who.scopes.iter().take(SHOWN_MAX).collect(),
        discovery: Discovery {
            mode: view.mode.as_str(),
            setting: view.asked.0.as_str(),
            decided_by: view.asked.1,
        },
        tools: view.shelf.tools,
        categories: view.shelf.categories.len(),
        upstreams: seen
            .into_iter()
            .take(SHOWN_MAX)
            .map(|s| Upstream {
                id: &s.id,
                tools: view.shelf.upstreams.get(&s.id).copied().unwrap_or(0),
                state: s.state,
                complete: s.complete,
            })
            .collect(),
        incomplete_elsewhere: unseen.iter().filter(|s| !s.complete).count(),
    })
}
