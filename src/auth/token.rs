//! Token hashes as they stand in `docent.toml`, and the making of new tokens.
//!
//! Tokens are random and long, so a plain fast hash is enough: there is no word list to try. What a person
//! chose as a password must never be a token.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::secret::Secret;

/// Bytes of a presented token at most: ours have 49; a JWT with many groups has up to ten thousand.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Random bytes of a new token: 256 bits.
const TOKEN_RANDOM_BYTES: usize = 32;

/// What every token of docent begins with, so that scanners for leaked secrets can find one.
const TOKEN_PREFIX: &str = "docent_";

/// How a token was hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Blake3,
    Sha256,
}

/// The hash of a token: `blake3:` or `sha256:` and 64 hex digits.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash {
    algorithm: Algorithm,
    bytes: [u8; 32],
}

/// Why a text is not a token hash. The text itself is not repeated: it could be a token by mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenHashError {
    /// No known prefix.
    #[error("a token hash begins with `blake3:` or `sha256:`")]
    Prefix,
    /// Not 64 hex digits behind the prefix.
    #[error("a token hash has exactly 64 hex digits behind its prefix")]
    Digits,
}

impl TokenHash {
    /// Reads `blake3:<64 hex>` or `sha256:<64 hex>`.
    pub fn parse(text: &str) -> Result<Self, TokenHashError> {
        let (prefix, digits) = text.split_once(':').ok_or(TokenHashError::Prefix)?;
        let algorithm = match prefix {
            "blake3" => Algorithm::Blake3,
            "sha256" => Algorithm::Sha256,
            _ => return Err(TokenHashError::Prefix),
        };
        Ok(Self { algorithm, bytes: from_hex(digits).ok_or(TokenHashError::Digits)? })
    }

    /// The blake3 hash of a token, the form that `docent token new` prints.
    pub fn of(token: &str) -> Self {
        Self { algorithm: Algorithm::Blake3, bytes: *blake3::hash(token.as_bytes()).as_bytes() }
    }

    /// Whether it is the hash of a presented token; takes the same time wherever they differ.
    pub(super) fn matches(&self, presented: &Presented) -> Choice {
        match self.algorithm {
            Algorithm::Blake3 => self.bytes.ct_eq(&presented.blake3),
            Algorithm::Sha256 => self.bytes.ct_eq(&presented.sha256),
        }
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.algorithm {
            Algorithm::Blake3 => "blake3:",
            Algorithm::Sha256 => "sha256:",
        })?;
        self.bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

fn from_hex(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// A presented token under both hashes: computed once, compared with every entry.
pub(super) struct Presented {
    blake3: [u8; 32],
    sha256: [u8; 32],
}

impl Presented {
    pub(super) fn new(token: &str) -> Self {
        Self {
            blake3: *blake3::hash(token.as_bytes()).as_bytes(),
            sha256: Sha256::digest(token.as_bytes()).into(),
        }
    }
}

/// A new token and its hash. The token is shown once; only the hash is kept.
#[derive(Debug)]
pub struct GeneratedToken {
    /// The token: `docent_` and 43 characters of URL-safe base64 (256 random bits).
    pub token: Secret,
    /// Its hash, for `token_hash` in `docent.toml`.
    pub hash: TokenHash,
}

impl GeneratedToken {
    /// Draws a token from the system's random source. The error tells that there is none.
    pub fn draw() -> Result<Self, getrandom::Error> {
        let mut random = [0; TOKEN_RANDOM_BYTES];
        getrandom::fill(&mut random)?;
        let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
        let hash = TokenHash::of(&token);
        Ok(Self { token: Secret::new(token), hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_token_matches_its_own_hash_only() {
        let (a, b) = (GeneratedToken::draw().unwrap(), GeneratedToken::draw().unwrap());
        assert_eq!(a.token.expose().len(), TOKEN_PREFIX.len() + 43);
        assert_ne!(a.token.expose(), b.token.expose());
        let hash = TokenHash::parse(&a.hash.to_string()).unwrap();
        assert!(bool::from(hash.matches(&Presented::new(a.token.expose()))));
        assert!(!bool::from(hash.matches(&Presented::new(b.token.expose()))));
        assert!(!format!("{a:?}").contains(a.token.expose()));
    }

    #[test]
    fn sha256_hashes_of_other_tools_are_taken() {
        // printf %s abc | sha256sum
        let hash =
            TokenHash::parse("sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
                .unwrap();
        assert!(bool::from(hash.matches(&Presented::new("abc"))));
        assert!(!bool::from(hash.matches(&Presented::new("abd"))));
    }

    #[test]
    fn what_is_not_a_hash_is_refused_without_being_repeated() {
        assert_eq!(TokenHash::parse("hunter2"), Err(TokenHashError::Prefix));
        assert_eq!(TokenHash::parse("md5:00"), Err(TokenHashError::Prefix));
        assert_eq!(TokenHash::parse("blake3:00"), Err(TokenHashError::Digits));
        assert_eq!(TokenHash::parse(&format!("blake3:{}", "g".repeat(64))), Err(TokenHashError::Digits));
        assert_eq!(TokenHash::parse(&format!("blake3:{}", "+1".repeat(32))), Err(TokenHashError::Digits));
    }
}
