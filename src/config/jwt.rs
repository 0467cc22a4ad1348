//! The keys of `[auth]` for `mode = "jwt"`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::{JwtAlgorithm, JwtSettings, KeySource, RoleRights};
use crate::policy::Tiers;
use crate::settings::{Located, Section};
use crate::snapshot::ServerSettings;

use super::callers::{scopes, tier_of};

/// Seconds of `auth.clock_skew_seconds` at most: a clock that is further off is broken.
const SKEW_SECONDS_MAX: u64 = 300;
/// Seconds of `auth.clock_skew_seconds` where nothing is said.
const SKEW_SECONDS: u64 = 60;
/// Bytes of a claim's name at most.
const CLAIM_BYTES_MAX: usize = 200;

/// Reads them. Without the mode they are read for their mistakes only, and said to have no effect.
pub(super) fn settings(
    section: &mut Section,
    is_jwt: bool,
    server: &ServerSettings,
    dir: &Path,
) -> Option<JwtSettings> {
    let issuer = section.string("issuer");
    let audiences = audiences(section);
    let keys = keys(section, is_jwt, dir);
    let algorithms = algorithms(section);
    let skew = section.integer("clock_skew_seconds", 0..=SKEW_SECONDS_MAX).unwrap_or(SKEW_SECONDS);
    let mut claim = |key: &str| claim(section, key);
    let (subject, agent_claim, tier_claim) =
        (claim("subject_claim"), claim("agent_claim"), claim("tier_claim"));
    let roles_claim = claim("roles_claim").unwrap_or_else(|| "roles".to_owned());
    let scope_claims = section.plain_strings("scope_claims");
    let roles = roles(section, server);
    if !is_jwt {
        return None;
    }
    let missing = |section: &Section, key: &str, why: &str, help: &str| {
        let message = format!("`auth.{key}` is missing: {why}");
        section.error(section.offset(), "missing-key", message, help);
    };
    if issuer.as_ref().is_none_or(|i| i.value.is_empty()) {
        missing(
            section,
            "issuer",
            "tokens of anybody would be taken",
            "issuer = \"https://login.example.com\"",
        );
    }
    if audiences.is_empty() {
        let help =
            "audience = \"https://tools.example.com/mcp\": what the issuer writes in `aud` for this server";
        missing(section, "audience", "tokens for other services would be taken", help);
    }
    Some(JwtSettings {
        issuer: Arc::from(issuer?.value),
        audiences,
        keys: keys?,
        algorithms,
        clock_skew: Duration::from_secs(skew),
        subject_claim: subject.unwrap_or_else(|| "sub".to_owned()),
        scope_claims: if scope_claims.is_empty() { vec!["scope".into(), "scp".into()] } else { scope_claims },
        roles_claim,
        agent_claim,
        tier_claim,
        roles,
        tiers: Tiers::new(&server.tiers),
        agents: server.agents.keys().cloned().collect(),
    })
}

/// One audience as a text, or several as a list.
fn audiences(section: &mut Section) -> Vec<String> {
    let Some(found) = section.json("audience") else { return Vec::new() };
    let texts: Option<Vec<String>> = match &found.value {
        serde_json::Value::String(text) => Some(vec![text.clone()]),
        serde_json::Value::Array(items) => items.iter().map(|i| i.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    match texts {
        Some(texts) if texts.iter().all(|t| !t.is_empty()) => texts,
        _ => {
            let message = "`auth.audience` must be a text, or a list of texts";
            section.error(
                found.offset,
                "wrong-type",
                message,
                "audience = \"https://tools.example.com/mcp\"",
            );
            Vec::new()
        }
    }
}

fn keys(section: &mut Section, is_jwt: bool, dir: &Path) -> Option<KeySource> {
    let (url, file) = (section.string("jwks_url"), section.string("jwks_file"));
    match (url, file) {
        (Some(url), None) => key_url(section, &url).map(KeySource::Url),
        (None, Some(file)) => Some(KeySource::File(dir.join(file.value))),
        (Some(url), Some(_)) => {
            let message = "`auth.jwks_url` and `auth.jwks_file` are both given";
            section.error(url.offset, "contradiction", message, "keep the one that the keys come from");
            None
        }
        (None, None) if is_jwt => {
            let message = "`auth.jwks_url` or `auth.jwks_file` is missing: no signature could be checked";
            let help = "jwks_url = \"https://login.example.com/.well-known/jwks.json\"";
            section.error(section.offset(), "missing-key", message, help);
            None
        }
        (None, None) => None,
    }
}

/// Keys that anybody on the way could replace would be no keys: `https`, or this machine.
fn key_url(section: &Section, text: &Located<String>) -> Option<url::Url> {
    let loopback = |url: &url::Url| match url.host() {
        Some(url::Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    match url::Url::parse(&text.value) {
        Ok(url) if url.scheme() == "https" || (url.scheme() == "http" && loopback(&url)) => Some(url),
        _ => {
            let message = "`auth.jwks_url` is not an https address";
            section.error(text.offset, "bad-url", message, "http is taken for loopback addresses only");
            None
        }
    }
}

fn algorithms(section: &mut Section) -> Vec<JwtAlgorithm> {
    let known = JwtAlgorithm::WORDS;
    let Some(words) = section.strings("algorithms") else { return known.iter().map(|(_, a)| *a).collect() };
    if words.is_empty() {
        let message = "`auth.algorithms` is an empty list: no token could be taken";
        section.error(section.offset(), "empty-list", message, "leave the key out for all of them");
    }
    let mut out = Vec::new();
    for word in words {
        match known.iter().find(|(name, _)| *name == word.value) {
            Some((_, algorithm)) => out.push(*algorithm),
            None => {
                let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                let message = format!("`auth.algorithms` names \"{}\"", word.value);
                let help = format!("known are {}; `none` and HS… are never taken", names.join(", "));
                section.error(word.offset, "unknown-name", message, help);
            }
        }
    }
    out
}

fn claim(section: &mut Section, key: &str) -> Option<String> {
    let text = section.string(key)?;
    if text.value.is_empty() || text.value.len() > CLAIM_BYTES_MAX {
        let message = format!("`{}` is not the name of a claim", section.full_key(key));
        section.error(
            text.offset,
            "bad-name",
            message,
            "a name, or a JSON Pointer such as \"/realm_access/roles\"",
        );
        return None;
    }
    Some(text.value)
}

/// `[auth.roles.NAME]`
fn roles(section: &mut Section, server: &ServerSettings) -> BTreeMap<String, RoleRights> {
    let mut out = BTreeMap::new();
    for (name, mut role) in section.named_sections("roles") {
        let rights = RoleRights { scopes: scopes(&mut role, "scopes"), tier: tier_of(&mut role, server) };
        out.insert(name.value, rights);
    }
    out
}
