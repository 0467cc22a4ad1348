//! Scoring: one number per visible tool, order, signals.
//!
//! Every quantity is computed over the visible tools alone, so the answer is the one that a catalog of just
//! these tools would give: hidden tools do not exist here, not even in a rarity.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::api::{Hit, Query, Results, Signal};
use super::asking::{Asker, Asking, HostValues, Values, sum, unsteps};
use super::index::ToolIndex;
use super::ranking::SIGNAL_NAMES;
use super::sentence::Asked;
use super::usage::UsageView;
use super::view::View;
use crate::catalog::ToolSet;
use crate::id::ToolNo;

/// A tool that matches, in its place: the named ones as the question names them, then by score, the shorter name first
/// of equals, then by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Match {
    /// Place in the question's own list of names; tools that were not named have the last.
    place: usize,
    score: Reverse<i64>,
    name_bytes: u16,
    tool: ToolNo,
}

impl Match {
    fn is_named(self) -> bool {
        self.place != usize::MAX
    }
}

/// A tool that matches, without order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scored {
    pub(super) tool: ToolNo,
    /// In steps, see [`unsteps`].
    pub(super) score: i64,
    pub(super) values: Values,
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
        let text = query.text.trim();
        let asker = Asker { view: View::of(&set), usage, asked, host: &[] };
        let asking = (!text.is_empty()).then(|| Asking::new(self, text, asker));
        let mut matches = self.matches(asking.as_ref(), asker.view);
        let total = matches.len();
        let end = query.offset.saturating_add(query.limit).min(total);
        if end < total && end > 0 {
            matches.select_nth_unstable(end - 1);
            matches.truncate(end);
        }
        matches.sort_unstable();
        let hit = |m: Match| Hit {
            tool: m.tool,
            score: unsteps(m.score.0),
            exact: asking.is_some() && m.is_named(),
            signals: if query.explain {
                self.signals(&values(asking.as_ref(), m.tool), asked)
            } else {
                Vec::new()
            },
        };
        let hits = matches.into_iter().take(end).skip(query.offset);
        Results { hits: hits.map(hit).collect(), total }
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

    /// The visible tools that match, in no order that means anything. Without a question every one does, in id order.
    fn matches(&self, asking: Option<&Asking<'_>>, view: View<'_>) -> Vec<Match> {
        let Some(asking) = asking else {
            let in_index = view.set.iter().filter(|t| t.index() < self.len()).zip(0..);
            let one = |(tool, place)| Match { place, score: Reverse(0), name_bytes: 0, tool };
            return in_index.map(one).collect();
        };
        let one = |tool: ToolNo| {
            let values = asking.values(tool)?;
            let name_bytes = self.facts.get(tool.index()).map_or(0, |f| f.name_bytes);
            let place = asking.named(tool).unwrap_or(usize::MAX);
            Some(Match { place, score: Reverse(asking.score(&values)), name_bytes, tool })
        };
        view.set.iter().filter_map(one).collect()
    }

    /// The public weights of the six signals.
    pub(super) fn weights(&self, asked: &Asked) -> &Values {
        if matches!(asked, Asked::Model(..)) { &self.ranking.model.signals } else { &self.ranking.signals }
    }

    /// Every visible tool that matches with its signals, in no order that means anything. What a host says of a
    /// tool (by its number) stands in place of what would be computed; a name given exactly is lexically perfect.
    /// Without words every visible tool matches.
    pub(super) fn scored(&self, text: &str, visible: &ToolSet, host: &[HostValues]) -> Vec<Scored> {
        let (view, usage, asked) = (View::of(visible), UsageView::default(), Asked::Table);
        let asker = Asker { view, usage: &usage, asked: &asked, host };
        let asking = (!text.is_empty()).then(|| Asking::new(self, text, asker));
        let scored = self.matches(asking.as_ref(), view).into_iter().map(|m| {
            let mut signals = values(asking.as_ref(), m.tool);
            if asking.is_none() {
                let told = host.get(m.tool.index()).copied().unwrap_or_default();
                let or = |value: Option<f32>, other: f32| value.unwrap_or(other);
                signals = [
                    0.0,
                    or(told.semantic, 0.0),
                    or(told.graph, 0.0),
                    1.0,
                    or(told.freshness, 1.0),
                    or(told.usage, 0.0),
                ];
            } else if let (true, Some(lexical)) = (m.is_named(), signals.first_mut()) {
                *lexical = 1.0;
            }
            Scored { tool: m.tool, score: sum(&signals, &self.ranking.signals), values: signals }
        });
        scored.collect()
    }

    fn signals(&self, values: &Values, asked: &Asked) -> Vec<Signal> {
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

/// The signals of a tool that matches; those of a question without words say nothing.
fn values(asking: Option<&Asking<'_>>, tool: ToolNo) -> Values {
    asking.and_then(|asking| asking.values(tool)).unwrap_or_default()
}

/// Weights as they were written: a float of half the width shows digits that nobody gave.
fn six_decimals(x: f32) -> f64 {
    (f64::from(x) * 1e6).round() / 1e6
}
