//! Which rules and functions the cases of a home reached, and which nobody ever looked at.

use std::collections::BTreeSet;

use serde::Serialize;

use super::function::Phase;
use super::set::PolicySet;

/// A rule or function that no case reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreached {
    /// The file.
    pub file: String,
    /// The line.
    pub line: usize,
    /// What stands there: `allow`, `hide`, `deny`, `challenge`, `confirm`, or the function's name.
    pub name: String,
}

/// How much of something cases reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Coverage {
    /// How many there are.
    pub total: usize,
    /// How many of them some case reached.
    pub reached: usize,
    /// The others.
    pub missing: Vec<Unreached>,
}

impl Coverage {
    /// Counts one more.
    pub fn add(&mut self, is_reached: bool, what: impl FnOnce() -> Unreached) {
        self.total += 1;
        if is_reached {
            self.reached += 1;
        } else {
            self.missing.push(what());
        }
    }
}

/// The name under which a function that spoke is written down: its file and its phase.
pub(super) fn function(file: &str, phase: &str) -> String {
    format!("{file}#{phase}")
}

impl PolicySet {
    /// The rules and the functions of these policies against what [`CaseOutcome::reached`](super::CaseOutcome)
    /// says. A rule is reached when it spoke on a tool and caller of a case, a function when it answered anything
    /// but `abstain()` (`visible`: anything but true).
    pub fn coverage(&self, reached: &BTreeSet<String>) -> (Coverage, Coverage) {
        let (mut rules, mut functions) = (Coverage::default(), Coverage::default());
        for rule in self.inner().rules.iter().filter(|r| r.at.line > 0) {
            rules.add(reached.contains(&rule.at.to_string()), || Unreached {
                file: rule.at.file.to_string(),
                line: rule.at.line,
                name: rule.effect.word().to_owned(),
            });
        }
        for f in self.inner().functions.iter().filter(|f| f.phase != Phase::Rules) {
            functions.add(reached.contains(&function(&f.at.file, f.phase.name())), || Unreached {
                file: f.at.file.to_string(),
                line: f.at.line,
                name: f.phase.name().to_owned(),
            });
        }
        (rules, functions)
    }
}
