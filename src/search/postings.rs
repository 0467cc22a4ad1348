//! Impact lists: for each term the tools that hold it and how much it says about them.
//!
//! An impact is a tool's own (term frequency over fields, saturated); rarity is not in it, because rarity
//! depends on which tools the asker may see.

use super::long::{Bits, LongLists};
use super::num::{IMPACT_STEPS, index, number, quantize};

/// Impact lists of a set of terms numbered from 0.
#[derive(Debug, Default)]
pub(super) struct Postings {
    /// Where each term's list begins; one more at the end.
    starts: Vec<u32>,
    docs: Vec<u32>,
    impacts: Vec<u16>,
    long: LongLists,
}

/// One entry before it is sorted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) term: u32,
    pub(super) doc: u32,
    /// From 0 to 1.
    pub(super) impact: f32,
}

impl Postings {
    /// Sorts entries that come in document order into lists. `renumber` gives each term its final number.
    pub(super) fn build(entries: &[Entry], renumber: &[u32]) -> Self {
        let term = |e: &Entry| renumber.get(index(e.term)).map_or(0, |t| index(*t));
        let mut starts = vec![0u32; renumber.len() + 1];
        for entry in entries {
            if let Some(slot) = starts.get_mut(term(entry) + 1) {
                *slot += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let (mut docs, mut impacts) = (vec![0u32; entries.len()], vec![0u16; entries.len()]);
        for entry in entries {
            let Some(at) = next.get_mut(term(entry)) else { continue };
            if let (Some(doc), Some(impact)) = (docs.get_mut(index(*at)), impacts.get_mut(index(*at))) {
                (*doc, *impact) = (entry.doc, quantize(entry.impact));
            }
            *at += 1;
        }
        Self::from_parts(starts, docs, impacts)
    }

    /// No lists, with room for so many entries. Once all are added, [`Postings::finished`].
    pub(super) fn empty(entries: usize) -> Self {
        let (docs, impacts) = (Vec::with_capacity(entries), Vec::with_capacity(entries));
        Self { starts: vec![0], docs, impacts, long: LongLists::default() }
    }

    /// The lists with the bitmaps of the long ones.
    pub(super) fn finished(self) -> Self {
        Self::from_parts(self.starts, self.docs, self.impacts)
    }

    /// Adds the list of the next term.
    pub(super) fn push(&mut self, list: &[(u32, u16)]) {
        self.docs.extend(list.iter().map(|(doc, _)| doc));
        self.impacts.extend(list.iter().map(|(_, impact)| impact));
        self.starts.push(number(self.docs.len()));
    }

    /// Adds the list of the next term under its documents' new numbers, without those that have none. An empty list is
    /// not added: `false`.
    pub(super) fn append(&mut self, list: List<'_>, moved: impl Fn(u32) -> Option<u32>) -> bool {
        let from = self.docs.len();
        for (doc, impact) in list.stored() {
            if let Some(doc) = moved(doc) {
                self.docs.push(doc);
                self.impacts.push(impact);
            }
        }
        let some = self.docs.len() > from;
        if some {
            self.starts.push(number(self.docs.len()));
        }
        some
    }

    /// Adds the list of the next term as it is. An empty list is not added: `false`.
    pub(super) fn append_whole(&mut self, list: List<'_>) -> bool {
        if list.docs.is_empty() {
            return false;
        }
        self.docs.extend_from_slice(list.docs);
        self.impacts.extend_from_slice(list.impacts);
        self.starts.push(number(self.docs.len()));
        true
    }

    /// How many entries there are in all lists.
    pub(super) fn entries(&self) -> usize {
        self.docs.len()
    }

    /// The three arrays, for [`Postings::from_parts`].
    pub(super) fn parts(&self) -> (&[u32], &[u32], &[u16]) {
        (&self.starts, &self.docs, &self.impacts)
    }

    /// Lists of arrays that were taken apart before.
    pub(super) fn from_parts(starts: Vec<u32>, docs: Vec<u32>, impacts: Vec<u16>) -> Self {
        Self { long: LongLists::of(&starts, &docs), starts, docs, impacts }
    }

    /// The list of a term: documents in order, each with its impact.
    pub(super) fn list(&self, term: u32) -> List<'_> {
        let at = index(term);
        let (from, to) = match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(from), Some(to)) => (index(*from), index(*to)),
            _ => (0, 0),
        };
        List {
            docs: self.docs.get(from..to).unwrap_or(&[]),
            impacts: self.impacts.get(from..to).unwrap_or(&[]),
            bits: self.long.get(term),
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.starts.len() * 4 + self.docs.len() * 6 + self.long.bytes()
    }
}

/// The impact list of one term; the default has no documents.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct List<'a> {
    pub(super) docs: &'a [u32],
    /// An impact for each document.
    pub(super) impacts: &'a [u16],
    /// The same documents as a bitmap, if they are many.
    pub(super) bits: Option<Bits<'a>>,
}

impl List<'_> {
    /// Documents with their impacts as they are stored.
    pub(super) fn stored(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.docs.iter().copied().zip(self.impacts.iter().copied())
    }

    /// Takes all documents with their impacts from 0 to 1.
    pub(super) fn each(&self, mut take: impl FnMut(u32, f32)) {
        // Eight impacts at once: one by one, each waits for its division.
        let ((docs, more), (impacts, rest)) = (self.docs.as_chunks::<8>(), self.impacts.as_chunks::<8>());
        for (docs, impacts) in docs.iter().zip(impacts) {
            let mut shares = [0.0; 8];
            shares.iter_mut().zip(impacts).for_each(|(slot, impact)| *slot = share(*impact));
            docs.iter().zip(&shares).for_each(|(doc, impact)| take(*doc, *impact));
        }
        more.iter().zip(rest).for_each(|(doc, impact)| take(*doc, share(*impact)));
    }
}

/// A stored impact from 0 to 1.
#[inline]
pub(super) fn share(impact: u16) -> f32 {
    f32::from(impact) / IMPACT_STEPS
}

#[cfg(test)]
mod tests {
    use super::super::dictionary::Dictionary;
    use super::*;

    #[test]
    fn terms_are_found_again_and_lists_keep_their_documents() {
        let terms: Vec<String> = ["pull", "list", "éa", "lift"].map(str::to_owned).into();
        let (dictionary, renumber) = Dictionary::build(&terms);
        let entries = [(0, 0), (1, 0), (1, 1), (3, 2)].map(|(term, doc)| Entry { term, doc, impact: 0.5 });
        let postings = Postings::build(&entries, &renumber);
        let docs = |t: &str| dictionary.find(t).map(|no| postings.list(no).docs.to_vec());
        assert_eq!(
            (docs("list"), docs("pull"), docs("lift")),
            (Some(vec![0, 1]), Some(vec![0]), Some(vec![2]))
        );
        assert_eq!((docs("éa"), docs("lis"), docs("")), (Some(vec![]), None, None));
    }
}
