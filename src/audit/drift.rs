//! What records show over time: a tool used for the first time, a run of failures, a latency that drifted.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entry::{CallEntry, Outcome};
use crate::json;

/// Failures in a row from which on they are a run: fewer are weather.
const RUN: u32 = 5;
/// Calls before the usual latency is known.
const USUAL_AFTER: u64 = 50;
/// How many times the usual latency is drift, and below how many it is over.
const DRIFT: f64 = 3.0;
const DRIFT_OVER: f64 = 1.5;
/// Latencies below this do not matter to anybody, in milliseconds.
const MATTERS_MS: f64 = 50.0;
/// Weights of the newest call in the recent and in the usual latency: about the last 10 and the last 100 calls.
const RECENT: f64 = 0.2;
const USUAL: f64 = 0.02;
/// Tools watched: as many as the largest catalog has, a hundred bytes each.
const TOOLS_MAX: usize = 50_000;
/// The file that keeps what is known over a restart.
const FILE: &str = "tools.json";
/// Bytes of it at most.
const FILE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Codes that tell of the upstream's health. A wrong argument or a refusal does not.
const UPSTREAM_CODES: [&str; 6] = [
    "UPSTREAM_UNAVAILABLE",
    "TIMEOUT",
    "UPSTREAM_SCHEMA_MISMATCH",
    "UPSTREAM_ERROR",
    "UNKNOWN_OUTCOME",
    "AUTHENTICATION_FAILED",
];

/// What is known of one tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Health {
    calls: u64,
    failures_in_a_row: u32,
    recent_ms: f64,
    usual_ms: f64,
    #[serde(default)]
    drifting: bool,
}

/// The tools that were ever called.
#[derive(Debug, Default)]
pub(super) struct Drift {
    tools: HashMap<Arc<str>, Health>,
    full: bool,
    changed: bool,
}

impl Drift {
    /// What an earlier run of the process knew. A file that cannot be read is a start from nothing.
    pub(super) fn load(dir: &Path) -> Self {
        let bytes = json::read_capped(&dir.join(FILE), FILE_BYTES_MAX).unwrap_or_default();
        let tools: HashMap<Arc<str>, Health> = json::parse_as(&bytes, FILE_BYTES_MAX).unwrap_or_default();
        Self { full: tools.len() >= TOOLS_MAX, tools, changed: false }
    }

    /// Keeps what is known for the next run.
    pub(super) fn save(&mut self, dir: &Path) -> std::io::Result<()> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let next = dir.join("tools.json.next");
        std::fs::write(&next, json::to_bytes(&self.tools))?;
        std::fs::rename(&next, dir.join(FILE))
    }

    /// Takes one call in. What it gives is worth a record: `signal` and its numbers.
    pub(super) fn see(&mut self, call: &CallEntry) -> Vec<Value> {
        let upstream_failed = call.outcome == Outcome::Error && UPSTREAM_CODES.contains(&call.code);
        if call.dedup.is_some() || !(call.outcome == Outcome::Ok || upstream_failed) {
            return Vec::new();
        }
        let known = self.tools.contains_key(&call.tool);
        if !known && self.tools.len() >= TOOLS_MAX {
            let first = !std::mem::replace(&mut self.full, true);
            let signal = json!({ "signal": "watch_full", "tools": TOOLS_MAX });
            return first.then_some(signal).into_iter().collect();
        }
        self.changed = true;
        let health = self.tools.entry(Arc::clone(&call.tool)).or_default();
        let mut out = Vec::new();
        let mut signal = |name: &str, more: Value| {
            let mut told = json!({ "signal": name, "tool": call.tool });
            if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
                told.extend(more);
            }
            out.push(told);
        };
        if !known {
            signal("first_seen", json!({ "caller": call.who.subject }));
        }
        health.calls += 1;
        if upstream_failed {
            health.failures_in_a_row = health.failures_in_a_row.saturating_add(1);
            if health.failures_in_a_row == RUN {
                signal("failure_run", json!({ "failures": RUN, "code": call.code }));
            }
            return out;
        }
        let ran = std::mem::take(&mut health.failures_in_a_row);
        if ran >= RUN {
            signal("failure_run_over", json!({ "failures": ran }));
        }
        if let Some((name, more)) = health.latency(call.duration.as_secs_f64() * 1_000.0) {
            signal(name, more);
        }
        out
    }
}

impl Health {
    fn latency(&mut self, ms: f64) -> Option<(&'static str, Value)> {
        let blend = |old: f64, weight: f64, first: bool| if first { ms } else { old + weight * (ms - old) };
        let first = self.usual_ms == 0.0;
        self.recent_ms = blend(self.recent_ms, RECENT, first);
        self.usual_ms = blend(self.usual_ms, USUAL, first);
        let times = self.recent_ms / self.usual_ms.max(0.001);
        let numbers = || json!({ "recent_ms": self.recent_ms.round(), "usual_ms": self.usual_ms.round() });
        if !self.drifting && self.calls > USUAL_AFTER && self.recent_ms > MATTERS_MS && times > DRIFT {
            self.drifting = true;
            return Some(("latency_drift", numbers()));
        }
        if self.drifting && times < DRIFT_OVER {
            self.drifting = false;
            return Some(("latency_drift_over", numbers()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::entry;
    use super::*;

    fn names(signals: &[Value]) -> Vec<String> {
        signals.iter().map(|s| s["signal"].as_str().unwrap().to_owned()).collect()
    }

    fn call(outcome: Outcome, code: &'static str, ms: u64) -> CallEntry {
        CallEntry { outcome, code, duration: Duration::from_millis(ms), ..entry("a.b") }
    }

    #[test]
    fn a_tool_is_first_seen_once_even_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut drift = Drift::default();
        assert_eq!(names(&drift.see(&call(Outcome::Ok, "", 5))), ["first_seen"]);
        assert!(drift.see(&call(Outcome::Ok, "", 5)).is_empty());
        drift.save(dir.path()).unwrap();
        assert!(Drift::load(dir.path()).see(&call(Outcome::Ok, "", 5)).is_empty());
    }

    #[test]
    fn five_failures_of_the_upstream_are_a_run_and_wrong_arguments_are_not() {
        let mut drift = Drift::default();
        drift.see(&call(Outcome::Ok, "", 5));
        for _ in 0..10 {
            assert!(drift.see(&call(Outcome::Error, "INVALID_ARGUMENT", 1)).is_empty());
        }
        let fail = || call(Outcome::Error, "TIMEOUT", 1);
        let signals: Vec<_> = (0..8).flat_map(|_| drift.see(&fail())).collect();
        assert_eq!(names(&signals), ["failure_run"], "told once");
        assert_eq!(names(&drift.see(&call(Outcome::Ok, "", 5))), ["failure_run_over"]);
    }

    #[test]
    fn latency_that_multiplies_is_told_once_and_so_is_its_end() {
        let mut drift = Drift::default();
        (0..100).for_each(|_| drop(drift.see(&call(Outcome::Ok, "", 40))));
        let slow: Vec<_> = (0..20).flat_map(|_| drift.see(&call(Outcome::Ok, "", 400))).collect();
        assert_eq!(names(&slow), ["latency_drift"]);
        let usual: Vec<_> = (0..60).flat_map(|_| drift.see(&call(Outcome::Ok, "", 40))).collect();
        assert_eq!(names(&usual), ["latency_drift_over"]);
    }
}
