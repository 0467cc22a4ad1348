//! The graph signal: the question names where a tool belongs.
//!
//! A word counts as the name of an upstream as far as it stands in that upstream's tools and nowhere else:
//! `jira` does, `search` hardly, although many upstreams are called something with search.

use std::collections::HashMap;
use std::sync::Arc;

use super::index::Facts;
use super::num::{count, index};
use super::postings::{Dictionary, List};
use super::question::View;
use super::text::{Analyzer, chunks};
use crate::id::ToolNo;

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

    /// How far the question's terms name each upstream, 0 to 1; empty if they name none.
    pub(super) fn values<'a>(
        &self,
        terms: impl Iterator<Item = (u32, List<'a>)>,
        facts: &[Facts],
        view: View<'_>,
    ) -> HashMap<u32, f32> {
        let mut out: HashMap<u32, f32> = HashMap::new();
        for (term, list) in terms {
            let named: Vec<u32> = self.named(term).collect();
            if named.is_empty() {
                continue;
            }
            let (mut inside, mut all) = (0, 0);
            for doc in list.docs.iter().filter(|doc| view.set.contains(ToolNo(**doc))) {
                all += 1;
                inside += usize::from(
                    facts.get(index(*doc)).is_some_and(|f| named.binary_search(&f.upstream).is_ok()),
                );
            }
            let value = if all > 0 { count(inside) / count(all) } else { 0.0 };
            for upstream in named {
                let best = out.entry(upstream).or_default();
                *best = best.max(value);
            }
        }
        out
    }
}
