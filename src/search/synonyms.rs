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
    /// A term of everyday speech and the terms of tools that it may mean; one way only.
    means: HashMap<String, Vec<String>>,
    /// A term and what it is short for, or a run of terms and what it says besides its words.
    expansions: Runs,
    /// Runs of terms that say something else than their terms do.
    idioms: Runs,
}

/// What runs of terms say, by the first term of the run: most terms begin none.
#[derive(Debug, Clone, Default, PartialEq)]
struct Runs(HashMap<String, Vec<Run>>);

/// One run and what it says.
#[derive(Debug, Clone, PartialEq)]
struct Run {
    terms: Vec<String>,
    says: Vec<String>,
}

impl Runs {
    fn add(&mut self, terms: Vec<String>, says: Vec<String>) {
        let Some(first) = terms.first() else { return };
        let runs = self.0.entry(first.clone()).or_default();
        match runs.iter_mut().find(|run| run.terms == terms) {
            Some(run) => run.says.extend(says),
            None => runs.push(Run { terms, says }),
        }
    }

    /// The runs that some terms begin with.
    fn at(&self, terms: &[String]) -> impl Iterator<Item = &Run> {
        let begun = terms.first().and_then(|first| self.0.get(first)).into_iter().flatten();
        begun.filter(|run| terms.starts_with(&run.terms))
    }
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
            for (word, meant) in root.string_table("means") {
                for term in terms(&mut analyzer, &word) {
                    out.means.entry(term).or_default().extend(terms(&mut analyzer, &meant.value));
                }
            }
            for table in ["acronyms", "phrases", "idioms"] {
                let runs = if table == "idioms" { &mut out.idioms } else { &mut out.expansions };
                for (run, says) in root.string_table(table) {
                    runs.add(sequence(&mut analyzer, &run), terms(&mut analyzer, &says.value));
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

    /// What may stand in a term's place.
    pub(super) fn of(&self, term: &str) -> &[String] {
        self.same.get(term).map_or(&[], Vec::as_slice)
    }

    /// What a term of everyday speech may mean.
    pub(super) fn meant_by(&self, term: &str) -> &[String] {
        self.means.get(term).map_or(&[], Vec::as_slice)
    }

    /// Terms that runs of the question's terms add (acronyms and phrases), those of shorter runs first.
    pub(super) fn expand(&self, terms: &[String]) -> Vec<&[String]> {
        let starts = (0..terms.len()).filter_map(|at| terms.get(at..));
        let mut runs: Vec<&Run> = starts.flat_map(|rest| self.expansions.at(rest)).collect();
        runs.sort_by_key(|run| run.terms.len());
        runs.into_iter().map(|run| run.says.as_slice()).collect()
    }

    /// The idiom that a question's terms begin with, the longest of several: how many terms, and what they say.
    pub(super) fn idiom(&self, terms: &[String]) -> Option<(usize, &[String])> {
        let several = self.idioms.at(terms).filter(|run| run.terms.len() > 1);
        several.max_by_key(|run| run.terms.len()).map(|run| (run.terms.len(), run.says.as_slice()))
    }
}

/// The terms of a text in order.
fn sequence(analyzer: &mut Analyzer, text: &str) -> Vec<String> {
    chunks(text).flat_map(|chunk| analyzer.terms(chunk).parts).collect()
}

/// The terms of a text in order, each once.
fn terms(analyzer: &mut Analyzer, text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for part in sequence(analyzer, text) {
        if !out.contains(&part) {
            out.push(part);
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
            "same = [\"delete removes\", \"x\"]\n[means]\ntail = \"logs\"\n[acronyms]\npr = \"pull request\"\n\
             [phrases]\n\"money back\" = \"refunds\"\n[idioms]\n\"get rid of\" = \"delete\"\n",
        );
        let mut diagnostics = Diagnostics::default();
        let synonyms = Synonyms::read(&file, &mut diagnostics);
        assert_eq!(diagnostics.0.iter().map(|d| d.code).collect::<Vec<_>>(), ["lonely-synonym"]);
        assert_eq!(synonyms.of("delet"), ["remov"]);
        assert_eq!((synonyms.meant_by("tail"), synonyms.meant_by("log")), (&["log".to_owned()][..], &[][..]));
        let terms = ["pr", "money", "back", "get", "rid", "of"].map(str::to_owned);
        assert_eq!(
            synonyms.expand(&terms),
            [&["pull".to_owned(), "request".to_owned()][..], &["refund".to_owned()][..]]
        );
        assert_eq!(synonyms.idiom(&terms[3..]), Some((3, &["delet".to_owned()][..])));
        assert_eq!(synonyms.idiom(&terms), None);
    }
}
