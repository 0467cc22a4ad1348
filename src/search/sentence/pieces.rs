//! Word pieces of BERT's uncased vocabularies: cleaning, lower case without accents, punctuation apart, then the
//! longest known piece, again and again (Devlin et al. 2018, "BERT", and its reference tokenizer).
//!
//! One difference, on purpose: `[SEP]` and its kin inside a text are ordinary text and never control the model.

use std::collections::HashMap;

use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_normalization::UnicodeNormalization;

use super::super::num::number;
use super::NotAModel;

/// Letters of a word from which on it is unknown as a whole, as in the reference.
const WORD_LETTERS_MAX: usize = 100;

/// A vocabulary.
#[derive(Debug)]
pub(super) struct Pieces {
    /// Pieces that begin a word, and pieces that go on.
    begins: HashMap<Box<str>, u32>,
    goes_on: HashMap<Box<str>, u32>,
    unknown: u32,
    begin: u32,
    end: u32,
    len: usize,
}

impl Pieces {
    /// A `vocab.txt`: one piece a line, its number is the line's.
    pub(super) fn read(text: &str) -> Result<Self, NotAModel> {
        let (mut begins, mut goes_on) = (HashMap::new(), HashMap::new());
        let mut len = 0;
        for (no, line) in text.lines().enumerate() {
            len = no + 1;
            match line.strip_prefix("##") {
                Some(rest) if !rest.is_empty() => goes_on.insert(rest.into(), number(no)),
                _ => begins.insert(line.into(), number(no)),
            };
        }
        let special = |piece: &'static str| begins.get(piece).copied().ok_or(NotAModel::Vocabulary(piece));
        let (unknown, begin, end) = (special("[UNK]")?, special("[CLS]")?, special("[SEP]")?);
        Ok(Self { begins, goes_on, unknown, begin, end, len })
    }

    /// How many pieces there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The pieces of a text between the two that say where it begins and ends; at most `max` in all.
    pub(super) fn of(&self, text: &str, max: usize) -> Vec<u32> {
        let mut out = vec![self.begin];
        let room = max.saturating_sub(1);
        for word in words(text) {
            self.word(&word, &mut out);
            if out.len() > room {
                break;
            }
        }
        out.truncate(room);
        out.push(self.end);
        out
    }

    /// The pieces of one word; the unknown one where any part of it is not known.
    fn word(&self, word: &str, out: &mut Vec<u32>) {
        let before = out.len();
        let mut rest = if word.chars().nth(WORD_LETTERS_MAX).is_some() { "" } else { word };
        if rest.is_empty() {
            return out.push(self.unknown);
        }
        while !rest.is_empty() {
            let known = if out.len() == before { &self.begins } else { &self.goes_on };
            let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
            let found = ends
                .filter_map(|end| rest.split_at_checked(end))
                .find_map(|(piece, left)| Some((*known.get(piece)?, left)));
            let Some((no, left)) = found else {
                out.truncate(before);
                return out.push(self.unknown);
            };
            out.push(no);
            rest = left;
        }
    }
}

/// The words of a text, folded, each mark of punctuation and each CJK character a word of its own.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut out = Vec::new();
    let mut word = String::new();
    let clean = text.chars().filter(|c| !is_dropped(*c));
    // Accents fall where a letter and its mark are taken apart.
    let folded = clean.nfd().filter(|c| get_general_category(*c) != GeneralCategory::NonspacingMark);
    for c in folded.flat_map(char::to_lowercase) {
        let alone = is_punctuation(c) || is_ideograph(c);
        if (alone || c.is_whitespace()) && !word.is_empty() {
            out.push(std::mem::take(&mut word));
        }
        if alone {
            out.push(c.to_string());
        } else if !c.is_whitespace() {
            word.push(c);
        }
    }
    out.extend(Some(word).filter(|w| !w.is_empty()));
    out.into_iter()
}

/// Control characters say nothing.
fn is_dropped(c: char) -> bool {
    use GeneralCategory::{Control, Format, PrivateUse};
    c == '\u{fffd}'
        || (!matches!(c, '\t' | '\n' | '\r')
            && matches!(get_general_category(c), Control | Format | PrivateUse))
}

/// Whatever ASCII has besides letters, digits and spaces counts, as `$` and `^` do.
fn is_punctuation(c: char) -> bool {
    use GeneralCategory::{
        ClosePunctuation, ConnectorPunctuation, DashPunctuation, FinalPunctuation, InitialPunctuation,
        OpenPunctuation, OtherPunctuation,
    };
    if c.is_ascii() {
        return c.is_ascii_punctuation();
    }
    matches!(
        get_general_category(c),
        ClosePunctuation
            | ConnectorPunctuation
            | DashPunctuation
            | FinalPunctuation
            | InitialPunctuation
            | OpenPunctuation
            | OtherPunctuation
    )
}

/// The blocks of CJK ideographs that the reference sets apart.
fn is_ideograph(c: char) -> bool {
    matches!(c,
        '\u{4e00}'..='\u{9fff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2b73f}'
        | '\u{2b740}'..='\u{2b81f}'
        | '\u{2b920}'..='\u{2ceaf}'
        | '\u{f900}'..='\u{faff}'
        | '\u{2f800}'..='\u{2fa1f}')
}
