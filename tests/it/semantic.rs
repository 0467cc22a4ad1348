//! The sentence model from the command line: refused by name where docent was built without it; with the cargo feature
//! `semantic` it ranks, and `docent eval` waits for it.

use std::process::Output;

use serde_json::json;

use crate::support::{TestHome, docent, root};

fn home() -> TestHome {
    let model = root().join("tests/fixtures/sentence/model");
    let main = format!("[upstreams]\nenabled = [\"shelf\"]\n\n[semantic]\nmodel = {}\n", json!(model));
    let tools = r#"{"id": "shelf.weather", "name": "weather", "upstream": "shelf", "description": "Get the weather forecast.", "input_schema": {"type": "object"}}
{"id": "shelf.mail", "name": "mail", "upstream": "shelf", "description": "Send an email to the team.", "input_schema": {"type": "object"}}
"#;
    TestHome::with(&[
        ("docent.toml", &main),
        ("scripts/shelf/upstream.toml", "kind = \"catalog\"\nfile = \"tools.jsonl\"\n"),
        ("scripts/shelf/tools.jsonl", tools),
        ("policies/10-base.rhai", "fn rules(p) { p.allow().upstream(\"shelf\"); }\n"),
        ("asked.jsonl", "{\"qid\": \"1\", \"query\": \"weather\", \"groups\": [[\"shelf.weather\"]]}\n"),
    ])
}

fn run(home: &TestHome, args: &[&str]) -> Output {
    let mut command = docent();
    command.args(args).arg("--home").arg(home.path()).arg("--data").arg(home.path().join("data"));
    command.output().unwrap()
}

#[cfg(not(feature = "semantic"))]
#[test]
fn a_docent_without_the_feature_refuses_a_model_at_its_key() {
    let home = home();
    let out = run(&home, &["search", "weather"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("docent.toml:5:") && said.contains("cargo feature `semantic`"), "{said}");
    assert!(said.contains("--features semantic"), "the way out: {said}");
}

#[cfg(feature = "semantic")]
#[test]
fn the_model_ranks_from_the_command_line() {
    let home = home();
    let asked = home.path().join("asked.jsonl");
    let out = run(&home, &["eval", asked.to_str().unwrap(), "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(home.path().join("data/sentence-vectors.bin").exists(), "what was embedded is kept");
    let out = run(&home, &["search", "weather", "--explain"]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("\"model model\""), "{said}");
}
