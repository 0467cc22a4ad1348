//! An agent as it is defined: in docent.toml, or published while the server runs. One set of limits for both.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::AgentId;
use crate::policy::{AgentFacts, DiscoveryMode};

/// Bytes of an agent's description at most: a host reads every card of the roster to choose one.
const DESCRIPTION_BYTES_MAX: usize = 4 * 1024;
/// Bytes of an agent's instructions at most: a system prompt; with its tools it is one answer.
const INSTRUCTIONS_BYTES_MAX: usize = 64 * 1024;
/// Capabilities of one agent: routing labels, not a manual.
const CAPABILITIES_MAX: usize = 64;
/// Bytes of one capability.
const CAPABILITY_BYTES_MAX: usize = 200;

/// One table of `[agents]`, or the body of a published agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// What it is for.
    #[serde(default)]
    pub description: Arc<str>,
    /// What it can do, as words (the agents draft requires the field).
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Its system instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Arc<str>>,
    /// Ids or globs of the tools it works with.
    #[serde(default)]
    pub tools: Vec<String>,
    /// `model_hint`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_hint: Option<ModelHint>,
    /// The discovery mode of callers that speak as this agent. Only docent.toml binds callers to agents.
    #[serde(skip)]
    pub discovery: Option<DiscoveryMode>,
    /// How long a host may keep its card, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// Which kind of model suits an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelHint {
    /// One of [`ModelHint::ROLES`]; another word is not sent, since hosts would not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether it has to see images.
    #[serde(default)]
    pub vision: bool,
}

impl ModelHint {
    /// The roles of the agents draft.
    pub const ROLES: [&'static str; 3] = ["small", "medium", "large"];

    /// The role, where hosts know it.
    pub fn known_role(&self) -> Option<&str> {
        self.role.as_deref().filter(|r| Self::ROLES.contains(r))
    }
}

impl AgentSettings {
    /// Ids and patterns of one agent's tools.
    pub const TOOLS_MAX: usize = 1_000;
    /// How long a host may keep an agent's card at most: a day, so that a withdrawn agent disappears.
    pub const TTL_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

    /// What policies see of it.
    pub fn facts(&self, id: &AgentId) -> AgentFacts {
        let texts = |list: &[String]| list.iter().map(|t| Arc::from(t.as_str())).collect();
        AgentFacts {
            id: id.clone(),
            description: Arc::clone(&self.description),
            capabilities: texts(&self.capabilities),
            tools: texts(&self.tools),
        }
    }

    /// What is too large or malformed: the key and what is allowed, one per key.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut check = |key, fits: bool, allowed: String| {
            if !fits {
                found.push((key, allowed));
            }
        };
        let text = |t: &str, max: usize| t.len() <= max;
        check(
            "description",
            text(&self.description, DESCRIPTION_BYTES_MAX),
            format!("at most {DESCRIPTION_BYTES_MAX} bytes"),
        );
        check(
            "instructions",
            text(self.instructions.as_deref().unwrap_or_default(), INSTRUCTIONS_BYTES_MAX),
            format!("at most {INSTRUCTIONS_BYTES_MAX} bytes"),
        );
        check(
            "capabilities",
            self.capabilities.len() <= CAPABILITIES_MAX
                && self.capabilities.iter().all(|c| !c.is_empty() && text(c, CAPABILITY_BYTES_MAX)),
            format!("at most {CAPABILITIES_MAX} labels of 1 to {CAPABILITY_BYTES_MAX} bytes"),
        );
        check(
            "tools",
            self.tools.len() <= Self::TOOLS_MAX,
            format!("at most {} ids and patterns", Self::TOOLS_MAX),
        );
        let bad = self.tools.iter().find_map(|t| globset::Glob::new(t).err());
        check(
            "tools",
            bad.is_none(),
            format!("ids or patterns; {}", bad.map_or(String::new(), |e| e.to_string())),
        );
        let ttl = self.ttl_ms.unwrap_or_default();
        check("ttl_ms", ttl <= Self::TTL_MS_MAX, format!("at most {} (a day)", Self::TTL_MS_MAX));
        let roles = ModelHint::ROLES.join(", ");
        let hint = self.model_hint.as_ref().is_none_or(|h| h.role.is_none() || h.known_role().is_some());
        check("model_hint", hint, format!("`role` is one of {roles}; hosts know no other"));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_or_unknown_is_named_by_its_key() {
        let fine = AgentSettings {
            description: Arc::from("Ships"),
            capabilities: vec!["ship".to_owned()],
            tools: vec!["deploy.*".to_owned()],
            model_hint: Some(ModelHint { role: Some("large".to_owned()), vision: true }),
            ttl_ms: Some(AgentSettings::TTL_MS_MAX),
            ..AgentSettings::default()
        };
        assert!(fine.problems().is_empty());
        let bad = AgentSettings {
            description: Arc::from("x".repeat(DESCRIPTION_BYTES_MAX + 1)),
            capabilities: vec![String::new()],
            instructions: Some(Arc::from("x".repeat(INSTRUCTIONS_BYTES_MAX + 1))),
            tools: vec!["a[".to_owned()],
            model_hint: Some(ModelHint { role: Some("huge".to_owned()), vision: false }),
            ttl_ms: Some(AgentSettings::TTL_MS_MAX + 1),
            ..AgentSettings::default()
        };
        let keys: Vec<_> = bad.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["description", "instructions", "capabilities", "tools", "ttl_ms", "model_hint"]);
    }
}
