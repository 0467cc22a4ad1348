//! The usage signal: tools that were run with success after searches like this one get a vote.
//!
//! Pure. A [`UsageRecord`] says which words led to which tool. A [`UsageView`] is what one scope of callers
//! remembers, frozen: the same question gets the same votes from it. It holds tools that the scope sees and weighs
//! words as the scope sees them, so a vote tells nothing of a hidden tool. Who learns from whom is not decided here.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::index::ToolIndex;
use super::num::{count, narrow};
use super::ranking::UsageWeights;
use super::semantic::{Meaning, Table, Vector};
use super::text::{Analyzer, chunks, split};
use super::view::View;
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

/// A record made ready for every view: what of it needs no catalog is worked out once, when it is learnt.
#[derive(Debug, Clone)]
pub struct Lesson {
    record: UsageRecord,
    stems: Vec<String>,
    meaning: Vector,
}

impl Lesson {
    /// Makes a record ready.
    pub fn of(record: UsageRecord) -> Self {
        let stems = stems(&record.words, &mut Analyzer::new());
        let meaning = Table::shipped().embed(&record.words);
        Self { record, stems, meaning }
    }

    /// What was learnt.
    pub fn record(&self) -> &UsageRecord {
        &self.record
    }
}

/// What one scope of callers remembers, frozen for one generation.
#[derive(Debug, Default)]
pub struct UsageView {
    memories: Vec<Memory>,
    words: HashMap<String, Word>,
    digest: Digest,
}

/// A stem that memories have.
#[derive(Debug)]
struct Word {
    /// How rare it is among the visible tools.
    rarity: f32,
    /// The memories that have it.
    at: Vec<usize>,
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

/// A memory that is like the question, and how far.
#[derive(Debug, Clone, Copy)]
struct Near {
    like: f32,
    tool: ToolNo,
    weight: f32,
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
    /// What the callers who see `visible` remember of these lessons at this time. `before`: a view of the same index
    /// and the same visible tools, if there is one; what it knows of words is taken over.
    pub fn freeze<'a>(
        index: &ToolIndex,
        catalog: &Catalog,
        visible: &ToolSet,
        lessons: impl IntoIterator<Item = &'a Lesson>,
        now_ms: u64,
        before: Option<&Self>,
    ) -> Self {
        let view = View::of(visible);
        let mut out = Self::default();
        let mut hasher = blake3::Hasher::new();
        for lesson in lessons {
            let record = &lesson.record;
            let Some((tool, _)) = catalog.lookup(record.tool.as_str()) else { continue };
            let age_days = narrow(float(now_ms.saturating_sub(record.at_ms)) / DAY_MS);
            let weight =
                record.weight * 0.5_f32.powf(age_days / index.ranking.usage.half_life_days.max(0.01));
            if lesson.stems.is_empty() || !visible.contains(tool) || weight.is_nan() {
                continue;
            }
            hasher.update(&record.at_ms.to_le_bytes());
            hasher.update(record.tool.as_str().as_bytes());
            let (at, mut square) = (out.memories.len(), 0.0);
            for stem in &lesson.stems {
                hasher.update(stem.as_bytes());
                let known = before.and_then(|b| b.words.get(stem)).map(|word| word.rarity);
                let rarity = out.note(stem, at, || known.unwrap_or_else(|| index.rarity_of(stem, view)));
                square += rarity * rarity;
            }
            let (weight, norm) = (weight.clamp(0.0, 1.0), square.sqrt());
            out.memories.push(Memory { tool, weight, norm, meaning: lesson.meaning });
        }
        out.digest = *hasher.finalize().as_bytes();
        out
    }

    /// Notes that a memory has a stem; gives the stem's rarity.
    fn note(&mut self, stem: &str, memory: usize, rarity: impl Fn() -> f32) -> f32 {
        if let Some(word) = self.words.get_mut(stem) {
            word.at.push(memory);
            return word.rarity;
        }
        let rarity = rarity();
        self.words.insert(stem.to_owned(), Word { rarity, at: vec![memory] });
        rarity
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
        let mut dots = vec![0.0f32; self.memories.len()];
        let (mut touched, mut square) = (Vec::new(), 0.0);
        for stem in stems(words, &mut Analyzer::new()) {
            let word = self.words.get(&stem);
            let rarity = word.map_or_else(|| index.rarity_of(&stem, view), |w| w.rarity);
            square += rarity * rarity;
            for at in word.iter().flat_map(|w| &w.at) {
                let Some(dot) = dots.get_mut(*at) else { continue };
                if *dot <= 0.0 {
                    touched.push(*at);
                }
                *dot += rarity * rarity;
            }
        }
        let (norm, meaning) = (square.sqrt(), Meaning::of(&Table::shipped().embed(words)));
        let near = touched.into_iter().filter_map(|at| {
            let memory = self.memories.get(at).filter(|m| view.set.contains(m.tool))?;
            let words = dots.get(at)? / (norm * memory.norm).max(f32::MIN_POSITIVE);
            let like = (1.0 - settings.meaning) * words + settings.meaning * meaning.near(&memory.meaning);
            (like > settings.begins).then_some(Near {
                like: like.min(1.0),
                tool: memory.tool,
                weight: memory.weight,
            })
        });
        tally(near.collect(), settings)
    }
}

/// From the nearest past searches to votes. Each says how sure it is that its tool is meant; several for one tool are
/// taken together as independent witnesses are, so that many runs outvote a single one of another tool.
fn tally(mut near: Vec<Near>, settings: &UsageWeights) -> Vec<(ToolNo, f32)> {
    near.sort_unstable_by(|a, b| b.like.total_cmp(&a.like).then(a.tool.cmp(&b.tool)));
    let mut doubts: Vec<(ToolNo, f32)> = Vec::new();
    for (rank, Near { like, tool, weight }) in near.into_iter().enumerate() {
        if count(rank) >= settings.neighbours {
            break;
        }
        let reach = (settings.full - settings.begins).max(f32::MIN_POSITIVE);
        let sure = ((like - settings.begins) / reach).min(1.0) * (1.0 - settings.same + settings.same * like);
        let doubt = 1.0 - (sure * weight).clamp(0.0, 1.0);
        match doubts.iter_mut().find(|(t, _)| *t == tool) {
            Some((_, all)) => *all *= doubt,
            None => doubts.push((tool, doubt)),
        }
    }
    doubts.sort_unstable_by_key(|(tool, _)| *tool);
    doubts.into_iter().map(|(tool, doubt)| (tool, 1.0 - doubt)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: UsageWeights = UsageWeights {
        neighbours: 3.0,
        begins: 0.2,
        full: 0.6,
        meaning: 0.5,
        same: 0.2,
        half_life_days: 60.0,
    };

    fn votes(near: &[(f32, u32, f32)]) -> Vec<(u32, f32)> {
        let near =
            near.iter().map(|(like, no, weight)| Near { like: *like, tool: ToolNo(*no), weight: *weight });
        let rounded = |(tool, vote): (ToolNo, f32)| (tool.0, (vote * 1000.0).round() / 1000.0);
        tally(near.collect(), &SETTINGS).into_iter().map(rounded).collect()
    }

    #[test]
    fn a_vote_grows_with_likeness_and_only_the_very_same_search_has_a_whole_one() {
        assert_eq!(votes(&[(1.0, 7, 1.0)]), [(7, 1.0)]);
        assert_eq!(votes(&[(0.6, 7, 1.0)]), [(7, 0.92)]);
        assert_eq!(votes(&[(0.4, 7, 1.0)]), [(7, 0.44)]);
        assert_eq!(votes(&[(0.4, 7, 0.5)]), [(7, 0.22)], "an old run, or a search that was rephrased");
        assert_eq!(votes(&[]), []);
    }

    #[test]
    fn several_runs_outvote_a_single_one_and_only_the_nearest_vote() {
        assert_eq!(votes(&[(0.4, 1, 1.0), (0.4, 2, 1.0), (0.4, 2, 1.0)]), [(1, 0.44), (2, 0.686)]);
        assert_eq!(votes(&[(0.5, 1, 1.0), (0.5, 1, 1.0), (0.5, 1, 1.0), (0.4, 2, 1.0)]).len(), 1);
    }
}
