//! Trigrams of names, heads and upstreams: they find what is spelled a little differently.

use std::collections::HashMap;

use super::fields::Texts;
use super::num::{count, index, number};
use super::postings::{Entry, List, Postings};
use super::ranking::Ranking;
use super::text;

/// Three characters in one number, 21 bits each.
pub(super) type Gram = u64;

/// The trigrams of a text: words split and folded, with their boundaries.
pub(super) fn grams(words: &[String]) -> Vec<Gram> {
    let mut chars = vec![' '];
    for word in words {
        chars.extend(word.chars());
        chars.push(' ');
    }
    chars.windows(3).map(|w| w.iter().fold(0, |n, c| (n << 21) | u64::from(u32::from(*c)))).collect()
}

/// The lists of all trigrams.
#[derive(Debug, Default)]
pub(super) struct Trigrams {
    /// In order; each has the list of the same number.
    pub(super) grams: Vec<Gram>,
    pub(super) postings: Postings,
}

impl Trigrams {
    /// The list of a trigram; empty where no tool has it.
    pub(super) fn list(&self, gram: Gram) -> Option<List<'_>> {
        self.grams.binary_search(&gram).ok().map(|at| self.postings.list(number(at)))
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.grams.len() * 8 + self.postings.bytes()
    }
}

/// Collects the trigrams of all tools.
pub(super) struct Builder {
    k1: f32,
    b: f32,
    usual: f32,
    numbers: HashMap<Gram, u32>,
    entries: Vec<Entry>,
}

impl Builder {
    pub(super) fn new(ranking: &Ranking) -> Self {
        Self {
            k1: ranking.trigram_k1,
            b: ranking.trigram_b,
            usual: ranking.trigram_length.max(1.0),
            numbers: HashMap::new(),
            entries: Vec::new(),
        }
    }

    /// Adds a tool: its name, head and upstream.
    pub(super) fn tool(&mut self, doc: u32, texts: &Texts) {
        let [name, head, _, _, _, upstream, ..] = texts;
        let mut found: Vec<Gram> = Vec::new();
        for text in [name, head, upstream] {
            let words: Vec<String> = text::chunks(text).flat_map(text::split).collect();
            found.extend(grams(&words));
        }
        let norm = self.k1 * (1.0 - self.b + self.b * count(found.len()) / self.usual);
        found.sort_unstable();
        for run in found.chunk_by(|a, b| a == b) {
            let Some(gram) = run.first() else { continue };
            let next = number(self.numbers.len());
            let term = *self.numbers.entry(*gram).or_insert(next);
            let frequency = count(run.len());
            self.entries.push(Entry { term, doc, impact: frequency / (norm + frequency) });
        }
    }

    pub(super) fn build(self) -> Trigrams {
        let mut order: Vec<(Gram, u32)> = self.numbers.into_iter().collect();
        order.sort_unstable();
        let mut renumber = vec![0; order.len()];
        for (at, (_, given)) in order.iter().enumerate() {
            if let Some(slot) = renumber.get_mut(index(*given)) {
                *slot = number(at);
            }
        }
        Trigrams {
            postings: Postings::build(&self.entries, &renumber),
            grams: order.into_iter().map(|(gram, _)| gram).collect(),
        }
    }
}
