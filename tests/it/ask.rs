//! Scripts that ask the client of their call, on the stateless wire and in a session, over real sockets.

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, root, rpc};
use crate::wire_double::{Streaming, header, request, with_meta};

/// The conformance home has tools that ask.
fn server() -> TestServer {
    TestServer::start(&root().join("tests/fixtures/homes/conformance"), &[])
}

#[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
fn call(url: &str, tool: &str, capabilities: Value, more: Value) -> (u16, Value) {
    let mut params = json!({"name": tool, "arguments": {}});
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    let mut params = with_meta(params);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
    let (status, _, answer) = rpc(url, &headers, &request(1, "tools/call", params));
    (status, answer)
}

#[test]
fn answers_of_earlier_rounds_travel_with_the_state() {
    let server = server();
    let tool = "test_input_required_result_multi_round";
    let ask = |more: Value| call(&server.url, tool, json!({"elicitation": {}}), more).1;
    let answer = |key: &str, content: Value| json!({key: {"action": "accept", "content": content}});
    let first = ask(json!({}));
    assert_eq!(first["result"]["inputRequests"]["step1"]["method"], "elicitation/create", "{first}");
    let second = ask(json!({
        "inputResponses": answer("step1", json!({"name": "Ann"})),
        "requestState": first["result"]["requestState"],
    }));
    let requests = second["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(requests.keys().collect::<Vec<_>>(), ["step2"], "{second}");
    assert_ne!(second["result"]["requestState"], first["result"]["requestState"]);
    let last = ask(json!({
        "inputResponses": answer("step2", json!({"color": "blue"})),
        "requestState": second["result"]["requestState"],
    }));
    assert_eq!(last["result"]["structuredContent"]["text"], "Ann likes blue", "{last}");
    let forged = format!("{}x", second["result"]["requestState"].as_str().unwrap());
    let refused = ask(json!({"inputResponses": answer("step2", json!({})), "requestState": forged}));
    assert_eq!(refused["error"]["code"], -32602);
}

#[test]
fn what_the_client_did_not_declare_is_not_asked() {
    let server = server();
    let (status, answer) = call(&server.url, "test_missing_capability", json!({}), json!({}));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32021)));
    assert_eq!(answer["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}));
    let tool = "test_input_required_result_capabilities";
    let (_, some) = call(&server.url, tool, json!({"sampling": {}}), json!({}));
    let keys = some["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys, ["capital_question"]);
    let (_, none) = call(&server.url, tool, json!({}), json!({}));
    assert_eq!(none["result"]["structuredContent"]["text"], "This client can be asked nothing.");
}

#[test]
fn a_session_is_asked_for_one_thing_after_the_other() {
    let server = server();
    let hello = request(
        0,
        "initialize",
        json!({"protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}}, "clientInfo": {"name": "it", "version": "1"}}),
    );
    let session = header(&rpc(&server.url, &[], &hello).1, "mcp-session-id").unwrap();
    let headers = [("mcp-session-id", session.as_str())];
    let tool = "test_input_required_result_multiple_inputs";
    let body = request(5, "tools/call", json!({"name": tool, "arguments": {}})).to_string();
    let mut stream = Streaming::open(&server.url, "POST", &headers, &body);
    let mut asked = Vec::new();
    let last = loop {
        let message = stream.event().unwrap();
        let Some(method) = message["method"].as_str() else { break message };
        asked.push(method.to_owned());
        let result = match method {
            "elicitation/create" => json!({"action": "accept", "content": {"name": "Ann"}}),
            "sampling/createMessage" => {
                json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}})
            }
            _ => json!({"roots": [{"uri": "file:///home/ann"}]}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        assert_eq!(rpc(&server.url, &headers, &answer).0, 202);
    };
    assert_eq!(asked, ["elicitation/create", "sampling/createMessage", "roots/list"]);
    let text = last["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Ann") && text.contains("Paris") && text.contains("file:///home/ann"), "{text}");
}

#[test]
fn a_prompt_whose_tool_asks_comes_again_with_the_answer_and_a_session_is_told_to_call_the_tool() {
    let server = server();
    let name = "test_input_required_result_prompt";
    let get = |more: Value| {
        let mut params = with_meta(json!({"name": name}));
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "prompts/get"), ("mcp-name", name)];
        rpc(&server.url, &headers, &request(1, "prompts/get", params)).2["result"].clone()
    };
    let asked = get(json!({}));
    assert_eq!(
        (&asked["resultType"], asked["inputRequests"].as_object().unwrap().len()),
        (&json!("input_required"), 1)
    );
    let answer = json!({"user_name": {"action": "accept", "content": {"name": "Ann"}}});
    let done = get(json!({"inputResponses": answer, "requestState": asked["requestState"]}));
    assert!(done["messages"][0]["content"]["text"].as_str().unwrap().contains("Hello, Ann!"), "{done}");
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "it", "version": "1"}});
    let session =
        header(&rpc(&server.url, &[], &request(0, "initialize", hello)).1, "mcp-session-id").unwrap();
    let headers = [("mcp-session-id", session.as_str())];
    let refused = rpc(&server.url, &headers, &request(2, "prompts/get", json!({"name": name}))).2;
    assert!(refused["error"]["message"].as_str().unwrap().contains("asks its client"), "{refused}");
}

const PROMPTS: &str = r#"
kind = "script"
[[tool]]
id = "who"
description = "Asks for a name."
script = { file = "ask.rhai", run = "who" }
[[tool]]
id = "twice"
description = "Asks for a name, then for a colour."
script = { file = "ask.rhai", run = "twice" }
[[prompt]]
id = "both"
[[prompt.message]]
tool = "who"
[[prompt.message]]
text = "and"
[[prompt.message]]
tool = "twice"
"#;

const ASKS: &str = r#"
fn field(name) {
    let properties = #{};
    properties[name] = #{ type: "string" };
    #{ type: "object", properties: properties, required: [name] }
}
fn who(args, ctx) {
    let answers = ctx.ask([elicit("name", "Who?", field("name"))]);
    text(`First ${answers.name.content.name}`)
}
fn twice(args, ctx) {
    let first = ctx.ask([elicit("name", "Who else?", field("name"))]);
    let second = ctx.ask([elicit("colour", "Which colour?", field("colour"))]);
    text(`Then ${first.name.content.name} in ${second.colour.content.colour}`)
}
"#;

#[test]
fn tools_of_one_prompt_ask_together_and_each_gets_its_own_answers() {
    let home = TestHome::with(&[
        (
            "docent.toml",
            "[callers.anonymous]\n[upstreams]\nenabled = [\"q\"]\n[[allow]]\nupstreams = [\"q\"]\n",
        ),
        ("scripts/q/upstream.toml", PROMPTS),
        ("scripts/q/ask.rhai", ASKS),
    ]);
    let server = TestServer::start(home.path(), &[]);
    let get = |more: Value| {
        let mut params = with_meta(json!({"name": "q_both"}));
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "prompts/get"), ("mcp-name", "q_both")];
        rpc(&server.url, &headers, &request(1, "prompts/get", params)).2
    };
    let keys = |answer: &Value| {
        let asked = answer["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{answer}"));
        asked.keys().cloned().collect::<Vec<_>>()
    };
    let given = |content: Value| json!({"action": "accept", "content": content});
    let first = get(json!({}));
    assert_eq!(keys(&first), ["0.name", "2.name"], "{first}");
    let state = &first["result"]["requestState"];
    // Half of the answers: the other half is asked again.
    let half =
        get(json!({"inputResponses": {"2.name": given(json!({"name": "Bob"}))}, "requestState": state}));
    assert_eq!(keys(&half), ["0.name", "2.colour"], "{half}");
    let answers = json!({"0.name": given(json!({"name": "Ann"})), "2.name": given(json!({"name": "Bob"}))});
    let second = get(json!({"inputResponses": answers, "requestState": state}));
    assert_eq!(keys(&second), ["colour"], "what was answered is not asked again: {second}");
    let state = &second["result"]["requestState"];
    let answers = json!({"colour": given(json!({"colour": "red"}))});
    let last = get(json!({"inputResponses": answers, "requestState": state}))["result"].clone();
    let text = last["messages"].to_string();
    assert!(text.contains("First Ann") && text.contains("Then Bob in red"), "{last}");
    assert_eq!(last["messages"].as_array().unwrap().len(), 3);
    let forged = state.as_str().unwrap().replace("\"state\":\"", "\"state\":\"x");
    for bad in [json!("x"), json!(forged)] {
        let refused = get(json!({"inputResponses": {"colour": given(json!({}))}, "requestState": bad}));
        assert!(refused["error"]["message"].as_str().unwrap().contains("requestState"), "{refused}");
    }
}
