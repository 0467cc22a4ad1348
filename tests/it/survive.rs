//! Calls that survive, with real processes and sockets: clients that leave, upstreams that break off, docent itself
//! killed in the middle; the same call a thousand times, and an upstream that counts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, http, rpc};

/// An HTTP server that counts what it was asked to do. `/slow…` takes its time, `/hang…` never answers, `/cut…` takes
/// the request and breaks off.
struct Counting {
    url: String,
    seen: Arc<Mutex<BTreeMap<String, usize>>>,
    left: Arc<Mutex<usize>>,
}

impl Counting {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, left) = (Arc::<Mutex<BTreeMap<String, usize>>>::default(), Arc::<Mutex<usize>>::default());
        let (count, gone) = (Arc::clone(&seen), Arc::clone(&left));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (count, gone) = (Arc::clone(&count), Arc::clone(&gone));
                std::thread::spawn(move || answer(stream, &count, &gone));
            }
        });
        Self { url, seen, left }
    }

    /// How often a path was asked for.
    fn count(&self, path: &str) -> usize {
        self.seen.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    fn left(&self) -> usize {
        *self.left.lock().unwrap()
    }
}

fn answer(mut stream: TcpStream, seen: &Mutex<BTreeMap<String, usize>>, left: &Mutex<usize>) {
    let mut head = String::new();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let number = {
        let mut seen = seen.lock().unwrap();
        let number = seen.entry(path.clone()).or_default();
        *number += 1;
        *number
    };
    if path.starts_with("/cut") {
        return;
    }
    if path.starts_with("/hang") {
        lines.read_to_end(&mut Vec::new()).ok();
        *left.lock().unwrap() += 1;
        return;
    }
    if path.starts_with("/slow") {
        std::thread::sleep(Duration::from_millis(1_200));
    }
    let body = json!({"path": path, "execution": number}).to_string();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok();
}

const DOCENT: &str = r#"
[callers.anonymous]
[upstreams]
enabled = ["api", "prog"]
[[allow]]
tools = ["*"]
"#;

fn home(backend: &Counting) -> TestHome {
    let mut pack = format!("kind = \"http\"\nbase_url = \"{}\"\nconcurrency = 64\n", backend.url);
    for (name, more) in
        [("make", ""), ("slow", ""), ("hang", "timeout_ms = 600000"), ("cut", ""), ("listed", LISTED)]
    {
        let path = if name == "listed" { "make" } else { name };
        pack += &format!(
            "[[tool]]\nid = \"{name}\"\ndescription = \"Makes a thing.\"\n{more}\n\
             request = {{ method = \"POST\", path = \"/{path}/{{n}}\" }}\n\
             input_schema = {{ type = \"object\", required = [\"n\"], additionalProperties = false, \
             properties = {{ n = {{ type = \"string\" }} }} }}\n",
        );
    }
    let prog = "kind = \"command\"\n[[tool]]\nid = \"sleep\"\ndescription = \"Sleeps.\"\n\
                run = [\"sh\", \"-c\", \"sleep 600 & wait\"]\ntimeout_ms = 600000\n";
    TestHome::with(&[
        ("docent.toml", DOCENT),
        ("scripts/api/upstream.toml", &pack),
        ("scripts/prog/upstream.toml", prog),
    ])
}

const LISTED: &str = "dedup = { reason = \"a second thing would be seen by people\" }";

const TASKS: &str = "io.modelcontextprotocol/tasks";

fn meta(tasks: bool) -> Value {
    let capabilities = if tasks { json!({"extensions": {TASKS: {}}}) } else { json!({}) };
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// A request of the stateless wire: status and body.
fn stateless(url: &str, method: &str, name: &str, params: Value, tasks: bool) -> (u16, Value) {
    let mut params = params;
    let own = params["_meta"].take();
    let mut meta = meta(tasks);
    for (key, value) in own.as_object().into_iter().flatten() {
        meta[key] = value.clone();
    }
    params["_meta"] = meta;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
    let (status, _, body) = rpc(url, &headers, &message);
    (status, body)
}

/// A call on the stateless wire: its result.
fn call(url: &str, tool: &str, arguments: &Value, key: Option<&str>) -> Value {
    let mut params = json!({"name": tool, "arguments": arguments});
    if let Some(key) = key {
        params["_meta"] = json!({"request_key": key});
    }
    stateless(url, "tools/call", tool, params, false).1["result"].clone()
}

fn session(url: &str) -> String {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let (_, head, _) = rpc(url, &[], &message);
    head.lines().find_map(|l| l.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned()
}

/// Sends a call on the stateless wire and goes away after a moment.
fn send_and_leave(url: &str, tool: &str, arguments: &Value, key: &str, stays: Duration) {
    let host = url.trim_start_matches("http://");
    let mut all = meta(false);
    all["request_key"] = json!(key);
    let params = json!({"name": tool, "arguments": arguments, "_meta": all});
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nmcp-method: tools/call\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-name: {tool}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    std::thread::sleep(stays);
}

fn wait_until(what: &str, fits: impl Fn() -> bool) {
    let start = Instant::now();
    while !fits() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn code(result: &Value) -> &str {
    result["structuredContent"]["error"]["code"].as_str().unwrap_or_default()
}

fn execution(result: &Value) -> &Value {
    &result["structuredContent"]["data"]["execution"]
}

/// Runs a tool as a job and gives its id.
fn job(url: &str, tool: &str, arguments: &Value) -> String {
    let given = json!({"tool": tool, "arguments": arguments, "wait_seconds": 0});
    let result = call(url, "docent_run_tool", &given, None);
    result["structuredContent"]["job_id"].as_str().unwrap_or_else(|| panic!("no job: {result}")).to_owned()
}

fn job_status(url: &str, id: &str, wait: u64) -> Value {
    let given = json!({"job_id": id, "wait_seconds": wait});
    call(url, "docent_job_status", &given, None)["structuredContent"].clone()
}

#[test]
fn a_thousand_replays_over_reconnects_and_both_wires_run_each_key_once() {
    const KEYS: usize = 20;
    let backend = Counting::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let url = server.url.as_str();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let mut id = session(url);
                for round in 0..125 {
                    let n = (thread * 125 + round) % KEYS;
                    let (arguments, key) = (json!({"n": n.to_string()}), format!("key-{n}"));
                    let result = match round % 3 {
                        0 => call(url, "api.make", &arguments, Some(&key)),
                        1 => {
                            let given =
                                json!({"tool": "api_make", "arguments": arguments, "request_key": key});
                            call(url, "docent_run_tool", &given, None)
                        }
                        _ => {
                            if round % 5 == 0 {
                                id = session(url);
                            }
                            let params = json!({"name": "api_make", "arguments": arguments, "_meta": {"requestKey": key}});
                            let message = json!({"jsonrpc": "2.0", "id": round, "method": "tools/call", "params": params});
                            rpc(url, &[("mcp-session-id", &id)], &message).2["result"].clone()
                        }
                    };
                    assert_eq!(execution(&result), 1, "{result}");
                }
            });
        }
    });
    for n in 0..KEYS {
        assert_eq!(backend.count(&format!("/make/{n}")), 1, "key {n}");
    }
    let metrics = http(url, "GET", "/metrics", &[], "").unwrap().2;
    let of = |outcome: &str| -> u64 {
        let name = format!("docent_replays_total{{outcome=\"{outcome}\"}} ");
        metrics.lines().find_map(|l| l.strip_prefix(&name)).unwrap().parse().unwrap()
    };
    assert_eq!(of("joined") + of("replayed"), 1_000 - u64::try_from(KEYS).unwrap(), "{metrics}");
    let again = call(url, "api.make", &json!({"n": "0"}), Some("key-0"));
    assert_eq!(again["_meta"]["deduplicated"], true, "{again}");
    let other = call(url, "api.make", &json!({"n": "other"}), Some("key-0"));
    assert_eq!((code(&other), &other["isError"]), ("REPLAY_KEY_COLLISION", &json!(true)), "{other}");
    assert_eq!(backend.count("/make/other"), 0);
    for _ in 0..5 {
        call(url, "api.listed", &json!({"n": "listed"}), None);
        call(url, "api.make", &json!({"n": "plain"}), None);
    }
    assert_eq!((backend.count("/make/listed"), backend.count("/make/plain")), (1, 5));
}

#[test]
fn a_client_that_lost_its_connection_comes_back_to_its_one_call() {
    let backend = Counting::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let arguments = json!({"n": "1"});
    for _ in 0..3 {
        send_and_leave(&server.url, "api.slow", &arguments, "k", Duration::from_millis(150));
    }
    let result = call(&server.url, "api.slow", &arguments, Some("k"));
    assert_eq!((execution(&result), &result["_meta"]["deduplicated"]), (&json!(1), &json!(true)), "{result}");
    assert_eq!(backend.count("/slow/1"), 1);
}

#[test]
fn an_upstream_that_breaks_off_is_not_asked_again_for_the_same_key() {
    let backend = Counting::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    for _ in 0..3 {
        let result = call(&server.url, "api.cut", &json!({"n": "1"}), Some("k"));
        assert_eq!(code(&result), "UNKNOWN_OUTCOME", "{result}");
    }
    assert_eq!(backend.count("/cut/1"), 1);
}

#[test]
fn a_job_whose_upstream_breaks_off_says_that_nobody_knows_and_an_upstream_that_is_killed_comes_back() {
    let backend = Counting::start();
    let inner = home(&backend);
    // Another docent as an MCP upstream: a real process, killed in the middle of a job of the outer one.
    let pack = format!(
        "kind = \"mcp\"\ncommand = ['{0}', \"serve\", \"--stdio\", \"--home\", '{1}', \"--data\", '{1}/data']\ntimeout_ms = 60000\n",
        env!("CARGO_BIN_EXE_docent"),
        inner.path().display()
    );
    let outer = home(&backend);
    outer.write("scripts/child/upstream.toml", &pack);
    outer.write("docent.toml", &DOCENT.replace("\"prog\"", "\"prog\", \"child\""));
    let server = TestServer::start(outer.path(), &[]);
    let url = server.url.clone();
    let cut = job(&url, "api.cut", &json!({"n": "1"}));
    let end = job_status(&url, &cut, 30);
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("failed"), &json!("UNKNOWN_OUTCOME")),
        "{end}"
    );
    let first = || call(&url, "child.api_make", &json!({"n": "first"}), None);
    wait_until("the child's tools", || !execution(&first()).is_null());
    let hung = job(&url, "child.api_hang", &json!({"n": "child"}));
    wait_until("the inner call", || backend.count("/hang/child") == 1);
    let find = format!("ps --ppid {} -o pid=,args= | grep 'serve --stdio' | awk '{{print $1}}'", server.id());
    let out = std::process::Command::new("sh").args(["-c", &find]).output().unwrap();
    let child = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    assert!(std::process::Command::new("kill").args(["-9", &child]).status().unwrap().success(), "{child}");
    let end = job_status(&url, &hung, 30);
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("failed"), &json!("UNKNOWN_OUTCOME")),
        "{end}"
    );
    assert_eq!(backend.count("/hang/child"), 1, "it is not sent again");
    let again = call(&url, "child.api_make", &json!({"n": "after"}), None);
    assert_eq!(execution(&again), 1, "{again}");
}

#[test]
fn a_server_that_is_killed_sends_no_key_twice_and_keeps_what_had_ended() {
    let backend = Counting::start();
    let home = home(&backend);
    let mut server = TestServer::start(home.path(), &[]);
    let ended = job(&server.url, "api.make", &json!({"n": "ended"}));
    assert_eq!(job_status(&server.url, &ended, 30)["status"], "completed");
    let done = call(&server.url, "api.make", &json!({"n": "done"}), Some("done"));
    assert_eq!(execution(&done), 1, "{done}");
    let runs = job(&server.url, "api.hang", &json!({"n": "job"}));
    send_and_leave(&server.url, "api.hang", &json!({"n": "call"}), "k", Duration::from_millis(300));
    wait_until("both", || backend.count("/hang/job") == 1 && backend.count("/hang/call") == 1);
    server.kill_and_restart(home.path());
    let kept = job_status(&server.url, &ended, 0);
    assert_eq!(
        (&kept["status"], &kept["result"]["data"]["execution"]),
        (&json!("completed"), &json!(1)),
        "{kept}"
    );
    let lost = job_status(&server.url, &runs, 0);
    assert_eq!(
        (&lost["status"], &lost["error"]["code"]),
        (&json!("failed"), &json!("UNKNOWN_OUTCOME")),
        "{lost}"
    );
    let again = call(&server.url, "api.make", &json!({"n": "done"}), Some("done"));
    assert_eq!((execution(&again), &again["_meta"]["deduplicated"]), (&json!(1), &json!(true)), "{again}");
    let unknown = call(&server.url, "api.hang", &json!({"n": "call"}), Some("k"));
    assert_eq!(code(&unknown), "UNKNOWN_OUTCOME", "{unknown}");
    assert_eq!((backend.count("/make/done"), backend.count("/hang/call")), (1, 1));
}

#[test]
fn jobs_over_plain_http_start_wait_and_end_the_work_upstream() {
    let backend = Counting::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let url = server.url.as_str();
    let ask = |method: &str, path: &str, body: &str| {
        let (status, _, body) =
            http(url, method, path, &[("content-type", "application/json")], body).unwrap();
        (status, serde_json::from_str::<Value>(&body).unwrap())
    };
    let (status, started) =
        ask("POST", "/api/v1/jobs", &json!({"tool": "api.slow", "arguments": {"n": "1"}}).to_string());
    assert_eq!((status, &started["status"]), (202, &json!("running")), "{started}");
    let path = format!("/api/v1/jobs/{}", started["job_id"].as_str().unwrap());
    let (status, ended) = ask("GET", &format!("{path}?wait_seconds=20"), "");
    assert_eq!(
        (status, &ended["status"], &ended["result"]["data"]["execution"]),
        (200, &json!("completed"), &json!(1))
    );
    let hung = job(url, "api.hang", &json!({"n": "1"}));
    wait_until("the request", || backend.count("/hang/1") == 1);
    let (status, cancelled) = ask("DELETE", &format!("/api/v1/jobs/{hung}"), "");
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")), "{cancelled}");
    wait_until("the end of the request", || backend.left() == 1);
    let (_, list) = ask("GET", "/api/v1/jobs", "");
    let states: Vec<&Value> = list["jobs"].as_array().unwrap().iter().map(|j| &j["status"]).collect();
    assert_eq!(states, ["cancelled", "completed"], "newest first: {list}");
    assert_eq!(ask("GET", "/api/v1/jobs/job_none", "").0, 404);
    assert_eq!(ask("GET", &format!("{path}?wait=1"), "").0, 400);
    assert_eq!(ask("POST", "/api/v1/jobs", "[]").0, 400);
}

#[cfg(unix)]
#[test]
fn a_cancelled_job_of_a_program_leaves_no_process_behind() {
    let backend = Counting::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let sleeps = || {
        let of = format!("--ppid {}", server.id());
        let out =
            std::process::Command::new("sh").args(["-c", &format!("ps {of} -o args=")]).output().unwrap();
        String::from_utf8_lossy(&out.stdout).contains("sleep 600")
    };
    let id = job(&server.url, "prog.sleep", &json!({}));
    wait_until("the program", sleeps);
    let given = json!({"job_id": id, "wait_seconds": 10});
    let end = call(&server.url, "docent_job_cancel", &given, None);
    assert_eq!(end["structuredContent"]["status"], "cancelled", "{end}");
    wait_until("its end", || !sleeps());
}

#[test]
fn a_call_that_takes_long_is_a_task_for_those_who_declare_it() {
    let backend = Counting::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let url = server.url.as_str();
    let quick = json!({"name": "api.make", "arguments": {"n": "q"}});
    let quick =
        || stateless(url, "tools/call", "api.make", quick.clone(), true).1["result"]["resultType"].clone();
    // On a machine with much else to do even this may take longer than a task is waited for.
    wait_until("a result at once", || quick() == "complete");
    let params = json!({"name": "api.slow", "arguments": {"n": "1"}});
    let task = stateless(url, "tools/call", "api.slow", params.clone(), true).1["result"].clone();
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    let id = task["taskId"].as_str().unwrap().to_owned();
    let ask = |method: &str, id: &str, tasks| stateless(url, method, id, json!({"taskId": id}), tasks);
    let (status, refused) = ask("tasks/get", &id, false);
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32021)));
    assert_eq!(refused["error"]["data"]["requiredCapabilities"]["extensions"][TASKS], json!({}));
    wait_until("its end", || ask("tasks/get", &id, true).1["result"]["status"] == "completed");
    let end = ask("tasks/get", &id, true).1["result"].clone();
    assert_eq!((&end["resultType"], execution(&end["result"])), (&json!("complete"), &json!(1)), "{end}");
    assert!(end["result"].get("resultType").is_none() && end["result"]["content"][0]["text"].is_string());
    let hung = json!({"name": "api.hang", "arguments": {"n": "1"}});
    let hung = stateless(url, "tools/call", "api.hang", hung, true).1["result"]["taskId"].clone();
    let hung = hung.as_str().unwrap();
    for _ in 0..2 {
        let ack = ask("tasks/cancel", hung, true).1["result"].clone();
        assert_eq!(ack["resultType"], "complete");
        assert!(ack.get("taskId").is_none() && ack.get("status").is_none(), "{ack}");
    }
    wait_until("the end of the request", || backend.left() == 1);
    wait_until("its state", || ask("tasks/get", hung, true).1["result"]["status"] == "cancelled");
    assert_eq!(ask("tasks/get", "job_none", true).1["error"]["code"], -32602);
    assert_eq!(ask("tasks/result", &id, true).0, 404);
    let plain = stateless(url, "tools/call", "api.slow", params, false).1["result"].clone();
    assert_eq!(
        (&plain["resultType"], execution(&plain)),
        (&json!("complete"), &json!(2)),
        "no task, a result: {plain}"
    );
    assert_eq!(backend.count("/slow/1"), 2);
}

/// Kilobytes of memory and threads of a process.
#[cfg(target_os = "linux")]
fn footprint(id: u32) -> (usize, usize) {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let of = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    (of("VmRSS:"), of("Threads:"))
}

/// `DOCENT_JOBS=9800` measures what the budget says: 10,000 jobs that wait (as many as a caller may have) cost at most
/// 100 MB.
#[cfg(target_os = "linux")]
#[test]
fn jobs_that_wait_cost_little_memory_and_those_who_wait_for_them_no_thread() {
    let jobs: usize = std::env::var("DOCENT_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let backend = Counting::start();
    let home = home(&backend);
    let server = TestServer::start(home.path(), &[]);
    let url = server.url.as_str();
    let body = json!({"tool": "prog.sleep", "arguments": {}}).to_string();
    let start = |n: usize| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..n / 4 {
                        let started =
                            http(url, "POST", "/api/v1/jobs", &[("content-type", "application/json")], &body);
                        assert_eq!(started.unwrap().0, 202);
                    }
                });
            }
        });
    };
    // All slots of the upstream are taken first, so that what follows only waits.
    start(80);
    let id = job(url, "api.hang", &json!({"n": "1"}));
    job_status(url, &id, 0);
    let (before, threads) = footprint(server.id());
    start(jobs);
    let (after, _) = footprint(server.id());
    let each = (after.saturating_sub(before)) * 1024 / jobs;
    eprintln!("{jobs} waiting jobs: {} KiB more, {each} bytes each", after.saturating_sub(before));
    assert!(each <= 100_000_000 / 10_000 || jobs < 2_000 && each <= 40_000, "{each} bytes for each job");
    let polls: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
            write!(stream, "GET /api/v1/jobs/{id}?wait_seconds=60 HTTP/1.1\r\nhost: localhost\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let (_, polled) = footprint(server.id());
    assert!(polled < threads + 20, "{polled} threads with 100 long polls, {threads} before");
    drop(polls);
}
