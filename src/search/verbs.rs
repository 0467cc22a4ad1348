//! What kind of thing a verb does: reading, creating, changing, deleting, …

use std::collections::HashMap;

use super::ranking::Ranking;
use super::text::Analyzer;

/// The classes of verbs, by stem; a bit each.
#[derive(Debug, Default)]
pub(super) struct Verbs(HashMap<String, u32>);

impl Verbs {
    pub(super) fn new(ranking: &Ranking, analyzer: &mut Analyzer) -> Self {
        let mut table = HashMap::new();
        for (class, verbs) in (0u32..32).zip(&ranking.verbs) {
            for verb in verbs {
                *table.entry(analyzer.stem(verb)).or_default() |= 1 << class;
            }
        }
        Self(table)
    }

    /// The classes of a stem; 0 for anything but a known verb.
    pub(super) fn of(&self, stem: &str) -> u32 {
        self.0.get(stem).copied().unwrap_or(0)
    }
}
