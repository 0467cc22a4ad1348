//! Search at 249, 1,000 and 10,000 tools: building the index, and one question with all tools or a tenth visible.
#![expect(clippy::unwrap_used, reason = "benches fail by panicking")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
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
        let all = ToolSet::all(size);
        let mut tenth = ToolSet::none(size);
        all.iter().filter(|no| no.0 % 10 == 3).for_each(|no| tenth.insert(no));
        for (name, visible, explain) in
            [("all", &all, false), ("tenth", &tenth, false), ("tenth, explained", &tenth, true)]
        {
            c.benchmark_group(name).bench_function(BenchmarkId::from_parameter(size), |b| {
                b.iter(|| {
                    for text in QUESTIONS {
                        let query =
                            Query { text, filters: Filters::default(), offset: 0, limit: 10, explain };
                        black_box(index.search(&query, visible));
                    }
                });
            });
        }
    }
}

criterion_group!(benches, search);
criterion_main!(benches);
