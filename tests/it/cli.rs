//! The commands from outside: exit codes, shapes of `--json`, what goes to stdout.

use serde_json::Value;

use crate::check::run;
use crate::support::{TestHome, docent};

const ECHO: &str = r#"
kind = "command"
category = "words"
tags = ["t"]
[[tool]]
id = "echo"
description = "Echoes a word, for tests."
input_schema = { type = "object", required = ["word"], additionalProperties = false, properties = { word = { type = "string" } } }
annotations = { read_only = true }
run = ["echo", "{word}"]
[[tool]]
id = "secret"
description = "Only for those who may."
run = ["echo", "s"]
tags = ["guarded"]
"#;

const DOCENT: &str = r#"
[upstreams]
enabled = ["w"]
[callers.op]
scopes = ["ops:read"]
[callers.guest]
"#;

const POLICY: &str = "fn rules(p) {\n  p.allow().tags([\"t\"]);\n  p.allow().tags([\"guarded\"]).scopes([\"ops:read\"]);\n  p.hide().tags([\"guarded\"]).unless_scopes([\"ops:read\"]);\n}\n";

fn home() -> TestHome {
    TestHome::with(&[
        ("docent.toml", DOCENT),
        ("scripts/w/upstream.toml", ECHO),
        ("policies/10.rhai", POLICY),
    ])
}

fn json(home: &TestHome, args: &[&str]) -> (i32, Value) {
    let (code, out, err) = run(home.path(), args);
    (code, serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?}: {e}: {out}{err}")))
}

#[test]
fn usage_mistakes_are_64_and_help_is_0() {
    for args in [&[][..], &["nonsense"], &["call"], &["token", "new", "x", "--scopes", "a b"]] {
        assert_eq!(docent().args(args).output().unwrap().status.code(), Some(64), "{args:?}");
    }
    let help = docent().arg("--help").output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("check"));
    // Commands of later issues do not exist rather than pretend.
    for later in ["record", "pin", "audit", "bench"] {
        assert_eq!(docent().arg(later).output().unwrap().status.code(), Some(64), "{later}");
    }
    let home = home();
    assert_eq!(run(home.path(), &["tools", "--as", "gest"]).0, 64);
    assert!(run(home.path(), &["tools", "--as", "gest"]).2.contains("did you mean `guest`?"));
    assert_eq!(run(home.path(), &["call", "w.echo", "[1]"]).0, 64);
    assert_eq!(run(home.path(), &["call", "w.echo", "{"]).0, 64);
}

#[test]
fn tools_are_those_that_the_caller_sees() {
    let home = home();
    let ids = |caller: &str| {
        let (code, report) = json(&home, &["tools", "--as", caller, "--json"]);
        assert_eq!((code, &report["mode"]), (0, &Value::from("full")));
        assert_eq!(report["total"], report["tools"].as_array().unwrap().len());
        report["tools"].as_array().unwrap().clone()
    };
    let op = ids("op");
    assert_eq!(op.iter().map(|t| t["id"].as_str().unwrap()).collect::<Vec<_>>(), ["w.echo", "w.secret"]);
    assert_eq!(
        (&op[0]["name"], &op[0]["upstream"], &op[0]["category"], &op[0]["description_bytes"]),
        (&Value::from("w_echo"), &Value::from("w"), &Value::from("words"), &Value::from(25))
    );
    assert!(op[0]["schema_bytes"].as_u64().unwrap() > 50);
    assert_eq!(ids("guest").len(), 1);
}

#[test]
fn a_call_goes_the_whole_way() {
    let home = home();
    let (code, out, err) = run(home.path(), &["call", "w.echo", r#"{"word": "hi"}"#]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "hi\n", ""));
    let (code, result) = json(&home, &["call", "w_echo", r#"{"word": "hi"}"#, "--json"]);
    assert_eq!(
        (code, &result["isError"], &result["content"][0]["type"]),
        (0, &Value::from(false), &Value::from("text"))
    );
    let (code, result) = json(&home, &["call", "w.echo", r#"{"wrod": "hi"}"#, "--json"]);
    assert_eq!((code, &result["isError"]), (1, &Value::from(true)));
    assert_eq!(result["structuredContent"]["error"]["code"], "INVALID_ARGUMENT");
    // Hidden and absent are one answer.
    let (hidden, absent) = (run(home.path(), &["call", "w.secret"]), run(home.path(), &["call", "w.absent"]));
    assert_eq!((hidden.0, hidden.2.replace("secret", "absent")), (absent.0, absent.2));
    assert_eq!(hidden.0, 1);
    assert_eq!(run(home.path(), &["call", "w.secret", "--as", "op"]).1, "s\n");
}

#[test]
fn search_and_describe_are_the_meta_tools() {
    let home = home();
    let (code, found) = json(&home, &["search", "echo a word", "--json"]);
    assert_eq!((code, &found["tools"][0]["id"]), (0, &Value::from("w.echo")));
    let (_, explained) = json(&home, &["search", "echo a word", "--explain"]);
    assert!(explained["tools"][0].to_string().contains("weight"), "{explained}");
    let (code, entry) = json(&home, &["describe", "w.echo"]);
    assert_eq!(
        (code, &entry["id"], &entry["permissions"]["callable"]),
        (0, &Value::from("w.echo"), &Value::from(true))
    );
    assert_eq!(run(home.path(), &["describe", "w.secret"]).0, 1);
    assert_eq!(run(home.path(), &["search", "zzqqxx"]).0, 1);
}

#[test]
fn a_decision_is_explained_with_its_rule() {
    let home = home();
    let (code, told) = json(&home, &["policy", "explain", "w.secret", "--as", "op", "--json"]);
    assert_eq!(
        (code, &told["rule"]["file"], &told["rule"]["line"]),
        (0, &Value::from("policies/10.rhai"), &Value::from(3))
    );
    for key in ["decision", "reason", "scopes", "steps", "facts"] {
        assert!(told.get(key).is_some(), "{key}: {told}");
    }
    let (_, matrix) = json(&home, &["policy", "matrix", "--json"]);
    let of = |caller: &str| {
        matrix.as_array().unwrap().iter().find(|r| r["caller"] == caller).unwrap()["tools"].clone()
    };
    assert_eq!(of("op"), serde_json::json!({"w.echo": "callable", "w.secret": "callable"}));
    assert_eq!(of("guest"), of("anonymous"));
    assert_eq!(of("guest"), serde_json::json!({"w.echo": "callable"}));
}

#[test]
fn cases_are_run_compared_and_rewritten() {
    let home = home();
    home.write(
        "policies/cases/p.yaml",
        "callers: {guest: {}, op: {scopes: [\"ops:read\"]}}\ncases:\n  - {name: guests see one, caller: guest, visible: [w.echo]}\n  - {name: op, caller: op, tool: w.secret, expect: deny}\n",
    );
    home.write("scripts/w/cases/e.yaml", "name: an echo\ntool: echo\nreply: {text: \"hi\"}\ntext: \"ho\"\n");
    let (code, report) = json(&home, &["test", "--json"]);
    assert_eq!((code, &report["passed"], &report["failed"]), (1, &Value::from(1), &Value::from(2)));
    let names: Vec<&str> =
        report["cases"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "scripts/w/cases/e.yaml: an echo",
            "policies/cases/p.yaml: guests see one",
            "policies/cases/p.yaml: op"
        ]
    );
    assert!(report["cases"][0]["diff"].as_str().unwrap().contains("+  \"text\": \"hi\""), "{report}");
    assert!(report["cases"][2]["diff"].as_str().unwrap().contains("+ expect: permit"), "{report}");
    assert_eq!(run(home.path(), &["test", "echo", "--update"]).0, 0);
    let (code, report) = json(&home, &["test", "an echo", "--json"]);
    assert_eq!((code, &report["passed"]), (0, &Value::from(1)));
}

#[test]
fn a_misspelt_expectation_fails_instead_of_passing() {
    let home = home();
    home.write("scripts/w/cases/e.yaml", "tool: echo\nreply: {text: \"hi\"}\ntxet: \"ho\"\n");
    let (code, report) = json(&home, &["test", "--json"]);
    assert_eq!(code, 1);
    assert!(report["cases"][0]["diff"].as_str().unwrap().contains("txet"), "{report}");
}

#[test]
fn a_recorded_reply_is_projected_offline() {
    let home = home();
    home.write("reply.txt", "one two\n");
    let reply = home.path().join("reply.txt");
    let (code, report) = json(&home, &["project", "w.echo", "--reply", reply.to_str().unwrap(), "--json"]);
    assert_eq!((code, &report["ok"], &report["bytes_in"]), (0, &Value::from(true), &Value::from(8)));
    assert_eq!((&report["tokens_in"], &report["schema_errors"]), (&Value::from(2), &serde_json::json!([])));
    assert_eq!(report["result"]["text"], "one two\n", "{report}");
    assert!(report["omitted"].is_array() && report["bytes_out"].is_u64() && report["tokens_out"].is_u64());
}

#[test]
fn search_is_measured_on_labelled_queries() {
    let home = home();
    home.write(
        "q.jsonl",
        "{\"qid\":\"1\",\"query\":\"echo a word\",\"groups\":[[\"w.echo\",\"w.other\"]],\"set\":\"a\",\"kind\":\"x\"}\n{\"qid\":\"2\",\"query\":\"zzqqxx\",\"groups\":[[\"w.echo\"]],\"set\":\"b\"}\n",
    );
    let file = home.path().join("q.jsonl");
    let (code, report) = json(&home, &["eval", file.to_str().unwrap(), "--json"]);
    assert_eq!((code, &report["queries"]), (0, &Value::from(2)));
    for key in ["recall_at_1", "recall_at_5", "recall_at_10", "mrr", "ndcg_at_10"] {
        assert_eq!(report[key], 0.5, "{key}");
        assert_eq!(report["intervals"][key], serde_json::json!([0.0, 1.0]), "{key}");
        assert_eq!(
            (&report["per_set"]["a"][key], &report["per_set"]["b"][key]),
            (&Value::from(1.0), &Value::from(0.0))
        );
    }
    home.write("q.jsonl", "{\"qid\":\"1\",\"query\":\"echo\",\"groups\":[]}\n");
    let (code, _, err) = run(home.path(), &["eval", file.to_str().unwrap()]);
    assert!(code == 1 && err.contains("q.jsonl:1:"), "{err}");
}

/// A server ends with 0 on SIGTERM, on HTTP and on a pipe whose other end stays open.
#[cfg(unix)]
#[test]
fn a_server_ends_when_it_is_told_to() {
    use std::io::Read;
    let home = home();
    for args in [&["--listen", "127.0.0.1:0"][..], &["--stdio"]] {
        let data = tempfile::tempdir().unwrap();
        let mut child = docent()
            .arg("serve")
            .args(args)
            .arg("--home")
            .arg(home.path())
            .arg("--data")
            .arg(data.path())
            .env("DOCENT_LOG", "info")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Signals are waited for once it says that it listens; a pipe says nothing, so it gets a moment.
        if args.len() > 1 {
            let (mut seen, mut byte) = (String::new(), [0]);
            while !seen.contains("docent serves http://127.0.0.1:") {
                child.stderr.as_mut().unwrap().read_exact(&mut byte).unwrap();
                seen.push(char::from(byte[0]));
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").arg(&pid).status().unwrap().success());
        let start = std::time::Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed().as_secs() > 20 {
                child.kill().unwrap();
                panic!("{args:?}: still running after 20 s");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(0), "{args:?}");
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(out, "", "stdout holds data only");
    }
}

#[test]
fn an_openapi_document_is_imported_or_told() {
    let home = home();
    home.write(
        "pets.yaml",
        "openapi: 3.0.0\ninfo: {title: Pets, version: '1'}\nservers: [{url: 'https://pets.example.com/v1'}]\npaths:\n  /pets/{id}:\n    get:\n      operationId: getPet\n      summary: Gets a pet.\n      parameters: [{name: id, in: path, required: true, schema: {type: string}}]\n      responses: {'200': {description: ok}}\n",
    );
    let file = home.path().join("pets.yaml");
    let (code, report) = json(&home, &["import", "openapi", file.to_str().unwrap(), "--dry-run", "--json"]);
    assert_eq!(
        (code, &report["operations"], &report["skipped"]),
        (0, &Value::from(1), &serde_json::json!([]))
    );
    assert_eq!(report["tools"][0]["operation"], "GET /pets/{id}");
    assert!(report["tools"][0]["id"].as_str().unwrap().starts_with("pets."));
    assert!(!home.path().join("scripts/pets").exists(), "a dry run writes nothing");
    assert_eq!(run(home.path(), &["import", "openapi", file.to_str().unwrap()]).0, 0);
    home.write("docent.toml", &DOCENT.replace("[\"w\"]", "[\"w\", \"pets\"]"));
    let (code, out, _) = run(home.path(), &["check"]);
    assert!(code == 0 && out.contains("3 tools of 2 upstreams"), "{out}");
    assert_eq!(
        run(home.path(), &["import", "openapi", file.to_str().unwrap()]).0,
        1,
        "nothing is overwritten"
    );
}

#[test]
fn a_surface_is_compared_with_an_older_one() {
    let home = home();
    let keep = |name: &str| {
        let (code, out, err) = run(home.path(), &["surface", "--as", "op", "--json"]);
        assert_eq!(code, 0, "{err}");
        home.write(name, &out);
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let older = keep("older.json");
    for key in ["manifestVersion", "appVersion", "tier", "hash", "tools"] {
        assert!(older.get(key).is_some(), "{key}");
    }
    let ids: Vec<&str> =
        older["tools"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap()).collect();
    assert!(ids.is_sorted() && ids.contains(&"w.secret"), "{ids:?}");
    let (_, guests) = json(&home, &["surface", "--as", "guest", "--json"]);
    assert!(guests["hash"] != older["hash"] && !guests.to_string().contains("secret"));
    assert_eq!(json(&home, &["surface", "--as", "op", "--json"]).1["hash"], older["hash"], "it is stable");

    let path = home.path().join("older.json");
    let diff = |more: &[&str]| {
        let args = [&["surface", "--as", "op", "--diff", path.to_str().unwrap()][..], more].concat();
        run(home.path(), &args)
    };
    let (code, out, _) = diff(&[]);
    assert_eq!((code, out.as_str()), (0, "the same surface\n"));
    let edit = |from: &str, to: &str| home.write("scripts/w/upstream.toml", &ECHO.replace(from, to));
    edit("Echoes a word, for tests.", "Quite other words.");
    assert_eq!(diff(&[]).1, "the same surface\n");
    edit("word = { type = \"string\" }", "word = { type = \"string\" }, loud = { type = \"boolean\" }");
    let (code, out, _) = diff(&[]);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("compatible  w.echo  input_schema/properties/loud: `loud` was added, optional"),
        "{out}"
    );
    edit("word = { type = \"string\" }", "word = { type = \"string\", maxLength = 5 }");
    let (code, out, _) = diff(&[]);
    assert_eq!(code, 1);
    assert!(out.contains("breaking    w.echo  input_schema/properties/word/maxLength"), "{out}");
    edit("id = \"secret\"", "id = \"other\"");
    let (code, out, _) = diff(&["--json"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told["breaking"], &told["before"]), (1, &Value::from(true), &older["hash"]));
    let kinds: Vec<(bool, &str)> = told["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["breaking"].as_bool().unwrap(), c["tool"].as_str().unwrap()))
        .collect();
    assert_eq!(kinds, [(false, "w.other"), (true, "w.secret")]);

    // A manifest as the meta-tool gives it: names and hints are compared, and it says that schemas were not.
    let mut bare = older.clone();
    bare.as_object_mut().unwrap().remove("contracts");
    home.write("older.json", &bare.to_string());
    let (code, out, err) = diff(&[]);
    assert!(code == 1 && out.contains("w.secret") && err.contains("schemas were not compared"), "{out}{err}");
    home.write("older.json", "{}");
    assert_eq!(diff(&[]).0, 64);
}
