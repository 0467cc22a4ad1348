//! The gate on the quality of search: labelled queries against floors that only rise.
//!
//! `index/judgements/shipped.jsonl` judges the tools of the shipped home; a sample of the shared development queries
//! judges a sample of real tools (every right one among them). The floors stand in `index/judgements/floors.json`;
//! `DOCENT_UPDATE=1` raises those that are exceeded and never lowers one. A sample, since a debug build searches
//! slowly: `cargo bench --bench quality` measures everything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::PathBuf;

use docent::catalog::{Catalog, CatalogBuilder, Tool, ToolSet};
use docent::diagnostic::Diagnostics;
use docent::id::{ToolId, UpstreamId};
use docent::schema::SchemaText;
use docent::search::evaluate::{self, Judgement, Report};
use docent::search::{Filters, Query, Ranking, ToolIndex};
use serde_json::Value;

use crate::support::{docent, root, shared};

/// Floors by group of queries, then by figure.
type Floors = BTreeMap<String, BTreeMap<String, f64>>;

fn floors_file() -> PathBuf {
    root().join("index/judgements/floors.json")
}

/// Compares figures with their floors; a floor is a little below what was measured when it was set.
fn hold(group: &str, figures: &BTreeMap<String, f64>) {
    /// So much a figure may move with the wording of one tool.
    const SLACK: f64 = 0.015;
    let text = std::fs::read_to_string(floors_file()).unwrap_or_else(|_absent| "{}".to_owned());
    let mut floors: Floors = serde_json::from_str(&text).unwrap();
    let known = floors.entry(group.to_owned()).or_default();
    let low: Vec<String> = figures
        .iter()
        .filter(|(name, value)| known.get(*name).is_some_and(|floor| *value < floor))
        .map(|(name, value)| format!("{name} {value:.4} < {:.4}", known[name]))
        .collect();
    assert!(low.is_empty(), "{group}: search got worse: {}", low.join(", "));
    if std::env::var_os("DOCENT_UPDATE").is_some() {
        for (name, value) in figures {
            let floor = ((value - SLACK) * 1_000.0).floor() / 1_000.0;
            let slot = known.entry(name.clone()).or_insert(0.0);
            *slot = slot.max(floor);
        }
        std::fs::write(floors_file(), serde_json::to_string_pretty(&floors).unwrap() + "\n").unwrap();
    } else {
        assert!(!known.is_empty(), "no floors for {group}: run once with DOCENT_UPDATE=1");
    }
}

#[test]
fn the_shipped_tools_are_found_by_what_people_ask() {
    let file = root().join("index/judgements/shipped.jsonl");
    let data = tempfile::tempdir().unwrap();
    let mut command = docent();
    command
        .args(["eval", file.to_str().unwrap(), "--json", "--home"])
        .arg(root())
        .arg("--data")
        .arg(data.path());
    let out = command.output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    assert!(!err.contains("name no tool"), "a judgement names a tool that is not there: {err}");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let figure = |of: &Value, name: &str| of[name].as_f64().unwrap();
    let mut figures: BTreeMap<String, f64> =
        ["recall_at_1", "recall_at_5", "mrr"].iter().map(|n| ((*n).to_owned(), figure(&report, n))).collect();
    for (set, of) in report["per_set"].as_object().unwrap() {
        figures.insert(format!("{set}.recall_at_5"), figure(of, "recall_at_5"));
    }
    hold("shipped", &figures);
}

#[test]
fn a_sample_of_real_tools_is_found_as_well_as_before() {
    let Some(shared) = shared("the labelled queries") else { return };
    let judgements: Vec<Judgement> = std::fs::read_to_string(shared.join("catalogs/queries.dev.jsonl"))
        .unwrap()
        .lines()
        .step_by(5)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let catalog = sample(&shared, &judgements);
    let index = ToolIndex::build(&catalog, &Ranking::shipped());
    let all = ToolSet::all(catalog.len());
    let report = run(&judgements, &index, &catalog, &all);
    println!(
        "{} of {} tools, {} queries: {:?}",
        catalog.len(),
        22_742,
        judgements.len(),
        report.mean_of_sets
    );
    let mean = &report.mean_of_sets;
    let mut figures = BTreeMap::from([
        ("recall_at_1".to_owned(), mean.recall_at_1),
        ("recall_at_5".to_owned(), mean.recall_at_5),
        ("recall_at_10".to_owned(), mean.recall_at_10),
        ("ndcg_at_10".to_owned(), mean.ndcg_at_10),
    ]);
    for (set, of) in report.per_set.iter().filter(|(_, of)| of.queries >= 15) {
        figures.insert(format!("{set}.recall_at_5"), of.metrics.recall_at_5);
    }
    hold("dev_sample", &figures);
}

fn run(judgements: &[Judgement], index: &ToolIndex, catalog: &Catalog, visible: &ToolSet) -> Report {
    let one = |j: &Judgement| {
        let query =
            Query { text: &j.query, filters: Filters::default(), offset: 0, limit: 10, explain: false };
        let hits = index.search(&query, visible).hits;
        let ids: Vec<&str> = hits.iter().map(|h| catalog.get(h.tool).unwrap().id.as_str()).collect();
        (j.set.clone(), evaluate::metrics(&j.groups, &ids))
    };
    evaluate::report(&judgements.iter().map(one).collect::<Vec<_>>())
}

/// Every tool that some of the queries want, and every ninth of the others.
fn sample(shared: &std::path::Path, judgements: &[Judgement]) -> Catalog {
    let wanted: BTreeSet<&str> =
        judgements.iter().flat_map(|j| &j.groups).flatten().map(String::as_str).collect();
    let packed = std::fs::File::open(shared.join("catalogs/catalog.jsonl.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let mut builder = CatalogBuilder::new(Vec::new());
    for (at, line) in text.lines().enumerate() {
        // The id comes first in every record: most lines need not be parsed to be left out.
        let id = line.split('"').nth(3).unwrap_or("");
        if at % 9 == 0 || wanted.contains(id) {
            builder.push(tool(&serde_json::from_str(line).unwrap()));
        }
    }
    builder.build(&mut Diagnostics::default())
}

fn tool(record: &Value) -> Tool {
    let field = |key: &str| record[key].as_str().unwrap_or("");
    let (id, upstream) = (ToolId::parse(field("id")).unwrap(), UpstreamId::parse(field("upstream")).unwrap());
    let mut tool = Tool::new(id, upstream, field("name"), SchemaText::of(&record["input_schema"]));
    tool.title = record["title"].as_str().map(Into::into);
    tool.description = field("description").into();
    tool.category = field("category").into();
    tool.tags =
        record["tags"].as_array().into_iter().flatten().filter_map(|t| t.as_str()).map(Into::into).collect();
    tool.search_hints = [field("method"), field("path"), field("server")].join(" ").trim().into();
    tool
}
