//! The use cases in this process at 249, 1,000 and 10,000 tools: cold load, list pages, search, describe and
//! a whole `tools/call` against an upstream that answers at once.
//!
//! `cargo bench --bench gateway`. Tools are the core of the shared catalog (`DOCENT_SHARED`, default
//! `../shared`), or made up from a fixed seed where that is absent.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a bench reports by printing and fails by panicking"
)]

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use docent::app::{App, Options};
use docent::call::{ReplyBody, ToolCall, ToolOutcome, UpstreamReply};
use docent::clock::Clock;
use docent::diagnostic::{Diagnostics, SourceFile};
use docent::gateway::{CallAnswer, Gateway, RequestContext};
use docent::id::{Generation, UpstreamId};
use docent::policy::{DiscoveryMode, Principal};
use docent::secret::Resolver;
use docent::snapshot::{self, Home, Publisher};
use docent::upstream::{
    Discovery, Invocation, Upstream, UpstreamConfig, UpstreamError, UpstreamSet, UpstreamStatus,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const SIZES: [usize; 3] = [249, 1_000, 10_000];
/// What the upstream answers: 2 KB, as a small API does.
const REPLY_BYTES: usize = 2_048;
const POLICY: &str = r#"
fn rules(p) {
    p.allow().read_only();
    p.allow().scopes(["tools:write"]);
    p.challenge(["tools:destroy"]).destructive();
    p.hide().category("internal");
}
"#;

/// `count` catalog records, one JSON object a line.
fn records(count: usize) -> String {
    let shared = std::env::var_os("DOCENT_SHARED").map_or_else(|| PathBuf::from("../shared"), PathBuf::from);
    let mut text = String::new();
    if let Ok(packed) = std::fs::File::open(shared.join("catalogs/catalog.jsonl.gz")) {
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        let core = text.lines().filter(|l| l.contains("\"core\":true"));
        return core.take(count).collect::<Vec<_>>().join("\n");
    }
    eprintln!("the shared catalog is not there: tools are made up");
    made_up(count)
}

/// Tools from a fixed seed (SplitMix64): the same in every run.
fn made_up(count: usize) -> String {
    const WORDS: [&str; 16] = [
        "issue", "deploy", "invoice", "user", "branch", "release", "ticket", "volume", "metric", "account",
        "message", "file", "search", "report", "token", "cluster",
    ];
    let mut state = 7u64;
    let mut pick = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        WORDS.get(usize::try_from(mixed >> 60).unwrap()).copied().unwrap()
    };
    let mut text = String::new();
    for n in 0..count {
        let (a, b, c) = (pick(), pick(), pick());
        let record = json!({
            "id": format!("made.{a}_{b}_{n}"), "name": format!("{a}_{b}_{n}"), "upstream": "made",
            "description": format!("Gets the {a} of a {b} and tells about its {c}, number {n}."),
            "category": c, "annotations": {"readOnlyHint": n % 3 != 0}, "core": true,
            "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}},
        });
        writeln!(text, "{record}").unwrap();
    }
    text
}

/// A home with a catalog of `count` tools.
fn home(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("docent.toml", "[upstreams]\nenabled = [\"catalog\"]\n");
    write("scripts/catalog/upstream.toml", "kind = \"catalog\"\nfile = \"tools.jsonl\"\n");
    write("scripts/catalog/tools.jsonl", &records(count));
    write("policies/10-base.rhai", POLICY);
    dir
}

/// Answers every call at once.
#[derive(Debug)]
struct Instant(UpstreamId);

impl Upstream for Instant {
    fn id(&self) -> &UpstreamId {
        &self.0
    }

    fn discover(&self) -> BoxFuture<'_, Result<Discovery, UpstreamError>> {
        Box::pin(std::future::ready(Ok(Discovery::default())))
    }

    fn invoke<'a>(&'a self, _: Invocation<'a>) -> BoxFuture<'a, Result<UpstreamReply, UpstreamError>> {
        let body = json!({"items": ["x".repeat(REPLY_BYTES - 14)]}).to_string();
        let body = ReplyBody::Bytes { media_type: "application/json".to_owned(), bytes: body.into() };
        Box::pin(std::future::ready(Ok(UpstreamReply {
            status: 200,
            headers: Vec::new(),
            body,
            warnings: Vec::new(),
        })))
    }

    fn status(&self) -> UpstreamStatus {
        UpstreamStatus {
            id: self.0.clone(),
            kind: "instant",
            state: docent::upstream::UpstreamState::Up,
            complete: true,
            tools: 0,
            note: String::new(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The same tools as [`home`], run by [`Instant`].
fn instant(runtime: &Runtime, home: &Path) -> Gateway {
    let app = runtime.block_on(App::open(home, Options::default())).unwrap();
    let found = app.gateway().snapshot().upstreams.discoveries();
    let mut tools = found.into_values().next().unwrap().tools.clone();
    for found in &mut tools {
        found.tool.availability = docent::catalog::Availability::Available;
        found.tool.upstream = UpstreamId::parse("instant").unwrap();
    }
    let config = SourceFile::new("scripts/instant/upstream.toml", "kind = \"script\"\n");
    let mut mistakes = Diagnostics::default();
    let resolver = Resolver::new(|_| None);
    let config = UpstreamConfig::read(
        &config,
        Path::new("scripts/instant"),
        &resolver,
        &Arc::default(),
        &mut mistakes,
    )
    .unwrap();
    let adapter: Arc<dyn Upstream> = Arc::new(Instant(config.id.clone()));
    let upstreams =
        UpstreamSet::of(vec![(config, adapter, Discovery { tools, complete: true, ..Discovery::default() })]);
    let home = Home { policies: vec![SourceFile::new("policies/10-base.rhai", POLICY)], ..Home::default() };
    let first =
        snapshot::build(&home, upstreams, &Arc::default(), None, Generation(1), &mut mistakes).unwrap();
    Gateway::new(Arc::new(Publisher::new(first)), Clock::system())
}

fn caller(name: &str, mode: DiscoveryMode) -> RequestContext {
    let who = Principal { subject: Arc::from(name), ..Principal::default() };
    RequestContext { discovery: Some(mode), ..RequestContext::new(Arc::new(who), "bench") }
}

fn call(tool: &str, arguments: &Value) -> ToolCall {
    ToolCall {
        tool: tool.to_owned(),
        arguments: arguments.as_object().unwrap().clone(),
        wait: Duration::from_mins(1),
        request_key: None,
        fields: Vec::new(),
    }
}

fn done(answer: &CallAnswer) {
    assert!(matches!(answer, CallAnswer::Outcome(ToolOutcome::Completed(_))), "{answer:?}");
}

fn benches(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for size in SIZES {
        let home = home(size);
        let mut group = c.benchmark_group("load");
        group.sample_size(10);
        group.bench_function(BenchmarkId::new("cold", size), |b| {
            b.iter(|| runtime.block_on(App::open(home.path(), Options::default())).unwrap());
        });
        group.finish();
        let gateway = instant(&runtime, home.path());
        let ctx = caller("bench", DiscoveryMode::Full);
        let mut group = c.benchmark_group("gateway");
        group.bench_function(BenchmarkId::new("list_first_page_cold", size), |b| {
            b.iter_batched(
                || Gateway::new(Arc::clone(gateway.publisher()), Clock::system()),
                |fresh| fresh.list_tools(&ctx, None).unwrap(),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(BenchmarkId::new("list_first_page_warm", size), |b| {
            b.iter(|| gateway.list_tools(&ctx, None).unwrap());
        });
        let reader = gateway
            .snapshot()
            .catalog
            .tools()
            .iter()
            .find(|t| t.annotations.is_read_only())
            .map(Arc::clone)
            .unwrap();
        let own = |b: &mut criterion::Bencher<'_>, tool: &str, arguments: Value| {
            b.iter_batched(
                || call(tool, &arguments),
                |ask| done(&runtime.block_on(gateway.call_tool(&ctx, ask))),
                BatchSize::SmallInput,
            );
        };
        group.bench_function(BenchmarkId::new("search", size), |b| {
            own(b, "docent_search_tools", json!({"query": "list the open issues of a repository"}));
        });
        group.bench_function(BenchmarkId::new("describe", size), |b| {
            own(b, "docent_describe_tool", json!({"tool": reader.id}));
        });
        // Whatever the schema asks for: strings are enough for the reader that is taken.
        let arguments = required(&reader.input_schema.value());
        group.bench_function(BenchmarkId::new("tools_call", size), |b| {
            own(b, &reader.wire_name, arguments.clone());
        });
        group.bench_function(BenchmarkId::new("run_tool", size), |b| {
            own(b, "docent_run_tool", json!({"tool": reader.id, "arguments": arguments}));
        });
        group.finish();
    }
}

/// A value for every required argument.
fn required(schema: &Value) -> Value {
    let names = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let value = |name: &str| match schema.pointer(&format!("/properties/{name}/type")).and_then(Value::as_str)
    {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("x"),
    };
    names
        .iter()
        .filter_map(Value::as_str)
        .map(|n| (n.to_owned(), value(n)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

criterion_group!(gateway, benches);
criterion_main!(gateway);
