//! Callers by JWT: docent as an OAuth 2.1 resource server (RFC 9068, RFC 8725).
//!
//! A token is taken if its algorithm is on the list, a key of the issuer's set signed it, it is from this issuer,
//! for this audience and of this time. Its subject, scopes and roles become a [`Principal`]; an entry of
//! `[callers]` with the subject's name narrows it. The token itself goes nowhere from here.

mod claims;
mod crypto;
mod keys;
mod recent;
mod settings;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonwebtoken::{Header, Validation, decode, decode_header};

use super::authenticator::{AuthRefusal, CallerEntry};
use crate::clock::Clock;
use crate::json::Object;
use crate::policy::Principal;
use keys::Key;
use keys::KeyRing;
pub use keys::{FetchKeys, KeySource};
use recent::Recent;
pub use settings::{JwtAlgorithm, JwtSettings, RoleRights};

/// Keys tried for a token that names none: a set has two or three of a kind while it is rotated.
const KEYS_TRIED_MAX: usize = 4;
/// `typ` of an access token (RFC 9068 §2.1), and what most issuers write; other kinds of JWT are not for here.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// What turns a JWT into a caller.
#[derive(Debug, Clone)]
pub struct JwtVerifier {
    settings: Arc<JwtSettings>,
    ring: Arc<KeyRing>,
    clock: Clock,
    recent: Arc<Recent>,
}

impl JwtVerifier {
    /// A verifier by settings. It knows no key before [`JwtVerifier::connected`].
    pub fn new(settings: JwtSettings) -> Self {
        crypto::install();
        let ring = Arc::new(KeyRing::new(settings.keys.clone()));
        Self { settings: Arc::new(settings), ring, clock: Clock::system(), recent: Arc::default() }
    }

    /// The same with a way to its keys. Where one that served before had the same source, its keys are taken over.
    pub(super) fn connected(
        &self,
        fetcher: &Arc<dyn FetchKeys>,
        clock: &Clock,
        before: Option<&Self>,
    ) -> Self {
        let ring = match before {
            Some(before) if before.settings.keys == self.settings.keys => Arc::clone(&before.ring),
            _ => Arc::new(KeyRing::connected(self.settings.keys.clone(), Arc::clone(fetcher), clock.clone())),
        };
        Self { settings: Arc::clone(&self.settings), ring, clock: clock.clone(), recent: Arc::default() }
    }

    /// The settings.
    pub fn settings(&self) -> &JwtSettings {
        &self.settings
    }

    /// Checks a file of keys, when a home is loaded. An address is not asked before it is needed.
    pub fn check_keys(&self) -> Result<(), String> {
        self.ring.check()
    }

    /// Why the keys cannot be read now; nothing while they can.
    pub fn key_failure(&self) -> Option<String> {
        self.ring.failure()
    }

    /// Reads the keys before the first token asks for them. A failure is logged, and told by
    /// [`JwtVerifier::key_failure`].
    pub async fn warm(&self) {
        KeyRing::fresh(&self.ring).await.ok();
    }

    /// The caller of a token. Only a token of a key that is not known yet waits, for the issuer.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        callers: &BTreeMap<Arc<str>, CallerEntry>,
    ) -> Result<Arc<Principal>, AuthRefusal> {
        let keys = KeyRing::fresh(&self.ring).await?;
        let now = self.clock.unix_ms() / 1_000;
        let digest = *blake3::hash(token.as_bytes()).as_bytes();
        if let Some(known) = self.recent.find(&digest, keys.version, now) {
            return Ok(known);
        }
        let header =
            decode_header(token).map_err(|_other| AuthRefusal::Token("it is no JWT of a kind known here"))?;
        self.check_header(&header)?;
        let mut keys = keys;
        let claims = match self.signed(token, &header, &keys.keys)? {
            Some(claims) => claims,
            None => {
                // A key that nobody knows may be a new one.
                keys = KeyRing::renewed(&self.ring, keys.version).await?;
                self.signed(token, &header, &keys.keys)?
                    .ok_or(AuthRefusal::Token("no key that its issuer publishes signed it"))?
            }
        };
        let until = self.check_time(&claims, now)?;
        let principal = Arc::new(claims::principal(&self.settings, claims, callers)?);
        self.recent.keep(digest, keys.version, until, &principal);
        Ok(principal)
    }

    fn check_header(&self, header: &Header) -> Result<(), AuthRefusal> {
        if !self.settings.algorithms.iter().any(|a| a.of_crate() == header.alg) {
            return Err(AuthRefusal::Token("its algorithm is not one of `auth.algorithms`"));
        }
        let kind = header.typ.as_deref().map(str::to_ascii_lowercase);
        if kind.is_some_and(|k| !TYPES.contains(&k.as_str())) {
            return Err(AuthRefusal::Token("its `typ` is not that of an access token"));
        }
        Ok(())
    }

    /// The claims of a token that one of the keys signed; `None` where no key fits.
    fn signed(&self, token: &str, header: &Header, keys: &[Key]) -> Result<Option<Object>, AuthRefusal> {
        let mut validation = Validation::new(header.alg);
        validation.set_audience(&self.settings.audiences);
        validation.set_issuer(&[&*self.settings.issuer]);
        validation.set_required_spec_claims(&["iss", "aud", "exp"]);
        // Time is checked below, by the clock that everything here goes by.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        let fitting = keys.iter().filter(|k| k.fits(header.kid.as_deref(), header.alg));
        let mut refusal = None;
        for key in fitting.take(KEYS_TRIED_MAX) {
            match decode::<Object>(token, &key.public, &validation) {
                Ok(decoded) => return Ok(Some(decoded.claims)),
                Err(e) => refusal = Some(crypto::refusal(&e)),
            }
        }
        // A key of this name that did not sign it is a forgery, or another key of the same name by now.
        match refusal {
            Some(AuthRefusal::Token(crypto::BAD_SIGNATURE)) | None => Ok(None),
            Some(refusal) => Err(refusal),
        }
    }

    /// `exp`, `nbf` and `iat` with the skew of clocks; gives until when the token may be taken without looking.
    fn check_time(&self, claims: &Object, now: u64) -> Result<u64, AuthRefusal> {
        let skew = self.settings.clock_skew.as_secs();
        let time = |name: &str| claims.get(name).and_then(claims::seconds);
        let until = time("exp").ok_or(AuthRefusal::Token("its `exp` is no time"))?.saturating_add(skew);
        if until <= now {
            return Err(AuthRefusal::Token("it has expired"));
        }
        for name in ["nbf", "iat"] {
            if claims.contains_key(name) && time(name).is_none_or(|t| t > now.saturating_add(skew)) {
                return Err(AuthRefusal::Token("it is not valid yet"));
            }
        }
        Ok(until)
    }
}
