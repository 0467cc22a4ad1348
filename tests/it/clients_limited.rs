//! Clients that take less than the protocol gives: the first page only, text only, data only, no news of changes,
//! forty tools at most. Each finds, describes, runs and reads on.

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, rpc};
use crate::wire_double::{header, request};

const NUMBERS: &str = r#"
kind = "command"
[[tool]]
id = "numbers"
description = "Counts upwards and gives numbers as rows."
input_schema = { type = "object", required = ["n"], additionalProperties = false, properties = { n = { type = "integer" } } }
annotations = { read_only = true }
run = ["seq", "1", "{n}"]
lines = { columns = ["n"] }
"#;

/// What a client can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    PageOneOnly,
    ContentOnly,
    StructuredOnly,
    DeafToChanges,
    FortyTools,
}

struct Client<'a> {
    server: &'a TestServer,
    session: String,
    kind: Kind,
    /// The tools that it offers to its model: it calls no other.
    tools: Vec<String>,
}

impl<'a> Client<'a> {
    fn connect(server: &'a TestServer, kind: Kind) -> Self {
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
        let (_, head, _) = rpc(&server.url, &[], &request(1, "initialize", hello));
        let session = header(&head, "mcp-session-id").unwrap();
        let mut client = Self { server, session, kind, tools: Vec::new() };
        let mut cursor = Value::Null;
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
            let page = client.ask("tools/list", params);
            let tools = page["tools"].as_array().unwrap().iter();
            client.tools.extend(tools.map(|t| t["name"].as_str().unwrap().to_owned()));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() || kind == Kind::PageOneOnly {
                break;
            }
        }
        if kind == Kind::FortyTools {
            client.tools.truncate(40);
        }
        client
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        let headers = [("mcp-session-id", self.session.as_str())];
        rpc(&self.server.url, &headers, &request(2, method, params)).2["result"].clone()
    }

    /// Calls a tool that it knows and reads the answer in the only way it can.
    #[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
    fn call(&self, tool: &str, arguments: Value) -> Value {
        assert!(self.tools.iter().any(|t| t == tool), "{:?} does not know `{tool}`", self.kind);
        let result = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        assert_eq!(result["isError"], false, "{:?}: {result}", self.kind);
        if self.kind == Kind::ContentOnly {
            return serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        }
        result["structuredContent"].clone()
    }
}

fn filler(from: usize) -> String {
    let tool = |n| {
        format!(
            "[[tool]]\nid = \"filler{n}\"\ndescription = \"Does something else, number {n}.\"\nrun = [\"true\"]\n"
        )
    };
    format!("kind = \"command\"\n{}", (from..from + 60).map(tool).collect::<String>())
}

#[test]
fn every_limited_client_finds_describes_runs_and_reads_on() {
    let home = TestHome::with(&[
        ("docent.toml", "[server]\npage_size = 20\n[upstreams]\nenabled = [\"a\", \"z\"]\n"),
        ("policies/p.rhai", "fn rules(p) { p.allow(); }"),
        ("scripts/a/upstream.toml", &filler(0)),
        ("scripts/z/upstream.toml", NUMBERS),
    ]);
    let server = TestServer::start(home.path(), &[]);
    for kind in
        [Kind::PageOneOnly, Kind::ContentOnly, Kind::StructuredOnly, Kind::FortyTools, Kind::DeafToChanges]
    {
        let client = Client::connect(&server, kind);
        let limited = matches!(kind, Kind::PageOneOnly | Kind::FortyTools);
        assert_eq!(client.tools.contains(&"z_numbers".to_owned()), !limited, "{kind:?}");
        if kind == Kind::DeafToChanges {
            // Half of what it listed is gone, and it never heard of it.
            home.write("scripts/a/upstream.toml", &filler(1_000));
            let gone = || client.ask("tools/call", json!({"name": "a_filler7", "arguments": {}}));
            let start = std::time::Instant::now();
            while !gone().is_null() {
                assert!(start.elapsed() < std::time::Duration::from_secs(20), "the edit is not picked up");
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        let found = client.call("docent_search_tools", json!({"query": "count upwards, numbers as rows"}));
        let name =
            found["tools"][0]["name"].as_str().unwrap_or_else(|| panic!("{kind:?}: {found}")).to_owned();
        assert_eq!(name, "z_numbers", "{kind:?}");
        let entry = client.call("docent_describe_tool", json!({"tool": name}));
        let argument = entry["input_schema"]["required"][0].as_str().unwrap().to_owned();
        let arguments: Value = [(argument, json!(250))].into_iter().collect();
        let run = client.call("docent_run_tool", json!({"tool": name, "arguments": arguments}));
        assert_eq!(run["truncated"], true, "{kind:?}: {run}");
        let told = run["warnings"].to_string();
        let at = told.find("r_").unwrap_or_else(|| panic!("{kind:?}: {told}"));
        let id: String = told
            .clone()
            .split_off(at)
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        let rest =
            client.call("docent_read_result", json!({"result_id": id, "path": "/items", "offset": 249}));
        assert_eq!(rest["value"], json!([{"n": "250"}]), "{kind:?}: {rest}");
    }
}
