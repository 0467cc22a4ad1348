//! What shaping saves, tool by tool: bytes that upstreams answered and bytes that results took.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Tools that are counted apart: each is several series in `/metrics`. Further ones are counted together.
const TOOLS_MAX: usize = 1_000;
/// The name under which further tools are counted: no tool's id, which has a dot.
const OTHERS: &str = "other";

/// The counters of all tools that were called.
#[derive(Debug, Default)]
pub(super) struct Savings(RwLock<BTreeMap<Arc<str>, Counter>>);

#[derive(Debug, Default)]
struct Counter {
    replies: AtomicU64,
    results: AtomicU64,
}

/// What was counted of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The tool's id, or `other` for those beyond the first thousand.
    pub tool: Arc<str>,
    /// Bytes that its upstream answered, of the calls that ended in a result.
    pub reply_bytes: u64,
    /// Bytes of those results.
    pub result_bytes: u64,
}

impl Counter {
    fn add(&self, reply: usize, result: usize) {
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.replies.fetch_add(wide(reply), Ordering::Relaxed);
        self.results.fetch_add(wide(result), Ordering::Relaxed);
    }
}

impl Savings {
    /// Counts one call. The first of a tool takes a lock that others wait for, all later ones do not.
    pub(super) fn count(&self, tool: &str, reply: usize, result: usize) {
        {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(counter) = known.get(tool) {
                return counter.add(reply, result);
            }
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let name = if known.len() < TOOLS_MAX { tool } else { OTHERS };
        known.entry(Arc::from(name)).or_default().add(reply, result);
    }

    /// What was counted, in order of the ids.
    pub(super) fn all(&self) -> Vec<Saved> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let saved = |(tool, counter): (&Arc<str>, &Counter)| Saved {
            tool: Arc::clone(tool),
            reply_bytes: read(&counter.replies),
            result_bytes: read(&counter.results),
        };
        known.iter().map(saved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_counted_apart_up_to_their_limit() {
        let savings = Savings::default();
        for n in 0..TOOLS_MAX + 5 {
            savings.count(&format!("t.{n}"), 10, 1);
        }
        savings.count("t.0", 10, 1);
        let all = savings.all();
        assert_eq!(all.len(), TOOLS_MAX + 1);
        let of = |tool: &str| all.iter().find(|s| &*s.tool == tool).map(|s| (s.reply_bytes, s.result_bytes));
        assert_eq!((of("t.0"), of(OTHERS)), (Some((20, 2)), Some((50, 5))));
    }
}
