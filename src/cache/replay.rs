//! Equal calls share one answer: those that come while the first one runs join it, those that come within a time
//! after it get its result (seed 002). What runs is never begun by the cache and never dropped with a caller.
//!
//! A cache alone would not do: moka begins anew when the one that computes is dropped, takes no owner's quota, and
//! may forget at once. So the flights stand in a map of their own, under one lock with the answers' order; moka
//! holds the answers within bytes, oldest used first out.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::limits::{REPLAY_BYTES_MAX, REPLAY_WINDOW, REPLAYS_PER_CALLER_MAX};

/// Callers whose order is kept before those without a living answer are cleared out.
const CALLERS_MAX: usize = 1_024;

/// What makes two calls the same one: caller, tool, and the caller's own key or the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplayKey {
    /// Whose call.
    pub caller: Arc<str>,
    /// Everything that makes it the same call, the caller included.
    pub digest: [u8; 32],
}

/// What a call finds.
#[derive(Debug)]
pub enum Entry<F, V> {
    /// Nothing: it is the first. Whoever gets this must call [`Replays::land`] in the end.
    First(F),
    /// An equal call runs.
    Running(F),
    /// An equal call has just ended.
    Ended(V),
    /// The key was used with other arguments.
    Collision,
}

/// What `/metrics` shows of replays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Calls that joined one that ran.
    pub joined: u64,
    /// Calls that were answered by one that had ended.
    pub replayed: u64,
    /// Keys that came with other arguments.
    pub collisions: u64,
}

/// Flights of `F` and their answers `V`.
pub struct Replays<F, V> {
    state: Mutex<State<F>>,
    ended: Cache<ReplayKey, Ended<V>>,
    joined: AtomicU64,
    replayed: AtomicU64,
    collisions: AtomicU64,
}

struct State<F> {
    flights: HashMap<ReplayKey, ([u8; 32], F)>,
    /// Each caller's answers, oldest first, with the time of their end.
    order: HashMap<Arc<str>, VecDeque<(ReplayKey, u64)>>,
}

#[derive(Clone)]
struct Ended<V> {
    args: [u8; 32],
    value: V,
    until_ms: u64,
    bytes: u32,
}

impl<F, V> fmt::Debug for Replays<F, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replays")
    }
}

impl<F: Clone, V: Clone + Send + Sync + 'static> Default for Replays<F, V> {
    fn default() -> Self {
        let ended = Cache::builder()
            .max_capacity(REPLAY_BYTES_MAX)
            .weigher(|_, ended: &Ended<V>| ended.bytes)
            // The default policy weighs a fresh answer against old favourites and may drop it at once.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_live(REPLAY_WINDOW)
            .build();
        Self {
            state: Mutex::new(State { flights: HashMap::new(), order: HashMap::new() }),
            ended,
            joined: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            collisions: AtomicU64::new(0),
        }
    }
}

impl<F: Clone, V: Clone + Send + Sync + 'static> Replays<F, V> {
    fn state(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a call with these arguments finds; the first one's flight is made by `make`, an error of which
    /// leaves nothing behind.
    pub fn enter<E>(
        &self,
        key: &ReplayKey,
        args: [u8; 32],
        now_ms: u64,
        make: impl FnOnce() -> Result<F, E>,
    ) -> Result<Entry<F, V>, E> {
        let mut state = self.state();
        if let Some((flown, flight)) = state.flights.get(key) {
            if *flown != args {
                self.collisions.fetch_add(1, Ordering::Relaxed);
                return Ok(Entry::Collision);
            }
            self.joined.fetch_add(1, Ordering::Relaxed);
            return Ok(Entry::Running(flight.clone()));
        }
        // An answer is put down before its flight is taken out, so there is no moment without either.
        if let Some(ended) = self.ended.get(key).filter(|e| now_ms < e.until_ms) {
            if ended.args != args {
                self.collisions.fetch_add(1, Ordering::Relaxed);
                return Ok(Entry::Collision);
            }
            self.replayed.fetch_add(1, Ordering::Relaxed);
            return Ok(Entry::Ended(ended.value));
        }
        let flight = make()?;
        state.flights.insert(key.clone(), (args, flight.clone()));
        Ok(Entry::First(flight))
    }

    /// Ends a flight. With an answer and its bytes, equal calls get that until `until_ms`; without, the next one
    /// is a first one again.
    pub fn land(&self, key: &ReplayKey, answer: Option<(V, usize, u64)>, now_ms: u64) {
        let mut state = self.state();
        let Some((args, _)) = state.flights.get(key) else { return };
        if let Some((value, bytes, until_ms)) = answer {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.ended.insert(key.clone(), Ended { args: *args, value, until_ms, bytes });
            self.note(&mut state, key, until_ms, now_ms);
        }
        state.flights.remove(key);
    }

    /// Counts a call whose answer came from further away, or whose key collided there.
    pub fn count_elsewhere(&self, collided: bool) {
        if collided { &self.collisions } else { &self.replayed }.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted.
    pub fn counts(&self) -> ReplayCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReplayCounts {
            joined: of(&self.joined),
            replayed: of(&self.replayed),
            collisions: of(&self.collisions),
        }
    }

    fn note(&self, state: &mut State<F>, key: &ReplayKey, until_ms: u64, now_ms: u64) {
        if state.order.len() >= CALLERS_MAX {
            state.order.retain(|_, keys| keys.back().is_some_and(|(_, until)| now_ms < *until));
        }
        let keys = state.order.entry(Arc::clone(&key.caller)).or_default();
        keys.push_back((key.clone(), until_ms));
        while keys.len() > REPLAYS_PER_CALLER_MAX || keys.front().is_some_and(|(_, until)| *until <= now_ms) {
            let Some((old, until)) = keys.pop_front() else { break };
            // A key that came again has a younger entry, which stays.
            if self.ended.get(&old).is_some_and(|e| e.until_ms == until) {
                self.ended.invalidate(&old);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Cached = Replays<u32, String>;

    fn key(caller: &str, n: u16) -> ReplayKey {
        let mut digest = [0; 32];
        digest[..2].copy_from_slice(&n.to_le_bytes());
        ReplayKey { caller: Arc::from(caller), digest }
    }

    fn enter(cache: &Cached, key: &ReplayKey, args: u8, now: u64) -> Entry<u32, String> {
        cache.enter(key, [args; 32], now, || Ok::<_, ()>(7)).unwrap()
    }

    fn answer(text: &str, until: u64) -> (String, usize, u64) {
        (text.to_owned(), 10, until)
    }

    #[test]
    fn twins_join_successes_are_shared_for_their_time_and_other_arguments_collide() {
        let (cache, k) = (Cached::default(), key("a", 1));
        assert!(matches!(enter(&cache, &k, 1, 0), Entry::First(7)));
        assert!(matches!(enter(&cache, &k, 1, 0), Entry::Running(7)));
        assert!(matches!(enter(&cache, &k, 2, 0), Entry::Collision));
        assert!(
            matches!(enter(&cache, &key("b", 1), 1, 0), Entry::First(_)),
            "another caller's key is another"
        );
        cache.land(&k, Some(answer("once", 100)), 0);
        assert!(matches!(enter(&cache, &k, 1, 99), Entry::Ended(v) if v == "once"));
        assert!(matches!(enter(&cache, &k, 2, 99), Entry::Collision));
        assert!(matches!(enter(&cache, &k, 2, 100), Entry::First(_)), "the end of its time is outside of it");
        assert_eq!(cache.counts(), ReplayCounts { joined: 1, replayed: 1, collisions: 2 });
    }

    #[test]
    fn a_flight_that_failed_or_could_not_begin_leaves_nothing() {
        let (cache, k) = (Cached::default(), key("a", 1));
        assert!(cache.enter(&k, [1; 32], 0, || Err("full")).is_err());
        assert!(matches!(enter(&cache, &k, 1, 0), Entry::First(_)));
        cache.land(&k, None, 0);
        assert!(matches!(enter(&cache, &k, 2, 0), Entry::First(_)));
    }

    #[test]
    fn a_caller_has_its_newest_answers_and_no_other_loses_one_for_them() {
        let cache = Cached::default();
        let put = |k: &ReplayKey| {
            assert!(matches!(enter(&cache, k, 1, 0), Entry::First(_)));
            cache.land(k, Some(answer("x", 100)), 0);
        };
        put(&key("b", 0));
        let most = u16::try_from(REPLAYS_PER_CALLER_MAX).unwrap();
        (0..=most).for_each(|n| put(&key("a", n)));
        assert!(matches!(enter(&cache, &key("a", 0), 1, 1), Entry::First(_)), "the oldest went");
        for n in 1..=most {
            assert!(
                matches!(enter(&cache, &key("a", n), 1, 1), Entry::Ended(_)),
                "{n}: fresh ones are never refused"
            );
        }
        assert!(matches!(enter(&cache, &key("b", 0), 1, 1), Entry::Ended(_)));
    }

    #[test]
    fn of_callers_at_once_exactly_one_is_first() {
        let cache = Cached::default();
        let firsts: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..200u16)
                            .filter(|n| {
                                let k = key("a", *n);
                                let first = matches!(enter(&cache, &k, 1, 0), Entry::First(_));
                                if first {
                                    cache.land(&k, Some(answer("x", 100)), 0);
                                }
                                first
                            })
                            .count()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(firsts, 200);
    }
}
