//! Secrets that a script came across in a reply, so that a piece of one does not come out either: cut with
//! `sub_string`, padded, split or put under another name, it no longer looks like a secret. A guard against
//! accidents; who writes a script on purpose to spell a secret letter by letter is trusted anyway. And whether it
//! wanted to read an answer that cannot be read.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use super::scrub;
use crate::call::ToolError;
use crate::json as bounded;
use crate::secret::REMOVED;

/// Bytes of a piece that is recognised: fewer are found in any text.
const PIECE_BYTES: usize = 8;
/// Bytes of one secret that are remembered: a key file's, whose beginning says enough.
const SECRET_BYTES_MAX: usize = 4_096;
/// Pieces remembered of one call.
const PIECES_MAX: usize = 64 * 1_024;

type Piece = [u8; PIECE_BYTES];

/// What one call came across. Cheap to clone; empty for almost every call.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<State>);

#[derive(Default)]
struct State {
    any: AtomicBool,
    pieces: Mutex<HashSet<Piece>>,
    unreadable: OnceLock<String>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seen")
    }
}

/// Whether bytes are such as tokens are made of, and tell more than a word or a number would.
fn is_telling(piece: &[u8]) -> bool {
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"-_.+/=~!$%@#*".contains(b);
    // An `e` may stand in a number.
    let is_letter = |b: &u8| b.is_ascii_alphabetic() && !matches!(b, b'e' | b'E');
    piece.iter().all(is_token) && piece.iter().any(is_letter) && piece.iter().any(u8::is_ascii_digit)
}

impl Seen {
    /// Notes the secrets of a text that a script is handed.
    pub(super) fn note(&self, text: &str) {
        // Most texts hold none, and that costs a fraction of the scan.
        if !scrub::may_hold(text) {
            return;
        }
        for (start, end) in scrub::places(text) {
            self.remember(text.get(start..end).unwrap_or_default());
        }
    }

    /// Notes the value of a member whose name says that it is secret.
    pub(super) fn note_member(&self, name: &str, value: &str) {
        if scrub::is_secret_name(name) {
            self.remember(value);
        }
    }

    /// Notes that the script wanted to read an answer and why it cannot be read: the upstream's mistake then, not the
    /// script's.
    pub(super) fn note_unreadable(&self, why: &str) {
        self.0.unreadable.get_or_init(|| why.to_owned());
    }

    /// Why an answer could not be read, where one could not.
    pub(super) fn unreadable(&self) -> Option<&str> {
        self.0.unreadable.get().map(String::as_str)
    }

    fn remember(&self, secret: &str) {
        let mut pieces = self.0.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bounded::cut(secret, SECRET_BYTES_MAX).as_bytes().array_windows::<PIECE_BYTES>() {
            if pieces.len() < PIECES_MAX && is_telling(piece) {
                pieces.insert(*piece);
            }
        }
        self.0.any.store(!pieces.is_empty(), Ordering::Release);
    }

    /// A text without any piece of what was seen. In JSON too: a piece has no character that JSON gives a meaning.
    pub(super) fn without<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.0.any.load(Ordering::Acquire) {
            return Cow::Borrowed(text);
        }
        let pieces = self.0.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut out, mut from, mut until) = (String::new(), 0, 0);
        for (at, piece) in text.as_bytes().array_windows::<PIECE_BYTES>().enumerate() {
            if !pieces.contains(piece) {
                continue;
            }
            // Pieces that overlap are one.
            if at >= until {
                out.push_str(text.get(from.max(until)..at).unwrap_or_default());
                out.push_str(REMOVED);
                from = at;
            }
            until = at + PIECE_BYTES;
        }
        if until == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(text.get(until..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// A failure without any piece of what was seen.
    pub(super) fn without_in(&self, mut error: ToolError) -> ToolError {
        if !self.0.any.load(Ordering::Acquire) {
            return error;
        }
        error.message = self.without(&error.message).into_owned();
        let details = error.details.take().map(|details| self.without_in_value(&details));
        match details {
            Some(details) => error.details(details),
            None => error,
        }
    }

    /// A value without any piece of what was seen; one that is no JSON without it is gone.
    pub(super) fn without_in_value(&self, value: &Value) -> Value {
        match self.without(&bounded::to_text(value)) {
            Cow::Borrowed(_) => value.clone(),
            Cow::Owned(clean) => serde_json::from_str(&clean).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::call::ErrorCode;

    const TOKEN: &str = "ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4";

    #[test]
    fn pieces_of_a_secret_are_gone_and_all_else_stays() {
        let seen = Seen::default();
        assert!(matches!(seen.without(TOKEN), Cow::Borrowed(_)));
        seen.note(&format!("the token is {TOKEN}, keep it"));
        seen.note("no secret at all: a1b2c3d4");
        assert_eq!(seen.without("x a1b2c3d4e5f6 y"), "x [secret removed] y");
        assert_eq!(
            seen.without("{\"a\":\"6g7h8i9j0\",\"b\":[12345678]}"),
            "{\"a\":\"[secret removed]\",\"b\":[12345678]}"
        );
        assert_eq!(seen.without("é2c3d4e5f|f6g7h8i9é"), "é[secret removed]|[secret removed]é");
        for plain in ["a1b2c3d", "the token is kept", "", "é😀é😀"] {
            assert!(matches!(seen.without(plain), Cow::Borrowed(_)), "{plain}");
        }
        let error = ToolError::new(ErrorCode::Forbidden, format!("bad {}", TOKEN.get(6..20).unwrap()))
            .details(json!({"t": TOKEN}));
        let clean = seen.without_in(error);
        assert_eq!(
            (clean.message.as_str(), clean.details.unwrap()["t"].as_str()),
            ("bad [secret removed]", Some(REMOVED))
        );
    }

    #[test]
    fn members_that_say_they_are_secret_are_noted_under_any_other_name() {
        let seen = Seen::default();
        seen.note_member("title", "a1b2c3d4e5");
        assert_eq!(seen.without("a1b2c3d4e5"), "a1b2c3d4e5");
        seen.note_member("Api_Key", "a1b2c3d4e5");
        assert_eq!(seen.without("shown: a1b2c3d4e5."), "shown: [secret removed].");
        // Words and numbers are no secrets, whatever they stand under.
        seen.note_member("secret", "required");
        seen.note_member("secret", "2024123100");
        assert_eq!(seen.without("required 2024123100"), "required 2024123100");
    }

    proptest! {
        #[test]
        fn no_piece_of_a_token_comes_out(before in "\\PC{0,20}", from in 0usize..20, len in 8usize..14, after in "\\PC{0,20}") {
            let seen = Seen::default();
            seen.note(TOKEN);
            let piece = TOKEN.get(from..(from + len).min(TOKEN.len())).unwrap();
            let text = format!("{before}{piece}{after}");
            let clean = seen.without(&text);
            prop_assert!(!is_telling(&piece.as_bytes()[..8]) || !clean.contains(piece), "{}", clean);
        }
    }
}
