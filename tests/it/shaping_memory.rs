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

#[test]
fn native_shaping_takes_no_more_of_a_large_reply_than_of_a_small_one() {
    let projection = compile(
        "collection = \"/results\"\nfields = { id = \"/id\", title = \"/title\", year = \"/year\" }\n",
    );
    let (small, large) = (reply(0), reply(80_000));
    let ReplyBody::Bytes { bytes, .. } = &large.body else { panic!("bytes") };
    assert!(bytes.len() > 8_000_000, "{}", bytes.len());
    // The first call compiles the schema.
    taken(&projection, &small);
    let (of_small, of_large) = (taken(&projection, &small), taken(&projection, &large));
    assert!(of_large <= of_small + 16 * 1024, "{of_small} bytes of a small reply, {of_large} of a large one");
    let budget = u64::try_from(ResultBudget::default().result_bytes).unwrap();
    assert!(of_large <= 16 * budget, "{of_large} bytes in all");
    println!("allocated in all: {of_small} of a small reply, {of_large} of {} bytes", bytes.len());
}
