//! One question against one index, as one asker sees it: the six signals of any tool.

use super::index::{Facts, ToolIndex};
use super::num::{count, index};
use super::question::Question;
use super::ranking::SIGNAL_NAMES;
use super::scores::Scores;
use super::semantic::{Meaning, Table};
use super::sentence::Asked;
use super::usage::UsageView;
use super::view::View;
use crate::id::ToolNo;

/// Words of a name from which on brevity gives nothing.
const LONG_NAME_WORDS: usize = 40;
/// Scores are compared in steps of 1e-5.
const SCORE_STEPS: f64 = 100_000.0;

/// The values of the six signals, in the order of [`SIGNAL_NAMES`].
pub(super) type Values = [f32; SIGNAL_NAMES.len()];

/// What a host says of one tool in place of the engine (seed 004), each 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostValues {
    pub(super) semantic: Option<f32>,
    pub(super) graph: Option<f32>,
    pub(super) freshness: Option<f32>,
    pub(super) usage: Option<f32>,
}

/// Who asks with what besides the question.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) view: View<'a>,
    pub(super) usage: &'a UsageView,
    pub(super) asked: &'a Asked,
    /// By tool number; empty where the host says nothing.
    pub(super) host: &'a [HostValues],
}

/// Everything about one question that is the same for all tools.
pub(super) struct Asking<'a> {
    index: &'a ToolIndex,
    asker: Asker<'a>,
    terms: Scores,
    trigrams: Scores,
    lexical: Lexical<'a>,
    /// The tools that the question names, in its order.
    named: Vec<ToolNo>,
    meaning: Meaning,
    /// How far it names each upstream.
    kin: Vec<f32>,
    /// In the order of tools.
    votes: Vec<(ToolNo, f32)>,
}

impl<'a> Asking<'a> {
    pub(super) fn new(index: &'a ToolIndex, text: &str, asker: Asker<'a>) -> Self {
        let view = asker.view;
        let question = Question::read(text, index, view);
        let (terms, trigrams) = (index.term_scores(&question, view), index.trigram_scores(&question, view));
        let heads = question.concepts.iter().filter_map(|c| c.terms.first()).map(|(no, _)| *no);
        let usage = asker.usage;
        Self {
            lexical: Lexical::new(index, &terms, &trigrams, question.verbs),
            named: index.names.named(text, view.set),
            meaning: Meaning::of(&Table::shipped().embed(&question.all_words)),
            kin: index.kin.values(heads, index, view),
            votes: if usage.is_empty() { Vec::new() } else { usage.votes(&question.words, index, view) },
            index,
            asker,
            terms,
            trigrams,
        }
    }

    /// The place of a tool in the question's own list of names.
    pub(super) fn named(&self, tool: ToolNo) -> Option<usize> {
        self.named.iter().position(|named| *named == tool)
    }

    /// The signals of a visible tool; `None` for one that does not match.
    #[inline]
    pub(super) fn values(&self, tool: ToolNo) -> Option<Values> {
        let at = tool.index();
        let facts = self.index.facts.get(at)?;
        let (terms, trigrams) = (self.terms.get(at), self.trigrams.get(at));
        let told = self.asker.host.get(at);
        let (near, means) = self.near(at, told);
        let vote = told.and_then(|host| host.usage).unwrap_or_else(|| self.vote(tool));
        let floor = &self.index.ranking.floor;
        let matches = means
            || (vote > 0.0 && vote >= floor.usage)
            || (terms > 0.0 && terms >= floor.terms * self.terms.possible)
            || (trigrams > 0.0 && trigrams >= floor.trigrams * self.trigrams.possible)
            || self.named(tool).is_some();
        matches.then(|| {
            let kin = || self.kin.get(index(facts.upstream)).copied().unwrap_or(0.0);
            let fresh = if facts.deprecated { 0.0 } else { 1.0 };
            [
                self.lexical.value(terms, trigrams, facts),
                near,
                told.and_then(|host| host.graph).unwrap_or_else(kin),
                1.0,
                told.and_then(|host| host.freshness).unwrap_or(fresh),
                vote,
            ]
        })
    }

    /// How near a tool is in meaning, and whether that alone is a match.
    #[inline]
    fn near(&self, at: usize, told: Option<&HostValues>) -> (f32, bool) {
        let floor = self.index.ranking.floor.semantic;
        if let Some(near) = told.and_then(|host| host.semantic) {
            return (near, near >= floor);
        }
        let near = self.index.vectors.get(at).map_or(0.0, |vector| self.meaning.near(vector));
        let Asked::Model(sentences, question) = self.asker.asked else { return (near, near >= floor) };
        let model = &self.index.ranking.model;
        let by_model = sentences.near(question, at);
        (near + (by_model - near) * model.share, by_model >= model.floor || near >= floor)
    }

    fn vote(&self, tool: ToolNo) -> f32 {
        let at = self.votes.binary_search_by_key(&tool, |(voted, _)| *voted).ok();
        at.and_then(|at| self.votes.get(at)).map_or(0.0, |(_, vote)| *vote)
    }

    /// The weighted sum of a tool's signals, in steps.
    pub(super) fn score(&self, values: &Values) -> i64 {
        sum(values, self.index.weights(self.asker.asked))
    }
}

/// The weighted sum of the six signals, in steps.
pub(super) fn sum(values: &Values, weights: &Values) -> i64 {
    steps(values.iter().zip(weights).map(|(v, w)| v * w).sum())
}

/// The lexical signal: terms, trigrams, brevity of the name, agreement of the verb.
struct Lexical<'a> {
    index: &'a ToolIndex,
    terms_top: f32,
    trigrams_top: f32,
    verbs: u32,
    all: f32,
    brevity: Vec<f32>,
}

impl<'a> Lexical<'a> {
    fn new(index: &'a ToolIndex, terms: &Scores, trigrams: &Scores, verbs: u32) -> Self {
        let w = &index.ranking.lexical;
        let usual = |top: f32| if top > 0.0 { top } else { 1.0 };
        let longest = ((3.0 + count(LONG_NAME_WORDS)) / 4.0).ln();
        let brevity =
            (0..=LONG_NAME_WORDS).map(|n| 1.0 - ((3.0 + count(n.max(1))) / 4.0).ln() / longest).collect();
        Self {
            index,
            terms_top: usual(terms.top),
            trigrams_top: usual(trigrams.top),
            verbs,
            all: (w.terms + w.trigrams + w.brevity + w.verb).max(f32::MIN_POSITIVE),
            brevity,
        }
    }

    fn value(&self, terms: f32, trigrams: f32, facts: &Facts) -> f32 {
        let w = &self.index.ranking.lexical;
        let brevity = self.brevity.get(usize::from(facts.name_words)).copied().unwrap_or(0.0);
        let verb = if self.verbs & facts.verbs != 0 { 1.0 } else { 0.0 };
        (w.terms * terms / self.terms_top
            + w.trigrams * trigrams / self.trigrams_top
            + w.brevity * brevity
            + w.verb * verb)
            / self.all
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "scores lie between 0 and a small sum of weights"
)]
fn steps(score: f32) -> i64 {
    (f64::from(score) * SCORE_STEPS).round() as i64
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "steps are far below 2^52")]
pub(super) fn unsteps(steps: i64) -> f64 {
    steps as f64 / SCORE_STEPS
}
