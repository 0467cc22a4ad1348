//! Words that mean the same, acronyms and phrases: the reviewed tables of `index/synonyms.toml`.

use std::collections::HashMap;

use super::text::{Analyzer, chunks};
use crate::diagnostic::{Diagnostics, SourceFile};
use crate::settings;

/// The tables, with every word as the analyser's terms.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Synonyms {
    /// A term and the other terms that may stand in its place.
    same: HashMap<String, Vec<String>>,
    /// A term and what it is short for, or a run of terms and what it says.
    expansions: HashMap<Vec<String>, Vec<String>>,
    /// Terms of the longest phrase.
    longest: usize,
}

impl Synonyms {
    /// Reads the file; mistakes land in `diagnostics`.
    pub(super) fn read(file: &SourceFile, diagnostics: &mut Diagnostics) -> Self {
        let mut out = Self::default();
        let mut analyzer = Analyzer::new();
        settings::read(file, diagnostics, |root| {
            for line in root.strings("same").unwrap_or_default() {
                let group = terms(&mut analyzer, &line.value);
                if group.len() < 2 {
                    root.error(
                        line.offset,
                        "lonely-synonym",
                        "a group of synonyms needs two words that differ after stemming",
                        "add a word or remove the line",
                    );
                }
                out.add_group(&group);
            }
            for table in ["acronyms", "phrases"] {
                for (short, long) in root.string_table(table) {
                    out.add_expansion(terms(&mut analyzer, &short), terms(&mut analyzer, &long.value));
                }
            }
        });
        out
    }

    fn add_group(&mut self, group: &[String]) {
        for word in group {
            let others = self.same.entry(word.clone()).or_default();
            for other in group {
                if other != word && !others.contains(other) {
                    others.push(other.clone());
                }
            }
        }
    }

    fn add_expansion(&mut self, short: Vec<String>, long: Vec<String>) {
        if !short.is_empty() {
            self.longest = self.longest.max(short.len());
            self.expansions.entry(short).or_default().extend(long);
        }
    }

    /// What may stand in a term's place.
    pub(super) fn of(&self, term: &str) -> &[String] {
        self.same.get(term).map_or(&[], Vec::as_slice)
    }

    /// Terms that a run of the question's terms adds: acronyms and phrases.
    pub(super) fn expand<'a>(&'a self, terms: &'a [String]) -> impl Iterator<Item = &'a [String]> {
        (1..=self.longest)
            .flat_map(|n| terms.windows(n))
            .filter_map(|run| self.expansions.get(run).map(Vec::as_slice))
    }
}

/// The terms of a text in order, each once.
fn terms(analyzer: &mut Analyzer, text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for chunk in chunks(text) {
        for part in analyzer.terms(chunk).parts {
            if !out.contains(&part) {
                out.push(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_acronyms_and_phrases_are_stemmed() {
        let file = SourceFile::new(
            "index/synonyms.toml",
            "same = [\"delete removes\", \"x\"]\n[acronyms]\npr = \"pull request\"\n[phrases]\n\"get rid of\" = \"delete\"\n",
        );
        let mut diagnostics = Diagnostics::default();
        let synonyms = Synonyms::read(&file, &mut diagnostics);
        assert_eq!(diagnostics.0.iter().map(|d| d.code).collect::<Vec<_>>(), ["lonely-synonym"]);
        assert_eq!(synonyms.of("delet"), ["remov"]);
        let terms: Vec<String> = ["get", "rid", "of", "pr"].map(str::to_owned).into();
        let expanded: Vec<&[String]> = synonyms.expand(&terms).collect();
        assert_eq!(expanded, [&["pull".to_owned(), "request".to_owned()][..], &["delet".to_owned()][..]]);
    }
}
