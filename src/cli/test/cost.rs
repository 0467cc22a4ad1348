//! What cases tell besides whether they hold: which functions they reach, and how many bytes they save.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::super::open::Opened;
use super::super::{Context, Failure};
use super::case::{self, CaseFile, ProjectionCase};
use super::{case_files, shape};
use crate::call::tokens;
use crate::diagnostic::Diagnostics;
use crate::projection::{Coverage, Projection, Projector};

/// Projections that note which functions of their scripts run.
#[derive(Debug)]
pub(in crate::cli) struct Covered {
    coverage: Coverage,
    /// By the tool's id.
    pub(super) projections: BTreeMap<String, Arc<Projection>>,
}

impl Covered {
    /// Compiles the projections of a home once more, with marks.
    pub(super) fn of(opened: &Opened) -> Self {
        let coverage = Coverage::default();
        let projector = Projector::covering(Arc::default(), coverage.clone());
        let mut projections = BTreeMap::new();
        for discovery in opened.snapshot().upstreams.discoveries().values() {
            for found in &discovery.tools {
                // The home has loaded: what is wrong was told then.
                let compiled = found
                    .projection
                    .as_ref()
                    .and_then(|spec| projector.compile(&found.tool, spec, &mut Diagnostics::default()));
                if let Some(projection) = compiled {
                    projections.insert(found.tool.id.as_str().to_owned(), Arc::new(projection));
                }
            }
        }
        Self { coverage, projections }
    }

    /// `{functions, missed}`.
    pub(super) fn json(&self) -> Value {
        let (missed, functions) = self.coverage.missed();
        let missed: Vec<Value> =
            missed.iter().map(|f| json!({"file": f.file, "line": f.line, "function": f.name})).collect();
        json!({ "functions": functions, "missed": missed })
    }

    /// One line for each function that was not reached.
    pub(super) fn tell(&self, context: &mut Context) -> Result<(), Failure> {
        let (missed, functions) = self.coverage.missed();
        for function in &missed {
            context
                .out
                .line(format_args!("not reached: {}:{} {}", function.file, function.line, function.name))?;
        }
        let reached = functions - missed.len();
        context.out.line(format_args!("{reached} of {functions} functions of scripts reached"))
    }
}

/// What the cases of a tool measured: those that end in a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct Cost {
    /// How many there are.
    pub(in crate::cli) cases: usize,
    /// Bytes of their replies.
    pub(in crate::cli) bytes_in: usize,
    /// Bytes of their results.
    pub(in crate::cli) bytes_out: usize,
    /// The replies in tokens.
    pub(in crate::cli) tokens_in: usize,
    /// The results in tokens.
    pub(in crate::cli) tokens_out: usize,
}

impl Cost {
    fn add(&mut self, (bytes_in, bytes_out): (usize, usize)) {
        self.cases += 1;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.tokens_in = tokens::tokens_of(self.bytes_in);
        self.tokens_out = tokens::tokens_of(self.bytes_out);
    }

    /// Percent of the bytes that do not reach the model; below 0 where results are larger than replies.
    pub(in crate::cli) fn saved_percent(&self) -> i64 {
        let (before, after) = (self.bytes_in.max(1), self.bytes_out);
        let kept = i64::try_from(after.saturating_mul(100).div_ceil(before)).unwrap_or(i64::MAX);
        100i64.saturating_sub(kept)
    }
}

/// Runs the cases of the enabled packs and adds up what they measure, by the tool's id.
pub(in crate::cli) fn costs(opened: &Opened) -> BTreeMap<String, Cost> {
    let snapshot = opened.snapshot();
    let budget = snapshot.settings.budgets.of_result();
    let mut costs: BTreeMap<String, Cost> = BTreeMap::new();
    for name in case_files(opened).into_iter().filter(|n| !n.starts_with("policies/")) {
        // A file that cannot be read is told by `docent test`.
        let Ok(file) = CaseFile::read(opened.app.dir(), &name) else { continue };
        let pack = name.split('/').nth(1).unwrap_or_default();
        let path = opened.app.dir().join(&name);
        for value in &file.cases {
            let Ok(case) = case::parse::<ProjectionCase>(value) else { continue };
            let full = format!("{pack}.{}", case.tool);
            let found = snapshot.catalog.lookup(&full).or_else(|| snapshot.catalog.lookup(&case.tool));
            let (Some((no, tool)), Some(folder)) = (found, path.parent()) else { continue };
            let projection = snapshot.plan(no).and_then(|p| p.projection.clone());
            let made = shape::run(&case, tool.id.as_str(), projection.as_deref(), &budget, folder);
            if let Ok(made) = made
                && made.result.as_ref().is_some_and(|(kind, _)| *kind != "error")
                && made.bytes.0 > 0
            {
                costs.entry(tool.id.as_str().to_owned()).or_default().add(made.bytes);
            }
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_rounded_down_and_may_be_less_than_nothing() {
        let mut cost = Cost::default();
        cost.add((1_000, 101));
        assert_eq!((cost.saved_percent(), cost.tokens_in), (89, 250));
        cost.add((0, 1_899));
        assert_eq!((cost.cases, cost.saved_percent()), (2, -100));
    }
}
