//! The graph signal: the question names where a tool belongs.
//!
//! A word counts as the name of an upstream as far as it stands in that upstream's tools and nowhere else:
//! `jira` does, `search` hardly, although many upstreams are called something with search.

use std::collections::HashMap;
use std::sync::Arc;

use super::dictionary::Dictionary;
use super::index::ToolIndex;
use super::num::{count, index};
use super::text::{Analyzer, chunks};
use super::view::View;

/// The terms of the upstreams' names: (term, upstream), in order.
#[derive(Debug, Default)]
pub(super) struct Kin(Vec<(u32, u32)>);

impl Kin {
    pub(super) fn new(
        upstreams: &HashMap<Arc<str>, u32>,
        dictionary: &Dictionary,
        analyzer: &mut Analyzer,
    ) -> Self {
        let mut all = Vec::new();
        for (name, no) in upstreams {
            for chunk in chunks(name) {
                let terms = analyzer.terms(chunk);
                let known = terms.parts.iter().chain(&terms.joined).filter_map(|t| dictionary.find(t));
                all.extend(known.map(|term| (term, *no)));
            }
        }
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    /// The upstreams that have a term in their name.
    fn named(&self, term: u32) -> impl Iterator<Item = u32> + '_ {
        let from = self.0.partition_point(|(t, _)| *t < term);
        self.0.iter().skip(from).take_while(move |(t, _)| *t == term).map(|(_, upstream)| *upstream)
    }

    /// How far the question's terms name each upstream (by its number), 0 to 1; empty if they name none.
    pub(super) fn values(
        &self,
        terms: impl Iterator<Item = u32>,
        of: &ToolIndex,
        view: View<'_>,
    ) -> Vec<f32> {
        let mut out = Vec::new();
        for term in terms {
            let named: Vec<u32> = self.named(term).collect();
            if named.is_empty() {
                continue;
            }
            let (mut inside, mut all) = (0, 0);
            view.each(of.terms.list(term), |doc, _| {
                let upstream = of.facts.get(index(doc)).map(|facts| facts.upstream);
                inside += usize::from(upstream.is_some_and(|own| named.binary_search(&own).is_ok()));
                all += 1;
            });
            let value = if all > 0 { count(inside) / count(all) } else { 0.0 };
            out.resize(of.upstreams.len().max(out.len()), 0.0f32);
            for upstream in named {
                if let Some(best) = out.get_mut(index(upstream)) {
                    *best = best.max(value);
                }
            }
        }
        out
    }
}
