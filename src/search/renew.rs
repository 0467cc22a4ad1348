//! A changed catalog over the index of the one before: only what changed is read again, the rest is copied.
//!
//! The result is the index that building anew would give, byte for byte (`tests.rs` compares them).

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::dictionary::Dictionary;
use super::graph::Kin;
use super::index::{Builder, Fingerprint, ToolIndex, facts_of, fingerprint, fingerprints, read_alike};
use super::num::{index, number};
use super::postings::Postings;
use super::ranking::Ranking;
use super::semantic::Table;
use super::text::Analyzer;
use super::verbs::Verbs;
use super::{exact::Names, fields};
use crate::catalog::{Catalog, Tool};

/// The number of a tool that is not there any more, or was not there before.
const GONE: u32 = u32::MAX;
/// Tools that fell out up to which each list is asked whether it has one of them; past that every entry is looked at.
const FEW_GONE: usize = 8;

/// What there was before a catalog changed.
#[derive(Debug)]
pub struct Earlier<'a> {
    /// Its index.
    pub index: Arc<ToolIndex>,
    /// The catalog that the index was made of, where it is still there: tools are compared with it then and need
    /// not be hashed.
    pub catalog: Option<&'a Catalog>,
}

/// Where the key of a merged list stands.
#[derive(Debug, Clone, Copy)]
enum Key {
    Old(usize),
    New(usize),
}

/// Which of the tools before each tool is.
#[derive(Default)]
struct Kept {
    prints: Vec<Fingerprint>,
    /// Its number before, [`GONE`] for a tool that is new or not the same.
    was: Vec<u32>,
}

impl Kept {
    fn of(before: &Earlier<'_>, tools: &[Arc<Tool>]) -> Self {
        let known = before.catalog.map(Catalog::tools).filter(|known| known.len() == before.index.len());
        match known {
            Some(known) => Self::compared(&before.index.fingerprints, known, tools),
            None => Self::hashed(&before.index.fingerprints, tools),
        }
    }

    /// By the tools themselves, both in the order of their ids.
    fn compared(prints: &[Fingerprint], known: &[Arc<Tool>], tools: &[Arc<Tool>]) -> Self {
        let (mut out, mut row, mut at) = (Self::default(), Vec::new(), 0);
        for tool in tools {
            while known.get(at).is_some_and(|k| k.id < tool.id) {
                at += 1;
            }
            let same = known.get(at).filter(|k| read_alike(k, tool)).and_then(|_| prints.get(at));
            out.was.push(if same.is_some() { number(at) } else { GONE });
            out.prints.push(same.copied().unwrap_or_else(|| fingerprint(tool, &mut row)));
        }
        out
    }

    /// By their fingerprints.
    fn hashed(prints: &[Fingerprint], tools: &[Arc<Tool>]) -> Self {
        let old: HashMap<&Fingerprint, u32> = prints.iter().zip(0..).collect();
        let prints = fingerprints(tools);
        let was = prints.iter().map(|print| old.get(print).copied().unwrap_or(GONE)).collect();
        Self { prints, was }
    }

    fn count(&self) -> usize {
        self.was.iter().filter(|was| **was != GONE).count()
    }
}

/// The new numbers of the tools before.
struct Moves {
    to: Vec<u32>,
    /// Those that are gone, where every other one has the number it had and few are gone.
    few_gone: Option<Vec<u32>>,
}

impl Moves {
    fn of(kept: &Kept, before: usize) -> Self {
        let mut to = vec![GONE; before];
        for (no, was) in (0u32..).zip(&kept.was) {
            if let Some(slot) = to.get_mut(index(*was)) {
                *slot = no;
            }
        }
        let in_place = (0u32..).zip(&to).all(|(was, now)| *now == was || *now == GONE);
        let gone = || (0u32..).zip(&to).filter(|(_, now)| **now == GONE).map(|(was, _)| was);
        let few_gone = (in_place && gone().nth(FEW_GONE).is_none()).then(|| gone().collect());
        Self { to, few_gone }
    }

    fn get(&self, was: u32) -> Option<u32> {
        self.to.get(index(was)).copied().filter(|now| *now != GONE)
    }

    /// Whether a list stays as it is.
    fn leave(&self, docs: &[u32]) -> bool {
        self.few_gone.as_ref().is_some_and(|gone| gone.iter().all(|doc| docs.binary_search(doc).is_err()))
    }
}

impl ToolIndex {
    /// The index of a catalog, made over the one before it where that is cheaper: the same index where nothing
    /// changed, a merged one where most tools stayed.
    pub fn over(before: Option<Earlier<'_>>, catalog: &Catalog, ranking: &Ranking) -> Arc<Self> {
        let tools = catalog.tools();
        let Some(before) = before.filter(|b| b.index.ranking.stored() == ranking.stored()) else {
            return Arc::new(Self::build(catalog, ranking));
        };
        let kept = Kept::of(&before, tools);
        let same_ranking = *before.index.ranking == *ranking;
        if same_ranking && kept.prints == before.index.fingerprints {
            return before.index;
        }
        if kept.count() * 2 < tools.len() {
            return Arc::new(Self::build(catalog, ranking));
        }
        let ranking =
            if same_ranking { Arc::clone(&before.index.ranking) } else { Arc::new(ranking.clone()) };
        Arc::new(merged(&before.index, kept, tools, ranking))
    }
}

fn merged(before: &ToolIndex, kept: Kept, tools: &[Arc<Tool>], ranking: Arc<Ranking>) -> ToolIndex {
    let mut analyzer = Analyzer::new();
    let verbs = Verbs::new(&ranking, &mut analyzer);
    let mut builder = Builder::new(&ranking);
    let moves = Moves::of(&kept, before.len());
    let (mut upstreams, mut categories) = (HashMap::new(), HashMap::new());
    let (mut facts, mut vectors) = (Vec::with_capacity(tools.len()), Vec::with_capacity(tools.len()));
    let mut fresh = Vec::new();
    for ((no, tool), was) in (0u32..).zip(tools).zip(&kept.was) {
        let at = index(*was);
        let from = before.facts.get(at).zip(before.vectors.get(at));
        let (stays, vector) = if let Some((facts, vector)) = from {
            (Some(*facts), *vector)
        } else {
            builder.tool(no, &fields::texts(tool), &mut analyzer);
            fresh.push((no, tool));
            (None, Table::shipped().embed_parts(&fields::gist(tool, &ranking.generic), &ranking.gist))
        };
        vectors.push(vector);
        facts.push(facts_of(tool, stays, (&mut upstreams, &mut categories), &verbs, &mut analyzer));
    }
    let (dictionary, terms) = with_terms(before, &builder, &moves);
    let trigrams = before.trigrams.with(&builder.trigrams.build(), &moves);
    let kin = Kin::new(&upstreams, &dictionary, &mut analyzer);
    ToolIndex {
        dictionary,
        terms,
        trigrams,
        facts,
        vectors,
        fingerprints: kept.prints,
        names: before.names.with(&fresh, &moves),
        verbs,
        kin,
        upstreams,
        categories,
        stop_words: ranking.stop_words.iter().cloned().collect(),
        stop_stems: ranking.stop_words.iter().map(|w| analyzer.stem(w)).collect(),
        ranking,
    }
}

fn with_terms(before: &ToolIndex, builder: &Builder<'_>, moves: &Moves) -> (Dictionary, Postings) {
    let (added, renumber) = Dictionary::build(&builder.terms);
    let new = Postings::build(&builder.entries, &renumber);
    let (old_terms, old) = (&before.dictionary, &before.terms);
    let order = |a: usize, b: usize| old_terms.term(a).cmp(added.term(b));
    let (lists, keys) = merge((old, old_terms.len()), (&new, added.len()), moves, order);
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
    moves: &Moves,
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
        // Nearly all keys have old documents only: those go straight into the new lists, most of them whole.
        if next == Ordering::Less {
            let was = old.list(number(a));
            let some =
                if moves.leave(was.docs) { out.append_whole(was) } else { out.append(was, |d| moves.get(d)) };
            if some {
                keys.push(Key::Old(a));
            }
            a += 1;
            continue;
        }
        let key = if next == Ordering::Greater { Key::New(b) } else { Key::Old(a) };
        list.clear();
        if next == Ordering::Equal {
            let was = old.list(number(a));
            list.extend(was.stored().filter_map(|(doc, impact)| Some((moves.get(doc)?, impact))));
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
    (out.finished(), keys)
}

impl super::trigram::Trigrams {
    /// These with others' lists, under the tools' new numbers.
    fn with(&self, added: &Self, moves: &Moves) -> Self {
        let gram = |of: &Self, at: usize| of.grams.get(at).copied().unwrap_or_default();
        let order = |a: usize, b: usize| gram(self, a).cmp(&gram(added, b));
        let (postings, keys) =
            merge((&self.postings, self.grams.len()), (&added.postings, added.grams.len()), moves, order);
        let grams = keys.iter().map(|key| match *key {
            Key::Old(at) => gram(self, at),
            Key::New(at) => gram(added, at),
        });
        Self { grams: grams.collect(), postings }
    }
}

impl Names {
    /// These under the tools' new numbers, with the names of tools that are new.
    fn with(&self, fresh: &[(u32, &Arc<Tool>)], moves: &Moves) -> Self {
        let stays = self.entries().filter_map(|(digest, kind, no)| Some((digest, kind, moves.get(no)?)));
        Self::of(stays.collect(), fresh)
    }
}
