//! The issuer's keys: read from a file or an address, kept, renewed before they are old and when a token names
//! one that is not known, never more often than an issuer can bear.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use crate::auth::AuthRefusal;
use crate::clock::Clock;
use crate::json;

/// Bytes of a key set: a hundred RSA keys with their certificates.
pub(super) const JWKS_BYTES_MAX: usize = 512 * 1024;
/// How long an issuer may take to give its keys: requests wait for it.
pub(super) const JWKS_TIME: Duration = Duration::from_secs(5);
/// Keys of a set that are looked at.
const KEYS_MAX: usize = 100;
/// After this long keys are read again, beside the requests that use the old ones.
const FRESH: Duration = Duration::from_mins(5);
/// Keys that could not be renewed for this long are no longer trusted: a withdrawn key must end some time.
const TRUSTED: Duration = Duration::from_hours(1);
/// Between two readings because of a key that is not known: anybody can make up a name of a key.
const PAUSE: Duration = Duration::from_secs(10);

/// Where the keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// `auth.jwks_url`
    Url(url::Url),
    /// `auth.jwks_file`, absolute.
    File(PathBuf),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(f, "{url}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The way to an address; whoever composes the program brings it.
pub trait FetchKeys: Send + Sync + fmt::Debug {
    /// Reads a document of at most `max` bytes. The error tells why in words.
    fn fetch(&self, url: url::Url, max: usize) -> BoxFuture<'static, Result<Bytes, String>>;
}

/// One public key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    id: Option<String>,
    algorithm: Option<KeyAlgorithm>,
    curve: Option<EllipticCurve>,
    pub(super) public: DecodingKey,
}

impl Key {
    fn of(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        if jwk.common.public_key_use.as_ref().is_some_and(|u| *u != PublicKeyUse::Signature) {
            return None;
        }
        let curve = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => None,
            AlgorithmParameters::EllipticCurve(of) => Some(of.curve.clone()),
            AlgorithmParameters::OctetKeyPair(of) => Some(of.curve.clone()),
            // A secret in a public document is nobody's secret.
            _ => return None,
        };
        let public = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self { id: jwk.common.key_id, algorithm: jwk.common.key_algorithm, curve, public })
    }

    /// Whether a token with this header could be signed with it. A token that names a key wants that one.
    pub(super) fn fits(&self, id: Option<&str>, algorithm: Algorithm) -> bool {
        let named = id.is_none_or(|id| self.id.as_deref().is_none_or(|own| own == id));
        let stated = self.algorithm.is_none_or(|own| own == KeyAlgorithm::from(algorithm));
        let curve = match algorithm {
            Algorithm::ES256 => self.curve == Some(EllipticCurve::P256),
            Algorithm::ES384 => self.curve == Some(EllipticCurve::P384),
            Algorithm::EdDSA => self.curve == Some(EllipticCurve::Ed25519),
            _ => self.public.family() == AlgorithmFamily::Rsa,
        };
        named && stated && curve && self.public.family() == algorithm.family()
    }
}

/// The keys as they were last read.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    /// Grows whenever the keys are others.
    pub(super) version: u64,
    pub(super) keys: Vec<Key>,
    digest: Option<blake3::Hash>,
}

/// Reads a key set (RFC 7517 §5). Keys of kinds that are not known here are passed over.
fn parse(bytes: &[u8]) -> Result<Vec<Key>, String> {
    #[derive(Deserialize)]
    struct Document {
        keys: Vec<Value>,
    }
    let document: Document =
        json::parse_as(bytes, JWKS_BYTES_MAX).map_err(|e| format!("it is no JSON Web Key Set: {e}"))?;
    let keys: Vec<Key> = document.keys.into_iter().take(KEYS_MAX).filter_map(Key::of).collect();
    if keys.is_empty() {
        Err("it has no key that a signature could be checked with".to_owned())
    } else {
        Ok(keys)
    }
}

#[derive(Debug, Default)]
struct Times {
    read: Option<Instant>,
    tried: Option<Instant>,
    failure: Option<String>,
}

/// The keys of one source. Shared by generations that name the same one.
#[derive(Debug)]
pub(super) struct KeyRing {
    source: KeySource,
    fetcher: Option<Arc<dyn FetchKeys>>,
    clock: Clock,
    current: ArcSwap<KeySet>,
    times: Mutex<Times>,
    /// Held while keys are read: others wait for the same reading.
    reading: tokio::sync::Mutex<()>,
}

impl KeyRing {
    pub(super) fn new(source: KeySource) -> Self {
        let (current, times, reading) = Default::default();
        Self { source, fetcher: None, clock: Clock::system(), current, times, reading }
    }

    pub(super) fn connected(source: KeySource, fetcher: Arc<dyn FetchKeys>, clock: Clock) -> Self {
        Self { fetcher: Some(fetcher), clock, ..Self::new(source) }
    }

    /// Checks a file of keys, for `docent check`. An address is not asked.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.source {
            KeySource::Url(_) => Ok(()),
            KeySource::File(path) => {
                let bytes = json::read_capped(path, JWKS_BYTES_MAX).map_err(|e| e.to_string())?;
                parse(&bytes).map(drop)
            }
        }
    }

    /// Why the keys cannot be read now; nothing while they can.
    pub(super) fn failure(&self) -> Option<String> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.failure.as_ref().map(|why| format!("the keys of {} cannot be read: {why}", self.source))
    }

    fn age(&self) -> Option<Duration> {
        let read = self.times.lock().unwrap_or_else(PoisonError::into_inner).read;
        read.map(|at| self.clock.now().saturating_duration_since(at))
    }

    /// Keys that may be trusted. The first request waits for them; later ones only where they were too old.
    pub(super) async fn fresh(ring: &Arc<Self>) -> Result<Arc<KeySet>, AuthRefusal> {
        match ring.age() {
            Some(age) if age < FRESH => {}
            Some(age) if age < TRUSTED => {
                let ring = Arc::clone(ring);
                // Beside the request: what is kept is good.
                if ring.reading.try_lock().is_ok() && ring.may_try() {
                    tokio::spawn(async move { ring.read_once(None).await });
                }
            }
            _ => {
                ring.read_once(None).await;
                if ring.age().is_none_or(|age| age >= TRUSTED) {
                    return Err(AuthRefusal::NoKeys);
                }
            }
        }
        Ok(ring.current.load_full())
    }

    /// The keys after one more reading, unless they are others than `version` already or were read just now.
    pub(super) async fn renewed(ring: &Arc<Self>, version: u64) -> Result<Arc<KeySet>, AuthRefusal> {
        ring.read_once(Some(version)).await;
        Ok(ring.current.load_full())
    }

    fn may_try(&self) -> bool {
        let tried = self.times.lock().unwrap_or_else(PoisonError::into_inner).tried;
        tried.is_none_or(|at| self.clock.now().saturating_duration_since(at) >= PAUSE)
    }

    async fn read_once(&self, unless_newer_than: Option<u64>) {
        let _reading = self.reading.lock().await;
        let newer = unless_newer_than.is_some_and(|version| self.current.load().version > version);
        if newer || !self.may_try() {
            return;
        }
        self.times.lock().unwrap_or_else(PoisonError::into_inner).tried = Some(self.clock.now());
        let read = tokio::time::timeout(JWKS_TIME, self.bytes()).await;
        let read = read.unwrap_or_else(|_late| Err("it took longer than five seconds".to_owned()));
        let parsed = read.and_then(|bytes| Ok((blake3::hash(&bytes), parse(&bytes)?)));
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        match parsed {
            Ok((digest, keys)) => {
                (times.read, times.failure) = (Some(self.clock.now()), None);
                let before = self.current.load_full();
                if before.digest != Some(digest) {
                    tracing::info!(source = %self.source, keys = keys.len(), "keys of the token issuer read");
                    let version = before.version + 1;
                    self.current.store(Arc::new(KeySet { version, keys, digest: Some(digest) }));
                }
            }
            Err(why) => {
                tracing::warn!(source = %self.source, error = why, "keys of the token issuer cannot be read");
                times.failure = Some(why);
            }
        }
    }

    async fn bytes(&self) -> Result<Bytes, String> {
        match &self.source {
            KeySource::Url(url) => match &self.fetcher {
                Some(fetcher) => fetcher.fetch(url.clone(), JWKS_BYTES_MAX).await,
                None => Err("there is no way to it from here".to_owned()),
            },
            KeySource::File(path) => {
                let path = path.clone();
                let read =
                    tokio::task::spawn_blocking(move || json::read_capped(&path, JWKS_BYTES_MAX)).await;
                let bytes = read.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
                Ok(Bytes::from(bytes))
            }
        }
    }
}
