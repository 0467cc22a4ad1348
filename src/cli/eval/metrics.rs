//! The figures of retrieval: recall, reciprocal rank, nDCG, and a bootstrap interval of each.
//!
//! Pure: ranks in, figures out. A *group* is a set of ids of which any one serves; every group is wanted.

use serde::Serialize;

/// Draws of the bootstrap.
const DRAWS: usize = 1_000;
/// Where nDCG stops.
const DEPTH: usize = 10;

/// The figures of one query.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Scores([f64; 5]);

/// Names of the figures, in the order of [`Scores`].
pub(super) const NAMES: [&str; 5] = ["recall_at_1", "recall_at_5", "recall_at_10", "mrr", "ndcg_at_10"];

impl Scores {
    /// From the rank (from 0) at which each group was first met, `None` where it was not.
    pub(super) fn of(ranks: &[Option<usize>]) -> Self {
        let groups = float(ranks.len().max(1));
        let within = |k: usize| float(ranks.iter().flatten().filter(|r| **r < k).count()) / groups;
        let gain = |rank: usize| 1.0 / float(rank + 2).log2();
        let first = ranks.iter().flatten().min();
        let dcg: f64 = ranks.iter().flatten().filter(|r| **r < DEPTH).map(|r| gain(*r)).sum();
        let ideal: f64 = (0..ranks.len().min(DEPTH)).map(gain).sum();
        Self([
            within(1),
            within(5),
            within(10),
            first.map_or(0.0, |r| 1.0 / float(r + 1)),
            if ideal > 0.0 { dcg / ideal } else { 0.0 },
        ])
    }
}

fn float(n: usize) -> f64 {
    u32::try_from(n).map_or(f64::from(u32::MAX), f64::from)
}

/// A mean and its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Means and 95% intervals over queries, by drawing as many queries with replacement a thousand times.
/// The draws are the same every time, so that the same results give the same figures.
pub(super) fn figures(queries: &[Scores]) -> [Figure; 5] {
    let means = mean(queries.iter());
    let mut random = Random(0x0064_6f63_656e_7421);
    let draws: Vec<[f64; 5]> = (0..DRAWS)
        .map(|_| mean((0..queries.len()).filter_map(|_| queries.get(random.below(queries.len())))))
        .collect();
    std::array::from_fn(|i| {
        let at = |values: &[f64; 5]| values.get(i).copied().unwrap_or_default();
        let mut column: Vec<f64> = draws.iter().map(at).collect();
        column.sort_by(f64::total_cmp);
        let quantile = |n: usize| column.get(n).copied().unwrap_or_default();
        Figure { mean: at(&means), low: quantile(DRAWS / 40), high: quantile(DRAWS - 1 - DRAWS / 40) }
    })
}

fn mean<'a>(queries: impl Iterator<Item = &'a Scores>) -> [f64; 5] {
    let (mut sums, mut n) = ([0.0; 5], 0usize);
    for scores in queries {
        sums.iter_mut().zip(scores.0).for_each(|(sum, score)| *sum += score);
        n += 1;
    }
    sums.map(|s| s / float(n.max(1)))
}

/// `SplitMix64`: enough for draws, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let n = u64::try_from(n.max(1)).unwrap_or(u64::MAX);
        usize::try_from(z % n).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: [f64; 5], b: [f64; 5]) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} {b:?}");
    }

    #[test]
    fn one_query_is_scored_by_its_groups() {
        close(Scores::of(&[Some(0)]).0, [1.0; 5]);
        close(Scores::of(&[None]).0, [0.0; 5]);
        // Two groups, at ranks 2 and 8: DCG = 1/log2(3) + 1/log2(9), ideal = 1 + 1/log2(3).
        let ndcg = (1.0 / 3f64.log2() + 1.0 / 9f64.log2()) / (1.0 + 1.0 / 3f64.log2());
        close(Scores::of(&[Some(1), Some(7)]).0, [0.0, 0.5, 1.0, 0.5, ndcg]);
        // Behind the tenth place only the reciprocal rank counts.
        close(Scores::of(&[Some(19), None]).0, [0.0, 0.0, 0.0, 0.05, 0.0]);
    }

    #[test]
    fn intervals_hold_the_mean_and_are_the_same_every_time() {
        let queries: Vec<Scores> =
            (0..200).map(|i| Scores::of(&[if i % 4 == 0 { None } else { Some(0) }])).collect();
        let [recall, ..] = figures(&queries);
        assert!((recall.mean - 0.75).abs() < 1e-9);
        assert!(
            recall.low > 0.68 && recall.low < 0.73 && recall.high > 0.77 && recall.high < 0.82,
            "{recall:?}"
        );
        assert_eq!(figures(&queries), figures(&queries));
        assert_eq!(figures(&[])[0], Figure { mean: 0.0, low: 0.0, high: 0.0 });
    }
}
