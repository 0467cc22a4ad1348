//! Refused requests by their reason: the first of a reason is a record at once, the others of the next minute
//! are one record with their number. So a flood of bad tokens is as long in the log as a handful, and takes no
//! place in the queue from records of calls.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// How long refusals of one reason are counted before they are told.
const WINDOW_MS: u64 = 60_000;

#[derive(Debug, Clone, Copy)]
struct Counted {
    since_ms: u64,
    more: u64,
}

/// The refusals of the current windows. Reasons are texts of docent's own, so there are only so many.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<&'static str, Counted>>);

impl Refusals {
    /// Counts a refusal: whether it is the first of its reason in a window, which is told by itself.
    pub(super) fn count(&self, reason: &'static str, now_ms: u64) -> bool {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = counted.get_mut(reason) {
            known.more += 1;
            return false;
        }
        counted.insert(reason, Counted { since_ms: now_ms, more: 0 });
        true
    }

    /// The records of windows that have ended; of all windows where `all` says so.
    pub(super) fn due(&self, now_ms: u64, all: bool) -> Vec<Value> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told = Vec::new();
        counted.retain(|reason, window| {
            let ended = all || now_ms.saturating_sub(window.since_ms) >= WINDOW_MS;
            if ended && window.more > 0 {
                told.push(body(reason, window.more, Some(now_ms.saturating_sub(window.since_ms))));
            }
            !ended
        });
        told
    }
}

/// The members of a record: `count` requests, over `over_ms` where it is more than one at once.
pub(super) fn body(reason: &str, count: u64, over_ms: Option<u64>) -> Value {
    match over_ms {
        None => json!({ "reason": reason, "count": count }),
        Some(over_ms) => json!({ "reason": reason, "count": count, "over_ms": over_ms }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_together() {
        let refusals = Refusals::default();
        let firsts = (0..1_000).filter(|n| refusals.count("expired", *n)).count();
        assert_eq!((firsts, refusals.count("no key", 5)), (1, true));
        assert_eq!(refusals.due(1_000, false), Vec::<Value>::new());
        assert_eq!(
            refusals.due(WINDOW_MS, false),
            [json!({"reason": "expired", "count": 999, "over_ms": 60_000})]
        );
        assert!(refusals.count("expired", WINDOW_MS), "a new window");
        refusals.count("expired", WINDOW_MS + 1);
        assert_eq!(refusals.due(WINDOW_MS + 2, true).len(), 1, "at the end nothing is kept back");
        assert_eq!(refusals.due(u64::MAX, true), Vec::<Value>::new());
    }
}
