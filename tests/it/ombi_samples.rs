//! All samples of Ombi's answers through the tools of its pack, the envelopes expected of twenty of them, and the
//! pack's own OpenAPI document.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use docent::call::{ToolOutcome, UpstreamReply};
use docent::projection::{CallFacts, Projection, ResultBudget, ScriptCalls};
use serde_json::{Value, json};

use crate::check::run;
use crate::ombi::{Replies, case, home, projections, reply};
use crate::support::{root, shared};

/// Samples of routes that no tool uses, and why.
const NOT_USED: [(&str, &str); 5] = [
    (
        "v1-identity-notificationpreferences-save.json",
        "needs delivery tokens as arguments, which are not taken",
    ),
    ("v1-request-movie-page.json", "the pages of v2 sort and filter; these do not"),
    ("v1-request-tv-page.json", "its total is always 0 and its filters do nothing"),
    ("v1-request-tv-root.json", "advancedoptions of v2 sets the same"),
    ("v1-search-tv-popular.json", "the lists of v2 have TMDB numbers"),
];

/// Samples that no case file has: the tool, its arguments, the sample's place among the replies, the outcome.
pub(crate) fn others() -> Vec<(&'static str, &'static str, Value, Vec<&'static str>, &'static str)> {
    let list = json!({"view": "list"});
    let failing = |name, code| (name, "read_requests", list.clone(), vec![], code);
    vec![
        failing("http-200-spa-fallback.http.json", "UNSUPPORTED_CAPABILITY"),
        failing("http-204-cancelled.http.json", "UPSTREAM_SCHEMA_MISMATCH"),
        failing("http-400-problem.http.json", "INVALID_ARGUMENT"),
        failing("http-401-bad-key.http.json", "AUTHENTICATION_FAILED"),
        failing("http-401-bad-user.http.json", "AUTHENTICATION_FAILED"),
        failing("http-429.http.json", "RATE_LIMITED"),
        failing("http-500-engine.http.json", "INTERNAL_ERROR"),
        failing("v2-requests-movie-page-badsort.http.json", "INTERNAL_ERROR"),
        ("v1-identity-language.http.json", "write_user_preferences", json!({"language": "de"}), vec![], ""),
        (
            "v1-images-background.json",
            "read_library",
            json!({"view": "artwork", "kind": "background", "media": "movie", "ref": {"namespace": "tmdb", "value": "910001"}}),
            vec![],
            "",
        ),
        (
            "v1-request-tv-delete.http.json",
            "write_request_delete",
            json!({"target": {"kind": "tv_parent", "id": 12}, "confirm_title": "Northern Relay"}),
            vec!["v1-request-tv-detail.json"],
            "",
        ),
        (
            "v2-issues-details-empty.http.json",
            "read_issues",
            json!({"view": "provider_summary", "provider_id": "910001"}),
            vec![],
            "",
        ),
        (
            "v2-search-tv-detail-missing.http.json",
            "read_media",
            json!({"media": "tv", "ref": {"namespace": "tmdb", "value": "1"}}),
            vec![],
            "NOT_FOUND",
        ),
    ]
}

pub(crate) fn sample(folder: &Path, name: &str) -> UpstreamReply {
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    if !name.ends_with(".http.json") {
        return reply(200, "application/json", text);
    }
    let envelope: Value = serde_json::from_str(&text).unwrap();
    let media = envelope["_content_type"].as_str().unwrap_or_default();
    let media = media.split(';').next().unwrap();
    reply(
        u16::try_from(envelope["_status"].as_u64().unwrap()).unwrap(),
        media,
        envelope["_body_text"].as_str().unwrap_or_default().to_owned(),
    )
}

/// The case files of the pack, one list.
pub(crate) fn cases() -> Vec<Value> {
    let folder = root().join("scripts/ombi/cases");
    let mut all = Vec::new();
    for file in ["media", "requests", "people", "server", "writes"] {
        let text = std::fs::read_to_string(folder.join(format!("{file}.yaml"))).unwrap();
        let cases: Value = serde_saphyr::from_str(&text).unwrap();
        all.extend(cases.as_array().unwrap().clone());
    }
    all
}

fn names(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    files.filter(|n| Path::new(n).extension().is_some_and(|e| e == "json")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_goes_through_its_tool() {
    let Some(shared) = shared("the samples of Ombi") else { return };
    let folder = shared.join("samples/ombi");
    let copies = root().join("scripts/ombi/cases/replies");
    let mut seen: BTreeSet<String> = NOT_USED.iter().map(|(name, _)| (*name).to_owned()).collect();
    // Those that the case files use stand there unchanged.
    let text = json!(cases()).to_string();
    for name in names(&copies) {
        let same = std::fs::read(copies.join(&name)).unwrap() == std::fs::read(folder.join(&name)).unwrap();
        assert!(same && text.contains(&format!("replies/{name}")), "{name}");
        seen.insert(name);
    }
    let all = projections(&home()).await;
    for (name, tool, args, before, code) in others() {
        let mut replies = vec![sample(&folder, name)];
        replies.extend(before.iter().map(|n| sample(&folder, n)));
        let calls: Arc<dyn ScriptCalls> = Arc::new(Replies(Mutex::new(replies)));
        let args = args.as_object().unwrap();
        let shaped = all[tool].run(args, &CallFacts::default(), &calls, &ResultBudget::default());
        let (found, said) = match &shaped.outcome {
            ToolOutcome::Completed(result) => ("", result.structured.as_ref().unwrap().as_str().to_owned()),
            ToolOutcome::Failed(error) => (error.code.as_str(), error.message.clone()),
        };
        assert_eq!(found, code, "{name}: {said} {:?}", shaped.detail);
        for leak in ["SECRET", "NullReference", "<html", "at Ombi."] {
            assert!(!said.contains(leak), "{name}: {said}");
        }
        seen.insert(name.to_owned());
    }
    // Log files are named before they are read, so their sample is a case of two steps.
    assert!(text.contains("/api/v2/System/logs/"));
    seen.insert("v2-system-logs-file.http.json".to_owned());
    let missing: Vec<String> = names(&folder).difference(&seen).cloned().collect();
    assert_eq!((names(&folder).len(), missing), (145, Vec::<String>::new()));
}

/// The envelope that a tool makes of replies (taken from the end), but for its correlation id.
fn envelope(projection: &Projection, args: &Value, replies: Vec<UpstreamReply>) -> Value {
    let calls: Arc<dyn ScriptCalls> = Arc::new(Replies(Mutex::new(replies)));
    let args = args.as_object().unwrap();
    let shaped = projection.run(args, &CallFacts::default(), &calls, &ResultBudget::default());
    let mut made = match &shaped.outcome {
        ToolOutcome::Completed(result) => result.structured.as_ref().unwrap().value(),
        ToolOutcome::Failed(error) => projection.failure(error, "").unwrap(),
    };
    made.as_object_mut().unwrap().shift_remove("correlation_id");
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expected_envelopes_come_out() {
    let Some(shared) = shared("the samples of Ombi") else { return };
    let samples = shared.join("samples/ombi");
    let all = projections(&home()).await;
    let (mut matched, mut wrong) = (0, Vec::new());
    for name in names(&samples.join("expected")) {
        let text = std::fs::read_to_string(samples.join("expected").join(&name)).unwrap();
        let mut expected: Value = serde_json::from_str(&text).unwrap();
        expected.as_object_mut().unwrap().shift_remove("correlation_id");
        let tool = &all[expected["operation"].as_str().unwrap()];
        let uses = format!("replies/{name}");
        let mut made: Vec<Value> = cases()
            .iter()
            .filter(|c| c["tool"] == expected["operation"] && c.to_string().contains(&uses))
            .map(|c| {
                let case = case(c, &root().join("scripts/ombi/cases"));
                envelope(tool, &c["args"], case.replies.into_iter().rev().collect())
            })
            .collect();
        let http = name.replace(".json", ".http.json");
        for (sample_name, _, args, before, _) in others().iter().filter(|o| o.0 == http || o.0 == name) {
            let mut replies = vec![sample(&samples, sample_name)];
            replies.extend(before.iter().map(|n| sample(&samples, n)));
            made.push(envelope(tool, args, replies));
        }
        // Settings are shown in full for both halves, more than is expected (README, decision 9).
        let is_more = |made: &Value| {
            let values = made["data"]["values"].as_array();
            let wanted = expected["data"]["values"].as_array();
            name == "v1-settings-radarr.json"
                && values.zip(wanted).is_some_and(|(has, wants)| wants.iter().all(|w| has.contains(w)))
        };
        if made.iter().any(|m| *m == expected || is_more(m)) {
            matched += 1;
        } else {
            wrong.push(format!("{name}: {expected} is not among {made:#?}"));
        }
    }
    assert_eq!((matched, wrong), (20, Vec::new()));
}

/// The tables of the README, as its readers would paste them.
#[test]
fn the_readmes_rules_decide_as_it_says() {
    let home = home();
    let text = std::fs::read_to_string(root().join("scripts/ombi/README.md")).unwrap();
    let tables = text.split("```toml\n[callers.mira]").nth(1).unwrap().split("```").next().unwrap();
    let rules = tables.split_once("[[allow]]").map(|(_, rest)| format!("[[allow]]{rest}")).unwrap();
    let policy = text.split("```rhai\n").nth(1).unwrap().split("```").next().unwrap();
    let callers = [("user", "ombi:user"), ("power", "ombi:power"), ("admin", "ombi:admin")];
    let mut main =
        String::from("[auth]\nmode = \"none\"\n[upstreams]\nenabled = [\"ombi\"]\n[callers.anonymous]\n");
    for (name, scope) in callers {
        main += &format!("[callers.{name}]\nscopes = [\"{scope}\"]\n");
    }
    home.write("docent.toml", &format!("{main}{rules}"));
    home.write("policies/40-ombi.rhai", policy);
    let decision = |tool: &str, caller: &str| {
        let mut command = crate::support::docent();
        command.args(["policy", "explain", tool, "--as", caller, "--json", "--home"]).arg(home.path());
        let output = command.env("OMBI_URL", "http://127.0.0.1:1").env("OMBI_API_KEY", "k").output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        answer["decision"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    for (tool, expected) in [
        ("ombi.read_requests", ["deny", "permit", "deny", "permit"]),
        ("ombi.read_settings", ["deny", "deny", "deny", "permit"]),
        ("ombi.read_integration", ["deny", "deny", "permit", "permit"]),
        ("ombi.write_request_create", ["deny", "permit", "permit", "permit"]),
        ("ombi.write_request_review", ["deny", "deny", "permit", "permit"]),
        ("ombi.write_settings", ["deny", "deny", "deny", "challenge"]),
        ("ombi.write_request_delete", ["deny", "conditional", "confirm", "confirm"]),
    ] {
        let found = ["anonymous", "user", "power", "admin"].map(|caller| decision(tool, caller));
        assert_eq!(found.each_ref().map(String::as_str), expected, "{tool}");
    }
}

#[test]
fn the_packs_openapi_document_is_an_upstream_and_has_every_route() {
    let home = home();
    let document = home.path().join("scripts/ombi/openapi.yaml");
    let (code, out, err) =
        run(home.path(), &["import", "openapi", document.to_str().unwrap(), "--dry-run", "--json"]);
    let made: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert_eq!((code, &made["operations"], &made["skipped"]), (0, &json!(135), &json!([])), "{err}");
    let text = std::fs::read_to_string(document).unwrap();
    let document: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let templates: Vec<(String, Vec<String>)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            let parts: Vec<String> = path.to_lowercase().split('/').map(str::to_owned).collect();
            item.as_object()
                .unwrap()
                .keys()
                .map(move |m| (m.to_uppercase(), parts.clone()))
                .collect::<Vec<_>>()
        })
        .collect();
    let fits = |method: &str, path: &str| {
        let parts: Vec<String> = path.to_lowercase().split('/').map(str::to_owned).collect();
        templates.iter().any(|(m, t)| {
            m == method
                && t.len() == parts.len()
                && t.iter().zip(&parts).all(|(t, p)| t.starts_with('{') || t == p)
        })
    };
    let mut seen = 0;
    for case in cases() {
        let one = [case["request"].clone()];
        for request in
            case["requests"].as_array().map_or(&one[..], Vec::as_slice).iter().filter(|r| r.is_object())
        {
            let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
            assert!(fits(method, path), "{method} {path} is not in scripts/ombi/openapi.yaml");
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}
