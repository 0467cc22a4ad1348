//! The Ombi pack: its recorded cases, replies damaged in every way, and docent against a fake Ombi that fails.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use docent::call::{ErrorCode, HttpRequest, ReplyBody, ToolError, ToolOutcome, UpstreamReply};
use docent::clock::Clock;
use docent::json::Object;
use docent::projection::{CallFacts, Projection, Projector, ResultBudget, ScriptCalls, Shaped};
use docent::schema::Validators;
use docent::secret::{Reference, Resolver};
use docent::upstream::connect;
use serde_json::{Value, json};

use crate::support::{TestHome, copy, docent, root};
use crate::upstream_http::serve;

#[expect(dead_code, reason = "the example's own `main` is not called from here")]
#[path = "../../examples/fake_ombi.rs"]
pub(crate) mod fake_ombi;

const HOME: &str = r#"
[auth]
mode = "none"
[callers.anonymous]
[upstreams]
enabled = ["ombi"]
[[allow]]
upstreams = ["ombi"]
"#;

/// A home that serves nothing but this pack, with a short patience.
pub(crate) fn home() -> TestHome {
    let home = TestHome::with(&[("docent.toml", HOME)]);
    copy(&root().join("scripts/ombi"), &home.path().join("scripts/ombi"));
    copy(&root().join("scripts/lib"), &home.path().join("scripts/lib"));
    let pack = home.path().join("scripts/ombi/upstream.toml");
    let text = std::fs::read_to_string(&pack).unwrap().replace("timeout_ms = 20000", "timeout_ms = 1500");
    std::fs::write(pack, text).unwrap();
    home
}

fn run(home: &TestHome, url: &str, args: &[&str]) -> (i32, String) {
    let data = tempfile::tempdir().unwrap();
    let output = docent()
        .args(args)
        .arg("--home")
        .arg(home.path())
        .arg("--data")
        .arg(data.path())
        .env("OMBI_URL", url)
        .env("OMBI_API_KEY", fake_ombi::KEY)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

#[test]
fn the_recorded_cases_of_the_pack_hold() {
    let home = home();
    let (code, out) = run(&home, "http://127.0.0.1:1", &["test", "ombi"]);
    assert_eq!(code, 0, "{}", out.lines().filter(|l| !l.starts_with("ok ")).collect::<Vec<_>>().join("\n"));
    let (code, out) = run(&home, "http://127.0.0.1:1", &["check"]);
    assert_eq!((code, out.contains("31 tools of 1 upstream")), (0, true), "{out}");
}

pub(crate) struct Case {
    pub(crate) tool: String,
    pub(crate) args: Object,
    pub(crate) replies: Vec<UpstreamReply>,
}

pub(crate) fn case(value: &Value, folder: &Path) -> Case {
    let replies = value["replies"].as_array().unwrap().iter().map(|r| {
        let (media, text) = match (&r["body"], &r["body_file"], &r["text"]) {
            (Value::Null, Value::String(file), _) => {
                ("application/json", std::fs::read_to_string(folder.join(file)).unwrap())
            }
            (Value::Null, _, text) => ("text/plain", text.as_str().unwrap_or_default().to_owned()),
            (body, _, _) => ("application/json", body.to_string()),
        };
        reply(u16::try_from(r["status"].as_u64().unwrap_or(200)).unwrap(), media, text)
    });
    Case {
        tool: value["tool"].as_str().unwrap().to_owned(),
        args: value["args"].as_object().unwrap().clone(),
        replies: replies.collect(),
    }
}

pub(crate) fn reply(status: u16, media: &str, text: String) -> UpstreamReply {
    let body = ReplyBody::Bytes { media_type: media.to_owned(), bytes: text.into() };
    UpstreamReply { status, headers: Vec::new(), body, warnings: Vec::new() }
}

/// Replies in order, then none.
pub(crate) struct Replies(pub(crate) Mutex<Vec<UpstreamReply>>);

impl ScriptCalls for Replies {
    fn fetch(&self, request: HttpRequest) -> Result<UpstreamReply, ToolError> {
        let next = self.0.lock().unwrap().pop();
        next.ok_or_else(|| ToolError::new(ErrorCode::UpstreamUnavailable, request.path))
    }

    fn call(&self, tool: &str, _arguments: Object) -> Result<Value, ToolError> {
        Err(ToolError::new(ErrorCode::NotFound, tool))
    }

    fn progress(&self, _progress: f64, _total: Option<f64>, _message: Option<&str>) {}
}

/// The ways in which a reply is damaged.
const WAYS: [&str; 7] = ["as it is", "retyped", "nulls", "dropped", "nested", "enlarged", "cut"];

fn damaged(way: &str, value: &Value) -> Value {
    let inner = |v: &Value| damaged(way, v);
    match (way, value) {
        ("nested", Value::Object(map)) => {
            map.iter().map(|(k, v)| (k.clone(), json!({"inner": [v]}))).collect()
        }
        ("enlarged", Value::String(text)) => json!(format!("{text} {}", "é<b>x</b>".repeat(100))),
        ("enlarged", Value::Number(_)) => serde_json::from_str("123456789012345678901234567890.5").unwrap(),
        ("enlarged", Value::Array(items)) if !items.is_empty() => {
            // Lists within lists stay short: the reply would not be read at all.
            let flat = !items.iter().any(|i| i.to_string().contains('['));
            let times = if flat { 120 } else { items.len() + 1 };
            items.iter().cycle().take(times).map(inner).collect()
        }
        ("dropped", Value::Object(map)) => {
            map.iter().step_by(2).map(|(k, v)| (k.clone(), inner(v))).collect()
        }
        (_, Value::Object(map)) => map.iter().map(|(k, v)| (k.clone(), inner(v))).collect(),
        (_, Value::Array(items)) => items.iter().map(inner).collect(),
        ("nulls", _) => Value::Null,
        ("retyped", Value::Null) => json!([]),
        ("retyped", Value::Bool(_)) => json!("yes"),
        ("retyped", Value::Number(n)) => json!(n.to_string()),
        ("retyped", Value::String(_)) => json!(-7),
        _ => value.clone(),
    }
}

fn spoil(way: &str, reply: &UpstreamReply) -> UpstreamReply {
    let ReplyBody::Bytes { media_type, bytes } = &reply.body else { return reply.clone() };
    let text = match (way, serde_json::from_slice::<Value>(bytes)) {
        ("cut", _) => String::from_utf8_lossy(bytes).chars().take(bytes.len() / 2).collect(),
        (way, Ok(value)) => damaged(way, &value).to_string(),
        _ => return reply.clone(),
    };
    self::reply(reply.status, media_type, text)
}

/// Every tool of the pack, compiled.
pub(crate) async fn projections(home: &TestHome) -> BTreeMap<String, Projection> {
    let resolver = Resolver::new(|r| match r {
        Reference::Env("OMBI_URL") => Some("http://127.0.0.1:1".to_owned()),
        Reference::Env("OMBI_API_KEY") => Some("k".to_owned()),
        _ => None,
    });
    let (loaded, mut diagnostics) = docent::config::load_home(home.path(), &resolver);
    let loaded = loaded.unwrap_or_else(|| panic!("{diagnostics}"));
    let projector = Projector::new(Arc::new(Validators::default()));
    let mut all = BTreeMap::new();
    for pack in &loaded.packs {
        let adapter = connect(&pack.config, Clock::system());
        for found in adapter.discover().await.unwrap().tools {
            let made = projector.compile(&found.tool, &found.projection.unwrap(), &mut diagnostics);
            all.insert(found.tool.name.to_string(), made.unwrap_or_else(|| panic!("{diagnostics}")));
        }
    }
    all
}

fn examine(what: &str, shaped: &Shaped, projection: &Projection) {
    let detail = shaped.detail.as_deref().unwrap_or_default();
    // The time limit is meant for optimised builds; every other fault counts.
    let faults = detail.contains(".rhai") && !(cfg!(debug_assertions) && detail.contains("ran longer than"));
    assert!(!faults, "{what}: a script faults: {detail}");
    let text = match &shaped.outcome {
        ToolOutcome::Completed(result) => {
            let value = result.structured.as_ref().unwrap().value();
            let schema = projection.output_schema().unwrap();
            assert_eq!(Validators::default().check(schema, &value), Ok(vec![]), "{what}");
            value.to_string()
        }
        ToolOutcome::Failed(error) => projection.failure(error, "c").unwrap().to_string(),
    };
    assert!(text.len() <= ResultBudget::default().result_bytes + 4_096, "{what}: {} bytes", text.len());
    for secret in ["SECRET", "example.invalid/fanart", "@example", "10.0.0.", "radarr.lan"] {
        assert!(!text.contains(secret), "{what}: `{secret}` came out: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_replies_never_fault_lie_leak_or_swell() {
    let home = home();
    let all = projections(&home).await;
    let folder = root().join("scripts/ombi/cases");
    let mut count = 0;
    for name in ["media", "requests", "people", "server", "writes"] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        let cases: Value = serde_saphyr::from_str(&text).unwrap();
        for value in cases.as_array().unwrap() {
            let case = case(value, &folder);
            let projection = &all[&case.tool];
            for way in WAYS {
                let replies = case.replies.iter().rev().map(|r| spoil(way, r)).collect();
                let calls: Arc<dyn ScriptCalls> = Arc::new(Replies(Mutex::new(replies)));
                let shaped =
                    projection.run(&case.args, &CallFacts::default(), &calls, &ResultBudget::default());
                examine(&format!("{} {way}", value["name"]), &shaped, projection);
                count += 1;
            }
        }
    }
    assert!(count > 1_000, "{count}");
}

/// The structured half of one call.
fn call(home: &TestHome, url: &str, tool: &str, args: &Value) -> Value {
    let (_, out) = run(home, url, &["call", tool, &args.to_string(), "--json"]);
    assert!(!out.contains("SECRET"), "{tool}: {out}");
    let start = out.find('{').unwrap_or_else(|| panic!("{tool}: {out}"));
    let mut values = serde_json::Deserializer::from_str(out.get(start..).unwrap()).into_iter::<Value>();
    let result = values.next().unwrap().unwrap();
    result["structuredContent"].clone()
}

/// Makes all following requests fail in one way.
pub(crate) fn set_fault(url: &str, fault: &str) {
    let mut socket = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    let head = format!("PUT /fake/fault/{fault} HTTP/1.1\r\nhost: fake\r\nconnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn docent_tells_apart_what_a_failing_ombi_does() {
    let replies: PathBuf = root().join("scripts/ombi/cases/replies");
    let url = serve(fake_ombi::app(&replies)).await;
    let home = home();
    let (read, write) = ("ombi.read_requests", "ombi.write_request_create");
    let movie = json!({"media": "movie", "tmdb_id": 910_001});
    let good = call(&home, &url, read, &json!({}));
    assert_eq!((&good["ok"], &good["data"]["kind"]), (&json!(true), &json!("request_page")), "{good}");
    let made = call(&home, &url, write, &movie);
    assert_eq!(made["data"]["target"], json!({"kind": "movie", "id": 31}), "{made}");
    for (fault, of_read, of_write) in [
        ("slow", "TIMEOUT", "UNKNOWN_OUTCOME"),
        ("500", "INTERNAL_ERROR", "INTERNAL_ERROR"),
        ("429", "RATE_LIMITED", "RATE_LIMITED"),
        ("204", "UPSTREAM_SCHEMA_MISMATCH", "UNKNOWN_OUTCOME"),
        ("html", "UNSUPPORTED_CAPABILITY", "UNSUPPORTED_CAPABILITY"),
        ("truncated", "UPSTREAM_SCHEMA_MISMATCH", "UNKNOWN_OUTCOME"),
        ("types", "", "UNKNOWN_OUTCOME"),
        ("is_error", "UPSTREAM_SCHEMA_MISMATCH", "FORBIDDEN"),
    ] {
        set_fault(&url, fault);
        let begun = Instant::now();
        let found = call(&home, &url, read, &json!({}));
        assert!(begun.elapsed() < Duration::from_secs(20), "{fault}");
        if of_read.is_empty() {
            assert_eq!(
                (&found["ok"], &found["data"]["items"]),
                (&json!(true), &json!([])),
                "{fault}: {found}"
            );
        } else {
            assert_eq!(found["error"]["code"], of_read, "{fault}: {found}");
        }
        let found = call(&home, &url, write, &movie);
        assert_eq!(found["error"]["code"], of_write, "{fault}: {found}");
        assert_eq!(found["error"]["retryable"], json!(false), "{fault}: {found}");
    }
    set_fault(&url, "huge");
    let found = call(&home, &url, read, &json!({}));
    assert_eq!(found["ok"], json!(false), "{found}");
    assert!(found.to_string().len() < 4_096, "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_version_has_is_found_by_asking() {
    let url = serve(fake_ombi::app(&root().join("scripts/ombi/cases/replies"))).await;
    let home = home();
    let ask = |tool: &str, args: Value| call(&home, &url, tool, &args);
    let capabilities = || {
        let found = ask("ombi.read_server", json!({"view": "capabilities"}));
        assert_eq!(found["ok"], json!(true), "{found}");
        let rows = found["data"]["items"].as_array().unwrap().clone();
        let rows = rows.into_iter().map(|r| (r["name"].as_str().unwrap().to_owned(), r["value"].clone()));
        (rows.collect::<BTreeMap<String, Value>>(), found["warnings"].clone())
    };
    let requested = json!({"list": "requested", "media": "movie"});
    let (now, _) = capabilities();
    assert!(
        now["version"].is_string() && now["features"] == json!(true) && now["online_users"] == json!(true),
        "{now:?}"
    );
    let plain = ask("ombi.read_requests", json!({}));
    // A newer server says more, and nothing of it comes out.
    set_fault(&url, "newer");
    let newer = ask("ombi.read_requests", json!({}));
    assert_eq!((&newer["data"], &newer["ok"]), (&plain["data"], &json!(true)), "{newer}");
    // An older one lacks routes: what it has is told, and what cannot be done says so with its version.
    set_fault(&url, "older");
    let (older, _) = capabilities();
    assert_eq!((&older["features"], &older["votes"]), (&json!(false), &json!(true)), "{older:?}");
    let missing = ask("ombi.read_server", json!({"view": "features"}));
    assert_eq!(missing["error"]["code"], "UNSUPPORTED_CAPABILITY", "{missing}");
    let message = missing["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(now["version"].as_str().unwrap()) && message.contains("capabilities"),
        "{message}"
    );
    let lists = ask("ombi.read_discover", requested);
    assert_eq!(lists["error"]["code"], "UNSUPPORTED_CAPABILITY", "the feed is not there either: {lists}");
    // What a fault leaves open is neither true nor false.
    set_fault(&url, "500");
    let faulty = ask("ombi.read_server", json!({"view": "capabilities"}));
    assert_eq!(faulty["error"]["code"], "INTERNAL_ERROR", "{faulty}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_user_are_looked_for() {
    let url = serve(fake_ombi::app(&root().join("scripts/ombi/cases/replies"))).await;
    let home = home();
    let all = call(&home, &url, "ombi.read_requests", &json!({}));
    let rows = all["data"]["items"].as_array().unwrap();
    let user = rows.iter().find_map(|r| r["requested_user_id"].as_str()).unwrap();
    let own = rows.iter().filter(|r| r["requested_user_id"] == user).count();
    let found = call(&home, &url, "ombi.read_requests", &json!({"requested_by": user}));
    assert_eq!(found["data"]["items"].as_array().unwrap().len(), own, "{found}");
    assert_eq!(
        (&found["data"]["page"]["total"], &found["truncated"]),
        (&json!(own), &json!(false)),
        "{found}"
    );
    let none = call(&home, &url, "ombi.read_requests", &json!({"requested_by": "nobody"}));
    assert_eq!(none["data"]["page"]["total"], json!(0), "{none}");
}
