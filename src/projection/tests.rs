//! The whole native path: from upstream.toml and bytes to a bounded result under its schema.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    CallFacts, Fields, Keeping, PackSources, Projection, ProjectionSpec, Projector, ResultBudget, Shaped,
};
use crate::call::{ErrorCode, ReplyBody, ToolError, ToolOutcome, ToolResult, UpstreamReply};
use crate::catalog::Tool;
use crate::diagnostic::{Diagnostics, SourceFile};
use crate::id::{ToolId, UpstreamId};
use crate::json::JsonText;
use crate::schema::{SchemaText, Validators};
use crate::settings;

pub(super) fn reply(media_type: &str, body: impl Into<Bytes>) -> UpstreamReply {
    UpstreamReply {
        status: 200,
        headers: Vec::new(),
        body: ReplyBody::Bytes { media_type: media_type.to_owned(), bytes: body.into() },
        warnings: Vec::new(),
    }
}

pub(super) fn tool(input: &Value) -> Tool {
    let mut tool = Tool::new(
        ToolId::parse("t.list").unwrap(),
        UpstreamId::parse("t").unwrap(),
        "list",
        SchemaText::of(input),
    );
    tool.annotations.read_only = Some(true);
    tool
}

pub(super) fn try_compile(toml: &str, input: &Value, pack: PackSources) -> (Option<Projection>, Vec<String>) {
    let mut diagnostics = Diagnostics::default();
    let file = SourceFile::new("upstream.toml", toml);
    let spec = settings::read(&file, &mut diagnostics, |s| ProjectionSpec::read(s, &Arc::new(pack)));
    let projector = Projector::new(Arc::new(Validators::default()));
    let compiled = spec.and_then(|spec| projector.compile(&tool(input), &spec, &mut diagnostics));
    (compiled, diagnostics.0.iter().map(|d| format!("{}:{} {}", d.line, d.column, d.message)).collect())
}

pub(super) fn compile(toml: &str, input: &Value, pack: PackSources) -> Projection {
    let (compiled, found) = try_compile(toml, input, pack);
    compiled.unwrap_or_else(|| panic!("{found:?}"))
}

pub(super) fn facts() -> CallFacts {
    CallFacts { correlation_id: Arc::from("c-1"), ..CallFacts::default() }
}

fn shape(projection: &Projection, body: &str, args: &Value, budget: &ResultBudget) -> Shaped {
    projection.shape(&reply("application/json", body.to_owned()), args.as_object().unwrap(), &facts(), budget)
}

pub(super) fn done(shaped: &Shaped) -> (&ToolResult, Value) {
    match &shaped.outcome {
        ToolOutcome::Completed(result) => {
            (result, result.structured.as_ref().map(JsonText::value).unwrap_or_default())
        }
        ToolOutcome::Failed(error) => panic!("{error} {:?}", shaped.detail),
    }
}

pub(super) fn refused(shaped: &Shaped) -> &ToolError {
    match &shaped.outcome {
        ToolOutcome::Failed(error) => error,
        ToolOutcome::Completed(result) => panic!("{result:?}"),
    }
}

const LIST: &str = "collection = \"/items\"\nlimit = 5\nfields = { id = \"/id\", name = \"/a/name\" }\n";

#[test]
fn a_page_is_enveloped_and_fits_its_own_schema() {
    let projection = compile(LIST, &json!({}), PackSources::default());
    let rows: Vec<Value> =
        (0..7).map(|i| json!({"id": i, "a": {"name": format!("n{i}")}, "junk": [1, 2]})).collect();
    let shaped =
        shape(&projection, &json!({"items": rows}).to_string(), &json!({}), &ResultBudget::default());
    let (_, value) = done(&shaped);
    assert_eq!(value["ok"], true);
    assert_eq!(value["operation"], "list");
    assert_eq!(value["data"]["items"][4], json!({"id": 4, "name": "n4"}));
    assert_eq!(
        value["data"]["page"],
        json!({"offset": 0, "limit": 5, "returned": 5, "total": null, "has_more": true, "next_offset": null, "mode": "upstream", "unit": "records"})
    );
    assert_eq!(
        (value["truncated"].clone(), value["warnings"].clone()),
        (json!(true), json!(["left out: 2 records (limit)"]))
    );
    assert_eq!((shaped.omitted.len(), shaped.omitted[0].count), (1, Some(2)));
    let schema = projection.output_schema().unwrap();
    assert_eq!(Validators::default().check(schema, &value), Ok(vec![]));
    let defs: Vec<String> = schema.value()["$defs"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(defs, ["error", "item", "page", "paging"], "only what is reached");
    let failure = projection
        .failure(&ToolError::new(ErrorCode::NotFound, "gone").details(json!({"http_status": 404})), "c")
        .unwrap();
    assert_eq!(Validators::default().check(schema, &failure), Ok(vec![]));
    assert_eq!(
        failure["error"],
        json!({"code": "NOT_FOUND", "message": "gone", "retryable": false, "http_status": 404})
    );
}

#[test]
fn complete_collections_are_paged_here() {
    let toml = format!("{LIST}paging = \"complete\"\nunit = \"things\"\n");
    let input = json!({"properties": {"offset": {}, "limit": {}}});
    let projection = compile(&toml, &input, PackSources::default());
    let rows: Vec<Value> = (0..7).map(|i| json!({"id": i})).collect();
    let body = json!({"items": rows}).to_string();
    let page = |args: Value| {
        let shaped = shape(&projection, &body, &args, &ResultBudget::default());
        let value = done(&shaped).1;
        (value["data"]["items"][0]["id"].clone(), value["data"]["page"].clone(), value["truncated"].clone())
    };
    assert_eq!(
        page(json!({"offset": 3, "limit": 2})),
        (
            json!(3),
            json!({"offset": 3, "limit": 2, "returned": 2, "total": 7, "has_more": true, "next_offset": 5, "mode": "local", "unit": "things"}),
            json!(false)
        )
    );
    assert_eq!(page(json!({"offset": 6, "limit": 2})).1["has_more"], false);
    assert_eq!(page(json!({"offset": 9})).1["returned"], 0);
}

#[test]
fn budgets_are_exact() {
    let projection =
        compile("collection = \"\"\nfields = { t = \"/t\" }\n", &json!({}), PackSources::default());
    let rows: Vec<Value> = (0..40).map(|i| json!({"t": format!("{i:->30}😀")})).collect();
    let body = json!(rows).to_string();
    let whole = shape(&projection, &body, &json!({}), &ResultBudget::default());
    let full = done(&whole).0.structured.as_ref().unwrap().len();
    assert!(whole.omitted.is_empty());
    let at = |result_bytes: usize| {
        shape(&projection, &body, &json!({}), &ResultBudget { result_bytes, ..ResultBudget::default() })
    };
    assert!(at(full).omitted.is_empty(), "exactly at the limit everything is kept");
    for bytes in (500..full).step_by(37).chain([full - 1]) {
        let shaped = at(bytes);
        let (result, value) = done(&shaped);
        assert!(result.structured.as_ref().unwrap().len() <= bytes);
        let kept = value["data"]["items"].as_array().unwrap().len();
        assert_eq!(value["data"]["page"]["returned"], json!(kept));
        assert_eq!(value["data"]["page"]["has_more"], true);
        assert_eq!(
            shaped.omitted.iter().filter_map(|o| o.count).sum::<u64>(),
            40 - u64::try_from(kept).unwrap(),
            "{bytes}"
        );
    }
    assert_eq!(refused(&at(60)).code, ErrorCode::BudgetTooSmall);
}

#[test]
fn one_large_record_loses_fields_before_texts() {
    let projection =
        compile("fields = { id = \"/id\", body = \"/body\" }\n", &json!({}), PackSources::default());
    let body = json!({"id": 1, "body": "x".repeat(2_000)}).to_string();
    let shaped =
        shape(&projection, &body, &json!({}), &ResultBudget { result_bytes: 600, ..ResultBudget::default() });
    let value = done(&shaped).1;
    assert_eq!(value["data"], json!({"kind": "record", "record": {"id": 1}}));
    assert_eq!(value["truncated"], true);
}

#[test]
fn families_come_from_the_pack_and_are_checked() {
    let schemas = json!({"$defs": {
        "row": {"type": "object", "properties": {"id": {"type": "integer"}, "rating": {"type": ["number", "null"]}}, "required": ["id"], "additionalProperties": false},
        "row_page": {"type": "object", "properties": {"kind": {"const": "row_page"}, "items": {"type": "array", "items": {"$ref": "#/$defs/row"}}, "page": {"$ref": "#/$defs/paging"}}, "required": ["kind", "items", "page"]},
        "unused": {"type": "object"},
    }});
    let pack = || PackSources {
        schemas: vec![SourceFile::new("scripts/t/schemas/a.json", schemas.to_string())],
        ..PackSources::default()
    };
    let toml = "families = [\"row_page\"]\ncollection = \"\"\nfields = { id = \"/id\", rating = \"/r\" }\n";
    let projection = compile(toml, &json!({}), pack());
    let good =
        shape(&projection, r#"[{"id":1,"r":2.5},{"id":2,"r":null}]"#, &json!({}), &ResultBudget::default());
    assert_eq!(done(&good).1["data"]["kind"], "row_page");
    let bad = shape(
        &projection,
        r#"[{"id":1,"r":2.5},{"id":2,"r":"s3cret"}]"#,
        &json!({}),
        &ResultBudget::default(),
    );
    let error = refused(&bad);
    assert_eq!(error.code, ErrorCode::UpstreamSchemaMismatch);
    assert!(
        error.message.contains("at /data/items/1/rating:") && !error.message.contains("s3cret"),
        "{error}"
    );
    let (_, found) = try_compile("families = [\"rows_page\", \"row\"]\n", &json!({}), pack());
    assert_eq!(
        found,
        [
            "1:13 there is no result family `rows_page`",
            "1:26 the family `row` does not say `\"kind\": {\"const\": \"row\"}`"
        ]
    );
}

#[test]
fn bare_results_keep_their_own_schema() {
    let toml = "fields = { n = \"/n\" }\noutput_schema = { type = \"object\", properties = { n = { type = \"integer\" } }, required = [\"n\"] }\n";
    let projection = compile(toml, &json!({}), PackSources::default());
    let good = shape(&projection, r#"{"n":9007199254740993,"x":1}"#, &json!({}), &ResultBudget::default());
    assert_eq!(done(&good).0.structured.as_ref().unwrap().as_str(), r#"{"n":9007199254740993}"#);
    let bad = shape(&projection, r#"{"x":1}"#, &json!({}), &ResultBudget::default());
    assert!(refused(&bad).message.contains("at the root"), "{:?}", bad.outcome);
}

#[test]
fn text_output_becomes_rows() {
    let toml = "lines = { columns = [\"n\", \"who\"], separator = \"\\t\", numbers = [\"n\"] }\n";
    let projection = compile(toml, &json!({}), PackSources::default());
    let shaped = projection.shape(
        &reply("text/plain", "1\tann\n2\tbob\n"),
        &json!({}).as_object().unwrap().clone(),
        &facts(),
        &ResultBudget::default(),
    );
    let value = done(&shaped).1;
    assert_eq!(value["data"]["items"], json!([{"n": 1, "who": "ann"}, {"n": 2, "who": "bob"}]));
    assert_eq!(value["data"]["page"]["total"], 2);
}

#[test]
fn failures_are_told_and_not_validated() {
    let projection = compile(LIST, &json!({}), PackSources::default());
    let mut gone = reply("application/json", r#"{"message":"no"}"#);
    gone.status = 503;
    let empty = json!({}).as_object().unwrap().clone();
    let shaped = projection.shape(&gone, &empty, &facts(), &ResultBudget::default());
    assert_eq!((refused(&shaped).code, refused(&shaped).retryable), (ErrorCode::UpstreamUnavailable, true));
    for body in
        ["", "nope", "{\"items\":{}}", "{\"items\":[1]} x", "[[[", "{\"items\":[{\"id\":\"\\ud800\"}]}"]
    {
        let shaped = shape(&projection, body, &json!({}), &ResultBudget::default());
        if body.contains("[1]}") || !body.contains("ud800") {
            assert_eq!(refused(&shaped).code, ErrorCode::UpstreamSchemaMismatch, "{body}");
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,30}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec(
                (
                    prop_oneof![
                        Just("id".to_owned()),
                        Just("a".to_owned()),
                        Just("name".to_owned()),
                        "[a-z]{1,3}"
                    ],
                    inner
                ),
                0..6
            )
            .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

static PAGES: LazyLock<Projection> = LazyLock::new(|| compile(LIST, &json!({}), PackSources::default()));

/// Every string, number and key of a value.
fn atoms(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|v| atoms(v, out)),
        Value::Object(map) => map.values().for_each(|v| atoms(v, out)),
        Value::Null | Value::Bool(_) => {}
        scalar => out.push(scalar.to_string()),
    }
}

proptest! {
    #[test]
    fn no_reply_breaks_a_contract(rows in prop::collection::vec(any_json(), 0..12), wrap in any::<bool>(), bytes in 300usize..3_000, records in 1usize..8) {
        let body = if wrap { json!({"items": rows}) } else { json!(rows) };
        let budget = ResultBudget { result_bytes: bytes, text_bytes: bytes, records };
        let shaped = shape(&PAGES, &body.to_string(), &json!({}), &budget);
        if let ToolOutcome::Completed(result) = &shaped.outcome {
            let structured = result.structured.as_ref().unwrap();
            prop_assert!(structured.len() <= bytes);
            let value = structured.value();
            prop_assert_eq!(Validators::default().check(PAGES.output_schema().unwrap(), &value), Ok(vec![]));
            prop_assert!(value["data"]["items"].as_array().unwrap().len() <= records.min(5));
            let (mut given, mut said) = (Vec::new(), Vec::new());
            atoms(&body, &mut given);
            atoms(&value["data"]["items"], &mut said);
            for atom in said {
                prop_assert!(given.contains(&atom) || atom.contains('…'), "{} was invented", atom);
            }
            let kept = value["data"]["items"].as_array().unwrap().len();
            let left: u64 = shaped.omitted.iter().filter(|o| o.name == "records").filter_map(|o| o.count).sum();
            if wrap {
                prop_assert_eq!(u64::try_from(kept).unwrap() + left, u64::try_from(rows.len()).unwrap());
            }
        }
        prop_assert_eq!(shape(&PAGES, &body.to_string(), &json!({}), &budget).bytes_out, shaped.bytes_out);
    }

    #[test]
    fn any_bytes_are_survived(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let empty = json!({}).as_object().unwrap().clone();
        let shaped = PAGES.shape(&reply("application/json", body), &empty, &facts(), &ResultBudget::default());
        prop_assert!(!shaped.is_success());
    }
}

/// A call whose rest is kept.
fn keeping_facts() -> CallFacts {
    let keeping =
        Keeping::new(Arc::from("docent_read_result"), 100_000, std::time::Duration::from_hours(1), || {
            Arc::from("r_1")
        });
    CallFacts { keeping: Some(keeping), ..facts() }
}

fn kept(toml: &str, body: &str, facts: &CallFacts, budget: &ResultBudget) -> (Shaped, Value) {
    let projection = compile(toml, &json!({}), PackSources::default());
    let shaped =
        projection.shape(&reply("application/json", body.to_owned()), &object(&json!({})), facts, budget);
    let whole = shaped.kept.as_ref().map(|k| k.json.value()).unwrap_or_default();
    (shaped, whole)
}

fn object(value: &Value) -> crate::json::Object {
    value.as_object().unwrap().clone()
}

fn name(i: usize) -> String {
    format!("n{i}{}", "-".repeat(60))
}

fn rows(count: usize) -> String {
    let rows: Vec<Value> =
        (0..count).map(|i| json!({"id": i, "a": {"name": name(i)}, "tags": vec![i; 150]})).collect();
    json!({ "items": rows }).to_string()
}

#[test]
fn records_beyond_the_limit_are_kept_whole_and_told() {
    let (shaped, whole) = kept(LIST, &rows(12), &keeping_facts(), &ResultBudget::default());
    let (result, value) = done(&shaped);
    assert_eq!(value["data"]["items"].as_array().unwrap().len(), 5);
    assert_eq!(whole["items"].as_array().unwrap().len(), 12);
    assert_eq!(whole["items"][11], json!({"id": 11, "name": name(11)}));
    assert_eq!((&whole["page"]["returned"], &whole["page"]["has_more"]), (&json!(12), &Value::Null));
    let warnings = value["warnings"].to_string();
    assert!(warnings.contains("r_1") && warnings.contains("docent_read_result"), "{warnings}");
    assert_eq!(result.meta.as_ref().unwrap()["dev.docent/result"]["result_id"], "r_1");
    assert!(result.blocks[0].get().contains("docent://results/r_1"));
    assert!(shaped.kept.as_ref().unwrap().is_whole && shaped.kept.as_ref().unwrap().is_data);
}

#[test]
fn nothing_is_kept_where_nothing_is_left_out_or_nobody_keeps() {
    let (shaped, _) = kept(LIST, &rows(5), &keeping_facts(), &ResultBudget::default());
    assert!(shaped.kept.is_none() && done(&shaped).0.blocks.is_empty());
    let (shaped, _) = kept(LIST, &rows(12), &facts(), &ResultBudget::default());
    assert!(shaped.kept.is_none() && done(&shaped).0.meta.is_none());
}

#[test]
fn what_bytes_and_nested_ceilings_cut_is_kept_as_well() {
    let small = ResultBudget { result_bytes: 640, ..ResultBudget::default() };
    let (shaped, whole) = kept(LIST, &rows(5), &keeping_facts(), &small);
    let (_, value) = done(&shaped);
    assert!(value["data"]["items"].as_array().unwrap().len() < 5 && value.to_string().len() <= 640);
    assert_eq!(whole["items"].as_array().unwrap().len(), 5);
    let tags = "collection = \"/items\"\nfields = { tags = \"/tags\", each = \"/tags/*\" }\n";
    let (shaped, whole) = kept(tags, &rows(2), &keeping_facts(), &ResultBudget::default());
    assert_eq!(done(&shaped).1["data"]["items"][1]["tags"].as_array().unwrap().len(), 100);
    for member in ["tags", "each"] {
        assert_eq!(whole["items"][1][member].as_array().unwrap().len(), 150, "{member}");
    }
    let one = "fields = { text = \"/text\" }\n";
    let body = json!({"text": "x".repeat(3_000)}).to_string();
    let (shaped, whole) = kept(one, &body, &keeping_facts(), &small);
    assert!(done(&shaped).1.to_string().len() <= 640);
    assert_eq!(whole, json!({"kind": "record", "record": {"text": "x".repeat(3_000)}}));
}

#[test]
fn only_the_fields_asked_for_come_and_required_ones_stay() {
    let projection = compile(LIST, &json!({}), PackSources::default());
    let fields = Arc::new(Fields::parse(["name"]).unwrap());
    projection.check_fields(&fields).unwrap();
    let facts = CallFacts { fields: Some(fields), ..facts() };
    let shaped = projection.shape(
        &reply("application/json", rows(2)),
        &object(&json!({})),
        &facts,
        &ResultBudget::default(),
    );
    assert_eq!(done(&shaped).1["data"]["items"], json!([{"name": name(0)}, {"name": name(1)}]));
    let wrong = projection.check_fields(&Fields::parse(["nam"]).unwrap()).unwrap_err();
    assert!(wrong.message.contains("did you mean `name`?"), "{wrong}");
    assert!(projection.check_fields(&Fields::parse(["/a/b"]).unwrap()).is_err());
}

#[test]
fn a_number_that_nobody_can_hold_is_told_and_wide_ones_stay() {
    let projection = compile(LIST, &json!({}), PackSources::default());
    let of = |id: &str| {
        let body = format!("{{\"items\":[{{\"id\":{id}}}]}}");
        shape(&projection, &body, &json!({}), &ResultBudget::default())
    };
    let shaped = of("1e400");
    let error = refused(&shaped);
    assert_eq!(error.code, ErrorCode::UpstreamSchemaMismatch);
    assert!(error.message.contains("number out of range"), "{error}");
    for exact in ["123456789012345678901234567890", "0.12345678901234567890123", "-0.0", "1E5"] {
        let shaped = of(exact);
        assert!(done(&shaped).0.structured.as_ref().unwrap().as_str().contains(&format!("\"id\":{exact}")));
    }
}

#[test]
fn what_stands_for_secrets_is_within_the_budget() {
    let projection =
        compile("collection = \"/items\"\nfields = { t = \"/t\" }\n", &json!({}), PackSources::default());
    let text = "password=abcd ".repeat(10);
    let items: Vec<Value> = (0..20).map(|_| json!({ "t": text })).collect();
    let budget = ResultBudget { result_bytes: 3_200, ..ResultBudget::default() };
    let shaped = shape(&projection, &json!({ "items": items }).to_string(), &json!({}), &budget);
    let (result, value) = done(&shaped);
    assert!(result.structured.as_ref().unwrap().len() <= 3_200);
    assert!(value["truncated"] == true && !value.to_string().contains("abcd"), "{value}");
    assert!(value["data"]["items"].as_array().unwrap().len() > 3, "{value}");
}
