//! Sums over impact lists: one number per tool for the question's terms and one for its trigrams.

use super::index::ToolIndex;
use super::num::index;
use super::postings::List;
use super::question::Question;
use super::trigram;
use super::view::View;

/// One number per tool; only those of visible tools mean anything.
pub(super) struct Scores {
    values: Vec<f32>,
    /// What a tool would get that had every term without end.
    pub(super) possible: f32,
    /// The greatest of the visible tools.
    pub(super) top: f32,
}

impl Scores {
    fn new(len: usize) -> Self {
        Self { values: vec![0.0; len], possible: 0.0, top: 0.0 }
    }

    /// The number of a tool.
    #[inline]
    pub(super) fn get(&self, doc: usize) -> f32 {
        self.values.get(doc).copied().unwrap_or(0.0)
    }

    fn entry(&mut self, doc: u32, score: f32) {
        if let Some(value) = self.values.get_mut(index(doc)) {
            *value += score;
        }
    }

    /// Adds a list.
    fn add(&mut self, list: List<'_>, weight: f32, view: View<'_>) {
        self.possible += weight;
        view.each_or_more(list, |doc, impact| self.entry(doc, weight * impact));
    }

    /// Adds the best of several lists.
    fn add_best(&mut self, lists: &[(List<'_>, f32)], weight: f32, view: View<'_>, best: &mut Best) {
        self.possible += weight;
        for (list, factor) in lists {
            view.each_or_more(*list, |doc, impact| best.entry(doc, impact * factor));
        }
        for doc in best.touched.drain(..) {
            let most = best.values.get_mut(index(doc)).map_or(0.0, std::mem::take);
            self.entry(doc, weight * most);
        }
    }
}

/// The best impact of each tool in the lists of one concept, 0 between concepts.
struct Best {
    values: Vec<f32>,
    /// The tools that have one.
    touched: Vec<u32>,
}

impl Best {
    fn entry(&mut self, doc: u32, impact: f32) {
        let Some(value) = self.values.get_mut(index(doc)) else { return };
        if *value <= 0.0 {
            self.touched.push(doc);
        }
        *value = value.max(impact);
    }
}

impl ToolIndex {
    pub(super) fn term_scores(&self, question: &Question, view: View<'_>) -> Scores {
        let mut scores = Scores::new(self.len());
        let mut best = Best { values: Vec::new(), touched: Vec::new() };
        for concept in &question.concepts {
            let weight = concept.weight * concept.rarity;
            if let [(no, factor)] = concept.terms.as_slice() {
                scores.add(self.terms.list(*no), weight * factor, view);
                continue;
            }
            best.values.resize(self.len(), 0.0);
            let lists: Vec<(List<'_>, f32)> =
                concept.terms.iter().map(|(no, factor)| (self.terms.list(*no), *factor)).collect();
            scores.add_best(&lists, weight, view, &mut best);
        }
        scores.top = view.greatest(&scores.values);
        scores
    }

    pub(super) fn trigram_scores(&self, question: &Question, view: View<'_>) -> Scores {
        let mut scores = Scores::new(self.len());
        let mut grams = trigram::grams(&question.words);
        grams.sort_unstable();
        grams.dedup();
        let mut seen = Vec::new();
        for gram in grams {
            let list = self.trigrams.list(gram).unwrap_or_default();
            if !view.is_small() {
                scores.add(list, view.rarity(view.frequency(list)), view);
                continue;
            }
            // One pass: what is visible is put aside while it is counted.
            seen.clear();
            view.each(list, |doc, impact| seen.push((doc, impact)));
            let rarity = view.rarity(seen.len());
            scores.possible += rarity;
            for (doc, impact) in &seen {
                scores.entry(*doc, rarity * impact);
            }
        }
        scores.top = view.greatest(&scores.values);
        scores
    }
}
