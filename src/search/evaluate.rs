//! How good answers are: recall, MRR and nDCG on labelled questions, with bootstrap intervals.
//!
//! Pure: it takes ranked ids and judgements and knows neither the index nor files. `docent eval` and the
//! quality gate use it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Draws of the bootstrap.
pub const BOOTSTRAP_DRAWS: usize = 1_000;
/// Ranks that nDCG looks at.
const RANKS: usize = 10;
/// Names of the figures, in the order of [`Metrics::values`].
pub const NAMES: [&str; 5] = ["recall_at_1", "recall_at_5", "recall_at_10", "mrr", "ndcg_at_10"];

/// A labelled question: one line of a judgements file.
#[derive(Debug, Clone, Deserialize)]
pub struct Judgement {
    /// Names the question.
    pub qid: String,
    /// The set it belongs to; all in one where nothing is said.
    #[serde(default)]
    pub set: String,
    /// The question.
    pub query: String,
    /// What is wanted: every group, of each group any one id.
    pub groups: Vec<Vec<String>>,
    /// Its style, for reports by style.
    #[serde(default)]
    pub kind: String,
}

/// Figures of one question or means over many, each 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Metrics {
    /// Share of groups found at rank 1.
    pub recall_at_1: f64,
    /// The same in the first five.
    pub recall_at_5: f64,
    /// The same in the first ten.
    pub recall_at_10: f64,
    /// One over the rank of the first right tool, however late it comes; 0 if it does not.
    pub mrr: f64,
    /// Gain of each group at its first member, discounted by rank, over the best possible.
    pub ndcg_at_10: f64,
}

impl Metrics {
    /// The figures in the order of [`NAMES`].
    pub fn values(&self) -> [f64; 5] {
        [self.recall_at_1, self.recall_at_5, self.recall_at_10, self.mrr, self.ndcg_at_10]
    }

    fn of(values: [f64; 5]) -> Self {
        let [recall_at_1, recall_at_5, recall_at_10, mrr, ndcg_at_10] = values;
        Self { recall_at_1, recall_at_5, recall_at_10, mrr, ndcg_at_10 }
    }
}

/// A 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Interval {
    /// 2.5 % of the draws lie below.
    pub low: f64,
    /// 2.5 % of the draws lie above.
    pub high: f64,
}

/// Intervals of the figures, in the order of [`NAMES`].
pub type Intervals = [Interval; 5];

/// What one set of questions gave.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SetReport {
    /// How many questions.
    pub queries: usize,
    /// Means.
    pub metrics: Metrics,
    /// Their intervals.
    pub intervals: Intervals,
}

/// What all questions gave: means over the questions, and over the sets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// All questions as one set.
    pub all: SetReport,
    /// Plain means over the sets, so that a large set does not drown a small one.
    pub mean_of_sets: Metrics,
    /// Each set.
    pub per_set: BTreeMap<String, SetReport>,
}

/// The figures of one question: its groups against the ids found, best first.
pub fn metrics(groups: &[Vec<String>], ranked: &[&str]) -> Metrics {
    let ranks: Vec<Option<usize>> =
        groups.iter().map(|group| ranked.iter().position(|id| group.iter().any(|g| g == id))).collect();
    if ranks.is_empty() {
        return Metrics::default();
    }
    let share = |k: usize| float(ranks.iter().flatten().filter(|r| **r < k).count()) / float(ranks.len());
    let gain = |rank: usize| 1.0 / (float(rank) + 2.0).log2();
    let best: f64 = (0..ranks.len().min(RANKS)).map(gain).sum();
    Metrics {
        recall_at_1: share(1),
        recall_at_5: share(5),
        recall_at_10: share(10),
        mrr: ranks.iter().flatten().min().map_or(0.0, |r| 1.0 / (float(*r) + 1.0)),
        ndcg_at_10: ranks.iter().flatten().filter(|r| **r < RANKS).map(|r| gain(*r)).sum::<f64>() / best,
    }
}

/// Means and intervals over questions, each with the name of its set.
pub fn report(results: &[(String, Metrics)]) -> Report {
    let mut sets: BTreeMap<String, Vec<Metrics>> = BTreeMap::new();
    for (set, metrics) in results {
        sets.entry(set.clone()).or_default().push(*metrics);
    }
    let per_set: BTreeMap<String, SetReport> = sets.into_iter().map(|(k, v)| (k, set_report(&v))).collect();
    let of_sets: Vec<Metrics> = per_set.values().map(|s| s.metrics).collect();
    let all = set_report(&results.iter().map(|(_, m)| *m).collect::<Vec<_>>());
    Report { all, mean_of_sets: mean(&of_sets), per_set }
}

fn set_report(all: &[Metrics]) -> SetReport {
    SetReport { queries: all.len(), metrics: mean(all), intervals: intervals(all) }
}

fn mean(all: &[Metrics]) -> Metrics {
    let mut sums = [0.0; 5];
    for metrics in all {
        sums.iter_mut().zip(metrics.values()).for_each(|(sum, value)| *sum += value);
    }
    Metrics::of(sums.map(|sum| sum / float(all.len().max(1))))
}

/// Bootstrap over questions with a fixed seed: the same input gives the same interval.
fn intervals(all: &[Metrics]) -> Intervals {
    let mut random = Random(0x5eed);
    let mut draws: Vec<[f64; 5]> = Vec::with_capacity(BOOTSTRAP_DRAWS);
    for _ in 0..BOOTSTRAP_DRAWS {
        let drawn: Vec<Metrics> =
            (0..all.len()).filter_map(|_| all.get(random.below(all.len())).copied()).collect();
        draws.push(mean(&drawn).values());
    }
    std::array::from_fn(|figure| {
        let mut values: Vec<f64> = draws.iter().filter_map(|draw| draw.get(figure).copied()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |k: usize| values.get(k).copied().unwrap_or(0.0);
        Interval { low: at(BOOTSTRAP_DRAWS / 40), high: at(BOOTSTRAP_DRAWS - 1 - BOOTSTRAP_DRAWS / 40) }
    })
}

/// `SplitMix64` (Steele, Lea, Flood 2014): small, seeded, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        let wide = u128::from(self.next()) * u128::try_from(n).unwrap_or(0);
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "counts of questions and ranks are small"
)]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|i| (*i).to_owned()).collect()
    }

    #[test]
    fn a_group_is_found_when_any_of_its_ids_is() {
        let groups = [group(&["a", "b"]), group(&["c"])];
        let m = metrics(&groups, &["b", "x", "c"]);
        assert_eq!((m.recall_at_1, m.recall_at_5, m.mrr), (0.5, 1.0, 1.0));
        let best = 1.0 + 1.0 / 3f64.log2();
        assert!((m.ndcg_at_10 - (1.0 + 0.5) / best).abs() < 1e-12);
        let late = metrics(&groups, &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a"]);
        assert_eq!((late.recall_at_10, late.mrr, late.ndcg_at_10), (0.0, 1.0 / 11.0, 0.0));
    }

    #[test]
    fn the_mean_of_sets_weighs_each_set_the_same() {
        let (hit, miss) = (metrics(&[group(&["a"])], &["a"]), metrics(&[group(&["a"])], &["b"]));
        let results = [("s", hit), ("l", miss), ("l", miss), ("l", hit)].map(|(s, m)| (s.to_owned(), m));
        let report = report(&results);
        assert!((report.all.metrics.recall_at_1 - 0.5).abs() < 1e-12);
        assert!((report.mean_of_sets.recall_at_1 - 2.0 / 3.0).abs() < 1e-12);
        let [recall, ..] = report.per_set["l"].intervals;
        assert!(
            recall.low <= 1.0 / 3.0 && recall.high >= 1.0 / 3.0 && recall.low < recall.high,
            "{recall:?}"
        );
        assert_eq!(super::report(&results), report, "the same input gives the same intervals");
    }
}
