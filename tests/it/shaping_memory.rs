//! What shaping takes of memory besides the reply itself, as the allocator counts it.
#![cfg(unix)]

use std::sync::Arc;

use docent::call::{ReplyBody, UpstreamReply};
use docent::catalog::Tool;
use docent::diagnostic::{Diagnostics, SourceFile};
use docent::id::{ToolId, UpstreamId};
use docent::json::Object;
use docent::projection::{CallFacts, PackSources, Projection, ProjectionSpec, Projector, ResultBudget};
use docent::schema::{SchemaText, Validators};
use docent::settings;
use serde_json::{Value, json};
use tikv_jemalloc_ctl::{Access, AsName};

fn compile(toml: &str) -> Projection {
    let mut diagnostics = Diagnostics::default();
    let spec = settings::read(&SourceFile::new("upstream.toml", toml), &mut diagnostics, |s| {
        ProjectionSpec::read(s, &Arc::new(PackSources::default()))
    });
    let (id, upstream) = (ToolId::parse("b.list").unwrap(), UpstreamId::parse("b").unwrap());
    let tool = Tool::new(id, upstream, "list", SchemaText::empty_object());
    Projector::new(Arc::new(Validators::default())).compile(&tool, &spec.unwrap(), &mut diagnostics).unwrap()
}

/// 100 records whose kept fields make about 60 KB, with a graph beside them that nobody wants.
fn reply(unwanted: usize) -> UpstreamReply {
    let episode = json!({"episode": 1, "title": "e".repeat(60), "nested": [{"a": [1, 2, 3]}, {"b": "c"}]});
    let graph = vec![episode; unwanted / 120];
    let records: Vec<Value> =
        (0..100).map(|i| json!({"id": i, "title": "t".repeat(500), "graph": graph, "year": 2000})).collect();
    let text = json!({ "results": records }).to_string();
    let body = ReplyBody::Bytes { media_type: "application/json".to_owned(), bytes: text.into() };
    UpstreamReply { status: 200, headers: Vec::new(), body, warnings: Vec::new() }
}

/// The most bytes that a thread holds while a reply is shaped, the reply itself not counted.
///
/// jemalloc looks at what a thread holds after every 64 KiB that it allocated. The same work is done by several
/// threads, each of which allocated a little more before, so that among them every moment is looked at.
fn peak(projection: &Projection, reply: &UpstreamReply, step: usize) -> u64 {
    let held = || {
        let all = tikv_jemalloc_ctl::thread::allocatedp::read().unwrap().get();
        // A thread may free more than it allocated: what another one gave it.
        all.wrapping_sub(tikv_jemalloc_ctl::thread::deallocatedp::read().unwrap().get()).cast_signed()
    };
    let (args, facts, budget) = (Object::new(), CallFacts::default(), ResultBudget::default());
    let at_phase = |phase: usize| {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(phase)));
        let before = held();
        let shaped = projection.shape(reply, &args, &facts, &budget);
        assert!(shaped.is_success() && shaped.bytes_out > 50_000, "{shaped:?}");
        drop(shaped);
        let peak: u64 = "thread.peak.read\0".name().read().unwrap();
        u64::try_from(peak.cast_signed() - before).unwrap()
    };
    let phases = (0..64 * 1024).step_by(step);
    std::thread::scope(|scope| {
        phases.map(|at| scope.spawn(move || at_phase(at)).join().unwrap()).max().unwrap()
    })
}

/// Bytes that this thread allocates while a reply is shaped, freed ones included: never less than what it holds
/// at any time.
fn taken(projection: &Projection, reply: &UpstreamReply) -> u64 {
    let counter = tikv_jemalloc_ctl::thread::allocatedp::read().unwrap();
    let (args, facts, budget) = (Object::new(), CallFacts::default(), ResultBudget::default());
    let before = counter.get();
    let shaped = projection.shape(reply, &args, &facts, &budget);
    let taken = counter.get() - before;
    assert!(shaped.is_success() && shaped.bytes_out > 50_000, "{shaped:?}");
    taken
}

const RECORDS: &str =
    "collection = \"/results\"\nfields = { id = \"/id\", title = \"/title\", year = \"/year\" }\n";

#[test]
fn native_shaping_holds_at_most_twice_the_budget_of_a_result() {
    let budget = u64::try_from(ResultBudget::default().result_bytes).unwrap();
    let schema = "output_schema = { type = \"object\", properties = { kind = {}, page = {}, items = { type = \"array\", \
                  items = { type = \"object\", properties = { id = { type = \"integer\" }, title = { type = \"string\", \
                  minLength = 3 }, year = { enum = [2000] } }, required = [\"id\"] } } } }\n";
    let (records, checked) = (compile(RECORDS), compile(&format!("{RECORDS}{schema}")));
    let one = compile("fields = { all = \"/results\" }\n");
    let (small, large) = (reply(0), reply(80_000));
    for (name, projection, reply, step) in [
        ("a page", &records, &small, 1024),
        ("a page under a schema of its own", &checked, &small, 1024),
        ("one record", &one, &small, 1024),
        ("a page of 8 MB", &records, &large, 16 * 1024),
    ] {
        // The first call compiles the schema.
        taken(projection, reply);
        let peak = peak(projection, reply, step);
        println!("peak of {name}: {peak} bytes, {} % of the budget", peak * 100 / budget);
        assert!(peak <= 2 * budget, "{name}: {peak} bytes");
    }
}

#[test]
fn native_shaping_takes_no_more_of_a_large_reply_than_of_a_small_one() {
    let projection = compile(RECORDS);
    let (small, large) = (reply(0), reply(80_000));
    let ReplyBody::Bytes { bytes, .. } = &large.body else { panic!("bytes") };
    assert!(bytes.len() > 8_000_000, "{}", bytes.len());
    // The first call compiles the schema.
    taken(&projection, &small);
    let (of_small, of_large) = (taken(&projection, &small), taken(&projection, &large));
    assert!(of_large <= of_small + 16 * 1024, "{of_small} bytes of a small reply, {of_large} of a large one");
    let budget = u64::try_from(ResultBudget::default().result_bytes).unwrap();
    assert!(of_large <= 5 * budget, "{of_large} bytes in all");
    println!("allocated in all: {of_small} of a small reply, {of_large} of {} bytes", bytes.len());
}
