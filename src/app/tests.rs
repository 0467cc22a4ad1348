//! A home opened, edited, broken and mended, with real files.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::call::{ToolCall, ToolOutcome};
use crate::gateway::{CallAnswer, RequestContext};
use crate::policy::Principal;
use crate::transport::Lanes;

const POLICY: &str = "fn rules(p) { p.allow().upstream(\"shelf\"); }\n";

pub(super) fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub(super) fn catalog(names: &[&str]) -> String {
    let record = |n: &&str| {
        json!({"id": format!("shelf.{n}"), "name": n, "upstream": "shelf", "description": format!("The tool {n}"), "input_schema": {"type": "object"}}).to_string()
    };
    names.iter().map(record).collect::<Vec<_>>().join("\n")
}

pub(super) fn home(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "docent.toml", "[upstreams]\nenabled = [\"shelf\"]\n");
    write(dir.path(), "scripts/shelf/upstream.toml", "kind = \"catalog\"\nfile = \"tools.jsonl\"\n");
    write(dir.path(), "scripts/shelf/tools.jsonl", &catalog(names));
    write(dir.path(), "policies/10-base.rhai", POLICY);
    dir
}

pub(super) fn ctx() -> RequestContext {
    RequestContext::new(Arc::new(Principal::anonymous()), "test")
}

fn listed(app: &App) -> Vec<String> {
    let page = app.gateway().list_tools(&ctx(), None).unwrap();
    page.tools.iter().map(|t| t.name.to_string()).filter(|n| n.starts_with("shelf")).collect()
}

pub(super) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("never: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_edit_keeps_the_last_good_generation_and_says_so() {
    let dir = home(&["a", "b"]);
    let app = App::open(dir.path(), Options::default()).await.unwrap();
    assert!(app.gateway().readiness().ready, "{:?}", app.gateway().readiness());
    let searched = async || {
        let call = ToolCall {
            tool: "docent_search_tools".to_owned(),
            arguments: json!({"query": "shelf.a"}).as_object().unwrap().clone(),
            wait: Duration::from_secs(1),
            request_key: None,
            fields: Vec::new(),
        };
        match app.gateway().call_tool(&ctx(), call).await {
            CallAnswer::Outcome(ToolOutcome::Completed(r)) => {
                r.structured.unwrap().value()["tools"][0]["id"].clone()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(searched().await, json!("shelf.a"));
    for (file, text) in [
        ("policies/10-base.rhai", "fn rules(p) { p.allow( }"),
        ("docent.toml", "[upstreams\n"),
        ("docent.toml", "[upstreams]\nenabled = [\"shelf\"]\n[servr]\n"),
    ] {
        let good = crate::json::read_text_capped(&dir.path().join(file), 10_000).unwrap();
        write(dir.path(), file, text);
        let Broken(mistakes) = app.reload().await.unwrap_err();
        assert!(mistakes.0.iter().any(|d| d.file == file && d.line > 0), "{mistakes}");
        assert_eq!(listed(&app), ["shelf_a", "shelf_b"]);
        assert_eq!(searched().await, json!("shelf.a"));
        let state = app.gateway().readiness();
        assert!(!state.ready && !state.reasons.is_empty() && !state.diagnostics.is_empty());
        write(dir.path(), file, &good);
        app.reload().await.unwrap();
        assert!(app.gateway().readiness().ready);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_are_followed_and_surfaces_announced_only_when_they_moved() {
    let dir = home(&["a", "b"]);
    let app = App::open(dir.path(), Options { watch: true, ..Options::default() }).await.unwrap();
    app.keep();
    let mut changes = app.gateway().changes();
    let before = app.gateway().surface(&ctx());
    write(dir.path(), "scripts/shelf/tools.jsonl", &catalog(&["a", "b", "c"]));
    eventually("the new tool is listed", || listed(&app) == ["shelf_a", "shelf_b", "shelf_c"]).await;
    tokio::time::timeout(Duration::from_secs(5), changes.changed()).await.unwrap().unwrap();
    assert_ne!(app.gateway().surface(&ctx()), before);
    let generation = app.gateway().snapshot().generation;
    write(dir.path(), "policies/10-base.rhai", "fn rules(p) { p.allow().tool(\"shelf.a\"); }\n");
    eventually("the policy holds", || listed(&app) == ["shelf_a"]).await;
    assert!(app.gateway().snapshot().generation > generation);
    tokio::time::timeout(Duration::from_secs(5), changes.changed()).await.unwrap().unwrap();
    let index = Arc::clone(&app.gateway().snapshot().index);
    write(dir.path(), "docent.toml", "[server]\npage_size = 50\n[upstreams]\nenabled = [\"shelf\"]\n");
    eventually("the setting holds", || app.gateway().snapshot().settings.page_size == 50).await;
    assert!(Arc::ptr_eq(&index, &app.gateway().snapshot().index), "the index is taken over");
    let quiet = tokio::time::timeout(Duration::from_millis(1_300), changes.changed()).await;
    assert!(quiet.is_err(), "nobody can see a difference");
    app.close(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_is_broken_from_the_start_does_not_open() {
    let dir = home(&["a"]);
    write(dir.path(), "docent.toml", "[upstreams]\nenabled = [\"shef\"]\n");
    write(dir.path(), "policies/20-more.rhai", "fn decide(caller, tool, args) { tool.nonsense }\n");
    let Broken(mistakes) = App::open(dir.path(), Options::default()).await.unwrap_err();
    assert!(mistakes.has_errors(), "{mistakes}");
    assert!(App::open(&dir.path().join("absent"), Options::default()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_server_is_bound_to_loopback_only_even_after_a_reload() {
    let dir = home(&["a"]);
    let app = App::open(dir.path(), Options::default()).await.unwrap();
    let world = ListenAddress::parse("0.0.0.0:0").unwrap();
    assert!(matches!(app.bind(world, None).await, Err(ServeError::Open(_))));
    let local = ListenAddress::parse("127.0.0.1:0").unwrap();
    let listener = app.bind(local, None).await.unwrap();
    let server = tokio::spawn({
        let app = Arc::clone(&app);
        async move { app.serve_http(listener, None, &Lanes::none()).await }
    });
    app.stop().cancel();
    tokio::time::timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
}
