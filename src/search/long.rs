//! Long impact lists as bitmaps: what a list shares with a small set of tools is found by words of 64 documents, not
//! entry by entry. It knows nothing of impacts, weights or callers.

use super::num::{index, number};
use crate::catalog::ToolSet;

/// A list is long where one document in so many or more stands in it: its bitmap takes no more memory than the numbers
/// of its documents then.
const DOCUMENTS_PER_ENTRY_MAX: usize = 32;
/// Entries of a long list at least: fewer are looked through at once.
const ENTRIES_MIN: usize = 64;
/// Documents of one word.
const WORD: usize = 64;

/// The bitmaps of all long lists of some [`super::postings::Postings`].
#[derive(Debug, Default)]
pub(super) struct LongLists {
    /// The long lists by number, in order.
    lists: Vec<u32>,
    /// Words of each bitmap.
    width: usize,
    /// The bitmaps, one after the other.
    words: Vec<u64>,
    /// For each word how many entries of its list stand before it.
    before: Vec<u32>,
}

impl LongLists {
    /// Finds the long ones among lists of documents in order; `starts` says where each begins, and where the last ends.
    pub(super) fn of(starts: &[u32], docs: &[u32]) -> Self {
        let documents = docs.iter().max().map_or(0, |last| index(*last) + 1);
        let mut out = Self { width: documents.div_ceil(WORD), ..Self::default() };
        for (no, bounds) in (0u32..).zip(starts.windows(2)) {
            let [from, to] = bounds else { continue };
            let list = docs.get(index(*from)..index(*to)).unwrap_or_default();
            if list.len() >= ENTRIES_MIN && list.len().saturating_mul(DOCUMENTS_PER_ENTRY_MAX) >= documents {
                out.lists.push(no);
                out.add(list);
            }
        }
        out
    }

    fn add(&mut self, list: &[u32]) {
        let from = self.words.len();
        self.words.resize(from + self.width, 0);
        let words = self.words.get_mut(from..).unwrap_or_default();
        for doc in list {
            if let Some(word) = words.get_mut(index(*doc) / WORD) {
                *word |= 1 << (index(*doc) % WORD);
            }
        }
        let mut before = 0u32;
        for word in words {
            self.before.push(before);
            before += word.count_ones();
        }
    }

    /// The bitmap of a list, if it is long.
    pub(super) fn get(&self, list: u32) -> Option<Bits<'_>> {
        let from = self.lists.binary_search(&list).ok()? * self.width;
        let words = self.words.get(from..from + self.width)?;
        Some(Bits { words, before: self.before.get(from..from + self.width)? })
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.lists.len() * 4 + self.words.len() * 12
    }
}

/// Which documents stand in one long list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits<'a> {
    words: &'a [u64],
    before: &'a [u32],
}

impl Bits<'_> {
    /// How many documents of the list are in the set.
    pub(super) fn count(&self, set: &ToolSet) -> usize {
        // Wrapping, for speed only: a check of each sum keeps the compiler from taking several words at once.
        let shared = self.words.iter().zip(set.words()).map(|(own, other)| (own & other).count_ones());
        index(shared.fold(0, u32::wrapping_add))
    }

    /// Each document of the list that is in the set, in order, with its place in the list.
    pub(super) fn each(&self, set: &ToolSet, mut take: impl FnMut(u32, usize)) {
        let words = self.words.iter().zip(self.before).zip(set.words());
        for (at, ((own, before), other)) in words.enumerate() {
            let mut rest = own & other;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                let earlier = own & (1u64.unbounded_shl(bit).wrapping_sub(1));
                take(number(at * WORD) | bit, index(before.wrapping_add(earlier.count_ones())));
                rest &= rest.wrapping_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::id::ToolNo;

    proptest! {
        #[test]
        fn a_long_list_shares_what_its_documents_share(
            list in prop::collection::btree_set(0u32..700, 60..200),
            seen in prop::collection::btree_set(0u32..700, 0..90),
        ) {
            let docs: Vec<u32> = list.iter().copied().collect();
            let long = LongLists::of(&[0, 0, number(docs.len())], &docs);
            prop_assert!(long.get(0).is_none());
            prop_assert_eq!(long.get(1).is_some(), docs.len() >= ENTRIES_MIN);
            let mut set = ToolSet::none(700);
            for doc in &seen {
                set.insert(ToolNo(*doc));
            }
            if let Some(bits) = long.get(1) {
                let mut shared = BTreeSet::new();
                bits.each(&set, |doc, place| {
                    assert_eq!(docs.get(place), Some(&doc));
                    shared.insert(doc);
                });
                prop_assert_eq!(bits.count(&set), shared.len());
                prop_assert_eq!(shared, &list & &seen);
            }
        }
    }

    #[test]
    fn a_list_that_holds_few_of_many_documents_is_not_long() {
        let few: Vec<u32> = (0..64).chain([9_999]).collect();
        assert!(LongLists::of(&[0, 65], &few).get(0).is_none());
        assert_eq!(LongLists::of(&[0], &[]).bytes(), 0);
    }
}
