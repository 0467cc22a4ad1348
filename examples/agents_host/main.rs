//! A scripted host for the agents of `examples/agents`: seven steps, each checked.
//! `cargo run --example agents_host [-- --wire stateless] [--url http://127.0.0.1:8080]`
//!
//! Without `--url` it serves the home itself on a free port. It stands in for a host with a model: it lists the
//! roster, opens agents, calls their tools through `tools/call`, steps up, and hears of a roster that changed.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "an example talks to the terminal, reads its files, and its checks may look into JSON directly"
)]

mod host;
mod serve;
pub(crate) mod wire;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use host::{RoleTable, RosterCache, watch};
use wire::{Client, Refused, Wire};

/// What a failed check says.
type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut wire, mut url) = (Wire::Session, None);
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument.clone(), arguments.next()),
        };
        match (name.as_str(), value.as_deref()) {
            ("--wire", Some("session")) => wire = Wire::Session,
            ("--wire", Some("stateless")) => wire = Wire::Stateless,
            ("--url", Some(given)) => url = Some(given.to_owned()),
            _ => {
                eprintln!("usage: agents_host [--wire session|stateless] [--url http://HOST:PORT]");
                return ExitCode::from(64);
            }
        }
    }
    let walked = match url {
        Some(url) => walk(&url, wire).await,
        None => walk_alone(wire).await,
    };
    match walked {
        Ok(()) => {
            println!("all seven steps hold on the {wire:?} wire");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("the walk failed: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the home on a free port and walks over it.
pub(crate) async fn walk_alone(wire: Wire) -> Result<(), Failed> {
    let served = serve::home().await?;
    let walked = walk(&served.url, wire).await;
    served.end().await;
    walked
}

fn check(holds: bool, what: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(format!("this does not hold: {what}").into()) }
}

fn names(roster: &Value) -> Vec<&str> {
    roster["agents"].as_array().into_iter().flatten().filter_map(|a| a["name"].as_str()).collect()
}

/// The seven steps of the walkthrough.
async fn walk(url: &str, wire: Wire) -> Result<(), Failed> {
    println!("1. connect as Alice and check the extension");
    let alice = Client::connect(url, "alice-read", wire).await?;
    check(alice.agents == json!({"listChanged": true}), "the server announces roster changes")?;
    check(alice.server_name() == "docent", "it is docent that answers")?;

    println!("2. list the agents that Alice can see");
    let cache = Arc::new(RosterCache::default());
    let roster = cache.roster(&alice).await?;
    check(names(&roster) == ["deploy-agent", "pipeline-agent"], "Alice sees two agents")?;
    let fields = |card: &Value| card.as_object().is_some_and(|c| c.len() == 3 && !c.contains_key("tools"));
    check(
        roster["agents"].as_array().is_some_and(|a| a.iter().all(fields)),
        "cards have routing fields only",
    )?;
    check(roster["cacheScope"] == "private" && roster["ttlMs"] == 60_000, "it is Alice's own for a minute")?;

    println!("3. open pipeline-agent");
    let opened = cache.agent(&alice, "pipeline-agent").await?;
    check(opened["agent"] == "pipeline-agent" && opened["instructions"].is_string(), "it has instructions")?;
    let model = RoleTable::default().model(&opened["modelRoutingHint"]);
    check(model == "house-small", "its hint is mapped onto a model of the host")?;
    let listed = alice.tools().await?;
    let tools = opened["tools"].as_array().cloned().unwrap_or_default();
    check(
        tools.len() == 2 && tools.iter().all(|t| listed.contains(t)),
        "its tools are the list's, field for field",
    )?;

    println!("4. run it, through tools/call");
    let failed = alice.call(&tools[0]["name"], json!({})).await?;
    let first = failed["structuredContent"]["data"]["pipelines"][0]["id"].clone();
    let log = alice.call(&tools[1]["name"], json!({ "id": first })).await?;
    check(log["structuredContent"]["data"]["log"].is_array(), "the log of the first failed pipeline")?;

    per_caller(url, wire, &alice).await?;
    let broad = step_up(url, wire, &alice, &cache).await?;
    roster_changes(&alice, &broad, cache).await
}

async fn per_caller(url: &str, wire: Wire, alice: &Client) -> Result<(), Failed> {
    println!("5. Bob sees another roster");
    let bob = Client::connect(url, "bob-billing", wire).await?;
    let roster = RosterCache::default().roster(&bob).await?;
    check(names(&roster).contains(&"billing-agent"), "Bob sees the billing agent")?;
    let hidden = alice.request("agents/get", json!({"name": "billing-agent"})).await;
    let absent = alice.request("agents/get", json!({"name": "no-such-agent"})).await;
    check(
        matches!(&hidden, Err(Refused::Rpc { code: -32602, reason, .. }) if reason == "agent_not_found"),
        "to Alice it does not exist",
    )?;
    check(hidden == absent, "and the answer is that of a name that never was")
}

/// Alice comes back with a broader token; the client that has it.
async fn step_up(url: &str, wire: Wire, alice: &Client, cache: &RosterCache) -> Result<Client, Failed> {
    println!("6. Alice may see deploy-agent, and opens it after stepping up");
    let refused = cache.agent(alice, "deploy-agent").await;
    let scopes = refused.err().and_then(|why| host::step_up_scopes(&why)).unwrap_or_default();
    check(scopes == ["ops:deploy"], "the refusal names the scope")?;
    let broad = Client::connect(url, "alice-deploy", wire).await?;
    let opened = cache.agent(&broad, "deploy-agent").await?;
    check(opened["tools"].as_array().is_some_and(|t| t.len() == 2), "the retry reached the server")?;
    Ok(broad)
}

async fn roster_changes(alice: &Client, broad: &Client, cache: Arc<RosterCache>) -> Result<(), Failed> {
    println!("7. the roster changes, and the host hears about it");
    let before = cache.roster(alice).await?;
    check(!names(&before).contains(&"release-agent"), "nobody has published the release agent before")?;
    let watching = watch(alice, Arc::clone(&cache)).await?;
    let published = broad.call(&json!("admin_publish_release_agent"), json!({})).await?;
    check(published["isError"] == false, "the tool published it")?;
    for _ in 0..200 {
        if names(&cache.roster(alice).await?).contains(&"release-agent") {
            watching.abort();
            return check(cache.fetched() == 2, "the roster was asked for twice, not polled");
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    watching.abort();
    Err("no notification dropped the roster that was kept".into())
}
