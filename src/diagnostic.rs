//! What `docent check` reports: a mistake with its file, place, the line itself and the way out.
//!
//! Loading never stops at the first mistake: everything that reads the home pushes into [`Diagnostics`].

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// How bad a [`Diagnostic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The home does not load.
    Error,
    /// The home loads; `check --strict` fails.
    Warning,
    /// Worth knowing.
    Note,
}

/// One mistake. `line` and `column` count from 1; 0 means the whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Error, warning or note.
    pub severity: Severity,
    /// A stable kebab-case name of the rule, e.g. `unknown-key`.
    pub code: &'static str,
    /// The file, relative to the home.
    pub file: String,
    /// Line from 1, 0 for the whole file.
    pub line: usize,
    /// Column from 1 in characters, 0 for the whole line.
    pub column: usize,
    /// What is wrong: one sentence that names the key and the rule, without a full stop.
    pub message: String,
    /// What was expected, or the way out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub help: String,
    /// The line itself, for the caret.
    #[serde(skip)]
    pub source_line: Option<String>,
}

impl Diagnostic {
    /// A mistake that keeps the home from loading, about a whole file.
    pub fn error(code: &'static str, file: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            file: file.into(),
            line: 0,
            column: 0,
            message: message.into(),
            help: String::new(),
            source_line: None,
        }
    }

    /// The same as a warning.
    pub fn warning(code: &'static str, file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, file, message) }
    }

    /// Adds what was expected, or the way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// Forgets the line itself, where it may hold a secret. The place stays.
    #[must_use]
    pub fn without_line(mut self) -> Self {
        self.source_line = None;
        self
    }

    /// Places it at a byte offset of `source`, keeping the line for the caret.
    #[must_use]
    pub fn at_offset(self, source: &str, offset: usize) -> Self {
        let before = source.get(..offset.min(source.len())).unwrap_or(source);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        self.at(source, line, column)
    }

    /// Places it at a line and column (both from 1) of `source`, keeping the line for the caret.
    #[must_use]
    pub fn at(mut self, source: &str, line: usize, column: usize) -> Self {
        (self.line, self.column) = (line, column);
        self.source_line = source.lines().nth(line.saturating_sub(1)).map(str::to_owned);
        self
    }
}

impl fmt::Display for Diagnostic {
    /// `file:line:column: error[code]: message`, the line, a caret, `help: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column.max(1))?;
        }
        write!(f, ": {severity}[{}]: {}", self.code, self.message)?;
        if let Some(line) = &self.source_line {
            let shown: String = line.chars().take(160).collect();
            write!(f, "\n  {:>5} | {shown}", self.line)?;
            if self.column > 0 && self.column <= 161 {
                write!(f, "\n        | {:>width$}", "^", width = self.column)?;
            }
        }
        if !self.help.is_empty() {
            write!(f, "\n        = help: {}", self.help)?;
        }
        Ok(())
    }
}

/// All mistakes found so far, in the order they were found.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds all of another list.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether any of them keeps the home from loading.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    /// Puts the diagnostics of each file in line order; files stay in the order in which they were met.
    pub fn sort(&mut self) {
        let mut files: Vec<String> = Vec::new();
        for d in &self.0 {
            if !files.contains(&d.file) {
                files.push(d.file.clone());
            }
        }
        self.0.sort_by_key(|d| (files.iter().position(|f| *f == d.file), d.line, d.column));
    }

    /// How many of one severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.0.iter().filter(|d| d.severity == severity).count()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for d in &self.0 {
            writeln!(f, "{d}")?;
        }
        Ok(())
    }
}

/// A text file of the home with the name that diagnostics show. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path relative to the home, with `/`.
    pub name: Arc<str>,
    /// Its text.
    pub text: Arc<str>,
}

impl SourceFile {
    /// Names a text.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// An error at a byte offset of this file.
    pub fn error_at(&self, code: &'static str, offset: usize, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, &*self.name, message).at_offset(&self.text, offset)
    }
}

/// The nearest of `candidates` to `given`, for "did you mean": at most a third of the letters may differ.
pub fn did_you_mean<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (given.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|c| (edit_distance(given, c), c))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, c)| (*d, c.len()))
        .map(|(_, c)| c)
}

/// Optimal string alignment distance (insert, delete, replace, swap of neighbours).
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let (mut before, mut prev): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let at = |v: &[usize], k: usize| v.get(k).copied().unwrap_or(usize::MAX / 2);
            let mut best =
                (at(&prev, j + 1) + 1).min(at(&row, j) + 1).min(at(&prev, j) + usize::from(ca != cb));
            if i > 0 && j > 0 && a.get(i - 1) == Some(cb) && b.get(j - 1) == Some(ca) {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut prev, row);
    }
    prev.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_shows_the_line_and_a_caret() {
        let file = SourceFile::new("docent.toml", "[server]\nlisten_to = 1\n");
        let d = file
            .error_at("unknown-key", 9, "unknown key `listen_to` in `[server]`")
            .help("did you mean `listen`?");
        let text = "docent.toml:2:1: error[unknown-key]: unknown key `listen_to` in `[server]`\n      2 | listen_to = 1\n        | ^\n        = help: did you mean `listen`?";
        assert_eq!(d.to_string(), text);
    }

    #[test]
    fn suggestions_are_near_or_none() {
        assert_eq!(did_you_mean("listne", ["listen", "name"]), Some("listen"));
        assert_eq!(did_you_mean("catgory", ["category", "tags"]), Some("category"));
        assert_eq!(did_you_mean("zzz", ["listen", "name"]), None);
    }
}
