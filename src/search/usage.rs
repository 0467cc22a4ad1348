//! The usage signal: tools that were run with success after searches like this one get a vote.
//!
//! Pure. A [`UsageRecord`] says which words led to which tool. A [`UsageView`] is what one scope of callers
//! remembers, frozen: the same question gets the same votes from it. It holds tools that the scope sees and weighs
//! words as the scope sees them, so a vote tells nothing of a hidden tool. Who learns from whom is not decided here.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::index::ToolIndex;
use super::num::narrow;
use super::question::View;
use super::semantic::{self, Table, Vector};
use super::text::{Analyzer, chunks, split};
use crate::catalog::{Catalog, ToolSet};
use crate::cursor::Digest;
use crate::id::{ToolId, ToolNo};

/// Words kept of one search: a question to a search has few, a pasted text is no question.
const WORDS_MAX: usize = 24;
/// Characters of a word that is kept: longer ones are tokens, hashes and addresses.
const WORD_CHARS_MAX: usize = 24;
/// Milliseconds of a day.
const DAY_MS: f64 = 86_400_000.0;

/// One thing learnt: after a search for these words this tool was run with success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The words of the search that say something, sorted, each once ([`ToolIndex::usage_words`]).
    pub words: Vec<String>,
    /// The tool that was run.
    pub tool: ToolId,
    /// When it was run last, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// How much it counts: 1 for a run right after the search.
    pub weight: f32,
}

/// What one scope of callers remembers, frozen for one generation.
#[derive(Debug, Default)]
pub struct UsageView {
    memories: Vec<Memory>,
    /// The memories that have a stem, with the stem's weight in them.
    by_stem: HashMap<String, Vec<(usize, f32)>>,
    digest: Digest,
}

#[derive(Debug)]
struct Memory {
    tool: ToolNo,
    /// With its age in it.
    weight: f32,
    /// Length of its words as a vector of rarities.
    norm: f32,
    meaning: Vector,
}

impl ToolIndex {
    /// Whether usage counts at all: where it does not, nothing is to be remembered.
    pub fn learns(&self) -> bool {
        let [.., usage] = self.ranking.signals;
        usage > 0.0
    }

    /// What is remembered of a question: its words that say something. What looks like a number, an address or a
    /// secret is left out, unless tools know the word.
    pub fn usage_words(&self, text: &str) -> Vec<String> {
        let mut analyzer = Analyzer::new();
        let mut words: Vec<String> = chunks(text)
            .flat_map(split)
            .filter(|w| !self.stop_words.contains(w) && w.chars().count() <= WORD_CHARS_MAX)
            .filter(|w| !w.chars().any(char::is_numeric) || self.dictionary.find(&analyzer.stem(w)).is_some())
            .take(WORDS_MAX)
            .collect();
        words.sort_unstable();
        words.dedup();
        words
    }
}

impl UsageView {
    /// What the callers who see `visible` remember of these records at this time.
    pub fn freeze<'a>(
        index: &ToolIndex,
        catalog: &Catalog,
        visible: &ToolSet,
        records: impl IntoIterator<Item = &'a UsageRecord>,
        now_ms: u64,
    ) -> Self {
        let view = View { set: visible, count: visible.count() };
        let mut out = Self::default();
        let mut analyzer = Analyzer::new();
        let mut hasher = blake3::Hasher::new();
        for record in records {
            let Some((tool, _)) = catalog.lookup(record.tool.as_str()) else { continue };
            let stems = stems(&record.words, &mut analyzer);
            let age_days = narrow(float(now_ms.saturating_sub(record.at_ms)) / DAY_MS);
            let weight =
                record.weight * 0.5_f32.powf(age_days / index.ranking.usage.half_life_days.max(0.01));
            if stems.is_empty() || !visible.contains(tool) || weight.is_nan() {
                continue;
            }
            hasher.update(&record.at_ms.to_le_bytes());
            hasher.update(record.tool.as_str().as_bytes());
            let mut square = 0.0;
            for stem in stems {
                hasher.update(stem.as_bytes());
                let rarity = index.rarity_of(&stem, view);
                square += rarity * rarity;
                out.by_stem.entry(stem).or_default().push((out.memories.len(), rarity));
            }
            let meaning = Table::shipped().embed(&record.words);
            out.memories.push(Memory { tool, weight: weight.clamp(0.0, 1.0), norm: square.sqrt(), meaning });
        }
        out.digest = *hasher.finalize().as_bytes();
        out
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.memories.is_empty()
    }

    /// What the votes depend on: page tokens are bound to it.
    pub fn digest(&self) -> Digest {
        if self.is_empty() { Digest::default() } else { self.digest }
    }

    /// The votes of the nearest past searches, 0 to 1 for each tool that gets any, in tool order.
    pub(super) fn votes(&self, words: &[String], index: &ToolIndex, view: View<'_>) -> Vec<(ToolNo, f32)> {
        let settings = &index.ranking.usage;
        let mut dots: HashMap<usize, f32> = HashMap::new();
        let mut square = 0.0;
        for stem in stems(words, &mut Analyzer::new()) {
            let rarity = index.rarity_of(&stem, view);
            square += rarity * rarity;
            for (at, weight) in self.by_stem.get(&stem).into_iter().flatten() {
                *dots.entry(*at).or_default() += rarity * weight;
            }
        }
        let meaning = Table::shipped().embed(words);
        let mut near: Vec<(f32, &Memory)> = dots
            .into_iter()
            .filter_map(|(at, dot)| {
                let memory = self.memories.get(at).filter(|m| view.set.contains(m.tool))?;
                let words = dot / (square.sqrt() * memory.norm).max(f32::MIN_POSITIVE);
                let like = (1.0 - settings.meaning) * words
                    + settings.meaning * semantic::cosine(&meaning, &memory.meaning);
                (like >= settings.likeness).then_some((like.min(1.0), memory))
            })
            .collect();
        near.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.tool.cmp(&b.1.tool)));
        let mut taken = 0.0;
        near.retain(|_| {
            taken += 1.0;
            taken <= settings.neighbours
        });
        tally(&near, settings.power)
    }
}

/// From the nearest past searches to votes: a tool's share among them, as far as the nearest that led to it is like
/// the question.
fn tally(near: &[(f32, &Memory)], power: f32) -> Vec<(ToolNo, f32)> {
    let part = |(like, memory): &(f32, &Memory)| memory.weight * like.powf(power);
    let all: f32 = near.iter().map(part).sum();
    let mut votes: Vec<(ToolNo, f32)> = Vec::new();
    for entry in near {
        let tool = entry.1.tool;
        if votes.iter().any(|(t, _)| *t == tool) {
            continue;
        }
        let own = near.iter().filter(|e| e.1.tool == tool);
        let share = own.clone().map(part).sum::<f32>() / all.max(f32::MIN_POSITIVE);
        let best = own.map(|(like, memory)| like * memory.weight).fold(0.0, f32::max);
        votes.push((tool, (share * best).clamp(0.0, 1.0)));
    }
    votes.sort_unstable_by_key(|(tool, _)| *tool);
    votes
}

fn stems(words: &[String], analyzer: &mut Analyzer) -> Vec<String> {
    let mut stems: Vec<String> = words.iter().map(|w| analyzer.stem(w)).collect();
    stems.sort_unstable();
    stems.dedup();
    stems
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "milliseconds stay below 2^53")]
fn float(ms: u64) -> f64 {
    ms as f64
}
