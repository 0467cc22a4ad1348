//! The terms of an index in order, each with its number. It knows nothing of lists.

use super::num::{index, number};

/// Terms in order, in one allocation.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    text: String,
    ends: Vec<u32>,
    /// The first bytes of each term as a number: nearly every comparison of a look-up is one of numbers.
    heads: Vec<u64>,
    /// The first head of each block: a look-up takes what stands close together.
    blocks: Vec<u64>,
    /// Which letters each term has: most terms are no neighbours of a word, told by one comparison.
    letters: Vec<u32>,
    /// Characters of each term.
    lengths: Vec<u8>,
}

/// Terms of a block: their heads are a few lines of the processor's cache.
const BLOCK: usize = 64;
/// Terms whose letters are compared at once.
const AT_ONCE: usize = 16;

/// Which letters occur, a bit each (letters beyond a to z share bits).
pub(super) fn letter_set(letters: impl Iterator<Item = char>) -> u32 {
    letters.fold(0, |set, c| set | 1 << (u32::from(c) % 32))
}

/// The first eight bytes as a number; numbers are in the order of their texts, equal ones say nothing.
fn head(text: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(text.bytes()).for_each(|(slot, byte)| *slot = byte);
    u64::from_be_bytes(bytes)
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
        self.note(head(term), letter_set(term.chars()), term.chars().count());
    }

    fn note(&mut self, head: u64, letters: u32, length: usize) {
        if self.heads.len().is_multiple_of(BLOCK) {
            self.blocks.push(head);
        }
        self.heads.push(head);
        self.letters.push(letters);
        self.lengths.push(u8::try_from(length).unwrap_or(u8::MAX));
    }

    /// The text of all terms and where each ends, for [`Dictionary::from_parts`].
    pub(super) fn parts(&self) -> (&str, &[u32]) {
        (&self.text, &self.ends)
    }

    /// A dictionary that was taken apart before.
    pub(super) fn from_parts(text: String, ends: Vec<u32>) -> Self {
        let mut out = Self { text, ends, ..Self::default() };
        for no in 0..out.len() {
            let term = out.term(no);
            let (head, letters, length) = (head(term), letter_set(term.chars()), term.chars().count());
            out.note(head, letters, length);
        }
        out
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
        let head = head(text);
        // The last block that begins before the head, since its end may be the first that does not.
        let from = self.blocks.partition_point(|first| *first < head).saturating_sub(1) * BLOCK;
        let block = self.heads.get(from..).unwrap_or_default();
        let block = block.get(..BLOCK).unwrap_or(block);
        let mut low = from + block.partition_point(|other| *other < head);
        let alike = self.heads.get(low..).unwrap_or_default();
        if alike.first() != Some(&head) {
            return low;
        }
        let mut high = low + alike.iter().take_while(|other| **other == head).count();
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
    fn beginning_with(&self, first: char) -> std::ops::Range<usize> {
        let next = char::from_u32(u32::from(first) + 1).unwrap_or(char::MAX);
        self.lower_bound(first.encode_utf8(&mut [0; 4]))..self.lower_bound(next.encode_utf8(&mut [0; 4]))
    }

    /// The numbers of the terms that begin like the word and may be it with so many slips; most of them are not.
    pub(super) fn alike(&self, word: &[char], slips: usize) -> Vec<usize> {
        let Some(first) = word.first() else { return Vec::new() };
        let (range, wanted) = (self.beginning_with(*first), letter_set(word.iter().copied()));
        // A slip changes the set of letters by two at most.
        let most = u32::try_from(slips.saturating_mul(2)).unwrap_or(u32::MAX);
        let near = |other: &u32| (wanted ^ other).count_ones() <= most;
        let long = |no: &usize| {
            let length = self.lengths.get(*no).map_or(0, |length| usize::from(*length));
            length.abs_diff(word.len()) <= slips
        };
        let letters = self.letters.get(range.clone()).unwrap_or_default();
        let mut out = Vec::new();
        for (from, some) in range.step_by(AT_ONCE).zip(letters.chunks(AT_ONCE)) {
            // All first, without looking at which: hardly any is near.
            if some.iter().fold(false, |any, other| any | near(other)) {
                let found = (from..).zip(some).filter(|(_, other)| near(other)).map(|(no, _)| no);
                out.extend(found.filter(long));
            }
        }
        out
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.ends.len() * 17
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_term_is_found_and_nothing_else(terms in prop::collection::btree_set("[a-c]{0,10}|[é天]{1,3}|aaaaaaaa[ab]{0,6}", 0..300), other in "[a-c]{0,11}|aaaaaaaa[ab]{0,6}") {
            let dictionary = Dictionary::of_sorted(terms.iter().map(String::as_str));
            for (no, term) in terms.iter().enumerate() {
                prop_assert_eq!(dictionary.find(term), Some(number(no)));
            }
            prop_assert_eq!(dictionary.find(&other).is_some(), terms.contains(&other));
            let before: BTreeSet<&String> = terms.iter().filter(|term| **term < other).collect();
            prop_assert_eq!(dictionary.lower_bound(&other), before.len());
        }
    }

    #[test]
    fn words_that_may_be_a_slip_away_begin_alike_and_have_about_the_letters() {
        let words = ["deploy", "deployment", "depot", "diploma", "employ"];
        let dictionary = Dictionary::of_sorted(words.into_iter());
        let alike = |word: &str, slips| {
            let found = dictionary.alike(&word.chars().collect::<Vec<_>>(), slips);
            found.into_iter().map(|no| words[no]).collect::<Vec<_>>()
        };
        assert_eq!(alike("deplyo", 2), ["deploy", "depot"]);
        assert_eq!(alike("deplyo", 1), ["deploy"]);
        assert_eq!(alike("", 2), [""; 0]);
        let many: Vec<String> = ('a'..='z').map(|c| format!("x{c}")).collect();
        let many = Dictionary::of_sorted(many.iter().map(String::as_str));
        assert_eq!(many.alike(&['x', 'v'], 0), [21], "past those that are compared at once");
    }
}
