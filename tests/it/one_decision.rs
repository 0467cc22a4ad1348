//! One decision everywhere: every entry point is tried with a hidden target, a denied one and one that never was,
//! on both wires, over HTTP and over a pipe; the answers must be the same bytes. Times are compared on a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::without_date;
use crate::support::{TestHome, TestServer, pipe, rpc};
use crate::wire_double::{header, request, with_meta};

const MAIN: &str = "[server]\nname = \"docent\"\n[upstreams]\nenabled = [\"u\"]\n\
    [callers.anonymous]\nscopes = [\"u:use\"]\n\
    [agents.seen]\ndescription = \"Seen\"\ntools = [\"u.seen\", \"u.hiddn\"]\n\
    [agents.hiddn]\ndescription = \"Hidden\"\ntools = [\"u.seen\"]\n\
    [agents.unseen]\ndescription = \"All of its tools are hidden\"\ntools = [\"u.hiddn\"]\n";
const PACK: &str = "kind = \"script\"\n\
    [[tool]]\nid = \"seen\"\ndescription = \"Everybody sees it.\"\nannotations = { read_only = true }\nscript = { file = \"u.rhai\", run = \"done\" }\n\
    [[tool]]\nid = \"hiddn\"\ndescription = \"A secret lighthouse.\"\nannotations = { read_only = true }\nscript = { file = \"u.rhai\", run = \"done\" }\n\
    input_schema = { type = \"object\", required = [\"a\"], additionalProperties = false, properties = { a = { type = \"string\", x-mcp-header = \"A\" } } }\n\
    [[tool]]\nid = \"denyd\"\ndescription = \"A denied lighthouse.\"\nannotations = { read_only = true }\nscript = { file = \"u.rhai\", run = \"done\" }\n\
    [[tool]]\nid = \"guard\"\ndescription = \"A hidden and guarded lighthouse.\"\nscopes = [\"x:y\"]\nscript = { file = \"u.rhai\", run = \"done\" }\n\
    [[tool]]\nid = \"confm\"\ndescription = \"A hidden lighthouse to confirm.\"\nscript = { file = \"u.rhai\", run = \"done\" }\n";
const POLICY: &str = "fn rules(p) {\n  p.allow().upstream(\"u\");\n  p.hide().tool(\"u.hiddn\");\n  \
    p.deny(\"because of the lighthouse\").tool(\"u.denyd\");\n  p.challenge([\"x:z\"]).tool(\"u.guard\");\n  \
    p.hide().tool(\"u.guard\");\n  p.confirm(\"Really?\").tool(\"u.confm\");\n  p.hide().tool(\"u.confm\");\n}\n\
    fn agent_visible(caller, agent) { agent.id == \"seen\" || agent.id == \"unseen\" && caller.has_scope(\"u:all\") }\n\
    fn agent_open(caller, agent) { if agent.id == \"hiddn\" { challenge([\"x:y\"]) } else { allow() } }\n";

/// Every tool that this caller must not know of, and two names that no tool has; all of one length.
const TARGETS: [&str; 6] = ["u.hiddn", "u.denyd", "u.guard", "u.confm", "u.absnt", "u.nevrw"];
const AGENTS: [&str; 3] = ["hiddn", "absnt", "nevrw"];

fn home() -> TestHome {
    let script = "fn done(args, ctx) { json(#{ done: true }) }\n";
    TestHome::with(&[
        ("docent.toml", MAIN),
        ("scripts/u/upstream.toml", PACK),
        ("scripts/u/u.rhai", script),
        ("policies/p.rhai", POLICY),
    ])
}

/// Every entry point that takes a name: its method and its parameters for one target.
fn entry_points(target: &str) -> Vec<(String, Value)> {
    let meta = |tool: &str, arguments: Value| {
        ("tools/call".to_owned(), json!({"name": format!("docent_{tool}"), "arguments": arguments}))
    };
    let call = |name: &str, arguments: Value| {
        ("tools/call".to_owned(), json!({"name": name, "arguments": arguments}))
    };
    let wire_name = target.replace('.', "_");
    vec![
        call(target, json!({})),
        call(&wire_name, json!({})),
        call(target, json!({"a": 7, "b": [1]})),
        meta("describe_tool", json!({"tool": target})),
        meta("describe_tool", json!({"tool": wire_name})),
        meta("run_tool", json!({"tool": target})),
        meta("run_tool", json!({"tool": target, "arguments": {"a": 7}})),
        meta("run_tool", json!({"tool": target, "wait_seconds": 0, "request_key": "k"})),
        meta("run_readonly_tool", json!({"tool": wire_name})),
    ]
}

/// Every entry point that shows what there is, with words that only hidden tools have.
fn listings() -> Vec<(&'static str, Value)> {
    let meta =
        |tool: &str, arguments: Value| json!({"name": format!("docent_{tool}"), "arguments": arguments});
    vec![
        ("tools/list", json!({})),
        ("agents/list", json!({})),
        ("agents/get", json!({"name": "seen"})),
        ("tools/call", meta("search_tools", json!({"query": "lighthouse"}))),
        ("tools/call", meta("search_tools", json!({"query": "u.hiddn", "detail": "explain"}))),
        ("tools/call", meta("search_tools", json!({"query": "everybody sees", "detail": "explain"}))),
        ("tools/call", meta("list_categories", json!({}))),
        ("tools/call", meta("surface", json!({}))),
        ("tools/call", meta("context", json!({}))),
    ]
}

/// One way to the server.
pub(crate) trait Way {
    fn name(&self) -> &'static str;
    /// Everything that a client can see of the answer, but its date and what names the request itself.
    fn ask(&mut self, method: &str, params: Value) -> String;
}

pub(crate) struct Http {
    pub(crate) url: String,
    pub(crate) session: Option<String>,
    pub(crate) token: Option<&'static str>,
}

impl Http {
    /// The stateless wire, and a session of the same caller.
    pub(crate) fn both(url: &str, token: Option<&'static str>) -> [Self; 2] {
        let stateless = Self { url: url.to_owned(), session: None, token };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
        let (_, head, _) = stateless.post(&[], &request(0, "initialize", hello));
        let session = Self { url: url.to_owned(), session: header(&head, "mcp-session-id"), token };
        assert!(session.session.is_some(), "{head}");
        [stateless, session]
    }

    fn post(&self, headers: &[(&str, &str)], message: &Value) -> (u16, String, Value) {
        let bearer = self.token.map(|token| format!("Bearer {token}"));
        let mut headers = headers.to_vec();
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        rpc(&self.url, &headers, message)
    }
}

impl Way for Http {
    fn name(&self) -> &'static str {
        if self.session.is_some() { "HTTP, session" } else { "HTTP, stateless" }
    }

    fn ask(&mut self, method: &str, params: Value) -> String {
        let named = ["name", "uri", "taskId"].into_iter().find_map(|key| params[key].as_str());
        let name = named.unwrap_or_default().to_owned();
        let (status, head, answer) = match self.session.clone() {
            Some(id) => self.post(&[("mcp-session-id", &id)], &request(1, method, params)),
            None => {
                let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
                if matches!(method, "tools/call" | "prompts/get" | "resources/read")
                    || method.starts_with("tasks/")
                {
                    headers.push(("mcp-name", &name));
                }
                self.post(&headers, &request(1, method, with_meta(params)))
            }
        };
        format!("{status}\n{:?}\n{answer}", without_date(&head))
    }
}

pub(crate) struct Pipe {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    stateless: bool,
    _data: tempfile::TempDir,
}

impl Pipe {
    pub(crate) fn open(home: &TestHome, caller: &str, data: tempfile::TempDir, stateless: bool) -> Self {
        let mut child = pipe(home.path(), data.path(), Some(caller));
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut pipe = Self { child, stdin, lines, stateless, _data: data };
        if !stateless {
            pipe.ask(
                "initialize",
                json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}),
            );
        }
        pipe
    }
}

impl Way for Pipe {
    fn name(&self) -> &'static str {
        if self.stateless { "stdio, stateless" } else { "stdio, session" }
    }

    fn ask(&mut self, method: &str, params: Value) -> String {
        let params = if self.stateless { with_meta(params) } else { params };
        writeln!(self.stdin.as_mut().unwrap(), "{}", request(1, method, params)).unwrap();
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.child.wait().ok();
    }
}

/// Without what differs between any two requests: the correlation id.
pub(crate) fn comparable(answer: &str) -> String {
    let mut out = String::new();
    let mut rest = answer;
    while let Some((before, after)) = rest.split_once("correlation_id") {
        out += before;
        rest = after.find([',', '}']).and_then(|end| after.get(end..)).unwrap_or_default();
    }
    out + rest
}

#[test]
fn a_hidden_or_denied_target_is_one_that_never_was_from_every_entry_point() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let temporary = || tempfile::tempdir().unwrap();
    let [stateless, session] = Http::both(&server.url, None);
    let mut ways: Vec<Box<dyn Way>> = vec![
        Box::new(stateless),
        Box::new(session),
        Box::new(Pipe::open(&home, "anonymous", temporary(), false)),
        Box::new(Pipe::open(&home, "anonymous", temporary(), true)),
    ];
    for way in &mut ways {
        let name = way.name();
        let absent: Vec<String> =
            entry_points("u.absnt").into_iter().map(|(m, p)| comparable(&way.ask(&m, p))).collect();
        for target in TARGETS {
            for (at, (method, params)) in entry_points(target).into_iter().enumerate() {
                let answer = comparable(&way.ask(&method, params.clone()));
                assert_eq!(answer, absent[at], "{name}: {method} {params}");
                let own = target.trim_start_matches("u.");
                assert!(!answer.contains(own), "{name}: the name is not repeated: {answer}");
            }
        }
        let get = |way: &mut Box<dyn Way>, agent: &str| way.ask("agents/get", json!({"name": agent}));
        let absent = get(way, "absnt");
        assert!(absent.contains("agent_not_found"), "{absent}");
        for agent in AGENTS {
            assert_eq!(get(way, agent), absent, "{name}: {agent}");
        }
        for (method, params) in listings() {
            let answer = way.ask(method, params.clone());
            let inner = answer.replace("u.hiddn\\\"", "").replace("\"u.hiddn\"", "");
            for secret in ["hiddn", "denyd", "guard", "confm", "lighthouse tool", "A secret", "unseen"] {
                assert!(!inner.contains(secret), "{name}: {method} {params} betrays `{secret}`: {answer}");
            }
        }
    }
}

/// The time of one exchange on a connection that stays open, in nanoseconds.
fn exchange(stream: &mut TcpStream, message: &[u8], buffer: &mut [u8]) -> u128 {
    let start = Instant::now();
    stream.write_all(message).unwrap();
    let mut read = 0;
    loop {
        read += stream.read(&mut buffer[read..]).unwrap();
        let text = String::from_utf8_lossy(&buffer[..read]).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return start.elapsed().as_nanos();
        }
    }
}

/// The parameters that ask for a target by name.
type Ask = fn(&str) -> Value;

#[test]
fn time_tells_nothing_of_hidden_targets() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let host = server.url.trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&host).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut buffer = vec![0; 64 * 1024];
    let message = |method: &str, params: Value| -> Vec<u8> {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let body = request(1, method, with_meta(params)).to_string();
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
             mcp-method: {method}\r\nmcp-name: {name}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    let questions: [(&str, Ask); 2] = [
        ("tools/call", |n| json!({"name": format!("u.{n}"), "arguments": {}})),
        ("agents/get", |n| json!({ "name": n })),
    ];
    for (method, make) in questions {
        let (hidden, absent) = (message(method, make("hiddn")), message(method, make("absnt")));
        let (mut of_hidden, mut of_absent) = (Vec::new(), Vec::new());
        // In turns, so that whatever else the machine does falls on both.
        for _ in 0..400 {
            of_hidden.push(exchange(&mut stream, &hidden, &mut buffer));
            of_absent.push(exchange(&mut stream, &absent, &mut buffer));
        }
        let median = |times: &mut Vec<u128>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let (hidden, absent) = (median(&mut of_hidden), median(&mut of_absent));
        let apart = hidden.abs_diff(absent);
        // A lookup that went on for a hidden target (a policy run, a schema check) takes longer than this.
        assert!(
            apart * 4 <= absent.max(400_000),
            "{method}: {hidden} ns for a hidden target, {absent} ns for none"
        );
    }
}
