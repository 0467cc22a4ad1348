//! An issuer of our own: tokens of every algorithm, every kind of bad one, keys that are rotated.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use ring::rand::SystemRandom;
use ring::signature::{self as sig, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use serde_json::{Value, json};

use super::*;
use crate::auth::Authenticator;
use crate::id::{AgentId, Scope};
use crate::policy::Tiers;

const ISSUER: &str = "https://login.example.com";
const AUDIENCE: &str = "https://tools.example.com/mcp";

enum Signer {
    Ed(Ed25519KeyPair),
    Ec(EcdsaKeyPair, &'static str, usize),
    Rsa(RsaKeyPair),
}

impl Signer {
    fn ed() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    fn ec(p384: bool) -> Self {
        let (algorithm, curve, half) = if p384 {
            (&sig::ECDSA_P384_SHA384_FIXED_SIGNING, "P-384", 48)
        } else {
            (&sig::ECDSA_P256_SHA256_FIXED_SIGNING, "P-256", 32)
        };
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap(), curve, half)
    }

    fn rsa() -> Self {
        let text = include_str!("../../../tests/fixtures/jwt/rsa-for-tests-only.b64");
        let der = STANDARD.decode(text.split_whitespace().collect::<String>()).unwrap();
        Self::Rsa(RsaKeyPair::from_pkcs8(&der).unwrap())
    }

    fn jwk(&self, id: &str) -> Value {
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match self {
            Self::Ed(pair) => json!({"kty": "OKP", "crv": "Ed25519", "x": b64(pair.public_key().as_ref())}),
            Self::Ec(pair, curve, half) => {
                let point = &pair.public_key().as_ref()[1..];
                json!({"kty": "EC", "crv": curve, "x": b64(&point[..*half]), "y": b64(&point[*half..])})
            }
            Self::Rsa(pair) => {
                let parts = sig::RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": b64(&parts.n), "e": b64(&parts.e)})
            }
        };
        jwk["kid"] = json!(id);
        jwk["use"] = json!("sig");
        jwk
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Ec(pair, ..) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => {
                let padding: &dyn sig::RsaEncoding = match algorithm {
                    "RS256" => &sig::RSA_PKCS1_SHA256,
                    "RS384" => &sig::RSA_PKCS1_SHA384,
                    "RS512" => &sig::RSA_PKCS1_SHA512,
                    "PS256" => &sig::RSA_PSS_SHA256,
                    "PS384" => &sig::RSA_PSS_SHA384,
                    _ => &sig::RSA_PSS_SHA512,
                };
                let mut out = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut out).unwrap();
                out
            }
        }
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let part = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let algorithm = header["alg"].as_str().unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(self.sign(algorithm, message.as_bytes())))
    }
}

/// What the issuer publishes, and how often it was asked.
#[derive(Debug)]
struct Published {
    document: Mutex<Result<Value, String>>,
    asked: AtomicUsize,
}

impl FetchKeys for Published {
    fn fetch(&self, url: url::Url, _max: usize) -> BoxFuture<'static, Result<Bytes, String>> {
        assert_eq!(url.as_str(), "https://login.example.com/jwks");
        self.asked.fetch_add(1, Ordering::SeqCst);
        let document = self.document.lock().unwrap().clone();
        Box::pin(std::future::ready(document.map(|d| Bytes::from(d.to_string()))))
    }
}

struct World {
    published: Arc<Published>,
    clock: Clock,
    auth: Authenticator,
}

fn settings() -> JwtSettings {
    let role = |scopes: &[&str], tier: &str| RoleRights {
        scopes: scopes.iter().map(|s| Scope::parse(s).unwrap()).collect(),
        tier: Some(Arc::from(tier)),
    };
    JwtSettings {
        issuer: Arc::from(ISSUER),
        audiences: vec![AUDIENCE.to_owned(), "docent".to_owned()],
        keys: KeySource::Url("https://login.example.com/jwks".parse().unwrap()),
        algorithms: JwtAlgorithm::WORDS.iter().map(|(_, a)| *a).collect(),
        clock_skew: Duration::from_mins(1),
        subject_claim: "sub".to_owned(),
        scope_claims: vec!["scope".to_owned(), "scp".to_owned()],
        roles_claim: "/realm_access/roles".to_owned(),
        agent_claim: Some("agent".to_owned()),
        tier_claim: Some("tier".to_owned()),
        roles: BTreeMap::from([
            ("dev".to_owned(), role(&["repo:write"], "workbench")),
            ("lead".to_owned(), role(&["ops:deploy"], "system")),
        ]),
        tiers: Tiers::new(&["workbench".into(), "action".into(), "system".into()]),
        agents: BTreeSet::from([AgentId::parse("release").unwrap()]),
    }
}

impl World {
    fn with(settings: JwtSettings, keys: &[Value], callers: Vec<CallerEntry>) -> Self {
        let document = Mutex::new(Ok(json!({ "keys": keys })));
        let published = Arc::new(Published { document, asked: AtomicUsize::new(0) });
        let (clock, fetcher) = (Clock::manual(), Arc::<Published>::clone(&published));
        let fetcher: Arc<dyn FetchKeys> = fetcher;
        let auth = Authenticator::jwt(callers, settings).connected(&fetcher, &clock, None);
        Self { published, clock, auth }
    }

    fn new(keys: &[Value]) -> Self {
        Self::with(settings(), keys, Vec::new())
    }

    fn now(&self) -> u64 {
        self.clock.unix_ms() / 1_000
    }

    fn claims(&self) -> Value {
        json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": self.now() + 300, "scope": "ops:read repo:read"})
    }

    fn publish(&self, document: Result<Value, String>) {
        *self.published.document.lock().unwrap() = document;
    }

    fn asked(&self) -> usize {
        self.published.asked.load(Ordering::SeqCst)
    }

    async fn who(&self, token: &str) -> Result<Arc<Principal>, AuthRefusal> {
        self.auth.authenticate(Some(&format!("Bearer {token}"))).await
    }

    async fn refusal(&self, token: &str) -> String {
        self.who(token).await.unwrap_err().to_string()
    }
}

fn scopes(who: &Principal) -> Vec<&str> {
    who.scopes.iter().map(Scope::as_str).collect()
}

fn ed(id: &str) -> Value {
    json!({"alg": "EdDSA", "typ": "at+jwt", "kid": id})
}

#[tokio::test]
async fn every_algorithm_on_the_list_is_taken_and_its_key_is_found() {
    let (rsa, p256, p384, ed) = (Signer::rsa(), Signer::ec(false), Signer::ec(true), Signer::ed());
    let world = World::new(&[rsa.jwk("r"), p256.jwk("a"), p384.jwk("b"), ed.jwk("e")]);
    for (name, _) in JwtAlgorithm::WORDS {
        let (signer, id) = match name {
            "ES256" => (&p256, "a"),
            "ES384" => (&p384, "b"),
            "EdDSA" => (&ed, "e"),
            _ => (&rsa, "r"),
        };
        for header in [json!({"alg": name, "kid": id}), json!({"alg": name, "typ": "JWT"})] {
            let who = world.who(&signer.token(&header, &world.claims())).await;
            let who = who.unwrap_or_else(|e| panic!("{header}: {e}"));
            assert_eq!((&*who.subject, scopes(&who)), ("alice", vec!["ops:read", "repo:read"]));
        }
    }
    assert_eq!(world.asked(), 1, "the keys are read once");
}

#[tokio::test]
async fn a_bad_token_is_refused_with_its_reason_and_without_its_content() {
    let (ours, theirs) = (Signer::ed(), Signer::ed());
    let world = World::new(&[ours.jwk("k")]);
    let good = world.claims();
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value;
        }
        ours.token(&ed("k"), &claims)
    };
    let now = world.now();
    for (token, why) in [
        (theirs.token(&ed("k"), &good), "no key that its issuer publishes"),
        (ours.token(&ed("k"), &good) + "A", "no key that"),
        (with("iss", json!("https://evil.example")), "another issuer"),
        (with("iss", Value::Null), "no `iss`"),
        (with("aud", json!("https://other.example")), "another audience"),
        (with("aud", Value::Null), "no `aud`"),
        (with("exp", json!(now - 61)), "expired"),
        (with("exp", Value::Null), "no `exp`"),
        (with("nbf", json!(now + 61)), "not valid yet"),
        (with("iat", json!("soon")), "not valid yet"),
        (with("sub", Value::Null), "subject"),
        (with("sub", json!("a\nb")), "subject"),
        (with("agent", json!("nobody")), "an agent that this server does not have"),
        (ours.token(&json!({"alg": "EdDSA", "typ": "logout+jwt"}), &good), "`typ`"),
        (ours.token(&json!({"alg": "EdDSA", "crit": ["x"], "x": 1}), &good), "malformed"),
    ] {
        let told = world.refusal(&token).await;
        assert!(told.contains(why), "{told} should say {why}");
        assert!(!told.contains("alice") && !told.contains("evil"));
    }
}

#[tokio::test]
async fn one_audience_of_several_is_enough_and_clocks_may_differ_by_the_skew() {
    let ours = Signer::ed();
    let world = World::new(&[ours.jwk("k")]);
    let now = world.now();
    for (name, value, taken) in [
        ("aud", json!(["https://other.example", AUDIENCE]), true),
        ("aud", json!(["https://other.example"]), false),
        ("aud", json!([]), false),
        ("exp", json!(now - 59), true),
        ("exp", json!(now - 60), false),
        ("nbf", json!(now + 60), true),
        ("iat", json!(now + 60), true),
        ("iat", json!(now + 61), false),
        ("scope", json!(["ops:read", "repo:read"]), true),
    ] {
        let mut claims = world.claims();
        claims[name] = value.clone();
        let who = world.who(&ours.token(&ed("k"), &claims)).await;
        assert_eq!(who.is_ok(), taken, "{name} = {value}: {who:?}");
        assert!(who.is_err() || scopes(&who.unwrap()) == ["ops:read", "repo:read"], "{name} = {value}");
    }
}

#[tokio::test]
async fn neither_no_signature_nor_a_shared_secret_is_one() {
    let ours = Signer::rsa();
    let world =
        World::new(&[ours.jwk("k"), json!({"kty": "oct", "k": "c2VjcmV0", "kid": "h", "alg": "HS256"})]);
    let part = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
    for header in [json!({"alg": "none"}), json!({"alg": "HS256", "kid": "h"}), json!({"alg": "hs256"})] {
        let message = format!("{}.{}", part(&header), part(&world.claims()));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"secret");
        let tag = ring::hmac::sign(&key, message.as_bytes());
        for signature in [String::new(), URL_SAFE_NO_PAD.encode(tag.as_ref())] {
            let told = world.refusal(&format!("{message}.{signature}")).await;
            assert!(told.contains("algorithm") || told.contains("no JWT"), "{told}");
        }
    }
}

/// What everybody may read of a key is no secret: a token "signed" with it by HMAC is refused for its algorithm,
/// whatever form of the key its maker took, and under every name of the algorithm (RFC 8725 §2.1).
#[tokio::test]
async fn a_public_key_is_no_shared_secret() {
    let ours = Signer::rsa();
    let (jwk, claims) = (ours.jwk("k"), World::new(&[ours.jwk("k")]).claims());
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap();
    let Signer::Rsa(pair) = &ours else { panic!("an RSA key") };
    let der = pair.public().as_ref().to_vec();
    let pem =
        format!("-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----\n", STANDARD.encode(&der));
    let secrets = [
        bytes("n"),
        jwk["n"].as_str().unwrap().as_bytes().to_vec(),
        der,
        pem.into_bytes(),
        jwk.to_string().into_bytes(),
    ];
    // An issuer that says HS256 of its public key makes it no secret either.
    let mut mislabelled = jwk.clone();
    mislabelled["alg"] = json!("HS256");
    for keys in [jwk, mislabelled] {
        let world = World::new(&[keys]);
        for (alg, hash) in [
            ("HS256", ring::hmac::HMAC_SHA256),
            ("HS384", ring::hmac::HMAC_SHA384),
            ("HS512", ring::hmac::HMAC_SHA512),
        ] {
            for secret in &secrets {
                let part = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
                let message =
                    format!("{}.{}", part(&json!({"alg": alg, "kid": "k", "typ": "JWT"})), part(&claims));
                let tag = ring::hmac::sign(&ring::hmac::Key::new(hash, secret), message.as_bytes());
                let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()));
                let told = world.refusal(&token).await;
                assert!(told.contains("algorithm"), "{alg}: {told}");
            }
        }
    }
}

#[tokio::test]
async fn an_algorithm_that_is_not_on_the_list_is_refused_though_the_key_would_do() {
    let ours = Signer::rsa();
    let only = JwtSettings { algorithms: vec![JwtAlgorithm::Ps256], ..settings() };
    let world = World::with(only, &[ours.jwk("k")], Vec::new());
    let token = |alg: &str| ours.token(&json!({"alg": alg, "kid": "k"}), &world.claims());
    assert!(world.who(&token("PS256")).await.is_ok());
    assert!(world.refusal(&token("RS256")).await.contains("auth.algorithms"));
}

#[tokio::test]
async fn a_new_key_is_found_in_the_middle_and_a_withdrawn_one_ends() {
    let (first, second) = (Signer::ed(), Signer::ed());
    let world = World::new(&[first.jwk("1")]);
    let old = first.token(&ed("1"), &world.claims());
    assert!(world.who(&old).await.is_ok());
    world.clock.advance(Duration::from_secs(20));
    world.publish(Ok(json!({ "keys": [second.jwk("2")] })));
    assert!(world.who(&second.token(&ed("2"), &world.claims())).await.is_ok());
    assert_eq!(world.asked(), 2);
    // Also out of what was checked a moment ago.
    assert!(world.refusal(&old).await.contains("no key that its issuer publishes"));
}

#[tokio::test]
async fn names_of_keys_that_are_made_up_do_not_make_a_storm() {
    let ours = Signer::ed();
    let world = World::new(&[ours.jwk("k")]);
    let forger = Signer::ed();
    for n in 0..50 {
        world.refusal(&forger.token(&ed(&format!("made-up-{n}")), &world.claims())).await;
    }
    assert_eq!(world.asked(), 1, "read a moment ago");
    world.clock.advance(Duration::from_secs(11));
    world.refusal(&forger.token(&ed("x"), &world.claims())).await;
    world.refusal(&forger.token(&ed("y"), &world.claims())).await;
    assert_eq!(world.asked(), 2);
}

#[tokio::test]
async fn keys_outlive_an_issuer_that_is_down_for_an_hour_and_not_longer() {
    let ours = Signer::ed();
    let world = World::new(&[ours.jwk("k")]);
    assert!(world.who(&ours.token(&ed("k"), &world.claims())).await.is_ok());
    world.publish(Err("it is down".to_owned()));
    world.clock.advance(Duration::from_mins(30));
    assert!(world.who(&ours.token(&ed("k"), &world.claims())).await.is_ok());
    tokio::task::yield_now().await;
    assert!(world.auth.verifier().unwrap().key_failure().unwrap().contains("it is down"));
    world.clock.advance(Duration::from_mins(31));
    assert_eq!(world.who(&ours.token(&ed("k"), &world.claims())).await, Err(AuthRefusal::NoKeys));
    world.clock.advance(Duration::from_secs(11));
    world.publish(Ok(json!({ "keys": [ours.jwk("k")] })));
    assert!(world.who(&ours.token(&ed("k"), &world.claims())).await.is_ok());
    assert_eq!(world.auth.verifier().unwrap().key_failure(), None);
}

#[tokio::test]
async fn a_checked_token_is_not_checked_again_until_it_expires() {
    let ours = Signer::ed();
    let world = World::new(&[ours.jwk("k")]);
    let token = ours.token(&ed("k"), &world.claims());
    let (first, second) = (world.who(&token).await.unwrap(), world.who(&token).await.unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    world.clock.advance(Duration::from_secs(361));
    assert!(world.refusal(&token).await.contains("expired"));
}

#[tokio::test]
async fn roles_bring_scopes_and_a_tier() {
    let ours = Signer::ed();
    let world = World::new(&[ours.jwk("k")]);
    let mut claims = world.claims();
    claims["scp"] = json!(["extra:x", "not a scope", 7]);
    claims["realm_access"] = json!({"roles": ["dev", "lead", "stranger"]});
    claims["agent"] = json!("release");
    let who = world.who(&ours.token(&ed("k"), &claims)).await.unwrap();
    assert_eq!(scopes(&who), ["extra:x", "ops:deploy", "ops:read", "repo:read", "repo:write"]);
    assert_eq!(
        (who.tier.as_deref(), who.agent.as_ref().map(AgentId::as_str)),
        (Some("system"), Some("release"))
    );
    assert_eq!(who.claims["realm_access"]["roles"][2], "stranger", "policies may read the claims");
}

fn entry(subject: &str, scopes: Option<&[&str]>, tier: Option<&str>) -> CallerEntry {
    let principal = Principal {
        subject: Arc::from(subject),
        scopes: scopes.unwrap_or_default().iter().map(|s| Scope::parse(s).unwrap()).collect(),
        tier: tier.map(Arc::from),
        claims: Arc::new(json!({"team": "infra"}).as_object().unwrap().clone()),
        ..Principal::default()
    };
    CallerEntry { principal: Arc::new(principal), token_hash: None, limits_scopes: scopes.is_some() }
}

#[tokio::test]
async fn a_token_and_its_user_have_only_the_rights_of_both() {
    let ours = Signer::ed();
    let of = async |entries: Vec<CallerEntry>, tier: &str| {
        let world = World::with(settings(), &[ours.jwk("k")], entries);
        let mut claims = world.claims();
        claims["tier"] = json!(tier);
        claims["team"] = json!("said by the token");
        world.who(&ours.token(&ed("k"), &claims)).await.unwrap()
    };
    let who = of(vec![entry("alice", Some(&["ops:read", "ops:deploy"]), Some("action"))], "system").await;
    assert_eq!((scopes(&who), who.tier.as_deref()), (vec!["ops:read"], Some("action")));
    assert_eq!(who.claims["team"], "infra", "the home's word counts");
    let who = of(vec![entry("alice", None, None)], "workbench").await;
    assert_eq!((scopes(&who), who.tier.as_deref()), (vec!["ops:read", "repo:read"], Some("workbench")));
    let who = of(vec![entry("alice", Some(&[]), Some("external"))], "system").await;
    assert_eq!((scopes(&who), who.tier.as_deref()), (vec![], None), "peers have nothing in common");
    let who = of(vec![entry("bob", Some(&[]), None)], "system").await;
    assert_eq!(scopes(&who), ["ops:read", "repo:read"], "another user's entry is not asked");
}

#[tokio::test]
async fn docents_own_tokens_still_open_beside_jwts() {
    let ours = Signer::ed();
    let mut ci = entry("ci", Some(&["ops:read"]), None);
    ci.token_hash = Some(crate::auth::TokenHash::of("docent_abc"));
    let world = World::with(settings(), &[ours.jwk("k")], vec![ci]);
    assert_eq!(&*world.who("docent_abc").await.unwrap().subject, "ci");
    assert_eq!(world.who("docent_abd").await, Err(AuthRefusal::Invalid));
    assert_eq!(world.asked(), 0, "no keys were needed");
}

#[test]
fn a_file_of_keys_is_checked_when_the_home_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwks.json");
    let check =
        || JwtVerifier::new(JwtSettings { keys: KeySource::File(path.clone()), ..settings() }).check_keys();
    assert!(check().is_err());
    std::fs::write(&path, "{}").unwrap();
    assert!(check().unwrap_err().contains("no JSON Web Key Set"));
    std::fs::write(&path, json!({"keys": [{"kty": "oct", "k": "YQ"}]}).to_string()).unwrap();
    assert!(check().unwrap_err().contains("no key"));
    std::fs::write(&path, json!({"keys": [{"kty": "new"}, Signer::ed().jwk("k")]}).to_string()).unwrap();
    assert_eq!(check(), Ok(()));
}
