//! Every result of the packs' cases against the schema that its tool advertises, by a validator that docent does
//! not use: python's `jsonschema`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use docent::clock::Clock;
use docent::projection::{Projection, Projector};
use docent::schema::Validators;
use docent::secret::{Reference, Resolver};
use docent::upstream::connect;
use serde_json::{Value, json};

use crate::support::{TestHome, copy, root, tools};

/// A result with the schema of its tool.
pub(crate) struct Sample {
    pub(crate) what: String,
    pub(crate) schema: Value,
    pub(crate) instance: Value,
}

/// Fails with what does not fit. Says so and does nothing where the tools are not installed.
pub(crate) fn validate(samples: &[Sample]) {
    let Some(tools) = tools("python's jsonschema") else { return };
    let mut child = Command::new(tools.join("venv/bin/python"))
        .arg(root().join("tests/tools/validate.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines: Vec<String> = samples
        .iter()
        .map(|s| json!({"what": s.what, "schema": s.schema, "instance": s.instance}).to_string() + "\n")
        .collect();
    let writer =
        std::thread::spawn(move || lines.iter().for_each(|l| stdin.write_all(l.as_bytes()).unwrap()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains(&format!("{} results", samples.len())), "{said:.3000}");
}

/// A home that serves some of the shipped packs to everybody.
pub(crate) fn home_of(packs: &[&str]) -> TestHome {
    let main = format!(
        "[auth]\nmode = \"none\"\n[callers.anonymous]\n[upstreams]\nenabled = {packs:?}\n[[allow]]\nupstreams = {packs:?}\n"
    );
    let home = TestHome::with(&[("docent.toml", &main)]);
    for pack in packs.iter().chain(&["lib"]) {
        copy(&root().join("scripts").join(pack), &home.path().join("scripts").join(pack));
    }
    home
}

/// Every tool of a home's packs by its id, compiled.
pub(crate) async fn compiled(home: &Path) -> BTreeMap<String, Projection> {
    let resolver = Resolver::new(|r| match r {
        Reference::Env("GITHUB_TOKEN" | "OMBI_API_KEY") => Some("key".to_owned()),
        Reference::Env("OMBI_URL" | "KUBERNETES_URL") => Some("http://127.0.0.1:1".to_owned()),
        _ => None,
    });
    let (loaded, mut diagnostics) = docent::config::load_home(home, &resolver);
    let loaded = loaded.unwrap_or_else(|| panic!("{diagnostics}"));
    let projector = Projector::new(Arc::new(Validators::default()));
    let mut all = BTreeMap::new();
    for pack in &loaded.packs {
        for found in connect(&pack.config, Clock::system()).discover().await.unwrap().tools {
            let Some(spec) = &found.projection else { continue };
            let made = projector.compile(&found.tool, spec, &mut diagnostics);
            all.insert(found.tool.id.as_str().to_owned(), made.unwrap_or_else(|| panic!("{diagnostics}")));
        }
    }
    all
}

/// What the cases expect is what `docent test` sees come out.
#[tokio::test(flavor = "multi_thread")]
async fn every_expected_result_fits_what_its_tool_advertises() {
    let packs = ["ombi", "github", "kubernetes", "git", "files", "text", "toolbox"];
    let home = home_of(&packs);
    let all = compiled(home.path()).await;
    let mut samples = Vec::new();
    for pack in packs {
        let mut files: Vec<_> =
            std::fs::read_dir(home.path().join("scripts").join(pack).join("cases")).unwrap().collect();
        files.sort_by_key(|f| f.as_ref().unwrap().file_name());
        for file in files
            .into_iter()
            .map(|f| f.unwrap().path())
            .filter(|f| f.extension().is_some_and(|e| e == "yaml"))
        {
            let cases: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
            for case in cases.as_array().unwrap() {
                let tool = format!("{pack}.{}", case["tool"].as_str().unwrap());
                let Some(schema) = all.get(&tool).and_then(Projection::output_schema) else { continue };
                if case["expect"].is_object() {
                    let what = format!("{tool}: {}", case["name"]);
                    samples.push(Sample { what, schema: schema.value(), instance: case["expect"].clone() });
                }
            }
        }
    }
    assert!(samples.len() > 150, "{}", samples.len());
    validate(&samples);
    // A planted mistake is found, or all of this would mean nothing.
    let mut spoilt = samples.swap_remove(0);
    spoilt.instance["ok"] = json!("yes");
    assert!(std::panic::catch_unwind(|| validate(&[spoilt])).is_err() || tools("jsonschema").is_none());
}
