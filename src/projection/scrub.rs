//! Secrets in texts on their way out: a small set of bounded patterns, no backtracking, linear in the text.
//! Always run over a window wider than what is kept, so that a secret across the cut is still found.

mod sieve;

use std::borrow::Cow;
use std::sync::LazyLock;

pub(super) use sieve::may_hold;

use crate::json;

/// What stands in place of a secret.
const REPLACED: &str = "[secret removed]";

/// Prefixes of tokens that name themselves, with the least number of token characters that must follow.
const PREFIXES: [(&str, usize); 18] = [
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("sk-ant-", 16),
    ("sk-", 32),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("xapp-", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("npm_", 30),
    ("eyJ", 40),
];

/// Names whose value is a secret when written `name=value`, `name: value` or `"name":"value"`.
const NAMES: [&str; 13] = [
    "password",
    "passwd",
    "secret",
    "client_secret",
    "api_key",
    "apikey",
    "api-key",
    "x-api-key",
    "access_token",
    "refresh_token",
    "auth_token",
    "authorization",
    "connectionstring",
];

/// Spaces on either side of the sign between a name and its value.
const SPACES_MAX: usize = 3;

/// Bytes beyond a cut over which secrets are still looked for.
pub(super) const WINDOW: usize = 8 * 1024;

/// A text cut to `max` bytes at a character, after its secrets were taken out: one that the cut would have split
/// is no longer there to be recognised by half.
pub(super) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    match scrub(json::cut(text, max.saturating_add(WINDOW))) {
        Cow::Borrowed(text) => Cow::Borrowed(json::cut(text, max)),
        Cow::Owned(text) => Cow::Owned(json::cut(&text, max).to_owned()),
    }
}

/// What a byte can be the beginning of.
#[derive(Clone, Default)]
struct Lead {
    /// Continues a word: a secret begins only where a word does.
    is_token: bool,
    /// Worth a look where a word begins here.
    is_worth: bool,
    /// Indices into [`PREFIXES`].
    prefixes: Vec<usize>,
    /// Indices into [`NAMES`].
    names: Vec<usize>,
}

/// What each byte can begin. Most bytes of a text are passed by without a look at the patterns, the others meet
/// the few patterns that begin with them.
static LEADS: LazyLock<Vec<Lead>> = LazyLock::new(|| {
    let begins = |text: &str, byte: u8| text.bytes().next().is_some_and(|b| b.eq_ignore_ascii_case(&byte));
    let lead = |byte: u8| {
        let prefixes: Vec<usize> = (0..PREFIXES.len())
            .filter(|i| PREFIXES.get(*i).is_some_and(|p| p.0.as_bytes().first() == Some(&byte)))
            .collect();
        let names: Vec<usize> =
            (0..NAMES.len()).filter(|i| NAMES.get(*i).is_some_and(|n| begins(n, byte))).collect();
        let is_worth = !prefixes.is_empty()
            || !names.is_empty()
            || begins("bearer", byte)
            || matches!(byte, b'"' | b'-');
        Lead { is_token: is_token(byte), is_worth, prefixes, names }
    };
    (0..=u8::MAX).map(lead).collect()
});

/// What a byte is to the scan, in one byte so that the table stays in the fastest cache.
const TOKEN: u8 = 1;
const WORTH: u8 = 2;
const COLON: u8 = 4;
static CLASSES: LazyLock<[u8; 256]> = LazyLock::new(|| {
    let mut classes = [0; 256];
    for (class, lead) in classes.iter_mut().zip(LEADS.iter()) {
        *class = u8::from(lead.is_token) * TOKEN + u8::from(lead.is_worth) * WORTH;
    }
    if let Some(class) = classes.get_mut(usize::from(b':')) {
        *class |= COLON;
    }
    classes
});

/// Replaces what looks like a secret. Borrowed where there was none.
pub fn scrub(text: &str) -> Cow<'_, str> {
    if may_hold(text) { scan(text) } else { Cow::Borrowed(text) }
}

/// The whole scan.
fn scan(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut from = 0;
    for (start, end) in places(text) {
        out.push_str(text.get(from..start).unwrap_or_default());
        out.push_str(REPLACED);
        from = end;
    }
    if from == 0 && out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(out)
}

/// Where what looks like a secret stands in a text, in its order: from and to which byte.
pub(super) fn places(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(begin) = next_worth(text.as_bytes(), at) {
            let byte = text.as_bytes().get(begin).copied().unwrap_or_default();
            let found = match byte {
                b':' => url_password(text, begin),
                _ => LEADS.get(usize::from(byte)).and_then(|lead| secret_at(text, begin, lead)),
            };
            at = begin + 1;
            if let Some((_, end)) = found {
                at = at.max(end);
                return found;
            }
        }
        None
    })
}

/// Whether the name of a member says that its value is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The same of a text that is at hand, which is not copied where there was none.
pub(super) fn scrubbed(text: String) -> String {
    match scrub(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}

/// The next place from `at` on that is worth a look: a colon, or a byte that may begin a secret where a word
/// begins. All else is passed by in two tight loops, over words and over what stands between them.
fn next_worth(bytes: &[u8], mut at: usize) -> Option<usize> {
    let classes = &*CLASSES;
    let class = |b: &u8| classes.get(usize::from(*b)).copied().unwrap_or_default();
    let mut in_word = at.checked_sub(1).and_then(|last| bytes.get(last)).is_some_and(|b| is_token(*b));
    loop {
        let rest = bytes.get(at..)?;
        let ahead = if in_word {
            rest.iter().position(|b| class(b) & TOKEN == 0)?
        } else {
            rest.iter().position(|b| class(b) != 0)?
        };
        at += ahead;
        let class = class(bytes.get(at)?);
        if class & COLON != 0 || (!in_word && class & WORTH != 0) {
            return Some(at);
        }
        in_word = class & TOKEN != 0;
        at += 1;
    }
}

/// A secret that begins (or whose name begins) at the first byte of a word: the range to replace.
fn secret_at(text: &str, at: usize, lead: &Lead) -> Option<(usize, usize)> {
    let rest = text.get(at..)?;
    if rest.starts_with("-----BEGIN ") {
        return private_key(rest).map(|len| (at, at + len));
    }
    // A quoted name begins behind its quote.
    let quoted = rest.strip_prefix('"').and_then(|inner| LEADS.get(usize::from(*inner.as_bytes().first()?)));
    prefixed(rest, lead)
        .map(|len| (at, at + len))
        .or_else(|| named(rest, quoted.unwrap_or(lead)).map(|(s, e)| (at + s, at + e)))
        .or_else(|| bearer(rest).map(|(s, e)| (at + s, at + e)))
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')
}

fn run(text: &str, mut ok: impl FnMut(u8) -> bool) -> usize {
    text.bytes().take_while(|b| ok(*b)).count()
}

fn prefixed(rest: &str, lead: &Lead) -> Option<usize> {
    lead.prefixes.iter().filter_map(|i| PREFIXES.get(*i)).find_map(|(prefix, least)| {
        let after = rest.strip_prefix(prefix)?;
        let long = run(after, |b| is_token(b) || b == b'.');
        (long >= *least).then_some(prefix.len() + long)
    })
}

/// `name = value` in the usual spellings; the name stays, the value goes.
fn named(rest: &str, lead: &Lead) -> Option<(usize, usize)> {
    let quoted = usize::from(rest.starts_with('"'));
    let name = lead
        .names
        .iter()
        .filter_map(|i| NAMES.get(*i))
        .filter(|n| rest.get(quoted..quoted + n.len()).is_some_and(|s| s.eq_ignore_ascii_case(n)));
    let name = name.max_by_key(|n| n.len())?;
    let mut at = quoted + name.len();
    at += usize::from(quoted == 1 && rest.as_bytes().get(at) == Some(&b'"'));
    // JSON inside a text of JSON: its quotes are escaped.
    let escaped = quoted == 0 && rest.get(at..).is_some_and(|after| after.starts_with("\\\""));
    at += 2 * usize::from(escaped);
    at += run(rest.get(at..)?, |b| b == b' ').min(SPACES_MAX);
    if !matches!(rest.as_bytes().get(at), Some(b'=' | b':')) {
        return None;
    }
    at += 1;
    at += run(rest.get(at..)?, |b| b == b' ').min(SPACES_MAX);
    let value = rest.get(at..)?;
    if let (true, Some(inner)) = (escaped, value.strip_prefix("\\\"")) {
        let len = run(inner, |b| !matches!(b, b'\\' | b'"'));
        return (len >= 4 && inner.is_char_boundary(len)).then_some((at + 2, at + 2 + len));
    }
    if let Some(inner) = value.strip_prefix('"') {
        let mut escaped = false;
        let len = run(inner, |b| {
            let more = escaped || b != b'"';
            escaped = !escaped && b == b'\\';
            more
        });
        return (len >= 4).then_some((at + 1, at + 1 + len));
    }
    if quoted == 1 {
        // A JSON number or literal: replacing it would break the JSON, and no password is a number there.
        return None;
    }
    // `Authorization: Bearer x` keeps its scheme for the reader.
    let scheme = ["Bearer ", "Basic ", "Token "].iter().find(|s| value.starts_with(**s));
    let start = scheme.map_or(0, |s| s.len());
    let len = run(value.get(start..)?, |b| {
        !b.is_ascii_whitespace() && !matches!(b, b'&' | b';' | b',' | b'"' | b'\'' | b'\\')
    });
    (len >= 4 && value.is_char_boundary(start + len)).then_some((at + start, at + start + len))
}

fn bearer(rest: &str) -> Option<(usize, usize)> {
    let after = rest.strip_prefix("Bearer ").or_else(|| rest.strip_prefix("bearer "))?;
    let len = run(after, |b| is_token(b) || matches!(b, b'.' | b'~' | b'+' | b'/' | b'='));
    (len >= 16).then_some((7, 7 + len))
}

/// `scheme://user:password@host`: the password goes.
fn url_password(text: &str, at: usize) -> Option<(usize, usize)> {
    if text.as_bytes().get(at) != Some(&b':') {
        return None;
    }
    let rest = text.get(at..)?.strip_prefix("://")?;
    let authority =
        rest.get(..run(rest, |b| !b.is_ascii_whitespace() && !matches!(b, b'/' | b'"' | b'?' | b'\\')))?;
    let (credentials, _) = authority.rsplit_once('@')?;
    let (user, password) = credentials.split_once(':')?;
    (!password.is_empty()).then(|| {
        let start = at + 3 + user.len() + 1;
        (start, start + password.len())
    })
}

/// A PEM private key up to its end mark; without one, up to the end of the string or text it stands in.
fn private_key(rest: &str) -> Option<usize> {
    let label = rest.strip_prefix("-----BEGIN ")?;
    let label = label.get(..label.find("-----")?)?;
    if label.len() > 40 || !label.ends_with("PRIVATE KEY") {
        return None;
    }
    let end = rest.find("-----END ").and_then(|e| {
        let after = e + "-----END ".len();
        Some(after + rest.get(after..)?.find("-----")? + "-----".len())
    });
    let quote = rest.find('"').unwrap_or(rest.len());
    Some(end.filter(|e| *e <= quote || quote == 0).unwrap_or(quote))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_go_and_their_surroundings_stay() {
        for (text, expected) in [
            ("token ghp_abcdefghijklmnopqrstuvwxyz012345 end", "token [secret removed] end"),
            ("password=hunter22&x=1", "password=[secret removed]&x=1"),
            ("{\"api_key\": \"abc\\\"def123\", \"n\": 1}", "{\"api_key\": \"[secret removed]\", \"n\": 1}"),
            ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [secret removed]"),
            ("postgres://u:p4ss@db/x", "postgres://u:[secret removed]@db/x"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nrest",
                "[secret removed]\nrest",
            ),
            ("{\"k\":\"-----BEGIN PRIVATE KEY-----\\nMII\",\"n\":1}", "{\"k\":\"[secret removed]\",\"n\":1}"),
            ("{\"s\":\"password=abcd\\\"\"}", "{\"s\":\"password=[secret removed]\\\"\"}"),
            ("{\"password\":123456}", "{\"password\":123456}"),
            (
                r#"{"log":"sent {\"password\": \"hunter22\", \"n\": 1}"}"#,
                r#"{"log":"sent {\"password\": \"[secret removed]\", \"n\": 1}"}"#,
            ),
            (
                "see eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
                "see [secret removed]",
            ),
        ] {
            assert_eq!(scrub(text), expected);
        }
    }

    #[test]
    fn a_secret_across_a_cut_does_not_come_out_by_half() {
        let text = format!("{} ghp_abcdefghijklmnopqrstuvwxyz012345 end", "x".repeat(20));
        for max in 0..=text.len() {
            let found = cut(&text, max);
            assert!(found.len() <= max && !found.contains("abc"), "{max}: {found}");
        }
        assert!(matches!(cut("plain text", 5), Cow::Borrowed("plain")));
    }

    #[test]
    fn plain_words_stay() {
        for text in
            ["the password is wrong", "sk-learn", "task_ghp_", "http://host:80/a@b", "secret: no", "AKIA"]
        {
            assert!(matches!(scrub(text), Cow::Borrowed(_)), "{text}");
        }
    }

    /// Every place that is worth a look, found byte by byte.
    fn worth_by_bytes(bytes: &[u8]) -> Vec<usize> {
        let mut in_word = false;
        let mut found = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == b':' || (!in_word && LEADS[usize::from(*byte)].is_worth) {
                found.push(at);
            }
            in_word = is_token(*byte);
        }
        found
    }

    proptest! {
        #[test]
        fn no_place_that_is_worth_a_look_is_passed_by(text in "([a-zA-Z0-9_\\-]{0,6}[ \":,=äp\\-]{0,3}){0,12}") {
            let bytes = text.as_bytes();
            let found: Vec<usize> =
                std::iter::successors(next_worth(bytes, 0), |at| next_worth(bytes, at + 1)).collect();
            prop_assert_eq!(found, worth_by_bytes(bytes));
        }

        #[test]
        fn any_text_is_scrubbed_without_a_fault(text in "\\PC{0,80}", secret in "[a-z0-9]{24}") {
            let all = format!("{text} ghp_{secret} {text}");
            let scrubbed = scrub(&all);
            prop_assert!(!scrubbed.contains(&secret));
        }
    }
}
