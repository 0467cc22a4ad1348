//! A script that asks its client after its call went on as a job: asked by the task, by `job_status` on both wires,
//! and told to those who cannot be asked. Tasks that are followed tell of their moves.

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, rpc};
use crate::wire_double::{Streaming, header, request, with_meta};

const PACK: &str = "kind = \"script\"\n[[tool]]\nid = \"greet\"\ndescription = \"Greets whom its client names.\"\n\
                    script = { file = \"later.rhai\", run = \"greet\" }\n";
const SCRIPT: &str = r#"
fn greet(args, ctx) {
    ctx.wait(900);
    let fields = #{ type: "object", properties: #{ name: #{ type: "string" } }, required: ["name"] };
    let answers = ctx.ask([elicit("who", "Who is it?", fields)]);
    text(`Hello ${answers.who.content.name}`)
}
"#;
const TASKS: &str = "io.modelcontextprotocol/tasks";

fn served() -> (TestHome, TestServer) {
    let home = TestHome::with(&[
        (
            "docent.toml",
            "[callers.anonymous]\n[upstreams]\nenabled = [\"later\"]\n[[allow]]\ntools = [\"*\"]\n",
        ),
        ("scripts/later/upstream.toml", PACK),
        ("scripts/later/later.rhai", SCRIPT),
    ]);
    let server = TestServer::start(home.path(), &[]);
    (home, server)
}

fn able() -> Value {
    json!({"elicitation": {}, "extensions": {TASKS: {}}})
}

fn message(method: &str, params: Value, capabilities: &Value) -> Value {
    let mut params = with_meta(params);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    request(1, method, params)
}

#[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
fn ask(url: &str, method: &str, name: &str, params: Value, capabilities: Value) -> Value {
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    headers.extend((!name.is_empty()).then_some(("mcp-name", name)));
    rpc(url, &headers, &message(method, params, &capabilities)).2
}

/// Starts it as a job of a client with these capabilities.
fn job(url: &str, capabilities: Value) -> String {
    let arguments = json!({"tool": "later.greet", "arguments": {}, "wait_seconds": 0});
    let params = json!({"name": "docent_run_tool", "arguments": arguments});
    let started = ask(url, "tools/call", "docent_run_tool", params, capabilities);
    started["result"]["structuredContent"]["job_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{started}"))
        .to_owned()
}

fn status(url: &str, id: &str, capabilities: Value, more: &Value) -> Value {
    let mut params = json!({"name": "docent_job_status", "arguments": {"job_id": id, "wait_seconds": 20}});
    for (key, value) in more.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    ask(url, "tools/call", "docent_job_status", params, capabilities)["result"].clone()
}

fn answer(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

#[test]
fn a_task_asks_is_answered_and_tells_those_who_follow_it() {
    let (_home, server) = served();
    let url = server.url.as_str();
    let task = ask(url, "tools/call", "later_greet", json!({"name": "later_greet", "arguments": {}}), able());
    let id = task["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{task}")).to_owned();
    let follow = json!({"notifications": {"taskIds": [id, "job_none"]}});
    let refused = ask(url, "subscriptions/listen", "", follow.clone(), json!({}));
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let body = message("subscriptions/listen", follow, &able()).to_string();
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let mut stream = Streaming::open(url, "POST", &headers, &body);
    let acknowledged = stream.event().unwrap();
    assert_eq!(acknowledged["params"]["notifications"]["taskIds"], json!([id]), "{acknowledged}");
    let asked = stream.event().unwrap();
    assert_eq!((&asked["method"], &asked["params"]["taskId"]), (&json!("notifications/tasks"), &json!(id)));
    let expected = (&json!("input_required"), &json!("elicitation/create"));
    assert_eq!(
        (&asked["params"]["status"], &asked["params"]["inputRequests"]["who"]["method"]),
        expected,
        "{asked}"
    );
    let get = || ask(url, "tasks/get", &id, json!({"taskId": id}), able())["result"].clone();
    let now = get();
    assert_eq!(
        (&now["status"], &now["inputRequests"]),
        (&asked["params"]["status"], &asked["params"]["inputRequests"])
    );
    let update = |responses: Value| {
        ask(url, "tasks/update", &id, json!({"taskId": id, "inputResponses": responses}), able())
    };
    assert_eq!(update(json!({"who": 7}))["error"]["code"], -32602);
    update(json!({"somebody else": answer("Eve")}));
    assert_eq!(get()["status"], "input_required", "what nobody asked answers nothing");
    let acknowledged = update(json!({"who": answer("Ann")}))["result"].clone();
    assert!(
        acknowledged["resultType"] == "complete" && acknowledged.get("status").is_none(),
        "{acknowledged}"
    );
    let mut seen = Vec::new();
    let end = loop {
        let event = stream.event().unwrap();
        let state = event["params"]["status"].as_str().unwrap().to_owned();
        seen.push(state.clone());
        if state == "completed" {
            break event;
        }
    };
    assert_eq!(end["params"]["result"]["structuredContent"]["text"], "Hello Ann", "{end} after {seen:?}");
    assert_eq!(get()["result"], end["params"]["result"]);
}

#[test]
fn job_status_asks_where_it_can_and_says_so_where_it_cannot() {
    let (_home, server) = served();
    let url = server.url.as_str();
    let able = json!({"elicitation": {}});
    let id = job(url, able.clone());
    let deaf = status(url, &id, json!({}), &json!({}));
    let report = &deaf["structuredContent"];
    assert_eq!((&report["status"], &deaf["isError"]), (&json!("input_required"), &json!(false)), "{deaf}");
    assert!(report["next"].as_str().unwrap().contains("(elicitation)"), "{report}");
    let asked = status(url, &id, able.clone(), &json!({}));
    assert_eq!(asked["inputRequests"]["who"]["params"]["message"], "Who is it?", "{asked}");
    let brought = json!({"inputResponses": {"who": answer("Bob")}, "requestState": asked["requestState"]});
    let end = status(url, &id, able.clone(), &brought);
    assert_eq!(end["structuredContent"]["result"]["text"], "Hello Bob", "{end}");
    let read = ask(
        url,
        "resources/read",
        &format!("docent://jobs/{id}"),
        json!({"uri": format!("docent://jobs/{id}")}),
        json!({}),
    );
    let read: Value = serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!((&read["job_id"], &read["status"]), (&json!(id), &json!("completed")));
    let reference = json!({"type": "ref/resource", "uri": "docent://jobs/{id}"});
    let params = json!({"ref": reference, "argument": {"name": "id", "value": "later"}});
    let found = ask(url, "completion/complete", "", params, json!({}));
    assert_eq!(found["result"]["completion"]["values"], json!([id]), "{found}");

    // A client that could never be asked: the job says what it lacks.
    let lost = job(url, json!({}));
    let end = status(url, &lost, json!({}), &json!({}));
    assert_eq!(end["structuredContent"]["error"]["code"], "UNSUPPORTED_CAPABILITY", "{end}");
}

#[test]
fn a_session_is_asked_by_its_request_for_the_job() {
    let (_home, server) = served();
    let url = server.url.as_str();
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "it", "version": "1"}});
    let session = header(&rpc(url, &[], &request(0, "initialize", hello)).1, "mcp-session-id").unwrap();
    let headers = [("mcp-session-id", session.as_str())];
    let run = json!({"name": "docent_run_tool", "arguments": {"tool": "later.greet", "wait_seconds": 0}});
    let started = rpc(url, &headers, &request(1, "tools/call", run)).2;
    let id = &started["result"]["structuredContent"]["job_id"];
    let call = json!({"name": "docent_job_status", "arguments": {"job_id": id, "wait_seconds": 20}});
    let body = request(5, "tools/call", call).to_string();
    let mut stream = Streaming::open(url, "POST", &headers, &body);
    let question = stream.event().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let given = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer("Cleo")});
    assert_eq!(rpc(url, &headers, &given).0, 202);
    let end = stream.event().unwrap();
    assert_eq!(end["result"]["structuredContent"]["result"]["text"], "Hello Cleo", "{end}");
}
