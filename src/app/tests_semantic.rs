//! A home with a sentence model: what ranks while it reads, what a restart and an edit cost, what a broken model says.

use serde_json::Value;

use super::tests::{catalog, ctx, eventually, home, write};
use super::*;
use crate::call::{ToolCall, ToolOutcome};
use crate::gateway::CallAnswer;
use crate::json;
use crate::search::sentence::Sense;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sentence/model");

fn settings(model: &str) -> String {
    format!("[upstreams]\nenabled = [\"shelf\"]\n[semantic]\nmodel = {model:?}\n")
}

fn with_model(names: &[&str]) -> tempfile::TempDir {
    let dir = home(names);
    write(dir.path(), "docent.toml", &settings(MODEL));
    dir
}

fn options(data: &tempfile::TempDir) -> Options {
    Options { data: Some(data.path().to_owned()), ..Options::default() }
}

/// How many tools the model has not read; `None` where it ranks.
fn waiting(app: &App) -> Option<usize> {
    match app.gateway().snapshot().sense {
        Sense::Waiting(tools) => Some(tools),
        Sense::Model(_) => None,
        Sense::Table => panic!("a model is configured"),
    }
}

/// The source of the first hit's semantic signal, and the token of the next page.
async fn searched(app: &App, cursor: Option<Value>) -> Result<(Value, Option<Value>), String> {
    let mut arguments = serde_json::json!({"query": "the tool", "detail": "explain", "limit": 1});
    if let Some(cursor) = cursor {
        arguments["cursor"] = cursor;
    }
    let call = ToolCall {
        tool: "docent_search_tools".to_owned(),
        arguments: arguments.as_object().unwrap().clone(),
        wait: std::time::Duration::from_secs(5),
        request_key: None,
        fields: Vec::new(),
    };
    match app.gateway().call_tool(&ctx(), call).await {
        CallAnswer::Outcome(ToolOutcome::Completed(r)) => {
            let answer = r.structured.unwrap().value();
            let signals = answer["tools"][0]["signals"].as_array().unwrap().clone();
            let semantic = signals.iter().find(|s| s["name"] == "semantic").unwrap()["source"].clone();
            Ok((semantic, answer.get("next_cursor").cloned()))
        }
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_ranks_until_the_model_has_read_every_tool_and_a_restart_reads_none() {
    let (dir, data) = (with_model(&["a", "b", "c"]), tempfile::tempdir().unwrap());
    let app = App::open(dir.path(), options(&data)).await.unwrap();
    assert_eq!(waiting(&app), Some(3));
    assert!(app.gateway().readiness().ready, "readiness does not wait for it");
    let (source, cursor) = searched(&app, None).await.unwrap();
    assert_eq!(source, "fallback");
    app.embed(|_, _| true).await;
    assert_eq!(waiting(&app), None);
    let stale = searched(&app, cursor).await.unwrap_err();
    assert!(stale.contains("StaleCursor"), "another ranking has page tokens of its own: {stale}");
    let (source, cursor) = searched(&app, None).await.unwrap();
    assert_eq!(source, "model model");
    assert_eq!(searched(&app, cursor).await.unwrap().0, "model model");
    // A few tools that are new are read before they are published.
    write(dir.path(), "scripts/shelf/tools.jsonl", &catalog(&["a", "b", "d"]));
    app.reload().await.unwrap();
    assert_eq!(waiting(&app), None);
    app.close(std::time::Duration::from_secs(1)).await;
    let again = App::open(dir.path(), options(&data)).await.unwrap();
    assert_eq!(waiting(&again), None, "what was embedded is kept");
    let file = data.path().join("sentence-vectors.bin");
    std::fs::write(&file, b"something else").unwrap();
    let damaged = App::open(dir.path(), options(&data)).await.unwrap();
    assert_eq!(waiting(&damaged), Some(3), "a damaged file is a memory lost, not a fault");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_served_home_reads_its_tools_beside_the_serving_and_a_stopped_one_does_not_go_on() {
    let names: Vec<String> = (0..60).map(|n| format!("t{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (dir, data) = (with_model(&names), tempfile::tempdir().unwrap());
    let app = App::open(dir.path(), options(&data)).await.unwrap();
    app.embed(|done, all| {
        assert!(done <= all && all == 60, "{done} {all}");
        done == 0
    })
    .await;
    let left = waiting(&app).unwrap();
    assert!(0 < left && left < 60, "what was made before it was stopped is kept: {left}");
    app.keep();
    eventually("the model has read all tools", || waiting(&app).is_none()).await;
    app.close(std::time::Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_model_is_an_error_at_its_key_and_the_last_good_generation_serves_on() {
    let dir = with_model(&["a"]);
    let own = dir.path().join("own");
    for name in ["config.json", "vocab.txt", "model.safetensors"] {
        let bytes = json::read_capped(&Path::new(MODEL).join(name), 100_000).unwrap();
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join(name), bytes).unwrap();
    }
    write(dir.path(), "docent.toml", &settings("own"));
    let app = App::open(dir.path(), Options::default()).await.unwrap();
    app.embed(|_, _| true).await;
    assert_eq!(searched(&app, None).await.unwrap().0, "model own", "a folder of the home; no data directory");
    let weights = own.join("model.safetensors");
    let whole = json::read_capped(&weights, 100_000).unwrap();
    std::fs::write(&weights, &whole[..whole.len() - 9]).unwrap();
    let Broken(mistakes) = app.reload().await.unwrap_err();
    let mistake = mistakes.0.iter().find(|d| d.code == "bad-model").unwrap();
    assert_eq!((mistake.file.as_str(), mistake.line), ("docent.toml", 4));
    assert!(
        mistake.message.contains("must have the shape") && mistake.message.contains("cut short"),
        "{mistake}"
    );
    assert_eq!(searched(&app, None).await.unwrap().0, "model own");
    for (model, told_of) in
        [("nowhere", "config.json cannot be read"), ("policies", "config.json cannot be read")]
    {
        write(dir.path(), "docent.toml", &settings(model));
        let Broken(mistakes) = App::open(dir.path(), Options::default()).await.unwrap_err();
        assert!(mistakes.to_string().contains(told_of), "{mistakes}");
    }
}
