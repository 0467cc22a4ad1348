//! From a question to weighted concepts: stop words, repeats, synonyms, acronyms, joined words and typos.
//!
//! What the index knows is asked through the asker's eyes only: a term that stands only in hidden tools is
//! an unknown term.

use std::cell::Cell;

use super::index::ToolIndex;
use super::num::{count, number};
use super::slips::Slips;
use super::text::{Analyzer, chunks, split};
use super::view::View;

/// Terms of one question at most; the rest of a long text is not looked at.
const TERMS_MAX: usize = 64;
/// Letters of a word that may be a typo: shorter ones have too many neighbours.
const TYPO_LETTERS_MIN: usize = 4;
/// Unknown words of one question that are taken for typos; names of people and places are unknown too.
const REPAIRS_MAX: usize = 4;
/// Letters from which two slips are allowed.
const TWO_SLIPS_LETTERS: usize = 6;

/// One thing that is asked for, and the terms that say it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Concept {
    /// How much it counts, before rarity.
    pub(super) weight: f32,
    /// Rarity among the visible tools.
    pub(super) rarity: f32,
    /// Terms with their factors.
    pub(super) terms: Vec<(u32, f32)>,
}

/// A question as the scorer takes it.
#[derive(Debug, Default)]
pub(super) struct Question {
    pub(super) concepts: Vec<Concept>,
    /// The words that say something, folded but not stemmed, in order.
    pub(super) words: Vec<String>,
    /// All words, folded but not stemmed, in order.
    pub(super) all_words: Vec<String>,
    /// The verb classes of the first verb.
    pub(super) verbs: u32,
}

impl ToolIndex {
    /// BM25's rarity of a term among the visible tools.
    pub(super) fn rarity_of(&self, term: &str, view: View<'_>) -> f32 {
        let frequency = self.dictionary.find(term).map_or(0, |no| view.frequency(self.terms.list(no)));
        view.rarity(frequency)
    }
}

/// One distinct term of the question.
struct Asked {
    term: String,
    times: usize,
}

impl Question {
    /// Reads a question as the index and the asker's view know it.
    pub(super) fn read(text: &str, index: &ToolIndex, view: View<'_>) -> Self {
        let mut analyzer = Analyzer::new();
        let ranking = &index.ranking;
        let (mut words, mut parts, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in chunks(text).take(TERMS_MAX) {
            let split = split(chunk);
            let terms = analyzer.terms_of(&split);
            words.extend(split);
            joined.extend(terms.joined);
            parts.extend(terms.parts);
        }
        parts.truncate(TERMS_MAX);
        joined.extend(words.windows(2).map(<[String]>::concat));
        let all_words = words.clone();
        let is_stop = |word: &String| index.stop_words.contains(word);
        let expansions: Vec<String> =
            ranking.synonyms.expand(&parts).into_iter().flatten().cloned().collect();
        let reader = Reader { index, view, repairs: Cell::new(REPAIRS_MAX) };
        let mut concepts = reader.idioms(&mut parts);
        if !words.iter().all(is_stop) {
            words.retain(|w| !is_stop(w));
            parts.retain(|p| !index.stop_stems.contains(p));
        }
        let verbs = parts.iter().map(|p| index.verbs.of(p)).find(|v| *v != 0).unwrap_or(0);
        concepts.extend(distinct(&parts).iter().filter_map(|asked| reader.concept(asked)));
        let extra = |terms: Vec<String>, weight: f32, concepts: &mut Vec<Concept>| {
            for asked in distinct(&terms).iter().filter(|a| !parts.contains(&a.term)) {
                concepts.extend(reader.plain(&asked.term, weight));
            }
        };
        extra(expansions, ranking.query.expansion, &mut concepts);
        extra(joined, ranking.query.joined, &mut concepts);
        Self { concepts, words, all_words, verbs }
    }
}

fn distinct(terms: &[String]) -> Vec<Asked> {
    let mut out: Vec<Asked> = Vec::new();
    for term in terms {
        match out.iter_mut().find(|a| a.term == *term) {
            Some(asked) => asked.times += 1,
            None => out.push(Asked { term: term.clone(), times: 1 }),
        }
    }
    out
}

/// Looks terms up through the asker's eyes.
struct Reader<'a> {
    index: &'a ToolIndex,
    view: View<'a>,
    /// Typos that may still be repaired.
    repairs: Cell<usize>,
}

impl Reader<'_> {
    /// The number of a term that some visible tool has, and how many have it.
    fn find(&self, term: &str) -> Option<(u32, usize)> {
        let no = self.index.dictionary.find(term)?;
        let frequency = self.view.frequency(self.index.terms.list(no));
        (frequency > 0).then_some((no, frequency))
    }

    /// How much the rarity of a term counts.
    fn rarity(&self, frequency: usize) -> f32 {
        self.view.rarity(frequency).powf(self.index.ranking.query.rarity_power)
    }

    /// A concept of one term alone.
    fn plain(&self, term: &str, weight: f32) -> Option<Concept> {
        let (no, frequency) = self.find(term)?;
        Some(Concept { weight, rarity: self.rarity(frequency), terms: vec![(no, 1.0)] })
    }

    /// Takes the idioms out of a question's terms: each is one concept of what it says.
    fn idioms(&self, parts: &mut Vec<String>) -> Vec<Concept> {
        let (mut concepts, mut rest, mut at) = (Vec::new(), Vec::with_capacity(parts.len()), 0);
        while let Some(part) = parts.get(at) {
            let idiom = self.index.ranking.synonyms.idiom(parts.get(at..).unwrap_or_default());
            let read = idiom.and_then(|(length, says)| Some((length, self.any_of(says)?)));
            if let Some((length, concept)) = read {
                concepts.push(concept);
                at += length;
            } else {
                rest.push(part.clone());
                at += 1;
            }
        }
        *parts = rest;
        concepts
    }

    /// A concept that any of the terms says as well as the others; as rare as the most frequent of them.
    fn any_of(&self, says: &[String]) -> Option<Concept> {
        let known: Vec<(u32, usize)> = says.iter().filter_map(|term| self.find(term)).collect();
        let frequency = known.iter().map(|(_, frequency)| *frequency).max()?;
        let terms = known.into_iter().map(|(no, _)| (no, 1.0)).collect();
        Some(Concept { weight: 1.0, rarity: self.rarity(frequency), terms })
    }

    /// A concept with what may stand in its place.
    fn concept(&self, asked: &Asked) -> Option<Concept> {
        let query = &self.index.ranking.query;
        let mut terms = Vec::new();
        let mut frequencies = 0;
        let head = self.find(&asked.term);
        if let Some((no, frequency)) = head {
            terms.push((no, 1.0));
            frequencies = frequency;
        }
        let synonyms = &self.index.ranking.synonyms;
        let same = synonyms.of(&asked.term).iter().map(|other| (other, query.synonym));
        let meant = synonyms.meant_by(&asked.term).iter().map(|other| (other, query.meaning));
        for (other, factor) in same.chain(meant) {
            if let Some((no, frequency)) = self.find(other) {
                terms.push((no, factor));
                if head.is_none() {
                    frequencies = frequencies.max(frequency);
                }
            }
        }
        if terms.is_empty() {
            let (no, frequency) = self.nearest(&asked.term)?;
            terms.push((no, query.typo));
            frequencies = frequency;
        }
        let weight = count(asked.times).powf(query.repeat_power);
        Some(Concept { weight, rarity: self.rarity(frequencies), terms })
    }

    /// The nearest known term with the same first letter; the most frequent of equally near ones.
    fn nearest(&self, term: &str) -> Option<(u32, usize)> {
        let letters: Vec<char> = term.chars().collect();
        if letters.len() < TYPO_LETTERS_MIN || letters.iter().any(|c| !c.is_alphabetic()) {
            return None;
        }
        self.repairs.set(self.repairs.get().checked_sub(1)?);
        let allowed = if letters.len() < TWO_SLIPS_LETTERS { 1 } else { 2 };
        let mut slips = Slips::from(&letters);
        let mut best: Option<(usize, usize, u32)> = None;
        for at in self.index.dictionary.alike(&letters, allowed) {
            let limit = best.map_or(allowed, |(distance, ..)| distance);
            let Some(distance) = slips.to(self.index.dictionary.term(at), limit) else { continue };
            let no = number(at);
            let frequency = self.view.frequency(self.index.terms.list(no));
            if frequency > 0 && best.is_none_or(|(d, f, _)| distance < d || (distance == d && frequency > f))
            {
                best = Some((distance, frequency, no));
            }
        }
        best.map(|(_, frequency, no)| (no, frequency))
    }
}
