//! Which functions of the scripts were reached: for `docent test --coverage`, never while serving.
//!
//! A mark is put at the beginning of every function before the script is compiled, on the same line, so that
//! places stay true.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use crate::diagnostic::SourceFile;
use crate::script::EngineBuilder;

/// The host function behind the marks: no name that a script would choose.
const MARK: &str = "reached_by_a_case";

/// A function of a script.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoveredFunction {
    /// The file, relative to the home.
    pub file: Arc<str>,
    /// The line where it is defined, from 1.
    pub line: usize,
    /// Its name.
    pub name: String,
}

/// What was reached so far. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Coverage(Arc<Mutex<Marks>>);

#[derive(Debug, Default)]
struct Marks {
    functions: BTreeMap<CoveredFunction, usize>,
    reached: Vec<bool>,
}

impl Coverage {
    /// The functions that no case reached, in file order, and how many there are.
    pub fn missed(&self) -> (Vec<CoveredFunction>, usize) {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missed = marks.functions.iter().filter(|(_, at)| marks.reached.get(**at) != Some(&true));
        (missed.map(|(f, _)| f.clone()).collect(), marks.functions.len())
    }

    /// Gives the engine the function that the marks call.
    pub(super) fn register(&self, builder: &mut EngineBuilder) {
        let marks = Arc::clone(&self.0);
        builder.function(MARK, "reached_by_a_case(n)", "The mark of a function.", move |at: i64| {
            let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot) = usize::try_from(at).ok().and_then(|at| marks.reached.get_mut(at)) {
                *slot = true;
            }
        });
    }

    /// The source with a mark in every function.
    pub(super) fn marked(&self, source: &SourceFile) -> SourceFile {
        let mut out = String::with_capacity(source.text.len() + 256);
        let mut from = 0;
        for body in bodies(&source.text) {
            let name = match body.name {
                // What the host calls it (see `prepared`).
                "Request" => "request",
                name => name,
            };
            let function =
                CoveredFunction { file: Arc::clone(&source.name), line: body.line, name: name.to_owned() };
            let at = self.number(function);
            out.push_str(source.text.get(from..body.inside).unwrap_or_default());
            // Writing to a string cannot fail.
            write!(out, " {MARK}({at});").ok();
            from = body.inside;
        }
        out.push_str(source.text.get(from..).unwrap_or_default());
        SourceFile { name: Arc::clone(&source.name), text: Arc::from(out) }
    }

    /// A library is compiled into the engine of every pack: its functions keep their numbers.
    fn number(&self, function: CoveredFunction) -> usize {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = marks.functions.len();
        let at = *marks.functions.entry(function).or_insert(next);
        marks.reached.resize(next.max(at) + 1, false);
        at
    }
}

/// A function in a source.
#[derive(Debug, PartialEq, Eq)]
struct Body<'s> {
    name: &'s str,
    /// The line of `fn`.
    line: usize,
    /// The byte behind the brace that opens it.
    inside: usize,
}

/// The functions of a source, found word by word: comments and texts are passed over.
fn bodies(text: &str) -> Vec<Body<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|r| !r.is_empty()) {
        let skipped = opaque(rest);
        if skipped > 0 {
            at += skipped;
            continue;
        }
        let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if word == 0 {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        if rest.get(..word) == Some("fn")
            && let Some((name, inside)) = head(text, at + word)
        {
            let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
            found.push(Body { name, line, inside });
            at = inside;
        } else {
            at += word;
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Bytes of a comment or a text at the beginning; 0 where there is neither.
fn opaque(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        let (mut depth, mut at) = (0usize, 0);
        while let Some(next) = rest.get(at..).filter(|n| !n.is_empty()) {
            if next.starts_with("/*") {
                (depth, at) = (depth + 1, at + 2);
            } else if next.starts_with("*/") {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            } else {
                at += next.chars().next().map_or(1, char::len_utf8);
            }
        }
        return rest.len();
    }
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '`' | '\'')) else { return 0 };
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' && quote != '`' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// The name of a function whose `fn` ends here, and the byte behind its opening brace.
fn head(text: &str, from: usize) -> Option<(&str, usize)> {
    let after = text.get(from..)?;
    let open = after.find('(')?;
    let name = after.get(..open)?.trim();
    if name.is_empty() || !name.chars().all(is_word) {
        return None;
    }
    let close = open + after.get(open..)?.find(')')?;
    let brace = close + 1 + after.get(close + 1..)?.find('{')?;
    after.get(close + 1..brace)?.trim().is_empty().then_some((name, from + brace + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_and_words_in_texts_are_not() {
        let source = "// fn no(a) {\nfn one(a, b) { \"fn two() {\" }\n/* fn /* x */ three() { */\nprivate fn\nfour()\n{ `fn five() {` }\nlet fnx = 'f';";
        let found: Vec<(&str, usize)> = bodies(source).iter().map(|b| (b.name, b.line)).collect();
        assert_eq!(found, [("one", 2), ("four", 4)]);
        assert!(bodies(source).iter().all(|b| source.get(..b.inside).unwrap().ends_with('{')));
    }

    #[test]
    fn a_mark_stands_on_the_functions_own_line_and_counts_once() {
        let coverage = Coverage::default();
        let source = SourceFile::new("scripts/t/t.rhai", "fn Request(args, ctx) {\n  1\n}\nfn b() { 2 }\n");
        let marked = coverage.marked(&source);
        assert_eq!(marked.text.lines().count(), source.text.lines().count());
        assert_eq!(coverage.marked(&source).text, marked.text);
        let (missed, all) = coverage.missed();
        assert_eq!((missed.len(), all), (2, 2));
        assert_eq!((missed[0].name.as_str(), missed[1].line), ("request", 4));
    }
}
