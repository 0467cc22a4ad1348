//! Discovery over real sockets: progressive discovery on both wires, one answer for what a caller may not know,
//! search over plain HTTP, surfaces and who is told of their changes, what a search costs.

use std::sync::Arc;

use docent::auth::TokenHash;
use docent::snapshot::MetaTool;
use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, http, rpc, shared};
use crate::wire_double::{Streaming, header, request, with_meta};

/// Tools that everybody sees, and two that only a guard does.
const OPEN: &str = r#"
kind = "command"
category = "words"
[[tool]]
id = "echo"
description = "Echoes a word, for tests. See also w.count."
input_schema = { type = "object", required = ["word"], additionalProperties = false, properties = { word = { type = "string", maxLength = 90, description = "The word." } } }
annotations = { read_only = true }
run = ["echo", "{word}"]
[[tool]]
id = "count"
description = "Counts words in a text."
run = ["echo", "1"]
[[tool]]
id = "denied"
description = "No rule allows it."
tags = ["nobody"]
run = ["echo", "1"]
"#;
const VAULT: &str = r#"
kind = "command"
category = "secrets"
[[tool]]
id = "open"
description = "Opens the vault of words and echoes secrets."
run = ["echo", "gold"]
[[tool]]
id = "count"
description = "Counts gold in the vault."
run = ["echo", "7"]
"#;
const POLICY: &str = r#"
fn rules(p) {
  p.allow().upstream("w").unless_tags(["nobody"]);
  p.allow().upstream("vault").scopes(["vault:use"]);
  p.hide().upstream("vault").unless_scopes(["vault:use"]);
  p.challenge(["ops:count"]).tool("w.count");
}
"#;

fn home(packs: &[(&str, &str)]) -> TestHome {
    let enabled: Vec<String> = packs.iter().map(|(id, _)| format!("{id:?}")).collect();
    let mut callers = String::new();
    for (name, scopes) in [("guest", "[]"), ("guard", "[\"vault:use\"]")] {
        let hash = TokenHash::of(&format!("t-{name}"));
        callers += &format!("[callers.{name}]\ntoken_hash = \"{hash}\"\nscopes = {scopes}\n");
    }
    let main =
        format!("[auth]\nmode = \"token\"\n[upstreams]\nenabled = [{}]\n{callers}", enabled.join(", "));
    let home = TestHome::with(&[("docent.toml", &main), ("policies/p.rhai", POLICY)]);
    for (id, text) in packs {
        home.write(&format!("scripts/{id}/upstream.toml"), text);
    }
    home
}

fn both() -> TestHome {
    home(&[("vault", VAULT), ("w", OPEN)])
}

/// Which wire a test speaks, and what its client declares.
#[derive(Clone, Copy)]
struct Client<'a> {
    url: &'a str,
    who: &'a str,
    stateless: bool,
    extensions: &'a Value,
}

impl Client<'_> {
    fn ask(&self, method: &str, params: Value) -> Value {
        let token = format!("Bearer t-{}", self.who);
        let mut headers = vec![("authorization", token.as_str())];
        let capabilities = json!({ "extensions": self.extensions });
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        if self.stateless {
            let mut params = with_meta(params);
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
            headers.extend([("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)]);
            if method == "tools/call" {
                headers.push(("mcp-name", &name));
            }
            return rpc(self.url, &headers, &request(7, method, params)).2;
        }
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "probe", "version": "1"}});
        let (status, head, body) = rpc(self.url, &headers, &request(1, "initialize", hello));
        assert_eq!(status, 200, "{body}");
        if method == "initialize" {
            return body;
        }
        let session = header(&head, "mcp-session-id").unwrap();
        headers.push(("mcp-session-id", &session));
        rpc(self.url, &headers, &request(7, method, params)).2
    }

    #[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
    fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn names(&self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// An answer without its correlation id, the only part that is new in every answer.
fn text(answer: &Value) -> String {
    let whole = answer.to_string();
    let Some((before, after)) = whole.split_once("correlation_id\\\":\\\"") else { return whole };
    let id = after.split('\\').next().unwrap().to_owned();
    format!("{before}{after}").replace(&id, "ID")
}

#[test]
fn progressive_discovery_is_negotiated_on_both_wires_and_changes_nothing_for_others() {
    let home = both();
    let server = TestServer::start(home.path(), &[]);
    let (none, declared) = (json!({}), json!({"dev.docent/progressive-tool-discovery": {"version": 1}}));
    let other_version = json!({"dev.docent/progressive-tool-discovery": {"version": 2}});
    let agents = json!({"dev.docent/progressive-tool-discovery": {}, "io.modelcontextprotocol/agents": {}});
    for stateless in [true, false] {
        let client = |extensions| Client { url: &server.url, who: "guest", stateless, extensions };
        let hello = client(&none).ask(if stateless { "server/discover" } else { "initialize" }, json!({}));
        assert_eq!(
            hello["result"]["capabilities"]["extensions"]["dev.docent/progressive-tool-discovery"],
            json!({"version": 1, "discoveryTool": "docent_search_tools", "canonicalResult": "structuredContent.result", "compatibilityText": "pointer"})
        );
        // The entry catalog: the server's own tools by name, one page.
        let entry = client(&declared).names();
        let mut sorted = entry.clone();
        sorted.sort();
        assert_eq!(entry, sorted);
        assert!(
            entry.iter().all(|n| n.starts_with("docent_")) && entry.len() == MetaTool::ALL.len(),
            "{entry:?}"
        );
        let whole = client(&none).names();
        assert!(whole.contains(&"w_echo".to_owned()) && whole[0] == "docent_search_tools");
        assert_eq!(client(&other_version).names(), whole);
        assert_eq!(client(&agents).names(), whole, "an agent's tools must be in the list");

        let found = client(&declared).call("docent_search_tools", json!({"query": "echo a word"}));
        let plain = client(&none).call("docent_search_tools", json!({"query": "echo a word"}));
        assert_eq!(
            found["result"]["content"],
            json!([{"type": "text", "text": "Canonical result: structuredContent.result"}])
        );
        assert_eq!(
            found["result"]["structuredContent"],
            json!({"result": plain["result"]["structuredContent"]})
        );
        assert_eq!(found["result"]["isError"], json!(false));
        let half = plain["result"]["structuredContent"].to_string();
        assert_eq!(plain["result"]["content"][0]["text"], half.as_str(), "two equal halves, as ever");
        for extensions in [&other_version, &agents] {
            let answer = client(extensions).call("docent_search_tools", json!({"query": "echo a word"}));
            assert_eq!(answer, plain, "byte for byte");
        }
        // A direct call of a tool that the entry catalog does not list: listing is never authorization.
        let echoed = client(&declared).call("w_echo", json!({"word": "hi"}));
        assert_eq!(echoed["result"]["structuredContent"]["result"]["text"], "hi\n", "{echoed}");

        let failed = client(&declared).call("docent_search_tools", json!({"query": "x", "limit": 0}));
        assert_eq!(
            failed["result"]["content"],
            json!([{"type": "text", "text": "Canonical error: structuredContent"}])
        );
        let error = &failed["result"]["structuredContent"];
        assert_eq!(
            (&error["result"], &error["ok"], &failed["result"]["isError"]),
            (&json!(null), &json!(false), &json!(true))
        );
        assert_eq!(error["error"]["code"], "INVALID_ARGUMENT");
    }
    // The oldest revision has no structured half: nothing to negotiate, nothing offered.
    let hello = json!({"protocolVersion": "2025-03-26", "capabilities": {"extensions": declared}, "clientInfo": {"name": "p", "version": "1"}});
    let (_, head, body) =
        rpc(&server.url, &[("authorization", "Bearer t-guest")], &request(1, "initialize", hello));
    assert!(body["result"]["capabilities"].get("extensions").is_none());
    let session = header(&head, "mcp-session-id").unwrap();
    let headers = [("authorization", "Bearer t-guest"), ("mcp-session-id", session.as_str())];
    let listed = rpc(&server.url, &headers, &request(2, "tools/list", json!({}))).2;
    assert!(listed.to_string().contains("\"w_echo\""));
}

#[test]
fn unknown_hidden_and_forbidden_are_one_answer_on_both_wires() {
    let home = both();
    let server = TestServer::start(home.path(), &[]);
    let none = json!({});
    for stateless in [true, false] {
        let client = Client { url: &server.url, who: "guest", stateless, extensions: &none };
        let answers = |ask: &dyn Fn(&str) -> Value| {
            let all: Vec<String> =
                ["x.absent", "vault.open", "w.denied"].map(|tool| text(&ask(tool))).to_vec();
            assert!(all.iter().all(|a| *a == all[0]), "{all:#?}");
            assert!(!all[0].contains("absent"), "the question is not repeated: {}", all[0]);
        };
        answers(&|tool| client.call("docent_describe_tool", json!({"tool": tool})));
        answers(&|tool| client.call("docent_run_tool", json!({"tool": tool, "arguments": {}})));
        answers(&|tool| client.call("docent_run_readonly_tool", json!({"tool": tool})));
        answers(&|tool| client.call(tool, json!({})));
        let guard = Client { who: "guard", ..client };
        let known = guard.call("docent_describe_tool", json!({"tool": "vault.open"}));
        assert_eq!(known["result"]["structuredContent"]["id"], "vault.open");
        let echo =
            client.call("docent_describe_tool", json!({"tool": "w_echo"}))["result"]["structuredContent"]
                .clone();
        assert_eq!(echo["dependencies"], json!(["w.count"]));
        assert_eq!(
            (&echo["permissions"]["callable"], &echo["availability"]),
            (&json!(true), &json!("available"))
        );
        assert_eq!(echo["hash"].as_str().unwrap().len(), 64);
        let count = client.call("docent_describe_tool", json!({"tool": "w.count"}));
        let rights = &count["result"]["structuredContent"]["permissions"];
        assert_eq!(
            (&rights["callable"], &rights["reason"], &rights["required_scopes"], &rights["grantable"]),
            (&json!(false), &json!("scopes"), &json!(["ops:count"]), &json!(true))
        );
    }
}

#[test]
fn the_tools_of_others_change_no_byte_of_what_a_caller_gets() {
    let (without, with) = (home(&[("w", OPEN)]), both());
    let servers = [TestServer::start(without.path(), &[]), TestServer::start(with.path(), &[])];
    let none = json!({});
    let questions: Vec<(&str, Value)> = [
        ("docent_search_tools", json!({"query": "open the vault"})),
        ("docent_search_tools", json!({"query": "vault.open"})),
        ("docent_search_tools", json!({"query": "count gold", "detail": "schema"})),
        ("docent_search_tools", json!({"queries": ["echo words", "secrets", "vault_open"]})),
        ("docent_search_tools", json!({"category": "secrets"})),
        ("docent_search_tools", json!({"upstream": "vault"})),
        ("docent_search_tools", json!({"query": "words"})),
        ("docent_describe_tool", json!({"tool": "vault.open"})),
        ("docent_describe_tool", json!({"tool": "w_echo"})),
        ("docent_list_categories", json!({})),
        ("docent_context", json!({})),
        ("docent_surface", json!({})),
        ("docent_run_tool", json!({"tool": "vault_open"})),
        ("vault_open", json!({})),
        ("w_echo", json!({"wrod": "x"})),
    ]
    .to_vec();
    for stateless in [true, false] {
        let client = |n: usize, who| Client { url: &servers[n].url, who, stateless, extensions: &none };
        let hello = if stateless { "server/discover" } else { "initialize" };
        for (method, params) in [(hello, json!({})), ("tools/list", json!({}))] {
            let answer = |n| client(n, "guest").ask(method, params.clone()).to_string();
            assert_eq!(answer(0), answer(1), "{method}");
        }
        for (tool, arguments) in &questions {
            let answer = |n| text(&client(n, "guest").call(tool, arguments.clone()));
            assert_eq!(answer(0), answer(1), "{tool} {arguments}");
        }
        let seen =
            client(1, "guard").call("docent_search_tools", json!({"query": "open the vault"})).to_string();
        assert!(seen.contains("vault.open"), "the other caller does see them");
    }
}

fn search(server: &TestServer, who: &str, query: &str) -> (u16, String, Value) {
    let token = format!("Bearer t-{who}");
    let headers = [("authorization", token.as_str())];
    let (status, head, body) =
        http(&server.url, "GET", &format!("/api/v1/search{query}"), &headers, "").unwrap();
    (status, head, serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}")))
}

#[test]
fn search_over_plain_http_is_the_meta_tool_for_the_same_caller() {
    let home = both();
    let server = TestServer::start(home.path(), &[]);
    let none = json!({});
    let tool = |who, arguments: Value| {
        let client = Client { url: &server.url, who, stateless: true, extensions: &none };
        client.call("docent_search_tools", arguments)["result"]["structuredContent"].clone()
    };
    for who in ["guest", "guard"] {
        let (status, head, found) = search(&server, who, "?q=open%20the+vault&limit=3");
        assert_eq!(
            (status, found),
            (200, tool(who, json!({"query": "open the vault", "limit": 3}))),
            "{who}"
        );
        assert!(head.contains("content-type: application/json"));
        let (_, _, several) = search(&server, who, "?q=echo&q=count&detail=schema");
        assert_eq!(several, tool(who, json!({"queries": ["echo", "count"], "detail": "schema"})));
    }
    assert!(!search(&server, "guest", "?q=open%20the+vault").2.to_string().contains("vault.open"));
    for (query, field) in [
        ("?q=x&limit=five", Some("/limit")),
        ("?q=x&limit=101", Some("/limit")),
        ("?q=x&colour=red", Some("/colour")),
        ("?q=", Some("/query")),
        ("?q=x&limit=1&limit=2", None),
        ("?q=x&cursor=forged", Some("/cursor")),
    ] {
        let (status, _, body) = search(&server, "guest", query);
        let error = &body["error"];
        assert_eq!((status, error["field"].as_str()), (400, field), "{query}: {body}");
        assert!(error["code"].is_string() && error["message"].is_string() && error["retryable"].is_boolean());
    }
    // Every bad cursor has one answer, an empty one and one of any length too.
    let refused = |cursor: &str| {
        let body = search(&server, "guest", &format!("?q=x&cursor={cursor}")).2;
        (body["error"]["code"].clone(), body["error"]["message"].clone())
    };
    let forged = refused("forged");
    assert_eq!(forged.0, "STALE_CURSOR");
    assert_eq!((refused(""), refused(&"A".repeat(2_000))), (forged.clone(), forged));
    let (status, head, body) = search(&server, "nobody", "?q=x");
    assert_eq!((status, &body["error"]["code"]), (401, &json!("AUTHENTICATION_FAILED")));
    assert!(head.contains("www-authenticate: bearer"));
    assert_eq!(http(&server.url, "POST", "/api/v1/search?q=x", &[], "").unwrap().0, 405);
    let foreign = [("host", "evil.example"), ("authorization", "Bearer t-guest")];
    assert_eq!(http(&server.url, "GET", "/api/v1/search?q=x", &foreign, "").unwrap().0, 403);
}

#[test]
fn only_whose_hash_moved_is_told_and_words_move_none() {
    let home = both();
    let mut server = TestServer::start(home.path(), &[]);
    let none = json!({});
    let url = server.url.clone();
    let hash = |who| {
        let client = Client { url: &url, who, stateless: true, extensions: &none };
        client.call("docent_surface", json!({}))["result"]["structuredContent"]["hash"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let listen = |who: &str| {
        let token = format!("Bearer t-{who}");
        let headers = [
            ("authorization", token.as_str()),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "subscriptions/listen"),
        ];
        let body = request(
            9,
            "subscriptions/listen",
            with_meta(json!({"notifications": {"toolsListChanged": true}})),
        );
        let mut stream = Streaming::open(&url, "POST", &headers, &body.to_string());
        assert_eq!(stream.event().unwrap()["method"], "notifications/subscriptions/acknowledged");
        stream
    };
    let (mut guest, mut guard) = (listen("guest"), listen("guard"));
    let before = (hash("guest"), hash("guard"));
    assert_ne!(before.0, before.1);
    let mut edit = |pack: &str, text: String| {
        let generation =
            |body: &str| serde_json::from_str::<Value>(body).unwrap()["generation"].as_u64().unwrap();
        let before = generation(&http(&url, "GET", "/readyz", &[], "").unwrap().2);
        home.write(&format!("scripts/{pack}/upstream.toml"), &text);
        server.wait_for("/readyz", |_, body| generation(body) > before);
        // What an upstream brings comes a moment after the home; an announcement at most a second after another.
        std::thread::sleep(std::time::Duration::from_secs(2));
    };
    edit("w", OPEN.replace("Echoes a word, for tests.", "Says it again, in other words."));
    assert_eq!((hash("guest"), hash("guard")), before, "a description is no contract");
    assert!(guest.is_silent() && guard.is_silent());
    edit("vault", VAULT.replace("id = \"count\"", "id = \"weigh\""));
    assert_eq!(hash("guest"), before.0);
    assert_ne!(hash("guard"), before.1);
    assert_eq!(guard.event().unwrap()["method"], "notifications/tools/list_changed");
    assert!(guest.is_silent(), "nothing of the guest's has changed");
    edit("w", OPEN.replace("maxLength = 90", "maxLength = 80"));
    assert_ne!(hash("guest"), before.0);
    for stream in [&mut guest, &mut guard] {
        assert_eq!(stream.event().unwrap()["method"], "notifications/tools/list_changed");
        assert!(stream.is_silent(), "told once");
    }
}

/// Calls as they look from outside, on a home that is always the same.
fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[test]
fn the_contract_of_the_meta_tools_is_this_one() {
    let home = both();
    let server = TestServer::start(home.path(), &[]);
    let none = json!({});
    let client = Client { url: &server.url, who: "guard", stateless: true, extensions: &none };
    let list = client.ask("tools/list", json!({}))["result"]["tools"].clone();
    let own: Vec<&Value> = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|t| t["name"].as_str().unwrap().starts_with("docent_"))
        .collect();
    assert_eq!(own.len(), MetaTool::ALL.len());
    let bytes: usize = own.iter().map(|t| t.to_string().len()).sum();
    assert!(bytes < 10_000, "the entry catalog is paid in every session: {bytes} bytes");
    insta::assert_snapshot!("meta_tools", pretty(&json!(own)));
    let found = client.call("docent_search_tools", json!({"query": "count words", "limit": 2}));
    let mut found = found["result"]["structuredContent"].clone();
    assert!(found["next_cursor"].is_string(), "{found}");
    found["next_cursor"] = json!("a token of this process");
    insta::assert_snapshot!("search_result", pretty(&found));
    let mut described =
        client.call("docent_describe_tool", json!({"tool": "w.echo"}))["result"]["structuredContent"].clone();
    described["hash"] = json!("64 hex digits");
    insta::assert_snapshot!("describe_result", pretty(&described));
    let mut surface = client.call("docent_surface", json!({}))["result"]["structuredContent"].clone();
    (surface["hash"], surface["appVersion"]) = (json!("64 hex digits"), json!("x.y.z"));
    insta::assert_snapshot!("surface_result", pretty(&surface));
}

/// Ten brief rows cost at most 1,200 tokens whatever is asked, and none is left out for it.
#[test]
fn ten_brief_rows_fit_their_budget_on_every_labelled_query() {
    let Some(shared) = shared("the labelled queries") else { return };
    let pack = "kind = \"catalog\"\nfile = \"catalog.jsonl.gz\"\nwhere = { core = true }\n";
    let home = TestHome::with(&[
        ("docent.toml", "[upstreams]\nenabled = [\"cat\"]\n[callers.anonymous]\n"),
        ("policies/p.rhai", "fn rules(p) { p.allow().tool(\"*\"); }\n"),
        ("scripts/cat/upstream.toml", pack),
    ]);
    std::fs::copy(shared.join("catalogs/catalog.jsonl.gz"), home.path().join("scripts/cat/catalog.jsonl.gz"))
        .unwrap();
    let options = docent::app::Options {
        store: None,
        data: None,
        environment: docent::config::Environment::process(),
        clock: docent::clock::Clock::system(),
        watch: false,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let app = runtime.block_on(docent::app::App::open(home.path(), options)).unwrap();
    let gateway = app.gateway();
    let who = gateway.snapshot().callers.caller("anonymous").unwrap();
    let ctx = docent::gateway::RequestContext::new(who, "it");
    let queries = std::fs::read_to_string(shared.join("catalogs/queries.dev.jsonl")).unwrap();
    // Every seventh: a debug build searches slowly, and the sets stand one after the other.
    let (mut asked, mut full, mut worst, mut shortened) = (0, 0, 0, 0);
    for line in queries.lines().step_by(7) {
        let query: Value = serde_json::from_str(line).unwrap();
        let arguments = json!({"query": query["query"]}).as_object().unwrap().clone();
        let call = docent::call::ToolCall {
            tool: "docent_search_tools".to_owned(),
            arguments,
            wait: std::time::Duration::from_mins(1),
            request_key: None,
            fields: Vec::new(),
        };
        let answer = runtime.block_on(gateway.call_tool(&ctx, call));
        let docent::gateway::CallAnswer::Outcome(docent::call::ToolOutcome::Completed(result)) = answer
        else {
            panic!("{line}: {answer:?}")
        };
        let answer = result.structured.unwrap();
        let (tokens, found) = (answer.len().div_ceil(4), answer.value());
        assert_eq!(found["token_cost"]["estimated_tokens"], tokens);
        assert!(tokens <= 1_200, "{tokens}: {line}");
        assert_eq!(found["returned"], found["total"].as_u64().unwrap().min(10), "no row was dropped: {line}");
        asked += 1;
        full += usize::from(found["returned"] == 10);
        worst = worst.max(tokens);
        shortened += usize::from(found["omission_receipt"].to_string().contains("\"description\""));
    }
    println!(
        "{asked} answers, {full} with ten rows, at most {worst} tokens, {shortened} with shortened descriptions"
    );
    assert!(asked > 150 && full * 2 > asked);
    runtime.block_on(Arc::clone(&app).close(std::time::Duration::from_secs(5)));
}
