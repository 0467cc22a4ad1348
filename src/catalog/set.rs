//! A set of tools as a bitmap over the dense numbers of one generation.

use crate::id::ToolNo;

const WORD_BITS: usize = 64;

/// A set of tools of one generation: 10,000 tools take 1.25 KB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSet {
    words: Vec<u64>,
    len: usize,
}

impl ToolSet {
    /// No tool of a catalog of `len` tools.
    pub fn none(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(WORD_BITS)], len }
    }

    /// Every tool of a catalog of `len` tools.
    pub fn all(len: usize) -> Self {
        let mut set = Self { words: vec![u64::MAX; len.div_ceil(WORD_BITS)], len };
        set.trim();
        set
    }

    /// Clears the bits beyond the last tool.
    fn trim(&mut self) {
        let rest = self.len % WORD_BITS;
        if rest > 0
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1 << rest) - 1;
        }
    }

    /// How many tools the catalog has, in the set or not.
    pub fn capacity(&self) -> usize {
        self.len
    }

    /// Adds a tool.
    pub fn insert(&mut self, tool: ToolNo) {
        let i = tool.index();
        if i < self.len
            && let Some(word) = self.words.get_mut(i / WORD_BITS)
        {
            *word |= 1 << (i % WORD_BITS);
        }
    }

    /// Takes a tool out.
    pub fn remove(&mut self, tool: ToolNo) {
        let i = tool.index();
        if let Some(word) = self.words.get_mut(i / WORD_BITS) {
            *word &= !(1 << (i % WORD_BITS));
        }
    }

    /// Whether a tool is in the set.
    pub fn contains(&self, tool: ToolNo) -> bool {
        let i = tool.index();
        self.words.get(i / WORD_BITS).is_some_and(|w| w & (1 << (i % WORD_BITS)) != 0)
    }

    /// How many tools are in the set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| usize::try_from(w.count_ones()).unwrap_or(0)).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// The tools in order.
    pub fn iter(&self) -> impl Iterator<Item = ToolNo> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = usize::try_from(rest.trailing_zeros()).unwrap_or(0);
                    rest &= rest - 1;
                    ToolNo(u32::try_from(at * WORD_BITS + bit).unwrap_or(u32::MAX))
                })
            })
        })
    }

    /// Keeps what is in both.
    pub fn intersect(&mut self, other: &Self) {
        self.words.iter_mut().zip(other.words.iter().chain(std::iter::repeat(&0))).for_each(|(a, b)| *a &= b);
    }

    /// Adds all of the other.
    pub fn union(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
    }

    /// Takes out all of the other.
    pub fn subtract(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
    }

    /// The words of the bitmap, lowest tool first: for hashing and for word-wise algebra.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of(len: usize, items: &BTreeSet<u32>) -> ToolSet {
        let mut set = ToolSet::none(len);
        for item in items {
            set.insert(ToolNo(*item));
        }
        set
    }

    proptest! {
        #[test]
        fn a_tool_set_is_a_set(a in prop::collection::btree_set(0u32..200, 0..80), b in prop::collection::btree_set(0u32..200, 0..80)) {
            let list = |s: &ToolSet| s.iter().map(|t| t.0).collect::<BTreeSet<_>>();
            let (sa, sb) = (of(200, &a), of(200, &b));
            prop_assert_eq!(list(&sa), a.clone());
            prop_assert_eq!(sa.count(), a.len());
            let (mut i, mut u, mut d) = (sa.clone(), sa.clone(), sa.clone());
            i.intersect(&sb);
            u.union(&sb);
            d.subtract(&sb);
            prop_assert_eq!(list(&i), &a & &b);
            prop_assert_eq!(list(&u), &a | &b);
            prop_assert_eq!(list(&d), &a - &b);
        }
    }

    #[test]
    fn all_ends_at_the_last_tool() {
        assert_eq!(
            (ToolSet::all(70).count(), ToolSet::all(64).count(), ToolSet::all(0).count()),
            (70, 64, 0)
        );
        assert!(!ToolSet::all(70).contains(ToolNo(70)));
    }
}
