//! The meta-tools: search, describe, overview, strict arguments.

use serde_json::json;

use super::*;

async fn search(world: &World, ctx: &RequestContext, arguments: Value) -> Value {
    structured(world.call_as(ctx, "docent_search_tools", arguments).await)
}

fn ids(answer: &Value) -> Vec<String> {
    answer["tools"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_search_walk_partitions_the_matches_whatever_the_page() {
    let world = World::new(40, ServerSettings::default());
    let ctx = caller(&[]);
    let whole =
        search(&world, &ctx, json!({"query": "fake upstream tests", "limit": 100, "budget_tokens": 16_000}))
            .await;
    let all = ids(&whole);
    assert_eq!(whole["total"], json!(all.len()));
    assert!(all.len() >= 40 && !all.contains(&"fake.hidden".to_owned()));
    let mut walked = Vec::new();
    let mut cursor = Value::Null;
    for limit in [7, 3, 10].into_iter().cycle() {
        let mut ask = json!({"query": "  fake   upstream tests ", "limit": limit});
        if !cursor.is_null() {
            ask["cursor"] = cursor.clone();
        }
        let page = search(&world, &ctx, ask).await;
        assert!(page["returned"].as_u64().unwrap() <= limit);
        walked.extend(ids(&page));
        match page.get("next_cursor") {
            Some(next) => cursor = next.clone(),
            None => break,
        }
    }
    assert_eq!(walked, all);
}

#[tokio::test]
async fn the_cost_is_exact_and_a_budget_too_small_names_one_that_works() {
    let world = World::new(40, ServerSettings::default());
    let ctx = caller(&[]);
    let answer =
        result(world.call("docent_search_tools", json!({"query": "fake tests"})).await).structured.unwrap();
    let cost = &answer.value()["token_cost"];
    assert_eq!(cost["estimated_tokens"], json!(answer.len().div_ceil(4)));
    assert_eq!(cost["within_budget"], json!(true));
    assert_eq!(answer.value()["returned"], json!(10), "the default limit fits the default budget");
    let e =
        error(world.call("docent_search_tools", json!({"query": "fake tests", "budget_tokens": 128})).await);
    assert_eq!(e.code, ErrorCode::BudgetTooSmall);
    let works = e.details.unwrap()["required"].clone();
    let answer = search(&world, &ctx, json!({"query": "fake tests", "budget_tokens": works})).await;
    assert_eq!(
        (&answer["returned"], &answer["omission_receipt"]["omitted"][0]["reason"]),
        (&json!(1), &json!("token_budget"))
    );
}

#[tokio::test]
async fn filters_and_several_needs() {
    let world = World::new(4, ServerSettings::default());
    let ctx = caller(&[]);
    let numbers = search(&world, &ctx, json!({"category": "numbers"})).await;
    assert_eq!(numbers["total"], json!(4));
    let both = search(&world, &ctx, json!({"queries": ["fake.read", "fake.write"]})).await;
    assert_eq!(ids(&both)[..2], ["fake.read", "fake.write"]);
    assert!(both["tools"][0]["for"].as_array().unwrap().contains(&json!(0)));
    assert_eq!(both["queries"].as_array().unwrap().len(), 2);
    let distinct: BTreeSet<_> = ids(&both).into_iter().collect();
    assert_eq!(distinct.len(), ids(&both).len());
}

#[tokio::test]
async fn wrong_arguments_are_refused_never_guessed() {
    let world = World::small();
    for (arguments, field) in [
        (json!({"query": "x", "limit": "5"}), "/limit"),
        (json!({"query": "x", "limit": 0}), "/limit"),
        (json!({"query": null}), "/query"),
        (json!({"query": ""}), "/query"),
        (json!({"query": "é".repeat(4_097)}), "/query"),
        (json!({"qery": "x"}), "/qery"),
        (json!({"query": "x", "queries": ["y"]}), "/queries"),
        (json!({"query": "x", "cursor": "garbage"}), "/cursor"),
    ] {
        let e = error(world.call("docent_search_tools", arguments).await);
        assert_eq!(e.field.as_deref(), Some(field), "{e}");
    }
    let long = world.call("docent_search_tools", json!({"query": "é".repeat(4_096)})).await;
    assert!(matches!(long, CallAnswer::Outcome(ToolOutcome::Completed(_))), "code points, not bytes");
    for bad in [json!(null), json!([]), json!("x")] {
        let e = error(world.call("docent_run_tool", json!({"tool": "fake.read", "arguments": bad})).await);
        assert_eq!(e.field.as_deref(), Some("/arguments"), "{e}");
    }
}

#[tokio::test]
async fn describe_tells_rights_and_what_is_missing() {
    let world = World::small();
    let describe =
        async |tool: &str| structured(world.call("docent_describe_tool", json!({ "tool": tool })).await);
    let read = describe("fake_read").await;
    assert_eq!(read["permissions"]["callable"], json!(true));
    assert_eq!(read["input_schema"]["additionalProperties"], json!(false));
    assert_eq!(read["availability"], json!("available"));
    let deploy = describe("fake.deploy").await;
    assert_eq!(deploy["permissions"]["callable"], json!(false));
    assert_eq!(deploy["permissions"]["required_scopes"], json!(["ops:deploy"]));
    assert_eq!(describe("fake.confirm").await["permissions"]["confirmation"], json!(true));
    assert_ne!(read["hash"], deploy["hash"]);
}

#[tokio::test]
async fn overview_counts_only_what_the_caller_sees() {
    let world = World::new(3, ServerSettings::default());
    let categories = structured(world.call("docent_list_categories", json!({})).await);
    assert_eq!(
        categories["categories"],
        json!([{"category": "things", "tools": 4}, {"category": "numbers", "tools": 3}])
    );
    let context = structured(world.call("docent_context", json!({})).await);
    assert_eq!(context["tools"], json!(7));
    assert_eq!(context["discovery"], json!({"mode": "full", "setting": "full", "decided_by": "server"}));
    assert_eq!(context["upstreams"], json!([{"id": "fake", "tools": 7, "state": "up", "complete": true}]));
    assert_eq!(context["caller"], json!("tester"));
}
