//! Everything about ranking that may be tuned: read from `index/ranking.toml` and `index/synonyms.toml`.
//!
//! The shipped files are compiled in and are the only defaults; an operator's `ranking.toml` changes single
//! keys, an operator's `synonyms.toml` takes the place of the shipped one.

use super::num::narrow;
use super::synonyms::Synonyms;
use crate::diagnostic::{Diagnostics, SourceFile};
use crate::settings::{self, Section};

/// The shipped files: the defaults.
const SHIPPED_RANKING: &str = include_str!("../../index/ranking.toml");
const SHIPPED_SYNONYMS: &str = include_str!("../../index/synonyms.toml");

/// Number of fields that terms are found in.
pub(super) const FIELDS: usize = 8;
/// Their names in `[fields]` and `[lengths]`, in the order of their numbers.
pub(super) const FIELD_NAMES: [&str; FIELDS] =
    ["name", "title", "description", "parameters", "parameter_texts", "upstream", "tags", "path"];
/// Parts of a tool whose words stand for it in the semantic signal.
pub(super) const GIST_PARTS: usize = 3;
/// Their names in `[gist]`.
pub(super) const GIST_NAMES: [&str; GIST_PARTS] = ["upstream", "name", "text"];
/// The six signals of seed 004, in the order of [`Ranking::signals`].
pub(super) const SIGNAL_NAMES: [&str; 6] =
    ["lexical", "semantic", "graph", "permission", "freshness", "usage"];

/// Weights, limits and words of the ranking.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ranking {
    /// Boost of each field.
    pub(super) fields: [f32; FIELDS],
    /// Words that a field of usual length has.
    pub(super) lengths: [f32; FIELDS],
    /// How much a field longer than usual loses, 0 to 1.
    pub(super) length_pull: [f32; FIELDS],
    /// BM25's saturation.
    pub(super) k1: f32,
    /// Saturation and length of trigrams.
    pub(super) trigram_k1: f32,
    pub(super) trigram_b: f32,
    pub(super) trigram_length: f32,
    /// How much each part's words count in a tool's meaning.
    pub(super) gist: [f32; GIST_PARTS],
    /// Words of an upstream's name that are no part of its meaning.
    pub(super) generic: Vec<String>,
    pub(super) query: QueryWeights,
    pub(super) lexical: LexicalWeights,
    /// Public weights of the six signals.
    pub(super) signals: [f32; SIGNAL_NAMES.len()],
    pub(super) floor: Floor,
    /// What takes their place where a sentence model is asked.
    pub(super) model: ModelWeights,
    pub(super) usage: UsageWeights,
    /// Words that say nothing in a question.
    pub(super) stop_words: Vec<String>,
    /// Groups of verbs that do the same kind of thing.
    pub(super) verbs: Vec<Vec<String>>,
    pub(super) synonyms: Synonyms,
}

/// How the words of a question count.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct QueryWeights {
    pub(super) repeat_power: f32,
    pub(super) synonym: f32,
    pub(super) meaning: f32,
    pub(super) rarity_power: f32,
    pub(super) expansion: f32,
    pub(super) typo: f32,
    pub(super) joined: f32,
}

/// What the lexical signal is made of.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LexicalWeights {
    pub(super) terms: f32,
    pub(super) trigrams: f32,
    pub(super) brevity: f32,
    pub(super) verb: f32,
}

/// What a tool must reach to be a match at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Floor {
    /// Share of the question's weight that the tool's terms must carry.
    pub(super) terms: f32,
    /// The same of trigrams.
    pub(super) trigrams: f32,
    /// Cosine that is a match alone.
    pub(super) semantic: f32,
    /// Vote that is a match alone.
    pub(super) usage: f32,
}

/// Ranking with a sentence model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ModelWeights {
    /// Weights of the six signals.
    pub(super) signals: [f32; SIGNAL_NAMES.len()],
    /// Share of the model in the semantic signal; the rest is the shipped table's.
    pub(super) share: f32,
    /// Cosine under the model that is a match alone.
    pub(super) floor: f32,
}

/// How past searches vote.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct UsageWeights {
    /// How many of the nearest vote.
    pub(super) neighbours: f32,
    /// Likeness from which on a past search has a vote.
    pub(super) begins: f32,
    /// Likeness from which on it has a whole one.
    pub(super) full: f32,
    /// Share of a vote that only the very same search gives.
    pub(super) same: f32,
    /// Share of the likeness that is meaning, the rest is words.
    pub(super) meaning: f32,
    /// Days after which a run counts half.
    pub(super) half_life_days: f32,
}

impl Ranking {
    /// The shipped ranking with the operator's files over it; every mistake lands in `diagnostics`.
    pub fn read(
        ranking: Option<&SourceFile>,
        synonyms: Option<&SourceFile>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let mut out = Self::default();
        let shipped = SourceFile::new("index/ranking.toml", SHIPPED_RANKING);
        settings::read(&shipped, diagnostics, |root| out.overlay(root));
        if let Some(file) = ranking {
            settings::read(file, diagnostics, |root| out.overlay(root));
        }
        let shipped = SourceFile::new("index/synonyms.toml", SHIPPED_SYNONYMS);
        out.synonyms = Synonyms::read(synonyms.unwrap_or(&shipped), diagnostics);
        out
    }

    /// The shipped ranking.
    pub fn shipped() -> Self {
        Self::read(None, None, &mut Diagnostics::default())
    }

    /// Everything that the stored numbers of an index depend on, as bytes: equal bytes, equal numbers.
    pub(super) fn stored(&self) -> Vec<u8> {
        let weights = self
            .fields
            .iter()
            .chain(&self.lengths)
            .chain(&self.length_pull)
            .chain(&self.gist)
            .chain([&self.k1, &self.trigram_k1, &self.trigram_b, &self.trigram_length]);
        let mut out: Vec<u8> = weights.flat_map(|w| w.to_le_bytes()).collect();
        for words in self.verbs.iter().chain([&self.generic]) {
            out.extend(words.join(" ").bytes());
            out.push(b'\n');
        }
        out
    }

    fn overlay(&mut self, root: &mut Section) {
        for (key, values) in [
            ("fields", &mut self.fields),
            ("lengths", &mut self.lengths),
            ("length_pull", &mut self.length_pull),
        ] {
            if let Some(mut section) = root.section(key) {
                FIELD_NAMES.iter().zip(values).for_each(|(name, value)| weight(&mut section, name, value));
            }
        }
        if let Some(mut s) = root.section("bm25") {
            weight(&mut s, "k1", &mut self.k1);
            weight(&mut s, "trigram_k1", &mut self.trigram_k1);
            weight(&mut s, "trigram_b", &mut self.trigram_b);
            weight(&mut s, "trigram_length", &mut self.trigram_length);
        }
        if let Some(mut s) = root.section("gist") {
            GIST_NAMES.iter().zip(&mut self.gist).for_each(|(name, value)| weight(&mut s, name, value));
            if s.has("generic") {
                self.generic = s.plain_strings("generic").iter().flat_map(|line| words(line)).collect();
            }
        }
        if let Some(mut s) = root.section("query") {
            weight(&mut s, "repeat_power", &mut self.query.repeat_power);
            weight(&mut s, "synonym", &mut self.query.synonym);
            weight(&mut s, "meaning", &mut self.query.meaning);
            weight(&mut s, "rarity_power", &mut self.query.rarity_power);
            weight(&mut s, "expansion", &mut self.query.expansion);
            weight(&mut s, "typo", &mut self.query.typo);
            weight(&mut s, "joined", &mut self.query.joined);
            if s.has("stop_words") {
                self.stop_words = s.plain_strings("stop_words").iter().flat_map(|line| words(line)).collect();
            }
        }
        if let Some(mut s) = root.section("lexical") {
            weight(&mut s, "terms", &mut self.lexical.terms);
            weight(&mut s, "trigrams", &mut self.lexical.trigrams);
            weight(&mut s, "brevity", &mut self.lexical.brevity);
            weight(&mut s, "verb", &mut self.lexical.verb);
        }
        if let Some(mut s) = root.section("signals") {
            SIGNAL_NAMES.iter().zip(&mut self.signals).for_each(|(name, value)| weight(&mut s, name, value));
        }
        if let Some(mut s) = root.section("model_signals") {
            let signals = SIGNAL_NAMES.iter().zip(&mut self.model.signals);
            signals.for_each(|(name, value)| weight(&mut s, name, value));
        }
        if let Some(mut s) = root.section("model") {
            weight(&mut s, "share", &mut self.model.share);
            weight(&mut s, "floor", &mut self.model.floor);
            self.model.share = self.model.share.min(1.0);
        }
        if let Some(mut s) = root.section("floor") {
            weight(&mut s, "terms", &mut self.floor.terms);
            weight(&mut s, "trigrams", &mut self.floor.trigrams);
            weight(&mut s, "semantic", &mut self.floor.semantic);
            weight(&mut s, "usage", &mut self.floor.usage);
        }
        if let Some(mut s) = root.section("usage") {
            weight(&mut s, "neighbours", &mut self.usage.neighbours);
            weight(&mut s, "begins", &mut self.usage.begins);
            weight(&mut s, "full", &mut self.usage.full);
            weight(&mut s, "same", &mut self.usage.same);
            weight(&mut s, "meaning", &mut self.usage.meaning);
            weight(&mut s, "half_life_days", &mut self.usage.half_life_days);
        }
        if root.has("verbs") {
            self.verbs = root.plain_strings("verbs").iter().map(|line| words(line)).collect();
        }
    }
}

/// Reads a weight: a finite number from 0 on.
fn weight(section: &mut Section, key: &str, value: &mut f32) {
    let Some(number) = section.number(key) else { return };
    if number.is_finite() && (0.0..=1e6).contains(&number) {
        *value = narrow(number);
    } else {
        let message = format!("`{}` must be a number from 0 to 1000000", section.full_key(key));
        section.error(section.offset(), "out-of-range", message, "0 turns it off");
    }
}

/// The words of a line of a word list.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_files_are_whole_and_without_mistakes() {
        let mut diagnostics = Diagnostics::default();
        let ranking = Ranking::read(None, None, &mut diagnostics);
        assert_eq!(diagnostics.to_string(), "");
        for key in FIELD_NAMES.iter().chain(&SIGNAL_NAMES) {
            assert!(SHIPPED_RANKING.contains(&format!("\n{key} = ")), "{key} is not in index/ranking.toml");
        }
        assert!(ranking.k1 > 0.0 && ranking.lengths.iter().all(|l| *l > 0.0));
        assert!(!ranking.stop_words.is_empty() && !ranking.verbs.is_empty());
        for signals in [&ranking.signals, &ranking.model.signals] {
            let sum: f32 = signals.iter().sum();
            assert!((sum - 1.0).abs() < 1e-5, "the public weights sum to one, not {sum}");
        }
        assert!((0.5..=1.0).contains(&ranking.model.share) && ranking.model.floor > 0.0);
    }

    #[test]
    fn an_operators_key_wins_and_a_typo_is_told() {
        let mut diagnostics = Diagnostics::default();
        let file = SourceFile::new("index/ranking.toml", "[fields]\nname = 9\nnmae = 1\n[bm25]\nk1 = -1\n");
        let ranking = Ranking::read(Some(&file), None, &mut diagnostics);
        assert_eq!(ranking.fields.first(), Some(&9.0));
        assert_eq!(ranking.k1.to_bits(), Ranking::shipped().k1.to_bits());
        assert_eq!(diagnostics.0.iter().map(|d| d.code).collect::<Vec<_>>(), ["unknown-key", "out-of-range"]);
    }
}
