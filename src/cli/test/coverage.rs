//! `docent test --coverage`: the rules and functions of policies that no case reached.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cli::{Context, Failure};
use crate::policy::{Coverage, Unreached};
use crate::snapshot::Snapshot;

/// What the cases of one run reached.
#[derive(Debug, Default)]
pub(super) struct Reached {
    /// Rules as `file:line`, functions as `file#name`.
    places: BTreeSet<String>,
}

/// Rules and functions of policies.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    rules: Coverage,
    functions: Coverage,
}

impl Reached {
    /// Takes in what one case reached.
    pub(super) fn extend(&mut self, places: impl IntoIterator<Item = String>) {
        self.places.extend(places);
    }

    /// The rules and functions of a home against it.
    pub(super) fn report(&self, snapshot: &Snapshot) -> Report {
        let (rules, functions) = snapshot.policy.coverage(&self.places);
        Report { rules, functions }
    }
}

impl Report {
    /// One line for each that is missing, and the counts.
    pub(super) fn tell(&self, context: &mut Context) -> Result<(), Failure> {
        for coverage in [&self.rules, &self.functions] {
            for Unreached { file, line, name } in &coverage.missing {
                context.out.line(format_args!("not reached: {file}:{line} {name}"))?;
            }
        }
        let parts = [("rules", &self.rules), ("functions", &self.functions)];
        let told = parts.map(|(what, c)| format!("{} of {} {what}", c.reached, c.total));
        context.out.line(format_args!("{} of policies reached", told.join(", ")))
    }
}
