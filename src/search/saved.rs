//! An index as bytes, so that a server that starts again need not read its tools again.
//!
//! The bytes hold what depends on tools and on the stored part of the ranking; a checksum covers all of them. Bytes of
//! another version, another ranking or with any bit changed are not opened: the index is built anew then.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::dictionary::Dictionary;
use super::exact::{Kind, Names};
use super::graph::Kin;
use super::index::{Facts, Fingerprint, ToolIndex};
use super::num::{index, number};
use super::postings::Postings;
use super::ranking::Ranking;
use super::semantic::{DIMENSIONS, Table, Vector};
use super::text::Analyzer;
use super::trigram::Trigrams;
use super::verbs::Verbs;

/// Begins every file; the last byte counts the versions of the format.
const MAGIC: &[u8; 8] = b"docentI\x01";
const CHECKSUM_BYTES: usize = 32;
/// Bytes of one tool's facts.
const FACTS_BYTES: usize = 17;
const READ_ONLY: u8 = 1;
const DEPRECATED: u8 = 2;

/// Why bytes are not an index that can be used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnIndex {
    /// Not docent's, cut short or changed.
    #[error("it is damaged or not an index of this version")]
    Damaged,
    /// Made with other weights or another semantic table.
    #[error("it was made with another ranking")]
    OtherRanking,
}

impl ToolIndex {
    /// The index as bytes for [`ToolIndex::open`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(self.bytes() + self.bytes() / 4));
        out.0.extend(MAGIC);
        out.0.extend(stored(&self.ranking));
        out.bytes(&self.fingerprints.concat());
        out.dictionary(&self.dictionary);
        out.postings(&self.terms);
        out.bytes(&self.trigrams.grams.iter().flat_map(|g| g.to_le_bytes()).collect::<Vec<_>>());
        out.postings(&self.trigrams.postings);
        out.bytes(&self.facts.iter().flat_map(facts_to).collect::<Vec<_>>());
        out.bytes(&self.vectors.iter().flatten().flat_map(|c| c.to_le_bytes()).collect::<Vec<_>>());
        out.names(&self.upstreams);
        out.names(&self.categories);
        let names = self.names.entries().flat_map(|(digest, kind, no)| {
            let kind = [kind.code()];
            digest.to_le_bytes().into_iter().chain(kind).chain(no.to_le_bytes())
        });
        out.bytes(&names.collect::<Vec<_>>());
        let checksum = *blake3::hash(&out.0).as_bytes();
        out.0.extend(checksum);
        out.0
    }

    /// Whether these bytes are what would be saved, told by the tools in them.
    pub fn is_saved_as(&self, bytes: &[u8]) -> bool {
        let head = || {
            let rest = bytes.strip_prefix(MAGIC)?;
            let (made_with, rest) = rest.split_at_checked(32)?;
            Some((made_with, In(rest).bytes()?))
        };
        head().is_some_and(|(made_with, prints)| {
            made_with == stored(&self.ranking) && *prints == *self.fingerprints.concat()
        })
    }

    /// The index of bytes that [`ToolIndex::to_bytes`] made with the same stored ranking.
    pub fn open(bytes: &[u8], ranking: &Ranking) -> Result<Self, NotAnIndex> {
        let body = bytes.len().checked_sub(CHECKSUM_BYTES).and_then(|at| bytes.split_at_checked(at));
        let (body, checksum) = body.ok_or(NotAnIndex::Damaged)?;
        let rest = body.strip_prefix(MAGIC).ok_or(NotAnIndex::Damaged)?;
        let (made_with, rest) = rest.split_at_checked(32).ok_or(NotAnIndex::Damaged)?;
        if made_with != stored(ranking) {
            return Err(NotAnIndex::OtherRanking);
        }
        if blake3::hash(body) != *checksum {
            return Err(NotAnIndex::Damaged);
        }
        In(rest).read(ranking).ok_or(NotAnIndex::Damaged)
    }
}

/// What the stored numbers depend on besides the tools.
fn stored(ranking: &Ranking) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&ranking.stored());
    hasher.update(&Table::digest());
    *hasher.finalize().as_bytes()
}

struct Out(Vec<u8>);

impl Out {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(number(bytes.len()).to_le_bytes());
        self.0.extend(bytes);
    }

    fn words(&mut self, words: &[u32]) {
        self.bytes(&words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
    }

    fn dictionary(&mut self, dictionary: &Dictionary) {
        let (text, ends) = dictionary.parts();
        self.bytes(text.as_bytes());
        self.words(ends);
    }

    fn postings(&mut self, postings: &Postings) {
        let (starts, docs, impacts) = postings.parts();
        self.words(starts);
        self.words(docs);
        self.bytes(&impacts.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<_>>());
    }

    /// Names by number.
    fn names(&mut self, table: &HashMap<Arc<str>, u32>) {
        let mut names: Vec<(u32, &str)> = table.iter().map(|(name, no)| (*no, name.as_ref())).collect();
        names.sort_unstable();
        self.0.extend(number(names.len()).to_le_bytes());
        for (_, name) in names {
            self.bytes(name.as_bytes());
        }
    }
}

fn facts_to(facts: &Facts) -> Vec<u8> {
    let flags = if facts.read_only { READ_ONLY } else { 0 } | if facts.deprecated { DEPRECATED } else { 0 };
    let mut out = Vec::with_capacity(FACTS_BYTES);
    out.extend(facts.name_words.to_le_bytes());
    out.extend(facts.name_bytes.to_le_bytes());
    out.extend(facts.upstream.to_le_bytes());
    out.extend(facts.category.to_le_bytes());
    out.extend(facts.verbs.to_le_bytes());
    out.push(flags);
    out
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn read(mut self, ranking: &Ranking) -> Option<ToolIndex> {
        let fingerprints: Vec<Fingerprint> = self.each(|print| print)?;
        let dictionary = self.dictionary()?;
        let terms = self.postings()?;
        let grams = self.each(u64::from_le_bytes)?;
        let trigrams = Trigrams { grams, postings: self.postings()? };
        let facts: Vec<Facts> = self.each(facts_from)?.into_iter().collect::<Option<_>>()?;
        let vectors: Vec<Vector> =
            self.each(|v: [u8; DIMENSIONS]| v.map(|byte| i8::from_le_bytes([byte])))?;
        let (upstreams, categories) = (self.names()?, self.names()?);
        let names = self.each(name_from)?.into_iter().collect::<Option<_>>()?;
        if !self.0.is_empty() || vectors.len() != facts.len() || fingerprints.len() != facts.len() {
            return None;
        }
        let mut analyzer = Analyzer::new();
        Some(ToolIndex {
            ranking: Arc::new(ranking.clone()),
            kin: Kin::new(&upstreams, &dictionary, &mut analyzer),
            verbs: Verbs::new(ranking, &mut analyzer),
            stop_words: ranking.stop_words.iter().cloned().collect(),
            stop_stems: ranking.stop_words.iter().map(|w| analyzer.stem(w)).collect(),
            names: Names::sorted(names),
            dictionary,
            terms,
            trigrams,
            facts,
            vectors,
            fingerprints,
            upstreams,
            categories,
        })
    }

    fn size(&mut self) -> Option<usize> {
        let (size, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(index(u32::from_le_bytes(*size)))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let size = self.size()?;
        let (bytes, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A section of parts of equal size, each read by `part`.
    fn each<const N: usize, T>(&mut self, part: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
        let (parts, rest) = self.bytes()?.as_chunks::<N>();
        rest.is_empty().then(|| parts.iter().map(|bytes| part(*bytes)).collect())
    }

    fn words(&mut self) -> Option<Vec<u32>> {
        self.each(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn dictionary(&mut self) -> Option<Dictionary> {
        let text = self.text()?.to_owned();
        Some(Dictionary::from_parts(text, self.words()?))
    }

    fn postings(&mut self) -> Option<Postings> {
        let (starts, docs) = (self.words()?, self.words()?);
        let impacts = self.each(u16::from_le_bytes)?;
        Some(Postings::from_parts(starts, docs, impacts))
    }

    fn names<K: From<&'a str> + Eq + Hash>(&mut self) -> Option<HashMap<K, u32>> {
        let many = self.size()?;
        (0..many).map(|no| Some((K::from(self.text()?), number(no)))).collect()
    }
}

fn facts_from(bytes: [u8; FACTS_BYTES]) -> Option<Facts> {
    let mut rest = bytes.as_slice();
    let half = |rest: &mut &[u8]| {
        let (head, tail) = rest.split_first_chunk::<2>()?;
        *rest = tail;
        Some(u16::from_le_bytes(*head))
    };
    let (name_words, name_bytes) = (half(&mut rest)?, half(&mut rest)?);
    let mut word = || {
        let (head, tail) = rest.split_first_chunk::<4>()?;
        rest = tail;
        Some(u32::from_le_bytes(*head))
    };
    let (upstream, category, verbs) = (word()?, word()?, word()?);
    let flags = *rest.first()?;
    let (read_only, deprecated) = (flags & READ_ONLY != 0, flags & DEPRECATED != 0);
    Some(Facts { name_words, name_bytes, upstream, category, verbs, read_only, deprecated })
}

fn name_from(bytes: [u8; 13]) -> Option<(u64, Kind, u32)> {
    let (digest, rest) = bytes.split_first_chunk::<8>()?;
    let (kind, no) = rest.split_first()?;
    Some((u64::from_le_bytes(*digest), Kind::of(*kind)?, u32::from_le_bytes(no.try_into().ok()?)))
}
