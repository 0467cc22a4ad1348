//! Building the index of one generation's catalog.
//!
//! Every tool's impacts depend on that tool and on the ranking alone, so the order in which tools come and
//! what other tools there are change nothing in them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::dictionary::Dictionary;
use super::exact::Names;
use super::fields::{self, Texts};
use super::graph::Kin;
use super::num::{count, number};
use super::postings::{Entry, Postings};
use super::ranking::{FIELDS, Ranking};
use super::semantic::{Table, Vector};
use super::text::{self, Analyzer};
use super::trigram;
use super::verbs::Verbs;
use crate::catalog::{Catalog, Tool};

/// What scoring needs to know of a tool besides its terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    /// Words of its name.
    pub(super) name_words: u16,
    /// Bytes of its name, for the order of equals.
    pub(super) name_bytes: u16,
    /// Number of its upstream in [`ToolIndex::upstreams`].
    pub(super) upstream: u32,
    /// Number of its category in [`ToolIndex::categories`].
    pub(super) category: u32,
    /// The verb classes of its name, a bit each.
    pub(super) verbs: u32,
    pub(super) read_only: bool,
    pub(super) deprecated: bool,
}

/// The search index of one generation. Immutable; its answers depend only on the tools in the asker's set.
#[derive(Debug)]
pub struct ToolIndex {
    pub(super) ranking: Arc<Ranking>,
    pub(super) dictionary: Dictionary,
    pub(super) terms: Postings,
    pub(super) trigrams: trigram::Trigrams,
    pub(super) facts: Vec<Facts>,
    pub(super) vectors: Vec<Vector>,
    /// What each tool was when it was read.
    pub(super) fingerprints: Vec<Fingerprint>,
    pub(super) upstreams: HashMap<Arc<str>, u32>,
    pub(super) categories: HashMap<Arc<str>, u32>,
    pub(super) names: Names,
    pub(super) verbs: Verbs,
    pub(super) kin: Kin,
    pub(super) stop_words: HashSet<String>,
    pub(super) stop_stems: HashSet<String>,
}

impl ToolIndex {
    /// Indexes a catalog.
    pub fn build(catalog: &Catalog, ranking: &Ranking) -> Self {
        Self::of(catalog.tools(), ranking)
    }

    /// Indexes tools, numbered as they stand.
    pub(super) fn of(tools: &[Arc<Tool>], ranking: &Ranking) -> Self {
        let mut analyzer = Analyzer::new();
        let verbs = Verbs::new(ranking, &mut analyzer);
        let mut builder = Builder::new(ranking);
        let (mut upstreams, mut categories) = (HashMap::new(), HashMap::new());
        let (mut facts, mut vectors) = (Vec::with_capacity(tools.len()), Vec::with_capacity(tools.len()));
        for (doc, tool) in (0u32..).zip(tools) {
            let texts = fields::texts(tool);
            builder.tool(doc, &texts, &mut analyzer);
            vectors.push(Table::shipped().embed_parts(&fields::gist(tool, &ranking.generic), &ranking.gist));
            let tables = (&mut upstreams, &mut categories);
            facts.push(facts_of(tool, None, tables, &verbs, &mut analyzer));
        }
        let (dictionary, renumber) = Dictionary::build(&builder.terms);
        let kin = Kin::new(&upstreams, &dictionary, &mut analyzer);
        Self {
            ranking: Arc::new(ranking.clone()),
            terms: Postings::build(&builder.entries, &renumber),
            dictionary,
            trigrams: builder.trigrams.build(),
            facts,
            vectors,
            fingerprints: fingerprints(tools),
            upstreams,
            categories,
            names: Names::build(tools),
            verbs,
            kin,
            stop_words: ranking.stop_words.iter().cloned().collect(),
            stop_stems: ranking.stop_words.iter().map(|w| analyzer.stem(w)).collect(),
        }
    }

    /// How many tools are indexed.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Whether no tool is indexed.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Bytes that the index holds, about.
    pub fn bytes(&self) -> usize {
        self.dictionary.bytes()
            + self.terms.bytes()
            + self.trigrams.bytes()
            + self.names.bytes()
            + self.facts.len() * (size_of::<Facts>() + size_of::<Vector>())
    }
}

/// Names with their numbers.
pub(super) type Numbers = HashMap<Arc<str>, u32>;

/// The facts of a tool. `known`: what they were in another index, where the tool is the same.
pub(super) fn facts_of(
    tool: &Tool,
    known: Option<Facts>,
    (upstreams, categories): (&mut Numbers, &mut Numbers),
    verbs: &Verbs,
    analyzer: &mut Analyzer,
) -> Facts {
    let upstream = numbered(upstreams, tool.upstream.as_str());
    let category = numbered(categories, &tool.category);
    if let Some(known) = known {
        return Facts { upstream, category, ..known };
    }
    let name = text::chunks(&tool.name).flat_map(text::split).collect::<Vec<_>>();
    let class = name.iter().fold(0, |bits, word| bits | verbs.of(&analyzer.stem(word)));
    Facts {
        name_words: u16::try_from(name.len()).unwrap_or(u16::MAX),
        name_bytes: u16::try_from(tool.name.len()).unwrap_or(u16::MAX),
        upstream,
        category,
        verbs: class,
        read_only: tool.annotations.is_read_only(),
        deprecated: tool.deprecated.is_some(),
    }
}

/// A digest of everything that the index reads of a tool.
pub(super) type Fingerprint = [u8; 16];

/// Everything that the index reads of a tool, in an order that tells one thing from another.
fn read_of(tool: &Tool) -> impl Iterator<Item = &str> {
    let title = |text: Option<&'_ str>| if text.is_some() { "+" } else { "-" };
    let (own, hinted) = (tool.title.as_deref(), tool.annotations.title.as_deref());
    let texts = [
        tool.id.as_str(),
        tool.upstream.as_str(),
        &tool.wire_name,
        &tool.name,
        &tool.description,
        title(own),
        own.unwrap_or(""),
        title(hinted),
        hinted.unwrap_or(""),
        tool.input_schema.as_str(),
        &tool.category,
        &tool.search_hints,
        if tool.annotations.is_read_only() { "read only" } else { "" },
        if tool.deprecated.is_some() { "deprecated" } else { "" },
    ];
    texts.into_iter().chain(tool.tags.iter().map(AsRef::as_ref))
}

/// Whether two tools give equal entries. Generations share the texts of what did not change: those need not be read.
pub(super) fn read_alike(a: &Tool, b: &Tool) -> bool {
    let (mut of_a, mut of_b) = (read_of(a), read_of(b));
    loop {
        match (of_a.next(), of_b.next()) {
            (Some(one), Some(other)) if std::ptr::eq(one, other) || one == other => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Equal fingerprints, equal entries. The parts are laid in one row first: hashing them one by one costs twice as
/// much, and all tools are hashed whenever a saved index is opened.
pub(super) fn fingerprint(tool: &Tool, row: &mut Vec<u8>) -> Fingerprint {
    row.clear();
    for text in read_of(tool) {
        row.extend(number(text.len()).to_le_bytes());
        row.extend(text.as_bytes());
    }
    let mut out = Fingerprint::default();
    blake3::Hasher::new().update(row).finalize_xof().fill(&mut out);
    out
}

/// The fingerprints of all tools.
pub(super) fn fingerprints(tools: &[Arc<Tool>]) -> Vec<Fingerprint> {
    let mut row = Vec::new();
    tools.iter().map(|tool| fingerprint(tool, &mut row)).collect()
}

fn numbered(table: &mut HashMap<Arc<str>, u32>, key: &str) -> u32 {
    let next = number(table.len());
    match table.get(key) {
        Some(no) => *no,
        None => *table.entry(Arc::from(key)).or_insert(next),
    }
}

/// The terms of a chunk, as numbers.
#[derive(Debug, Clone, Default)]
struct ChunkTerms {
    parts: Vec<u32>,
    joined: Option<u32>,
}

/// Collects the entries of all tools.
pub(super) struct Builder<'a> {
    ranking: &'a Ranking,
    pub(super) terms: Vec<String>,
    numbers: HashMap<String, u32>,
    chunks: HashMap<String, ChunkTerms>,
    pub(super) entries: Vec<Entry>,
    /// Weighted frequency of each term in the tool at hand, and which terms have one.
    frequencies: Vec<f32>,
    touched: Vec<u32>,
    pub(super) trigrams: trigram::Builder,
}

impl<'a> Builder<'a> {
    pub(super) fn new(ranking: &'a Ranking) -> Self {
        Self {
            ranking,
            terms: Vec::new(),
            numbers: HashMap::new(),
            chunks: HashMap::new(),
            entries: Vec::new(),
            frequencies: Vec::new(),
            touched: Vec::new(),
            trigrams: trigram::Builder::new(ranking),
        }
    }

    fn number(&mut self, term: String) -> u32 {
        let next = number(self.terms.len());
        if let Some(no) = self.numbers.get(&term) {
            return *no;
        }
        self.terms.push(term.clone());
        self.numbers.insert(term, next);
        self.frequencies.push(0.0);
        next
    }

    fn chunk(&mut self, chunk: &str, analyzer: &mut Analyzer) -> ChunkTerms {
        if let Some(known) = self.chunks.get(chunk) {
            return known.clone();
        }
        let terms = analyzer.terms(chunk);
        let found = ChunkTerms {
            parts: terms.parts.into_iter().map(|t| self.number(t)).collect(),
            joined: terms.joined.map(|t| self.number(t)),
        };
        self.chunks.insert(chunk.to_owned(), found.clone());
        found
    }

    pub(super) fn tool(&mut self, doc: u32, texts: &Texts, analyzer: &mut Analyzer) {
        for field in 0..FIELDS {
            let (Some(text), Some(boost), Some(usual), Some(pull)) = (
                texts.get(field),
                self.ranking.fields.get(field).copied(),
                self.ranking.lengths.get(field).copied(),
                self.ranking.length_pull.get(field).copied(),
            ) else {
                continue;
            };
            // A field that is off must not leave its terms behind, not even with an impact of 0.
            if boost <= 0.0 {
                continue;
            }
            let (mut found, mut length) = (Vec::new(), 0);
            for chunk in text::chunks(text) {
                let terms = self.chunk(chunk, analyzer);
                length += terms.parts.len();
                found.extend(terms.parts);
                found.extend(terms.joined);
            }
            let weight = boost / (1.0 - pull + pull * count(length) / usual.max(1.0));
            for term in found {
                if let Some(sum) = self.frequencies.get_mut(super::num::index(term)) {
                    if *sum <= 0.0 {
                        self.touched.push(term);
                    }
                    *sum += weight;
                }
            }
        }
        for term in self.touched.drain(..) {
            if let Some(sum) = self.frequencies.get_mut(super::num::index(term)) {
                self.entries.push(Entry { term, doc, impact: *sum / (self.ranking.k1 + *sum) });
                *sum = 0.0;
            }
        }
        self.trigrams.tool(doc, texts);
    }
}
