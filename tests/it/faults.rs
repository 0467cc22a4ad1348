//! Bad input, bad upstreams and bad scripts against the program itself: each with a clear answer, nothing lost,
//! and everybody else served meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, http, pipe, rpc};

const SECRET: &str = "planted-s3cr3t-4711";

/// An HTTP server that echoes what it got; `/hang` never answers and counts those who leave.
struct Backend {
    url: String,
    left: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Backend {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (left, heads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (gone, seen) = (Arc::clone(&left), Arc::clone(&heads));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (gone, seen) = (Arc::clone(&gone), Arc::clone(&seen));
                std::thread::spawn(move || answer(stream, &gone, &seen));
            }
        });
        Self { url, left, heads }
    }

    fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, left: &AtomicUsize, heads: &Mutex<Vec<String>>) {
    let mut head = String::new();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    heads.lock().unwrap().push(head.clone());
    if head.contains(" /hang") {
        lines.read_to_end(&mut Vec::new()).ok();
        left.fetch_add(1, Ordering::SeqCst);
        return;
    }
    if head.contains(" /slow") {
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let status = if head.contains(" /broken") { "500 Oops" } else { "200 OK" };
    let lines: Vec<&str> = head.lines().collect();
    let body = json!({"message": head, "lines": lines}).to_string();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok();
}

const DOCENT: &str = r#"
[callers.anonymous]
[upstreams]
enabled = ["api", "loop"]
[[allow]]
tools = ["*"]
[[hide]]
tools = ["api.hidden"]
[[deny]]
tools = ["api.denied"]
reason = "never"
"#;

fn tool(name: &str, method: &str, path: &str, more: &str) -> String {
    format!(
        "[[tool]]\nid = \"{name}\"\ndescription = \"Calls {path}.\"\nannotations = {{ read_only = {} }}\n\
         request = {{ method = \"{method}\", path = \"{path}\" }}\n{more}\n",
        method == "GET"
    )
}

fn home(backend: &Backend) -> TestHome {
    let mut pack = format!(
        "kind = \"http\"\nbase_url = \"{}\"\n[auth]\nheader = {{ \"X-Key\" = \"key ${{file:secret.txt}}\" }}\n",
        backend.url
    );
    let spin = "script = { file = \"p.rhai\", project = \"spin\" }";
    for (name, method, path, more) in [
        ("echo", "GET", "/echo", ""),
        ("slow", "GET", "/slow", ""),
        ("broken", "GET", "/broken", ""),
        ("hidden", "GET", "/echo", ""),
        ("denied", "GET", "/echo", ""),
        ("hang", "GET", "/hang", ""),
        ("late", "GET", "/hang", "timeout_ms = 300"),
        ("late_write", "POST", "/hang", "timeout_ms = 300"),
        ("spin", "GET", "/echo", spin),
    ] {
        pack += &tool(name, method, path, more);
    }
    let script = "kind = \"script\"\n[[tool]]\nid = \"forever\"\ndescription = \"Never ends.\"\n\
                  script = { file = \"l.rhai\", run = \"forever\" }\n[[tool]]\nid = \"bomb\"\n\
                  description = \"Eats memory.\"\nscript = { file = \"l.rhai\", run = \"bomb\" }\n";
    TestHome::with(&[
        ("docent.toml", DOCENT),
        ("secret.txt", SECRET),
        ("scripts/api/upstream.toml", &pack),
        ("scripts/api/p.rhai", "fn spin(reply, args, ctx) { loop { } }\n"),
        ("scripts/loop/upstream.toml", script),
        (
            "scripts/loop/l.rhai",
            "fn forever(args, ctx) { loop { } }\n\
             fn bomb(args, ctx) { let s = \"0123456789\"; loop { s += s; } }\n",
        ),
    ])
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A call on the stateless wire: status and body, correlation ids replaced.
fn call(server: &TestServer, tool: &str, arguments: &Value) -> (u16, Value) {
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta()});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
    let (status, _, body) = rpc(&server.url, &headers, &message);
    (status, body)
}

fn error(body: &Value) -> &Value {
    &body["result"]["structuredContent"]["error"]
}

fn session(server: &TestServer) -> String {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let (_, head, _) = rpc(&server.url, &[], &message);
    head.lines().find_map(|l| l.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned()
}

/// Sends a call and goes away after a moment.
fn send_and_leave(server: &TestServer, headers: &[(&str, &str)], params: &Value) {
    let host = server.url.trim_start_matches("http://");
    let body = json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}).to_string();
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(600));
}

fn wait_until(what: &str, fits: impl Fn() -> bool) {
    let start = Instant::now();
    while !fits() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn time_that_runs_out_is_told_as_such_and_a_write_is_never_called_harmless() {
    let backend = Backend::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let (_, read) = call(&server, "api.late", &json!({}));
    assert_eq!(error(&read)["code"], "TIMEOUT");
    assert_eq!(error(&read)["retryable"], true);
    let message = error(&read)["message"].as_str().unwrap();
    assert!(message.contains("did not answer in time") && !message.contains("cancelled"), "{message}");
    let (_, write) = call(&server, "api.late_write", &json!({}));
    assert_eq!(error(&write)["code"], "UNKNOWN_OUTCOME");
    assert_eq!(error(&write)["retryable"], false);
    wait_until("the end of both requests", || backend.left() == 2);
}

#[test]
fn leaving_cancels_on_the_stateless_wire_and_in_a_session_only_the_word_does() {
    let backend = Backend::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let headers =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "api.hang")];
    send_and_leave(&server, &headers, &json!({"name": "api.hang", "arguments": {}, "_meta": meta()}));
    wait_until("the cancelled request", || backend.left() == 1);

    for token in [Value::Null, json!("p")] {
        let before = backend.left();
        let id = session(&server);
        let mut params =
            json!({"name": "docent_run_tool", "arguments": {"tool": "api.hang", "arguments": {}}});
        if !token.is_null() {
            params["_meta"] = json!({"progressToken": token});
        }
        send_and_leave(&server, &[("mcp-session-id", &id)], &params);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(backend.left(), before, "a lost connection is no cancel");
        let word =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}});
        assert_eq!(rpc(&server.url, &[("mcp-session-id", &id)], &word).0, 202);
        wait_until("the cancelled request", || backend.left() == before + 1);
    }
}

#[test]
fn a_credential_that_an_upstream_echoes_reaches_nobody() {
    let backend = Backend::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    for name in ["api.echo", "api.broken"] {
        let (_, body) = call(&server, name, &json!({}));
        let shown = body.to_string();
        assert!(shown.to_lowercase().contains("x-key: key [secret removed]"), "{shown}");
        assert!(!shown.contains(SECRET), "{shown}");
        let text = body["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, body["result"]["structuredContent"].to_string(), "the halves are one");
    }
    let heads = backend.heads.lock().unwrap();
    assert!(heads.iter().all(|h| h.contains(SECRET)), "the upstream itself gets it: {heads:?}");
    for path in ["/readyz", "/metrics", "/healthz"] {
        assert!(!http(&server.url, "GET", path, &[], "").unwrap().2.contains(SECRET));
    }
    assert!(!server.log().contains(SECRET));
}

#[test]
fn scripts_that_never_end_are_ended_and_hold_up_nobody() {
    let backend = Backend::start();
    let home = home(&backend);
    home.write(
        "policies/slow.rhai",
        "fn decide(caller, tool, args) { if args.x == \"deep\" { return deep(0); } abstain() }\n\
         fn deep(n) { if n > 40 { return allow(); } deep(n + 1); deep(n + 1) }\n",
    );
    let server = Arc::new(TestServer::start(home.path(), &[]));
    let running: Vec<_> = ["loop.forever", "loop.bomb", "api.spin"]
        .iter()
        .cycle()
        .take(24)
        .map(|name| {
            let server = Arc::clone(&server);
            std::thread::spawn(move || (*name, call(&server, name, &json!({})).1))
        })
        .collect();
    for _ in 0..5 {
        let start = Instant::now();
        let (status, body) = call(&server, "api.echo", &json!({}));
        assert_eq!((status, &body["result"]["isError"]), (200, &json!(false)));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
    for ended in running {
        let (name, body) = ended.join().unwrap();
        assert_eq!(error(&body)["code"], "INTERNAL_ERROR", "{name}: {body}");
        assert!(!body.to_string().contains("upstream's answer"), "{name}: there was none: {body}");
    }
    assert!(server.log().contains("scripts/loop/l.rhai:1"), "{}", server.log());
    let (_, body) = call(&server, "api.echo", &json!({"x": "deep"}));
    assert_ne!(body["result"]["isError"], json!(false), "a policy that fails denies: {body}");
}

#[test]
fn broken_edits_under_traffic_keep_the_last_good_generation_and_name_their_place() {
    let backend = Backend::start();
    let home = home(&backend);
    let mut server = TestServer::start(home.path(), &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let (url, stopped) = (server.url.clone(), Arc::clone(&stop));
    let traffic = std::thread::spawn(move || {
        let mut answers = 0;
        while !stopped.load(Ordering::SeqCst) {
            let params = json!({"name": "api.echo", "arguments": {}, "_meta": meta()});
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let headers = [
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", "api.echo"),
            ];
            let (status, _, body) = rpc(&url, &headers, &message);
            assert_eq!((status, &body["result"]["isError"]), (200, &json!(false)), "{body}");
            answers += 1;
        }
        answers
    });
    let pack = std::fs::read_to_string(home.path().join("scripts/api/upstream.toml")).unwrap();
    for (file, good, broken, place) in [
        ("docent.toml", DOCENT, format!("{DOCENT}\n[oops"), ("docent.toml", 13)),
        ("docent.toml", DOCENT, DOCENT.replace("[upstreams]", "[upstreamz]"), ("docent.toml", 3)),
        ("scripts/api/upstream.toml", &pack, format!("colour = 1\n{pack}"), ("scripts/api/upstream.toml", 1)),
        (
            "scripts/api/p.rhai",
            "fn spin(reply, args, ctx) { loop { } }\n",
            "fn spin(reply, args, ctx) {\n  let = 3;\n}\n".to_owned(),
            ("scripts/api/p.rhai", 2),
        ),
        (
            "policies/a.rhai",
            "fn rules(p) { }\n",
            "fn visible(caller, tool) {\n  caller.nose == 1\n}\n".to_owned(),
            ("policies/a.rhai", 2),
        ),
    ] {
        home.write(file, &broken);
        server.wait_for("/readyz", |status, body| {
            let body: Value = serde_json::from_str(body).unwrap();
            let found = body["diagnostics"].as_array().unwrap().iter().any(|d| {
                d["severity"] == "error" && d["file"] == place.0 && d["line"] == place.1 && d["column"] != 0
            });
            status == 503 && found
        });
        home.write(file, good);
        server.wait_for("/readyz", |status, _| status == 200);
    }
    stop.store(true, Ordering::SeqCst);
    assert!(traffic.join().unwrap() > 10);
}

#[test]
fn a_call_under_way_outlives_its_pack() {
    let backend = Backend::start();
    let home = home(&backend);
    let mut server = TestServer::start(home.path(), &[]);
    let url = server.url.clone();
    let (heads, count) = (Arc::clone(&backend.heads), || backend.heads.lock().unwrap().len());
    assert_eq!(count(), 0);
    let running = std::thread::spawn(move || {
        let params = json!({"name": "api.slow", "arguments": {}, "_meta": meta()});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "api.slow")];
        rpc(&url, &headers, &message).2
    });
    wait_until("the call", || !heads.lock().unwrap().is_empty());
    home.write("docent.toml", &DOCENT.replace("\"api\", ", ""));
    std::fs::remove_dir_all(home.path().join("scripts/api")).unwrap();
    server.wait_for("/readyz", |status, body| status == 200 && !body.contains("\"api\""));
    let gone = call(&server, "api.slow", &json!({})).1;
    assert_eq!(gone["error"]["code"], -32602, "{gone}");
    assert_eq!(running.join().unwrap()["result"]["isError"], false);
}

#[test]
fn integers_that_would_arrive_as_other_numbers_are_refused() {
    let backend = Backend::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    for (inner, refused) in [
        ("123456789012345678901234567890", true),
        ("18446744073709551615", false),
        ("\"123456789012345678901234567890\"", false),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"docent_run_tool","arguments":{{"tool":"api.echo","arguments":{{"n":{inner}}}}}}}}}"#
        );
        let id = session(&server);
        let headers = [
            ("mcp-session-id", id.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let (_, _, answer) = http(&server.url, "POST", "/mcp", &headers, &body).unwrap();
        assert_eq!(answer.contains("more digits than 64 bits hold"), refused, "{inner}: {answer}");
    }
}

#[test]
fn hidden_denied_and_absent_are_one_answer_from_every_entry_and_spelling() {
    let backend = Backend::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let id = session(&server);
    let ask = |wire: &str, tool: &str, arguments: &Value| {
        if wire == "stateless" {
            return call(&server, tool, arguments);
        }
        let params = json!({"name": tool, "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (status, _, body) = rpc(&server.url, &[("mcp-session-id", &id)], &message);
        (status, body)
    };
    let plain = |(status, body): (u16, Value), name: &str| {
        let text = body.to_string().replace(name, "NAME");
        let mut parts = text.split("correlation_id");
        let mut out = format!("{status}{}", parts.next().unwrap());
        for part in parts {
            out += part.split_once(['}', ',']).map_or("", |(_, rest)| rest);
        }
        out
    };
    for wire in ["stateless", "session"] {
        for name in
            ["api.hidden", "api_hidden", "api.denied", "api_denied", "API.ECHO", "api.echo ", "ａpi.echo"]
        {
            let absent = "nothing.here";
            for entry in ["", "docent_describe_tool", "docent_run_tool", "docent_run_readonly_tool"] {
                let one = |name: &str| match entry {
                    "" => ask(wire, name, &json!({"unknown": 1})),
                    "docent_describe_tool" => ask(wire, entry, &json!({"tool": name})),
                    _ => ask(wire, entry, &json!({"tool": name, "arguments": {"unknown": 1}})),
                };
                // A header cannot carry every spelling as it is; the session wire has none.
                if wire == "stateless" && entry.is_empty() && !name.starts_with("api") {
                    continue;
                }
                if wire == "stateless" && entry.is_empty() && name.ends_with(' ') {
                    continue;
                }
                assert_eq!(plain(one(name), name), plain(one(absent), absent), "{wire} {entry} {name}");
            }
        }
    }
    let (_, found) = call(&server, "docent_search_tools", &json!({"query": "hidden denied"}));
    let ids = found["result"]["structuredContent"]["tools"].to_string();
    assert!(!ids.contains("api.hidden") && !ids.contains("api.denied"), "{ids}");
}

/// A server that takes a second to start and has one tool that can be read and two that cannot.
const SLOW_CHILD: &str = r#"
import json, sys, time
time.sleep(1)
def say(m): sys.stdout.write(json.dumps(m) + "\n"); sys.stdout.flush()
for line in sys.stdin:
    m = json.loads(line); i = m.get("id")
    if m["method"] == "initialize": say({"jsonrpc": "2.0", "id": i, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}})
    elif m["method"] == "tools/list": say({"jsonrpc": "2.0", "id": i, "result": {"tools": [{"name": "good", "inputSchema": {"type": "object"}}, {"name": 5}, None]}})
    elif i is not None: say({"jsonrpc": "2.0", "id": i, "error": {"code": -32601, "message": "unknown"}})
"#;

fn slow_home() -> TestHome {
    TestHome::with(&[
        ("docent.toml", "[callers.anonymous]\n[upstreams]\nenabled = [\"c\"]\n[[allow]]\ntools = [\"*\"]\n"),
        ("scripts/c/child.py", SLOW_CHILD),
        ("scripts/c/upstream.toml", "kind = \"mcp\"\ncommand = [\"python3\", \"-u\", \"child.py\"]\n"),
    ])
}

#[test]
fn the_first_list_on_a_pipe_has_the_tools_of_upstreams_that_were_never_listed() {
    let (home, data) = (slow_home(), tempfile::tempdir().unwrap());
    let mut child = pipe(home.path(), data.path(), None);
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta()}});
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{message}").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(input);
    child.wait().unwrap();
    assert!(line.contains("\"c_good\""), "{line}");
}

#[test]
fn readiness_names_what_an_incomplete_upstream_lost() {
    let home = slow_home();
    let mut server = TestServer::start(home.path(), &[]);
    server.wait_for("/readyz", |status, body| {
        status == 503
            && body.contains("has not brought all its tools: the tool without a readable name")
            && body.contains("1 more like it")
    });
}
