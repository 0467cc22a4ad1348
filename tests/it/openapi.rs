//! Real OpenAPI documents: every one loads, every operation is a tool or a named skip, what they give is fit for
//! providers, and the requests built from them pass an independent validator.

mod sample;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use docent::call::HttpBody;
use docent::catalog::{CatalogBuilder, Tool};
use docent::diagnostic::Diagnostics;
use docent::id::UpstreamId;
use docent::schema::{Validators, lint};
use docent::upstream::openapi::{Import, Options, import};
use serde_json::{Value, json};

use crate::support::{shared, tools};

/// The folder of real documents, if it is there.
fn folder() -> Option<PathBuf> {
    shared("real OpenAPI documents").map(|root| root.join("openapi"))
}

fn is(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == extension)
}

/// All documents, as paths below the folder.
fn documents(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().into_string().ok())
        .filter(|n| is(n, "json") || is(n, "yaml"))
        .collect();
    names.push("petstore-separate/spec/swagger.yaml".to_owned());
    names.sort();
    names
}

fn load(folder: &Path, name: &str) -> Import {
    let bytes = std::fs::read(folder.join(name)).unwrap();
    let loader = |path: &str| std::fs::read(folder.join(path)).map_err(|e| e.to_string());
    let options = Options::new(UpstreamId::parse("u").unwrap());
    import(&bytes, name, &loader, &options).unwrap_or_else(|d| panic!("{name} does not load: {d}"))
}

/// Operations counted without any of docent's code.
fn count(folder: &Path, name: &str) -> Option<usize> {
    if !is(name, "json") {
        return None;
    }
    let value: Value = serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap();
    let methods = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
    let paths = value["paths"].as_object()?;
    Some(
        paths
            .values()
            .filter_map(Value::as_object)
            .map(|item| item.keys().filter(|k| methods.contains(&k.as_str())).count())
            .sum(),
    )
}

#[test]
fn every_operation_of_every_document_is_a_tool_or_a_named_skip() {
    let Some(folder) = folder() else { return };
    let (mut tools, mut skips) = (0usize, BTreeMap::<String, usize>::new());
    for name in documents(&folder) {
        let import = load(&folder, &name);
        if let Some(operations) = count(&folder, &name) {
            assert_eq!(import.tools.len() + import.skipped.len(), operations, "{name}");
        }
        tools += import.tools.len();
        for skipped in &import.skipped {
            assert!(!skipped.filtered && !skipped.reason.is_empty() && !skipped.operation.is_empty());
            *skips.entry(format!("{name}: {}", skipped.reason)).or_default() += 1;
        }
        for d in import.diagnostics.0.iter().take(5) {
            eprintln!("{name}: {d}");
        }
    }
    eprintln!("{tools} tools; skipped: {skips:#?}");
    assert!(tools > 7_000, "{tools}");
}

fn check_schemas(name: &str, tool: &Tool, validators: &Validators) {
    for schema in [&tool.input_schema, &tool.wire_schema] {
        let compiled = validators.check(schema, &serde_json::json!({}));
        assert!(compiled.is_ok(), "{name} {}: {compiled:?}\n{schema:?}", tool.id);
        assert!(schema.len() <= 256 * 1024 + 1_024, "{name} {}: {} bytes", tool.id, schema.len());
    }
    let wire = tool.wire_schema.value();
    let refused: Vec<_> =
        lint::lint(&tool.wire_name, &tool.description, &wire).into_iter().filter(|f| f.refused).collect();
    assert!(refused.is_empty(), "{name} {}: {refused:?}\n{wire}", tool.id);
}

#[test]
fn schemas_compile_and_no_provider_refuses_a_tool() {
    let Some(folder) = folder() else { return };
    for name in documents(&folder) {
        let import = load(&folder, &name);
        let count = import.tools.len();
        let mut builder = CatalogBuilder::new(Vec::new());
        import.tools.into_iter().for_each(|(tool, _)| builder.push(tool));
        let mut diagnostics = Diagnostics::default();
        let catalog = builder.build(&mut diagnostics);
        assert!(diagnostics.0.is_empty(), "{name}: {diagnostics}");
        assert_eq!(catalog.len(), count, "{name}: wire names are unique");
        let validators = Validators::default();
        for tool in catalog.tools() {
            assert!(tool.wire_name.len() <= 48, "{name} {}", tool.wire_name);
            check_schemas(&name, tool, &validators);
        }
    }
}

/// Documents whose requests are checked from outside: those of the initiative itself, and real ones of every
/// shape that the checker can read (it knows no Swagger 2, and takes minutes for the largest).
const CHECKED: [&str; 29] = [
    "oai-v3.0-callback-example.yaml",
    "oai-v3.0-link-example.json",
    "oai-v3.0-uspto.yaml",
    "oai-v3.1-tictactoe.yaml",
    "oai-v3.1-webhook-example.yaml",
    "1password.local__connect.json",
    "adyen.com__FundService.json",
    "amazonaws.com__s3outposts.json",
    "apideck.com__pos.json",
    "atlassian.com__jira.json",
    "azure.com__cdn.json",
    "azure.com__storage-DataLakeStorage.json",
    "circleci.com.json",
    "docker.com__engine.json",
    "doqs.dev.json",
    "epa.gov__air.json",
    "intellifi.nl.json",
    "kubernetes.io.json",
    "meshery.local.json",
    "nexmo.com__reports.json",
    "openai.com.json",
    "powerdns.local.json",
    "slideroom.com.json",
    "spotify.com.json",
    "stripe.com.json",
    "traccar.org.json",
    "vercel.com.json",
    "wikimedia.org.json",
    "github.com__ghes-2.19.json",
];
/// Operations checked of one document.
const CHECKED_OPERATIONS: usize = 120;

fn body_for_checker(body: Option<&HttpBody>) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match body {
        None => Value::Null,
        Some(HttpBody::Json(value)) => json!({"json": value}),
        Some(HttpBody::Form(pairs)) => json!({"form": pairs}),
        Some(HttpBody::Multipart(parts)) => {
            let parts: Vec<Value> = parts
                .iter()
                .map(|p| json!({"name": p.name, "file_name": p.file_name, "content_type": p.content_type, "text": text(&p.bytes)}))
                .collect();
            json!({"multipart": parts})
        }
        Some(HttpBody::Raw { content_type, bytes }) => {
            json!({"raw": text(bytes), "content_type": content_type})
        }
    }
}

/// The requests of one document with made-up arguments: once what is required, once everything.
fn requests(folder: &Path, name: &str, unsampled: &mut Vec<String>) -> Value {
    let import = load(folder, name);
    let validators = Validators::default();
    let step = import.tools.len().div_ceil(CHECKED_OPERATIONS).max(1);
    let mut out = Vec::new();
    for (tool, operation) in import.tools.iter().step_by(step) {
        let schema = tool.input_schema.value();
        for whole in [false, true] {
            let args = sample::arguments(&schema, whole);
            let problems = validators.check(&tool.input_schema, &args).unwrap();
            if !problems.is_empty() {
                unsampled.push(format!("{name} {}: {problems:?}", tool.id));
                continue;
            }
            let request = operation.request(args.as_object().unwrap());
            let request = request.unwrap_or_else(|e| panic!("{name} {}: {e} for {args}", tool.id));
            out.push(json!({
                "tool": tool.id, "template": operation.path_template(), "args": args,
                "method": request.method, "path": request.path, "query": request.query,
                "headers": request.headers, "body": body_for_checker(request.body.as_ref()),
            }));
        }
    }
    json!({"document": folder.join(name), "requests": out})
}

#[test]
fn an_independent_validator_accepts_the_requests() {
    let Some(folder) = folder() else { return };
    let Some(tools) = tools("the check of requests with openapi-core") else { return };
    let mut unsampled = Vec::new();
    let all: Vec<Value> = CHECKED.iter().map(|name| requests(&folder, name, &mut unsampled)).collect();
    let count: usize = all.iter().map(|d| d["requests"].as_array().unwrap().len()).sum();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests.json");
    std::fs::write(&file, serde_json::to_vec(&all).unwrap()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi_check.py");
    let output =
        std::process::Command::new(tools.join("venv/bin/python")).arg(script).arg(&file).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    eprintln!(
        "{count} requests; no arguments could be made up for {}:\n{}\n{shown}",
        unsampled.len(),
        unsampled.join("\n")
    );
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    assert!(count > 1_000 && unsampled.len() * 10 < count, "{count} requests, {} unsampled", unsampled.len());
}
