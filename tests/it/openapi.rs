//! Real OpenAPI documents: every one loads, every operation is a tool or a named skip, what they give is fit for
//! providers, and the requests built from them pass an independent validator.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use docent::catalog::{CatalogBuilder, Tool};
use docent::diagnostic::Diagnostics;
use docent::id::UpstreamId;
use docent::schema::{Validators, lint};
use docent::upstream::openapi::{Import, Options, import};
use serde_json::Value;

/// The folder of real documents, if it is there.
fn folder() -> Option<PathBuf> {
    let root = std::env::var_os("DOCENT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let folder = root.join("openapi");
    if !folder.is_dir() {
        eprintln!("skipped: no documents at {}", folder.display());
        return None;
    }
    Some(folder)
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
