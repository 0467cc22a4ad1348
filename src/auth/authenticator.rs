//! Who is asking: the one place that turns an `Authorization` header into a [`Principal`].

use std::collections::BTreeMap;
use std::sync::Arc;

use subtle::{Choice, ConditionallySelectable};

use super::jwt::{FetchKeys, JwtSettings, JwtVerifier};
use super::token::{Presented, TOKEN_BYTES_MAX, TokenHash};
use crate::clock::Clock;
use crate::policy::Principal;

/// One entry of `[callers]`.
#[derive(Debug, Clone)]
pub struct CallerEntry {
    /// The caller as policies see it; its subject is the entry's name.
    pub principal: Arc<Principal>,
    /// The hash of its token. Without one the entry is for `--as`, for `[callers.anonymous]`, and narrows the
    /// JWTs of the subject of this name.
    pub token_hash: Option<TokenHash>,
    /// Whether the entry says which scopes its caller has at most; without `scopes` it does not.
    pub limits_scopes: bool,
}

/// Why nobody could be made of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthRefusal {
    /// No credentials: answered 401 with a plain `Bearer` challenge (RFC 6750 §3.1: no error code).
    #[error("a bearer token is needed: send `Authorization: Bearer TOKEN`")]
    Missing,
    /// The token is not of any caller: 401 with `error="invalid_token"`.
    #[error("the bearer token is not valid here")]
    Invalid,
    /// The token is a JWT that is not taken; the text tells why, with nothing of the token. 401 with
    /// `error="invalid_token"`.
    #[error("the bearer token is not valid here: {0}")]
    Token(&'static str),
    /// The issuer's keys cannot be read, so no JWT can be checked: 503.
    #[error("tokens cannot be checked now, the issuer's keys cannot be read; try again later")]
    NoKeys,
    /// The header is not `Bearer` and one token: 400 with `error="invalid_request"`.
    #[error("the Authorization header is not `Bearer TOKEN`")]
    Malformed,
}

impl AuthRefusal {
    /// The reason in words of docent's own, for the audit; nothing for a request that brought no credentials, which
    /// is how every client begins.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Missing => None,
            Self::Invalid => Some("the token is of no caller"),
            Self::Token(why) => Some(why),
            Self::NoKeys => Some("the issuer's keys cannot be read"),
            Self::Malformed => Some("the Authorization header is not `Bearer TOKEN`"),
        }
    }
}

/// Finds the caller of a request. Immutable: a reload makes a new one.
#[derive(Debug, Clone, Default)]
pub struct Authenticator {
    /// Whom a request without credentials speaks for; `None` where a token is needed.
    open_as: Option<Arc<Principal>>,
    callers: BTreeMap<Arc<str>, CallerEntry>,
    /// For `auth.mode = "jwt"`.
    jwt: Option<JwtVerifier>,
}

impl Authenticator {
    /// For `auth.mode = "none"`: every request is the caller `anonymous`, with the rights of
    /// `[callers.anonymous]` where there is such an entry. Credentials that are sent are not looked at.
    pub fn open(callers: Vec<CallerEntry>) -> Self {
        let mut this = Self::tokens(callers);
        this.open_as = Some(this.caller("anonymous").unwrap_or_else(|| Arc::new(Principal::anonymous())));
        this
    }

    /// For `auth.mode = "token"`: a request needs the token of a caller.
    pub fn tokens(callers: Vec<CallerEntry>) -> Self {
        let callers = callers.into_iter().map(|c| (Arc::clone(&c.principal.subject), c)).collect();
        Self { open_as: None, callers, jwt: None }
    }

    /// For `auth.mode = "jwt"`: a request needs a token of the issuer, or one of a caller with a `token_hash`.
    pub fn jwt(callers: Vec<CallerEntry>, settings: JwtSettings) -> Self {
        Self { jwt: Some(JwtVerifier::new(settings)), ..Self::tokens(callers) }
    }

    /// The same with a way to the issuer's keys. Keys that `before` has of the same source are taken over.
    #[must_use]
    pub fn connected(&self, fetcher: &Arc<dyn FetchKeys>, clock: &Clock, before: Option<&Self>) -> Self {
        let before = before.and_then(|b| b.jwt.as_ref());
        let jwt = self.jwt.as_ref().map(|jwt| jwt.connected(fetcher, clock, before));
        Self { jwt, ..self.clone() }
    }

    /// What checks JWTs, where it does.
    pub fn verifier(&self) -> Option<&JwtVerifier> {
        self.jwt.as_ref()
    }

    /// Whether requests need a token.
    pub fn needs_token(&self) -> bool {
        self.open_as.is_none()
    }

    /// Makes every request speak for one named caller (`docent serve --as` without tokens).
    #[must_use]
    pub fn opened_as(mut self, principal: Arc<Principal>) -> Self {
        self.open_as = Some(principal);
        self
    }

    /// A caller by name, for `--as` and for stdio. `anonymous` is always there where no token is needed.
    pub fn caller(&self, name: &str) -> Option<Arc<Principal>> {
        match self.callers.get(name) {
            Some(entry) => Some(Arc::clone(&entry.principal)),
            None => self.open_as.as_ref().filter(|p| &*p.subject == name).map(Arc::clone),
        }
    }

    /// The names of all callers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.callers.keys().map(AsRef::as_ref)
    }

    /// The principal of a request by its `Authorization` header. Only a JWT of a key that is not known yet
    /// waits for anything.
    pub async fn authenticate(&self, authorization: Option<&str>) -> Result<Arc<Principal>, AuthRefusal> {
        if let Some(principal) = &self.open_as {
            return Ok(Arc::clone(principal));
        }
        let token = bearer(authorization.ok_or(AuthRefusal::Missing)?)?;
        match &self.jwt {
            // Two dots make a JWT (RFC 7515 §3.1); docent's own tokens have none.
            Some(jwt) if token.bytes().filter(|b| *b == b'.').count() == 2 => {
                let found = jwt.authenticate(token, &self.callers).await;
                if let Err(why) = &found {
                    tracing::info!(error = %why, "a token was refused");
                }
                found
            }
            _ => self.by_hash(token),
        }
    }

    /// The caller of one of docent's own tokens. Every entry is compared, whether or not one matched before, so
    /// the time tells nothing of which.
    fn by_hash(&self, token: &str) -> Result<Arc<Principal>, AuthRefusal> {
        let presented = Presented::new(token);
        let mut found = u32::MAX;
        for (i, entry) in (0u32..).zip(self.callers.values()) {
            let hit = entry.token_hash.as_ref().map_or(Choice::from(0), |h| h.matches(&presented));
            found.conditional_assign(&i, hit);
        }
        let entry = usize::try_from(found).ok().and_then(|i| self.callers.values().nth(i));
        entry.map(|e| Arc::clone(&e.principal)).ok_or(AuthRefusal::Invalid)
    }
}

/// The token of a `Bearer` header (RFC 6750 §2.1; the scheme in any case, RFC 9110 §11.1).
fn bearer(header: &str) -> Result<&str, AuthRefusal> {
    let (scheme, token) = header.trim().split_once(' ').ok_or(AuthRefusal::Malformed)?;
    let token = token.trim();
    let fits = !token.is_empty()
        && token.len() <= TOKEN_BYTES_MAX
        && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b));
    if scheme.eq_ignore_ascii_case("bearer") && fits { Ok(token) } else { Err(AuthRefusal::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str, token: Option<&str>) -> CallerEntry {
        CallerEntry {
            principal: Arc::new(Principal { subject: Arc::from(name), ..Principal::default() }),
            token_hash: token.map(TokenHash::of),
            limits_scopes: true,
        }
    }

    fn who(auth: &Authenticator, header: Option<&str>) -> Result<String, AuthRefusal> {
        let found = futures_util::FutureExt::now_or_never(auth.authenticate(header));
        found.unwrap().map(|p| p.subject.to_string())
    }

    #[test]
    fn a_token_names_its_caller_and_nothing_else_does() {
        let auth = Authenticator::tokens(vec![
            caller("alice", Some("t-a")),
            caller("bob", Some("t-b")),
            caller("local", None),
        ]);
        assert_eq!(who(&auth, Some("Bearer t-a")), Ok("alice".to_owned()));
        assert_eq!(who(&auth, Some("bearer  t-b ")), Ok("bob".to_owned()));
        assert_eq!(who(&auth, None), Err(AuthRefusal::Missing));
        assert_eq!(who(&auth, Some("Bearer t-c")), Err(AuthRefusal::Invalid));
        for odd in ["", "t-a", "Basic dDph", "Bearer ", "Bearer t a", "Bearer t\u{e4}", "Bearer \"t-a\""] {
            assert_eq!(who(&auth, Some(odd)), Err(AuthRefusal::Malformed), "{odd:?}");
        }
        let long = format!("Bearer {}", "x".repeat(TOKEN_BYTES_MAX + 1));
        assert_eq!(who(&auth, Some(&long)), Err(AuthRefusal::Malformed));
        assert!(auth.needs_token() && auth.caller("anonymous").is_none());
        assert_eq!(auth.caller("local").unwrap().subject.as_ref(), "local");
    }

    #[test]
    fn without_tokens_everybody_is_the_anonymous_entry() {
        let bare = Authenticator::open(Vec::new());
        assert_eq!(who(&bare, None), Ok("anonymous".to_owned()));
        assert!(bare.caller("anonymous").is_some() && bare.caller("alice").is_none());
        let mut entry = caller("anonymous", None);
        Arc::make_mut(&mut entry.principal).tier = Some(Arc::from("workbench"));
        let auth = Authenticator::open(vec![entry, caller("alice", Some("t-a"))]);
        assert_eq!(auth.caller("anonymous").unwrap().tier.as_deref(), Some("workbench"));
        assert_eq!(who(&auth, Some("Bearer t-a")), Ok("anonymous".to_owned()));
        assert_eq!(who(&auth.clone().opened_as(auth.caller("alice").unwrap()), None), Ok("alice".to_owned()));
    }
}
