//! How many slips of the pen lie between two words: letters too many, missing, wrong, or two in each other's place.

/// One word, to be compared with many.
#[derive(Debug)]
pub(super) struct Slips<'a> {
    word: &'a [char],
    other: Vec<char>,
}

impl<'a> Slips<'a> {
    pub(super) fn from(word: &'a [char]) -> Self {
        Self { word, other: Vec::new() }
    }

    /// The slips between the words if they are `limit` at most. Meant for one or two: each further one costs four times
    /// as much.
    pub(super) fn to(&mut self, other: &str, limit: usize) -> Option<usize> {
        self.other.clear();
        self.other.extend(other.chars());
        (0..=limit).find(|slips| within(self.word, &self.other, *slips))
    }
}

/// Whether so many slips at most lie between two words: where they part, each kind of slip is tried.
fn within(a: &[char], b: &[char], slips: usize) -> bool {
    if a.len().abs_diff(b.len()) > slips {
        return false;
    }
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (a.get(same..).unwrap_or_default(), b.get(same..).unwrap_or_default());
    let ([x, after_x @ ..], [y, after_y @ ..]) = (a, b) else { return a.len().max(b.len()) <= slips };
    let Some(left) = slips.checked_sub(1) else { return false };
    let swapped = || match (after_x, after_y) {
        ([x2, a @ ..], [y2, b @ ..]) => x == y2 && x2 == y && within(a, b, left),
        _ => false,
    };
    within(after_x, after_y, left) || within(after_x, b, left) || within(a, after_y, left) || swapped()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slips(a: &str, b: &str, limit: usize) -> Option<usize> {
        Slips::from(&a.chars().collect::<Vec<_>>()).to(b, limit)
    }

    /// The whole table, cell by cell.
    fn all_slips(a: &[char], b: &[char]) -> usize {
        let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                table[i][j] = if i == 0 || j == 0 {
                    i + j
                } else {
                    let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let mut best = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        best = best.min(table[i - 2][j - 2] + 1);
                    }
                    best
                };
            }
        }
        table[a.len()][b.len()]
    }

    proptest! {
        #[test]
        fn slips_are_those_of_the_whole_table(a in "[abé]{0,7}", b in "[abé]{0,7}", limit in 0usize..4) {
            let (x, y): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            let all = all_slips(&x, &y);
            prop_assert_eq!(slips(&a, &b, limit), Some(all).filter(|all| *all <= limit));
        }
    }

    #[test]
    fn slips_count_swaps_once() {
        assert_eq!(slips("reqeust", "request", 2), Some(1));
        assert_eq!(slips("isue", "issu", 1), None);
        assert_eq!(slips("isue", "issue", 1), Some(1));
        assert_eq!(slips("deploy", "deploy", 0), Some(0));
        assert_eq!(slips("weather", "w", 2), None);
    }
}
