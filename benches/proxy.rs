//! A lean load generator: the same 2 KB `tools/call` straight to an MCP upstream and through docent, in one run.
//!
//! `cargo bench --bench proxy` starts the upstream and `docent serve` as processes of their own, checks every
//! answer, and prints p50 and p99 of both and their ratio at 1 and 32 clients, on both wires, with the number
//! of requests the upstream saw per call. Budgets stand in `benches/README.md`. With `AGAINST=<another docent>` it
//! compares two builds instead, by the processor time that a call takes of each.
//!
//! Client and upstream are kept on a core each (Linux, `taskset`), docent is not: left alone, the system puts both on
//! one core in one run, where a direct call takes half of what it takes in the next. `CORES=any` leaves it to that.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a measuring program, not the server"
)]

mod cores;
mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use cores::{Core, on_cores, stay_on_the_first_core};
use support::{Client, DOCENT, Killed, home, start_docent};

const ROUNDS: usize = 5;
/// Calls of one client in a round.
const CALLS: usize = 4_000;

fn main() {
    let is_upstream = std::env::args().nth(1).as_deref() == Some("upstream");
    if !is_upstream && std::env::var("CORES").as_deref() != Ok("any") {
        let apart = stay_on_the_first_core();
        println!(
            "client and upstream {}\n",
            if apart { "on a core each" } else { "wherever the system puts them" }
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match std::env::args().nth(1).as_deref() {
        Some("upstream") => runtime.block_on(upstream()),
        _ => match std::env::var("AGAINST") {
            Ok(other) => runtime.block_on(versus(&other)),
            Err(_) => runtime.block_on(compare()),
        },
    }
}

/// A minimal session-wire MCP server with one echo tool; `/count` tells how many POSTs it saw.
async fn upstream() {
    let count = Arc::new(AtomicU64::new(0));
    let app = Router::new()
        .route("/mcp", post(answer))
        .route(
            "/count",
            get(|State(c): State<Arc<AtomicU64>>| async move { c.load(Ordering::Relaxed).to_string() }),
        )
        .with_state(count);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    std::io::stdout().flush().unwrap();
    axum::serve(listener.tap_io(|s| s.set_nodelay(true).unwrap()), app).await.unwrap();
}

async fn answer(State(count): State<Arc<AtomicU64>>, body: Bytes) -> Response {
    count.fetch_add(1, Ordering::Relaxed);
    let request: Value = serde_json::from_slice(&body).unwrap();
    let id = request["id"].clone();
    let result = match request["method"].as_str() {
        Some("initialize") => {
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "lean", "version": "1"}})
        }
        Some("tools/list") => {
            json!({"tools": [{"name": "echo", "description": "Echoes its text.", "annotations": {"readOnlyHint": true},
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}]})
        }
        Some("tools/call") => {
            json!({"content": [{"type": "text", "text": request["params"]["arguments"]["text"]}]})
        }
        Some("ping") => json!({}),
        Some(method) if !method.starts_with("notifications/") => {
            let error =
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown method"}});
            return (StatusCode::OK, [("content-type", "application/json")], error.to_string())
                .into_response();
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert("mcp-session-id", "lean".parse().unwrap());
    (headers, answer).into_response()
}

fn call_body(tool: &str, text: &str, stateless: bool) -> String {
    let mut params = json!({"name": tool, "arguments": {"text": text}});
    if stateless {
        params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}});
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}

/// Rounds of two builds in turns, and calls of each round.
const PAIRS: usize = 30;
const PAIR_CALLS: usize = 4_000;

/// Nanoseconds of processor time that a process has taken (Linux: `schedstat` of its threads).
fn processor_time(of: &Killed) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", of.0.id())).unwrap();
    let taken = |task: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    tasks.filter_map(taken).sum()
}

/// This build and another in turns at 32 clients: what a call takes of the processor, which a neighbour on the machine
/// disturbs less than latencies, and what it disturbs, it disturbs in both.
async fn versus(other: &str) {
    let (_upstream, direct) = start_upstream();
    let homes = [home_for(&direct), home_for(&direct)];
    let own = start_docent(on_cores(Core::Any, DOCENT), homes[0].path(), "lean_echo").await;
    let theirs = start_docent(on_cores(Core::Any, other), homes[1].path(), "lean_echo").await;
    println!(
        "| wire | µs of CPU a call, this build | {other} | this of that, quartiles |\n|---|---|---|---|"
    );
    for stateless in [false, true] {
        let mut rounds = Vec::with_capacity(PAIRS);
        for round in 0..=PAIRS {
            let mut of = [0.0; 2];
            for side in [round % 2, (round + 1) % 2] {
                let (process, address) = [&own, &theirs][side];
                let before = processor_time(process);
                load(address, "lean_echo", 32, PAIR_CALLS, stateless).await;
                of[side] = (processor_time(process) - before) as f64 / 1e3 / PAIR_CALLS as f64;
            }
            rounds.push(of);
        }
        // The first round warms both.
        let sorted = |what: &dyn Fn(&[f64; 2]) -> f64| {
            let mut all: Vec<f64> = rounds.iter().skip(1).map(what).collect();
            all.sort_by(f64::total_cmp);
            [all[PAIRS / 4], all[PAIRS / 2], all[PAIRS * 3 / 4]]
        };
        let [low, ratio, high] = sorted(&|of| of[0] / of[1]);
        println!(
            "| {} | {:.1} | {:.1} | {ratio:.3} ({low:.3} to {high:.3}) |",
            if stateless { "stateless" } else { "session" },
            sorted(&|of| of[0])[1],
            sorted(&|of| of[1])[1],
        );
    }
}

/// Runs `calls` calls over `clients` connections; sorted latencies in microseconds.
async fn load(address: &str, tool: &str, clients: usize, calls: usize, stateless: bool) -> Vec<u64> {
    let mut jobs = Vec::new();
    for _ in 0..clients {
        jobs.push(tokio::spawn(one_client(address.to_owned(), tool.to_owned(), calls / clients, stateless)));
    }
    let mut all = Vec::new();
    for job in jobs {
        all.extend(job.await.unwrap());
    }
    all.sort_unstable();
    all
}

/// Calls that are not counted: they warm connections and caches.
const WARM_UP: usize = 50;

async fn one_client(address: String, tool: String, calls: usize, stateless: bool) -> Vec<u64> {
    let text = "docent ".repeat(292);
    let mut client = Client::connect(&address).await;
    if stateless {
        client.headers =
            format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n");
    } else {
        client.open_session().await;
    }
    let body = call_body(&tool, &text, stateless);
    let mut times = Vec::with_capacity(calls);
    for i in 0..calls + WARM_UP {
        let start = Instant::now();
        let (head, answer) = client.post(&body).await;
        let took = u64::try_from(start.elapsed().as_micros()).unwrap();
        assert!(
            head.starts_with("http/1.1 200") && answer.contains(&text),
            "a wrong answer: {head}\n{answer}"
        );
        if i >= WARM_UP {
            times.push(took);
        }
    }
    times
}

async fn count(address: &str) -> u64 {
    let mut client = Client::connect(address).await;
    client
        .stream
        .write_all(format!("GET /count HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    client.read().await.1.trim().parse().unwrap()
}

fn start_upstream() -> (Killed, String) {
    let program = std::env::current_exe().unwrap();
    let mut child = on_cores(Core::Only(1), program.to_str().unwrap())
        .arg("upstream")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Killed(child), line.trim().to_owned())
}

fn home_for(upstream: &str) -> tempfile::TempDir {
    home(&[
        ("docent.toml", "[upstreams]\nenabled = [\"lean\"]\n".to_owned()),
        ("policies/all.rhai", "fn rules(p) { p.allow(); }\n".to_owned()),
        ("scripts/lean/upstream.toml", format!("kind = \"mcp\"\nurl = \"http://{upstream}/mcp\"\n")),
    ])
}

fn at(sorted: &[u64], share: usize) -> u64 {
    sorted[(sorted.len() - 1) * share / 100]
}

/// The same call through rmcp's client, one at a time, straight to the upstream: what a typed client costs
/// where docent has its own. Sorted latencies in microseconds.
async fn through_rmcp(address: &str) -> Vec<u64> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let transport = StreamableHttpClientTransport::from_uri(format!("http://{address}/mcp"));
    let client = ().serve(transport).await.unwrap();
    let arguments = json!({"text": "docent ".repeat(292)}).as_object().cloned().unwrap();
    let mut times = Vec::with_capacity(CALLS);
    for i in 0..CALLS + WARM_UP {
        let request = CallToolRequestParams::new("echo").with_arguments(arguments.clone());
        let start = Instant::now();
        client.call_tool(request).await.unwrap();
        if i >= WARM_UP {
            times.push(u64::try_from(start.elapsed().as_micros()).unwrap());
        }
    }
    times.sort_unstable();
    times
}

async fn compare() {
    let (_upstream, direct) = start_upstream();
    let (bare, typed) = (load(&direct, "echo", 1, CALLS, false).await, through_rmcp(&direct).await);
    println!(
        "one client, no gateway: a bare socket {} µs, rmcp's client {} µs (p50)\n",
        at(&bare, 50),
        at(&typed, 50)
    );
    let home = home_for(&direct);
    let (_docent, through) = start_docent(on_cores(Core::Any, DOCENT), home.path(), "lean_echo").await;
    println!(
        "| clients | wire | direct p50 / p99 µs | through docent p50 / p99 µs | ratio of p50 | upstream requests per call |"
    );
    println!("|---|---|---|---|---|---|");
    for (clients, stateless) in [(1, false), (1, true), (32, false), (32, true)] {
        let (mut a, mut b, mut seen) = (Vec::new(), Vec::new(), 0);
        // Several at once are done sooner: a round of each takes about as long.
        let calls = if clients == 1 { CALLS } else { 8 * CALLS };
        for _ in 0..ROUNDS {
            a.push(load(&direct, "echo", clients, calls, false).await);
            let before = count(&direct).await;
            b.push(load(&through, "lean_echo", clients, calls, stateless).await);
            seen += count(&direct).await - before;
        }
        // The median round of each: neighbours on the machine spoil single rounds.
        a.sort_by_key(|r| at(r, 50));
        b.sort_by_key(|r| at(r, 50));
        let (a, b) = (&a[ROUNDS / 2], &b[ROUNDS / 2]);
        let calls = (calls / clients + WARM_UP) * clients * ROUNDS;
        println!(
            "| {clients} | {} | {} / {} | {} / {} | {:.2} | {:.2} |",
            if stateless { "stateless" } else { "session" },
            at(a, 50),
            at(a, 99),
            at(b, 50),
            at(b, 99),
            at(b, 50) as f64 / at(a, 50) as f64,
            seen as f64 / calls as f64
        );
    }
}
