//! Shaping against plain parsing, in one run: `cargo bench --bench projection`.
//!
//! The budgets (issue-level, `benches/README.md`): native mapping of a 1 MB page of 100 records ≤ 0.6× of parsing
//! it to a value, a free script ≤ 1.2×, an 8 MB reply with a 95 % unwanted subtree ≤ 0.35×. A 40 MB reply of graphs
//! should cost little more than its bytes: "read" is what has to be done with any text, copying it once and seeing
//! that it is UTF-8. At the end stands what native shaping holds at most besides the reply (budget: 128 KiB).
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program, not the server")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group};
use docent::call::{ReplyBody, UpstreamReply};
use docent::catalog::Tool;
use docent::diagnostic::{Diagnostics, SourceFile};
use docent::id::{ToolId, UpstreamId};
use docent::json::Object;
use docent::projection::{CallFacts, PackSources, Projection, ProjectionSpec, Projector, ResultBudget};
use docent::schema::{SchemaText, Validators};
use docent::script::stack;
use docent::settings;
use serde_json::{Value, json};
use tikv_jemalloc_ctl::{Access, AsName};

const NATIVE: &str = "collection = \"/results\"\nfields = { id = \"/id\", title = \"/title\", year = \"/release/year\", tags = \"/tags\" }\ntruncate = { title = 200 }\n";
const SCRIPT: &str = "fn project(reply, args, ctx) {
    let out = page(\"page\");
    for r in reply.body.results {
        out.push(#{ id: r.id, title: clip(r.title, 200), year: r.release.year, tags: r.tags });
    }
    out
}";

fn compile(toml: &str, script: &str) -> Projection {
    let pack = PackSources {
        scripts: [("s.rhai".to_owned(), SourceFile::new("s.rhai", script))].into(),
        ..PackSources::default()
    };
    let mut diagnostics = Diagnostics::default();
    let spec = settings::read(&SourceFile::new("upstream.toml", toml), &mut diagnostics, |s| {
        ProjectionSpec::read(s, &Arc::new(pack))
    });
    let tool = Tool::new(
        ToolId::parse("b.list").unwrap(),
        UpstreamId::parse("b").unwrap(),
        "list",
        SchemaText::empty_object(),
    );
    Projector::new(Arc::new(Validators::default())).compile(&tool, &spec.unwrap(), &mut diagnostics).unwrap()
}

/// 100 records of 40 members each, padded to about `bytes`; `junk` is an unwanted subtree beside them.
fn body(bytes: usize, junk: usize) -> String {
    let fill = bytes / 100 / 40;
    let record = |i: usize| {
        let mut map: Object = (0..36).map(|n| (format!("member_{n}"), json!("x".repeat(fill)))).collect();
        map.insert("id".to_owned(), json!(i));
        map.insert("title".to_owned(), json!(format!("Title of record {i}")));
        map.insert("release".to_owned(), json!({"year": 2000 + i, "studio": "s".repeat(fill)}));
        map.insert("tags".to_owned(), json!(["a", "b", "c"]));
        Value::Object(map)
    };
    let graph: Vec<Value> =
        (0..junk / 100).map(|i| json!({"episode": i, "title": "e".repeat(40), "n": [1, 2, 3]})).collect();
    json!({"graph": graph, "results": (0..100).map(record).collect::<Vec<_>>()}).to_string()
}

fn reply(body: &str) -> UpstreamReply {
    UpstreamReply {
        status: 200,
        headers: Vec::new(),
        body: ReplyBody::Bytes { media_type: "application/json".to_owned(), bytes: body.to_owned().into() },
        warnings: Vec::new(),
    }
}

fn projection(c: &mut Criterion) {
    let mut peaks = Vec::new();
    let native = compile(NATIVE, "");
    let script = compile("script = \"s.rhai\"\noutput_schema = { type = \"object\" }\n", SCRIPT);
    let pages = [
        ("1 MB page", body(1_000_000, 0)),
        ("8 MB, 95 % unwanted", body(400_000, 7_600_000)),
        ("40 MB of graphs", body(400_000, 39_600_000)),
    ];
    for (name, text) in pages {
        let given = reply(&text);
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Bytes(u64::try_from(text.len()).unwrap()));
        group.bench_function("read", |b| {
            b.iter(|| String::from_utf8(black_box(&text).as_bytes().to_vec()).unwrap());
        });
        group.bench_function("parse to Value", |b| {
            b.iter(|| serde_json::from_str::<Value>(black_box(&text)).unwrap());
        });
        for (kind, projection) in [("native", &native), ("script", &script)] {
            group.bench_function(kind, |b| {
                b.iter(|| {
                    let shaped = projection.shape(
                        &given,
                        &Object::new(),
                        &CallFacts::default(),
                        &ResultBudget::default(),
                    );
                    assert!(shaped.is_success());
                    shaped
                });
            });
        }
        group.finish();
        peaks.push((name, peak(&native, &given)));
    }
    for (name, peak) in peaks {
        println!("{name}: native shaping holds {peak} bytes at most");
    }
}

/// The most bytes that a thread holds while it shapes a reply. jemalloc looks after every 64 KiB that the thread
/// allocated: among threads that allocated a little more each before they begin, every moment is looked at.
fn peak(projection: &Projection, reply: &UpstreamReply) -> u64 {
    let at_phase = |phase: usize| {
        drop(black_box(Vec::<u8>::with_capacity(phase)));
        let shaped = projection.shape(reply, &Object::new(), &CallFacts::default(), &ResultBudget::default());
        assert!(shaped.is_success());
        "thread.peak.read\0".name().read().unwrap()
    };
    let phases = (0..64 * 1024).step_by(2 * 1024);
    std::thread::scope(|s| phases.map(|at| s.spawn(move || at_phase(at)).join().unwrap()).max().unwrap())
}

criterion_group!(benches, projection);

/// Measures on a thread with a deep stack, as those of the server are: elsewhere a script waits for one.
fn main() {
    let measured = stack::run(|| {
        benches();
        Criterion::default().configure_from_args().final_summary();
    });
    measured.unwrap();
}
