//! The semantic signal: a static table of word-piece vectors, distilled from a small sentence model.
//!
//! A text's vector is the normalised sum of its pieces' rows: no model runs, a question costs microseconds. How
//! the table was made and from what stands in `index/make_semantic.py` and `index/README.md`.

use std::sync::LazyLock;

use super::dictionary::Dictionary;
use super::num::{IMPACT_STEPS, index};

/// The shipped table.
static SHIPPED: &[u8] = include_bytes!("../../index/semantic.bin");
static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(SHIPPED).unwrap_or_default());

/// Numbers of one vector.
pub(super) const DIMENSIONS: usize = 128;
const MAGIC: &[u8] = b"docentS1";
/// A vector's component in 8 bits: the components of a unit vector.
const STEPS: f32 = 127.0;

/// A unit vector in 8-bit components; all zero where no piece is known.
pub(super) type Vector = [i8; DIMENSIONS];

/// The table of pieces.
#[derive(Debug, Default)]
pub(super) struct Table {
    pieces: Dictionary,
    scales: Vec<f32>,
    rows: &'static [u8],
}

impl Table {
    /// The shipped table, read once.
    pub(super) fn shipped() -> &'static Self {
        &TABLE
    }

    /// Tells this table from every other one.
    pub(super) fn digest() -> [u8; 32] {
        static DIGEST: LazyLock<[u8; 32]> = LazyLock::new(|| *blake3::hash(SHIPPED).as_bytes());
        *DIGEST
    }

    /// Reads the format that `make_semantic.py` writes; `None` for anything else.
    fn read(bytes: &'static [u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (head, rest) = rest.split_at_checked(12)?;
        let number = |at: usize| Some(index(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?)));
        let (dimensions, pieces, text_bytes) = (number(0)?, number(4)?, number(8)?);
        let (text, rest) = rest.split_at_checked(text_bytes)?;
        let (scales, rows) = rest.split_at_checked(pieces.checked_mul(4)?)?;
        if dimensions != DIMENSIONS || rows.len() != pieces.checked_mul(DIMENSIONS)? {
            return None;
        }
        let sorted = std::str::from_utf8(text).ok()?.split('\n');
        let scales =
            scales.chunks_exact(4).filter_map(|c| c.try_into().ok()).map(f32::from_le_bytes).collect();
        Some(Self { pieces: Dictionary::of_sorted(sorted), scales, rows })
    }

    /// The vector of a text's folded words.
    pub(super) fn embed(&self, words: &[String]) -> Vector {
        self.embed_parts(&[words], &[1.0])
    }

    /// The vector of several texts in one, each with its weight.
    pub(super) fn embed_parts<W: AsRef<[String]>>(&self, parts: &[W], weights: &[f32]) -> Vector {
        let mut sum = [0.0f32; DIMENSIONS];
        for (part, weight) in parts.iter().zip(weights) {
            for word in part.as_ref() {
                self.add_word(word, *weight, &mut sum);
            }
        }
        let norm = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
        if norm <= f32::MIN_POSITIVE {
            return [0; DIMENSIONS];
        }
        sum.map(|x| component(x / norm))
    }

    /// `WordPiece`: the longest known beginning, then the longest known continuation, and so on.
    fn add_word(&self, word: &str, weight: f32, sum: &mut [f32; DIMENSIONS]) {
        let mut rest = word;
        let mut piece = String::with_capacity(word.len() + 2);
        while !rest.is_empty() {
            let found = rest.char_indices().map(|(at, c)| at + c.len_utf8()).rev().find_map(|end| {
                piece.clear();
                if rest.len() < word.len() {
                    piece.push_str("##");
                }
                piece.push_str(rest.get(..end)?);
                Some((end, self.pieces.find(&piece)?))
            });
            let Some((end, no)) = found else { return };
            self.add_row(index(no), weight, sum);
            rest = rest.get(end..).unwrap_or("");
        }
    }

    fn add_row(&self, no: usize, weight: f32, sum: &mut [f32; DIMENSIONS]) {
        let scale = self.scales.get(no).copied().unwrap_or(0.0) * weight;
        let row = self.rows.get(no * DIMENSIONS..(no + 1) * DIMENSIONS).unwrap_or(&[]);
        for (total, byte) in sum.iter_mut().zip(row) {
            *total += f32::from(i8::from_le_bytes([*byte])) * scale;
        }
    }
}

/// Components that are multiplied at once: two vector registers of any x86-64 full.
const LANES: usize = 16;

/// What a question means, ready to be compared with thousands of vectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meaning([i16; DIMENSIONS]);

impl Meaning {
    pub(super) fn of(vector: &Vector) -> Self {
        Self(vector.map(i16::from))
    }

    /// The cosine, 0 to 1 (what points away counts as nothing).
    #[inline]
    pub(super) fn near(&self, vector: &Vector) -> f32 {
        let (own, _) = self.0.as_chunks::<LANES>();
        let (other, _) = vector.as_chunks::<LANES>();
        let dot = own.iter().zip(other).map(|(a, b)| product(a, b)).fold(0, i32::wrapping_add);
        // |dot| is at most 127² · 128 for any bytes, and about 127² for unit vectors; 16 bits hold a cosine to 3e-5.
        let share = dot.clamp(0, 127 * 127) * 65_535 / (127 * 127);
        f32::from(u16::try_from(share).unwrap_or(u16::MAX)) / IMPACT_STEPS
    }
}

/// The sum of the products. Wrapping and piece by piece, for speed only: a check of each sum keeps the compiler from
/// taking many components at once, and this runs once per visible tool.
fn product(a: &[i16; LANES], b: &[i8; LANES]) -> i32 {
    let mut wide = [0i16; LANES];
    wide.iter_mut().zip(b).for_each(|(slot, component)| *slot = i16::from(*component));
    let products = a.iter().zip(&wide).map(|(x, y)| i32::from(*x).wrapping_mul(i32::from(*y)));
    products.fold(0, i32::wrapping_add)
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "clamped to the range of i8 first"
)]
fn component(x: f32) -> i8 {
    (x * STEPS).round().clamp(-STEPS, STEPS) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(text: &str) -> Vector {
        Table::shipped().embed(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_means_the_same_is_nearer_than_what_does_not() {
        let cosine = |a: &str, b: &str| Meaning::of(&vector(a)).near(&vector(b));
        let near = cosine("picture", "photo");
        let far = cosine("picture", "invoice");
        assert!(near > far + 0.2, "{near} {far}");
        assert!(cosine("send email", "send email") > 0.98);
    }

    #[test]
    fn unknown_scripts_and_broken_tables_give_nothing() {
        assert_eq!(vector("天气"), [0; DIMENSIONS]);
        assert!(Table::read(b"docentS1").is_none() && Table::read(b"").is_none());
    }
}
