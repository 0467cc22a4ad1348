//! Search at 249, 1,000 and 10,000 tools: building the index, and one question with all tools or a tenth visible.
//!
//! `INSTRUCTIONS=1 cargo bench --bench search` counts the instructions of one question instead, with valgrind: the
//! same number on every machine and under any load.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "benches print, read what they are told and fail by panicking"
)]

use std::hint::black_box;
use std::process::Command;

use criterion::{BenchmarkId, Criterion, criterion_group};
use docent::catalog::{Catalog, CatalogBuilder, Tool, ToolSet};
use docent::diagnostic::Diagnostics;
use docent::id::{ToolId, UpstreamId};
use docent::schema::SchemaText;
use docent::search::{Filters, Query, Ranking, ToolIndex};

const VERBS: [&str; 8] = ["list", "create", "get", "update", "delete", "search", "send", "cancel"];
const THINGS: [&str; 16] = [
    "invoice",
    "pull request",
    "customer",
    "pod",
    "namespace",
    "message",
    "channel",
    "bucket",
    "queue",
    "ticket",
    "calendar event",
    "payment",
    "branch",
    "report",
    "photo",
    "weather alert",
];
const QUESTIONS: [&str; 4] = [
    "list the open invoices of a customer",
    "creat a pull reqeust",
    "send a message to a channel when a payment fails",
    "k8s pods in a namespace",
];

/// Made-up tools: every word of a name occurs in thousands of them, so lists are as long as they can be.
fn catalog(size: usize) -> Catalog {
    let mut builder = CatalogBuilder::new(Vec::new());
    for i in 0..size {
        let (verb, thing) = (VERBS.get(i % 8).unwrap(), THINGS.get(i / 8 % 16).unwrap());
        let other = THINGS.get(i / 128 % 16).unwrap();
        let upstream = format!("service{}", i / 100);
        let name = format!("{verb}_{}_{i}", thing.replace(' ', "_"));
        let mut tool = Tool::new(
            ToolId::parse(&format!("{upstream}.{name}")).unwrap(),
            UpstreamId::parse(&upstream).unwrap(),
            name,
            SchemaText::empty_object(),
        );
        tool.description =
            format!("Will {verb} one {thing} of an account. It belongs to a {other} and its owner.").into();
        builder.push(tool);
    }
    builder.build(&mut Diagnostics::default())
}

fn search(c: &mut Criterion) {
    let ranking = Ranking::shipped();
    for size in [249, 1_000, 10_000] {
        let catalog = catalog(size);
        c.benchmark_group("build").sample_size(10).bench_function(BenchmarkId::from_parameter(size), |b| {
            b.iter(|| ToolIndex::build(black_box(&catalog), &ranking));
        });
        let index = ToolIndex::build(&catalog, &ranking);
        for name in VIEWS {
            c.benchmark_group(name).bench_function(BenchmarkId::from_parameter(size), |b| {
                b.iter(|| ask(&index, size, name));
            });
        }
    }
}

/// What is asked of each index.
const VIEWS: [&str; 3] = ["all", "tenth", "tenth, explained"];

/// Asks the four questions with all tools visible or a tenth.
fn ask(index: &ToolIndex, size: usize, view: &str) {
    let mut visible = ToolSet::all(size);
    if view != "all" {
        visible = ToolSet::none(size);
        ToolSet::all(size).iter().filter(|no| no.0 % 10 == 3).for_each(|no| visible.insert(no));
    }
    let explain = view.ends_with("explained");
    for text in QUESTIONS {
        let query = Query { text, filters: Filters::default(), offset: 0, limit: 10, explain };
        black_box(index.search(&query, &visible));
    }
}

/// Rounds of the four questions whose instructions are counted.
const ROUNDS: usize = 10;

/// What runs under valgrind: `SIZE ROUNDS VIEW`.
fn counted(what: &str) {
    let mut parts = what.splitn(3, ' ');
    let mut number = || parts.next().unwrap().parse::<usize>().unwrap();
    let (size, rounds) = (number(), number());
    let index = ToolIndex::build(&catalog(size), &Ranking::shipped());
    let view = parts.next().unwrap();
    (0..rounds).for_each(|_| ask(&index, size, view));
}

/// Counts the instructions of one question at each size: those of a process that asks less those of one that only
/// builds the index.
fn instructions() {
    let count = |size: usize, rounds: usize, view: &str| {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(std::env::current_exe().unwrap()).env("COUNTED", format!("{size} {rounds} {view}"));
        let told = String::from_utf8(command.output().unwrap().stderr).unwrap();
        let line = told.lines().find_map(|l| l.split_once("Collected : ")).unwrap().1;
        line.trim().parse::<usize>().unwrap()
    };
    for size in [1_000, 10_000] {
        let built = count(size, 0, "all");
        for view in VIEWS {
            let each = (count(size, ROUNDS, view) - built) / ROUNDS / QUESTIONS.len();
            println!("{size} tools, {view}: {each} instructions a question");
        }
    }
}

criterion_group!(benches, search);

fn main() {
    if let Ok(what) = std::env::var("COUNTED") {
        counted(&what);
    } else if std::env::var_os("INSTRUCTIONS").is_some() {
        instructions();
    } else {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}
