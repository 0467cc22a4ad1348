//! What callers' own successful calls created: the ground of `owns(kind, id)`.
//!
//! A ledger in memory, bounded per caller; what is kept over a restart is put in again at the start. What is not
//! known is nobody's, so a policy that asks for ownership refuses rather than guesses.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

/// Things remembered of one caller; its oldest are forgotten first.
const PER_CALLER_MAX: usize = 1_000;
/// Callers remembered; the one that created something longest ago is forgotten first.
const CALLERS_MAX: usize = 10_000;
/// Bytes of an id: a longer one is no id.
const ID_BYTES_MAX: usize = 512;

type Thing = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct Owned {
    things: HashSet<Thing>,
    order: VecDeque<Thing>,
    /// When it last created something, as a count of all creations.
    last: u64,
}

/// Who created what. Shared by all generations.
#[derive(Debug, Default)]
pub struct Ledger(RwLock<(u64, HashMap<Arc<str>, Owned>)>);

impl Ledger {
    /// Notes that a caller created a thing; whether it is one that can be owned.
    pub fn created(&self, caller: &Arc<str>, kind: &str, id: &str) -> bool {
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return false;
        }
        let mut ledger = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (count, callers) = &mut *ledger;
        *count += 1;
        if !callers.contains_key(caller) && callers.len() >= CALLERS_MAX {
            let idle = callers.iter().min_by_key(|(_, owned)| owned.last).map(|(name, _)| Arc::clone(name));
            idle.map(|name| callers.remove(&name));
        }
        let owned = callers.entry(Arc::clone(caller)).or_default();
        owned.last = *count;
        let thing: Thing = (Arc::from(kind), Arc::from(id));
        if owned.things.insert(thing.clone()) {
            owned.order.push_back(thing);
        }
        if owned.order.len() > PER_CALLER_MAX
            && let Some(oldest) = owned.order.pop_front()
        {
            owned.things.remove(&oldest);
        }
        true
    }

    /// Whether a caller created a thing.
    pub fn owns(&self, caller: &str, kind: &str, id: &str) -> bool {
        let ledger = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let thing: Thing = (Arc::from(kind), Arc::from(id));
        ledger.1.get(caller).is_some_and(|owned| owned.things.contains(&thing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_its_creators_alone_and_the_oldest_are_forgotten() {
        let ledger = Ledger::default();
        let (alice, bob): (Arc<str>, Arc<str>) = (Arc::from("alice"), Arc::from("bob"));
        ledger.created(&alice, "issue", "1");
        assert!(ledger.owns("alice", "issue", "1"));
        assert!(!ledger.owns("bob", "issue", "1") && !ledger.owns("alice", "job", "1"));
        for n in 0..PER_CALLER_MAX {
            ledger.created(&alice, "issue", &format!("n{n}"));
        }
        ledger.created(&bob, "issue", &"x".repeat(ID_BYTES_MAX + 1));
        assert!(!ledger.owns("alice", "issue", "1") && ledger.owns("alice", "issue", "n0"));
        assert!(!ledger.owns("bob", "issue", &"x".repeat(ID_BYTES_MAX + 1)));
    }
}
