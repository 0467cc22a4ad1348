//! `[agents.N]` of docent.toml: groups of tools with instructions, which hosts run by themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::id::AgentId;
use crate::policy::DiscoveryMode;
use crate::settings::{Located, Section};
use crate::snapshot::{AgentSettings, ModelHint};

/// `[agents.N]`
pub(super) fn agents(root: &mut Section) -> BTreeMap<AgentId, AgentSettings> {
    let mut out = BTreeMap::new();
    for (name, mut section) in root.named_sections("agents") {
        let agent = agent(&mut section);
        match AgentId::parse(&name.value) {
            Ok(id) => drop(out.insert(id, agent)),
            Err(e) => section.error(name.offset, "bad-name", e.to_string(), "rename the table"),
        }
    }
    out
}

fn agent(section: &mut Section) -> AgentSettings {
    let text = |t: Option<Located<String>>| t.map(|t| Arc::from(t.value.trim()));
    let agent = AgentSettings {
        description: text(section.string("description")).unwrap_or_default(),
        capabilities: section.plain_strings("capabilities"),
        instructions: text(section.string("instructions")),
        tools: globs(section, "tools"),
        model_hint: section.section("model_hint").map(|mut hint| ModelHint {
            role: hint.string("role").map(|r| r.value),
            vision: hint.boolean("vision").unwrap_or(false),
        }),
        discovery: section.one_of("discovery", &DiscoveryMode::WORDS),
        ttl_ms: section.integer("ttl_ms", 0..=AgentSettings::TTL_MS_MAX),
    };
    report(section, &agent);
    agent
}

/// What hosts would trip over. A role that they do not know is only left out, so it is a warning.
fn report(section: &Section, agent: &AgentSettings) {
    let warn = |code, message, help: &str| {
        let warning = Diagnostic::warning(code, &*section.file().name, message);
        section.report(warning.at_offset(&section.file().text, section.offset()).help(help));
    };
    if agent.description.is_empty() {
        let message = format!("`{}` is empty: hosts choose an agent by it", section.full_key("description"));
        warn("no-description", message, "say in one sentence what the agent is for");
    }
    for (key, allowed) in agent.problems() {
        match key {
            // Told at the pattern itself, or by the range of the number.
            "tools" if agent.tools.len() <= AgentSettings::TOOLS_MAX => {}
            "ttl_ms" => {}
            "model_hint" => {
                let message = format!("`{}.role` is not sent to hosts", section.full_key(key));
                warn("unknown-role", message, &allowed);
            }
            _ => {
                let message = format!("`{}` is too large or malformed", section.full_key(key));
                section.error(section.offset(), "bad-agent", message, allowed);
            }
        }
    }
}

fn globs(section: &mut Section, key: &str) -> Vec<String> {
    let mut out = Vec::new();
    for glob in section.strings(key).unwrap_or_default() {
        match globset::Glob::new(&glob.value) {
            Ok(_) => out.push(glob.value),
            Err(e) => section.error(
                glob.offset,
                "bad-glob",
                format!("`{}` holds a bad glob: {}", section.full_key(key), e.kind()),
                "for example \"git.*\" or \"github.issues_{list,get}\"",
            ),
        }
    }
    out
}
