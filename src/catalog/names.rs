//! Wire names: a tool id made fit for clients. One function both for listing and for lookup.

use crate::id::ToolId;
use crate::limits::WIRE_NAME_BYTES_MAX;

/// Characters of the suffix that makes a cut or clashing name unique: 40 bits of blake3 in base 32.
const SUFFIX: usize = 8;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The plain wire name of an id, where it fits: every character outside `[A-Za-z0-9_-]` becomes `_`.
pub(super) fn plain(id: &ToolId) -> String {
    id.as_str().chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// The wire name of an id: the plain form where it fits in 48 bytes and `unique`, else cut and with a
/// suffix made from the id, inside the limit.
pub fn wire_name(id: &ToolId, unique: bool) -> String {
    let name = plain(id);
    if unique && name.len() <= WIRE_NAME_BYTES_MAX {
        return name;
    }
    let hash = blake3::hash(id.as_str().as_bytes());
    let bits = hash.as_bytes().iter().take(5).fold(0u64, |n, b| (n << 8) | u64::from(*b));
    let suffix = (0..SUFFIX).rev().filter_map(|i| {
        let five = usize::try_from((bits >> (5 * i)) & 31).ok()?;
        ALPHABET.get(five).copied().map(char::from)
    });
    let mut short: String = name.chars().take(WIRE_NAME_BYTES_MAX - SUFFIX - 1).collect();
    short.push('_');
    short.extend(suffix);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_head_and_gets_a_suffix() {
        let id = |t: &str| ToolId::parse(t).unwrap();
        assert_eq!(wire_name(&id("pdf.merge"), true), "pdf_merge");
        let long = wire_name(&id(&format!("github.{}", "x".repeat(60))), true);
        assert_eq!(long.len(), 48);
        assert!(long.starts_with("github_xxx"));
        let (a, b) = (wire_name(&id("a.b_c"), false), wire_name(&id("a_b.c"), false));
        assert!(a != b && a.starts_with("a_b_c_") && b.starts_with("a_b_c_"));
    }
}
