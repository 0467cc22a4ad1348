//! What `docent serve` takes with a catalog of 10,000 real tools: time to the first list, a full list, memory.
//!
//! `cargo bench --bench footprint` starts it as a process of its own on the core of the shared catalog
//! (`DOCENT_SHARED`). `JOBS=9900 cargo bench --bench footprint` measures that many jobs that wait for a slot instead, and
//! what 1,000 long polls of one take. Budgets stand in `benches/README.md`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a measuring program, not the server"
)]

mod support;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use support::{Client, DOCENT, home, start_docent};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match std::env::var("JOBS").ok().and_then(|n| n.parse().ok()) {
        Some(jobs) => runtime.block_on(waiting_jobs(jobs)),
        None => runtime.block_on(measure()),
    }
}

/// Threads of a process (Linux).
fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

/// Fills an upstream's slots, then lets `jobs` more wait for one.
async fn waiting_jobs(jobs: usize) {
    let home = home(&[
        (
            "docent.toml",
            "[callers.anonymous]\n[upstreams]\nenabled = [\"prog\"]\n[[allow]]\ntools = [\"*\"]\n".to_owned(),
        ),
        (
            "scripts/prog/upstream.toml",
            "kind = \"command\"\nconcurrency = 4\ntimeout_ms = 600000\n[[tool]]\nid = \"sleep\"\n\
             description = \"Sleeps.\"\nrun = [\"sleep\", \"600\"]\n"
                .to_owned(),
        ),
    ]);
    let (process, address) = start_docent(Command::new(DOCENT), home.path(), "prog_sleep").await;
    let pid = process.0.id();
    let mut client = Client::connect(&address).await;
    client.open_session().await;
    let run = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "docent_run_tool",
        "arguments": {"tool": "prog.sleep", "wait_seconds": 0}}});
    let mut id = Value::Null;
    for _ in 0..40 {
        let (_, body) = client.post(&run.to_string()).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        id = answer["result"]["structuredContent"]["job_id"].clone();
        assert!(id.is_string(), "{body}");
    }
    let (before, start) = (rss(pid), Instant::now());
    for _ in 0..jobs {
        client.post(&run.to_string()).await;
    }
    let (after, took) = (rss(pid), start.elapsed());
    let each = (after - before) * 1024.0 * 1024.0 / jobs as f64;
    println!(
        "{jobs} waiting jobs: {before:.1} MiB before, {after:.1} MiB after, {each:.0} bytes each, made in {} ms",
        took.as_millis()
    );
    let idle = threads(pid);
    let poll =
        json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "docent_job_status",
        "arguments": {"job_id": id, "wait_seconds": 60}}})
        .to_string();
    let mut polls = Vec::new();
    for _ in 0..1_000 {
        let mut one = Client::connect(&address).await;
        one.headers.clone_from(&client.headers);
        one.send(&poll).await;
        polls.push(one);
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    println!(
        "1,000 long polls of one job: {} threads, {idle} before; {:.1} MiB more",
        threads(pid),
        rss(pid) - after
    );
}

/// Resident memory of a process in MiB (Linux).
fn rss(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Walks every page of `tools/list`: tools and bytes.
async fn list(client: &mut Client) -> (usize, usize) {
    let (mut tools, mut bytes, mut cursor) = (0, 0, Value::Null);
    loop {
        let mut params = json!({});
        if !cursor.is_null() {
            params["cursor"] = cursor;
        }
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});
        let (_, body) = client.post(&request.to_string()).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        tools += answer["result"]["tools"].as_array().unwrap().len();
        bytes += body.len();
        cursor = answer["result"]["nextCursor"].clone();
        if cursor.is_null() {
            return (tools, bytes);
        }
    }
}

async fn measure() {
    let shared = std::env::var_os("DOCENT_SHARED").map_or_else(|| PathBuf::from("../shared"), PathBuf::from);
    let catalog = shared.join("catalogs/catalog.jsonl.gz").canonicalize().unwrap();
    let home = home(&[
        ("docent.toml", "[upstreams]\nenabled = [\"core\"]\n".to_owned()),
        ("policies/all.rhai", "fn rules(p) { p.allow(); }\n".to_owned()),
        (
            "scripts/core/upstream.toml",
            format!("kind = \"catalog\"\nfile = '{}'\nwhere = {{ core = true }}\n", catalog.display()),
        ),
    ]);
    let start = Instant::now();
    let (process, address) = start_docent(Command::new(DOCENT), home.path(), "docent_search_tools").await;
    println!("first page after {} ms from the start of the process", start.elapsed().as_millis());
    println!("memory after the first page: {:.0} MiB", rss(process.0.id()));
    let mut client = Client::connect(&address).await;
    client.open_session().await;
    for round in 1..=5 {
        let start = Instant::now();
        let (tools, bytes) = list(&mut client).await;
        let took = start.elapsed().as_millis();
        println!(
            "full list {round}: {tools} tools, {bytes} bytes, {took} ms, then {:.0} MiB",
            rss(process.0.id())
        );
    }
    let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "docent_search_tools",
        "arguments": {"query": "create a pull request"}}});
    for _ in 0..400 {
        client.post(&call.to_string()).await;
    }
    println!("memory after 400 searches: {:.0} MiB", rss(process.0.id()));
}
