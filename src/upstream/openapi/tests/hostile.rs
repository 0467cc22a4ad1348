//! Documents and arguments that mean harm: too deep, too wide, too large, out of their place.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::import;
use super::{load, only, options, schema, v3};
use crate::schema::Validators;

/// A document whose one operation posts a schema.
fn posting(schema: &str, schemas: &serde_json::Map<String, Value>) -> String {
    let body = json!({"required": true, "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}}});
    json!({"openapi": "3.0.0", "paths": {"/a": {"post": {"requestBody": body}}}, "components": {"schemas": schemas}}).to_string()
}

#[test]
fn a_large_schema_is_cut_with_markers_that_take_anything() {
    let long = "x".repeat(150);
    let mut schemas = serde_json::Map::new();
    for i in 0..600 {
        let next = format!("#/components/schemas/S{}", (i + 1) % 600);
        let properties = json!({format!("a{long}"): {"type": "string"}, "next": {"$ref": next}});
        schemas.insert(format!("S{i}"), json!({"type": "object", "properties": properties}));
    }
    let document = posting("S0", &schemas);
    let tool = load(&document).tools.remove(0).0;
    assert!(tool.wire_schema.len() <= 32 * 1024 && tool.input_schema.len() <= 96 * 1024);
    let mut deep = json!({"next": 5});
    for _ in 0..40 {
        deep = json!({"next": deep});
    }
    assert_eq!(Validators::default().check(&tool.input_schema, &deep).unwrap(), []);
    assert_eq!(Validators::default().check(&tool.input_schema, &json!({"next": 5})).unwrap().len(), 1);
}

#[test]
fn deep_chains_and_wide_merges_stay_bounded() {
    let mut schemas = serde_json::Map::new();
    schemas.insert("A0".to_owned(), json!({"type": "object", "properties": {"x": {"type": "string"}}}));
    for i in 1..=30 {
        let before = json!({"$ref": format!("#/components/schemas/A{}", i - 1)});
        let own = json!({"properties": {format!("p{i}"): {"type": "string"}}});
        schemas.insert(format!("A{i}"), json!({"allOf": [before, before, own]}));
    }
    let document = posting("A30", &schemas);
    let tool = load(&document).tools.remove(0).0;
    assert!(tool.input_schema.len() < 64 * 1024, "{}", tool.input_schema.len());
    let nested = |levels: usize| {
        let mut schema = json!({});
        for _ in 0..levels {
            schema = json!({"type": "array", "items": schema});
        }
        json!({"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": [{"name": "q", "in": "query", "schema": schema}]}}}})
    };
    let import = load(&nested(85).to_string());
    assert!(schema(&import).to_string().contains("cut: nested too deeply"));
    let too_deep = import_error(&nested(120).to_string());
    assert!(too_deep.contains("recursion limit") || too_deep.contains("nested deeper"), "{too_deep}");
    assert!(import_error(&format!("openapi: 3.0.0\na: {}", "[".repeat(5_000))).contains("YAML"));
}

fn import_error(document: &str) -> String {
    import(document.as_bytes(), "a.yaml", &|_| Err(String::new()), &options()).unwrap_err().message
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever the arguments are, the request stays at its place: the path has the template's segments, no dot
    /// segment, only path characters; headers stay on their lines.
    #[test]
    fn no_argument_leaves_its_place(
        a in "\\PC{0,12}|[./\\\\%2eE?#;:@]{0,6}", b in "[a-z.\r\n\0/]{0,6}", c in "\\PC{0,12}",
        style in 0usize..3, explode in any::<bool>(),
    ) {
        let style = ["simple", "label", "matrix"][style];
        let import = v3(&format!(r"
  /p/{{a}}/q{{b}}:
    get:
      parameters:
        - {{name: a, in: path, required: true, style: {style}, explode: {explode}, schema: {{}}}}
        - {{name: b, in: path, required: true, style: {style}, schema: {{type: array}}}}
        - {{name: X-H, in: header, schema: {{}}}}
        - {{name: q, in: query, schema: {{}}}}
"));
        let args = json!({"a": a, "b": [b, c], "X-H": c, "q": a});
        let Ok(r) = only(&import).1.request(args.as_object().unwrap()) else { return Ok(()) };
        let segments: Vec<&str> = r.path.split('/').collect();
        prop_assert!(segments.len() == 4 && segments[1] == "p" && segments[3].starts_with('q'), "{}", r.path);
        prop_assert!(segments.iter().all(|s| !matches!(*s, "." | "..")) && !segments[2].is_empty());
        prop_assert!(r.path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%/,;=".contains(&b)), "{}", r.path);
        for (name, value) in &r.headers {
            prop_assert!(name == "X-H" && value.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b)));
        }
        let url = url::Url::parse("https://host.example/base").unwrap();
        let joined = url::Url::parse(&format!("https://host.example/base{}", r.path)).unwrap();
        prop_assert!(joined.origin() == url.origin() && joined.path() == format!("/base{}", r.path), "{joined}");
    }
}
