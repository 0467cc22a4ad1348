//! All samples of Ombi's answers, mutated at random places (seeded), through their tools: nothing panics, faults,
//! leaks a planted secret, exceeds a budget, invents a value or breaks the schema.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use docent::projection::{CallFacts, Projection, ResultBudget, ScriptCalls};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::mutations::{self, Origins, changes, constants, mutated};
use crate::ombi::{Case, Replies, case, home, projections};
use crate::ombi_samples::{cases, others, sample};
use crate::support::{root, shared};
use crate::validation::{Sample, validate};

/// Rounds in which all samples are mutated; `DOCENT_TEST_ROUNDS` asks for more.
const ROUNDS: usize = 3;
/// What of the planted one, and of the secrets in the samples, must not come out.
const SECRETS: [&str; 7] =
    ["plantedPL", "SECRET", "example.invalid/fanart", "@example", "10.0.0.", "radarr.lan", "Password="];

/// Every sample with its tool: the case files, and those that no case file has.
fn all_cases() -> Option<Vec<Case>> {
    let samples = shared("the samples of Ombi")?.join("samples/ombi");
    let folder = root().join("scripts/ombi/cases");
    let mut all: Vec<Case> = cases().iter().map(|c| case(c, &folder)).collect();
    for (name, tool, args, before, _) in others() {
        let mut replies: Vec<_> = before.iter().map(|n| sample(&samples, n)).collect();
        replies.push(sample(&samples, name));
        all.push(Case { tool: tool.to_owned(), args: args.as_object().unwrap().clone(), replies });
    }
    Some(all)
}

/// One result examined; gives the envelope, or what is wrong with it.
fn examine(of: &Case, projection: &Projection, origins: &Origins) -> Result<Value, String> {
    // Taken from the end.
    let replies = of.replies.iter().rev().cloned().collect();
    let calls: Arc<dyn ScriptCalls> = Arc::new(Replies(Mutex::new(replies)));
    let shaped = projection.run(&of.args, &CallFacts::default(), &calls, &ResultBudget::default());
    mutations::examine(&shaped, projection, origins, &SECRETS)
}

#[tokio::test(flavor = "multi_thread")]
async fn mutated_samples_never_fault_leak_swell_invent_or_break_the_schema() {
    let Some(all) = all_cases() else { return };
    let home = home();
    let projections = projections(&home).await;
    let constants = constants("ombi");
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let changes = changes();
    let rounds = std::env::var("DOCENT_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let (mut results, mut wrong, mut tools) = (Vec::new(), Vec::new(), BTreeSet::new());
    for of in (0..rounds).flat_map(|_| &all) {
        let changes = changes.new_tree(&mut runner).unwrap().current();
        let replies: Vec<_> = of.replies.iter().map(|r| mutated(r, &changes)).collect();
        let case = Case { tool: of.tool.clone(), args: of.args.clone(), replies };
        let origins = Origins::of(&constants, &case.args, &case.replies);
        let projection = &projections[&case.tool];
        let what = format!("{} {} {changes:?}", case.tool, Value::Object(case.args.clone()));
        match examine(&case, projection, &origins) {
            Ok(instance) => {
                let schema = projection.output_schema().unwrap().value();
                results.push(Sample { what, schema, instance });
            }
            Err(why) => wrong.push(format!("{what}: {why}")),
        }
        tools.insert(case.tool);
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let succeeded = results.iter().filter(|r| r.instance["ok"] == json!(true)).count();
    assert!(succeeded > results.len() / 4, "{succeeded} of {}", results.len());
    assert_eq!(tools.len(), 31);
    // One of three, by a validator that docent does not use: failures fit their envelope too.
    validate(&results.into_iter().step_by(3).collect::<Vec<_>>());
}
