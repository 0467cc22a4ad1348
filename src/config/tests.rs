//! Homes in temporary folders, read whole.

use super::*;
use crate::diagnostic::Severity;

fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

fn read(files: &[(&str, &str)]) -> Loaded {
    let dir = home(files);
    let env = Environment::of([(
        "HASH",
        "blake3:0000000000000000000000000000000000000000000000000000000000000001",
    )]);
    load(dir.path(), &env.resolver(dir.path()))
}

/// `line:column code` of every diagnostic, in order.
fn codes(loaded: &Loaded) -> Vec<String> {
    loaded.diagnostics.0.iter().map(|d| format!("{}:{} {}", d.line, d.column, d.code)).collect()
}

/// A docent.toml with every key of contract §1.3 that has an effect.
const EVERY_KEY: &str = r#"
[server]
name = "ops"
listen = "localhost:0"
public_url = "https://tools.example.com/"
instructions = " Be brief. "
discovery = "auto"
page_size = 50
listed_tools_max = 10
allowed_origins = ["https://Console.example.com:443"]
allowed_hosts = ["tools.example.com"]
[auth]
mode = "token"
[callers.ci]
token_hash = "${env:HASH}"
scopes = ["ops:read"]
agent = "release"
tier = "top"
discovery = "compact"
claims = { team = "infra" }
[agents.release]
description = "Releases."
capabilities = ["release"]
instructions = "Ask first."
tools = ["git.*"]
model_hint = { role = "large", vision = true }
discovery = "full"
ttl_ms = 60000
[budgets]
listed_tools_max = 300
listed_tools_min = 1
description_bytes_total = 10000
schema_bytes_per_tool = 1000
instructions_bytes = 1000
result_bytes = 10000
text_bytes = 10000
records = 10
upstream_read_bytes = 10000
[tiers]
order = ["low", "top"]
[upstreams]
enabled = ["b", "a"]
[store]
url = "local:"
[telemetry]
log_format = "json"
log = "warn,docent=debug"
"#;

const PACK: &str = "kind = \"script\"\n";

#[test]
fn every_key_of_the_contract_is_read() {
    let loaded = read(&[
        (MAIN_FILE, EVERY_KEY),
        ("scripts/a/upstream.toml", PACK),
        ("scripts/b/upstream.toml", PACK),
        ("scripts/b/x.rhai", "1"),
        ("scripts/off/upstream.toml", "this is not read"),
        ("scripts/lib/shared.rhai", "2"),
        ("policies/20.rhai", ""),
        ("policies/10.rhai", ""),
        ("index/ranking.toml", ""),
    ]);
    assert_eq!(codes(&loaded), Vec::<String>::new(), "{}", loaded.diagnostics);
    let home = loaded.home.unwrap();
    let s = &home.settings;
    assert_eq!((&*s.name, s.page_size, s.listed_tools_max), ("ops", 50, 10));
    assert_eq!(s.public_url.as_deref(), Some("https://tools.example.com"));
    assert_eq!(s.instructions.as_deref(), Some("Be brief."));
    assert_eq!(s.allowed_origins, ["https://console.example.com"]);
    assert_eq!((s.budgets.records, s.budgets.listed_tools_max), (10, Some(300)));
    assert_eq!(s.tiers, ["low", "top"]);
    assert_eq!(loaded.settings.listen.to_string(), "127.0.0.1:0");
    assert_eq!(loaded.settings.telemetry.log_format, LogFormat::Json);
    let ci = home.callers.caller("ci").unwrap();
    assert!(ci.has_scope("ops:read") && home.callers.needs_token());
    assert_eq!((ci.tier.as_deref(), ci.agent.as_ref().unwrap().as_str()), (Some("top"), "release"));
    assert_eq!(ci.claims.get("team").unwrap(), "infra");
    assert!(s.agents.values().next().unwrap().model_hint.as_ref().unwrap().vision);
    let names = |files: &[SourceFile]| files.iter().map(|f| f.name.to_string()).collect::<Vec<_>>();
    assert_eq!(home.packs.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(names(&home.packs[1].scripts), ["scripts/b/x.rhai"]);
    assert_eq!(names(&home.library), ["scripts/lib/shared.rhai"]);
    assert_eq!(names(&home.policies), ["policies/10.rhai", "policies/20.rhai"]);
    assert!(home.ranking.is_some() && home.synonyms.is_none());
}

#[test]
fn mistakes_are_told_at_once_with_their_places() {
    let loaded = read(&[
        (
            MAIN_FILE,
            "[server]\nlisten = \"example.com:1\"\nname = \"a b\"\n[callers.x]\ntoken_hash = \"hunter2\"\ntier = \"acton\"\nscopes = [\"a b\"]\nagent = \"nobody\"\n[callers.y]\ntoken_hash = \"${env:NONE}\"\n[upstreams]\nenabled = [\"gti\", \"git\", \"git\"]\n[budgest]\n",
        ),
        ("scripts/git/upstream.toml", PACK),
        ("policies/late.rhia", "fn decide(c, t, a) { deny(\"no\") }"),
    ]);
    assert!(loaded.home.is_none());
    assert_eq!(
        codes(&loaded),
        [
            "2:10 bad-address",
            "3:8 bad-name",
            "5:14 bad-token-hash",
            "6:8 unknown-name",
            "7:11 bad-scope",
            "8:9 unknown-name",
            "10:14 unresolved-reference",
            "12:12 unknown-upstream",
            "12:26 duplicate-name",
            "13:2 unknown-key",
            "0:0 stray-file",
        ],
        "{}",
        loaded.diagnostics
    );
    assert!(!loaded.diagnostics.to_string().contains("hunter2"), "a token given by mistake is not repeated");
    let help = |code: &str| &loaded.diagnostics.0.iter().find(|d| d.code == code).unwrap().help;
    assert_eq!(help("unknown-upstream"), "did you mean \"git\"?");
    assert_eq!(help("unknown-key"), "did you mean `budgets`?");
}

#[test]
fn what_is_not_built_is_said_and_never_ignored() {
    let loaded =
        read(&[(MAIN_FILE, "[store]\nurl = \"redis://h\"\n[telemetry]\notlp_endpoint = \"http://c\"\n")]);
    let errors = loaded.diagnostics.0.iter().filter(|d| d.code == "not-built-yet").count();
    assert_eq!((errors, loaded.home.is_none()), (2, true), "{}", loaded.diagnostics);
}

#[test]
fn without_tokens_only_loopback_is_served() {
    let loaded = read(&[(MAIN_FILE, "[server]\nlisten = \"0.0.0.0:7331\"\n")]);
    assert_eq!(codes(&loaded), ["2:10 open-to-others"]);
    let tokens = read(&[(MAIN_FILE, "[server]\nlisten = \"0.0.0.0:7331\"\n[auth]\nmode = \"token\"\n")]);
    assert_eq!(codes(&tokens), ["3:1 no-tokens"]);
    assert_eq!(tokens.diagnostics.count(Severity::Warning), 1);
    assert!(tokens.home.is_some());
}

#[test]
fn a_folder_without_docent_toml_is_no_home() {
    let loaded = read(&[("policies/10.rhai", "")]);
    assert_eq!(codes(&loaded), ["0:0 no-home"]);
}

#[test]
fn two_callers_cannot_share_a_token_and_tiers_must_exist() {
    let loaded = read(&[
        (
            MAIN_FILE,
            "[callers.a]\ntoken_hash = \"${env:HASH}\"\n[callers.b]\ntoken_hash = \"${env:HASH}\"\n[upstreams]\nenabled = [\"u\"]\n",
        ),
        ("scripts/u/upstream.toml", "kind = \"script\"\ntier = \"sytem\"\n"),
    ]);
    assert_eq!(codes(&loaded), ["3:10 same-token", "1:1 unknown-tier"]);
}

#[test]
fn jwt_settings_are_whole_or_every_gap_is_named() {
    let keys =
        r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let with = |auth: &str| {
        let main = format!("[tiers]\norder = [\"low\"]\n[auth]\nmode = \"jwt\"\n{auth}\n[callers.alice]\n");
        read(&[(MAIN_FILE, main.as_str()), ("keys.json", keys)])
    };
    let whole = "issuer = \"https://i\"\naudience = [\"a\", \"b\"]\njwks_file = \"keys.json\"\n";
    let good = with(&format!(
        "{whole}scopes_supported = [\"a:b\"]\nalgorithms = [\"ES256\"]\nclock_skew_seconds = 5\n[auth.roles.dev]\nscopes = [\"x\"]\ntier = \"low\""
    ));
    let home = good.home.unwrap_or_else(|| panic!("{}", good.diagnostics));
    let settings = home.callers.verifier().unwrap().settings();
    assert_eq!((settings.audiences.len(), settings.algorithms.len(), settings.roles.len()), (2, 1, 1));
    assert_eq!(
        (settings.clock_skew.as_secs(), settings.scope_claims.as_slice()),
        (5, &["scope".to_owned(), "scp".to_owned()][..])
    );
    assert_eq!(
        (home.settings.issuer.as_deref(), home.settings.scopes_supported.as_slice()),
        (Some("https://i"), &["a:b".to_owned()][..])
    );
    for (auth, code) in [
        ("", "missing-key"),
        (format!("{whole}jwks_url = \"https://i/k\"").as_str(), "contradiction"),
        ("issuer = \"i\"\naudience = \"a\"\njwks_url = \"http://i/k\"", "bad-url"),
        ("issuer = \"i\"\naudience = \"a\"\njwks_file = \"none.json\"", "no-keys"),
        ("issuer = \"i\"\naudience = \"\"\njwks_file = \"keys.json\"", "wrong-type"),
        (&format!("{whole}algorithms = [\"HS256\"]"), "unknown-name"),
        (&format!("{whole}algorithms = [\"none\"]"), "unknown-name"),
        (&format!("{whole}algorithms = []"), "empty-list"),
        (&format!("{whole}clock_skew_seconds = 3600"), "out-of-range"),
        (&format!("{whole}[auth.roles.dev]\ntier = \"lou\""), "unknown-name"),
    ] {
        let loaded = with(auth);
        assert!(
            loaded.home.is_none() && loaded.diagnostics.0.iter().any(|d| d.code == code),
            "{auth}: {}",
            loaded.diagnostics
        );
    }
    let local = with("issuer = \"i\"\naudience = \"a\"\njwks_url = \"http://127.0.0.1:1/k\"");
    assert!(local.home.is_some(), "{}", local.diagnostics);
}
