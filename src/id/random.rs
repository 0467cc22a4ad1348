//! Randomness for ids that nobody guesses.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};

/// Random bytes of the system.
pub fn random<const BYTES: usize>() -> Result<[u8; BYTES], getrandom::Error> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Random bytes for what only must not repeat, since ownership is checked at every use. Without the system's
/// randomness std's own, drawn when the process began, is the best there is.
pub fn unique<const BYTES: usize>() -> [u8; BYTES] {
    random().unwrap_or_else(|_none| {
        let mut bytes = [0; BYTES];
        for (at, chunk) in bytes.chunks_mut(8).enumerate() {
            let drawn = RandomState::new().hash_one(at).to_le_bytes();
            chunk.iter_mut().zip(drawn).for_each(|(to, from)| *to = from);
        }
        bytes
    })
}

/// Bytes in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to memory cannot fail.
        write!(out, "{byte:02x}").ok();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_bytes_do_not_repeat_and_are_told_in_hex() {
        assert_ne!(random::<16>().unwrap(), unique::<16>());
        assert_ne!(unique::<12>(), unique::<12>());
        assert_eq!(hex(&[0, 10, 255]), "000aff");
    }
}
