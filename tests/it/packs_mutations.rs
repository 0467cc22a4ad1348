//! The recorded answers of GitHub and Kubernetes, mutated at random places (seeded), through their tools: nothing
//! panics, faults, leaks a planted secret, exceeds a budget, invents a value or breaks the schema.

use std::collections::BTreeSet;

use docent::call::{ErrorCode, ToolOutcome, UpstreamReply};
use docent::json::Object;
use docent::projection::{CallFacts, ResultBudget};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::mutations::{Origins, changes, constants, examine, mutated};
use crate::ombi::reply;
use crate::support::root;
use crate::validation::{Sample, compiled, home_of, validate};

/// Rounds in which all answers are mutated; `DOCENT_TEST_ROUNDS` asks for more.
const ROUNDS: usize = 12;
/// What of the planted secret, and of those in the recorded answers, must not come out.
const SECRETS: [&str; 2] = ["plantedPL", "hunter2"];

struct Recorded {
    /// The tool's id.
    tool: String,
    args: Object,
    reply: UpstreamReply,
}

/// The cases of a pack that have an answer.
fn recorded(pack: &str) -> Vec<Recorded> {
    let folder = root().join("scripts").join(pack).join("cases");
    let text = std::fs::read_to_string(folder.join(format!("{pack}.yaml"))).unwrap();
    let cases: Value = serde_saphyr::from_str(&text).unwrap();
    let of = |case: &Value| {
        let recorded = case.get("reply")?;
        let (media, text) = match (&recorded["body"], &recorded["body_file"], &recorded["text"]) {
            (Value::Null, Value::String(file), _) => {
                ("application/json", std::fs::read_to_string(folder.join(file)).unwrap())
            }
            (Value::Null, _, text) => ("text/plain", text.as_str()?.to_owned()),
            (body, _, _) => ("application/json", body.to_string()),
        };
        let status = u16::try_from(recorded["status"].as_u64().unwrap_or(200)).unwrap();
        Some(Recorded {
            tool: format!("{pack}.{}", case["tool"].as_str()?),
            args: case["args"].as_object().cloned().unwrap_or_default(),
            reply: reply(status, media, text),
        })
    };
    cases.as_array().unwrap().iter().filter_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mutated_answers_never_fault_leak_swell_invent_or_break_the_schema() {
    let packs = ["github", "kubernetes"];
    let home = home_of(&packs);
    let projections = compiled(home.path()).await;
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let changes = changes();
    let rounds = std::env::var("DOCENT_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let (mut results, mut wrong, mut tools) = (Vec::new(), Vec::new(), BTreeSet::new());
    for pack in packs {
        let (all, constants) = (recorded(pack), constants(pack));
        for of in (0..rounds).flat_map(|_| &all) {
            let changes = changes.new_tree(&mut runner).unwrap().current();
            let reply = mutated(&of.reply, &changes);
            let projection = &projections[&of.tool];
            let shaped = projection.shape(&reply, &of.args, &CallFacts::default(), &ResultBudget::default());
            let origins = Origins::of(&constants, &of.args, &[reply]);
            let what = format!("{} {} {changes:?}", of.tool, Value::Object(of.args.clone()));
            match examine(&shaped, projection, &origins, &SECRETS) {
                Ok(instance) => {
                    let schema = projection.output_schema().unwrap().value();
                    results.push(Sample { what, schema, instance });
                }
                Err(why) => wrong.push(format!("{what}: {why}")),
            }
            tools.insert(of.tool.clone());
        }
    }
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), results.len(), wrong.join("\n"));
    let succeeded = results.iter().filter(|r| r.instance["ok"] == json!(true)).count();
    assert!(succeeded > results.len() / 4, "{succeeded} of {}", results.len());
    assert!(tools.len() >= 25, "{tools:?}");
    validate(&results.into_iter().step_by(3).collect::<Vec<_>>());
}

/// Answers that are no answer at all are the upstream's mistake, told as such; a write that was done stays done.
#[tokio::test(flavor = "multi_thread")]
async fn answers_without_rows_are_mismatches_and_rows_that_are_none_are_told() {
    let packs = ["github", "kubernetes"];
    let home = home_of(&packs);
    let projections = compiled(home.path()).await;
    let shape = |tool: &str, body: &str| {
        let reply = reply(200, "application/json", body.to_owned());
        projections[tool].shape(&reply, &Object::new(), &CallFacts::default(), &ResultBudget::default())
    };
    let lists = [
        "github.search_repos",
        "github.issues_list-for-repo",
        "github.pulls_list",
        "kubernetes.pods",
        "kubernetes.jobs",
    ];
    for tool in lists {
        for body in
            ["null", "7", "\"text\"", "{}", "{\"items\":\"none\"}", "{\"items\":{}}", "<html>down</html>"]
        {
            match shape(tool, body).outcome {
                ToolOutcome::Failed(error) => {
                    assert_eq!(error.code, ErrorCode::UpstreamSchemaMismatch, "{tool} {body}: {error}");
                }
                ToolOutcome::Completed(result) => panic!("{tool} {body}: {result:?}"),
            }
        }
    }
    let done = |tool: &str, body: &str| match shape(tool, body).outcome {
        ToolOutcome::Completed(result) => result.structured.unwrap().value(),
        ToolOutcome::Failed(error) => panic!("{tool} {body}: {error}"),
    };
    let told = done("kubernetes.config_maps", r#"{"items":[7,{"metadata":{"name":"a"}},"x",null]}"#);
    assert_eq!(told["data"]["items"].as_array().unwrap().len(), 1);
    assert!(told["warnings"][0].as_str().unwrap().ends_with("passed over: 3"), "{told}");
    for body in ["{\"number\":\"7\"}", "[]", "oops", ""] {
        let opened = done("github.issues_create", body);
        assert_eq!(
            (&opened["data"]["outcome"], opened["data"].get("target")),
            (&json!("completed"), None),
            "{body}"
        );
    }
}
