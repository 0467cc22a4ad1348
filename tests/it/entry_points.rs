//! Every entry point by name: each method of the wire, each meta-tool, each path of the API. One that is added
//! without standing here fails. What is hidden, denied or another caller's is what never was, byte for byte,
//! on both wires, over HTTP and over a pipe.

use std::collections::BTreeSet;

use docent::auth::TokenHash;
use serde_json::{Value, json};

use crate::agents::without_date;
use crate::one_decision::{Http, Pipe, Way, comparable};
use crate::support::{TestHome, TestServer, copy, http, root, rpc};
use crate::wire_double::{Streaming, request, with_meta};

const PACK: &str = r#"
kind = "script"
[[tool]]
id = "seen"
description = "Everybody sees it."
annotations = { read_only = true }
script = { file = "u.rhai", run = "done" }
input_schema = { type = "object", properties = { v = {} } }
[[tool]]
id = "relay"
description = "Calls a tool by its name."
annotations = { read_only = true }
script = { file = "u.rhai", run = "relay" }
input_schema = { type = "object", required = ["tool"], properties = { tool = { type = "string" } } }
[[tool]]
id = "hiddn"
description = "A secret lighthouse."
category = "lighthouses"
tags = ["hidden"]
annotations = { read_only = true }
script = { file = "u.rhai", run = "done" }
[[tool]]
id = "denyd"
description = "A denied lighthouse."
tags = ["denied"]
annotations = { read_only = true }
script = { file = "u.rhai", run = "done" }
[[resource]]
uri = "u://open1"
name = "open1"
text = "For all."
[[resource]]
uri = "u://hiddn"
name = "rhidn"
tags = ["hidden"]
text = "A lighthouse."
[[resource]]
uri = "u://denyd"
name = "rdeny"
tags = ["denied"]
text = "A lighthouse."
[[resource]]
uri = "u://tools"
name = "rtool"
tool = "hiddn"
[[resource]]
uri = "u://hidtm/{id}"
name = "thidn"
tags = ["hidden"]
text = "Lighthouse {id}."
[[prompt]]
id = "popen"
text = "For all."
[[prompt]]
id = "phidn"
tags = ["hidden"]
text = "A lighthouse."
[[prompt.argument]]
name = "a"
values = ["lamp"]
[[prompt]]
id = "pdeny"
tags = ["denied"]
text = "A lighthouse."
"#;
const SCRIPT: &str = "fn done(args, ctx) { json(#{ done: true }) }\n\
    fn relay(args, ctx) { json(ctx.call(args.tool, #{})) }\n";
const COMMANDS: &str = "kind = \"command\"\n\
    [[tool]]\nid = \"rows\"\ndescription = \"Numbers as rows.\"\nannotations = { read_only = true }\n\
    run = [\"seq\", \"1\", \"250\"]\nlines = { columns = [\"n\"] }\n\
    [[tool]]\nid = \"nap\"\ndescription = \"Sleeps.\"\nannotations = { read_only = true }\nrun = [\"sleep\", \"2\"]\n\
    [[tool]]\nid = \"count\"\ndescription = \"Counts the bytes of a file.\"\nannotations = { read_only = true }\npaths = [\"file\"]\n\
    input_schema = { type = \"object\", required = [\"file\"], properties = { file = { type = \"string\" } } }\n\
    run = [\"wc\", \"-c\", \"{file}\"]\n";
const POLICY: &str = "fn rules(p) {\n  p.allow();\n  p.hide().tags([\"hidden\"]);\n  p.deny(\"no lighthouse\").tags([\"denied\"]);\n}\n\
    fn agent_visible(caller, agent) { agent.id != \"hiddn\" && agent.id != \"alone\" }\n\
    fn agent_open(caller, agent) { if agent.id == \"denyd\" { deny(\"no lighthouse\") } else { allow() } }\n";

/// Words that stand only in what is hidden or denied.
const SECRETS: [&str; 9] =
    ["hiddn", "denyd", "ighthouse", "rhidn", "rdeny", "rtool", "thidn", "phidn", "pdeny"];

/// Methods that take no name and show nothing of the catalog.
const NAMELESS: [&str; 1] = ["ping"];
/// Paths that every program may read, and those of operators: neither names anything to a caller.
const PUBLIC: [&str; 3] = ["/healthz", "METADATA", "METADATA_OF_MCP"];

fn home() -> TestHome {
    let mut main = "[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\", \"c\"]\n".to_owned();
    for name in ["alice", "bob"] {
        main += &format!("[callers.{name}]\ntoken_hash = \"{}\"\n", TokenHash::of(&format!("t-{name}")));
    }
    for (name, tool) in [("seen", "seen"), ("hiddn", "seen"), ("alone", "hiddn")] {
        main += &format!("[agents.{name}]\ndescription = \"An agent\"\ntools = [\"u.{tool}\"]\n");
    }
    TestHome::with(&[
        ("docent.toml", &main),
        ("policies/p.rhai", POLICY),
        ("scripts/u/upstream.toml", PACK),
        ("scripts/u/u.rhai", SCRIPT),
        ("scripts/c/upstream.toml", COMMANDS),
    ])
}

/// A question and the name in it that stands for a target.
type Ask = fn(&str) -> (&'static str, Value);

#[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
fn meta(tool: &str, arguments: Value) -> (&'static str, Value) {
    ("tools/call", json!({"name": format!("docent_{tool}"), "arguments": arguments}))
}

/// What is asked by name: the names of hidden and denied things, one that never was, and the questions.
fn named() -> Vec<(&'static [&'static str], &'static str, Vec<Ask>)> {
    vec![
        (
            &["u.hiddn", "u.denyd"],
            "u.absnt",
            vec![
                |t| ("tools/call", json!({"name": t, "arguments": {}})),
                |t| ("tools/call", json!({"name": t.replace('.', "_"), "arguments": {"a": 7}})),
                |t| ("tools/call", json!({"name": "u.relay", "arguments": {"tool": t}})),
                |t| meta("describe_tool", json!({"tool": t})),
                |t| meta("run_tool", json!({"tool": t})),
                |t| meta("run_tool", json!({"tool": t, "wait_seconds": 0, "request_key": "k"})),
                |t| meta("run_tool", json!({"tool": "u.relay", "arguments": {"tool": t}})),
                |t| meta("run_readonly_tool", json!({"tool": t, "arguments": {"v": 1}})),
                |t| ("resources/read", json!({"uri": format!("docent://tools/{t}")})),
                |t| ("resources/subscribe", json!({"uri": format!("docent://tools/{t}")})),
                |t| ("resources/unsubscribe", json!({"uri": format!("docent://tools/{t}")})),
                |t| {
                    let of = json!({"type": "ref/resource", "uri": "docent://tools/{tool}"});
                    ("completion/complete", json!({"ref": of, "argument": {"name": "tool", "value": t}}))
                },
            ],
        ),
        (&["hiddn", "alone"], "absnt", vec![|t| ("agents/get", json!({"name": t}))]),
        (
            &["u://hiddn", "u://denyd", "u://tools"],
            "u://absnt",
            vec![
                |t| ("resources/read", json!({"uri": t})),
                |t| ("resources/subscribe", json!({"uri": t})),
                |t| ("resources/unsubscribe", json!({"uri": t})),
            ],
        ),
        (
            &["u://hidtm/"],
            "u://abstm/",
            vec![
                |t| ("resources/read", json!({"uri": format!("{t}1")})),
                |t| ("resources/subscribe", json!({"uri": format!("{t}1")})),
                |t| {
                    let of = json!({"type": "ref/resource", "uri": format!("{t}{{id}}")});
                    ("completion/complete", json!({"ref": of, "argument": {"name": "id", "value": ""}}))
                },
            ],
        ),
        (
            &["u_phidn", "u.phidn", "u_pdeny"],
            "u_pabsn",
            vec![
                |t| ("prompts/get", json!({"name": t})),
                |t| ("prompts/get", json!({"name": t, "arguments": {"a": "lamp"}})),
                |t| {
                    let of = json!({"type": "ref/prompt", "name": t});
                    ("completion/complete", json!({"ref": of, "argument": {"name": "a", "value": ""}}))
                },
            ],
        ),
    ]
}

/// What is asked by the id of something that only its maker has.
const OF_JOBS: [Ask; 7] = [
    |id| meta("job_status", json!({"job_id": id})),
    |id| meta("job_status", json!({"job_id": id, "wait_seconds": 1})),
    |id| meta("job_cancel", json!({"job_id": id})),
    |id| ("tasks/get", json!({"taskId": id})),
    |id| ("tasks/result", json!({"taskId": id})),
    |id| ("tasks/update", json!({"taskId": id, "inputResponses": {}})),
    |id| ("tasks/cancel", json!({"taskId": id})),
];
const OF_RESULTS: [Ask; 4] = [
    |id| meta("read_result", json!({"result_id": id})),
    |id| meta("read_result", json!({"result_id": id, "path": "/data/items/0"})),
    |id| ("resources/read", json!({"uri": format!("docent://results/{id}")})),
    |id| ("tools/call", json!({"name": "u.seen", "arguments": {"v": {"$result": id, "path": "/data"}}})),
];
const OF_FILES: [Ask; 4] = [
    |id| ("resources/read", json!({"uri": format!("docent://files/{id}")})),
    |id| ("resources/subscribe", json!({"uri": format!("docent://files/{id}")})),
    |id| ("tools/call", json!({"name": "c.count", "arguments": {"file": {"$file": id}}})),
    |id| ("tools/call", json!({"name": "c.count", "arguments": {"file": id}})),
];

/// What shows what there is.
fn listings() -> Vec<(&'static str, Value)> {
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
    vec![
        ("initialize", hello),
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("agents/list", json!({})),
        ("agents/get", json!({"name": "seen"})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        meta("search_tools", json!({"query": "lighthouse", "detail": "explain"})),
        meta("list_categories", json!({})),
        meta("list_files", json!({})),
        meta("surface", json!({})),
        meta("context", json!({})),
    ]
}

/// Puts every question with each target and with one that never was; their answers may differ in nothing.
fn same(way: &mut dyn Way, targets: &[&str], absent: &str, questions: &[Ask], asked: &mut BTreeSet<String>) {
    let name = way.name();
    for question in questions {
        let mut answer = |name: &str| {
            let (method, params) = question(name);
            asked.insert(
                params["name"].as_str().filter(|_| method == "tools/call").unwrap_or(method).to_owned(),
            );
            comparable(&way.ask(method, params)).replace(name, "NAME")
        };
        let never = answer(absent);
        for target in targets {
            let found = answer(target);
            assert_eq!(found, never, "{name}: {:?}", question(target));
        }
    }
}

/// Things that bob made: a job, a kept result, a file; and what was made up in their likeness.
struct Bobs {
    job: String,
    result: String,
    file: String,
}

impl Bobs {
    fn make(url: &str) -> Self {
        let call = |tool: &str, arguments: Value| {
            let headers = [
                ("authorization", "Bearer t-bob"),
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", tool),
            ];
            let params = with_meta(json!({"name": tool, "arguments": arguments}));
            rpc(url, &headers, &request(1, "tools/call", params)).2["result"].clone()
        };
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no id: {value}")).to_owned();
        let job = call("docent_run_tool", json!({"tool": "c.nap", "wait_seconds": 0}));
        let rows = call("c.rows", json!({}));
        let file = call("docent_upload_file", json!({"name": "a.txt", "content": "aGVsbG8="}));
        Self {
            job: text(&job["structuredContent"]["job_id"]),
            result: text(&rows["_meta"]["dev.docent/result"]["result_id"]),
            file: text(&file["structuredContent"]["file_id"]),
        }
    }
}

/// An id as long, of the same letters, that nothing has.
fn unlike(id: &str) -> String {
    let (head, tail) = id.split_at(id.len() - 12);
    let made = format!("{head}{}", tail.chars().rev().collect::<String>());
    assert_ne!(made, id);
    made
}

#[test]
fn what_a_caller_may_not_know_of_never_was_from_every_entry_point() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let bobs = Bobs::make(&server.url);
    let data = || {
        let folder = tempfile::tempdir().unwrap();
        copy(server.data(), folder.path());
        folder
    };
    let [stateless, session] = Http::both(&server.url, Some("t-alice"));
    let mut ways: Vec<Box<dyn Way>> = vec![
        Box::new(stateless),
        Box::new(session),
        Box::new(Pipe::open(&home, "alice", data(), false)),
        Box::new(Pipe::open(&home, "alice", data(), true)),
    ];
    let mut asked = BTreeSet::new();
    for way in &mut ways {
        let way = way.as_mut();
        for (targets, absent, questions) in named() {
            same(way, targets, absent, &questions, &mut asked);
        }
        let own: [(&str, &[Ask]); 3] =
            [(&bobs.job, &OF_JOBS), (&bobs.result, &OF_RESULTS), (&bobs.file, &OF_FILES)];
        for (id, questions) in own {
            same(way, &[id], &unlike(id), questions, &mut asked);
        }
        let more = vec![meta("upload_file", json!({"name": "b.txt", "content": "aGVsbG8="}))];
        for (method, params) in listings().into_iter().chain(more) {
            asked.insert(
                params["name"].as_str().filter(|_| method == "tools/call").unwrap_or(method).to_owned(),
            );
            let answer = way.ask(method, params.clone()).replace("query\":\"lighthouse", "");
            for secret in SECRETS.iter().copied().chain([bobs.job.as_str(), &bobs.result, &bobs.file]) {
                assert!(
                    !answer.contains(secret),
                    "{}: {method} {params} betrays `{secret}`: {answer}",
                    way.name()
                );
            }
        }
    }
    listening(&server, &mut asked);
    // Nothing of what was tried had an effect.
    let status = http(
        &server.url,
        "GET",
        &format!("/api/v1/files/{}/content", bobs.file),
        &[("authorization", "Bearer t-bob")],
        "",
    );
    assert_eq!(status.unwrap().2, "hello");
    everything_stands_here(&server, &asked);
}

/// A stream of news acknowledges what is hidden as it does what is absent: with silence.
fn listening(server: &TestServer, asked: &mut BTreeSet<String>) {
    asked.insert("subscriptions/listen".to_owned());
    let acknowledged = |uri: &str| {
        let params = with_meta(json!({"notifications": {"resourceSubscriptions": [uri]}}));
        let headers = [
            ("authorization", "Bearer t-alice"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "subscriptions/listen"),
        ];
        let body = request(1, "subscriptions/listen", params).to_string();
        Streaming::open(&server.url, "POST", &headers, &body).event().unwrap().to_string()
    };
    let never = acknowledged("u://absnt");
    for uri in ["u://hiddn", "u://denyd", "u://tools", "u://hidtm/1", "docent://tools/u.hiddn"] {
        assert_eq!(acknowledged(uri), never, "{uri}");
    }
    assert_ne!(acknowledged("u://open1"), never);
}

/// The methods, meta-tools and paths that docent has are those that were asked.
fn everything_stands_here(server: &TestServer, asked: &BTreeSet<String>) {
    let source = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let after = |text: &str, mark: &str, end: char| -> Vec<String> {
        text.split(mark).skip(1).filter_map(|rest| Some(rest.split(end).next()?.to_owned())).collect()
    };
    let methods = source("src/mcp/methods.rs");
    let methods = after(&methods, "Row { name: \"", '"');
    assert!(methods.len() >= 19, "{methods:?}");
    for method in methods.iter().filter(|m| !NAMELESS.contains(&m.as_str()) && *m != "tools/call") {
        assert!(asked.contains(method), "no question stands here for `{method}`");
    }
    let headers = [
        ("authorization", "Bearer t-alice"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    let listed = rpc(&server.url, &headers, &request(1, "tools/list", with_meta(json!({})))).2;
    let names = listed["result"]["tools"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str());
    let names: Vec<&str> = names.filter(|name| name.starts_with("docent_")).collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        assert!(asked.contains(name), "no question stands here for `{name}`");
    }
    let known: Vec<String> = rest("NAME").into_iter().map(|(_, path, _)| path).collect();
    for route in after(&source("src/transport/http.rs"), ".route(", ',') {
        let route = route.trim_matches(['"', ' ', '\n']).to_owned();
        let fits = |path: &String| {
            let path = path.split('?').next().unwrap_or_default();
            path.split('/').count() == route.split('/').count()
                && path.split('/').zip(route.split('/')).all(|(a, b)| a == b || b.starts_with('{'))
        };
        let listed =
            PUBLIC.contains(&route.as_str()) || ["/readyz", "/metrics", "MCP"].contains(&route.as_str());
        assert!(listed || known.iter().any(fits), "no question stands here for `{route}`");
    }
}

/// Every path of the API with a name in it, and the lists.
fn rest(name: &str) -> Vec<(&'static str, String, String)> {
    let get = |path: &str| ("GET", path.to_owned(), String::new());
    vec![
        ("GET", format!("/api/v1/jobs/{name}"), String::new()),
        ("GET", format!("/api/v1/jobs/{name}?wait_seconds=1"), String::new()),
        ("DELETE", format!("/api/v1/jobs/{name}"), String::new()),
        ("POST", "/api/v1/jobs".to_owned(), json!({"tool": name}).to_string()),
        ("GET", format!("/api/v1/files/{name}"), String::new()),
        ("GET", format!("/api/v1/files/{name}/content"), String::new()),
        ("DELETE", format!("/api/v1/files/{name}"), String::new()),
        ("DELETE", format!("/api/v1/agents/{name}"), String::new()),
        ("POST", "/api/v1/agents".to_owned(), json!({"name": name, "tools": [name]}).to_string()),
        ("POST", format!("/api/v1/confirmations/{name}/approve"), String::new()),
        ("DELETE", format!("/api/v1/grants/{name}"), String::new()),
        ("GET", format!("/api/v1/policy/explain?tool={name}&as=bob"), String::new()),
        get("/api/v1/policy/shadow"),
        get("/api/v1/search?query=lighthouse&detail=explain"),
        get("/api/v1/jobs"),
        get("/api/v1/files"),
        get("/api/v1/audit"),
        get("/api/v1/agents"),
        get("/api/v1/confirmations"),
        get("/readyz"),
        get("/metrics"),
        get("/healthz"),
    ]
}

#[test]
fn the_api_tells_no_more_than_the_wire() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let bobs = Bobs::make(&server.url);
    let ask = |method: &str, path: &str, body: &str| {
        let headers = [("authorization", "Bearer t-alice"), ("content-type", "application/json")];
        let (status, head, body) = http(&server.url, method, path, &headers, body).unwrap();
        format!("{status}\n{:?}\n{}", without_date(&head), comparable(&body))
    };
    let triples = [
        ("u.hiddn", "u.absnt".to_owned()),
        ("u.denyd", "u.absnt".to_owned()),
        ("hiddn", "absnt".to_owned()),
        (bobs.job.as_str(), unlike(&bobs.job)),
        (bobs.result.as_str(), unlike(&bobs.result)),
        (bobs.file.as_str(), unlike(&bobs.file)),
    ];
    for (target, absent) in &triples {
        for ((method, path, body), (_, of_absent, body_of_absent)) in
            rest(target).into_iter().zip(rest(absent))
        {
            let found = ask(method, &path, &body).replace(target, "NAME");
            let never = ask(method, &of_absent, &body_of_absent).replace(absent.as_str(), "NAME");
            // Counters of requests go on between two readings.
            if path != "/metrics" {
                assert_eq!(found, never, "{method} {path}");
            }
            let told = found.replace("query\":\"lighthouse", "");
            for secret in SECRETS.iter().copied().chain([bobs.job.as_str(), &bobs.result, &bobs.file]) {
                assert!(!told.contains(secret), "{method} {path} betrays `{secret}`: {told}");
            }
        }
    }
}

/// Step-up is asked for in the same way whoever runs the tool: itself, the dispatcher, the one for reads.
#[test]
fn every_way_to_run_a_tool_asks_for_the_same_scopes() {
    let home = TestHome::with(&[
        (
            "docent.toml",
            &format!(
                "[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\"]\n\
                 [callers.alice]\ntoken_hash = \"{}\"\n[callers.wide]\ntoken_hash = \"{}\"\nscopes = [\"u:a\", \"u:b\"]\n",
                TokenHash::of("t-alice"),
                TokenHash::of("t-wide")
            ),
        ),
        ("scripts/u/upstream.toml", PACK),
        ("scripts/u/u.rhai", SCRIPT),
        (
            "policies/p.rhai",
            "fn rules(p) { p.allow().scopes([\"u:a\"]); p.challenge([\"u:a\", \"u:b\"]).tool(\"u.seen\"); }\n",
        ),
    ]);
    let server = TestServer::start(home.path(), &[]);
    let data = || tempfile::tempdir().unwrap();
    let [stateless, session] = Http::both(&server.url, Some("t-alice"));
    let mut ways: Vec<Box<dyn Way>> = vec![
        Box::new(stateless),
        Box::new(session),
        Box::new(Pipe::open(&home, "alice", data(), false)),
        Box::new(Pipe::open(&home, "alice", data(), true)),
    ];
    let runs: [Ask; 3] = [
        |t| ("tools/call", json!({"name": t, "arguments": {}})),
        |t| meta("run_tool", json!({"tool": t})),
        |t| meta("run_readonly_tool", json!({"tool": t})),
    ];
    for way in &mut ways {
        for run in &runs {
            let (method, params) = run("u.seen");
            let answer = way.ask(method, params.clone());
            let over_http = way.name().starts_with("HTTP");
            assert!(!over_http || answer.starts_with("403\n"), "{}: {params}: {answer}", way.name());
            let scopes = "scope=\\\"u:a u:b\\\", resource_metadata=";
            assert!(!over_http || answer.contains(scopes), "{}: {answer}", way.name());
            assert!(
                answer.contains("insufficient_scope")
                    && answer.contains("\"required_scopes\":[\"u:a\",\"u:b\"]"),
                "{}: {params}: {answer}",
                way.name()
            );
        }
    }
    for mut way in Http::both(&server.url, Some("t-wide")) {
        for run in &runs {
            let (method, params) = run("u.seen");
            let answer = way.ask(method, params);
            assert!(answer.starts_with("200\n") && answer.contains("\"done\":true"), "{answer}");
        }
    }
}
