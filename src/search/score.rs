//! Scoring: impact lists into one number per visible tool, signals, order.
//!
//! Every quantity is computed over the visible tools alone, so the answer is the one that a catalog of just
//! these tools would give: hidden tools do not exist here, not even in a rarity.

use std::borrow::Cow;

use super::api::{Hit, Query, Results, Signal};
use super::index::{Facts, ToolIndex};
use super::num::{count, index};
use super::postings::List;
use super::question::{Question, View};
use super::ranking::SIGNAL_NAMES;
use super::semantic::{self, Table};
use super::sentence::Asked;
use super::trigram;
use super::usage::UsageView;
use crate::catalog::ToolSet;
use crate::id::ToolNo;

/// Words of a name from which on brevity gives nothing.
const LONG_NAME_WORDS: usize = 40;
/// Scores are compared in steps of 1e-5.
const SCORE_STEPS: f64 = 100_000.0;

/// One number per tool.
struct Scores {
    values: Vec<f32>,
    /// What a tool would get that had every term without end.
    possible: f32,
}

/// Space that the lists of one question share.
struct Scratch {
    /// Visible entries of the list at hand.
    seen: Vec<(u32, f32)>,
    /// The best impact of each tool in the lists of one concept, 0 between concepts.
    best: Vec<f32>,
    /// The tools that have one.
    touched: Vec<u32>,
}

impl Scores {
    fn new(len: usize) -> Self {
        Self { values: vec![0.0; len], possible: 0.0 }
    }

    /// Adds a list: all of it where every tool is visible. `seen` is scratch space.
    fn add(&mut self, list: List<'_>, weight: f32, view: View<'_>, seen: &mut Vec<(u32, f32)>) {
        self.possible += weight;
        if view.is_all() {
            self.add_entries(list.iter(), weight);
        } else {
            list.visible(view.set, seen);
            self.add_entries(seen.iter().copied(), weight);
        }
    }

    fn add_entries(&mut self, entries: impl Iterator<Item = (u32, f32)>, weight: f32) {
        for (doc, impact) in entries {
            if let Some(value) = self.values.get_mut(index(doc)) {
                *value += weight * impact;
            }
        }
    }

    /// Adds the best of several lists.
    fn add_best(&mut self, lists: &[(List<'_>, f32)], weight: f32, view: View<'_>, scratch: &mut Scratch) {
        self.possible += weight;
        for (list, factor) in lists {
            list.visible(view.set, &mut scratch.seen);
            for (doc, impact) in &scratch.seen {
                let Some(best) = scratch.best.get_mut(index(*doc)) else { continue };
                if *best <= 0.0 {
                    scratch.touched.push(*doc);
                }
                *best = best.max(impact * factor);
            }
        }
        for doc in scratch.touched.drain(..) {
            let best = scratch.best.get_mut(index(doc)).map_or(0.0, std::mem::take);
            if let Some(value) = self.values.get_mut(index(doc)) {
                *value += weight * best;
            }
        }
    }

    fn top(&self) -> f32 {
        self.values.iter().copied().fold(0.0, f32::max)
    }

    fn get(&self, doc: usize) -> f32 {
        self.values.get(doc).copied().unwrap_or(0.0)
    }
}

/// A tool that matches.
struct Match {
    tool: ToolNo,
    /// Place in the question's own list of names; tools that were not named have the last.
    place: usize,
    named: bool,
    score: i64,
    values: [f32; SIGNAL_NAMES.len()],
}

/// What a host says of one tool in place of the engine (seed 004), each 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostValues {
    pub(super) semantic: Option<f32>,
    pub(super) graph: Option<f32>,
    pub(super) freshness: Option<f32>,
    pub(super) usage: Option<f32>,
}

/// A tool that matches, without order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scored {
    pub(super) tool: ToolNo,
    /// In steps, see [`unsteps`].
    pub(super) score: i64,
    pub(super) values: [f32; SIGNAL_NAMES.len()],
}

impl ToolIndex {
    /// The tools of `visible` that match, best first.
    pub fn search(&self, query: &Query<'_>, visible: &ToolSet) -> Results {
        self.search_with_usage(query, visible, &UsageView::default())
    }

    /// The same with the votes of what the asker's scope remembers.
    pub fn search_with_usage(&self, query: &Query<'_>, visible: &ToolSet, usage: &UsageView) -> Results {
        self.search_with(query, visible, usage, &Asked::Table)
    }

    /// The same with what the query means to a sentence model, if one is there.
    pub fn search_with(
        &self,
        query: &Query<'_>,
        visible: &ToolSet,
        usage: &UsageView,
        asked: &Asked,
    ) -> Results {
        let set = self.filtered(query, visible);
        let view = View { set: &set, count: set.count() };
        let text = query.text.trim();
        let mut matches =
            if text.is_empty() { self.browse(view) } else { self.matches(text, view, &[], (usage, asked)) };
        let total = matches.len();
        let end = query.offset.saturating_add(query.limit).min(total);
        let key = |m: &Match| {
            let name_bytes = self.facts.get(m.tool.index()).map_or(0, |f| f.name_bytes);
            (m.place, std::cmp::Reverse(m.score), name_bytes, m.tool)
        };
        if end < total && end > 0 {
            matches.select_nth_unstable_by_key(end - 1, key);
            matches.truncate(end);
        }
        matches.sort_unstable_by_key(key);
        let hits = matches.into_iter().take(end).skip(query.offset);
        Results { hits: hits.map(|m| self.hit(&m, asked, query.explain)).collect(), total }
    }

    /// The visible tools that pass the query's filters.
    fn filtered(&self, query: &Query<'_>, visible: &ToolSet) -> ToolSet {
        let filters = &query.filters;
        if filters.category.is_none() && filters.upstream.is_none() && !filters.read_only {
            return visible.clone();
        }
        let number = |table: &std::collections::HashMap<_, u32>, name: &Option<String>| {
            name.as_deref().map(|n| table.get(n).copied().unwrap_or(u32::MAX))
        };
        let category = number(&self.categories, &filters.category);
        let upstream = number(&self.upstreams, &filters.upstream);
        let mut set = visible.clone();
        for tool in visible.iter() {
            let keep = self.facts.get(tool.index()).is_some_and(|f| {
                category.is_none_or(|c| c == f.category)
                    && upstream.is_none_or(|u| u == f.upstream)
                    && (!filters.read_only || f.read_only)
            });
            if !keep {
                set.remove(tool);
            }
        }
        set
    }

    /// Without words every visible tool matches, in id order.
    fn browse(&self, view: View<'_>) -> Vec<Match> {
        let values = [0.0; SIGNAL_NAMES.len()];
        let in_index = view.set.iter().filter(|t| t.index() < self.len());
        in_index.zip(0..).map(|(tool, place)| Match { tool, place, named: false, score: 0, values }).collect()
    }

    fn matches(
        &self,
        text: &str,
        view: View<'_>,
        host: &[HostValues],
        (usage, asked): (&UsageView, &Asked),
    ) -> Vec<Match> {
        let question = Question::read(text, self, view);
        let (terms, trigrams) = (self.term_scores(&question, view), self.trigram_scores(&question, view));
        let named = self.names.named(text, view.set);
        let lexical = Lexical::new(self, &terms, &trigrams, question.verbs);
        let meaning = Table::shipped().embed(&question.all_words);
        let heads = question
            .concepts
            .iter()
            .filter_map(|c| c.terms.first())
            .map(|(no, _)| (*no, self.terms.list(*no)));
        let kin = self.kin.values(heads, &self.facts, view);
        let votes = if usage.is_empty() { Vec::new() } else { usage.votes(&question.words, self, view) };
        let vote = |tool: ToolNo| {
            let at = votes.binary_search_by_key(&tool, |(t, _)| *t).ok();
            at.and_then(|at| votes.get(at)).map_or(0.0, |(_, vote)| *vote)
        };
        let floor = &self.ranking.floor;
        let mut matches = Vec::new();
        for tool in view.set.iter() {
            let Some(facts) = self.facts.get(tool.index()) else { continue };
            let (t, g) = (terms.get(tool.index()), trigrams.get(tool.index()));
            let named_at = named.iter().position(|n| *n == tool);
            let host = host.get(tool.index()).copied().unwrap_or_default();
            let by_table = || self.vectors.get(tool.index()).map_or(0.0, |v| semantic::cosine(&meaning, v));
            let (near, means) = match (host.semantic, asked) {
                (Some(near), _) => (near, near >= floor.semantic),
                (None, Asked::Model(sentences, question)) => {
                    let near = sentences.near(question, tool.index());
                    let by_table = by_table();
                    let means = near >= self.ranking.model.floor || by_table >= floor.semantic;
                    (by_table + (near - by_table) * self.ranking.model.share, means)
                }
                (None, _) => {
                    let near = by_table();
                    (near, near >= floor.semantic)
                }
            };
            let vote = host.usage.unwrap_or_else(|| vote(tool));
            let over = means
                || (vote > 0.0 && vote >= floor.usage)
                || (t > 0.0 && t >= floor.terms * terms.possible)
                || (g > 0.0 && g >= floor.trigrams * trigrams.possible);
            if !over && named_at.is_none() {
                continue;
            }
            let values = [
                lexical.value(t, g, facts),
                near,
                host.graph.unwrap_or_else(|| kin.get(&facts.upstream).copied().unwrap_or(0.0)),
                1.0,
                host.freshness.unwrap_or(if facts.deprecated { 0.0 } else { 1.0 }),
                vote,
            ];
            matches.push(Match {
                tool,
                place: named_at.unwrap_or(usize::MAX),
                named: named_at.is_some(),
                score: sum(&values, self.weights(asked)),
                values,
            });
        }
        matches
    }

    /// The public weights of the six signals.
    fn weights(&self, asked: &Asked) -> &[f32; SIGNAL_NAMES.len()] {
        if matches!(asked, Asked::Model(..)) { &self.ranking.model.signals } else { &self.ranking.signals }
    }

    /// Every visible tool that matches with its signals, in no order that means anything. What a host says of a
    /// tool (by its number) stands in place of what would be computed; a name given exactly is lexically perfect.
    /// Without words every visible tool matches.
    pub(super) fn scored(&self, text: &str, visible: &ToolSet, host: &[HostValues]) -> Vec<Scored> {
        let view = View { set: visible, count: visible.count() };
        let browse = text.is_empty();
        let (usage, asked) = (UsageView::default(), Asked::Table);
        let matches =
            if browse { self.browse(view) } else { self.matches(text, view, host, (&usage, &asked)) };
        let scored = matches.into_iter().map(|mut m| {
            let told = host.get(m.tool.index()).copied().unwrap_or_default();
            if browse {
                let or = |value: Option<f32>, other: f32| value.unwrap_or(other);
                m.values = [
                    0.0,
                    or(told.semantic, 0.0),
                    or(told.graph, 0.0),
                    1.0,
                    or(told.freshness, 1.0),
                    or(told.usage, 0.0),
                ];
            } else if let (true, Some(lexical)) = (m.named, m.values.first_mut()) {
                *lexical = 1.0;
            }
            Scored { tool: m.tool, score: sum(&m.values, &self.ranking.signals), values: m.values }
        });
        scored.collect()
    }

    fn term_scores(&self, question: &Question, view: View<'_>) -> Scores {
        let mut scores = Scores::new(self.len());
        let mut scratch = Scratch { seen: Vec::new(), best: vec![0.0; self.len()], touched: Vec::new() };
        for concept in &question.concepts {
            let weight = concept.weight * concept.rarity;
            let lists: Vec<(List<'_>, f32)> =
                concept.terms.iter().map(|(no, factor)| (self.terms.list(*no), *factor)).collect();
            match lists.as_slice() {
                [(list, factor)] => scores.add(*list, weight * factor, view, &mut scratch.seen),
                lists => scores.add_best(lists, weight, view, &mut scratch),
            }
        }
        scores
    }

    fn trigram_scores(&self, question: &Question, view: View<'_>) -> Scores {
        let mut scores = Scores::new(self.len());
        let mut grams = trigram::grams(&question.words);
        grams.sort_unstable();
        grams.dedup();
        let (all, mut seen) = (view.is_all(), Vec::new());
        for gram in grams {
            let Some(list) = self.trigrams.list(gram) else {
                scores.possible += view.rarity(0);
                continue;
            };
            // One pass: what is visible is put aside while it is counted.
            let frequency = if all {
                list.docs.len()
            } else {
                list.visible(view.set, &mut seen);
                seen.len()
            };
            let rarity = view.rarity(frequency);
            scores.possible += rarity;
            if all {
                scores.add_entries(list.iter(), rarity);
            } else {
                scores.add_entries(seen.iter().copied(), rarity);
            }
        }
        scores
    }

    fn hit(&self, m: &Match, asked: &Asked, explain: bool) -> Hit {
        let signals = if explain { self.signals(&m.values, asked) } else { Vec::new() };
        Hit { tool: m.tool, score: unsteps(m.score), exact: m.named, signals }
    }

    fn signals(&self, values: &[f32; SIGNAL_NAMES.len()], asked: &Asked) -> Vec<Signal> {
        let usage = if self.learns() { "computed" } else { "off" };
        let semantic = match asked {
            Asked::Table => Cow::Borrowed("computed"),
            Asked::Waiting => Cow::Borrowed("fallback"),
            Asked::Model(sentences, _) => Cow::Owned(format!("model {}", sentences.model().name())),
        };
        let others = ["computed", "authorization", "computed", usage].map(Cow::Borrowed);
        let sources = [Cow::Borrowed("computed"), semantic].into_iter().chain(others);
        SIGNAL_NAMES
            .iter()
            .zip(sources)
            .zip(values.iter().zip(self.weights(asked)))
            .map(|((name, source), (value, weight))| Signal {
                name,
                value: six_decimals(*value),
                weight: six_decimals(*weight),
                source,
            })
            .collect()
    }
}

/// The weighted sum of the six signals.
fn sum(values: &[f32; SIGNAL_NAMES.len()], weights: &[f32; SIGNAL_NAMES.len()]) -> i64 {
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
            terms_top: usual(terms.top()),
            trigrams_top: usual(trigrams.top()),
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

/// Weights as they were written: a float of half the width shows digits that nobody gave.
fn six_decimals(x: f32) -> f64 {
    (f64::from(x) * 1e6).round() / 1e6
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
