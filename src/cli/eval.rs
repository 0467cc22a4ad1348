//! `docent eval FILE`: how well search finds the right tools of labelled queries.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::open::{self, Reach};
use super::{Context, Failure, failure};
use crate::catalog::ToolSet;
use crate::json;
use crate::search::evaluate::{self, Interval, Judgement, Metrics, NAMES, Report, SetReport};
use crate::search::{Filters, Query, UsageView};

/// Bytes of a file of judgements: 1,435 queries have half a megabyte.
const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Hits looked at for the reciprocal rank: the most that a caller can ask for at once.
const DEPTH: usize = 100;

/// Measures search on labelled queries.
#[derive(Debug, Args)]
pub(super) struct Eval {
    /// Lines of `{"qid", "query", "groups": [[ids of which any one serves], …], "set"?}`
    file: PathBuf,
    /// The caller whose tools are searched; all tools of the home otherwise
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// Print `{queries, recall_at_1, …, intervals, per_set}`
    #[arg(long)]
    json: bool,
}

impl Eval {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let judgements = self.read()?;
        let opened = open::open(context, Reach::Known)?;
        opened.meanings(usize::MAX);
        let snapshot = opened.snapshot();
        let visible = match self.caller.as_deref() {
            None => ToolSet::all(snapshot.catalog.len()),
            Some(name) => {
                let who = opened.caller(Some(name))?;
                snapshot.policy.roster(&snapshot.catalog, &who).visible.clone()
            }
        };
        let nothing_learnt = UsageView::default();
        let (mut results, mut unknown) = (Vec::new(), 0usize);
        for judgement in &judgements {
            let known = |ids: &Vec<String>| ids.iter().any(|id| snapshot.catalog.lookup(id).is_some());
            unknown += judgement.groups.iter().filter(|g| !known(g)).count();
            let query = Query {
                text: &judgement.query,
                filters: Filters::default(),
                offset: 0,
                limit: DEPTH,
                explain: false,
            };
            let asked = snapshot.sense.ask("", &judgement.query);
            let hits = snapshot.index.search_with(&query, &visible, &nothing_learnt, &asked).hits;
            let ids: Vec<&str> =
                hits.iter().filter_map(|h| snapshot.catalog.get(h.tool)).map(|t| t.id.as_str()).collect();
            results.push((judgement.set.clone(), evaluate::metrics(&judgement.groups, &ids)));
        }
        if unknown > 0 {
            failure::say(format_args!(
                "note: {unknown} groups name no tool of this home; they count as not found"
            ));
        }
        let report = evaluate::report(&results);
        if self.json { context.out.json(&whole(&report)) } else { table(context, &report) }
    }

    fn read(&self) -> Result<Vec<Judgement>, Failure> {
        let name = self.file.display();
        let text = json::read_text_capped(&self.file, FILE_BYTES_MAX)
            .map_err(|e| Failure::failed(format_args!("{name} cannot be read: {e}")))?;
        let mut out = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            let judgement: Judgement = json::parse_as(line.as_bytes(), FILE_BYTES_MAX)
                .map_err(|e| Failure::failed(format_args!("{name}:{}: {e}", at + 1)))?;
            if judgement.groups.is_empty() || judgement.groups.iter().any(Vec::is_empty) {
                let qid = &judgement.qid;
                return Err(Failure::failed(format_args!(
                    "{name}:{}: query `{qid}` has an empty group",
                    at + 1
                )));
            }
            out.push(judgement);
        }
        if out.is_empty() { Err(Failure::failed(format_args!("{name} has no query"))) } else { Ok(out) }
    }
}

/// The sets that have a name.
fn named(report: &Report) -> impl Iterator<Item = (&String, &SetReport)> {
    report.per_set.iter().filter(|(name, _)| !name.is_empty())
}

fn rounded(x: f64) -> f64 {
    (x * 10_000.0).round() / 10_000.0
}

fn means(metrics: &Metrics) -> impl Iterator<Item = (String, Value)> {
    NAMES.into_iter().zip(metrics.values()).map(|(name, x)| (name.to_owned(), Value::from(rounded(x))))
}

fn figures(set: &SetReport) -> Map<String, Value> {
    let interval = |i: &Interval| json!([rounded(i.low), rounded(i.high)]);
    let intervals: Map<String, Value> =
        NAMES.iter().zip(&set.intervals).map(|(name, i)| ((*name).to_owned(), interval(i))).collect();
    let mut out = Map::from_iter([("queries".to_owned(), Value::from(set.queries))]);
    out.extend(means(&set.metrics));
    out.insert("intervals".to_owned(), Value::Object(intervals));
    out
}

fn whole(report: &Report) -> Value {
    let mut out = figures(&report.all);
    let per_set: Map<String, Value> =
        named(report).map(|(name, set)| (name.clone(), Value::Object(figures(set)))).collect();
    if !per_set.is_empty() {
        out.insert("mean_of_sets".to_owned(), Value::Object(means(&report.mean_of_sets).collect()));
    }
    out.insert("per_set".to_owned(), Value::Object(per_set));
    Value::Object(out)
}

fn table(context: &mut Context, report: &Report) -> Result<(), Failure> {
    context.out.line(format_args!(
        "{:16} {:>7}  {}",
        "",
        "queries",
        NAMES.map(|n| format!("{n:>22}")).join("")
    ))?;
    let rows = named(report).map(|(name, set)| (name.as_str(), set));
    for (name, set) in rows.chain(std::iter::once(("all", &report.all))) {
        let cell = |(mean, i): (f64, &Interval)| {
            format!("{:>22}", format!("{mean:>8.4} [{:.3} {:.3}]", i.low, i.high))
        };
        let cells: Vec<String> = set.metrics.values().into_iter().zip(&set.intervals).map(cell).collect();
        let cells = cells.join("");
        context.out.line(format_args!("{name:16} {:>7}  {cells}", set.queries))?;
    }
    Ok(())
}
