//! The stateless wire over HTTP: every check of a request in its order, and the shape of every answer.

use serde_json::{Value, json};

use crate::support::{http, rpc};
use crate::wire_double::{Streaming, WireServer, header, request, with_meta};

const JSON: (&str, &str) = ("content-type", "application/json");

fn code(body: &Value) -> i64 {
    body["error"]["code"].as_i64().unwrap_or(0)
}

#[test]
fn discovery_says_what_is_spoken_and_who_speaks() {
    let server = WireServer::open();
    let (status, head, body) = server.stateless(&[], "server/discover", json!({}));
    let result = &body["result"];
    assert_eq!((status, &body["id"]), (200, &json!(7)));
    assert_eq!(result["supportedVersions"], json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]));
    assert_eq!(result["capabilities"]["tools"], json!({"listChanged": true}));
    let progressive = &result["capabilities"]["extensions"]["dev.docent/progressive-tool-discovery"];
    assert_eq!(progressive["discoveryTool"], "double_search_tools");
    assert_eq!(result["instructions"], "for anonymous with probe");
    assert_eq!((&result["resultType"], &result["cacheScope"]), (&json!("complete"), &json!("private")));
    assert!(result["ttlMs"].is_u64());
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "double");
    assert!(result.get("serverInfo").is_none() && result.get("protocolVersion").is_none());
    assert_eq!(header(&head, "mcp-session-id"), None);
    assert_eq!(header(&head, "content-type").as_deref(), Some("application/json"));
}

#[test]
fn every_fault_of_a_request_has_its_code_and_status() {
    let server = WireServer::open();
    let list = |headers: &[(&str, &str)]| {
        let (status, _, body) = server.stateless(headers, "tools/list", json!({}));
        assert_eq!(body["id"], 7, "{body}");
        (status, code(&body))
    };
    assert_eq!(list(&[]), (200, 0));
    assert_eq!(list(&[("Mcp-Session-Id", "gone"), ("Last-Event-ID", "4")]), (200, 0), "both are ignored");
    assert_eq!(list(&[("MCP-METHOD", "tools/list")]), (200, 0));
    assert_eq!(list(&[("mcp-method", "  tools/list\t")]), (200, 0));
    assert_eq!(list(&[("accept", "*/*")]), (200, 0));
    for headers in [
        &[("mcp-protocol-version", "-")][..],
        &[("mcp-protocol-version", "2025-11-25")],
        &[("mcp-method", "-")],
        &[("mcp-method", "tools/call")],
        &[("mcp-method", "TOOLS/LIST")],
        &[("mcp-method", "tools/list"), ("Mcp-Method", "tools/list")],
    ] {
        assert_eq!(list(headers), (400, -32020), "{headers:?}");
    }
    let html = [JSON, ("accept", "text/html")];
    assert_eq!(http(&server.url, "POST", "/mcp", &html, "{}").unwrap().0, 406);
}

#[test]
fn meta_must_be_whole() {
    let server = WireServer::open();
    let meta = |key: &str, value: Value| {
        let mut params = with_meta(json!({}));
        params["_meta"][format!("io.modelcontextprotocol/{key}")] = value;
        params
    };
    let mut without = with_meta(json!({}));
    without["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    for params in [
        json!({}),
        json!({"_meta": {}}),
        without,
        meta("clientCapabilities", json!([])),
        meta("protocolVersion", json!(20_260_728)),
    ] {
        let (status, _, body) = rpc(&server.url, &headers, &request(3, "tools/list", params.clone()));
        assert_eq!((status, code(&body), &body["id"]), (400, -32602, &json!(3)), "{params}");
    }
    let mut anonymous = with_meta(json!({}));
    anonymous["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/clientInfo");
    assert_eq!(
        rpc(&server.url, &headers, &request(3, "tools/list", anonymous)).0,
        200,
        "clientInfo is optional"
    );
    let (status, _, body) = rpc(&server.url, &[], &request(3, "server/discover", json!({})));
    assert_eq!((status, code(&body)), (400, -32602));
}

#[test]
fn an_unknown_version_is_told_which_are_known() {
    let server = WireServer::open();
    for version in ["2099-01-01", "1999-01-01", "2025-11-25"] {
        let mut params = with_meta(json!({}));
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(version);
        let headers = [("mcp-protocol-version", version), ("mcp-method", "tools/list")];
        let (status, _, body) = rpc(&server.url, &headers, &request(1, "tools/list", params));
        assert_eq!((status, code(&body)), (400, -32022));
        assert_eq!(body["error"]["data"]["requested"], version);
        assert!(body["error"]["data"]["supported"].as_array().unwrap().contains(&json!("2026-07-28")));
    }
}

#[test]
fn names_and_arguments_in_headers_must_match_the_body() {
    let server = WireServer::open();
    let call = |headers: &[(&str, &str)], tool: &str, arguments: Value| {
        let (status, _, body) =
            server.stateless(headers, "tools/call", json!({"name": tool, "arguments": arguments}));
        (status, code(&body))
    };
    assert_eq!(call(&[], "echo", json!({})), (200, 0));
    assert_eq!(call(&[("mcp-name", "=?base64?ZWNobw==?=")], "echo", json!({})), (200, 0));
    for name in ["-", "fail", "ECHO", "=?base64?ZmFpbA==?=", "=?base64?***?="] {
        assert_eq!(call(&[("mcp-name", name)], "echo", json!({})), (400, -32020), "{name}");
    }
    let good = [("mcp-param-region", "eu"), ("Mcp-Param-Count", "7")];
    assert_eq!(call(&good, "routed", json!({"region": "eu", "count": 7})), (200, 0));
    assert_eq!(call(&good, "routed", json!({"region": "us", "count": 7})), (400, -32020));
    assert_eq!(call(&[], "routed", json!({"region": "eu"})), (400, -32020));
    assert_eq!(call(&[], "routed", json!({})), (200, 0));
    assert_eq!(call(&good, "echo", json!({})), (200, 0), "headers of no argument are nothing to look at");
}

#[test]
fn unknown_methods_are_404_and_other_faults_of_a_method_are_200() {
    let server = WireServer::open();
    for method in
        ["initialize", "ping", "resources/list", "prompts/list", "logging/setLevel", "tools/LIST", ""]
    {
        let (status, _, body) = server.stateless(&[], method, json!({}));
        assert_eq!((status, code(&body)), (404, -32601), "{method}");
    }
    for (method, params) in [
        ("tools/list", json!({"cursor": "forged"})),
        ("tools/list", json!({"cursor": 7})),
        ("tools/call", json!({"name": "nothing"})),
        ("tools/call", json!({"name": "echo", "arguments": [1]})),
    ] {
        let (status, _, body) = server.stateless(&[], method, params.clone());
        assert_eq!((status, code(&body)), (200, -32602), "{method} {params}");
    }
    let (status, _, body) = server.stateless(&[("mcp-name", "-")], "tools/call", json!({}));
    assert_eq!((status, code(&body)), (200, -32602), "a call without a name");
}

#[test]
fn a_hidden_tool_and_an_unknown_one_answer_alike_byte_for_byte() {
    let server = WireServer::open();
    let answer = |tool: &str| {
        let (status, _, body) =
            server.stateless(&[], "tools/call", json!({"name": tool, "arguments": {"region": "eu"}}));
        (status, body.to_string())
    };
    assert_eq!(answer("hidden_tool"), answer("no_such_tool_at_all"));
}

#[test]
fn lists_come_in_pages_in_the_full_shape() {
    let server = WireServer::open();
    let (mut names, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let (_, _, body) = server.stateless(&[], "tools/list", params);
        let result = body["result"].clone();
        assert_eq!((&result["cacheScope"], &result["resultType"]), (&json!("private"), &json!("complete")));
        names.extend(
            result["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()),
        );
        if names.len() == 3 {
            let echo = &result["tools"][0];
            assert_eq!(echo["outputSchema"], json!({"type": "object"}));
            assert_eq!(
                (&echo["title"], &echo["description"]),
                (&json!("The echo tool"), &json!("Does echo."))
            );
        }
        cursor = result["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(names, ["echo", "routed", "progress", "slow", "fail", "guarded", "crash"]);
}

#[test]
fn results_failures_and_faults_of_a_call() {
    let server = WireServer::open();
    let call = |tool: &str, arguments: Value| {
        server.stateless(&[], "tools/call", json!({"name": tool, "arguments": arguments}))
    };
    let (_, _, body) = call("echo", json!({"a": [1, {"b": "\u{fc}\n"}]}));
    let result = &body["result"];
    assert_eq!(result["structuredContent"]["arguments"], json!({"a": [1, {"b": "\u{fc}\n"}]}));
    assert_eq!(result["structuredContent"]["client"], "probe");
    assert_eq!(result["content"][0]["text"].as_str().unwrap(), result["structuredContent"].to_string());
    assert_eq!((&result["isError"], &result["resultType"]), (&json!(false), &json!("complete")));
    let (status, _, body) = call("fail", json!({}));
    assert_eq!((status, &body["result"]["isError"]), (200, &json!(true)));
    assert_eq!(body["result"]["structuredContent"]["error"]["code"], "CONFLICT");
    let (status, _, body) = call("crash", json!({}));
    assert_eq!((status, code(&body)), (200, -32603), "a fault inside ends one call, not the server");
    let (_, _, body) = http(
        &server.url,
        "POST",
        "/mcp?discovery=compact",
        &[
            JSON,
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "echo"),
        ],
        &request(1, "tools/call", with_meta(json!({"name": "echo"}))).to_string(),
    )
    .map(|(s, h, b)| (s, h, serde_json::from_str::<Value>(&b).unwrap()))
    .unwrap();
    assert_eq!(body["result"]["structuredContent"]["discovery"], "compact");
    assert_eq!(http(&server.url, "POST", "/mcp?discovery=all", &[JSON], "{}").unwrap().0, 400);
}

#[test]
fn progress_streams_only_for_those_who_asked_and_take_events() {
    let server = WireServer::open();
    let params = with_meta(json!({"name": "progress", "_meta": {"progressToken": "p-1"}}));
    let body = request(5, "tools/call", params).to_string();
    let headers =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "progress")];
    let mut stream = Streaming::open(&server.url, "POST", &headers, &body);
    assert_eq!(header(&stream.head, "content-type").as_deref(), Some("text/event-stream"));
    assert_eq!(header(&stream.head, "x-accel-buffering").as_deref(), Some("no"));
    let mut steps = Vec::new();
    let answer = loop {
        let event = stream.event().expect("a response");
        if event.get("id").is_some() {
            break event;
        }
        assert_eq!(event["method"], "notifications/progress");
        assert_eq!(event["params"]["progressToken"], "p-1");
        steps.push(event["params"]["progress"].as_f64().unwrap());
    };
    assert_eq!(steps, [0.0, 50.0, 100.0]);
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(5), &json!("progress is done"))
    );
    assert!(stream.event().is_none(), "the stream ends with the response");
    let (status, head, answer) = server.stateless(&[], "tools/call", json!({"name": "progress"}));
    assert_eq!(
        (status, header(&head, "content-type").as_deref()),
        (200, Some("application/json")),
        "no token"
    );
    assert_eq!(answer["result"]["content"][0]["text"], "progress is done");
    let token = json!({"name": "progress", "_meta": {"progressToken": 4}});
    let mut all = headers.to_vec();
    all.extend([JSON, ("accept", "application/json")]);
    let (_, head, _) =
        http(&server.url, "POST", "/mcp", &all, &request(5, "tools/call", with_meta(token)).to_string())
            .unwrap();
    assert_eq!(
        header(&head, "content-type").as_deref(),
        Some("application/json"),
        "no event stream accepted"
    );
}

#[test]
fn a_client_that_goes_away_cancels_its_call() {
    let server = WireServer::open();
    let headers = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: slow\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n";
    let body = request(5, "tools/call", with_meta(json!({"name": "slow"}))).to_string();
    let host = server.url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    let text = format!(
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
    server.until("the call begins", |d| d.began.load(std::sync::atomic::Ordering::SeqCst) == 1);
    drop(stream);
    server.until("the call is cancelled", |d| d.cancelled.load(std::sync::atomic::Ordering::SeqCst) == 1);
}

#[test]
fn a_subscription_acknowledges_tells_changes_and_ends_in_order() {
    let server = WireServer::open();
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let ask = |id: Value, filter: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": with_meta(json!({"notifications": filter}))}).to_string()
    };
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a://b"], "agentsListChanged": 1});
    let mut tools = Streaming::open(&server.url, "POST", &headers, &ask(json!("s-1"), all));
    let mut nothing = Streaming::open(&server.url, "POST", &headers, &ask(json!(9), json!({})));
    let first = tools.event().unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({"toolsListChanged": true}), "only what is honoured");
    assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s-1");
    let first = nothing.event().unwrap();
    assert_eq!(first["params"]["notifications"], json!({}));
    assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 9, "the type is kept");
    server.double.touch();
    assert!(tools.is_silent(), "a generation with the same surface is not news");
    server.double.add("new");
    let changed = tools.event().unwrap();
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s-1");
    assert!(nothing.is_silent(), "nothing that was not asked for");
    server.mcp.drain();
    let end = tools.event().unwrap();
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("s-1"), &json!("complete")));
    assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s-1");
    assert!(tools.event().is_none());
    let (status, _, body) = server.stateless(&[], "subscriptions/listen", json!({}));
    assert_eq!((status, code(&body)), (200, -32602), "without a filter");
}

#[test]
fn streams_are_counted_and_given_back() {
    let server = WireServer::open();
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let body =
        request(1, "subscriptions/listen", with_meta(json!({"notifications": {"toolsListChanged": true}})))
            .to_string();
    let stream = Streaming::open(&server.url, "POST", &headers, &body);
    assert_eq!((stream.status, server.mcp.stream_count()), (200, 1));
    drop(stream);
    for _ in 0..500 {
        if server.mcp.stream_count() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the stream is still counted");
}

#[test]
fn a_challenge_is_a_403_before_any_byte_of_a_body() {
    let server = WireServer::open();
    let params = json!({"name": "guarded", "_meta": {"progressToken": 1}});
    let (status, head, body) = server.stateless(&[], "tools/call", params);
    assert_eq!((status, &body["id"], code(&body)), (403, &json!(7), 403));
    assert_eq!(body["error"]["data"]["required_scopes"], json!(["ops:deploy", "ops:read"]));
    let challenge = header(&head, "www-authenticate").unwrap();
    let host = server.url.trim_start_matches("http://");
    assert_eq!(
        challenge,
        format!(
            "bearer error=\"insufficient_scope\", scope=\"ops:deploy ops:read\", resource_metadata=\"http://{host}/.well-known/oauth-protected-resource/mcp\""
        )
    );
}

#[test]
fn notifications_are_accepted_and_responses_are_not() {
    let server = WireServer::open();
    let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": with_meta(json!({"requestId": 1}))});
    let (status, _, body) = rpc(&server.url, &[("mcp-protocol-version", "2026-07-28")], &note);
    assert_eq!((status, body), (202, json!("")));
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(rpc(&server.url, &[("mcp-protocol-version", "2026-07-28")], &response).0, 400);
}
