//! A candidate policy beside the live one: it decides nothing, and what it would decide otherwise is counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::compare::Change;
use super::decision::Decision;
use super::principal::Principal;
use super::set::PolicySet;
use crate::catalog::Catalog;
use crate::clock::rfc3339;
use crate::id::ToolNo;
use crate::json::Object;

/// Different differences kept; what comes beyond is only counted.
const DIFFERENCES_MAX: usize = 5_000;

/// A candidate and what was seen of it.
#[derive(Debug)]
pub struct Shadow {
    policy: PolicySet,
    /// Of the live policy that it is compared with: differences to another one are other differences.
    live: [u8; 32],
    same: AtomicU64,
    different: AtomicU64,
    unlisted: AtomicU64,
    seen: Mutex<BTreeMap<Change, Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    calls: u64,
    first_ms: u64,
    last_ms: u64,
}

/// One difference, and how often it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What would be decided otherwise.
    #[serde(flatten)]
    pub change: Change,
    /// Calls for which it would.
    pub calls: u64,
    /// When it came first, and last.
    pub first: String,
    /// The last time.
    pub last: String,
}

/// What a candidate would have decided otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ShadowReport {
    /// Whether there is a candidate.
    pub enabled: bool,
    /// Decisions that it shares.
    pub same: u64,
    /// Decisions that it does not.
    pub different: u64,
    /// Those of them that are not in the list: it was full.
    pub unlisted: u64,
    /// The differences, most frequent first.
    pub differences: Vec<Difference>,
}

impl Shadow {
    /// A candidate beside a live policy.
    pub fn new(policy: PolicySet, live: &PolicySet) -> Self {
        let (same, different, unlisted, seen) = Default::default();
        Self { policy, live: live.digest(), same, different, unlisted, seen }
    }

    /// The candidate.
    pub fn policy(&self) -> &PolicySet {
        &self.policy
    }

    /// Whether another pair of policies is this one: what was seen of it still holds.
    pub fn is_same(&self, other: &Self) -> bool {
        self.live == other.live && self.policy.digest() == other.policy.digest()
    }

    /// Compares one decision. A difference is logged when it comes first.
    pub fn observe(
        &self,
        catalog: &Catalog,
        who: &Principal,
        no: ToolNo,
        arguments: &Object,
        (live, at_ms): (&Decision, u64),
    ) {
        let candidate = self.policy.decide(catalog, who, no, Some(arguments));
        let (before, after) = (live.word(), candidate.word());
        if before == after {
            self.same.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.different.fetch_add(1, Ordering::Relaxed);
        let rule = candidate.rule().clone();
        let tool = catalog.get(no).map(|t| t.id.as_str().to_owned()).unwrap_or_default();
        let change =
            Change { caller: who.subject.to_string(), tool, before, after, rule, detail: String::new() };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = seen.get_mut(&change) {
            known.calls += 1;
            known.last_ms = at_ms;
        } else if seen.len() < DIFFERENCES_MAX {
            tracing::info!(
                principal.id = change.caller,
                tool.id = change.tool,
                before,
                after,
                policy.rule = %change.rule,
                "the candidate policy decides otherwise"
            );
            seen.insert(change, Seen { calls: 1, first_ms: at_ms, last_ms: at_ms });
        } else {
            self.unlisted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many decisions were the same, and how many were not.
    pub fn counts(&self) -> (u64, u64) {
        (self.same.load(Ordering::Relaxed), self.different.load(Ordering::Relaxed))
    }

    /// What was seen so far.
    pub fn report(&self) -> ShadowReport {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut differences: Vec<Difference> = seen
            .iter()
            .map(|(change, seen)| Difference {
                change: change.clone(),
                calls: seen.calls,
                first: rfc3339(seen.first_ms),
                last: rfc3339(seen.last_ms),
            })
            .collect();
        // Stable: those of equal number stay in order of caller and tool.
        differences.sort_by_key(|d| std::cmp::Reverse(d.calls));
        let (same, different) = self.counts();
        let unlisted = self.unlisted.load(Ordering::Relaxed);
        ShadowReport { enabled: true, same, different, unlisted, differences }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{caller, load, sample};
    use super::*;

    #[test]
    fn differences_are_counted_and_decide_nothing() {
        let live = load(&[("a.rhai", "fn rules(p) { p.allow().tags([\"ci\"]); }")]);
        let next = load(&[(
            "n.rhai",
            "fn rules(p) {\n  p.allow().tags([\"ci\"]);\n  p.deny(\"x\").tool(\"ci.run\").when_arg(\"/t\", \"prod\");\n}",
        )]);
        let (catalog, who) = (sample(), caller("a", &[]));
        let shadow = Shadow::new(next, &live);
        let (no, _) = catalog.lookup("ci.run").unwrap();
        let ask = |target: &str, at| {
            let arguments = serde_json::json!({ "t": target }).as_object().unwrap().clone();
            let decision = live.decide(&catalog, &who, no, Some(&arguments));
            assert!(matches!(decision, Decision::Permit(_)));
            shadow.observe(&catalog, &who, no, &arguments, (&decision, at));
        };
        ask("dev", 0);
        ask("prod", 1_000);
        ask("prod", 2_000);
        let report = shadow.report();
        assert_eq!((report.same, report.different, report.differences.len()), (1, 2, 1));
        let found = &report.differences[0];
        assert_eq!((found.change.before, found.change.after, found.calls), ("permit", "deny", 2));
        assert_eq!(found.change.rule.to_string(), "policies/n.rhai:3");
        assert_eq!(
            (found.first.as_str(), found.last.as_str()),
            ("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z")
        );
        assert!(shadow.is_same(&Shadow::new(shadow.policy().clone(), &live)));
    }
}
