//! The tools that an asker may see, as scoring takes them: what is not in the view is not counted.

use super::num::count;
use super::postings::{List, share};
use crate::catalog::ToolSet;
use crate::id::ToolNo;

/// A view is small below one tool in so many: only what a list shares with it is looked at then. In a larger one it is
/// cheaper to add up whole lists and to leave unread what is not visible.
const SMALL_SHARE: usize = 4;

/// The visible tools and how many they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) set: &'a ToolSet,
    pub(super) count: usize,
}

impl<'a> View<'a> {
    pub(super) fn of(set: &'a ToolSet) -> Self {
        Self { set, count: set.count() }
    }

    /// Whether every tool is visible.
    pub(super) fn is_all(&self) -> bool {
        self.count == self.set.capacity()
    }

    pub(super) fn is_small(&self) -> bool {
        self.count.saturating_mul(SMALL_SHARE) < self.set.capacity()
    }

    fn sees(&self, doc: u32) -> bool {
        self.set.contains(ToolNo(doc))
    }

    /// How many of a list's documents are visible.
    pub(super) fn frequency(&self, list: List<'_>) -> usize {
        if self.is_all() {
            return list.docs.len();
        }
        match list.bits {
            Some(bits) => bits.count(self.set),
            None => list.docs.iter().filter(|doc| self.sees(**doc)).count(),
        }
    }

    /// The visible entries of a list, in order.
    pub(super) fn each(&self, list: List<'_>, mut take: impl FnMut(u32, f32)) {
        if self.is_all() {
            return list.each(take);
        }
        match list.bits.filter(|_| self.is_small()) {
            Some(bits) => bits.each(self.set, |doc, place| {
                if let Some(impact) = list.impacts.get(place) {
                    take(doc, share(*impact));
                }
            }),
            None => {
                let visible = list.stored().filter(|(doc, _)| self.sees(*doc));
                visible.for_each(|(doc, impact)| take(doc, share(impact)));
            }
        }
    }

    /// The visible entries of a list and, in a view that is not small, others among them: for sums of which only those
    /// of visible tools are read.
    pub(super) fn each_or_more(&self, list: List<'_>, take: impl FnMut(u32, f32)) {
        if self.is_small() { self.each(list, take) } else { list.each(take) }
    }

    /// The greatest of the visible tools' numbers, 0 where none is greater.
    pub(super) fn greatest(&self, of: &[f32]) -> f32 {
        let greater = |a: f32, b: f32| if b > a { b } else { a };
        if !self.is_all() {
            let visible = self.set.iter().filter_map(|tool| of.get(tool.index()));
            return visible.fold(0.0, |top, value| greater(top, *value));
        }
        // Eight at once: a chain of comparisons waits for each.
        let (eights, rest) = of.as_chunks::<8>();
        let mut tops = [0.0; 8];
        for eight in eights {
            tops.iter_mut().zip(eight).for_each(|(top, value)| *top = greater(*top, *value));
        }
        tops.iter().chain(rest).fold(0.0, |top, value| greater(top, *value))
    }

    /// BM25's inverse document frequency among the visible tools.
    pub(super) fn rarity(&self, frequency: usize) -> f32 {
        let (all, with) = (count(self.count), count(frequency));
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }
}
