//! The arithmetic of the encoder: multiplication, layer norm, GELU, softmax, rounding.
//!
//! Written so that the compiler takes several numbers at once: sums are kept in lanes, nothing in the loops branches or
//! calls. Floats throughout: on processors of any age they are as fast here as rounded weights, and nothing is lost.

use super::super::num::count;

/// Sums that are kept apart, so that many numbers are added at once.
const LANES: usize = 8;
/// Rows of weights that are added to a result at once.
const ROWS: usize = 4;

/// A table of rows to be looked up in, in 16 bits with a step per row: half the memory, and nothing lost that shows.
#[derive(Debug, Default)]
pub(super) struct Table {
    width: usize,
    numbers: Vec<i16>,
    /// What a number of each row stands for.
    steps: Vec<f32>,
}

impl Table {
    /// A table of rows of `width` numbers.
    pub(super) fn new(rows: &[f32], width: usize) -> Self {
        let mut out = Self { width, numbers: Vec::with_capacity(rows.len()), steps: Vec::new() };
        for row in rows.chunks_exact(width) {
            let (step, per_step) = step_of(row, f32::from(i16::MAX));
            out.steps.push(step);
            out.numbers.extend(row.iter().map(|x| nearest(x * per_step)));
        }
        out
    }

    /// A row.
    pub(super) fn row(&self, no: usize) -> Option<impl Iterator<Item = f32>> {
        let begin = no.checked_mul(self.width)?;
        let row = self.numbers.get(begin..begin.checked_add(self.width)?)?;
        let step = *self.steps.get(no)?;
        Some(row.iter().map(move |x| f32::from(*x) * step))
    }
}

/// What one of `most` steps to the largest number of a row stands for, and how many steps one is.
fn step_of(row: &[f32], most: f32) -> (f32, f32) {
    let top = row.iter().fold(0.0f32, |top, x| top.max(x.abs()));
    if top > f32::MIN_POSITIVE { (top / most, most / top) } else { (0.0, 0.0) }
}

/// A vector in 8-bit components, and what a step of them stands for.
pub(super) fn eighths(vector: &[f32]) -> (Vec<i8>, f32) {
    let (step, per_step) = step_of(vector, f32::from(i8::MAX));
    let component = |x: &f32| i8::try_from(nearest(x * per_step)).unwrap_or(i8::MAX);
    (vector.iter().map(component).collect(), step)
}

/// The sum of products of 8-bit components.
pub(super) fn dot_eighths(a: &[i8], b: &[i8]) -> f32 {
    // Wrapping, for speed only: a check of each sum keeps the compiler from taking many components at once, and this
    // runs once per visible tool. A product fits 16 bits, the sum of 1,024 of them 32.
    let product = |(x, y): (&i8, &i8)| i32::from(i16::from(*x).wrapping_mul(i16::from(*y)));
    whole(a.iter().zip(b).map(product).fold(0i32, i32::wrapping_add))
}

/// A linear layer: `weights · x + bias`.
#[derive(Debug)]
pub(super) struct Linear {
    /// One row for each number of a value, so that a row is added to a whole result at once.
    columns: Vec<f32>,
    bias: Vec<f32>,
    width: usize,
}

impl Linear {
    /// `weights`: one row of `width` numbers for each number of the result.
    pub(super) fn new(weights: &[f32], bias: Vec<f32>, width: usize) -> Self {
        let column = |no: usize| weights.iter().skip(no).step_by(width);
        Self { columns: (0..width).flat_map(column).copied().collect(), bias, width }
    }

    /// The result for each row of values, row after row.
    pub(super) fn apply(&self, values: &[f32], out: &mut Vec<f32>) {
        let (height, values) = (self.bias.len(), values.chunks_exact(self.width));
        out.clear();
        values.clone().for_each(|_| out.extend(&self.bias));
        // The rows of weights are fetched once for all values, and some at a time for each.
        let several = self.columns.chunks_exact(height * ROWS);
        let last = several.remainder();
        for (at, rows) in several.enumerate() {
            for (value, result) in values.clone().zip(out.chunks_exact_mut(height)) {
                let Some(factors) = value.as_chunks::<ROWS>().0.get(at) else { return };
                add_rows(result, rows, *factors);
            }
        }
        for (value, result) in values.zip(out.chunks_exact_mut(height)) {
            for (row, factor) in last.chunks_exact(height).zip(value.as_chunks::<ROWS>().1) {
                add_scaled(result, row, *factor);
            }
        }
    }
}

/// Adds multiples of [`ROWS`] rows that stand one after the other.
fn add_rows(to: &mut [f32], rows: &[f32], factors: [f32; ROWS]) {
    let mut rows = rows.chunks_exact(to.len());
    let mut row = || rows.next().unwrap_or_default();
    let (a, b, c, d) = (row(), row(), row(), row());
    let [fa, fb, fc, fd] = factors;
    for ((((to, a), b), c), d) in to.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *to += a * fa + b * fb + c * fc + d * fd;
    }
}

/// The sum of products of floats, several at once.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, x), y) in sums.iter_mut().zip(a).zip(b) {
            *sum += x * y;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f32>() + rest
}

/// Adds a multiple of one row to another.
pub(super) fn add_scaled(to: &mut [f32], row: &[f32], factor: f32) {
    for (to, x) in to.iter_mut().zip(row) {
        *to += x * factor;
    }
}

/// Layer norm (Ba et al. 2016) of each row in place.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) scale: Vec<f32>,
    pub(super) shift: Vec<f32>,
    pub(super) epsilon: f32,
}

impl Norm {
    /// Norms every row.
    pub(super) fn apply(&self, rows: &mut [f32]) {
        let width = count(self.scale.len());
        for row in rows.chunks_exact_mut(self.scale.len()) {
            let mean = sum(row) / width;
            for x in row.iter_mut() {
                *x -= mean;
            }
            let spread = 1.0 / (dot(row, row) / width + self.epsilon).sqrt();
            for ((x, scale), shift) in row.iter_mut().zip(&self.scale).zip(&self.shift) {
                *x = *x * spread * scale + shift;
            }
        }
    }
}

fn sum(row: &[f32]) -> f32 {
    let (groups, rest) = row.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for group in groups {
        sums.iter_mut().zip(group).for_each(|(sum, x)| *sum += x);
    }
    sums.iter().chain(rest).sum()
}

/// Weights that sum to one, of scores; in place.
pub(super) fn softmax(scores: &mut [f32]) {
    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for x in scores.iter_mut() {
        *x = (*x - top).exp();
    }
    let all = sum(scores);
    for x in scores {
        *x /= all;
    }
}

/// GELU, `x · Φ(x)` (Hendrycks and Gimpel 2016), of each number in place.
pub(super) fn gelu(row: &mut [f32]) {
    for x in row {
        *x = 0.5 * *x * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// The error function to 3e-7 (Abramowitz and Stegun, 7.1.28): additions and one division, so that many are worked
/// out at once.
fn erf(x: f32) -> f32 {
    // From 10 on it is 1 to the last bit, and powers stay finite.
    let z = x.abs().min(10.0);
    let sum = 1.0
        + z * (0.070_523_078
            + z * (0.042_282_01
                + z * (0.009_270_527 + z * (0.000_152_014 + z * (0.000_276_567_2 + z * 0.000_043_063_8)))));
    let two = sum * sum;
    let four = two * two;
    let sixteen = four * four * four * four;
    // The 16th power of 1 to 120 fits f32 far from its end.
    (1.0 - 1.0 / sixteen).copysign(x)
}

/// The nearest whole number.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "rows are scaled into the range of i16; what is outside is held at its ends"
)]
fn nearest(x: f32) -> i16 {
    (x + 0.5f32.copysign(x)) as i16
}

/// A sum as a float.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "rounding to 24 bits is what is wanted"
)]
fn whole(x: i32) -> f32 {
    x as f32
}
