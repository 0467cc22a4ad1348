//! Who may come: loopback without tokens, tokens by their hashes, tokens made by `docent token new`.

use serde_json::{Value, json};

use crate::check::run;
use crate::support::{TestHome, TestServer, docent, http, pipe, rpc};

const PACK: &str =
    "kind = \"command\"\n[[tool]]\nid = \"hi\"\ndescription = \"Says hi.\"\nrun = [\"echo\", \"hi\"]\n";
const POLICY: &str = "fn rules(p) { p.allow().upstream(\"u\").scopes([\"u:use\"]); }\n";

pub(crate) fn token(home: &TestHome, name: &str, scopes: &[&str]) -> (String, String) {
    let (code, out, _) = run(home.path(), &[&["token", "new", name, "--json"], scopes].concat());
    let made: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    (made["token"].as_str().unwrap().to_owned(), made["toml"].as_str().unwrap().to_owned())
}

fn list(url: &str, authorization: Option<&str>) -> (u16, String, Value) {
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    headers.extend(authorization.map(|a| ("authorization", a)));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    rpc(url, &headers, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}))
}

#[test]
fn a_printed_token_opens_the_server_and_nothing_else_does() {
    let home = TestHome::with(&[("scripts/u/upstream.toml", PACK), ("policies/p.rhai", POLICY)]);
    let (token_a, table_a) = token(&home, "alice", &["--scopes", "u:use"]);
    let (token_b, table_b) = token(&home, "bob bauer", &[]);
    assert!(!table_a.contains(&token_a) && table_b.starts_with("[callers.\"bob bauer\"]"), "{table_b}");
    let main = format!("[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\"]\n{table_a}{table_b}");
    home.write("docent.toml", &main);
    let server = TestServer::start(home.path(), &[]);
    let has_tool = |answer: &Value| answer["result"]["tools"].to_string().contains("\"u_hi\"");
    let (status, _, answer) = list(&server.url, Some(&format!("Bearer {token_a}")));
    assert!(status == 200 && has_tool(&answer), "{answer}");
    let (status, _, answer) = list(&server.url, Some(&format!("Bearer {token_b}")));
    assert!(status == 200 && !has_tool(&answer), "{answer}");
    let (status, head, _) = list(&server.url, None);
    assert!(status == 401 && head.contains("www-authenticate: bearer"), "{head}");
    let (status, head, _) = list(&server.url, Some("Bearer docent_wrong"));
    assert!(status == 401 && head.contains("invalid_token"), "{head}");
    assert_ne!(list(&server.url, Some("Basic YTpi")).0, 200);
    assert!(!server.log().contains(&token_a), "no token is logged");
}

#[test]
fn metrics_name_tools_to_operators_only() {
    let home = TestHome::with(&[("scripts/u/upstream.toml", PACK), ("policies/p.rhai", POLICY)]);
    let (token_a, table_a) = token(&home, "alice", &["--scopes", "u:use"]);
    let (token_b, table_b) = token(&home, "boss", &["--scopes", "docent:admin"]);
    let main = format!("[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\"]\n{table_a}{table_b}");
    home.write("docent.toml", &main);
    let server = TestServer::start(home.path(), &[]);
    let (alice, boss) = (format!("Bearer {token_a}"), format!("Bearer {token_b}"));
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "u_hi"),
        ("authorization", &*alice),
    ];
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "u_hi", "arguments": {}, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let (_, _, answer) = rpc(&server.url, &headers, &call);
    assert_eq!(answer["result"]["isError"], json!(false), "{answer}");
    let metrics = |authorization: Option<&str>| {
        let headers: Vec<_> = authorization.map(|a| ("authorization", a)).into_iter().collect();
        let (status, _, text) = http(&server.url, "GET", "/metrics", &headers, "").unwrap();
        assert!(status == 200 && text.contains("docent_tool_calls_total{outcome=\"completed\"} 1"), "{text}");
        text
    };
    assert!(metrics(Some(&boss)).contains("docent_tool_reply_bytes_total{tool=\"u.hi\"}"));
    for probe in [None, Some(&*alice), Some("Bearer wrong")] {
        assert!(!metrics(probe).contains("u.hi"), "{probe:?}");
    }
}

#[test]
fn without_tokens_nothing_but_loopback_is_bound() {
    let home = TestHome::with(&[("docent.toml", "")]);
    let (code, _, err) = run(home.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert!(code == 64 && err.contains("works on loopback only"), "{err}");
    home.write("docent.toml", "[server]\nlisten = \"0.0.0.0:0\"\n");
    let (code, _, err) = run(home.path(), &["serve"]);
    assert!(code == 2 && err.contains("docent.toml:2:10: error[open-to-others]"), "{err}");
    assert_eq!(run(home.path(), &["check"]).0, 2);
}

#[test]
fn a_pipe_speaks_for_one_named_caller() {
    let home = TestHome::with(&[
        (
            "docent.toml",
            "[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\"]\n[callers.alice]\nscopes = [\"u:use\"]\n",
        ),
        ("scripts/u/upstream.toml", PACK),
        ("policies/p.rhai", POLICY),
    ]);
    let (code, _, err) = run(home.path(), &["serve", "--stdio"]);
    assert!(code == 64 && err.contains("--as NAME"), "{err}");
    let data = tempfile::tempdir().unwrap();
    let mut child = pipe(home.path(), data.path(), Some("alice"));
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "u_hi", "arguments": {}}});
    let mut stdin = child.stdin.take().unwrap();
    for message in [hello, ready, call] {
        use std::io::Write;
        writeln!(stdin, "{message}").unwrap();
    }
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let answer = lines.by_ref().map(|l| l.unwrap()).find(|l| l.contains("\"id\":2")).unwrap();
    drop(stdin);
    assert!(answer.contains("hi\\n") && answer.contains("\"isError\":false"), "{answer}");
    // stdout holds the wire and nothing else.
    assert!(lines.all(|l| serde_json::from_str::<Value>(&l.unwrap()).is_ok()));
    assert!(child.wait().unwrap().success());
}

/// What was not let in, or not let through, is in the audit; ever so many bad tokens are a line, and their number.
#[test]
fn refused_tokens_and_reads_are_recorded_without_flooding_the_log() {
    let home = TestHome::with(&[("scripts/u/upstream.toml", PACK), ("policies/p.rhai", POLICY)]);
    let (token_a, table_a) = token(&home, "alice", &[]);
    let (token_b, table_b) = token(&home, "boss", &["--scopes", "docent:admin"]);
    home.write(
        "docent.toml",
        &format!("[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\"]\n{table_a}{table_b}"),
    );
    let mut server = TestServer::start(home.path(), &[]);
    for n in 0..40 {
        assert_eq!(list(&server.url, Some(&format!("Bearer wrong{n}"))).0, 401);
        let guess = [("authorization", "Bearer wrong")];
        assert_eq!(http(&server.url, "GET", "/api/v1/files", &guess, "").unwrap().0, 401);
    }
    list(&server.url, None);
    let alice = format!("Bearer {token_a}");
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", "docent://tools/u.hi"),
        ("authorization", &*alice),
    ];
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let pasted = format!("docent://tools/ghp_{}", "a1b2c3d4".repeat(4));
    for uri in ["docent://tools/u.hi", &pasted] {
        let params = json!({"uri": uri, "_meta": meta});
        let headers = headers.map(|(name, value)| (name, if name == "mcp-name" { uri } else { value }));
        rpc(
            &server.url,
            &headers,
            &json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}),
        );
    }
    // A stop writes what was only counted so far.
    let stopped = std::process::Command::new("kill").arg(server.id().to_string()).status().unwrap();
    assert!(stopped.success());
    server.ended();
    let mut tail = docent();
    tail.args(["audit", "tail", "--json", "--home"]).arg(home.path()).arg("--data").arg(server.data());
    let out = String::from_utf8(tail.output().unwrap().stdout).unwrap();
    let records: Vec<Value> = serde_json::from_str(&out).unwrap();
    let of = |kind: &str| records.iter().filter(|r| r["kind"] == kind).collect::<Vec<_>>();
    let refused = of("unauthenticated");
    let counts: Vec<&Value> = refused.iter().map(|r| &r["count"]).collect();
    assert_eq!(counts, [&json!(1), &json!(79)], "{out}");
    assert_eq!(refused[0]["reason"], "the token is of no caller");
    let read = of("refused");
    assert_eq!(
        (read.len(), &read[0]["caller"], &read[0]["name"]),
        (2, &json!("alice"), &json!("docent://tools/u.hi"))
    );
    assert_eq!(read[1]["name"], "docent://tools/[secret removed]");
    assert!(!out.contains("wrong") && !out.contains(&token_b));
}
