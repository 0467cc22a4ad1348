//! `[auth]` and `[callers.N]` of docent.toml: who may come, and as what.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::auth::{Authenticator, CallerEntry, TokenHash};
use crate::diagnostic::{Diagnostic, did_you_mean};
use crate::id::{AgentId, Scope};
use crate::policy::{DiscoveryMode, Principal};
use crate::secret::Resolver;
use crate::settings::{Located, Section};
use crate::snapshot::ServerSettings;

use super::jwt;
use super::server::unresolved;

/// Bytes of a caller's name at most: it stands in logs and answers.
const CALLER_NAME_BYTES_MAX: usize = 128;

/// `[auth]` and `[callers.N]`, and where the former stands.
pub(super) fn auth(
    root: &mut Section,
    resolver: &Resolver,
    server: &mut ServerSettings,
    dir: &Path,
) -> (Authenticator, usize) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mode {
        None,
        Token,
        Jwt,
    }
    let words = [("none", Mode::None), ("token", Mode::Token), ("jwt", Mode::Jwt)];
    let (mut mode, mut place, mut settings) = (Mode::None, 0, None);
    if let Some(mut section) = root.section("auth") {
        place = section.offset();
        mode = section.one_of("mode", &words).unwrap_or(mode);
        server.scopes_supported =
            scopes(&mut section, "scopes_supported").iter().map(|s| s.as_str().to_owned()).collect();
        settings = jwt::settings(&mut section, mode == Mode::Jwt, server, dir);
    }
    server.issuer = settings.as_ref().map(|s| Arc::clone(&s.issuer));
    let callers = callers(root, resolver, server);
    match (mode, settings) {
        (Mode::None, _) => return (Authenticator::open(callers), place),
        (Mode::Jwt, Some(settings)) => return (Authenticator::jwt(callers, settings), place),
        _ => {}
    }
    if mode == Mode::Token && callers.iter().all(|c| c.token_hash.is_none()) {
        let warning = Diagnostic::warning(
            "no-tokens",
            &*root.file().name,
            "`auth.mode = \"token\"`, but no caller has a `token_hash`: every request is refused",
        );
        root.report(
            warning
                .at_offset(&root.file().text, place)
                .help("`docent token new NAME --scopes …` prints a token and the table to paste"),
        );
    }
    (Authenticator::tokens(callers), place)
}

fn callers(root: &mut Section, resolver: &Resolver, server: &ServerSettings) -> Vec<CallerEntry> {
    let mut out: Vec<CallerEntry> = Vec::new();
    for (name, mut section) in root.named_sections("callers") {
        if name.value.is_empty()
            || name.value.len() > CALLER_NAME_BYTES_MAX
            || name.value.contains(char::is_control)
        {
            let help = format!("1 to {CALLER_NAME_BYTES_MAX} bytes without control characters");
            section.error(name.offset, "bad-name", "the name of a caller is not fit to be shown", help);
        }
        let token_hash = token_hash(&mut section, resolver);
        if let Some(hash) = &token_hash
            && let Some(twin) = out.iter().find(|c| c.token_hash.as_ref() == Some(hash))
        {
            section.error(
                name.offset,
                "same-token",
                format!(
                    "`callers.{}` has the same token as `callers.{}`",
                    name.value, twin.principal.subject
                ),
                "every caller needs a token of its own: `docent token new NAME`",
            );
        }
        let limits_scopes = section.has("scopes");
        let principal = Principal {
            subject: Arc::from(name.value),
            scopes: scopes(&mut section, "scopes"),
            agent: agent_of(&mut section, server),
            tier: tier_of(&mut section, server),
            claims: Arc::new(section.object("claims").unwrap_or_default()),
            discovery: section.one_of("discovery", &DiscoveryMode::WORDS),
            ..Principal::default()
        };
        out.push(CallerEntry { principal: Arc::new(principal), token_hash, limits_scopes });
    }
    out
}

fn token_hash(section: &mut Section, resolver: &Resolver) -> Option<TokenHash> {
    let text = section.string("token_hash")?;
    match resolver.expand(&text.value) {
        Ok(value) => match TokenHash::parse(value.expose().trim()) {
            Ok(hash) => return Some(hash),
            Err(e) => {
                let error = section.file().error_at("bad-token-hash", text.offset, e.to_string()).help(
                    "`docent token new NAME` prints a token and its hash; a token itself never stands here",
                );
                section.report(error.without_line());
            }
        },
        Err(message) => unresolved(section, "token_hash", text.offset, &message),
    }
    None
}

pub(super) fn scopes(section: &mut Section, key: &str) -> BTreeSet<Scope> {
    let mut out = BTreeSet::new();
    for text in section.strings(key).unwrap_or_default() {
        match Scope::parse(&text.value) {
            Ok(scope) => drop(out.insert(scope)),
            Err(e) => section.error(text.offset, "bad-scope", e.to_string(), "for example \"ops:read\""),
        }
    }
    out
}

fn agent_of(section: &mut Section, server: &ServerSettings) -> Option<AgentId> {
    let text = section.string("agent")?;
    let found = server.agents.keys().find(|a| a.as_str() == text.value);
    if found.is_none() {
        let known = server.agents.keys().map(AgentId::as_str);
        unknown(section, "agent", &text, "[agents]", known);
    }
    found.cloned()
}

pub(super) fn tier_of(section: &mut Section, server: &ServerSettings) -> Option<Arc<str>> {
    let text = section.string("tier")?;
    if !server.tiers.contains(&text.value) {
        unknown(section, "tier", &text, "`tiers.order`", server.tiers.iter().map(String::as_str));
        return None;
    }
    Some(Arc::from(text.value))
}

/// Reports a name that stands in no list, with the nearest one.
pub(super) fn unknown<'a>(
    section: &Section,
    key: &str,
    text: &Located<String>,
    list: &str,
    known: impl Iterator<Item = &'a str>,
) {
    let known: Vec<&str> = known.collect();
    let help = match did_you_mean(&text.value, known.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => format!("nothing stands in {list}"),
        None => format!("known in {list}: {}", known.join(", ")),
    };
    section.error(
        text.offset,
        "unknown-name",
        format!("`{}` names \"{}\", which is not in {list}", section.full_key(key), text.value),
        help,
    );
}
