//! A request key that comes with other arguments: refused on both wires, while its call runs, after it and after the
//! server was killed; in the audit and in the metrics.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, docent, http, rpc};
use crate::wire_double::{header, request, with_meta};

static NEXT: AtomicI64 = AtomicI64::new(1);

/// A tool that ends once a file is there, so that a test decides how long a call runs.
const PACK: &str = r#"
kind = "command"
[[tool]]
id = "make"
description = "Makes a thing when it may."
input_schema = { type = "object", required = ["n"], additionalProperties = false, properties = { n = { type = "integer" } } }
run = ["sh", "-c", "while [ ! -e GATE ]; do sleep 0.05; done; echo made $0", "{n}"]
"#;

fn served() -> (TestHome, TestServer, std::path::PathBuf) {
    let home = TestHome::with(&[(
        "docent.toml",
        "[callers.anonymous]\n[upstreams]\nenabled = [\"slow\"]\n[[allow]]\ntools = [\"*\"]\n",
    )]);
    let gate = home.path().join("gate");
    home.write("scripts/slow/upstream.toml", &PACK.replace("GATE", gate.to_str().unwrap()));
    let server = TestServer::start(home.path(), &[]);
    (home, server, gate)
}

/// A call with a key on the stateless wire or, with its headers, in a session.
fn call(url: &str, session: Option<&str>, n: u8, key: &str) -> Value {
    let own = json!({"name": "slow_make", "arguments": {"n": n}});
    let stateless =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "slow_make")];
    let (params, headers) = match session {
        None => (with_meta(own), stateless.to_vec()),
        Some(id) => (own, vec![("mcp-session-id", id)]),
    };
    let mut params = params;
    params["_meta"]["request_key"] = json!(key);
    // Requests of one session that run at once need ids of their own.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    rpc(url, &headers, &request(number, "tools/call", params)).2["result"].clone()
}

fn session(url: &str) -> String {
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
    header(&rpc(url, &[], &request(0, "initialize", hello)).1, "mcp-session-id").unwrap()
}

fn assert_collides(result: &Value) {
    let error = &result["structuredContent"]["error"];
    assert_eq!(
        (&error["code"], &result["isError"]),
        (&json!("REPLAY_KEY_COLLISION"), &json!(true)),
        "{result}"
    );
    assert_eq!((&error["retryable"], &error["field"]), (&json!(false), &json!("/request_key")), "{result}");
}

#[test]
fn a_key_with_other_arguments_collides_while_its_call_runs_after_it_and_over_a_restart() {
    let (home, mut server, gate) = served();
    let url = server.url.clone();
    let id = session(&url);
    for (key, own, other) in [("a", None, Some(id.as_str())), ("b", Some(id.as_str()), None)] {
        let made = std::thread::scope(|scope| {
            let first = scope.spawn(|| call(&url, own, 1, key));
            let started = std::time::Instant::now();
            while !http(&url, "GET", "/metrics", &[], "").unwrap().2.contains("docent_jobs 1") {
                assert!(started.elapsed().as_secs() < 30, "it does not run");
            }
            for wire in [own, other] {
                assert_collides(&call(&url, wire, 2, key));
            }
            assert!(!first.is_finished(), "those who collide wait for nothing");
            std::fs::write(&gate, "").unwrap();
            first.join().unwrap()
        });
        std::fs::remove_file(&gate).unwrap();
        assert_eq!(made["structuredContent"]["text"], "made 1\n", "{made}");
        for wire in [own, other] {
            assert_collides(&call(&url, wire, 2, key));
            let again = call(&url, wire, 1, key);
            assert_eq!(
                again["_meta"]["deduplicated"], true,
                "its own arguments still give its answer: {again}"
            );
        }
    }
    let metrics = http(&url, "GET", "/metrics", &[], "").unwrap().2;
    let counted = metrics.lines().find(|l| l.contains("collision") && !l.starts_with('#')).unwrap();
    assert!(counted.ends_with(" 8"), "{counted}");
    // Records are written behind the calls.
    wait_for_records(&home, &server, 8);
    server.kill_and_restart(home.path());
    assert_collides(&call(&url, None, 3, "a"));
    assert_eq!(call(&url, None, 1, "a")["structuredContent"]["text"], "made 1\n");
    wait_for_records(&home, &server, 9);
}

/// Waits until so many collisions stand in the audit.
fn wait_for_records(home: &TestHome, server: &TestServer, wanted: usize) {
    let started = std::time::Instant::now();
    loop {
        let mut tail = docent();
        tail.args(["audit", "tail", "-n", "100", "--json", "--home"]).arg(home.path());
        let told = String::from_utf8(tail.arg("--data").arg(server.data()).output().unwrap().stdout).unwrap();
        let told = told.replace("\": \"", "\":\"");
        let found = told.matches("\"dedup\":\"collision\"").count();
        if found == wanted {
            return;
        }
        assert!(started.elapsed().as_secs() < 30 && found < wanted, "{found} of {wanted}: {told}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn arguments_that_can_be_read_in_two_ways_are_refused_at_every_door() {
    let (home, server, _gate) = served();
    let twice = r#"{"n":1,"n":2}"#;
    let meta = with_meta(json!({}))["_meta"].to_string();
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"slow_make","arguments":{twice},"_meta":{meta}}}}}"#
    );
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "slow_make"),
    ];
    let told = http(&server.url, "POST", "/mcp", &headers, &body).unwrap().2;
    assert!(told.contains("-32602") && told.contains("two members of one name"), "{told}");
    for (arguments, why) in
        [(twice, "two members of one name"), (r#"{"n":123456789012345678901}"#, "more digits")]
    {
        let body = format!(r#"{{"tool":"slow.make","arguments":{arguments}}}"#);
        let (status, _, told) = http(&server.url, "POST", "/api/v1/jobs", &headers[..1], &body).unwrap();
        assert!(status == 400 && told.contains(why), "{status} {told}");
        let run =
            docent().args(["call", "slow.make", arguments, "--home"]).arg(home.path()).output().unwrap();
        let told = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.code() == Some(64) && told.contains(why), "{told}");
    }
}
