//! `docent init`: what it writes passes `docent check`, its cases pass, and it serves.

use crate::check::run;
use crate::support::{TestHome, TestServer, docent, rpc};

fn init(home: &TestHome, args: &[&str]) -> (i32, String) {
    let output = docent().arg("init").arg(home.path()).args(args).output().unwrap();
    assert!(output.stdout.is_empty(), "nothing is data here");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_new_home_passes_its_checks_and_cases_and_serves() {
    let home = TestHome::new();
    let (code, said) = init(&home, &[]);
    assert!(code == 0 && said.contains("docent serve --home"), "{said}");
    let (code, out, err) = run(home.path(), &["check", "--strict"]);
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = run(home.path(), &["test"]);
    assert!(code == 0 && out.ends_with(" 0 failed\n") && !out.contains("\n0 passed"), "{out}{err}");
    let (code, out, err) = run(home.path(), &["call", "hello.greet", r#"{"name": "Ada"}"#]);
    assert!(code == 0 && out.contains("Hello, Ada!"), "{out}{err}");
    let mut server = TestServer::start(home.path(), &[]);
    server.wait_for("/readyz", |status, _| status == 200);
    let meta = serde_json::json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let ask =
        serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
    let (status, _, answer) = rpc(&server.url, &headers, &ask);
    let tools = answer["result"]["tools"].to_string();
    assert!(status == 200 && tools.contains("hello_greet") && tools.contains("example_count"), "{answer}");
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let home = TestHome::with(&[("notes.txt", "mine")]);
    let (code, said) = init(&home, &[]);
    assert!(code == 1 && said.contains("not empty"), "{said}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn every_source_gives_a_home_without_mistakes() {
    let files = TestHome::with(&[(
        "pets.json",
        r#"{"openapi":"3.1.0","info":{"title":"Pets","version":"1"},"servers":[{"url":"https://pets.example.com"}],
            "paths":{"/pets":{"get":{"operationId":"listPets","summary":"Lists pets.","responses":{"200":{"description":"ok"}}}}}}"#,
    )]);
    let document = files.path().join("pets.json");
    let sources: [(&[&str], &str); 4] = [
        (&["--from", "openapi", document.to_str().unwrap()], "2 tools of 2 upstreams"),
        (&["--from", "mcp", "https://mcp.example.com/mcp"], "1 MCP server not asked"),
        (&["--from", "mcp", "npx", "-y", "@acme/server"], "1 MCP server not asked"),
        (&["--from", "command", "echo", "-n", "{word}"], "2 tools of 2 upstreams"),
    ];
    for (args, summary) in sources {
        let home = TestHome::new();
        let (code, said) = init(&home, args);
        assert_eq!(code, 0, "{args:?}: {said}");
        let (code, out, err) = run(home.path(), &["check"]);
        assert!(code == 0 && out.contains(summary), "{args:?}: {out}{err}");
    }
    let home = TestHome::new();
    init(&home, &["--from", "command", "echo", "-n", "{word}"]);
    assert_eq!(run(home.path(), &["call", "echo.run", r#"{"word": "hi"}"#]).1, "hi\n");
    let (code, said) = init(&TestHome::new(), &["--from", "grpc", "x"]);
    assert!(code == 64 && said.contains("openapi FILE"), "{said}");
}
