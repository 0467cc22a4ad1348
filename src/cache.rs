//! Bounded memories of what can be worked out again. The only module that knows moka.
//!
//! Nothing here is ever wrong by age: the generation is part of every key, so a new snapshot makes new entries
//! and the old ones fall out by themselves.

mod replay;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use moka::sync::Cache;

use crate::id::Generation;

pub use replay::{Entry, ReplayCounts, ReplayKey, Replays};

/// Classes of callers remembered at once: a class is a set of visible tools, and few of them are alive.
const CLASSES_MAX: u64 = 1_024;
/// An entry that nobody asked for this long is dropped (it belongs to an old generation, most likely).
const CLASS_IDLE: Duration = Duration::from_mins(10);

/// A digest that stands for a class of callers: those who see the same tools.
pub type ClassDigest = [u8; 32];

/// One value per class of callers and generation, made on first use by one caller while its twins wait.
pub struct ClassCache<V> {
    kept: Cache<(Generation, ClassDigest), Arc<V>>,
    /// The first class of the newest generation, once more: most servers have one, and to look a value up in `kept`
    /// writes to what all threads share.
    first: ArcSwapOption<First<V>>,
}

struct First<V> {
    of: (Generation, ClassDigest),
    value: Arc<V>,
}

impl<V: Send + Sync + 'static> Default for ClassCache<V> {
    fn default() -> Self {
        let kept = Cache::builder().max_capacity(CLASSES_MAX).time_to_idle(CLASS_IDLE).build();
        Self { kept, first: ArcSwapOption::empty() }
    }
}

impl<V> std::fmt::Debug for ClassCache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClassCache")
    }
}

impl<V: Send + Sync + 'static> ClassCache<V> {
    /// The value of a class, made by `make` if it is not there.
    pub fn get(&self, generation: Generation, class: ClassDigest, make: impl FnOnce() -> V) -> Arc<V> {
        let of = (generation, class);
        let first = self.first.load();
        if let Some(first) = first.as_ref().filter(|first| first.of == of) {
            return Arc::clone(&first.value);
        }
        let value = self.kept.get_with(of, || Arc::new(make()));
        if first.as_ref().is_none_or(|first| first.of.0 < generation) {
            self.first.store(Some(Arc::new(First { of, value: Arc::clone(&value) })));
        }
        value
    }

    /// The value of a class, if it is there: for values whose class is fully known only once they were made.
    pub fn find(&self, generation: Generation, class: ClassDigest) -> Option<Arc<V>> {
        self.kept.get(&(generation, class))
    }

    /// Keeps a value that was made elsewhere.
    pub fn keep(&self, generation: Generation, class: ClassDigest, value: Arc<V>) {
        self.kept.insert((generation, class), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_per_class_and_generation() {
        let cache = ClassCache::default();
        let get = |generation, class, value: &str| {
            cache.get(Generation(generation), [class; 32], || value.to_owned()).as_str().to_owned()
        };
        assert_eq!(get(1, 1, "a"), "a");
        assert_eq!(get(1, 1, "never made"), "a");
        assert_eq!(get(1, 2, "other class"), "other class");
        assert_eq!(get(2, 1, "next generation"), "next generation");
        assert_eq!(get(1, 1, "never made"), "a", "calls that began before are still served");
        assert_eq!((get(2, 2, "its other class"), get(2, 1, "-"), get(2, 2, "-")).0, "its other class");
        assert_eq!(
            (get(2, 1, "never made"), get(2, 2, "never made")),
            ("next generation".into(), "its other class".into())
        );
        assert_eq!(cache.find(Generation(3), [1; 32]), None);
        cache.keep(Generation(3), [1; 32], Arc::new("kept".to_owned()));
        assert_eq!(get(3, 1, "never made"), "kept");
    }
}
