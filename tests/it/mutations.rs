//! Replies changed at random places, and where every value of a result may have come from: what the property tests of
//! the packs share.

use docent::call::{ReplyBody, ToolOutcome, UpstreamReply};
use docent::json::Object;
use docent::projection::{Projection, ResultBudget, Shaped};
use docent::schema::Validators;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::ombi::reply;
use crate::support::root;

/// A secret that names itself, planted into texts that are shown.
pub(crate) const PLANTED: &str = "ghp_plantedPLANTEDplantedPLANTED012345";
/// One change of one place in a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
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
pub(crate) fn changes() -> impl Strategy<Value = Vec<(Change, usize)>> {
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

pub(crate) fn mutated(of: &UpstreamReply, changes: &[(Change, usize)]) -> UpstreamReply {
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

/// Everything that a value of a result may come from, in lower case: the replies, the arguments, the constants of
/// the pack's scripts and schemas.
pub(crate) struct Origins {
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
    pub(crate) fn of(constants: &str, args: &Object, replies: &[UpstreamReply]) -> Self {
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
    pub(crate) fn invented(&self, path: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                // Digests of what was read, by nature of no place in it.
                // Counts of what was read neither.
                if !matches!(key.as_str(), "revision" | "file_id" | "page" | "kind" | "ready" | "restarts") {
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

/// The words of a pack's own files: its scripts and schemas.
pub(crate) fn constants(pack: &str) -> String {
    let mut text = String::new();
    for folder in [format!("scripts/{pack}"), "scripts/lib".to_owned(), format!("scripts/{pack}/schemas")] {
        for file in std::fs::read_dir(root().join(folder)).unwrap().map(|f| f.unwrap().path()) {
            if file.extension().is_some_and(|e| e == "rhai" || e == "json") {
                text += &std::fs::read_to_string(file).unwrap();
            }
        }
    }
    text
}

/// One result examined; gives the envelope, or what is wrong with it. None of `secrets` may stand in it.
pub(crate) fn examine(
    shaped: &Shaped,
    projection: &Projection,
    origins: &Origins,
    secrets: &[&str],
) -> Result<Value, String> {
    let budget = ResultBudget::default();
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
    match secrets.iter().find(|secret| text.contains(**secret)) {
        Some(secret) => Err(format!("`{secret}` comes out: {text:.2000}")),
        None => Ok(envelope),
    }
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
