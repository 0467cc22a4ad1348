//! From the claims of a token to a caller: subject, scopes, roles, tier, agent; narrowed by the home's own entry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::settings::JwtSettings;
use crate::auth::authenticator::{AuthRefusal, CallerEntry};
use crate::id::Scope;
use crate::json::{self, Object};
use crate::policy::{Principal, Tiers};

/// Bytes of a subject: it stands in logs, in the audit and in keys.
const SUBJECT_BYTES_MAX: usize = 256;
/// Scopes of one token that are taken.
const SCOPES_MAX: usize = 200;

/// A time of a claim in whole seconds (RFC 7519 §2: a number, fractions allowed).
pub(super) fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let text = value.as_f64().filter(|f| f.is_finite() && *f >= 0.0)?.floor().to_string();
        text.parse().ok()
    })
}

/// The caller of a token whose signature, issuer, audience and time are good. All claims are kept for policies;
/// their bytes are bounded by those of a token.
pub(super) fn principal(
    settings: &JwtSettings,
    claims: Object,
    callers: &BTreeMap<Arc<str>, CallerEntry>,
) -> Result<Principal, AuthRefusal> {
    let subject = claims.get(&settings.subject_claim).and_then(Value::as_str).unwrap_or_default();
    if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX || subject.contains(char::is_control) {
        return Err(AuthRefusal::Token("its subject is missing or not fit to be a name"));
    }
    let (mut scopes, mut tier) =
        (scopes_of(settings, &claims), text_of(&claims, settings.tier_claim.as_deref()));
    for role in words(find(&claims, &settings.roles_claim)) {
        let Some(rights) = settings.roles.get(role) else { continue };
        scopes.extend(rights.scopes.iter().cloned());
        tier = higher(&settings.tiers, tier, rights.tier.clone());
    }
    let agent = match text_of(&claims, settings.agent_claim.as_deref()) {
        None => None,
        // An agent that is not there has no rights to narrow to.
        Some(name) => Some(
            settings
                .agents
                .get(&*name)
                .cloned()
                .ok_or(AuthRefusal::Token("it names an agent that this server does not have"))?,
        ),
    };
    let mut principal =
        Principal { subject: Arc::from(subject), scopes, agent, tier, ..Principal::default() };
    let mut claims = claims;
    if let Some(entry) = callers.get(&*principal.subject) {
        narrow(&mut principal, &mut claims, entry, &settings.tiers)?;
    }
    principal.claims = Arc::new(claims);
    Ok(principal)
}

/// The rights of a token and of its user are those that both have. What the entry leaves out it does not limit.
fn narrow(
    principal: &mut Principal,
    claims: &mut Object,
    entry: &CallerEntry,
    tiers: &Tiers,
) -> Result<(), AuthRefusal> {
    let own = &entry.principal;
    if entry.limits_scopes {
        principal.scopes.retain(|s| own.scopes.contains(s));
    }
    principal.tier = match (principal.tier.take(), &own.tier) {
        (None, own) => own.clone(),
        (Some(token), None) => Some(token),
        (Some(token), Some(own)) if tiers.reaches(Some(&token), own) => Some(Arc::clone(own)),
        (Some(token), Some(own)) if tiers.reaches(Some(own), &token) => Some(token),
        // Two peers have nothing in common.
        (Some(_), Some(_)) => None,
    };
    principal.agent = match (principal.agent.take(), &own.agent) {
        (Some(token), Some(own)) if token != *own => {
            return Err(AuthRefusal::Token("it names another agent than the one of its user"));
        }
        (token, own) => token.or_else(|| own.clone()),
    };
    principal.discovery = own.discovery;
    claims.extend(own.claims.iter().map(|(name, value)| (name.clone(), value.clone())));
    Ok(())
}

fn higher(tiers: &Tiers, one: Option<Arc<str>>, other: Option<Arc<str>>) -> Option<Arc<str>> {
    match (one, other) {
        (Some(one), Some(other)) if tiers.reaches(Some(&other), &one) => Some(other),
        (Some(one), _) => Some(one),
        (None, other) => other,
    }
}

/// A claim by its name, or by a JSON Pointer such as `/realm_access/roles`.
fn find<'a>(claims: &'a Object, name: &str) -> Option<&'a Value> {
    match name.strip_prefix('/') {
        None => claims.get(name),
        Some(rest) => {
            let mut parts = rest.split('/').map(json::pointer_name);
            let first = claims.get(&parts.next()?)?;
            parts.try_fold(first, |value, part| value.get(&*part))
        }
    }
}

/// The words of a claim: a list of texts, or one text with spaces (RFC 8693 §4.2, RFC 9068 §2.2.3).
fn words(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Words outside the alphabet of scopes name no scope of a policy: they are passed over.
fn scopes_of(settings: &JwtSettings, claims: &Object) -> BTreeSet<Scope> {
    let all = settings.scope_claims.iter().flat_map(|name| words(find(claims, name)));
    all.take(SCOPES_MAX).filter_map(|word| Scope::parse(word).ok()).collect()
}

fn text_of(claims: &Object, name: Option<&str>) -> Option<Arc<str>> {
    find(claims, name?)?.as_str().filter(|t| !t.is_empty()).map(Arc::from)
}
