//! Impact lists: for each term the tools that hold it and how much it says about them.
//!
//! An impact is a tool's own (term frequency over fields, saturated); rarity is not in it, because rarity
//! depends on which tools the asker may see.

use super::num::{IMPACT_STEPS, index, number, quantize};
use crate::catalog::ToolSet;
use crate::id::ToolNo;

/// Impact lists of a set of terms numbered from 0.
#[derive(Debug, Default)]
pub(super) struct Postings {
    /// Where each term's list begins; one more at the end.
    starts: Vec<u32>,
    docs: Vec<u32>,
    impacts: Vec<u16>,
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
        Self { starts, docs, impacts }
    }

    /// No lists, with room for so many entries.
    pub(super) fn empty(entries: usize) -> Self {
        Self { starts: vec![0], docs: Vec::with_capacity(entries), impacts: Vec::with_capacity(entries) }
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
        Self { starts, docs, impacts }
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
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.starts.len() * 4 + self.docs.len() * 6
    }
}

/// The impact list of one term.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) docs: &'a [u32],
    impacts: &'a [u16],
}

impl List<'_> {
    /// Documents with their impacts as they are stored.
    pub(super) fn stored(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.docs.iter().copied().zip(self.impacts.iter().copied())
    }

    /// Puts the entries of visible documents into `out`, in place of what is there. Without branches on what is
    /// visible: of a list of thousands any part may be, and a wrong guess costs more than a write.
    pub(super) fn visible(&self, set: &ToolSet, out: &mut Vec<(u32, f32)>) {
        out.clear();
        out.resize(self.docs.len(), (0, 0.0));
        let mut at = 0;
        for entry in self.iter() {
            if let Some(slot) = out.get_mut(at) {
                *slot = entry;
            }
            at += usize::from(set.contains(ToolNo(entry.0)));
        }
        out.truncate(at);
    }

    /// Documents with their impacts from 0 to 1.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, f32)> + '_ {
        self.docs.iter().zip(self.impacts).map(|(doc, impact)| (*doc, f32::from(*impact) / IMPACT_STEPS))
    }
}

/// Terms in order, in one allocation.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    text: String,
    ends: Vec<u32>,
    /// Which letters each term has: most terms are no neighbours of a word, told by one comparison.
    letters: Vec<u32>,
}

/// Which letters occur, a bit each (letters beyond a to z share bits).
pub(super) fn letter_set(letters: impl Iterator<Item = char>) -> u32 {
    letters.fold(0, |set, c| set | 1 << (u32::from(c) % 32))
}

impl Dictionary {
    /// Sorts the terms; gives the dictionary and each given term's number in it.
    pub(super) fn build(terms: &[String]) -> (Self, Vec<u32>) {
        let mut order: Vec<(&String, u32)> = terms.iter().zip((0u32..).by_ref()).collect();
        order.sort_unstable();
        let mut renumber = vec![0u32; terms.len()];
        let mut out = Self::default();
        out.text.reserve(terms.iter().map(String::len).sum());
        for (at, (term, given)) in order.iter().enumerate() {
            out.push(term);
            if let Some(slot) = renumber.get_mut(index(*given)) {
                *slot = number(at);
            }
        }
        (out, renumber)
    }

    /// A dictionary of terms that are already in order.
    pub(super) fn of_sorted<'a>(terms: impl Iterator<Item = &'a str>) -> Self {
        let mut out = Self::default();
        terms.for_each(|term| out.push(term));
        out
    }

    fn push(&mut self, term: &str) {
        self.text.push_str(term);
        self.ends.push(number(self.text.len()));
        self.letters.push(letter_set(term.chars()));
    }

    /// The text of all terms and where each ends, for [`Dictionary::from_parts`].
    pub(super) fn parts(&self) -> (&str, &[u32]) {
        (&self.text, &self.ends)
    }

    /// A dictionary that was taken apart before.
    pub(super) fn from_parts(text: String, ends: Vec<u32>) -> Self {
        let mut out = Self { text, ends, letters: Vec::new() };
        out.letters = (0..out.len()).map(|no| letter_set(out.term(no).chars())).collect();
        out
    }

    /// The letters of a term by number, see [`letter_set`].
    pub(super) fn letters(&self, no: usize) -> u32 {
        self.letters.get(no).copied().unwrap_or(0)
    }

    /// How many terms.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A term by number.
    pub(super) fn term(&self, no: usize) -> &str {
        let from = no.checked_sub(1).and_then(|p| self.ends.get(p)).map_or(0, |e| index(*e));
        let to = self.ends.get(no).map_or(from, |e| index(*e));
        self.text.get(from..to).unwrap_or("")
    }

    /// The number of the first term that is not less than `text`.
    fn lower_bound(&self, text: &str) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.term(middle) < text { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The number of a term.
    pub(super) fn find(&self, term: &str) -> Option<u32> {
        let at = self.lower_bound(term);
        (at < self.len() && self.term(at) == term).then(|| number(at))
    }

    /// The numbers of the terms that begin with a character.
    pub(super) fn beginning_with(&self, first: char) -> std::ops::Range<usize> {
        let next = char::from_u32(u32::from(first) + 1).unwrap_or(char::MAX);
        self.lower_bound(first.encode_utf8(&mut [0; 4]))..self.lower_bound(next.encode_utf8(&mut [0; 4]))
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.ends.len() * 8
    }
}

#[cfg(test)]
mod tests {
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
        let near: Vec<&str> = dictionary.beginning_with('l').map(|n| dictionary.term(n)).collect();
        assert_eq!(near, ["lift", "list"]);
    }
}
