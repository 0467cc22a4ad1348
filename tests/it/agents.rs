//! Agents over real sockets, on both wires: rosters, opening, step-up, definitions, publishing, what is hidden.

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, copy, http, root, rpc};
use crate::wire_double::{Streaming, header, request, with_meta};

/// A copy of the example home, which knows the server's own address.
pub(crate) fn example(extra: &str) -> TestHome {
    let home = TestHome::new();
    copy(&root().join("examples/agents"), home.path());
    let main = std::fs::read_to_string(home.path().join("docent.toml")).unwrap();
    home.write("docent.toml", &format!("{main}\n{extra}"));
    home
}

/// One caller on one of the wires.
#[derive(Clone)]
pub(crate) struct Client {
    url: String,
    token: String,
    session: Option<String>,
}

impl Client {
    pub(crate) fn stateless(url: &str, token: &str) -> Self {
        Self { url: url.to_owned(), token: token.to_owned(), session: None }
    }

    pub(crate) fn session(url: &str, token: &str) -> Self {
        let bearer = format!("Bearer {token}");
        let hello = request(
            0,
            "initialize",
            json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "it", "version": "1"},
                   "capabilities": {"extensions": {"io.modelcontextprotocol/agents": {}}}}),
        );
        let (status, head, answer) = rpc(url, &[("authorization", &bearer)], &hello);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            answer["result"]["capabilities"]["extensions"]["io.modelcontextprotocol/agents"],
            json!({"listChanged": true})
        );
        let session = header(&head, "mcp-session-id");
        Self { url: url.to_owned(), token: token.to_owned(), session }
    }

    /// Both wires.
    pub(crate) fn both(url: &str, token: &str) -> [Self; 2] {
        [Self::stateless(url, token), Self::session(url, token)]
    }

    fn headers<'a>(&'a self, bearer: &'a str, method: &'a str, name: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut headers = vec![("authorization", bearer)];
        match &self.session {
            Some(session) => headers.push(("mcp-session-id", session)),
            None => {
                headers.extend([("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)]);
                if method == "tools/call" {
                    headers.push(("mcp-name", name));
                }
            }
        }
        headers
    }

    /// Status, head, answer.
    pub(crate) fn ask(&self, method: &str, params: Value) -> (u16, String, Value) {
        let bearer = format!("Bearer {}", self.token);
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let params = if self.session.is_some() { params } else { with_meta(params) };
        rpc(&self.url, &self.headers(&bearer, method, &name), &request(1, method, params))
    }

    pub(crate) fn result(&self, method: &str, params: Value) -> Value {
        let (status, _, mut answer) = self.ask(method, params);
        assert_eq!(status, 200, "{method}: {answer}");
        answer["result"].take()
    }

    /// The stream on which this client hears of changes; it has been acknowledged.
    pub(crate) fn watch(&self) -> Streaming {
        let bearer = format!("Bearer {}", self.token);
        if self.session.is_some() {
            return Streaming::open(&self.url, "GET", &self.headers(&bearer, "", ""), "");
        }
        let filter = json!({"notifications": {"agentsListChanged": true, "surpriseListChanged": true}});
        let listen = request(7, "subscriptions/listen", with_meta(filter)).to_string();
        let headers = self.headers(&bearer, "subscriptions/listen", "");
        let mut stream = Streaming::open(&self.url, "POST", &headers, &listen);
        let first = stream.event().unwrap();
        assert_eq!(first["params"]["notifications"], json!({"agentsListChanged": true}));
        stream
    }
}

fn names(roster: &Value) -> Vec<&str> {
    roster["agents"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect()
}

fn listed_tools(client: &Client) -> Vec<Value> {
    client.result("tools/list", json!({}))["tools"].as_array().unwrap().clone()
}

#[test]
fn a_roster_has_routing_fields_and_an_opened_agent_the_very_tools_of_the_list() {
    let home = example("");
    let server = TestServer::start(home.path(), &[]);
    for alice in Client::both(&server.url, "alice-read") {
        let roster = alice.result("agents/list", json!({}));
        assert_eq!(names(&roster), ["deploy-agent", "pipeline-agent"]);
        assert_eq!(
            roster["agents"][1],
            json!({"name": "pipeline-agent", "description": "Finds out why pipelines fail", "capabilities": ["ci", "logs"]})
        );
        let frame = |r: &Value| (r["resultType"].clone(), r["ttlMs"].clone(), r["cacheScope"].clone());
        assert_eq!(frame(&roster), (json!("complete"), json!(60_000), json!("private")));
        let opened = alice.result("agents/get", json!({"name": "pipeline-agent"}));
        assert_eq!(frame(&opened), (json!("complete"), json!(60_000), json!("private")));
        assert_eq!(opened["agent"], "pipeline-agent");
        assert_eq!(opened["modelRoutingHint"], json!({"role": "small", "vision": false}));
        assert!(opened["instructions"].as_str().unwrap().starts_with("List the failed pipelines"));
        let listed = listed_tools(&alice);
        let tools = opened["tools"].as_array().unwrap();
        let own: Vec<&str> = tools.iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert_eq!(own, ["ops_list_failed_pipelines", "ops_get_pipeline_log"]);
        assert!(tools.iter().all(|t| listed.contains(t)), "field for field");
    }
    let compact = rpc(
        &server.url,
        &[
            ("authorization", "Bearer alice-read"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "server/discover"),
        ],
        &request(1, "server/discover", with_meta(json!({}))),
    );
    let extensions = &compact.2["result"]["capabilities"]["extensions"];
    assert_eq!(extensions["io.modelcontextprotocol/agents"], json!({"listChanged": true}));
}

#[test]
fn a_hidden_agent_is_one_that_never_was_and_opening_is_asked_in_order() {
    let home = example(concat!(
        "[agents.broken-agent]\ndescription = \"Names what is not there\"\ntools = [\"ops.no_such\"]\n",
        "[agents.hidden-broken]\ndescription = \"Never seen\"\ntools = [\"ops.no_such\"]\n",
        "[agents.guarded-broken]\ndescription = \"Guarded\"\ntools = [\"ops.no_such\"]\n",
        "[agents.refused-agent]\ndescription = \"Refused\"\n",
    ));
    home.write(
        "policies/20-more.rhai",
        "fn agent_visible(caller, agent) { agent.id != \"hidden-broken\" }\n\
         fn agent_open(caller, agent) {\n\
             if agent.id == \"guarded-broken\" { challenge([\"x:b\", \"x:a\"]) }\n\
             else if agent.id == \"refused-agent\" { deny(\"closed for today\") }\n\
             else { abstain() }\n\
         }\n",
    );
    let server = TestServer::start(home.path(), &[]);
    for alice in Client::both(&server.url, "alice-read") {
        let get = |name: &str| alice.ask("agents/get", json!({"name": name}));
        let absent = get("never-registered");
        assert_eq!(absent.2["error"]["code"], -32602);
        assert_eq!(absent.2["error"]["data"], json!({"reason": "agent_not_found"}));
        for hidden in ["billing-agent", "hidden-broken", "", "deploy-agent ", "DEPLOY-AGENT"] {
            let answer = get(hidden);
            assert_eq!((answer.0, &answer.2), (absent.0, &absent.2), "{hidden}");
            assert_eq!(without_date(&answer.1), without_date(&absent.1), "{hidden}");
        }
        let (status, head, answer) = get("guarded-broken");
        assert_eq!((status, &answer["error"]["data"]["scope"]), (403, &json!("x:a x:b")), "challenge first");
        assert!(head.contains("scope=\"x:a x:b\"") && head.contains("resource_metadata=\"http://"), "{head}");
        let (status, _, answer) = get("broken-agent");
        assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32603)));
        assert_eq!(answer["error"]["data"], json!({"reason": "invalid_agent_definition"}));
        assert!(!answer.to_string().contains("no_such"), "an operator's slip is not the caller's business");
        let (status, _, answer) = get("refused-agent");
        assert_eq!((status, &answer["error"]["data"]), (200, &json!({"reason": "agent_refused"})));
        assert!(answer["error"]["message"].as_str().unwrap().contains("closed for today"));
        let (_, _, answer) = alice.ask("agents/get", json!({"agent": "x"}));
        assert_eq!(answer["error"]["code"], -32602);
    }
    for bob in Client::both(&server.url, "bob-billing") {
        let opened = bob.result("agents/get", json!({"name": "billing-agent"}));
        assert_eq!(opened["tools"][0]["name"], "ops_list_invoices");
        assert_eq!(names(&bob.result("agents/list", json!({})))[0], "billing-agent");
    }
}

/// A head without what differs between any two answers: the date, and the length, which the correlation id in the
/// body is a part of (bodies are compared themselves).
pub(crate) fn without_date(head: &str) -> Vec<&str> {
    head.lines().filter(|l| !l.starts_with("date:") && !l.starts_with("content-length:")).collect()
}

#[test]
fn stepping_up_is_a_403_before_any_byte_and_a_broader_token_is_enough() {
    let home = example("");
    let server = TestServer::start(home.path(), &[]);
    for alice in Client::both(&server.url, "alice-read") {
        let run = |tool: &str| json!({"name": tool, "arguments": {"tool": "ops.deploy_service", "arguments": {"service": "a"}}});
        for (method, params) in [
            ("agents/get", json!({"name": "deploy-agent"})),
            ("tools/call", json!({"name": "ops_deploy_service", "arguments": {"service": "a"}})),
            ("tools/call", json!({"name": "ops.deploy_service", "arguments": {"service": "a"}})),
            ("tools/call", run("docent_run_tool")),
        ] {
            let (status, head, answer) = alice.ask(method, params);
            assert_eq!(status, 403, "{answer}");
            let challenge = header(&head, "www-authenticate").unwrap();
            assert!(challenge.starts_with("bearer error=\"insufficient_scope\", scope=\"ops:deploy\""));
            assert!(challenge.contains(".well-known/oauth-protected-resource/mcp"));
            assert!(head.contains("content-type: application/json") && head.contains("no-store"));
            assert_eq!(answer["id"], 1);
            assert_eq!(answer["error"]["data"]["required_scopes"], json!(["ops:deploy"]));
        }
        // What only reads refuses this tool before its rights are looked at by the upstream: no challenge for it.
        let (status, _, answer) = alice.ask("tools/call", run("docent_run_readonly_tool"));
        assert_eq!((status, &answer["result"]["isError"]), (200, &json!(true)));
    }
    for alice in Client::both(&server.url, "alice-deploy") {
        let opened = alice.result("agents/get", json!({"name": "deploy-agent"}));
        assert_eq!(opened["tools"][1]["name"], "ops_deploy_service");
        let call = json!({"name": "ops_deploy_service", "arguments": {"service": "a"}});
        assert_eq!(alice.result("tools/call", call)["structuredContent"]["data"]["deployed"], true);
    }
}

#[test]
fn a_client_that_cannot_act_on_a_403_is_told_in_a_result() {
    let home = example("");
    let main = std::fs::read_to_string(home.path().join("docent.toml")).unwrap();
    home.write("docent.toml", &main.replace("[server]\n", "[server]\nstep_up_as_result = [\"prob*\"]\n"));
    let server = TestServer::start(home.path(), &[]);
    // The stateless client of these tests calls itself `probe`, the session's `it`.
    let [probe, it] = Client::both(&server.url, "alice-read");
    for tool in ["ops_deploy_service", "docent_run_tool"] {
        let arguments = match tool {
            "docent_run_tool" => json!({"tool": "ops.deploy_service", "arguments": {"service": "a"}}),
            _ => json!({"service": "a"}),
        };
        let call = json!({"name": tool, "arguments": arguments});
        let told = probe.result("tools/call", call.clone());
        let error = &told["structuredContent"]["error"];
        assert_eq!((&told["isError"], &error["code"]), (&json!(true), &json!("FORBIDDEN")));
        assert_eq!(error["details"]["required_scopes"], json!(["ops:deploy"]));
        assert_eq!(it.ask("tools/call", call).0, 403);
    }
}

const RELEASE: &str = r#"{"name":"release-agent","description":"Notes","capabilities":[],"tools":["ops.list_failed_pipelines"]}"#;

fn admin(url: &str, token: &str, method: &str, path: &str, body: &str) -> (u16, String, Value) {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let (status, head, body) = http(url, method, path, &headers, body).unwrap();
    (status, head, serde_json::from_str(&body).unwrap_or(Value::Null))
}

#[test]
fn publishing_is_for_operators_and_everybody_who_sees_the_agent_hears_of_it() {
    let home = example("");
    home.write(
        "policies/20-more.rhai",
        "fn agent_visible(caller, agent) { agent.id != \"release-agent\" || !caller.has_scope(\"billing:read\") }\n",
    );
    let mut server = TestServer::start(home.path(), &[]);
    let url = server.url.clone();
    let (status, head, _) = admin(&url, "alice-read", "POST", "/api/v1/agents", RELEASE);
    assert!(status == 403 && head.contains("scope=\"docent:admin\""), "{head}");
    assert_eq!(admin(&url, "nobody", "GET", "/api/v1/agents", "").0, 401);
    for (body, field) in [
        ("{}", "/name"),
        (r#"{"name":"a b"}"#, "/name"),
        (r#"{"name":"a","tools":["x["]}"#, "/tools"),
        (r#"{"name":"a","model_hint":{"role":"huge"}}"#, "/model_hint"),
        (r#"{"name":"a","instruction":"x"}"#, ""),
        ("[1]", ""),
    ] {
        let (status, _, answer) = admin(&url, "publisher", "POST", "/api/v1/agents", body);
        assert_eq!((status, answer["error"]["field"].as_str().unwrap_or("")), (400, field), "{answer}");
    }
    let taken = RELEASE.replace("release-agent", "deploy-agent");
    assert_eq!(admin(&url, "publisher", "POST", "/api/v1/agents", &taken).0, 409);

    let alices = Client::both(&url, "alice-read");
    let bobs = Client::both(&url, "bob-billing");
    let mut heard: Vec<_> = alices.iter().map(Client::watch).collect();
    let mut silent: Vec<_> = bobs.iter().map(Client::watch).collect();
    assert_eq!(admin(&url, "publisher", "POST", "/api/v1/agents", RELEASE).0, 201);
    for stream in &mut heard {
        let told = stream.event().unwrap();
        assert_eq!(told["method"], "notifications/agents/list_changed");
        assert!(told["params"].is_object());
    }
    assert!(silent.iter_mut().all(Streaming::is_silent), "Bob's roster did not move");
    for alice in &alices {
        assert!(names(&alice.result("agents/list", json!({}))).contains(&"release-agent"));
    }
    assert!(!names(&bobs[0].result("agents/list", json!({}))).contains(&"release-agent"));

    // A reload changes nothing of it, and the home's own agents may be edited beside.
    let main = std::fs::read_to_string(home.path().join("docent.toml")).unwrap();
    home.write("docent.toml", &format!("{main}[agents.second]\ndescription = \"From an edit\"\n"));
    server.wait_for("/metrics", |_, text| text.contains("docent_generation 2"));
    let roster = alices[0].result("agents/list", json!({}));
    assert_eq!(names(&roster), ["deploy-agent", "pipeline-agent", "release-agent", "second"]);
    let told = heard[0].event().unwrap();
    assert_eq!(told["method"], "notifications/agents/list_changed", "an edit of the home");

    let (_, _, all) = admin(&url, "publisher", "GET", "/api/v1/agents", "");
    let sources: Vec<_> = all["agents"].as_array().unwrap().iter().map(|a| a["source"].clone()).collect();
    assert_eq!(sources.iter().filter(|s| *s == "published").count(), 1);
    assert_eq!(admin(&url, "publisher", "DELETE", "/api/v1/agents/release-agent", "").0, 204);
    assert_eq!(admin(&url, "publisher", "DELETE", "/api/v1/agents/release-agent", "").0, 404);
    assert!(!names(&alices[0].result("agents/list", json!({}))).contains(&"release-agent"));
}

#[test]
fn a_long_roster_comes_in_pages_and_bad_cursors_have_one_answer() {
    let extra: Vec<String> =
        (0..5).map(|n| format!("[agents.extra-{n}]\ndescription = \"Extra {n}\"\n")).collect();
    let home = example(&extra.concat());
    let main = std::fs::read_to_string(home.path().join("docent.toml")).unwrap();
    home.write("docent.toml", &main.replace("[server]\n", "[server]\npage_size = 2\n"));
    let server = TestServer::start(home.path(), &[]);
    for alice in Client::both(&server.url, "alice-read") {
        let (mut all, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = alice.result("agents/list", cursor.map_or(json!({}), |c| json!({ "cursor": c })));
            assert!(names(&page).len() <= 2);
            all.extend(names(&page).into_iter().map(str::to_owned));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        let wanted =
            ["deploy-agent", "extra-0", "extra-1", "extra-2", "extra-3", "extra-4", "pipeline-agent"];
        assert_eq!(all, wanted);
        let next = alice.result("agents/list", json!({}))["nextCursor"].as_str().unwrap().to_owned();
        let bob = Client::stateless(&server.url, "bob-billing");
        let bad = |client: &Client, cursor: &str| client.ask("agents/list", json!({ "cursor": cursor })).2;
        let answer = bad(&alice, "nonsense");
        assert_eq!(answer["error"]["code"], -32602);
        assert_eq!(bad(&bob, &next)["error"], answer["error"], "another caller's roster");
    }
}
