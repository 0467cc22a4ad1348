//! `docent check` on broken homes: every mistake at once, with its place, and the exit code.

use std::path::Path;

use serde_json::Value;

use crate::support::{TestHome, docent, root};

/// Exit code, stdout, stderr of `docent ARGS --home HOME`.
pub(crate) fn run(home: &Path, args: &[&str]) -> (i32, String, String) {
    let data = tempfile::tempdir().unwrap();
    let output = docent().args(args).arg("--home").arg(home).arg("--data").arg(data.path()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// The diagnostics of `check --json` as `file:line:column code`, and whether it is ok.
fn diagnostics(home: &TestHome) -> (i32, bool, Vec<String>, Vec<Value>) {
    let (code, out, err) = run(home.path(), &["check", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    let list = report["diagnostics"].as_array().unwrap().clone();
    let place = |d: &Value| {
        format!(
            "{}:{}:{} {}",
            d["file"].as_str().unwrap(),
            d["line"],
            d["column"],
            d["code"].as_str().unwrap()
        )
    };
    (code, report["ok"].as_bool().unwrap(), list.iter().map(place).collect(), list)
}

const ONE_TOOL: &str = r#"
kind = "command"
tags = ["t"]
[[tool]]
id = "echo"
description = "Echoes a word."
input_schema = { type = "object", properties = { word = { type = "string" } } }
run = ["echo", "{word}"]
"#;

fn small(policy: &str) -> TestHome {
    TestHome::with(&[
        ("docent.toml", "[upstreams]\nenabled = [\"one\"]\n"),
        ("scripts/one/upstream.toml", ONE_TOOL),
        ("policies/10-base.rhai", policy),
    ])
}

#[test]
fn a_home_without_mistakes_is_fine() {
    let home = small("fn rules(p) {\n  p.allow().tags([\"t\"]);\n}\n");
    let (code, ok, places, _) = diagnostics(&home);
    assert_eq!((code, ok, places), (0, true, vec![]));
    let (code, out, _) = run(home.path(), &["check"]);
    assert_eq!((code, out.as_str()), (0, "fine: 1 tool of 1 upstream, 1 rule, 0 callers\n"));
}

#[test]
fn broken_toml_has_a_place_and_what_stands_beside_it_is_still_told() {
    let home = TestHome::with(&[
        ("docent.toml", "[server]\nlisten = \nnmae = \"x\"\n[upstreams]\nenabled = [\"one\"]\n"),
        ("scripts/one/upstream.toml", "kind = \"comand\"\n"),
    ]);
    let (code, ok, places, list) = diagnostics(&home);
    assert_eq!((code, ok), (2, false));
    assert!(
        places.iter().any(|p| p.starts_with("docent.toml:2:") && p.ends_with(" toml-syntax")),
        "{places:?}"
    );
    assert!(places.contains(&"docent.toml:3:1 unknown-key".to_owned()), "{places:?}");
    assert!(places.contains(&"scripts/one/upstream.toml:1:8 unknown-value".to_owned()), "{places:?}");
    let helps: Vec<&str> = list.iter().filter_map(|d| d["help"].as_str()).collect();
    assert!(helps.contains(&"did you mean `name`?"), "{helps:?}");
    assert!(list.iter().all(|d| d["severity"] == "error" && d["message"].is_string()), "{list:?}");
}

#[test]
fn a_mistake_is_shown_with_its_line_and_a_caret() {
    let home = TestHome::with(&[("docent.toml", "[server]\npage_size = 0\n")]);
    let (code, out, err) = run(home.path(), &["check"]);
    assert_eq!((code, err.as_str()), (2, ""));
    let caret = "docent.toml:2:13: error[out-of-range]: `server.page_size` must be a whole number from 1 to 1000\n      2 | page_size = 0\n        |             ^\n";
    assert!(out.starts_with(caret), "{out}");
    assert!(out.ends_with("broken: 1 error\n"), "{out}");
}

#[test]
fn a_script_with_a_syntax_error_is_refused_at_its_line() {
    let home = small("fn rules(p) {\n  p.allow().tags([\"t\"];\n}\n");
    let (code, ok, places, _) = diagnostics(&home);
    assert_eq!((code, ok), (2, false));
    assert!(places.iter().any(|p| p.starts_with("policies/10-base.rhai:2:")), "{places:?}");
}

#[test]
fn a_policy_that_reads_a_missing_field_is_refused() {
    let home = small(
        "fn decide(caller, tool, args) {\n  if tool.catgory == \"x\" { deny(\"no\") } else { allow() }\n}\n",
    );
    let (code, ok, places, list) = diagnostics(&home);
    assert_eq!((code, ok), (2, false), "{places:?}");
    assert!(places.iter().any(|p| p.starts_with("policies/10-base.rhai:2:")), "{places:?}");
    let said = list.iter().any(|d| format!("{} {}", d["message"], d["help"]).contains("category"));
    assert!(said, "the right name is suggested: {list:?}");
}

#[test]
fn warnings_fail_only_when_strict() {
    let home = small("fn rules(p) {\n  p.allow().tags([\"t\"]);\n}\n");
    home.write("docent.toml", "[budgets]\nlisted_tools_min = 5\n[upstreams]\nenabled = [\"one\"]\n");
    let (code, ok, places, _) = diagnostics(&home);
    assert_eq!((code, ok, places), (0, true, vec!["docent.toml:0:0 too-few-tools".to_owned()]));
    assert_eq!(run(home.path(), &["check", "--strict"]).0, 1);
}

#[test]
fn a_folder_that_is_no_home_is_broken_for_every_command() {
    let home = TestHome::new();
    assert_eq!(diagnostics(&home).2, ["docent.toml:0:0 no-home"]);
    for args in [&["tools"][..], &["test"], &["serve"], &["call", "a.b"]] {
        let (code, out, err) = run(home.path(), args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains("docent init DIR"), "{err}");
    }
}

#[test]
fn the_repository_is_a_home_without_mistakes_that_loads_within_a_second() {
    let start = std::time::Instant::now();
    let (code, out, err) = run(&root(), &["check", "--strict"]);
    assert_eq!(code, 0, "{out}{err}");
    // Debug builds on a busy machine: the second of the contract is measured in benches.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

/// The codes of `check --json` with a table of budgets and instructions.
fn codes(budgets: &str, instructions: &str) -> Vec<String> {
    let home = small("fn rules(p) {\n  p.allow().tags([\"t\"]);\n}\n");
    let main = format!(
        "[server]\ninstructions = \"{instructions}\"\n[budgets]\n{budgets}\n[upstreams]\nenabled = [\"one\"]\n[callers.anonymous]\n"
    );
    home.write("docent.toml", &main);
    home.write(
        "scripts/one/upstream.toml",
        &ONE_TOOL.replace(
            "word = { type = \"string\" }",
            "word = { type = \"string\", description = \"A word.\" }",
        ),
    );
    diagnostics(&home).2.into_iter().map(|p| p.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn every_budget_is_told_just_where_it_ends() {
    let own = docent::snapshot::MetaTool::ALL.len();
    let (fits, too_few) = (format!("listed_tools_max = {}", own + 1), format!("listed_tools_max = {own}"));
    // One tool and the server's own tools are listed; its description has 14 bytes, its schema 81.
    for (budgets, code) in [
        (&*fits, None),
        (&*too_few, Some("too-many-tools")),
        ("listed_tools_min = 1", None),
        ("listed_tools_min = 2", Some("too-few-tools")),
        ("description_bytes_total = 14", None),
        ("description_bytes_total = 13", Some("descriptions-too-long")),
        ("schema_bytes_per_tool = 81", None),
        ("schema_bytes_per_tool = 80", Some("schema-bytes")),
        ("instructions_bytes = 2048", None),
        ("instructions_bytes = 500", Some("instructions-too-long")),
    ] {
        assert_eq!(codes(budgets, ""), code.into_iter().collect::<Vec<_>>(), "{budgets}");
    }
    assert_eq!(codes("", &"word ".repeat(100)), [""; 0]);
    assert_eq!(codes("", &"word ".repeat(400)), ["instructions-too-long"]);
}

/// Equal calls share an answer only where somebody has written down why.
#[test]
fn a_tool_on_the_list_of_repeats_without_a_reason_is_an_error() {
    for (dedup, code) in [
        ("{ reason = \"a retry is usual, a second one is seen by people, nobody means it\" }", None),
        ("{ reason = \"  \" }", Some("missing-reason")),
        ("{}", Some("missing-key")),
        ("true", Some("wrong-type")),
    ] {
        let home = small("fn rules(p) {\n  p.allow().tags([\"t\"]);\n}\n");
        home.write(
            "scripts/one/upstream.toml",
            &ONE_TOOL.replace("run =", &format!("dedup = {dedup}\nrun =")),
        );
        let (_, ok, found, _) = diagnostics(&home);
        assert_eq!(ok, code.is_none(), "{dedup}: {found:?}");
        assert!(code.is_none_or(|code| found.iter().any(|f| f.ends_with(code))), "{dedup}: {found:?}");
    }
}
