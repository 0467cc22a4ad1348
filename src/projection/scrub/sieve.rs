//! Whether a text can hold a secret at all: a look at the few places where one could stand. Most texts hold
//! none, and are told apart here for a fraction of what the whole scan costs.

use std::sync::LazyLock;

use memchr::{memchr2_iter, memmem};

use super::{NAMES, PREFIXES, SPACES_MAX, is_token};

/// Characters of the shortest token that names itself: `AKIA` or `ASIA` and 16 more. A test holds it to [`PREFIXES`].
const TOKEN_LEAST: usize = 20;

static PRIVATE_KEY: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new("-----BEGIN "));
static BEARER: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new("earer "));

/// What is part of a self-naming token: bytes of words and the point between the parts of a JWT.
static IN_TOKEN: LazyLock<[bool; 256]> = LazyLock::new(|| {
    let mut classes = [false; 256];
    for (byte, class) in (0..=u8::MAX).zip(&mut classes) {
        *class = is_token(byte) || byte == b'.';
    }
    classes
});

/// Last bytes of [`NAMES`], in both cases.
static NAME_ENDS: LazyLock<[bool; 256]> = LazyLock::new(|| {
    let mut ends = [false; 256];
    for last in NAMES.iter().filter_map(|n| n.bytes().last()) {
        for byte in [last.to_ascii_lowercase(), last.to_ascii_uppercase()] {
            if let Some(end) = ends.get_mut(usize::from(byte)) {
                *end = true;
            }
        }
    }
    ends
});

/// False only where [`super::scrub`] leaves the text as it is.
pub(in crate::projection) fn may_hold(text: &str) -> bool {
    let bytes = text.as_bytes();
    has_separated(bytes)
        || has_token(bytes)
        || PRIVATE_KEY.find(bytes).is_some()
        || BEARER.find(bytes).is_some()
}

/// A name of a secret before `=` or `:`, or an address that may hold a password.
fn has_separated(bytes: &[u8]) -> bool {
    memchr2_iter(b'=', b':', bytes).any(|at| {
        let (before, rest) = bytes.split_at(at);
        rest.starts_with(b"://") || ends_in_name(before)
    })
}

/// Whether a name ends here, but for a closing quote (escaped or not) and a few spaces behind it.
fn ends_in_name(before: &[u8]) -> bool {
    let mut rest = before;
    for _ in 0..SPACES_MAX {
        rest = rest.strip_suffix(b" ").unwrap_or(rest);
    }
    rest = rest.strip_suffix(b"\"").unwrap_or(rest);
    rest = rest.strip_suffix(b"\\").unwrap_or(rest);
    let may_end = rest.last().and_then(|last| NAME_ENDS.get(usize::from(*last))).is_some_and(|end| *end);
    may_end && NAMES.iter().any(|name| ends_with_name(rest, name.as_bytes()))
}

fn ends_with_name(text: &[u8], name: &[u8]) -> bool {
    let from = text.len().checked_sub(name.len());
    from.and_then(|from| text.get(from..)).is_some_and(|end| end.eq_ignore_ascii_case(name))
}

/// A word of a token's length in which one of the known prefixes begins. Texts of shorter words are looked at from the
/// end of each window that a token would fill, so that most of their bytes are not looked at at all.
fn has_token(bytes: &[u8]) -> bool {
    let classes = &*IN_TOKEN;
    let in_token = |b: &u8| classes.get(usize::from(*b)).copied().unwrap_or_default();
    // A run begins here, if one does.
    let mut from = 0;
    while let Some((window, rest)) = bytes.get(from..).and_then(|rest| rest.split_at_checked(TOKEN_LEAST)) {
        if let Some(gap) = window.iter().rposition(|b| !in_token(b)) {
            from += gap + 1;
            continue;
        }
        let end = from + TOKEN_LEAST + rest.iter().take_while(|b| in_token(b)).count();
        if bytes.get(from..end).unwrap_or_default().split(|b| *b == b'.').any(begins_token) {
            return true;
        }
        from = end + 1;
    }
    false
}

fn begins_token(word: &[u8]) -> bool {
    PREFIXES.iter().any(|(prefix, _)| word.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_least_token_is_that_of_the_patterns() {
        let least = PREFIXES.iter().map(|(prefix, least)| prefix.len() + least).min();
        assert_eq!(least, Some(TOKEN_LEAST));
    }

    #[test]
    fn usual_texts_are_passed_by_without_the_scan() {
        for text in [
            "The quick brown fox jumps over the lazy dog, twice.",
            r#"{"id":17,"html_url":"a.long.host.name.example.com/with/a/path?x=1","node":"MDU6SXNzdWUxMjM0NTY3ODkw"}"#,
            "0123456789abcdef0123456789abcdef01234567 1b671a64-40d5-491e-99b0-da01ff1f3341",
            "total: 5, key = value, monkey: no",
        ] {
            assert!(!may_hold(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_passed_by_that_the_scan_would_take(
            parts in proptest::collection::vec(
                prop_oneof![
                    proptest::sample::select(PREFIXES.iter().map(|p| p.0).collect::<Vec<_>>()),
                    proptest::sample::select(NAMES.to_vec()),
                    proptest::sample::select(vec![
                        "Password", "AUTHORIZATION", "Bearer ", "bearer ", "-----BEGIN ", "RSA PRIVATE KEY-----",
                        "://", "u:p@h", "=", ":", " ", "\"", "\\\"", "   ", "    ", ".", "\n", "abcdefgh",
                        "ABCDEFGH01234567", "zz_9-", "ü", "/", "?", ",",
                    ]),
                ],
                0..14,
            )
        ) {
            let text = parts.concat();
            if !may_hold(&text) {
                prop_assert_eq!(super::super::scan(&text), text.as_str());
            }
        }
    }
}
