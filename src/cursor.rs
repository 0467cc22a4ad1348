//! Page tokens that cannot be made, changed or carried elsewhere: keyed blake3 over everything they belong to.
//!
//! A token holds a position and a tag, nothing else: purpose, caller class, question and state of the
//! catalog are bound by the tag alone, so a token betrays none of them. It draws no randomness: the key is given.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

/// The first byte of every token; another one is another format.
const VERSION: u8 = 1;
/// Bytes of the key id: tells tokens of a rotated key from forged ones in the log, never to the caller.
const KEY_ID_BYTES: usize = 4;
const POSITION_BYTES: usize = 8;
/// Bytes of the tag: 128 bits cannot be guessed, and the token stays short for models.
const TAG_BYTES: usize = 16;
/// The first byte of a sealed text.
const TEXT_VERSION: u8 = 2;
/// Bytes of its tag: a text carries answers that are believed, so the whole hash.
const TEXT_TAG_BYTES: usize = 32;
const TOKEN_BYTES: usize = 1 + KEY_ID_BYTES + POSITION_BYTES + TAG_BYTES;

/// Bytes of a shared key at least (seed 004).
pub const KEY_BYTES_MIN: usize = 32;

/// A 32-byte digest of one thing that a token is bound to.
pub type Digest = [u8; 32];

/// Makes a digest of parts, each with its length before it, so that two lists of parts never look alike.
#[derive(Debug, Default)]
pub struct Parts(blake3::Hasher);

impl Parts {
    /// Parts whose digest is never that of parts made for another purpose.
    pub fn of(purpose: &str) -> Self {
        Self(blake3::Hasher::new_derive_key(purpose))
    }

    /// Adds one.
    pub fn add(&mut self, part: &[u8]) {
        self.0.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.0.update(part);
    }

    /// The digest of those added so far.
    pub fn digest(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}

/// Every bad token gives this one error: which part was wrong is nobody's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not valid (any more); start again without it")]
pub struct BadCursor;

/// The secret that makes tokens. Nodes that share it take each other's tokens.
#[derive(Clone)]
pub struct CursorKey {
    id: [u8; KEY_ID_BYTES],
    key: Digest,
}

impl std::fmt::Debug for CursorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CursorKey")
    }
}

/// What a token is for: it opens only where all four are the same again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding<'a> {
    /// The walk: `tools/list`, `search`, …
    pub purpose: &'a str,
    /// The class of callers: those who see the same tools.
    pub class: Digest,
    /// The question: query, filters.
    pub question: Digest,
    /// The state that the walk goes over: catalog, policies, ranking.
    pub state: Digest,
}

impl CursorKey {
    /// A key from secret material: from the settings (at least [`KEY_BYTES_MIN`] bytes) or drawn at random.
    pub fn new(material: &[u8]) -> Self {
        let key = blake3::derive_key("docent 2026 page token key", material);
        let id = blake3::derive_key("docent 2026 page token key id", material);
        let mut short = [0; KEY_ID_BYTES];
        short.iter_mut().zip(id).for_each(|(to, from)| *to = from);
        Self { id: short, key }
    }

    /// The token of a position.
    pub fn seal(&self, binding: &Binding<'_>, position: u64) -> String {
        let mut token = Vec::with_capacity(TOKEN_BYTES);
        token.push(VERSION);
        token.extend(self.id);
        token.extend(position.to_be_bytes());
        token.extend(self.tag(binding, position));
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The position of a token that this key made for this binding.
    pub fn open(&self, binding: &Binding<'_>, token: &str) -> Result<u64, BadCursor> {
        // Longer texts cannot be tokens; they are not decoded at all.
        if token.len() > TOKEN_BYTES * 2 {
            return Err(BadCursor);
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_bad| BadCursor)?;
        let parts = (bytes.len() == TOKEN_BYTES)
            .then(|| bytes.split_at_checked(1 + KEY_ID_BYTES))
            .flatten()
            .and_then(|(head, rest)| Some((head, rest.split_at_checked(POSITION_BYTES)?)));
        let Some((head, (position, tag))) = parts else { return Err(BadCursor) };
        let position = u64::from_be_bytes(position.try_into().map_err(|_bad| BadCursor)?);
        let known = head.ct_eq(&self.head()) & tag.ct_eq(&self.tag(binding, position));
        if bool::from(known) { Ok(position) } else { Err(BadCursor) }
    }

    /// A text that everybody can read and nobody can change or carry elsewhere.
    pub fn seal_text(&self, binding: &Binding<'_>, text: &str) -> String {
        let mut token: Vec<u8> = std::iter::once(TEXT_VERSION).chain(self.id).collect();
        token.extend(self.text_tag(binding, text.as_bytes()));
        token.extend(text.as_bytes());
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The text of a token that this key made for this binding; `max` bounds the token.
    pub fn open_text(&self, binding: &Binding<'_>, token: &str, max: usize) -> Result<String, BadCursor> {
        if token.len() > max {
            return Err(BadCursor);
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_bad| BadCursor)?;
        let parts = bytes
            .split_at_checked(1 + KEY_ID_BYTES)
            .and_then(|(head, rest)| Some((head, rest.split_at_checked(TEXT_TAG_BYTES)?)));
        let Some((head, (tag, text))) = parts else { return Err(BadCursor) };
        let own: Vec<u8> = std::iter::once(TEXT_VERSION).chain(self.id).collect();
        if !bool::from(head.ct_eq(&own) & tag.ct_eq(&self.text_tag(binding, text))) {
            return Err(BadCursor);
        }
        String::from_utf8(text.to_vec()).map_err(|_bad| BadCursor)
    }

    fn text_tag(&self, binding: &Binding<'_>, text: &[u8]) -> [u8; TEXT_TAG_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in [
            &[TEXT_VERSION][..],
            &self.id,
            binding.purpose.as_bytes(),
            &binding.class,
            &binding.question,
            &binding.state,
            text,
        ] {
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    fn head(&self) -> Vec<u8> {
        std::iter::once(VERSION).chain(self.id).collect()
    }

    fn tag(&self, binding: &Binding<'_>, position: u64) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        let mut part = |bytes: &[u8]| {
            hasher.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(bytes);
        };
        part(&self.head());
        part(binding.purpose.as_bytes());
        part(&binding.class);
        part(&binding.question);
        part(&binding.state);
        part(&position.to_be_bytes());
        let mut tag = [0; TAG_BYTES];
        hasher.finalize_xof().fill(&mut tag);
        tag
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn binding(purpose: &str) -> Binding<'_> {
        Binding { purpose, class: [1; 32], question: [2; 32], state: [3; 32] }
    }

    #[test]
    fn a_token_opens_only_where_it_was_made_for() {
        let key = CursorKey::new(&[7; 32]);
        let here = binding("search");
        let token = key.seal(&here, 200);
        assert_eq!(key.open(&here, &token), Ok(200));
        let elsewhere = [
            binding("tools/list"),
            Binding { class: [9; 32], ..here },
            Binding { question: [9; 32], ..here },
            Binding { state: [9; 32], ..here },
        ];
        for other in elsewhere {
            assert_eq!(key.open(&other, &token), Err(BadCursor));
        }
        assert_eq!(CursorKey::new(&[8; 32]).open(&here, &token), Err(BadCursor));
        assert_eq!(CursorKey::new(&[7; 32]).open(&here, &token), Ok(200), "a shared key opens it elsewhere");
        assert!(!format!("{key:?}").contains('7'));
    }

    #[test]
    fn a_sealed_text_can_be_read_and_not_changed() {
        let key = CursorKey::new(&[7; 32]);
        let here = binding("ask");
        let token = key.seal_text(&here, "{\"a\":1}");
        assert_eq!(key.open_text(&here, &token, 1_000).as_deref(), Ok("{\"a\":1}"));
        assert_eq!(key.open_text(&binding("confirm"), &token, 1_000), Err(BadCursor));
        assert_eq!(key.open_text(&here, &token, 10), Err(BadCursor), "longer than is taken");
        assert_eq!(key.open(&here, &token), Err(BadCursor), "a text is no position");
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let forged = URL_SAFE_NO_PAD.encode(forged);
            assert_eq!(key.open_text(&here, &forged, 1_000), Err(BadCursor), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_refused(position in any::<u64>(), bit in 0usize..TOKEN_BYTES * 8) {
            let key = CursorKey::new(&[7; 32]);
            let token = key.seal(&binding("search"), position);
            prop_assert_eq!(key.open(&binding("search"), &token), Ok(position));
            let mut bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(key.open(&binding("search"), &URL_SAFE_NO_PAD.encode(bytes)), Err(BadCursor));
        }

        #[test]
        fn garbage_is_refused(text in "\\PC{0,120}") {
            prop_assert_eq!(CursorKey::new(&[7; 32]).open(&binding("search"), &text), Err(BadCursor));
        }
    }
}
