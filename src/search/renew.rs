//! A changed catalog over the index of the one before: only what changed is read again, the rest is copied.
//!
//! The result is the index that building anew would give, byte for byte (`tests.rs` compares them).

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::graph::Kin;
use super::index::{Builder, Fingerprint, ToolIndex, facts_of, fingerprints};
use super::num::{index, number};
use super::postings::{Dictionary, Postings};
use super::ranking::Ranking;
use super::semantic::Table;
use super::text::Analyzer;
use super::verbs::Verbs;
use super::{exact::Names, fields};
use crate::catalog::{Catalog, Tool};

/// The number of a tool that is not there any more.
const GONE: u32 = u32::MAX;

/// Where the key of a merged list stands.
#[derive(Debug, Clone, Copy)]
enum Key {
    Old(usize),
    New(usize),
}

impl ToolIndex {
    /// The index of a catalog, made over the one before it where that is cheaper: the same index where nothing
    /// changed, a merged one where most tools stayed.
    pub fn over(before: Option<Arc<Self>>, catalog: &Catalog, ranking: &Ranking) -> Arc<Self> {
        let tools = catalog.tools();
        let Some(before) = before.filter(|b| b.ranking.stored() == ranking.stored()) else {
            return Arc::new(Self::build(catalog, ranking));
        };
        let now = fingerprints(tools);
        if now == before.fingerprints && before.ranking == *ranking {
            return before;
        }
        let old: HashMap<Fingerprint, u32> = before.fingerprints.iter().copied().zip(0..).collect();
        let kept = now.iter().filter(|f| old.contains_key(*f)).count();
        if kept * 2 < tools.len() {
            return Arc::new(Self::build(catalog, ranking));
        }
        Arc::new(merged(&before, &old, tools, now, ranking))
    }
}

fn merged(
    before: &ToolIndex,
    old: &HashMap<Fingerprint, u32>,
    tools: &[Tool],
    now: Vec<Fingerprint>,
    ranking: &Ranking,
) -> ToolIndex {
    let mut analyzer = Analyzer::new();
    let verbs = Verbs::new(ranking, &mut analyzer);
    let mut builder = Builder::new(ranking);
    let mut moved = vec![GONE; before.len()];
    let (mut upstreams, mut categories) = (HashMap::new(), HashMap::new());
    let (mut facts, mut vectors) = (Vec::with_capacity(tools.len()), Vec::with_capacity(tools.len()));
    let mut fresh = Vec::new();
    for ((no, tool), print) in (0u32..).zip(tools).zip(&now) {
        let known = old.get(print).copied();
        let from =
            known.and_then(|was| Some((before.facts.get(index(was))?, before.vectors.get(index(was))?)));
        let (stays, vector) = if let Some((facts, vector)) = from {
            if let Some(slot) = known.and_then(|was| moved.get_mut(index(was))) {
                *slot = no;
            }
            (Some(*facts), *vector)
        } else {
            builder.tool(no, &fields::texts(tool), &mut analyzer);
            fresh.push((no, tool));
            (None, Table::shipped().embed(&fields::gist(tool)))
        };
        vectors.push(vector);
        facts.push(facts_of(tool, stays, (&mut upstreams, &mut categories), &verbs, &mut analyzer));
    }
    let (dictionary, terms) = with_terms(before, &builder, &moved);
    let trigrams = before.trigrams.with(&builder.trigrams.build(), &moved);
    let kin = Kin::new(&upstreams, &dictionary, &mut analyzer);
    ToolIndex {
        ranking: ranking.clone(),
        dictionary,
        terms,
        trigrams,
        facts,
        vectors,
        fingerprints: now,
        names: before.names.with(&fresh, &moved),
        verbs,
        kin,
        upstreams,
        categories,
        stop_words: ranking.stop_words.iter().cloned().collect(),
        stop_stems: ranking.stop_words.iter().map(|w| analyzer.stem(w)).collect(),
    }
}

fn with_terms(before: &ToolIndex, builder: &Builder<'_>, moved: &[u32]) -> (Dictionary, Postings) {
    let (added, renumber) = Dictionary::build(&builder.terms);
    let new = Postings::build(&builder.entries, &renumber);
    let (old_terms, old) = (&before.dictionary, &before.terms);
    let order = |a: usize, b: usize| old_terms.term(a).cmp(added.term(b));
    let (lists, keys) = merge((old, old_terms.len()), (&new, added.len()), moved, order);
    let term = |key: &Key| match *key {
        Key::Old(at) => old_terms.term(at),
        Key::New(at) => added.term(at),
    };
    (Dictionary::of_sorted(keys.iter().map(term)), lists)
}

/// Merges the lists of keys in order. Old documents take their new numbers, those that are gone fall out, and so do
/// keys without documents.
fn merge(
    (old, old_keys): (&Postings, usize),
    (new, new_keys): (&Postings, usize),
    moved: &[u32],
    order: impl Fn(usize, usize) -> Ordering,
) -> (Postings, Vec<Key>) {
    let mut out = Postings::empty(old.entries() + new.entries());
    let mut keys = Vec::with_capacity(old_keys + new_keys);
    let (mut a, mut b) = (0, 0);
    let mut list: Vec<(u32, u16)> = Vec::new();
    while a < old_keys || b < new_keys {
        let next = match (a < old_keys, b < new_keys) {
            (true, true) => order(a, b),
            (true, false) => Ordering::Less,
            _ => Ordering::Greater,
        };
        let moved = |doc: u32| moved.get(index(doc)).copied().filter(|now| *now != GONE);
        // Nearly all keys have old documents only: those go straight into the new lists.
        if next == Ordering::Less {
            if out.append(old.list(number(a)), moved) {
                keys.push(Key::Old(a));
            }
            a += 1;
            continue;
        }
        let key = if next == Ordering::Greater { Key::New(b) } else { Key::Old(a) };
        list.clear();
        if next == Ordering::Equal {
            let was = old.list(number(a));
            list.extend(was.stored().filter_map(|(doc, impact)| Some((moved(doc)?, impact))));
            a += 1;
        }
        let stays = list.len();
        list.extend(new.list(number(b)).stored());
        if stays > 0 && list.len() > stays {
            list.sort_unstable_by_key(|(doc, _)| *doc);
        }
        b += 1;
        if !list.is_empty() {
            out.push(&list);
            keys.push(key);
        }
    }
    (out, keys)
}

impl super::trigram::Trigrams {
    /// These with others' lists, under the tools' new numbers.
    fn with(&self, added: &Self, moved: &[u32]) -> Self {
        let gram = |of: &Self, at: usize| of.grams.get(at).copied().unwrap_or_default();
        let order = |a: usize, b: usize| gram(self, a).cmp(&gram(added, b));
        let (postings, keys) =
            merge((&self.postings, self.grams.len()), (&added.postings, added.grams.len()), moved, order);
        let grams = keys.iter().map(|key| match *key {
            Key::Old(at) => gram(self, at),
            Key::New(at) => gram(added, at),
        });
        Self { grams: grams.collect(), postings }
    }
}

impl Names {
    /// These under the tools' new numbers, with the names of tools that are new.
    fn with(&self, fresh: &[(u32, &Tool)], moved: &[u32]) -> Self {
        let stays = self.entries().filter_map(|(digest, kind, no)| {
            let no = moved.get(index(no)).copied().filter(|no| *no != GONE)?;
            Some((digest, kind, no))
        });
        Self::of(stays.collect(), fresh)
    }
}
