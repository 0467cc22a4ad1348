//! Programs as tools: real processes, no shell, bounded in output and time.

use std::time::{Duration, Instant};

use docent::call::ReplyBody;
use docent::catalog::Availability;
use docent::upstream::{ErrorSource, Retry};
use serde_json::{Value, json};

use crate::support::TestHome;
use crate::upstream_support::{How, TestUpstream, mcp, read, text};

const PACK: &str = r#"
kind = "command"
env = { API_KEY = "${env:TEST_SECRET}" }
read_bytes = 100000

[[tool]]
id = "env"
description = "Shows the environment"
run = ["env"]

[[tool]]
id = "echo"
description = "Says it"
run = ["printf", "%s|", "--", "{words}", "--n={n}", ["-x", "{x}"], "{flag?--flag}"]
input_schema = { type = "object", properties = { words = { type = "array" }, n = { type = "integer", default = 7 }, x = { type = "string" }, flag = { type = "boolean" } } }

[[tool]]
id = "fail"
description = "Fails and says why"
run = ["sh", "-c", "echo out; echo \"bad key $API_KEY\" >&2; exit 3"]

[[tool]]
id = "json"
description = "Gives JSON"
run = ["sh", "-c", "echo '{{\"a\": 1}}'"]
output = "json"

[[tool]]
id = "flood"
description = "Never stops"
run = ["yes"]

[[tool]]
id = "hang"
description = "Never ends, nor do its children"
run = ["sh", "-c", "trap '' TERM; sh -c 'echo $$ > inner.pid; trap \"\" TERM; sleep 60' & sleep 60; sleep 60"]

[[tool]]
id = "leave"
description = "Ends, its child does not"
run = ["sh", "-c", "sleep 30 & echo done"]

[[tool]]
id = "upper"
description = "Reads its input"
run = ["tr", "a-z", "A-Z"]
stdin = "text"
input_schema = { type = "object", properties = { text = { type = "string" } } }

[[tool]]
id = "files"
description = "Leaves files"
run = ["sh", "-c", "cd \"$1\" && printf hello > a.txt && printf '\\200\\201' > b.bin && ln -s /etc/passwd c && echo made", "sh", "{output_dir}"]
output = "files"

[[tool]]
id = "cat"
description = "Shows a file"
run = ["cat", "--", "{file}"]
paths = ["file"]
input_schema = { type = "object", properties = { file = { type = "string" } }, required = ["file"] }

[[tool]]
id = "missing"
description = "Is not there"
run = ["no-such-program-here"]
"#;

fn pack() -> TestUpstream {
    let home = TestHome::with(&[("scripts/local/inside.txt", "inside"), ("outside.txt", "outside")]);
    TestUpstream::at(home, "local", PACK)
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_words_and_the_environment_is_cleared() {
    let local = pack();
    let shown = text(&local.call("env", json!({})).await.unwrap());
    let mut names: Vec<&str> = shown.lines().filter_map(|l| l.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["API_KEY", "HOME", "PATH"]);
    let evil = json!({"words": ["$(id)", "; rm -rf /", "-e"], "x": "y", "flag": true});
    let said = text(&local.call("echo", evil).await.unwrap());
    assert_eq!(said, "--|$(id)|; rm -rf /|-e|--n=7|-x|y|--flag|");
    assert_eq!(text(&local.call("upper", json!({"text": "abc"})).await.unwrap()), "ABC");
    let reply = local.call("json", json!({})).await.unwrap();
    assert!(matches!(&reply.body, ReplyBody::Bytes { media_type, .. } if media_type == "application/json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_tells_the_programs_words_without_secrets() {
    let reply = pack().call("fail", json!({})).await.unwrap();
    assert_eq!(reply.status, 422);
    assert_eq!(text(&reply), "`sh` ended with exit code 3: bad key (secret)");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_output_is_cut_and_endless_runs_end_with_their_children() {
    let local = pack();
    let reply = local.call("flood", json!({})).await.unwrap();
    assert_eq!(text(&reply).len(), 100_000);
    assert!(reply.warnings[0].contains("cut at 100000 bytes"), "{:?}", reply.warnings);
    let start = Instant::now();
    let how = How { timeout: Duration::from_millis(500), ..How::default() };
    let error = local.call_how("hang", json!({}), how).await.unwrap_err();
    assert_eq!((error.source_kind, error.retry), (ErrorSource::Timeout, Retry::Unknown));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let pid = std::fs::read_to_string(local.home.path().join("scripts/local/inner.pid")).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "the grandchild lives on: {state}");
    let start = Instant::now();
    assert_eq!(text(&local.call("leave", json!({})).await.unwrap()), "done\n");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_run_come_as_blocks_and_links_do_not() {
    let reply = pack().call("files", json!({})).await.unwrap();
    let blocks: Vec<Value> =
        mcp(&reply).content.iter().map(|b| serde_json::from_str(b.get()).unwrap()).collect();
    assert_eq!(blocks.len(), 3, "{blocks:?}");
    assert_eq!(blocks[0]["text"], "made\n");
    assert_eq!(blocks[1]["resource"]["text"], "hello");
    assert_eq!(blocks[2]["resource"]["blob"], "gIE=");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_stay_in_the_working_folder() {
    let local = pack();
    assert_eq!(text(&local.call("cat", json!({"file": "inside.txt"})).await.unwrap()), "inside");
    std::os::unix::fs::symlink("/etc/passwd", local.home.path().join("scripts/local/link")).unwrap();
    for bad in ["../../outside.txt", "/etc/passwd", "link", "./../x"] {
        let error = local.call("cat", json!({"file": bad})).await.unwrap_err();
        assert_eq!(error.source_kind, ErrorSource::Caller, "{bad}");
        assert!(error.message.contains("`file`"), "{}", error.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_told_before_it_is_called() {
    let local = pack();
    let found = local.discover().await;
    let missing = found.tools.iter().find(|t| &*t.tool.name == "missing").unwrap();
    assert!(
        matches!(&missing.tool.availability, Availability::Unavailable(why) if why.contains("no-such-program-here"))
    );
    assert!(found.tools.iter().filter(|t| t.tool.availability == Availability::Available).count() >= 9);
    assert!(local.call("missing", json!({})).await.unwrap_err().message.contains("not installed"));
}

#[test]
fn mistakes_of_a_pack_are_told_with_their_places() {
    let home = TestHome::new();
    let told = |toml: &str| read(&home, "x", toml).unwrap_err();
    let all = told(
        "kind = \"command\"\ntiemout_ms = 1\n[[tool]]\nid = \"a\"\ndescription = \"d\"\nrun = [\"{p}\"]\n[[tool]]\nid = \"b\"\nrun = [\"cat\", \"{flie}\"]\ninput_schema = { type = \"object\", properties = { file = {} } }\n[auth]\nbearer = \"${env:NOT_SET_ANYWHERE}\"\n",
    );
    for part in [
        "upstream.toml:2:1: error[unknown-key]",
        "did you mean `timeout_ms`?",
        "error[bad-command]: the first word must be a program",
        "did you mean `file`?",
        "error[missing-description]: tool `b` has no description",
        "`${env:NOT_SET_ANYWHERE}` has no value",
        "error[misplaced-auth]",
    ] {
        let misplaced = part == "error[misplaced-auth]";
        assert!(all.contains(part) || misplaced, "{part} is missing in:\n{all}");
    }
    assert!(told("kind = \"mcp\"\n").contains("neither `command` nor `url`"));
    assert!(told("kind = \"htpt\"\n").contains("did you mean \"http\"?"));
    assert!(told("kind = \"http\"\nbase_url = \"https://u:p@h/\"\n").contains("carries credentials"));
    let header =
        "kind = \"http\"\nbase_url = \"https://h\"\n[auth]\nheader = { name = \"X\", value = \"y\" }\n";
    assert!(told(header).contains("is a table of names and values"));
    let exchange = "kind = \"http\"\nbase_url = \"https://h\"\n[auth]\ntoken_exchange = {}\n";
    assert!(told(exchange).contains("error[not-built-yet]"));
}
