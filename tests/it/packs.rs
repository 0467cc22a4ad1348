//! The packs that docent ships: they compile without a word, their recorded cases hold, and they do their
//! work on this very repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use docent::call::{
    ErrorCode, HttpRequest, ReplyBody, ToolError, ToolOutcome, UpstreamReply, UpstreamRequest,
};
use docent::catalog::{Availability, Tool};
use docent::clock::Clock;
use docent::json::Object;
use docent::projection::{CallFacts, Projection, Projector, ResultBudget, ScriptCalls, Shaped, unprojected};
use docent::schema::Validators;
use docent::secret::Resolver;
use docent::upstream::{Invocation, Upstream, connect};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::upstream_support::permit;

struct Served {
    tool: Tool,
    projection: Option<Projection>,
    adapter: Arc<dyn Upstream>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every tool of the shipped packs by id.
async fn served() -> BTreeMap<String, Served> {
    let (home, mut diagnostics) = docent::config::load_home(root(), &Resolver::new(|_| None));
    let home = home.unwrap_or_else(|| panic!("{diagnostics}"));
    let projector = Projector::new(Arc::new(Validators::default()));
    let mut all = BTreeMap::new();
    for pack in &home.packs {
        let adapter = connect(&pack.config, Clock::system());
        for found in adapter.discover().await.unwrap().tools {
            let projection =
                found.projection.as_ref().and_then(|p| projector.compile(&found.tool, p, &mut diagnostics));
            assert_eq!(projection.is_some(), found.projection.is_some(), "{diagnostics}");
            let id = found.tool.id.as_str().to_owned();
            all.insert(id, Served { tool: found.tool, projection, adapter: Arc::clone(&adapter) });
        }
    }
    assert!(!diagnostics.has_errors(), "{diagnostics}");
    all
}

fn facts() -> CallFacts {
    CallFacts { correlation_id: Arc::from("case"), ..CallFacts::default() }
}

impl Served {
    fn shape(&self, reply: &UpstreamReply, args: &Object) -> Shaped {
        match &self.projection {
            Some(p) => p.shape(reply, args, &facts(), &ResultBudget::default()),
            None => unprojected(reply, &facts(), &ResultBudget::default()),
        }
    }

    async fn call(&self, args: Value) -> Shaped {
        let Value::Object(args) = args else { panic!("arguments are an object") };
        let schema = &self.tool.input_schema;
        let problems = Validators::default().check(schema, &Value::Object(args.clone())).unwrap();
        assert!(problems.is_empty(), "{}: {problems:?}", self.tool.id);
        let permit = permit();
        let reply = self.adapter.invoke(Invocation {
            permit: &permit,
            name: &self.tool.name,
            request: UpstreamRequest::Arguments(args.clone()),
            deadline: Instant::now() + Duration::from_secs(20),
            cancel: CancellationToken::new(),
            progress: None,
            correlation_id: "case",
            read_only: true,
            lent: &[],
            arguments: None,
        });
        let shaped = self.shape(&reply.await.unwrap_or_else(|e| panic!("{}: {e}", self.tool.id)), &args);
        if let ToolOutcome::Completed(result) = &shaped.outcome
            && let (Some(schema), Some(found)) =
                (self.projection.as_ref().and_then(Projection::output_schema), &result.structured)
        {
            assert_eq!(Validators::default().check(schema, &found.value()), Ok(vec![]), "{}", self.tool.id);
        }
        shaped
    }

    async fn data(&self, args: Value) -> Value {
        let shaped = self.call(args).await;
        match shaped.outcome {
            ToolOutcome::Completed(result) => {
                let value = result.structured.map(|s| s.value()).unwrap_or_default();
                value[if result.is_plain { "text" } else { "data" }].clone()
            }
            ToolOutcome::Failed(error) => panic!("{}: {error} {:?}", self.tool.id, shaped.detail),
        }
    }
}

/// Recorded answers to the calls of a script.
struct Recorded(Mutex<Object>);

impl ScriptCalls for Recorded {
    fn fetch(&self, request: HttpRequest) -> Result<UpstreamReply, ToolError> {
        Err(ToolError::new(ErrorCode::UpstreamUnavailable, request.path))
    }

    fn call(&self, tool: &str, _arguments: Object) -> Result<Value, ToolError> {
        let mut calls = self.0.lock().unwrap();
        let next = calls.get_mut(tool).and_then(Value::as_array_mut).and_then(Vec::pop);
        let missing = format!("the case has no further answer for {tool}");
        next.ok_or_else(|| ToolError::new(ErrorCode::UpstreamUnavailable, missing))
    }

    fn progress(&self, _progress: f64, _total: Option<f64>, _message: Option<&str>) {}
}

fn run_case(served: &Served, case: &Value) -> Shaped {
    let args = case["args"].as_object().cloned().unwrap_or_default();
    if let Some(projection) = served.projection.as_ref().filter(|p| p.is_script()) {
        let calls = case["calls"].as_object().cloned().unwrap_or_default();
        let calls: Arc<dyn ScriptCalls> = Arc::new(Recorded(Mutex::new(calls)));
        return projection.run(&args, &facts(), &calls, &ResultBudget::default());
    }
    let recorded = &case["reply"];
    let text = recorded["text"].as_str().unwrap_or_default().to_owned();
    let body = if text.is_empty() {
        ReplyBody::Empty
    } else {
        ReplyBody::Bytes { media_type: "text/plain".to_owned(), bytes: text.into() }
    };
    let status = recorded["status"].as_u64().map_or(200, |s| u16::try_from(s).unwrap());
    served.shape(&UpstreamReply { status, headers: Vec::new(), body, warnings: Vec::new() }, &args)
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_cases_hold() {
    let all = served().await;
    let mut count = 0;
    for pack in ["git", "files", "text", "toolbox"] {
        let name = root().join(format!("scripts/{pack}/cases/{pack}.yaml"));
        let cases: Value = serde_saphyr::from_str(&std::fs::read_to_string(name).unwrap()).unwrap();
        for case in cases.as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            let shaped = run_case(&all[&format!("{pack}.{}", case["tool"].as_str().unwrap())], case);
            match &shaped.outcome {
                ToolOutcome::Completed(result) => match &result.structured {
                    Some(found) if result.is_plain => {
                        assert_eq!(found.value()["text"], case["text"], "{pack}: {name}");
                    }
                    Some(found) => assert_eq!(found.value(), case["expect"], "{pack}: {name}"),
                    None => assert_eq!(json!(result.text), case["text"], "{pack}: {name}"),
                },
                ToolOutcome::Failed(error) => {
                    let found = serde_json::to_value(error).unwrap();
                    let expected = case["error"].as_object();
                    let expected =
                        expected.unwrap_or_else(|| panic!("{pack}: {name}: {error} {:?}", shaped.detail));
                    expected.iter().for_each(|(k, v)| assert_eq!(found[k], *v, "{pack}: {name}"));
                }
            }
            count += 1;
        }
    }
    assert!(count >= 15, "only {count} cases");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_packs_work_on_this_repository() {
    if !root().join(".git").exists() {
        eprintln!("skipped: not a git checkout");
        return;
    }
    let all = served().await;
    let log = all["git.log"].data(json!({"limit": 3})).await;
    assert_eq!(log["items"].as_array().unwrap().len(), 3);
    let head = log["items"][0]["commit"].as_str().unwrap().to_owned();
    assert_eq!(head.len(), 40);
    let commit = all["git.commit"].data(json!({"revision": head})).await;
    assert_eq!(commit["commit"], head.as_str());
    let blame = all["git.blame"].data(json!({"path": "Cargo.toml", "lines": 5})).await;
    assert_eq!((blame["items"].as_array().unwrap().len(), blame["items"][1]["line"].clone()), (5, json!(2)));
    assert!(all["git.status"].data(json!({})).await["branch"].is_string());
    assert!(!all["git.refs"].data(json!({})).await["items"].as_array().unwrap().is_empty());
    let files = all["git.files"].data(json!({"path": "src/", "limit": 4, "offset": 1})).await;
    assert_eq!(files["page"]["mode"], "local");
    assert!(files["items"][0]["size"].is_u64());
    let hits = all["git.search"].data(json!({"pattern": "fn recorded_cases_hold(", "limit": 5})).await;
    if let Some(first) = hits["items"].get(0) {
        assert_eq!(first["file"], "tests/it/packs.rs");
    }
    assert!(all["git.contributors"].data(json!({})).await["items"][0]["commits"].is_u64());
    assert!(
        all["git.read_file"]
            .data(json!({"path": "Cargo.toml"}))
            .await
            .as_str()
            .unwrap()
            .contains("[package]")
    );
    let none = all["git.search"].data(json!({"pattern": format!("zz{}", "qq".repeat(9))})).await;
    assert_eq!(none["page"]["total"], 0);
    let refused = all["git.log"].call(json!({"revision": "no-such-branch"})).await;
    assert!(
        matches!(&refused.outcome, ToolOutcome::Failed(e) if e.code == ErrorCode::InvalidArgument),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_texts_are_read() {
    let all = served().await;
    let list = all["files.list"].data(json!({"path": "src", "limit": 100})).await;
    assert!(list["items"].as_array().unwrap().iter().any(|f| f["path"] == "src/lib.rs"), "{list}");
    assert_eq!(
        all["files.find"].data(json!({"name": "packs.rs", "path": "tests"})).await["items"][0]["path"],
        "tests/it/packs.rs"
    );
    assert!(all["files.stat"].data(json!({"path": "Cargo.toml"})).await["items"][0]["size"].is_u64());
    assert!(
        all["files.head"]
            .data(json!({"path": "Cargo.toml", "lines": 1}))
            .await
            .as_str()
            .unwrap()
            .starts_with("[package]")
    );
    let found = all["files.search"]
        .data(json!({"pattern": "fn files_and_texts_are_read", "path": "tests", "limit": 3}))
        .await;
    assert_eq!(found["items"][0]["file"], "tests/it/packs.rs");
    assert!(found["page"]["total"].as_u64().unwrap() >= 1);
    assert_eq!(
        all["files.hash"].data(json!({"path": "Cargo.toml"})).await["items"][0]["sha256"]
            .as_str()
            .unwrap()
            .len(),
        64
    );
    assert!(all["files.count"].data(json!({"path": "Cargo.toml"})).await["items"][0]["lines"].is_u64());
    assert!(all["files.size"].data(json!({"path": "src", "depth": 0})).await["items"][0]["bytes"].is_u64());
    assert_eq!(all["text.sort"].data(json!({"text": "b\na\nb\n", "unique": true})).await, "a\nb\n");
    assert_eq!(all["text.count"].data(json!({"text": "a b\n"})).await["items"][0]["words"], 2);
    assert_eq!(
        all["text.sha256"].data(json!({"text": "abc"})).await["items"][0]["sha256"],
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    for id in ["files.type", "text.json_query"] {
        if all[id].tool.availability != Availability::Available {
            eprintln!("skipped: {id} is not installed");
        }
    }
    if all["text.json_query"].tool.availability == Availability::Available {
        assert_eq!(
            all["text.json_query"].data(json!({"json": "{\"a\":[1,2]}", "filter": ".a[]"})).await,
            "1\n2\n"
        );
    }
    if all["files.type"].tool.availability == Availability::Available {
        assert_eq!(
            all["files.type"].data(json!({"path": "Cargo.toml"})).await["items"][0]["media_type"],
            "text/plain"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shipped_tools_say_what_they_are() {
    for (id, served) in served().await {
        let tool = &served.tool;
        assert!(tool.annotations.is_read_only(), "{id} only reads");
        assert!(
            (60..=400).contains(&tool.description.len()),
            "{id}: {} bytes of description",
            tool.description.len()
        );
        let schema = tool.input_schema.value();
        assert_eq!(schema["additionalProperties"], false, "{id} takes what it knows only");
        assert!(tool.title.is_some() && !tool.category.is_empty(), "{id}");
    }
}
