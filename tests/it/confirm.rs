//! The confirm gate over real sockets and pipes: operators' answers, clients' answers, sealed state.

use std::io::{BufRead, BufReader, Write};
use std::process::ChildStdin;

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, http, pipe, rpc};
use crate::wire_double::{Streaming, header, request, with_meta};

const MAIN: &str = "[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\"]\n\
    [callers.alice]\ntoken_hash = \"sha256:2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90\"\n\
    [callers.bob]\ntoken_hash = \"sha256:81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9\"\n\
    scopes = [\"docent:admin\"]\n";
const PACK: &str = "kind = \"script\"\n\
    [[tool]]\nid = \"drop\"\ndescription = \"Drops a table.\"\nscript = { file = \"u.rhai\", run = \"done\" }\n\
    input_schema = { type = \"object\", required = [\"table\"], additionalProperties = false, properties = { table = { type = \"string\" } } }\n\
    [[tool]]\nid = \"ask\"\ndescription = \"Asks first.\"\nscript = { file = \"u.rhai\", run = \"done\" }\n";
const SCRIPT: &str = "fn done(args, ctx) { json(#{ done: true }) }\n";
const POLICY: &str = "fn rules(p) {\n  p.allow().upstream(\"u\");\n  p.confirm(\"Really drop it?\").tool(\"u.drop\");\n  \
    p.confirm(\"Go on?\").by_client().tool(\"u.ask\");\n}\n";

fn home() -> TestHome {
    TestHome::with(&[
        ("docent.toml", MAIN),
        ("scripts/u/upstream.toml", PACK),
        ("scripts/u/u.rhai", SCRIPT),
        ("policies/p.rhai", POLICY),
    ])
}

fn bearer(who: &str) -> String {
    format!("Bearer {who}")
}

/// A stateless call with members beside `name` and `arguments`; the client can show forms or not.
#[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
fn call(url: &str, who: &str, tool: &str, arguments: Value, more: Value, forms: bool) -> Value {
    let mut params = json!({"name": tool, "arguments": arguments});
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    let mut params = with_meta(params);
    if forms {
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    }
    let bearer = bearer(who);
    let headers = [
        ("authorization", bearer.as_str()),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ];
    let (status, _, answer) = rpc(url, &headers, &request(1, "tools/call", params));
    assert_eq!(status, 200, "{answer}");
    answer
}

fn admin(url: &str, who: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let bearer = bearer(who);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let (status, _, body) = http(url, method, path, &headers, body).unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

fn error(answer: &Value) -> &Value {
    &answer["result"]["structuredContent"]["error"]
}

#[test]
fn an_operators_yes_is_a_grant_for_one_caller_and_one_tool() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let url = &server.url;
    let drop = |who: &str, table: &str| call(url, who, "u_drop", json!({"table": table}), json!({}), true);
    let first = drop("alice", "a");
    assert_eq!(error(&first)["code"], "CONFIRMATION_REQUIRED", "{first}");
    assert_eq!(error(&first)["details"]["confirmationChannel"], "console");
    let id = error(&first)["details"]["confirmation_id"].as_str().unwrap().to_owned();
    let inner = json!({"tool": "u.drop", "arguments": {"table": "a"}});
    let again = call(url, "alice", "docent_run_tool", inner.clone(), json!({}), false);
    assert_eq!(
        error(&again)["details"]["confirmation_id"],
        json!(id),
        "the dispatcher asks the same question"
    );

    let path = |verdict: &str| format!("/api/v1/confirmations/{id}/{verdict}");
    assert_eq!(admin(url, "alice", "GET", "/api/v1/confirmations", "").0, 403);
    let (_, book) = admin(url, "bob", "GET", "/api/v1/confirmations", "");
    assert_eq!(book["pending"][0]["id"], json!(id));
    assert_eq!(book["pending"][0]["arguments"], "table: \"a\"");
    assert_eq!(admin(url, "bob", "POST", &path("approve"), r#"{"for":"ever"}"#).0, 400);
    assert_eq!(admin(url, "bob", "POST", &path("approve"), "").0, 204);
    assert_eq!(admin(url, "bob", "POST", &path("approve"), "").0, 404);

    let granted = drop("alice", "another");
    assert_eq!(granted["result"]["structuredContent"]["data"]["done"], true, "{granted}");
    let left = granted["result"]["_meta"]["dev.docent/grant"]["expires_in_seconds"].as_u64().unwrap();
    assert!((1_700..=1_800).contains(&left));
    let run = call(url, "alice", "docent_run_tool", inner, json!({}), false);
    assert_eq!(run["result"]["isError"], false, "{run}");
    // Bob has the right to answer, but not to himself.
    let own = drop("bob", "a");
    let own_id = error(&own)["details"]["confirmation_id"].as_str().unwrap().to_owned();
    assert_eq!(admin(url, "bob", "POST", &format!("/api/v1/confirmations/{own_id}/approve"), "").0, 403);

    let (_, book) = admin(url, "bob", "GET", "/api/v1/confirmations", "");
    let grant = book["grants"][0]["id"].as_str().unwrap();
    assert_eq!(admin(url, "bob", "DELETE", &format!("/api/v1/grants/{grant}"), "").0, 204);
    assert_eq!(error(&drop("alice", "another"))["code"], "CONFIRMATION_REQUIRED");
}

#[test]
fn a_yes_to_one_call_is_for_it_alone_and_a_no_is_told() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let url = &server.url;
    let drop = |table: &str| call(url, "alice", "u_drop", json!({"table": table}), json!({}), false);
    let answer = |table: &str, verdict: &str, body: &str| {
        let id = error(&drop(table))["details"]["confirmation_id"].as_str().unwrap().to_owned();
        assert_eq!(admin(url, "bob", "POST", &format!("/api/v1/confirmations/{id}/{verdict}"), body).0, 204);
    };
    answer("a", "approve", r#"{"for":"call"}"#);
    assert_eq!(error(&drop("b"))["code"], "CONFIRMATION_REQUIRED");
    assert_eq!(drop("a")["result"]["isError"], false);
    assert_eq!(error(&drop("a"))["code"], "CONFIRMATION_REQUIRED", "once");
    answer("b", "deny", "");
    let denied = drop("b");
    assert_eq!(error(&denied)["code"], "FORBIDDEN", "{denied}");
    // Nobody is asked about a call that cannot be made.
    let wrong = call(url, "alice", "u_drop", json!({"tabel": "a"}), json!({}), false);
    assert_eq!(error(&wrong)["code"], "INVALID_ARGUMENT");
}

#[test]
fn a_stateless_client_answers_by_a_sealed_state_for_this_call_only() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let url = &server.url;
    let ask = |who: &str, more: Value| call(url, who, "u_ask", json!({}), more, true);
    let question = ask("alice", json!({}));
    let result = &question["result"];
    assert_eq!(result["resultType"], "input_required", "{question}");
    assert!(result.get("ttlMs").is_none() && result.get("content").is_none());
    let elicit = &result["inputRequests"]["confirm"];
    assert_eq!(elicit["method"], "elicitation/create");
    assert!(elicit["params"]["message"].as_str().unwrap().starts_with("Go on?"));
    let state = result["requestState"].as_str().unwrap().to_owned();
    let accept = json!({"confirm": {"action": "accept", "content": {}}});
    let with = |state: &str, responses: &Value| json!({"requestState": state, "inputResponses": responses});

    let stolen = ask("bob", with(&state, &accept));
    assert_eq!(stolen["error"]["code"], -32602, "another caller's");
    let moved = call(
        url,
        "alice",
        "docent_run_tool",
        json!({"tool": "u.ask", "arguments": {"x": 1}}),
        with(&state, &accept),
        true,
    );
    assert_eq!(moved["error"], stolen["error"], "other arguments");
    for at in [0, state.len() / 2, state.len() - 1] {
        let mut forged = state.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert_eq!(ask("alice", with(&forged, &accept))["error"], stolen["error"], "byte {at}");
    }
    for incomplete in
        [json!({}), json!({"other": {"action": "accept"}}), json!({"confirm": {"action": "perhaps"}})]
    {
        assert_eq!(ask("alice", with(&state, &incomplete))["result"]["resultType"], "input_required");
    }
    assert_eq!(
        ask("alice", json!({"inputResponses": accept}))["result"]["resultType"],
        "input_required",
        "no state"
    );
    let declined = ask("alice", with(&state, &json!({"confirm": {"action": "decline"}})));
    assert_eq!(error(&declined)["code"], "FORBIDDEN");
    let done = ask("alice", with(&state, &accept));
    assert_eq!(done["result"]["structuredContent"]["data"]["done"], true, "{done}");
    assert_eq!(ask("alice", with(&state, &accept))["result"]["resultType"], "input_required", "used once");

    let mute = call(url, "alice", "u_ask", json!({}), json!({}), false);
    assert_eq!(error(&mute)["details"]["confirmationChannel"], "console", "it cannot ask");
    let own_word = call(url, "alice", "u_drop", json!({"table": "a"}), with(&state, &accept), true);
    assert_eq!(error(&own_word)["code"], "CONFIRMATION_REQUIRED", "the policy does not take a client's word");
}

#[test]
fn a_session_is_asked_on_the_stream_of_its_call() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let bearer = bearer("alice");
    let open = |capabilities: Value| {
        let hello = request(
            0,
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "it", "version": "1"}}),
        );
        let (_, head, _) = rpc(&server.url, &[("authorization", &bearer)], &hello);
        header(&head, "mcp-session-id").unwrap()
    };
    let session = open(json!({"elicitation": {"form": {}}}));
    let headers = [("authorization", bearer.as_str()), ("mcp-session-id", session.as_str())];
    let call = request(5, "tools/call", json!({"name": "u_ask", "arguments": {}})).to_string();
    for (action, code) in [("accept", Value::Null), ("decline", json!("FORBIDDEN"))] {
        let mut stream = Streaming::open(&server.url, "POST", &headers, &call);
        assert!(stream.head.contains("text/event-stream"), "{}", stream.head);
        let question = stream.event().unwrap();
        assert_eq!(question["method"], "elicitation/create");
        let answer =
            json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action, "content": {}}});
        let foreign =
            rpc(&server.url, &[("authorization", "Bearer bob"), ("mcp-session-id", &session)], &answer);
        assert_eq!(foreign.0, 404, "another caller's session");
        assert_eq!(rpc(&server.url, &headers, &answer).0, 202);
        let last = stream.event().unwrap();
        assert_eq!((&last["id"], &error(&last)["code"]), (&json!(5), &code), "{last}");
    }
    // A client that answers with an error cannot ask: an operator is asked instead.
    let mut stream = Streaming::open(&server.url, "POST", &headers, &call);
    let question = stream.event().unwrap();
    let failed = json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}});
    assert_eq!(rpc(&server.url, &headers, &failed).0, 202);
    assert_eq!(error(&stream.event().unwrap())["details"]["confirmationChannel"], "console");
    // One that declared nothing is not asked.
    let session = open(json!({}));
    let headers = [("authorization", bearer.as_str()), ("mcp-session-id", session.as_str())];
    let (_, _, answer) = rpc(&server.url, &headers, &serde_json::from_str(&call).unwrap());
    assert_eq!(error(&answer)["code"], "CONFIRMATION_REQUIRED");
}

#[test]
fn a_pipe_is_asked_between_its_lines() {
    let home = home();
    let data = tempfile::tempdir().unwrap();
    let mut child = pipe(home.path(), data.path(), Some("alice"));
    let mut stdin: ChildStdin = child.stdin.take().unwrap();
    let mut say = |message: &Value| writeln!(stdin, "{message}").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut hear = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    say(&request(
        0,
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "it", "version": "1"}}),
    ));
    assert_eq!(hear()["id"], 0);
    say(&request(1, "tools/call", json!({"name": "u_ask", "arguments": {}})));
    let question = hear();
    assert_eq!(question["method"], "elicitation/create");
    say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}));
    let done = hear();
    assert_eq!(done["result"]["structuredContent"]["data"]["done"], true, "{done}");
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// A home in which anybody opens issues, and `rule` decides who does something to one.
fn issues(deed: &str, rule: &str) -> TestHome {
    let home = home();
    home.write(
        "scripts/u/upstream.toml",
        &format!(
            "kind = \"script\"\n[[tool]]\nid = \"open\"\ndescription = \"Opens an issue.\"\n\
             script = {{ file = \"u.rhai\", run = \"opened\" }}\ncreates = {{ kind = \"issue\", id = \"/number\" }}\n\
             [[tool]]\nid = \"{deed}\"\ndescription = \"Does it to an issue.\"\nscript = {{ file = \"u.rhai\", run = \"done\" }}\n"
        ),
    );
    home.write(
        "scripts/u/u.rhai",
        "fn opened(args, ctx) { json(#{ number: args.n }) }\nfn done(args, ctx) { json(#{ done: true }) }\n",
    );
    home.write(
        "policies/p.rhai",
        &format!(
            "fn rules(p) {{ p.allow().tool(\"u.open\"); }}\nfn decide(caller, tool, args) {{\n\
               if tool.matches(\"u.{deed}\") {{ {rule} }} else {{ abstain() }}\n}}\n"
        ),
    );
    home
}

#[test]
fn a_caller_may_close_what_it_opened_and_nothing_else() {
    let home = issues("close", "if owns(\"issue\", args.number) { allow() } else { deny(\"not yours\") }");
    let mut server = TestServer::start(home.path(), &[]);
    let url = server.url.clone();
    let call = |who: &str, tool: &str, arguments: Value| call(&url, who, tool, arguments, json!({}), false);
    let close = |who: &str| call(who, "u_close", json!({"number": 7}));
    assert!(error(&close("alice"))["message"].as_str().unwrap().contains("not yours"));
    assert_eq!(call("alice", "u_open", json!({"n": 7}))["result"]["isError"], false);
    for _ in 0..2 {
        assert_eq!(close("alice")["result"]["structuredContent"]["data"]["done"], true);
        assert!(error(&close("bob"))["message"].as_str().unwrap().contains("not yours"));
        server.kill_and_restart(home.path());
    }
}

#[test]
fn what_a_caller_creates_in_one_process_is_its_own_in_another_at_once() {
    // Four eyes: not to know of it would let it pass.
    let home =
        issues("approve", "if owns(\"issue\", args.number) { deny(\"not your own\") } else { allow() }");
    let server = TestServer::start(home.path(), &[]);
    let approve = |who: &str, n: i64| {
        call(&server.url, who, "u_approve", json!({"number": n}), json!({}), false)
            .to_string()
            .contains("not your own")
    };
    assert!(!approve("alice", 1));
    let mut other = pipe(home.path(), server.data(), Some("alice"));
    let (mut stdin, mut lines) = (other.stdin.take().unwrap(), BufReader::new(other.stdout.take().unwrap()));
    for n in 1..20 {
        let message = request(n, "tools/call", with_meta(json!({"name": "u_open", "arguments": {"n": n}})));
        writeln!(stdin, "{message}").unwrap();
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("\"isError\":false"), "{line}");
        assert!(approve("alice", n), "{n}: the other process knows it as soon as its maker does");
        assert!(!approve("bob", n));
    }
    drop(stdin);
    other.wait().unwrap();
}

#[test]
fn questions_grants_and_used_answers_survive_a_kill() {
    let home = home();
    home.write(
        "docent.toml",
        &format!("{MAIN}[server]\ncursor_key = \"0123456789abcdef0123456789abcdef\"\n"),
    );
    let mut server = TestServer::start(home.path(), &[]);
    let url = server.url.clone();
    let drop = |table: &str| call(&url, "alice", "u_drop", json!({"table": table}), json!({}), false);
    let id = |table: &str| error(&drop(table))["details"]["confirmation_id"].as_str().unwrap().to_owned();
    let settle = |id: &str, verdict: &str, body: &str| {
        assert_eq!(admin(&url, "bob", "POST", &format!("/api/v1/confirmations/{id}/{verdict}"), body).0, 204);
    };
    settle(&id("once"), "approve", r#"{"for":"call"}"#);
    settle(&id("never"), "deny", "");
    let waiting = id("later");
    // The state of an answer is sealed with a key that outlives the process: used is used all the same.
    let ask = |more: Value| call(&url, "alice", "u_ask", json!({}), more, true);
    let state = ask(json!({}))["result"]["requestState"].as_str().unwrap().to_owned();
    let accept =
        json!({"requestState": state, "inputResponses": {"confirm": {"action": "accept", "content": {}}}});
    assert_eq!(ask(accept.clone())["result"]["structuredContent"]["data"]["done"], true);

    server.kill_and_restart(home.path());
    assert_eq!(ask(accept)["result"]["resultType"], "input_required", "it was used before the kill");
    assert_eq!(id("later"), waiting, "the same question");
    assert_eq!(error(&drop("never"))["code"], "FORBIDDEN");
    assert_eq!(drop("once")["result"]["isError"], false);
    server.kill_and_restart(home.path());
    assert_eq!(error(&drop("once"))["code"], "CONFIRMATION_REQUIRED", "it was used up before the kill");
    settle(&waiting, "approve", "");
    server.kill_and_restart(home.path());
    let granted = drop("anything");
    assert_eq!(granted["result"]["isError"], false, "{granted}");
    let (_, book) = admin(&url, "bob", "GET", "/api/v1/confirmations", "");
    let grant = book["grants"][0]["id"].as_str().unwrap();
    assert_eq!(admin(&url, "bob", "DELETE", &format!("/api/v1/grants/{grant}"), "").0, 204);
    server.kill_and_restart(home.path());
    assert_eq!(
        error(&drop("anything"))["code"],
        "CONFIRMATION_REQUIRED",
        "a revoked grant does not come back"
    );
}
