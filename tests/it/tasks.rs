//! Tasks as the operator's `tasks` key says: tools that are answered with one only, and the tasks of a session of
//! 2025-11-25, which its client asks for.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, rpc};
use crate::wire_double::{Streaming, header, request, with_meta};

const DOCENT: &str = r#"
[callers.anonymous]
[upstreams]
enabled = ["long"]
[[allow]]
tools = ["*"]
[[hide]]
tools = ["long.secret"]
"#;

const PACK: &str = r#"
kind = "script"
[[tool]]
id = "build"
description = "Builds."
tasks = "required"
script = { file = "long.rhai", run = "build" }
[[tool]]
id = "secret"
description = "Hidden."
tasks = "required"
script = { file = "long.rhai", run = "build" }
[[tool]]
id = "strict"
description = "Takes a number."
tasks = "required"
input_schema = { type = "object", required = ["n"], additionalProperties = false, properties = { n = { type = "integer" } } }
script = { file = "long.rhai", run = "build" }
[[tool]]
id = "asks"
description = "Asks its client."
tasks = "optional"
script = { file = "long.rhai", run = "asks" }
[[tool]]
id = "slow"
description = "Takes a while."
tasks = "forbidden"
script = { file = "long.rhai", run = "slow" }
[[tool]]
id = "patient"
description = "May outlast its caller."
timeout_ms = 600000
script = { file = "long.rhai", run = "slow" }
[[tool]]
id = "hang"
description = "Waits for minutes."
tasks = "optional"
timeout_ms = 600000
script = { file = "long.rhai", run = "hang" }
[[tool]]
id = "composite"
description = "Calls the one that builds."
script = { file = "long.rhai", run = "composite" }
"#;

const SCRIPT: &str = r#"
fn build(args, ctx) { text("built") }
fn slow(args, ctx) { ctx.wait(900); text("slow") }
fn hang(args, ctx) { for n in 0..600 { ctx.wait(1000); } text("hang") }
fn composite(args, ctx) { text("with " + ctx.call("long.build", #{}).text) }
fn asks(args, ctx) {
    let fields = #{ type: "object", properties: #{ name: #{ type: "string" } }, required: ["name"] };
    let answers = ctx.ask([elicit("who", "Who is it?", fields)]);
    text(`Hello ${answers.who.content.name}`)
}
"#;

const TASKS: &str = "io.modelcontextprotocol/tasks";

fn served() -> (TestHome, TestServer) {
    let home = TestHome::with(&[
        ("docent.toml", DOCENT),
        ("scripts/long/upstream.toml", PACK),
        ("scripts/long/long.rhai", SCRIPT),
    ]);
    let server = TestServer::start(home.path(), &[]);
    (home, server)
}

/// A request of the stateless wire: status and body. `tasks`: its client declares the extension.
fn stateless(url: &str, method: &str, name: &str, tasks: bool) -> (u16, Value) {
    let own = if method == "tools/call" { json!({"name": name}) } else { json!({"taskId": name}) };
    let mut params = with_meta(own);
    let capabilities = if tasks { json!({"extensions": {TASKS: {}}}) } else { json!({}) };
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
    let (status, _, body) = rpc(url, &headers, &request(1, method, params));
    (status, body)
}

fn run(url: &str, tool: &str, arguments: &Value) -> Value {
    let params = with_meta(json!({"name": tool, "arguments": arguments}));
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
    rpc(url, &headers, &request(1, "tools/call", params)).2["result"].clone()
}

/// A session of a revision, whose client can show forms.
struct Session<'a> {
    url: &'a str,
    id: String,
    capabilities: Value,
}

impl<'a> Session<'a> {
    fn open(url: &'a str, version: &str) -> Self {
        let params = json!({"protocolVersion": version, "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "it", "version": "1"}});
        let (_, head, hello) = rpc(url, &[], &request(0, "initialize", params));
        let id = header(&head, "mcp-session-id").unwrap();
        Self { url, id, capabilities: hello["result"]["capabilities"].clone() }
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        rpc(self.url, &[("mcp-session-id", self.id.as_str())], &request(5, method, params)).2
    }

    fn task(&self, tool: &str) -> String {
        let created = self.ask("tools/call", json!({"name": tool, "arguments": {}, "task": {"ttl": 60000}}));
        let task = &created["result"]["task"];
        assert_eq!(task["status"], "working", "{created}");
        assert!(
            task["ttl"].is_u64() && task["pollInterval"].is_u64() && task.get("ttlMs").is_none(),
            "{created}"
        );
        assert!(created["result"].get("content").is_none(), "{created}");
        task["taskId"].as_str().unwrap().to_owned()
    }

    fn get(&self, task: &str) -> Value {
        self.ask("tasks/get", json!({ "taskId": task }))["result"].clone()
    }
}

fn code(result: &Value) -> &str {
    result["structuredContent"]["error"]["code"].as_str().unwrap_or_default()
}

fn wait_until(what: &str, fits: impl Fn() -> bool) {
    let start = Instant::now();
    while !fits() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_tool_that_is_answered_with_a_task_only_says_so_to_who_takes_none() {
    let (_home, server) = served();
    let url = server.url.as_str();
    let (status, refused) = stateless(url, "tools/call", "long_build", false);
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32021)), "{refused}");
    assert_eq!(refused["error"]["data"], json!({"requiredCapabilities": {"extensions": {TASKS: {}}}}));
    // Hidden is absent, whatever the client declares.
    let (hidden, absent) = (
        stateless(url, "tools/call", "long_secret", false),
        stateless(url, "tools/call", "long_absent", false),
    );
    assert_eq!((hidden.0, &hidden.1), (200, &absent.1));
    // A task at once, however quick the tool is.
    let task = stateless(url, "tools/call", "long_build", true).1["result"].clone();
    assert_eq!(task["resultType"], "task", "{task}");
    let id = task["taskId"].as_str().unwrap();
    let state = || stateless(url, "tasks/get", id, true).1["result"].clone();
    wait_until("its end", || state()["status"] == "completed");
    // One that is never answered with a task is waited for.
    let waited = stateless(url, "tools/call", "long_slow", true).1["result"].clone();
    assert_eq!(
        (&waited["resultType"], &waited["structuredContent"]["text"]),
        (&json!("complete"), &json!("slow"))
    );
    // Dispatchers and scripts run it for everybody.
    let ran = run(url, "docent_run_tool", &json!({"tool": "long.build"}));
    assert_eq!(ran["structuredContent"]["text"], "built", "{ran}");
    assert_eq!(run(url, "long_composite", &json!({}))["structuredContent"]["text"], "with built");
    let known = run(url, "docent_describe_tool", &json!({"tool": "long.build"}));
    assert_eq!(known["structuredContent"]["execution"], json!({"taskSupport": "required"}), "{known}");
}

#[test]
fn a_session_of_the_revision_with_tasks_asks_for_one_and_reads_what_came_of_it() {
    let (_home, server) = served();
    let session = Session::open(&server.url, "2025-11-25");
    assert_eq!(session.capabilities["tasks"], json!({"cancel": {}, "requests": {"tools": {"call": {}}}}));
    let listed = session.ask("tools/list", json!({}))["result"]["tools"].clone();
    let support = |name: &str| {
        let tool = listed.as_array().unwrap().iter().find(|t| t["name"] == name).unwrap();
        tool["execution"]["taskSupport"].as_str().unwrap_or("none").to_owned()
    };
    for (tool, word) in [
        ("long_build", "required"),
        ("long_asks", "optional"),
        ("long_patient", "optional"),
        ("long_slow", "none"),
        ("long_composite", "none"),
        ("docent_run_tool", "none"),
    ] {
        assert_eq!(support(tool), word, "{tool}");
    }
    let id = session.task("long_build");
    let result = session.ask("tasks/result", json!({"taskId": id}))["result"].clone();
    assert_eq!(result["structuredContent"]["text"], "built", "{result}");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"], json!({"taskId": id}));
    assert_eq!(session.get(&id)["status"], "completed");
    // What has ended is not ended again, and nobody else has such a task.
    assert_eq!(session.ask("tasks/cancel", json!({"taskId": id}))["error"]["code"], -32602);
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(session.ask(method, json!({"taskId": "job_none"}))["error"]["code"], -32602, "{method}");
    }
    // It waits for a task that takes long, and ends one that takes too long.
    let patient = session.task("long_patient");
    let waited = session.ask("tasks/result", json!({"taskId": patient}))["result"].clone();
    assert_eq!(waited["structuredContent"]["text"], "slow", "{waited}");
    let hung = session.task("long_hang");
    let cancelled = session.ask("tasks/cancel", json!({"taskId": hung}))["result"].clone();
    assert_eq!(
        (&cancelled["status"], &cancelled["taskId"]),
        (&json!("cancelled"), &json!(hung)),
        "{cancelled}"
    );
    assert_eq!(session.ask("tasks/result", json!({"taskId": hung}))["result"]["isError"], true);
    // A refusal comes as a task as well: its client reads nothing else.
    let refused = session.task("long_strict");
    wait_until("its end", || session.get(&refused)["status"] == "failed");
    let told = session.ask("tasks/result", json!({"taskId": refused}))["result"].clone();
    assert!(told["isError"] == true && code(&told) == "INVALID_ARGUMENT", "{told}");
}

#[test]
fn a_session_that_asks_otherwise_than_the_tool_allows_is_told() {
    let (_home, server) = served();
    let session = Session::open(&server.url, "2025-11-25");
    let call = |tool: &str, task: Option<Value>| {
        let mut params = json!({"name": tool, "arguments": {}});
        params["task"] = task.unwrap_or_default();
        session.ask("tools/call", params)
    };
    for (tool, task, code) in [
        ("long_build", None, -32601),
        ("long_slow", Some(json!({})), -32601),
        ("docent_context", Some(json!({})), -32601),
        ("long_asks", Some(json!(7)), -32602),
        ("long_asks", Some(json!({"ttl": "long"})), -32602),
        ("long_secret", Some(json!({})), -32602),
        ("long_secret", None, -32602),
        ("long_absent", Some(json!({})), -32602),
    ] {
        let answer = call(tool, task.clone());
        assert_eq!(answer["error"]["code"], code, "{tool} {task:?}: {answer}");
    }
    assert_eq!(call("long_secret", Some(json!({}))), call("long_absent", Some(json!({}))));
    assert_eq!(session.ask("tasks/update", json!({"taskId": "x"}))["error"]["code"], -32601);
    // Earlier revisions know nothing of tasks: what they say of it is passed over.
    let older = Session::open(&server.url, "2025-06-18");
    assert!(older.capabilities.get("tasks").is_none());
    let plain = older.ask("tools/call", json!({"name": "long_composite", "arguments": {}, "task": {}}));
    assert_eq!(plain["result"]["structuredContent"]["text"], "with built", "{plain}");
    let told = older.ask("tools/call", json!({"name": "long_build", "arguments": {}}))["result"].clone();
    assert_eq!(code(&told), "UNSUPPORTED_CAPABILITY", "{told}");
    assert!(told.to_string().contains("docent_run_tool"), "{told}");
    assert_eq!(older.ask("tasks/get", json!({"taskId": "x"}))["error"]["code"], -32601);
}

#[test]
fn what_a_task_of_a_session_asks_is_asked_by_who_waits_for_its_result() {
    let (_home, server) = served();
    let session = Session::open(&server.url, "2025-11-25");
    let id = session.task("long_asks");
    wait_until("the question", || session.get(&id)["status"] == "input_required");
    let headers = [("mcp-session-id", session.id.as_str())];
    let body = request(9, "tasks/result", json!({ "taskId": id })).to_string();
    let mut stream = Streaming::open(&server.url, "POST", &headers, &body);
    let asked = stream.event().unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let related = &asked["params"]["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(related, &json!({ "taskId": id }), "{asked}");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"],
        "result": {"action": "accept", "content": {"name": "Ann"}}});
    assert_eq!(rpc(&server.url, &headers, &answer).0, 202);
    let last = stream.event().unwrap();
    assert_eq!(last["result"]["structuredContent"]["text"], "Hello Ann", "{last}");
    assert_eq!(session.get(&id)["status"], "completed");
}

#[test]
fn the_key_says_what_it_takes_and_what_goes_with_it() {
    let home = TestHome::with(&[
        (
            "docent.toml",
            "[callers.anonymous]\n[upstreams]\nenabled = [\"long\"]\n[[allow]]\ntools = [\"*\"]\n",
        ),
        ("scripts/long/long.rhai", SCRIPT),
        (
            "scripts/long/upstream.toml",
            "kind = \"script\"\n[[tool]]\nid = \"build\"\ndescription = \"Builds.\"\ntasks = \"always\"\n\
             script = { file = \"long.rhai\", run = \"build\" }\n[[tool]]\nid = \"slow\"\ndescription = \"Slow.\"\n\
             tasks = \"required\"\nwait_seconds = 3\nscript = { file = \"long.rhai\", run = \"slow\" }\n",
        ),
    ]);
    let checked = crate::support::docent().args(["check", "--home"]).arg(home.path()).output().unwrap();
    let told = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(2), "{told}");
    assert!(told.contains("required") && told.contains("forbidden") && told.contains("optional"), "{told}");
    assert!(told.contains("nothing-waits") && told.contains("wait_seconds"), "{told}");
}
