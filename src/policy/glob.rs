//! The pattern of tool ids and names: `*` is any text, `?` is one character, the rest is itself.

use std::sync::Arc;

/// A pattern that takes linear time per tried start: no classes, no alternatives, dots are ordinary.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Glob(pub(super) Arc<str>);

impl Glob {
    pub(super) fn matches(&self, text: &str) -> bool {
        matches(&self.0, text)
    }
}

/// Whether `pattern` covers the whole of `text`.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (mut rest, mut todo) = (text.chars(), pattern.chars());
    // Where to start again when a later part fails: after the last star, one character further on.
    let mut again: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let (mut next_text, mut next_todo) = (rest.clone(), todo.clone());
        match (next_todo.next(), next_text.next()) {
            (Some('*'), _) => {
                todo = next_todo.clone();
                again = Some((rest.clone(), next_todo));
                continue;
            }
            (Some('?'), Some(_)) => {
                (rest, todo) = (next_text, next_todo);
                continue;
            }
            (Some(p), Some(t)) if p == t => {
                (rest, todo) = (next_text, next_todo);
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        let Some((from, after)) = &mut again else { return false };
        if from.next().is_none() {
            return false;
        }
        (rest, todo) = (from.clone(), after.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("deploy.*", "deploy.prod", true),
            ("deploy.*", "deploy", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*.delete*", "git.delete_branch", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXbX", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("git.log", "git_log", false),
            ("**", "anything", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }
}
