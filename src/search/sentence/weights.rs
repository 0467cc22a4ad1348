//! Reading weights: a `safetensors` file (an 8-byte length, a JSON header, then plain numbers), every bound checked.
//!
//! Format: <https://github.com/huggingface/safetensors>. Nothing in the file is trusted: lengths, offsets, types and
//! shapes are looked at before a number is.

use std::collections::HashMap;

use serde::Deserialize;

use super::NotAModel;
use crate::json;

/// Bytes of the header at most: that of a six-layer model has 11 KiB.
const HEADER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The tensors of a file by name.
#[derive(Debug)]
pub(super) struct Tensors<'a> {
    entries: HashMap<String, Entry>,
    data: &'a [u8],
}

/// One tensor as the header tells it.
#[derive(Debug, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// What the header holds: tensors, and `__metadata__`, which is text for people.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Tensor(Entry),
    Other(serde::de::IgnoredAny),
}

impl<'a> Tensors<'a> {
    /// Reads the header of a file.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, NotAModel> {
        let damaged = |why: &str| NotAModel::Weights(why.to_owned());
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| damaged("it ends in its head"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > HEADER_BYTES_MAX {
            return Err(damaged("it does not begin with the length of a `safetensors` header"));
        }
        let (header, data) = rest.split_at_checked(length).ok_or_else(|| damaged("it ends in its header"))?;
        let lines: HashMap<String, Line> = json::parse_as(header, HEADER_BYTES_MAX)
            .map_err(|e| NotAModel::Weights(format!("its header is no JSON object of tensors: {e}")))?;
        let entries = lines.into_iter().filter_map(|(name, line)| match line {
            Line::Tensor(entry) => Some((name, entry)),
            Line::Other(_) => None,
        });
        Ok(Self { entries: entries.collect(), data })
    }

    /// The numbers of a tensor of exactly this shape.
    pub(super) fn take(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, NotAModel> {
        let wrong = |found: String| NotAModel::Tensor {
            name: name.to_owned(),
            expected: format!("{shape:?}"),
            found,
        };
        let entry = self.entries.get(name).ok_or_else(|| wrong("no such tensor".to_owned()))?;
        if entry.shape != shape {
            return Err(wrong(format!("{:?}", entry.shape)));
        }
        let [begin, end] = entry.data_offsets;
        let bytes = self.data.get(begin..end).ok_or_else(|| {
            wrong(format!("bytes {begin} to {end} of a file that has {}: it was cut short", self.data.len()))
        })?;
        let numbers = match entry.dtype.as_str() {
            "F32" => each::<4>(bytes, f32::from_le_bytes),
            "F16" => each::<2>(bytes, |b| half(u16::from_le_bytes(b))),
            "BF16" => each::<2>(bytes, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
            other => return Err(wrong(format!("numbers of type {other}; F32, F16 and BF16 are read"))),
        };
        let expected = shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
        match numbers {
            Some(numbers) if Some(numbers.len()) == expected => {
                if numbers.iter().all(|x| x.is_finite()) {
                    return Ok(numbers);
                }
                Err(wrong("numbers that are not finite".to_owned()))
            }
            _ => Err(wrong(format!("{} bytes", bytes.len()))),
        }
    }
}

/// The numbers of whole groups of bytes; `None` where a part of one is left.
fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Option<Vec<f32>> {
    let (groups, rest) = bytes.as_chunks::<N>();
    rest.is_empty().then(|| groups.iter().map(|g| number(*g)).collect())
}

/// A number of IEEE 754 binary16.
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    match exponent {
        // Below 2^-14: the fraction counts in steps of 2^-24.
        0 => {
            let size = f32::from(bits & 0x3ff) / 16_777_216.0;
            f32::from_bits(size.to_bits() | sign)
        }
        0x1f => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this header and these bytes after it.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = u64::try_from(header.len()).unwrap().to_le_bytes();
        [&length, header.as_bytes(), data].concat()
    }

    fn told(header: &str, data: &[u8]) -> String {
        let bytes = file(header, data);
        let read = Tensors::read(&bytes).and_then(|t| t.take("a", &[2]));
        read.map_or_else(|e| e.to_string(), |numbers| format!("{numbers:?}"))
    }

    #[test]
    fn numbers_of_three_types_are_read() {
        let entry = |dtype: &str, end: usize| {
            format!(
                r#"{{"__metadata__":{{"format":"pt"}},"a":{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,{end}]}}}}"#
            )
        };
        let floats = [1.5f32, -0.25].map(f32::to_le_bytes).concat();
        assert_eq!(told(&entry("F32", 8), &floats), "[1.5, -0.25]");
        assert_eq!(told(&entry("F16", 4), &[0x00, 0x3e, 0x00, 0xb4]), "[1.5, -0.25]");
        assert_eq!(told(&entry("BF16", 4), &[0xc0, 0x3f, 0x80, 0xbe]), "[1.5, -0.25]");
        assert_eq!(half(0x0001).to_bits(), 5.960_464_5e-8f32.to_bits(), "the smallest half");
        assert_eq!(half(0x7bff).to_bits(), 65_504f32.to_bits(), "the largest half");
    }

    #[test]
    fn every_mistake_names_the_tensor_what_was_expected_and_what_was_found() {
        let entry = |shape: &str, dtype: &str, end: &str| {
            format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}}}"#)
        };
        let floats = [0u8; 8];
        for (header, told_of) in [
            (r"{}".to_owned(), "no such tensor"),
            (entry("[3]", "F32", "8"), "[3]"),
            (entry("[2]", "F32", "80"), "it was cut short"),
            (entry("[2]", "F32", "4"), "4 bytes"),
            (entry("[2]", "F32", "7"), "7 bytes"),
            (entry("[2]", "I64", "8"), "numbers of type I64"),
        ] {
            let message = told(&header, &floats);
            assert!(message.contains("`a`") && message.contains("[2]"), "{message}");
            assert!(message.contains(told_of), "{message}");
        }
        let header = entry("[2]", "F32", "8");
        assert!(told(&header, &[0xff; 8]).contains("not finite"));
    }

    #[test]
    fn what_is_no_safetensors_file_is_told() {
        let why = |bytes: &[u8]| Tensors::read(bytes).unwrap_err().to_string();
        assert!(why(b"abc").contains("ends in its head"));
        assert!(why(&[0xff; 64]).contains("does not begin with the length"));
        assert!(why(&file("[]", b"")).contains("no JSON object"));
        assert!(why(&[9, 0, 0, 0, 0, 0, 0, 0, b'{']).contains("ends in its header"));
    }
}
