//! The operator's loop: recording cases, what they reach, what they save; the packs that are not served by default.

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, docent, http};
use crate::validation::home_of;

const PACK: &str = r#"
kind = "http"
base_url = "URL"
[auth]
header = { X-Key = "${file:secrets/key}" }
[[tool]]
id = "list"
description = "Lists."
annotations = { read_only = true }
request = { method = "GET", path = "/list" }
script = "s.rhai"
families = ["page"]
[[tool]]
id = "both"
description = "Two requests."
annotations = { read_only = true }
script = { file = "s.rhai", run = "both" }
output_schema = { type = "object" }
"#;

const SCRIPT: &str = r#"
fn row(r) { #{ id: r.id } }
fn project(reply, args, ctx) {
    let out = page("page");
    for r in reply.body.rows { out.push(row(r)); }
    out
}
fn both(args, ctx) {
    let a = ctx.fetch(request("GET", "/list"));
    let b = ctx.fetch(request("GET", "/list").query(#{ page: 2 }));
    #{ rows: a.body.rows.len() + b.body.rows.len() }
}
fn never(x) { x }
"#;

const SCHEMA: &str = r##"{"$defs": {"page": {"type": "object", "properties": {"kind": {"const": "page"}, "items": {"type": "array"}, "page": {"$ref": "#/$defs/paging"}}, "required": ["kind", "items", "page"]}}}"##;

fn home(url: &str) -> TestHome {
    TestHome::with(&[
        (
            "docent.toml",
            "[callers.anonymous]\n[upstreams]\nenabled = [\"u\"]\n[[allow]]\nupstreams = [\"u\"]\n",
        ),
        ("scripts/u/upstream.toml", &PACK.replace("URL", url)),
        ("scripts/u/s.rhai", SCRIPT),
        ("secrets/key", "upstream-key-4711"),
        ("scripts/u/schemas/u.json", SCHEMA),
    ])
}

fn run(home: &TestHome, data: &std::path::Path, args: &[&str]) -> (i32, String, String) {
    let mut command = docent();
    command.args(args).arg("--home").arg(home.path()).arg("--data").arg(data);
    command.env("GITHUB_TOKEN", "t").env("KUBERNETES_URL", "http://127.0.0.1:1");
    command.env("OMBI_URL", "http://127.0.0.1:1").env("OMBI_API_KEY", "k");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

async fn upstream() -> String {
    let answer = || async {
        let body = json!({
            "rows": [{"id": 1, "note": "x".repeat(3_000)}, {"id": 2, "owner": {"accessToken": "planted-1"}}],
            "echo": "upstream-key-4711", "hint": format!("ghp_{}", "a1b2c3d4".repeat(5)),
        });
        ([("content-type", "application/json")], body.to_string())
    };
    crate::upstream_http::serve(axum::Router::new().route("/list", axum::routing::get(answer))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_call_is_a_case_that_holds_without_its_secrets() {
    let url = upstream().await;
    let home = home(&url);
    let data = tempfile::tempdir().unwrap();
    for tool in ["u.list", "u.both"] {
        let (code, out, err) = run(&home, data.path(), &["record", tool]);
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains("scripts/u/cases/recorded.yaml"), "{out}");
    }
    let mut written = String::new();
    for folder in ["scripts/u/cases", "scripts/u/cases/replies"] {
        for file in std::fs::read_dir(home.path().join(folder)).unwrap() {
            written += &std::fs::read_to_string(file.unwrap().path()).unwrap_or_default();
        }
    }
    for secret in ["planted-1", "upstream-key-4711", "ghp_a1b2"] {
        assert!(!written.contains(secret), "{secret}");
    }
    assert!(
        written.contains("[secret removed]") && written.contains("replies/list-1-1.json"),
        "{written:.2000}"
    );
    let (code, out, err) = run(&home, data.path(), &["test", "--coverage", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert_eq!((code, &report["passed"], &report["failed"]), (0, &json!(2), &json!(0)), "{report}");
    assert_eq!(report["coverage"]["functions"], 4);
    let missed = json!([{"file": "scripts/u/s.rhai", "line": 13, "function": "never"}]);
    assert_eq!(report["coverage"]["missed"], missed);
    let (_, out, _) = run(&home, data.path(), &["tools", "--cost", "--json"]);
    let tools: Value = serde_json::from_str(&out).unwrap();
    let cost = &tools["tools"].as_array().unwrap().iter().find(|t| t["id"] == "u.list").unwrap()["cost"];
    assert!(cost["bytes_in"].as_u64() > Some(3_000) && cost["bytes_out"].as_u64() < Some(400), "{cost}");
    let (_, out, _) = run(&home, data.path(), &["describe", "u.list"]);
    let described: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(described["measured"], *cost);
    assert_eq!(described["output_families"], json!(["page"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_shaping_saves_is_in_the_metrics() {
    let url = upstream().await;
    let home = home(&url);
    let server = tokio::task::spawn_blocking(move || {
        let server = TestServer::start(home.path(), &[]);
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "u_list", "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }}});
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "u_list")];
        let (_, _, answer) = crate::support::rpc(&server.url, &headers, &message);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        http(&server.url, "GET", "/metrics", &[], "").unwrap().2
    });
    let metrics = server.await.unwrap();
    let of = |name: &str| -> i64 {
        let line = metrics
            .lines()
            .find(|l| l.starts_with(&format!("{name}{{tool=\"u.list\"}}")))
            .unwrap_or_else(|| panic!("{metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(of("docent_tool_reply_bytes_total") > 3_000 && of("docent_tool_result_bytes_total") < 400);
    assert!(of("docent_tool_saved_tokens") > 600);
}

/// The table of what a pack's cases measure, as its README shows it.
fn table<'a>(tools: impl Iterator<Item = &'a Value>) -> String {
    let mut out = String::from("| tool | bytes before | after | saved |\n|---|---|---|---|\n");
    for tool in tools {
        let (id, cost) = (tool["id"].as_str().unwrap(), &tool["cost"]);
        let (Some(before), Some(after)) = (cost["bytes_in"].as_i64(), cost["bytes_out"].as_i64()) else {
            continue;
        };
        let saved = 100 - (after * 100 + before - 1) / before;
        out += &format!("| `{id}` | {before} | {after} | {saved} % |\n");
    }
    out
}

#[test]
fn the_packs_beside_the_default_ones_hold_and_their_readmes_measure_them() {
    let packs = ["github", "kubernetes", "ombi"];
    let home = home_of(&packs);
    let data = tempfile::tempdir().unwrap();
    let (code, out, err) = run(&home, data.path(), &["check", "--strict"]);
    assert_eq!((code, out.contains("58 tools of 3 upstreams")), (0, true), "{out}{err}");
    let (code, out, _) = run(&home, data.path(), &["test", "--coverage"]);
    let bad: Vec<&str> = out.lines().filter(|l| !l.starts_with("ok ")).collect();
    assert_eq!(code, 0, "{bad:?}");
    assert!(!out.contains("planted"), "a value that may be a secret came out");
    for pack in packs {
        assert!(!out.contains(&format!("not reached: scripts/{pack}/")), "{bad:?}");
    }
    let (_, json, _) = run(&home, data.path(), &["tools", "--cost", "--json"]);
    let tools: Value = serde_json::from_str(&json).unwrap();
    for pack in packs {
        let own: Vec<&Value> =
            tools["tools"].as_array().unwrap().iter().filter(|t| t["upstream"] == pack).collect();
        let without: Vec<&Value> = own.iter().filter(|t| t["cost"].is_null()).map(|t| &t["id"]).collect();
        // Ombi answers it with nothing, which measures nothing.
        assert!(
            without.iter().all(|id| *id == "ombi.write_user_preferences"),
            "no case measures {without:?}"
        );
        let path = crate::support::root().join("scripts").join(pack).join("README.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once("<!-- cost -->").unwrap();
        let tail = rest.split_once("<!-- /cost -->").map_or(rest, |(_, tail)| tail);
        let made = format!("{head}<!-- cost -->\n\n{}\n<!-- /cost -->{tail}", table(own.into_iter()));
        if std::env::var_os("DOCENT_UPDATE").is_some() {
            std::fs::write(&path, &made).unwrap();
        } else {
            assert_eq!(text, made, "DOCENT_UPDATE=1 renews it");
        }
    }
    // What describes a tool tells the same.
    let (_, told, _) = run(&home, data.path(), &["describe", "ombi.read_requests", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(
        told["measured"]["bytes_in"].as_i64().unwrap() > told["measured"]["bytes_out"].as_i64().unwrap(),
        "{told}"
    );
}
