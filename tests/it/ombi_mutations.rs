//! All samples of Ombi's answers, mutated at random places (seeded), through their tools: nothing panics, faults,
//! leaks a planted secret, exceeds a budget, invents a value or breaks the schema.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use docent::call::{ReplyBody, ToolOutcome, UpstreamReply};
use docent::json::Object;
use docent::projection::{CallFacts, Projection, ResultBudget, ScriptCalls};
use docent::schema::Validators;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::ombi::{Case, Replies, case, home, projections, reply};
use crate::ombi_samples::{cases, others, sample};
use crate::support::{root, shared};
use crate::validation::{Sample, validate};

/// Rounds in which all samples are mutated; `DOCENT_TEST_ROUNDS` asks for more.
const ROUNDS: usize = 3;
/// A secret that names itself, planted into texts that are shown.
const PLANTED: &str = "ghp_plantedPLANTEDplantedPLANTED012345";
/// What of the planted one, and of the secrets in the samples, must not come out.
const SECRETS: [&str; 7] =
    ["plantedPL", "SECRET", "example.invalid/fanart", "@example", "10.0.0.", "radarr.lan", "Password="];

/// One change of one place in a reply.
#[derive(Debug, Clone, Copy)]
enum Change {
    Drop,
    Null,
    Retype(u8),
    Enlarge(u8),
    Nest,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Drop),
        Just(Change::Null),
        (0u8..7).prop_map(Change::Retype),
        (0u8..6).prop_map(Change::Enlarge),
        Just(Change::Nest),
    ]
}

/// Up to six changes, each with the place that it looks for.
fn changes() -> impl Strategy<Value = Vec<(Change, usize)>> {
    prop::collection::vec((change(), 0usize..10_000), 1..6)
}

fn retyped(kind: u8, value: &Value) -> Value {
    match kind {
        0 => json!(value.to_string()),
        1 => json!(-7),
        2 => json!(true),
        3 => json!(["list"]),
        4 => json!({"inner": value}),
        5 => json!(0.5),
        _ => json!(""),
    }
}

fn enlarged(kind: u8, value: &Value) -> Value {
    match (kind, value) {
        // Across every cut that there is: the secret stands at another distance each time.
        (0, Value::String(text)) => json!(format!("{text} {}{PLANTED} tail", "filler ".repeat(25))),
        (1, Value::String(text)) => json!(format!("{text} {}{PLANTED} tail", "filler ".repeat(82))),
        (2, Value::String(text)) => json!(format!("{PLANTED} {text} {}", "é😀".repeat(2_000))),
        (3 | 4, Value::Number(_)) => serde_json::from_str("123456789012345678901234567890").unwrap(),
        (_, Value::Array(items)) if !items.is_empty() => {
            let times = if items.iter().any(|i| i.to_string().contains('[')) { items.len() + 1 } else { 130 };
            items.iter().cycle().take(times).cloned().collect()
        }
        (_, Value::Object(map)) => {
            let more = (0..40).map(|n| (format!("extra_{n}"), json!({"secret": "SECRET", "n": n})));
            Value::Object(map.clone().into_iter().chain(more).collect())
        }
        (_, other) => other.clone(),
    }
}

/// Changes the place with this number, counted in the order of the text.
fn apply(value: &mut Value, change: Change, place: &mut usize) {
    let is_here = |place: &mut usize| {
        let here = *place == 0;
        *place = place.wrapping_sub(1);
        here
    };
    match value {
        Value::Object(map) => {
            let names: Vec<String> = map.keys().cloned().collect();
            for name in names {
                if is_here(place) {
                    return match change {
                        Change::Drop => drop(map.shift_remove(&name)),
                        change => changed(&mut map[&name], change),
                    };
                }
                apply(&mut map[&name], change, place);
                if *place > usize::MAX / 2 {
                    return;
                }
            }
        }
        Value::Array(items) => {
            for at in 0..items.len() {
                if is_here(place) {
                    return match change {
                        Change::Drop => drop(items.remove(at)),
                        change => changed(&mut items[at], change),
                    };
                }
                apply(&mut items[at], change, place);
                if *place > usize::MAX / 2 {
                    return;
                }
            }
        }
        _ => {}
    }
}

fn changed(value: &mut Value, change: Change) {
    *value = match change {
        Change::Drop | Change::Null => Value::Null,
        Change::Retype(kind) => retyped(kind, value),
        Change::Enlarge(kind) => enlarged(kind, value),
        Change::Nest => json!({"inner": [value]}),
    };
}

fn places(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(places).sum::<usize>(),
        Value::Array(items) => items.len() + items.iter().map(places).sum::<usize>(),
        _ => 0,
    }
}

fn mutated(of: &UpstreamReply, changes: &[(Change, usize)]) -> UpstreamReply {
    let ReplyBody::Bytes { media_type, bytes } = &of.body else { return of.clone() };
    let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else { return of.clone() };
    for (change, seed) in changes {
        let mut place = match places(&value) {
            0 => 0,
            n => seed % n,
        };
        match value {
            Value::Object(_) | Value::Array(_) => apply(&mut value, *change, &mut place),
            ref mut scalar => changed(scalar, *change),
        }
    }
    reply(of.status, media_type, value.to_string())
}

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

/// Everything that a value of a result may come from, in lower case: the replies, the arguments, the constants of
/// the pack's scripts and schemas.
struct Origins {
    text: String,
    /// Whether a reply says `true`, or `false`.
    says: [bool; 2],
}

fn texts(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            out.push_str(key);
            out.push(' ');
            texts(value, out);
        }),
        Value::Array(items) => items.iter().for_each(|item| texts(item, out)),
        Value::String(text) => {
            out.push_str(text);
            // A text that is JSON is read as such by nobody, but words in it may be shown.
            out.push(' ');
        }
        other => {
            out.push_str(&other.to_string());
            out.push(' ');
        }
    }
}

impl Origins {
    fn of(constants: &str, args: &Object, replies: &[UpstreamReply]) -> Self {
        let mut text = constants.to_owned();
        let mut says = [false; 2];
        texts(&Value::Object(args.clone()), &mut text);
        for reply in replies {
            let ReplyBody::Bytes { bytes, .. } = &reply.body else { continue };
            match serde_json::from_slice::<Value>(bytes) {
                Ok(value) => {
                    texts(&value, &mut text);
                    let raw = value.to_string();
                    says = [says[0] || raw.contains("true"), says[1] || raw.contains("false")];
                }
                Err(_) => text.push_str(&String::from_utf8_lossy(bytes)),
            }
        }
        Self { text: text.to_lowercase(), says }
    }

    /// What of a result comes from nowhere.
    fn invented(&self, path: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                // Digests of what was read, by nature of no place in it.
                if !matches!(key.as_str(), "revision" | "file_id" | "page" | "kind") {
                    self.invented(&format!("{path}/{key}"), value, found);
                }
            }),
            Value::Array(items) => items.iter().for_each(|item| self.invented(path, item, found)),
            Value::String(text) => {
                let text = text.replace("[secret removed]", " ").to_lowercase();
                let words = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
                // Settings are named by pointers, whose numbers are places in lists.
                let is_pointer = path == "/values/name" && text.starts_with('/');
                let words = words.filter(|w| !is_pointer || w.parse::<u32>().is_err());
                // The last word may have been cut; its beginning is in the text as well.
                let foreign = words.filter(|word| !self.text.contains(word)).map(|w| format!("{path}: {w}"));
                found.extend(foreign);
            }
            Value::Number(number) if !self.text.contains(&number.to_string()) => {
                found.push(format!("{path}: {number}"));
            }
            Value::Bool(is) => {
                let said = self.says[usize::from(!*is)];
                // Flags that texts and codes decide.
                let derived = ["available", "is_4k", "online", "upstream_", "truncated", "enabled", "value"];
                if !said && !derived.iter().any(|name| path.contains(name)) {
                    found.push(format!("{path}: {is}"));
                }
            }
            Value::Number(_) | Value::Null => {}
        }
    }
}

fn constants() -> String {
    let mut text = String::new();
    for folder in ["scripts/ombi", "scripts/lib", "scripts/ombi/schemas"] {
        for file in std::fs::read_dir(root().join(folder)).unwrap().map(|f| f.unwrap().path()) {
            if file.extension().is_some_and(|e| e == "rhai" || e == "json") {
                text += &std::fs::read_to_string(file).unwrap();
            }
        }
    }
    text
}

/// One result examined; gives the envelope, or what is wrong with it.
fn examine(of: &Case, projection: &Projection, origins: &Origins) -> Result<Value, String> {
    // Taken from the end.
    let replies = of.replies.iter().rev().cloned().collect();
    let calls: Arc<dyn ScriptCalls> = Arc::new(Replies(Mutex::new(replies)));
    let budget = ResultBudget::default();
    let shaped = projection.run(&of.args, &CallFacts::default(), &calls, &budget);
    let detail = shaped.detail.as_deref().unwrap_or_default();
    // The time limit is meant for optimised builds; every other fault counts.
    if detail.contains(".rhai") && !(cfg!(debug_assertions) && detail.contains("ran longer than")) {
        return Err(format!("a script faults: {detail}"));
    }
    let envelope = match &shaped.outcome {
        ToolOutcome::Completed(result) => {
            let value = result.structured.as_ref().unwrap().value();
            let found = Validators::default().check(projection.output_schema().unwrap(), &value);
            if found != Ok(vec![]) {
                return Err(format!("it breaks its schema: {found:?}"));
            }
            let mut invented = Vec::new();
            origins.invented("", &value["data"], &mut invented);
            if !invented.is_empty() {
                return Err(format!("it invents {invented:?}: {value:.2000}"));
            }
            for list in ["items", "values", "lines", "files"] {
                let len = value["data"][list].as_array().map_or(0, Vec::len);
                if len > if list == "lines" { 500 } else { budget.records } {
                    return Err(format!("{len} {list}"));
                }
            }
            value
        }
        ToolOutcome::Failed(error) => projection.failure(error, "c").unwrap(),
    };
    let text = envelope.to_string();
    if text.len() > budget.result_bytes {
        return Err(format!("{} bytes", text.len()));
    }
    match SECRETS.iter().find(|secret| text.contains(**secret)) {
        Some(secret) => Err(format!("`{secret}` comes out: {text:.2000}")),
        None => Ok(envelope),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutated_samples_never_fault_leak_swell_invent_or_break_the_schema() {
    let Some(all) = all_cases() else { return };
    let home = home();
    let projections = projections(&home).await;
    let constants = constants();
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

#[test]
fn an_invented_value_is_noticed() {
    let replies = [reply(200, "application/json", r#"{"title":"Iron Orchard","year":1999,"a":true}"#.into())];
    let origins = Origins::of("", &Object::new(), &replies);
    let found = |value: Value| {
        let mut found = Vec::new();
        origins.invented("", &value, &mut found);
        found.len()
    };
    assert_eq!(found(json!({"title": "iron", "year": 1999, "a": true})), 0);
    assert_eq!(found(json!({"title": "Iron Horse"})), 1);
    assert_eq!(found(json!({"year": 2000, "requested": false})), 2);
}
