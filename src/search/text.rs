//! From text to terms: the one analyser, the same for tools and for queries.
//!
//! Words are split where people and programs join them (`listPullRequests`, `list_pull_requests`, `e-mail`, `s3`),
//! lower-cased, freed of accents and stemmed (Porter2, from tantivy); the joined form is kept beside the parts.
//! Scripts without spaces become pairs of characters. It knows nothing of fields, weights or documents.

use tantivy::tokenizer::{RawTokenizer, Stemmer, TextAnalyzer, TokenStream};
use unicode_normalization::UnicodeNormalization;

/// Characters of a joined form at most: longer ones are sentences, not names.
const JOINED_CHARS_MAX: usize = 24;
/// Characters of one term at most: encoded blobs in descriptions are not words.
const TERM_CHARS_MAX: usize = 40;
/// A mix of letters and digits up to this many characters is one word (`s3`, `k8s`, `ec2`, `v2`).
const SHORT_CODE_CHARS: usize = 4;

/// The terms of one chunk of text (a run without spaces).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Terms {
    /// The stemmed parts in order.
    pub(super) parts: Vec<String>,
    /// All parts in one, not stemmed, if there were several.
    pub(super) joined: Option<String>,
}

/// The analyser. Cheap to make; keep one for many texts.
pub(super) struct Analyzer {
    stemmer: TextAnalyzer,
}

impl Analyzer {
    pub(super) fn new() -> Self {
        Self { stemmer: TextAnalyzer::builder(RawTokenizer::default()).filter(Stemmer::default()).build() }
    }

    /// The stem of one lower-case word.
    pub(super) fn stem(&mut self, word: &str) -> String {
        let mut stream = self.stemmer.token_stream(word);
        if stream.advance() { stream.token().text.clone() } else { word.to_owned() }
    }

    /// The terms of a chunk.
    pub(super) fn terms(&mut self, chunk: &str) -> Terms {
        self.terms_of(&split(chunk))
    }

    /// The terms of a chunk that was split already.
    pub(super) fn terms_of(&mut self, words: &[String]) -> Terms {
        let mut terms = Terms::default();
        if words.len() > 1 && words.iter().all(|w| !is_unspaced(w)) {
            let joined: String = words.concat();
            if joined.chars().count() <= JOINED_CHARS_MAX {
                terms.joined = Some(joined);
            }
        }
        for word in words {
            if is_unspaced(word) {
                terms.parts.extend(pairs(word));
            } else {
                terms.parts.push(self.stem(word));
            }
        }
        terms
    }
}

/// The chunks of a text: runs without white space or characters that never join words.
pub(super) fn chunks(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| {
        !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '\'' | '’') || is_mark(c))
    })
    .flat_map(|run| run.split('/'))
    .filter(|chunk| chunk.chars().any(char::is_alphanumeric))
}

fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

/// The lower-case parts of a chunk, split at separators, at changes of case and between letters and digits.
pub(super) fn split(chunk: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for piece in chunk.split(|c: char| !(c.is_alphanumeric() || is_mark(c) || matches!(c, '\'' | '’'))) {
        let piece = piece.split(['\'', '’']).find(|p| !p.is_empty()).unwrap_or("");
        if piece.is_empty() {
            continue;
        }
        if is_plain(piece) {
            words.push(piece.to_ascii_lowercase());
            continue;
        }
        if is_code(piece) {
            words.push(fold(piece));
            continue;
        }
        for part in parts(piece) {
            let word = fold(&part);
            if !word.is_empty() && word.chars().count() <= TERM_CHARS_MAX {
                words.push(word);
            }
        }
    }
    words
}

/// One word of ASCII letters, the first a capital or not: nearly all are, and there is nothing to split or to fold.
fn is_plain(piece: &str) -> bool {
    piece.len() <= TERM_CHARS_MAX
        && piece.bytes().all(|b| b.is_ascii_alphabetic())
        && piece.bytes().skip(1).all(|b| b.is_ascii_lowercase())
}

/// Short mixes of letters and digits stay whole.
fn is_code(piece: &str) -> bool {
    piece.chars().count() <= SHORT_CODE_CHARS
        && piece.chars().any(|c| c.is_ascii_digit())
        && piece.chars().any(char::is_alphabetic)
}

/// Splits at `aB`, `ABc` (before `B`), and between letters and digits.
fn parts(piece: &str) -> Vec<String> {
    let chars: Vec<char> = piece.chars().collect();
    let mut out = vec![String::new()];
    for (i, c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|j| chars.get(j));
        let after = chars.get(i + 1);
        let cut = before.is_some_and(|b| {
            (b.is_lowercase() && c.is_uppercase())
                || (b.is_uppercase()
                    && c.is_uppercase()
                    && after.is_some_and(|a| a.is_lowercase())
                    && !plural(&chars, i))
                || (b.is_numeric() != c.is_numeric())
        });
        if cut {
            out.push(String::new());
        }
        if let Some(last) = out.last_mut() {
            last.push(*c);
        }
    }
    out
}

/// `APIs`, `URLs`, `PRs`: the `s` after capitals at the end belongs to them.
fn plural(chars: &[char], at: usize) -> bool {
    chars.get(at + 1) == Some(&'s') && chars.get(at + 2).is_none_or(|c| !c.is_lowercase())
}

/// Lower case without accents.
fn fold(word: &str) -> String {
    if word.is_ascii() {
        return word.to_ascii_lowercase();
    }
    let base: String = word.nfkd().filter(|c| !is_mark(*c)).collect();
    base.nfkc().flat_map(char::to_lowercase).collect()
}

/// Scripts written without spaces: Han, kana, Hangul, Thai, Lao, Khmer, Burmese.
fn is_unspaced_char(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{3ffff}')
}

fn is_unspaced(word: &str) -> bool {
    !word.is_ascii() && word.chars().any(is_unspaced_char)
}

/// Pairs of neighbouring characters; a lone one stands for itself.
fn pairs(word: &str) -> Vec<String> {
    let chars: Vec<char> = word.chars().collect();
    if chars.len() < 2 {
        return vec![word.to_owned()];
    }
    chars.windows(2).map(|pair| pair.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<String> {
        let mut analyzer = Analyzer::new();
        chunks(text)
            .flat_map(|c| {
                let t = analyzer.terms(c);
                t.parts.into_iter().chain(t.joined).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn names_are_split_and_kept_whole() {
        assert_eq!(terms("listPullRequests"), ["list", "pull", "request", "listpullrequests"]);
        assert_eq!(terms("list_pull-requests"), ["list", "pull", "request", "listpullrequests"]);
        assert_eq!(terms("e-mail"), ["e", "mail", "email"]);
        assert_eq!(terms("HTTPServer APIs"), ["http", "server", "httpserver", "api"]);
        assert_eq!(terms("S3 k8s oauth2"), ["s3", "k8s", "oauth", "2", "oauth2"]);
    }

    #[test]
    fn accents_case_and_apostrophes_do_not_matter() {
        assert_eq!(terms("Café"), terms("cafe"));
        assert_eq!(terms("user's"), terms("user"));
        assert_eq!(terms("STRASSE"), ["strass"]);
    }

    #[test]
    fn unspaced_scripts_become_pairs() {
        assert_eq!(terms("获取天气"), ["获取", "取天", "天气"]);
        assert_eq!(terms("猫"), ["猫"]);
    }

    #[test]
    fn the_joined_form_has_an_end() {
        assert_eq!(terms("a-very-long-name-that-nobody-types").len(), 7);
    }
}
