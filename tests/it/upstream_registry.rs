//! Adapters across reloads, remembered discoveries, and catalogs of definitions.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use docent::catalog::Availability;
use docent::clock::Clock;
use docent::upstream::{Registry, UpstreamState};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{TestHome, shared};
use crate::upstream_http::serve;
use crate::upstream_support::{TestUpstream, names, read, result};

async fn small_server() -> String {
    let app = Router::new().route(
        "/mcp",
        post(|body: String| async move {
            let message: Value = serde_json::from_str(&body).unwrap();
            let tools = json!([{"name": "one", "description": "d", "inputSchema": {"type": "object"}}]);
            let answer = match message["method"].as_str() {
                Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "resources": {}, "prompts": {}}}),
                Some("resources/list") => json!({"resources": [{"uri": "x://a", "name": "a", "mimeType": "text/plain"}]}),
                Some("resources/templates/list") => json!({"resourceTemplates": [{"uriTemplate": "x://{id}", "name": "any"}]}),
                Some("prompts/list") => json!({"prompts": [{"name": "ask", "arguments": [{"name": "n", "required": true}]}]}),
                Some("tools/list") => json!({"tools": tools}),
                _ => return json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}).to_string(),
            };
            result(&message["id"], answer).to_string()
        }),
    );
    format!("{}/mcp", serve(app.layer(axum::middleware::map_response(as_json))).await)
}

async fn as_json(mut response: axum::response::Response) -> axum::response::Response {
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_are_kept_while_their_settings_stay_and_tools_are_remembered() {
    let (home, data) = (TestHome::new(), tempfile::tempdir().unwrap());
    let url = small_server().await;
    let toml = format!("kind = \"mcp\"\nurl = \"{url}\"\n");
    let registry = Registry::new(Clock::system(), Some(data.path()));
    let mut changes = registry.changes();
    let first = registry.stage(vec![read(&home, "m", &toml).unwrap()]);
    assert_eq!(first.statuses()[0].state, UpstreamState::Unknown);
    registry.discover(&first, true).await;
    assert!(first.discoveries().is_empty(), "an MCP server is not asked with the static kinds");
    registry.discover(&first, false).await;
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_eq!(names(first.discoveries().values().next().unwrap()), ["one"]);
    let status = first.statuses().remove(0);
    assert_eq!((status.state, status.complete, status.tools), (UpstreamState::Up, true, 1));
    registry.adopt(first.clone());

    let same = registry.stage(vec![read(&home, "m", &toml).unwrap()]);
    assert!(Arc::ptr_eq(same.get("m").unwrap(), first.get("m").unwrap()));
    assert_eq!(same.discoveries().len(), 1);
    let other = format!("{toml}tags = [\"new\"]\n");
    let changed = registry.stage(vec![read(&home, "m", &other).unwrap()]);
    assert!(!Arc::ptr_eq(changed.get("m").unwrap(), first.get("m").unwrap()));

    // A later run knows the tools before the server answers, or when it never does.
    let later = Registry::new(Clock::system(), Some(data.path()));
    let set = later.stage(vec![read(&home, "m", &toml).unwrap()]);
    assert_eq!(names(set.discoveries().values().next().unwrap()), ["one"]);
    let (recalled, found) = (set.discoveries(), first.discoveries());
    let (recalled, found) = (recalled.values().next().unwrap(), found.values().next().unwrap());
    assert_eq!((found.offered.resources.len(), found.offered.prompts.len()), (2, 1));
    assert_eq!(recalled.offered, found.offered, "resources and prompts too");
    let status = set.statuses().remove(0);
    assert!(!status.complete && status.note.contains("earlier run"), "{status:?}");
    let unknown = later.stage(vec![read(&home, "m", &other).unwrap()]);
    assert!(unknown.discoveries().is_empty(), "what was found under other settings does not count");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_down_is_declared_and_found_again() {
    let home = TestHome::new();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let toml = format!("kind = \"mcp\"\nurl = \"http://{address}/mcp\"\n");
    let registry = Arc::new(Registry::new(Clock::system(), None));
    let set = registry.stage(vec![read(&home, "m", &toml).unwrap()]);
    registry.adopt(set.clone());
    registry.discover(&set, false).await;
    let status = set.statuses().remove(0);
    assert_eq!((status.state, status.complete, status.tools), (UpstreamState::Down, false, 0));
    assert!(status.note.contains("cannot be reached"), "{}", status.note);

    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let app = Router::new().route("/mcp", post(|body: String| async move {
        let message: Value = serde_json::from_str(&body).unwrap();
        let answer = match message["method"].as_str() {
            Some("server/discover") => json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}),
            _ => json!({"tools": [], "resultType": "complete"}),
        };
        ([("content-type", "application/json")], result(&message["id"], answer).to_string())
    }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let stop = CancellationToken::new();
    let keeper = tokio::spawn({
        let (registry, stop) = (Arc::clone(&registry), stop.clone());
        async move { registry.keep_fresh(stop).await }
    });
    for _ in 0..200 {
        if set.statuses()[0].state == UpstreamState::Up {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(set.statuses()[0].state, UpstreamState::Up);
    stop.cancel();
    keeper.await.unwrap();
    registry.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_of_definitions_loads_whole_and_answers_unavailable() {
    let Some(dir) = shared("the catalog of 22,742 tools") else { return };
    let file = dir.join("catalogs/catalog.jsonl.gz");
    let all = TestUpstream::new("catalog", &format!("kind = \"catalog\"\nfile = \"{}\"\n", file.display()));
    let found = all.discover().await;
    assert_eq!((found.tools.len(), found.complete), (22_742, true), "{}", found.problems);
    let toml = format!("kind = \"catalog\"\nfile = \"{}\"\nwhere = {{ core = true }}\n", file.display());
    let core = TestUpstream::new("catalog", &toml);
    let found = core.discover().await;
    assert_eq!(found.tools.len(), 10_000);
    let tool = &found.tools[0].tool;
    assert!(!tool.description.is_empty() && !tool.category.is_empty());
    assert!(matches!(tool.availability, Availability::Unavailable(_)));
    let error = core.call(&tool.name, json!({})).await.unwrap_err();
    assert!(error.message.contains("definition only"), "{}", error.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_record_costs_itself_only() {
    let record =
        |id: &str| format!("{{\"id\":\"{id}\",\"name\":\"n\",\"upstream\":\"u\",\"description\":\"d\"}}\n");
    let lines = format!(
        "{}not json\n{}{{\"id\":\"a b\",\"name\":\"n\",\"upstream\":\"u\"}}\n",
        record("u.a"),
        record("u.b")
    );
    let home = TestHome::with(&[("scripts/c/c.jsonl", lines.as_str())]);
    let catalog = TestUpstream::at(home, "c", "kind = \"catalog\"\nfile = \"c.jsonl\"\n");
    let found = catalog.discover().await;
    assert_eq!((found.tools.len(), found.complete, found.problems.0.len()), (2, false, 2));
    assert!(found.problems.0[0].message.starts_with("catalog line 2:"), "{}", found.problems);
}
