//! `docent eval FILE`: how well search finds the right tools of labelled queries.

mod metrics;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::open::{self, Reach};
use super::{Context, Failure, failure};
use crate::catalog::ToolSet;
use crate::json;
use crate::search::{Filters, Query};
use metrics::{Figure, NAMES, Scores};

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

/// One labelled query. Further keys are the file's own.
#[derive(Debug, Deserialize)]
struct Judgement {
    qid: String,
    query: String,
    groups: Vec<Vec<String>>,
    #[serde(default)]
    set: String,
}

impl Eval {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let judgements = self.read()?;
        let opened = open::open(context, Reach::Known)?;
        let snapshot = opened.snapshot();
        let visible = match self.caller.as_deref() {
            None => ToolSet::all(snapshot.catalog.len()),
            Some(name) => {
                let who = opened.caller(Some(name))?;
                snapshot.policy.roster(&snapshot.catalog, &who).visible.clone()
            }
        };
        let mut sets: BTreeMap<&str, Vec<Scores>> = BTreeMap::new();
        let (mut all, mut unknown) = (Vec::new(), 0usize);
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
            let hits = snapshot.index.search(&query, &visible).hits;
            let ids: Vec<&str> =
                hits.iter().filter_map(|h| snapshot.catalog.get(h.tool)).map(|t| t.id.as_str()).collect();
            let rank = |group: &Vec<String>| ids.iter().position(|id| group.iter().any(|g| g == id));
            let scores = Scores::of(&judgement.groups.iter().map(rank).collect::<Vec<_>>());
            all.push(scores);
            sets.entry(&judgement.set).or_default().push(scores);
        }
        if unknown > 0 {
            failure::say(format_args!(
                "note: {unknown} groups name no tool of this home; they count as not found"
            ));
        }
        let report = report(&all, &sets);
        if self.json { context.out.json(&report) } else { table(context, &all, &sets) }
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

fn figures_json(scores: &[Scores]) -> Map<String, Value> {
    let figures = metrics::figures(scores);
    let round = |x: f64| (x * 10_000.0).round() / 10_000.0;
    let mut out = Map::new();
    out.insert("queries".to_owned(), Value::from(scores.len()));
    for (name, figure) in NAMES.iter().zip(&figures) {
        out.insert((*name).to_owned(), Value::from(round(figure.mean)));
    }
    let interval = |f: &Figure| json!([round(f.low), round(f.high)]);
    let intervals: Map<String, Value> =
        NAMES.iter().zip(&figures).map(|(n, f)| ((*n).to_owned(), interval(f))).collect();
    out.insert("intervals".to_owned(), Value::Object(intervals));
    out
}

fn report(all: &[Scores], sets: &BTreeMap<&str, Vec<Scores>>) -> Value {
    let mut report = figures_json(all);
    let named = || sets.iter().filter(|(name, _)| !name.is_empty());
    let per_set: Map<String, Value> =
        named().map(|(name, scores)| ((*name).to_owned(), Value::Object(figures_json(scores)))).collect();
    if !per_set.is_empty() {
        let mut mean = Map::new();
        for name in NAMES {
            let values: Vec<f64> = per_set.values().filter_map(|s| s.get(name)?.as_f64()).collect();
            let count = u32::try_from(values.len()).map_or(1.0, f64::from);
            mean.insert(
                name.to_owned(),
                Value::from((values.iter().sum::<f64>() / count * 10_000.0).round() / 10_000.0),
            );
        }
        report.insert("mean_of_sets".to_owned(), Value::Object(mean));
    }
    report.insert("per_set".to_owned(), Value::Object(per_set));
    Value::Object(report)
}

fn table(context: &mut Context, all: &[Scores], sets: &BTreeMap<&str, Vec<Scores>>) -> Result<(), Failure> {
    context.out.line(format_args!(
        "{:16} {:>7}  {}",
        "",
        "queries",
        NAMES.map(|n| format!("{n:>22}")).join("")
    ))?;
    let rows = sets.iter().filter(|(name, _)| !name.is_empty()).map(|(n, s)| (*n, s.as_slice()));
    for (name, scores) in rows.chain(std::iter::once(("all", all))) {
        let cell = |f: &Figure| format!("{:>8.4} [{:.3} {:.3}]", f.mean, f.low, f.high);
        let cells = metrics::figures(scores).each_ref().map(|f| format!("{:>22}", cell(f))).join("");
        context.out.line(format_args!("{name:16} {:>7}  {cells}", scores.len()))?;
    }
    Ok(())
}
