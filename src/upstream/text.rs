//! Characters that people do not see but models read: found in what upstreams say, taken out, reported
//! (security fact 10).

/// Whether a character hides text or changes how it is shown: bidirectional controls, zero-width characters,
/// the tags block, variation selectors beyond the two of emoji, and controls other than newline and tab.
pub(super) fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200c}' | '\u{200e}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text without hidden characters and terminal escapes; how many characters were taken out.
pub(super) fn clean(text: &str) -> (String, usize) {
    let mut out = String::with_capacity(text.len());
    let mut taken = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.peek() == Some(&'[') {
            // A CSI sequence ends with a letter of 0x40 to 0x7e.
            taken += 2;
            chars.next();
            while let Some(next) = chars.next_if(|n| n.is_ascii() && !n.is_control()) {
                taken += 1;
                if ('@'..='~').contains(&next) {
                    break;
                }
            }
        } else if is_hidden(c) && !(c == '\r' && chars.peek() == Some(&'\n')) {
            taken += 1;
        } else if c != '\r' {
            out.push(c);
        }
    }
    (out, taken)
}

/// The text without hidden characters, for messages.
pub(super) fn plain(text: &str) -> String {
    clean(text).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_taken_out_and_counted() {
        assert_eq!(
            clean("Adds\u{200b} two\u{202e} numbers\n\tnow"),
            ("Adds two numbers\n\tnow".to_owned(), 2)
        );
        assert_eq!(clean("\u{1b}[31mred\u{1b}[0m"), ("red".to_owned(), 9));
        assert_eq!(clean("a\u{e0041}\u{e0042}b"), ("ab".to_owned(), 2));
        assert_eq!(clean("line\r\nline"), ("line\nline".to_owned(), 0));
        assert_eq!(clean("Grüße, 日本語 👍🏽 👩‍👧"), ("Grüße, 日本語 👍🏽 👩‍👧".to_owned(), 0));
    }
}
