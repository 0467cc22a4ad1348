//! MCP servers that misbehave, on both wires and both transports.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use docent::upstream::{ErrorSource, ProgressSink, Retry};
use serde_json::{Value, json};

use crate::support::TestHome;
use crate::upstream_http::serve;
use crate::upstream_support::{How, TestUpstream, mcp, names, result, text};

/// What the fake server saw: method, session id, headers.
type Seen = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;
type Answer = dyn Fn(&Value, &HeaderMap) -> Response + Send + Sync;

fn as_json(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

fn as_events(messages: &[Value]) -> Response {
    let events: Vec<String> = messages.iter().map(|m| format!("event: message\ndata: {m}\n\n")).collect();
    let text = events.concat();
    ([("content-type", "text/event-stream")], text).into_response()
}

async fn fake(answer: impl Fn(&Value, &HeaderMap) -> Response + Send + Sync + 'static) -> (String, Seen) {
    let (seen, answer): (Seen, Arc<Answer>) = (Seen::default(), Arc::new(answer));
    let kept = Arc::clone(&seen);
    let handler = move |headers: HeaderMap, body: String| async move {
        let message: Value = serde_json::from_str(&body).unwrap();
        let method = message["method"].as_str().unwrap_or("(answer)").to_owned();
        kept.lock().unwrap().push((method, headers.clone(), message.clone()));
        if message["id"].is_null() || message["method"].is_null() {
            return StatusCode::ACCEPTED.into_response();
        }
        answer(&message, &headers)
    };
    let listen = || async {
        let change = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}});
        as_events(&[change])
    };
    (format!("{}/mcp", serve(Router::new().route("/mcp", post(handler).get(listen))).await), seen)
}

fn initialized(id: &Value, session: Option<&str>) -> Response {
    let answer = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}});
    let mut response = as_json(&result(id, answer));
    if let Some(session) = session {
        response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
    }
    response
}

fn refused(id: &Value, code: i64) -> Response {
    as_json(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no\u{200b} such thing"}}))
}

fn upstream(url: &str, more: &str) -> TestUpstream {
    TestUpstream::new("m", &format!("kind = \"mcp\"\nurl = \"{url}\"\n{more}"))
}

fn methods(seen: &Seen) -> Vec<String> {
    seen.lock().unwrap().iter().map(|(m, ..)| m.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_malformed_tool_or_page_never_loses_the_rest() {
    let (url, _) = fake(|message, _| {
        let id = &message["id"];
        match (message["method"].as_str().unwrap(), message["params"]["cursor"].as_str()) {
            ("initialize", _) => initialized(id, None),
            ("tools/list", None) => as_json(&result(id, json!({"nextCursor": "", "tools": [
                {"name": "good", "description": "Says\u{200b} it\u{202e}", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}},
                {"name": "bare"}, {"description": "no name"}, 7, null, {"name": ""},
                {"name": "odd", "description": {"x": 1}, "inputSchema": "no", "annotations": [1]},
                {"name": "good", "inputSchema": {"type": "object"}},
                {"name": "marked", "inputSchema": {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}},
            ]}))),
            ("tools/list", Some("")) => as_events(&[result(id, json!({"nextCursor": "again", "tools": [
                {"name": "paged name!", "description": "d", "inputSchema": {"type": "object"}}]}))]),
            ("tools/list", Some("again")) => as_json(&result(id, json!({"nextCursor": "again", "tools": [
                {"name": "last", "description": "d", "inputSchema": {"type": "object"}}]}))),
            _ => refused(id, -32601),
        }
    })
    .await;
    let toml = "[override.\"m.last\"]\nhide = true\n[override.\"good\"]\ntier = \"action\"\n[override.\"none\"]\nhide = true\n";
    let found = upstream(&url, toml).discover().await;
    assert_eq!(names(&found), ["bare", "good", "odd", "paged name!"], "{}", found.problems);
    assert!(!found.complete && found.broke_off);
    let good = &found.tools[0].tool;
    assert_eq!((&*good.description, good.tier.as_deref()), ("Says it", Some("action")));
    assert_eq!(
        found.tools.iter().find(|t| &*t.tool.name == "paged name!").unwrap().tool.id.as_str(),
        "m.paged_name_"
    );
    let told = found.problems.to_string();
    for part in [
        "repeats a cursor",
        "2 hidden characters",
        "`bare` has no input schema",
        "`marked` was skipped",
        "has the id `m.good` already",
        "without a readable name",
    ] {
        assert!(told.contains(part), "{part} is missing in:\n{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_session_is_made_anew_once_and_a_call_costs_one_request() {
    let alive = Arc::new(Mutex::new("s0".to_owned()));
    let known = Arc::clone(&alive);
    let (url, seen) = fake(move |message, headers| {
        let id = &message["id"];
        match message["method"].as_str().unwrap() {
            "initialize" => initialized(id, Some(&known.lock().unwrap())),
            "server/discover" => (StatusCode::BAD_REQUEST, "what?").into_response(),
            _ if headers.get("mcp-session-id").is_none_or(|s| s != known.lock().unwrap().as_str()) => {
                (StatusCode::NOT_FOUND, "gone, in words nobody foresaw").into_response()
            }
            _ => as_json(&result(id, json!({"content": [{"type": "text", "text": "ok"}]}))),
        }
    })
    .await;
    let m = upstream(&url, "");
    for _ in 0..3 {
        assert_eq!(text(&m.call("t", json!({})).await.unwrap()), "ok");
    }
    let first = ["server/discover", "initialize", "notifications/initialized"];
    assert_eq!(methods(&seen), [&first[..], &["tools/call"; 3]].concat());
    let version = seen.lock().unwrap()[4].1["mcp-protocol-version"].clone();
    assert_eq!(version, "2025-11-25");
    seen.lock().unwrap().clear();
    *alive.lock().unwrap() = "s1".to_owned();
    let calls = (0..8).map(|_| m.call("t", json!({})));
    for reply in futures_util::future::join_all(calls).await {
        assert_eq!(text(&reply.unwrap()), "ok");
    }
    let made = methods(&seen).iter().filter(|m| *m == "initialize").count();
    assert!((1..=2).contains(&made), "{:?}", methods(&seen));
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_nobody_knows_and_progress_and_pings_pass() {
    let (url, seen) = fake(|message, _| {
        let id = &message["id"];
        match message["method"].as_str().unwrap() {
            "initialize" => initialized(id, None),
            "tools/call" => as_events(&[
                json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
                json!({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": {}}),
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1, "total": 2, "message": "half"}}),
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "other", "progress": 9}}),
                result(id, json!({"content": [{"type": "hologram", "data": 1.10}, {"type": "text", "text": "x"}], "structuredContent": {"n": 12_345_678_901_234_567_890_u64}, "_meta": {"a": 1}, "isError": "odd"})),
            ]),
            _ => refused(id, -32601),
        }
    })
    .await;
    let m = upstream(&url, "era = \"session\"\n");
    let steps = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&steps);
    let progress = ProgressSink::new(move |done, total, said| {
        kept.lock().unwrap().push((done, total, said.map(str::to_owned)));
    });
    let reply =
        m.call_how("t", json!({"a": 1}), How { progress: Some(progress), ..How::default() }).await.unwrap();
    assert_eq!(mcp(&reply).content[0].get(), r#"{"type":"hologram","data":1.1}"#);
    assert_eq!(mcp(&reply).structured.as_ref().unwrap().get(), r#"{"n":12345678901234567890}"#);
    assert!(!mcp(&reply).is_error && mcp(&reply).meta.is_some());
    assert_eq!(*steps.lock().unwrap(), [(1.0, Some(2.0), Some("half".to_owned()))]);
    let answers: Vec<Value> =
        seen.lock().unwrap().iter().filter(|s| s.0 == "(answer)").map(|s| s.2.clone()).collect();
    assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert_eq!(answers[1]["error"]["code"], -32601);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stateless_wire_carries_its_headers_and_tells_changes() {
    let (url, seen) = fake(|message, headers| {
        let (id, method) = (&message["id"], message["method"].as_str().unwrap());
        let meta = &message["params"]["_meta"];
        let fits = headers.get("mcp-method").is_some_and(|m| m == method)
            && headers.get("mcp-protocol-version").is_some_and(|v| v == "2026-07-28")
            && meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
            && meta["io.modelcontextprotocol/clientCapabilities"].is_object();
        if !fits {
            return (StatusCode::BAD_REQUEST, refused(id, -32020)).into_response();
        }
        let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
        match method {
            "server/discover" => as_json(&result(id, json!({"resultType": "complete", "supportedVersions": ["2025-11-25", "2026-07-28"], "capabilities": {"tools": {"listChanged": true}}}))),
            "tools/list" => as_json(&result(id, json!({"resultType": "complete", "tools": [{"name": "où", "description": "d", "inputSchema": schema}]}))),
            "subscriptions/listen" => as_events(&[json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}})]),
            "tools/call" if message["params"]["name"] == "ask" => as_json(&result(id, json!({"resultType": "input_required", "inputRequests": {}}))),
            _ => as_json(&result(id, json!({"resultType": "complete", "content": []}))),
        }
    })
    .await;
    let m = upstream(&url, "");
    let found = m.discover().await;
    assert!(!found.tools[0].tool.input_schema.as_str().contains("x-mcp-header"));
    m.call("où", json!({"region": "eu"})).await.unwrap();
    let (_, headers, _) = seen.lock().unwrap().iter().find(|s| s.0 == "tools/call").unwrap().clone();
    assert_eq!(
        (&headers["mcp-name"], &headers["mcp-param-region"]),
        (&"=?base64?b8O5?=".parse().unwrap(), &"eu".parse().unwrap())
    );
    assert!(headers.get("mcp-session-id").is_none());
    let asked = m.call("ask", json!({})).await.unwrap_err();
    assert_eq!(asked.source_kind, ErrorSource::Unsupported);
    for _ in 0..100 {
        if m.adapter.list_changed() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(m.adapter.list_changed());
    assert!(!methods(&seen).contains(&"initialize".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_floods_and_hangs_are_told_apart() {
    let (url, seen) = fake(|message, _| {
        let id = &message["id"];
        match (message["method"].as_str().unwrap(), message["params"]["name"].as_str()) {
            ("initialize", _) => initialized(id, None),
            (_, Some("large")) => {
                as_json(&result(id, json!({"content": [{"type": "text", "text": "x".repeat(300_000)}]})))
            }
            (_, Some("events")) => as_events(&vec![
                json!({"method": "notifications/message", "params": {"x": "y".repeat(1000)}});
                3000
            ]),
            (_, Some("cut")) => as_events(&[]),
            (_, Some("noise")) => as_json(&json!("hello")),
            (_, Some("busy")) => (StatusCode::SERVICE_UNAVAILABLE, "later").into_response(),
            (_, Some("hang")) => axum::body::Body::from_stream(futures_util::stream::pending::<
                Result<String, std::io::Error>,
            >())
            .into_response(),
            _ => refused(id, -32602),
        }
    })
    .await;
    let m = upstream(&url, "era = \"session\"\nread_bytes = 100000\n");
    for (name, source, retry) in [
        ("large", ErrorSource::TooLarge, Retry::Never),
        ("events", ErrorSource::TooLarge, Retry::Never),
        ("cut", ErrorSource::Upstream, Retry::Unknown),
        ("noise", ErrorSource::Malformed, Retry::Never),
        ("busy", ErrorSource::Upstream, Retry::Unknown),
        ("other", ErrorSource::Caller, Retry::Never),
    ] {
        let error = m.call(name, json!({})).await.unwrap_err();
        assert_eq!((error.source_kind, error.retry), (source, retry), "{name}: {error}");
    }
    assert!(m.call("other", json!({})).await.unwrap_err().message.ends_with("no such thing"));
    let how = How { timeout: Duration::from_millis(100), read_only: true, ..How::default() };
    let late = m.call_how("hang", json!({}), how).await.unwrap_err();
    assert_eq!((late.source_kind, late.retry), (ErrorSource::Timeout, Retry::Safe));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let seen = seen.lock().unwrap();
    let cancelled = seen.iter().find(|s| s.0 == "notifications/cancelled").expect("the server is told");
    let hung = seen.iter().rfind(|s| s.2["params"]["name"] == "hang").unwrap();
    assert_eq!(cancelled.2["params"]["requestId"], hung.2["id"]);
}

/// A child that does as the tool's name says.
const CHILD: &str = r#"
import json, os, sys, time
starts = open("starts", "a"); starts.write("x"); starts.close()
sys.stderr.write("starting with " + ",".join(sorted(k for k in os.environ if k not in ("LC_CTYPE",))) + "\n"); sys.stderr.flush()
def say(m): sys.stdout.write(json.dumps(m) + "\n"); sys.stdout.flush()
for line in sys.stdin:
    m = json.loads(line); i = m.get("id"); p = m.get("params", {}); name = p.get("name")
    if m["method"] == "initialize": say({"jsonrpc": "2.0", "id": i, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}}})
    elif m["method"] == "tools/list": say({"jsonrpc": "2.0", "id": i, "result": {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}})
    elif name == "die": sys.stderr.write("goodbye\n"); sys.stderr.flush(); os._exit(3)
    elif name == "flood": sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":"' % i + "x" * 3000000 + '"}\n'); sys.stdout.flush()
    elif name == "noise": sys.stdout.write("not json\n\n[]\n"); say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}); say({"jsonrpc": "2.0", "id": i, "result": {"content": [{"type": "text", "text": "still here"}]}})
    elif name == "sleep": pass
    elif i is not None and m["method"] == "tools/call": say({"jsonrpc": "2.0", "id": i, "result": {"content": [{"type": "text", "text": str(os.getpid())}]}})
    elif i is not None: say({"jsonrpc": "2.0", "id": i, "error": {"code": -32601, "message": "unknown"}})
"#;

fn child(more: &str) -> TestUpstream {
    let home = TestHome::with(&[("scripts/c/child.py", CHILD)]);
    TestUpstream::at(
        home,
        "c",
        &format!("kind = \"mcp\"\ncommand = [\"python3\", \"-u\", \"child.py\"]\n{more}"),
    )
}

fn starts(upstream: &TestUpstream) -> usize {
    std::fs::read_to_string(upstream.home.path().join("scripts/c/starts")).map_or(0, |s| s.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_is_shared_survives_noise_and_floods_and_is_started_again() {
    let c = child("read_bytes = 100000\n");
    assert_eq!(starts(&c), 0, "nothing runs before it is used");
    let calls = (0..10).map(|_| c.call("pid", json!({})));
    let pids: Vec<String> =
        futures_util::future::join_all(calls).await.into_iter().map(|r| text(&r.unwrap())).collect();
    assert!(pids.iter().all(|p| *p == pids[0]) && starts(&c) == 1, "one child for all: {pids:?}");
    assert_eq!(text(&c.call("noise", json!({})).await.unwrap()), "still here");
    assert!(c.adapter.list_changed());
    assert_eq!(c.call("flood", json!({})).await.unwrap_err().source_kind, ErrorSource::TooLarge);
    assert_eq!(text(&c.call("pid", json!({})).await.unwrap()), pids[0]);
    let dead = c.call("die", json!({})).await.unwrap_err();
    assert_eq!((dead.source_kind, dead.retry), (ErrorSource::Upstream, Retry::Unknown));
    assert!(
        dead.detail.contains("goodbye") && dead.detail.contains("starting with HOME,PATH"),
        "{}",
        dead.detail
    );
    let again = text(&c.call("pid", json!({})).await.unwrap());
    assert!(again != pids[0] && starts(&c) == 2);
    c.call("die", json!({})).await.unwrap_err();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let refused = c.call("pid", json!({})).await.unwrap_err();
    assert!(matches!(refused.retry, Retry::After(1..=5)), "{refused:?}");
    assert!(refused.message.contains("2 times in a row"), "{}", refused.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_child_is_stopped_and_a_dropped_one_ends_with_its_group() {
    let c = child("idle_seconds = 1\n");
    let pid = text(&c.call("pid", json!({})).await.unwrap());
    let runs =
        |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "));
    let wait = |pid: String| async move {
        let start = Instant::now();
        while runs(&pid) && start.elapsed() < Duration::from_secs(8) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        !runs(&pid)
    };
    assert!(runs(&pid));
    assert!(wait(pid.clone()).await, "stopped when idle");
    let next = text(&c.call("pid", json!({})).await.unwrap());
    assert!(next != pid, "started again, and stopping when idle is no failure");
    drop(c);
    assert!(wait(next).await, "ends with its upstream");
}
