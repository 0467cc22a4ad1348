//! Clients that no one here wrote walk docent in front of the reference server `server-everything`:
//! list, search, describe, run, call. Scripts in `tests/clients`.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, root, tools};

pub(crate) fn home_before_everything(tools: &Path) -> TestHome {
    let server = tools.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    TestHome::with(&[
        ("docent.toml", "[server]\nname = \"docent\"\n[upstreams]\nenabled = [\"everything\"]\n"),
        ("policies/all.rhai", "fn rules(p) { p.allow(); }\n"),
        (
            "scripts/everything/upstream.toml",
            &format!(
                "kind = \"mcp\"\ncommand = ['{}', '{}', \"stdio\"]\n",
                node(tools).display(),
                server.display()
            ),
        ),
    ])
}

fn node(tools: &Path) -> std::path::PathBuf {
    tools.join("node_modules/node/bin/node")
}

pub(crate) fn serve(home: &TestHome) -> TestServer {
    let mut server = TestServer::start(home.path(), &[]);
    server.wait_for("/readyz", |status, _| status == 200);
    server
}

fn run(command: &mut Command, server: &TestServer) -> Value {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} failed:\n{out}\n{err}\n{}", server.log());
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("not JSON ({e}):\n{out}\n{err}"))
}

fn check_walk(seen: &Value, protocol: &str) {
    assert_eq!(seen["protocol"], protocol, "{seen}");
    assert_eq!(seen["server"], "docent");
    assert_eq!(seen["instructions"], true);
    let listed: Vec<&str> = seen["tools"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(listed[0], "docent_search_tools", "meta-tools come first: {listed:?}");
    assert!(listed.contains(&"everything_echo"), "{listed:?}");
    assert_eq!(seen["found"][0], "everything.echo", "{}", seen["found"]);
    assert_eq!(seen["search_text_is_structured"], true);
    assert_eq!(seen["described"], "everything.echo");
    assert_eq!(seen["described_schema"]["properties"]["message"]["type"], "string");
    assert_eq!(seen["run"], "Echo: through run");
    assert_eq!(seen["direct"], "Echo: direct");
    assert_eq!(seen["hidden_is_error"], true);
}

#[test]
fn the_current_python_client_walks_both_eras_over_http() {
    let Some(tools) = tools("the current Python client") else { return };
    let home = home_before_everything(&tools);
    let server = serve(&home);
    for (mode, protocol) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let mut client = Command::new(tools.join("venv/bin/python"));
        client.arg(root().join("tests/clients/current.py")).arg(format!("{}/mcp", server.url)).arg(mode);
        check_walk(&run(&mut client, &server), protocol);
    }
}

#[test]
fn the_current_python_client_walks_both_eras_over_stdio() {
    let Some(tools) = tools("the current Python client") else { return };
    let home = home_before_everything(&tools);
    let server = serve(&home);
    let data = tempfile::tempdir().unwrap();
    for (mode, protocol) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let program = format!(
            "stdio:{},serve,--stdio,--home,{},--data,{}",
            env!("CARGO_BIN_EXE_docent"),
            home.path().display(),
            data.path().display()
        );
        let mut client = Command::new(tools.join("venv/bin/python"));
        client.arg(root().join("tests/clients/current.py")).arg(program).arg(mode);
        check_walk(&run(&mut client, &server), protocol);
    }
}

#[test]
fn an_old_python_client_walks_the_session_wire() {
    let Some(tools) = tools("an old Python client") else { return };
    let home = home_before_everything(&tools);
    let server = serve(&home);
    let mut client = Command::new(tools.join("venv-old/bin/python"));
    client.arg(root().join("tests/clients/old.py")).arg(format!("{}/mcp", server.url));
    check_walk(&run(&mut client, &server), "2025-06-18");
}

#[test]
fn the_inspector_lists_searches_describes_and_runs_on_both_eras() {
    let Some(tools) = tools("the inspector") else { return };
    let home = home_before_everything(&tools);
    let server = serve(&home);
    for era in ["legacy", "modern"] {
        let inspect = |args: &[&str]| {
            let mut inspector = Command::new(node(&tools));
            inspector
                .arg(tools.join("node_modules/.bin/mcp-inspector"))
                .args([
                    "--cli",
                    &format!("{}/mcp", server.url),
                    "--transport",
                    "http",
                    "--protocol-era",
                    era,
                    "--format",
                    "json",
                ])
                .args(args);
            run(&mut inspector, &server)
        };
        let call = |tool: &str, args: Value| {
            inspect(&["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &args.to_string()])
        };
        let listed = inspect(&["--method", "tools/list", "--strict"]).to_string();
        assert!(listed.contains("docent_search_tools") && listed.contains("everything_echo"), "{listed}");
        let found = call("docent_search_tools", json!({"query": "echo a message back"})).to_string();
        assert!(found.contains("everything.echo"), "{found}");
        let described = call("docent_describe_tool", json!({"tool": "everything.echo"})).to_string();
        assert!(described.contains("message"), "{described}");
        let ran =
            call("docent_run_tool", json!({"tool": "everything.echo", "arguments": {"message": "hello"}}))
                .to_string();
        assert!(ran.contains("Echo: hello"), "{ran}");
    }
}
