//! What does not fit into a result: kept, linked, read by parts, passed on, and nobody else's.

use serde_json::{Value, json};

use crate::check::run;
use crate::support::{TestHome, TestServer, docent, rpc};

const PACK: &str = r#"
kind = "command"
[[tool]]
id = "numbers"
description = "Numbers as rows."
input_schema = { type = "object", properties = { n = { type = "integer" } } }
annotations = { read_only = true }
run = ["seq", "1", "{n}"]
lines = { columns = ["n"] }
[[tool]]
id = "text"
description = "Numbers as a text."
annotations = { read_only = true }
run = ["seq", "1", "20000"]
[[tool]]
id = "echo"
description = "Says a text."
input_schema = { type = "object", additionalProperties = false, required = ["text"], properties = { text = { type = "string", maxLength = 20 } } }
annotations = { read_only = true }
run = ["printf", "%s", "{text}"]
[[tool]]
id = "people"
description = "Rows of which a policy withholds a part."
annotations = { read_only = true }
run = ["cat", "people.json"]
output = "json"
"#;

const POLICY: &str = r#"
fn rules(p) { p.allow().upstream("u"); p.deny("not this text").tool("u.echo").when_arg("/text", "13"); }
fn redact(caller, tool) { if tool.name == "people" { ["mail"] } else { [] } }
"#;

struct Client {
    url: String,
    token: String,
}

impl Client {
    fn call(&self, tool: &str, arguments: &Value, meta: &Value) -> Value {
        let mut all = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        all.as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
        let bearer = format!("Bearer {}", self.token);
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
            ("authorization", &bearer),
        ];
        let params = json!({"name": tool, "arguments": arguments, "_meta": all});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (_, _, answer) = rpc(&self.url, &headers, &message);
        answer["result"].clone()
    }

    fn read(&self, arguments: &Value) -> Value {
        self.call("docent_read_result", arguments, &json!({}))["structuredContent"].clone()
    }
}

/// A home with two callers, served.
fn served(more: &str) -> (TestHome, TestServer, Client, Client) {
    let home = TestHome::with(&[("scripts/u/upstream.toml", PACK), ("policies/p.rhai", POLICY)]);
    let rows: Vec<Value> =
        (0..9_000).map(|i| json!({"id": i, "mail": format!("m{i}@private.example")})).collect();
    home.write("scripts/u/people.json", &json!({ "rows": rows }).to_string());
    let caller = |name: &str| {
        let (code, out, _) = run(home.path(), &["token", "new", name, "--json"]);
        assert_eq!(code, 0);
        let made: Value = serde_json::from_str(&out).unwrap();
        (made["token"].as_str().unwrap().to_owned(), made["toml"].as_str().unwrap().to_owned())
    };
    let ((alice, table_a), (bob, table_b)) = (caller("alice"), caller("bob"));
    let main =
        format!("[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\"]\n{more}\n{table_a}{table_b}");
    home.write("docent.toml", &main);
    let server = TestServer::start(home.path(), &[]);
    let client = |token| Client { url: server.url.clone(), token };
    let (alice, bob) = (client(alice), client(bob));
    (home, server, alice, bob)
}

fn result_id(result: &Value) -> String {
    result["_meta"]["dev.docent/result"]["result_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{:.500}", result.to_string()))
        .to_owned()
}

#[test]
fn the_rest_of_a_page_is_kept_linked_and_read_to_its_end() {
    let (_home, _server, alice, bob) = served("");
    let result = alice.call("u_numbers", &json!({"n": 250}), &json!({}));
    let envelope = &result["structuredContent"];
    assert_eq!((&envelope["truncated"], &envelope["data"]["page"]["total"]), (&json!(true), &json!(250)));
    let id = result_id(&result);
    assert!(envelope["warnings"].to_string().contains(&id), "a client without links and meta: {envelope}");
    let link = result["content"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&link["type"], &link["uri"]),
        (&json!("resource_link"), &json!(format!("docent://results/{id}")))
    );
    let (mut seen, mut from) = (Vec::new(), json!(0));
    while !from.is_null() {
        let part = alice.read(&json!({"result_id": id, "path": "/items", "offset": from, "limit": 60}));
        assert_eq!(
            (&part["kind"], &part["total"], &part["complete"]),
            (&json!("array"), &json!(250), &json!(true))
        );
        seen.extend(
            part["value"].as_array().unwrap().iter().map(|row| row["n"].as_str().unwrap().to_owned()),
        );
        from = part["next_offset"].clone();
    }
    assert_eq!(seen, (1..=250).map(|n| n.to_string()).collect::<Vec<_>>());
    // Another caller's id, and one that never was: the same bytes but for the id of the request.
    let text = |who: &Client, id: &str| {
        let mut error = who.read(&json!({"result_id": id}));
        error["correlation_id"] = Value::Null;
        error.to_string()
    };
    assert!(text(&bob, &id).contains("NOT_FOUND"));
    assert_eq!(text(&bob, &id), text(&alice, "r_00000000000000000000000000000000"));
    let wrong = alice.read(&json!({"result_id": id, "path": "/items/250/n"}));
    assert_eq!(wrong["error"]["code"], "INVALID_ARGUMENT");
    assert!(wrong["error"]["message"].as_str().unwrap().contains("a list of 250"), "{wrong}");
}

#[test]
fn a_cut_text_is_kept_whole() {
    let (_home, _server, alice, _) = served("");
    let result = alice.call("u_text", &json!({}), &json!({}));
    let shown = result["structuredContent"]["text"].as_str().unwrap();
    let id = result_id(&result);
    assert!(shown.starts_with("[cut: the first ") && shown.contains(&id), "{shown:.200}");
    assert!(shown.len() <= 50 * 1024);
    let whole: Vec<String> = (1..=20_000).map(|n| format!("{n}\n")).collect();
    let whole = whole.concat();
    let (mut seen, mut from) = (String::new(), json!(0));
    while !from.is_null() {
        let part = alice.read(&json!({"result_id": id, "offset": from}));
        assert!(part.to_string().len() <= 64 * 1024);
        seen += part["value"].as_str().unwrap();
        from = part["next_offset"].clone();
    }
    assert_eq!(seen, whole);
    assert!(result["structuredContent"]["warnings"][0].as_str().unwrap().contains(&id), "{result:.300}");
}

#[test]
fn a_kept_result_is_an_argument_and_policy_and_schema_judge_what_it_is() {
    let (_home, _server, alice, bob) = served("");
    let id = result_id(&alice.call("u_numbers", &json!({"n": 250}), &json!({})));
    let echo = |who: &Client, path: &str| {
        let result = who.call("u_echo", &json!({"text": {"$result": id, "path": path}}), &json!({}));
        (
            result["structuredContent"]["text"].as_str().unwrap_or_default().to_owned(),
            result["structuredContent"]["error"].clone(),
        )
    };
    assert_eq!(echo(&alice, "/items/199/n").0, "200");
    assert!(echo(&alice, "/items/12/n").1["message"].as_str().unwrap().contains("not this text"));
    let wrong = echo(&alice, "/items/3").1;
    assert_eq!((&wrong["code"], &wrong["field"]), (&json!("INVALID_ARGUMENT"), &json!("/text")));
    let foreign = echo(&bob, "/items/0/n").1;
    assert_eq!((&foreign["code"], &foreign["field"]), (&json!("NOT_FOUND"), &json!("/text")));
    let run = json!({"tool": "u.echo", "arguments": {"text": {"$result": id, "path": "/items/0/n"}}});
    assert_eq!(alice.call("docent_run_tool", &run, &json!({}))["structuredContent"]["text"], "1");
    let seventeen = json!({"text": vec![json!({"$result": id}); 17]});
    assert!(alice.call("u_echo", &seventeen, &json!({})).to_string().contains("17 `$result` values"));
}

#[test]
fn what_a_policy_withholds_is_neither_shown_nor_kept_nor_read() {
    let (home, _server, alice, _) = served("");
    let result = alice.call("u_people", &json!({}), &json!({}));
    assert!(!result.to_string().contains("private.example"), "{:.300}", result.to_string());
    let id = result_id(&result);
    let part = alice.read(&json!({"result_id": id, "path": "/rows", "offset": 8_990}));
    assert_eq!(part["value"][9], json!({"id": 8_999}), "{part}");
    // A rule that comes later holds for what was kept before.
    home.write("policies/q.rhai", "fn redact(caller, tool) { [\"id\"] }");
    let start = std::time::Instant::now();
    loop {
        let part = alice.read(&json!({"result_id": id, "path": "/rows/7"}));
        if part["value"] == json!({}) {
            break;
        }
        assert!(start.elapsed().as_secs() < 20, "{part}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn the_oldest_make_room_and_their_owner_is_told() {
    let (_home, _server, alice, _) = served("[budgets]\nkept_bytes_per_caller = 150000");
    let first = result_id(&alice.call("u_text", &json!({}), &json!({})));
    let second = result_id(&alice.call("u_text", &json!({}), &json!({})));
    let gone = alice.read(&json!({"result_id": first}));
    assert!(gone["error"]["message"].as_str().unwrap().contains("make room"), "{gone}");
    assert_eq!(alice.read(&json!({"result_id": second, "limit": 3}))["value"], "1\n2");
}

#[test]
fn only_the_members_asked_for_come_on_both_ways() {
    let (_home, _server, alice, _) = served("");
    let direct = alice.call("u_people", &json!({}), &json!({"dev.docent/fields": ["/rows/5"]}));
    assert_eq!(direct["structuredContent"]["data"]["rows"], json!([{"id": 5}]), "{direct}");
    let run = json!({"tool": "u_numbers", "arguments": {"n": 3}, "fields": ["m"]});
    let wrong = alice.call("docent_run_tool", &run, &json!({}));
    assert_eq!(wrong["structuredContent"]["error"]["field"], "/fields", "{wrong}");
    let run = json!({"tool": "u_numbers", "arguments": {"n": 3}, "fields": ["n"]});
    let fine = alice.call("docent_run_tool", &run, &json!({}));
    assert_eq!(fine["structuredContent"]["data"]["items"], json!([{"n": "1"}, {"n": "2"}, {"n": "3"}]));
}

#[test]
fn kept_results_survive_a_restart_and_can_be_turned_off() {
    let home = TestHome::with(&[
        ("scripts/u/upstream.toml", PACK),
        ("policies/p.rhai", POLICY),
        ("docent.toml", "[callers.anonymous]\n[upstreams]\nenabled = [\"u\"]\n"),
    ]);
    let data = tempfile::tempdir().unwrap();
    let call = |tool: &str, arguments: &Value| -> Value {
        let mut command = docent();
        command.args(["call", tool, &arguments.to_string(), "--json", "--home"]).arg(home.path());
        let output = command.arg("--data").arg(data.path()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let id = result_id(&call("u.numbers", &json!({"n": 101})));
    let part = call("docent_read_result", &json!({"result_id": id, "path": "/items/100"}));
    assert_eq!(part["structuredContent"]["value"], json!({"n": "101"}), "{part}");
    home.write(
        "docent.toml",
        "[callers.anonymous]\n[budgets]\nkept_bytes = 0\n[upstreams]\nenabled = [\"u\"]\n",
    );
    let result = call("u.numbers", &json!({"n": 101}));
    assert!(result["_meta"].is_null() && result["structuredContent"]["truncated"] == true, "{result}");
}
