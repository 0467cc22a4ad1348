//! Policies over 10,000 tools: rosters cold and warm, by rules and by functions, and single decisions.
//!
//! `cargo bench --bench policy`. Budgets: a roster for a new class of callers at most 1 ms where the policies
//! build rules and 30 ms where they are functions, at most 20 µs where the class is known; a decision with
//! arguments at most 10 µs; 100 callers × 10,000 tools at most 2 s.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and prints")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::Criterion;
use docent::catalog::{Catalog, CatalogBuilder, Tool};
use docent::diagnostic::{Diagnostics, SourceFile};
use docent::id::{Scope, ToolId, UpstreamId};
use docent::policy::{PolicySet, PolicyTables, Principal};
use docent::schema::SchemaText;
use docent::script::stack;
use serde_json::json;

const TOOLS: usize = 10_000;

/// Tools of 60 upstreams, 25 categories, 97 tags in pairs, some with scopes or a tier of their own.
fn catalog() -> Catalog {
    let mut builder = CatalogBuilder::new(Vec::new());
    for n in 0..TOOLS {
        let upstream = format!("up{:02}", n % 60);
        let id = ToolId::parse(&format!("{upstream}.tool_{n:05}")).unwrap();
        let mut tool = Tool::new(
            id,
            UpstreamId::parse(&upstream).unwrap(),
            format!("tool_{n:05}"),
            SchemaText::empty_object(),
        );
        tool.category = Arc::from(format!("category{:02}", n % 25));
        tool.tags = [n % 97, n % 41].iter().map(|t| Arc::from(format!("tag{t:02}"))).collect();
        tool.annotations.read_only = [Some(true), None, Some(false)].get(n % 3).copied().flatten();
        tool.annotations.destructive = Some(n % 7 == 0);
        if n % 11 == 0 {
            tool.scopes = Arc::from([Scope::parse(&format!("own:{}", n % 5)).unwrap()]);
        }
        if n % 13 == 0 {
            tool.tier = Some(Arc::from("action"));
        }
        builder.push(tool);
    }
    builder.build(&mut Diagnostics::default())
}

/// Five files with six rules each, as a company of some teams would write them.
fn rules() -> Vec<SourceFile> {
    let file = |n: usize| {
        let text = format!(
            "fn rules(p) {{
  p.allow().any_tags([\"tag{n}0\", \"tag{n}1\", \"tag{n}2\"]).scopes([\"team{n}:read\"]);
  p.allow().upstream(\"up{n}?\").read_only();
  p.hide().category(\"category0{n}\").unless_scopes([\"team{n}:admin\"]);
  p.challenge([\"team{n}:write\"]).upstream(\"up{n}?\").read_only(false);
  p.confirm(\"Sure?\").upstream(\"up{n}*\").destructive().tier(\"action\");
  p.deny(\"not there\").tool(\"up{n}3.*\").when_arg(\"/target\", \"prod\");
}}"
        );
        SourceFile::new(format!("policies/{n}.rhai"), text)
    };
    (0..5).map(file).collect()
}

/// The same kinds of policy as functions.
fn functions() -> Vec<SourceFile> {
    let file = |n: usize| {
        let text = format!(
            "fn visible(caller, tool) {{
  tool.category != \"category0{n}\" || caller.has_scope(\"team{n}:admin\")
}}
fn decide(caller, tool, args) {{
  if caller.claims.suspended == true {{ return deny(\"suspended\"); }}
  if tool.matches(\"up{n}?.*\") {{
    if tool.annotations.read_only || caller.has_scope(\"team{n}:write\") {{ return allow(); }}
    return challenge([\"team{n}:write\"]);
  }}
  if \"tag{n}0\" in tool.tags && caller.has_scope(\"team{n}:read\") {{ return allow(); }}
  if tool.has_tag(\"tag{n}1\") && args.target == \"prod\" {{ return deny(\"not there\"); }}
  abstain()
}}"
        );
        SourceFile::new(format!("policies/{n}.rhai"), text)
    };
    (0..5).map(file).collect()
}

fn load(sources: &[SourceFile]) -> PolicySet {
    let mut diagnostics = Diagnostics::default();
    let tiers = ["workbench", "action", "system"].map(str::to_owned);
    let set = PolicySet::load(sources, PolicyTables::default(), &tiers, &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{diagnostics}");
    set
}

/// Caller number `n`: another set of scopes for each of 32,768 numbers.
fn caller(n: usize) -> Principal {
    let names = ["read", "write", "admin"];
    let held = (0..15).filter(|bit| n >> bit & 1 == 1).filter_map(|bit| {
        names.get(bit % 3).map(|right| Scope::parse(&format!("team{}:{right}", bit / 3)).unwrap())
    });
    Principal { subject: Arc::from("bench"), scopes: held.collect(), ..Principal::default() }
}

fn measure(criterion: &mut Criterion) {
    let catalog = catalog();
    let arguments = json!({"target": "prod", "lines": 10, "note": "x".repeat(200)});
    let arguments = arguments.as_object().unwrap();
    for (name, sources) in [("rules", rules()), ("functions", functions())] {
        let set = load(&sources);
        // The bitmaps and values of a catalog are made once per generation, when it is warmed.
        let roster = set.roster(&catalog, &caller(1));
        println!("{name}: caller 1 sees {} of {TOOLS}", roster.visible.count());
        let mut n = 2;
        criterion.bench_function(&format!("roster_cold/{name}"), |b| {
            b.iter(|| {
                n = (n + 1) % 32_768;
                black_box(set.roster(&catalog, &caller(n)))
            });
        });
        let who = caller(21_845);
        set.roster(&catalog, &who);
        criterion.bench_function(&format!("roster_warm/{name}"), |b| {
            b.iter(|| black_box(set.roster(&catalog, &who)));
        });
        let mut at = 0;
        criterion.bench_function(&format!("decide/{name}"), |b| {
            b.iter(|| {
                at = (at + 7_919) % TOOLS;
                let no = docent::id::ToolNo(u32::try_from(at).unwrap());
                black_box(set.decide(&catalog, &who, no, Some(arguments)))
            });
        });
    }
    let set = load(&rules());
    let callers: Vec<(String, Principal)> = (0..100).map(|n| (n.to_string(), caller(n * 311))).collect();
    let mut group = criterion.benchmark_group("matrix");
    group.sample_size(10).bench_function("100_callers", |b| {
        b.iter(|| black_box(set.matrix(&catalog, &callers)));
    });
    group.bench_function("load", |b| b.iter(|| black_box(load(&rules()))));
    group.finish();
}

fn main() {
    // As in `docent serve`: scripts run in place on threads with deep stacks.
    let bench = std::thread::Builder::new().stack_size(stack::STACK_BYTES).spawn(|| {
        stack::adopt_current_thread();
        let mut criterion = Criterion::default().configure_from_args();
        measure(&mut criterion);
        criterion.final_summary();
    });
    bench.unwrap().join().unwrap();
}
