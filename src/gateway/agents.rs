//! Agents: the roster that a caller may see, and what opening one of them shows (agents-wg draft, seed 003).
//!
//! An agent groups tools of this server for a host that runs it by itself. Its card gives no right: every tool
//! of it is listed and called like any other. Hidden and unknown agents take the same way to the same answer.

mod publish;
mod roster;

pub(super) use publish::Published;
pub use publish::{AgentOverview, PublishError};
pub(super) use roster::{AgentRoster, AgentTable};

use std::sync::Arc;

use serde::Serialize;

use crate::call::Omission;
use crate::cursor::{Binding, Digest};
use crate::id::AgentId;
use crate::json;
use crate::limits;
use crate::policy::{AgentDecision, Explanation, Principal, Reason, ScopeChallenge};
use crate::snapshot::ModelHint;

use super::record::refusal;
use super::view::View;
use super::{Gateway, ListError, RequestContext, Surface, ToolPage};
use roster::{Agent, Named};

const PURPOSE: &str = "agents/list";
/// A roster asks nothing: there is one walk per roster.
const QUESTION: Digest = [0; 32];

/// What a host routes by: nothing of instructions or tools is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentCard {
    /// Unique in the roster.
    pub name: AgentId,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
    /// Free routing labels.
    pub capabilities: Vec<String>,
}

/// One page of a roster.
#[derive(Debug, Clone)]
pub struct AgentPage {
    /// The cards, in order of names.
    pub agents: Vec<AgentCard>,
    /// The token of the next page, if there is one.
    pub next_cursor: Option<String>,
    /// How long a host may keep it, in milliseconds; the same on every page.
    pub ttl_ms: u64,
}

/// An agent, opened.
#[derive(Debug, Clone)]
pub struct AgentDetails {
    /// Its name.
    pub name: AgentId,
    /// Its system prompt.
    pub instructions: Option<Arc<str>>,
    /// Which kind of model suits it; advisory.
    pub model_hint: Option<ModelHint>,
    /// Those of its tools that the caller may know of: the very entries of `tools/list`.
    pub tools: ToolPage,
    /// What of its tools is not in the answer, and where it is.
    pub omitted: Vec<Omission>,
    /// How long a host may keep it, in milliseconds.
    pub ttl_ms: u64,
}

/// What became of opening an agent. Asked in this order: visible, challenged, well defined.
#[derive(Debug, Clone)]
pub enum AgentAnswer {
    /// Here it is.
    Open(Box<AgentDetails>),
    /// There is no such agent for this caller: unknown and hidden give this one answer.
    NotFound,
    /// More scopes are needed first: on HTTP a 403 before any byte of a body.
    Challenge(ScopeChallenge),
    /// A policy says no; the text is for the caller.
    Refused(String),
    /// It names a tool that the configuration does not have.
    Invalid,
}

impl Gateway {
    /// One page of the agents that this caller may know of.
    pub fn list_agents(&self, ctx: &RequestContext, cursor: Option<&str>) -> Result<AgentPage, ListError> {
        let view = View::of(self, ctx);
        let (table, roster) = self.agent_roster(&view, ctx);
        let binding =
            Binding { purpose: PURPOSE, class: roster.digest, question: QUESTION, state: table.digest };
        let key = self.cursor_key(&view.snapshot);
        let from = match cursor {
            None => 0,
            Some(token) => usize::try_from(key.open(&binding, token)?).unwrap_or(usize::MAX),
        };
        let mut page = AgentPage { agents: Vec::new(), next_cursor: None, ttl_ms: roster.ttl_ms };
        let mut bytes = 0;
        for (place, (agent, _)) in roster.agents(&table).enumerate().skip(from) {
            let card = card(agent);
            bytes += json::encoded_len(&card) + 1;
            let full =
                page.agents.len() >= view.snapshot.settings.page_size || bytes > limits::PAGE_BYTES_MAX;
            if full && !page.agents.is_empty() {
                page.next_cursor = Some(key.seal(&binding, u64::try_from(place).unwrap_or(u64::MAX)));
                break;
            }
            page.agents.push(card);
        }
        Ok(page)
    }

    /// Why a caller may open an agent or not; nothing where there is none of this name.
    pub(super) fn explain_agent(&self, who: &Arc<Principal>, name: &str) -> Option<Explanation> {
        let ctx = RequestContext::new(Arc::clone(who), "explain");
        let view = View::of(self, &ctx);
        let (table, _) = self.agent_roster(&view, &ctx);
        let agent = table.find(name)?;
        let mut told = view.snapshot.policy.explain_agent(who, &agent.facts);
        if !view.snapshot.policy.speaks_of_agents() && agent.is_out_of_sight(&view) {
            (told.decision, told.visible) = ("deny", false);
            "none of its tools is one that the caller may know of".clone_into(&mut told.reason);
        }
        Some(told)
    }

    /// Opens an agent by its name, spelled exactly.
    pub fn get_agent(&self, ctx: &RequestContext, name: &str) -> AgentAnswer {
        let view = View::of(self, ctx);
        let (table, roster) = self.agent_roster(&view, ctx);
        let Some((agent, decision)) = roster.agents(&table).find(|(a, _)| a.facts.id.as_str() == name) else {
            refusal(self.audit(), ctx, ("agent", name), ("unknown", None));
            return AgentAnswer::NotFound;
        };
        match decision {
            AgentDecision::Open if agent.unknown.is_empty() => {}
            AgentDecision::Open => {
                tracing::warn!(
                    agent.id = %agent.facts.id,
                    tools = ?agent.unknown,
                    "an agent names tools that the catalog does not have"
                );
                return AgentAnswer::Invalid;
            }
            AgentDecision::Challenge(challenge) => {
                refusal(self.audit(), ctx, ("agent", name), ("challenge", Some(&challenge.rule)));
                return AgentAnswer::Challenge(challenge.clone());
            }
            AgentDecision::Deny { reason, rule } => {
                refusal(self.audit(), ctx, ("agent", name), ("deny", Some(rule)));
                return refused(agent, reason);
            }
        }
        AgentAnswer::Open(Box::new(self.details(&view, agent)))
    }

    /// What `notifications/agents/list_changed` depends on: the agents that this caller sees, as it sees them.
    pub fn agent_surface(&self, ctx: &RequestContext) -> Surface {
        let view = View::of(self, ctx);
        Surface(self.agent_roster(&view, ctx).1.digest)
    }

    fn details(&self, view: &View, agent: &Agent) -> AgentDetails {
        let settings = &agent.settings;
        let listing = self.listing(&view.snapshot);
        let mut tools = ToolPage { generation: view.snapshot.generation, ..ToolPage::default() };
        let mut room = limits::PAGE_BYTES_MAX
            .saturating_sub(settings.instructions.as_deref().map_or(0, json::encoded_len));
        let mut cut = 0;
        for named in &agent.tools {
            let entry = match named {
                Named::Own(own) => {
                    let name = own.wire_name(view.server());
                    view.shelf.meta.iter().find(|e| e.name == name).map(|e| (Arc::clone(e), e.bytes()))
                }
                Named::Tool(no) if view.roster.visible.contains(*no) => view
                    .catalog()
                    .get(*no)
                    .and_then(|tool| listing.entry(*no, tool))
                    .map(|(e, bytes)| (Arc::clone(e), *bytes)),
                Named::Tool(_) => None,
            };
            let Some((entry, bytes)) = entry else { continue };
            if bytes > room {
                cut += 1;
                continue;
            }
            room -= bytes;
            tools.tools.push(entry);
        }
        let omission = |count: usize, reason: &str, restore_with: &str| Omission {
            name: "tools".to_owned(),
            count: u64::try_from(count).ok(),
            reason: reason.to_owned(),
            restore_with: restore_with.to_owned(),
        };
        let mut omitted = Vec::new();
        if cut > 0 {
            omitted.push(omission(cut, "byte_budget", "tools/list"));
        }
        if agent.pending > 0 {
            let wait = "ask again when the upstream has listed its tools";
            omitted.push(omission(agent.pending, "upstream_incomplete", wait));
        }
        AgentDetails {
            name: agent.facts.id.clone(),
            instructions: settings.instructions.clone(),
            model_hint: settings.model_hint.clone(),
            tools,
            omitted,
            ttl_ms: agent.ttl_ms(),
        }
    }
}

fn card(agent: &Agent) -> AgentCard {
    let description = &agent.settings.description;
    AgentCard {
        name: agent.facts.id.clone(),
        description: (!description.is_empty()).then(|| Arc::clone(description)),
        capabilities: agent.settings.capabilities.clone(),
    }
}

fn refused(agent: &Agent, reason: &Reason) -> AgentAnswer {
    match reason {
        Reason::Hidden => AgentAnswer::NotFound,
        Reason::Denied(text) => AgentAnswer::Refused(text.to_string()),
        Reason::PolicyFault(detail) => {
            tracing::error!(agent.id = %agent.facts.id, error = %detail, "a policy could not be evaluated");
            AgentAnswer::Refused("a policy could not be evaluated; tell the operator".to_owned())
        }
        Reason::NotAllowed | Reason::Tier { .. } => {
            AgentAnswer::Refused("no rule lets you open this agent; ask the operator".to_owned())
        }
    }
}
