//! Calls: who may, with which arguments, for how long, and what is told when it fails.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_permitted_call_reaches_the_upstream_by_either_name() {
    let world = World::small();
    for name in ["fake.read", "fake_read"] {
        let value = structured(world.call(name, json!({"text": "hi"})).await);
        assert_eq!(value["data"], json!({"echo": {"text": "hi"}, "permit": "fake.read", "name": "read"}));
    }
    assert_eq!(world.fake.calls(), 2);
}

#[tokio::test]
async fn hidden_and_absent_are_one_answer_everywhere() {
    let world = World::small();
    assert!(matches!(world.call("fake.hidden", json!({})).await, CallAnswer::UnknownTool));
    assert!(matches!(world.call("fake.absent", json!({})).await, CallAnswer::UnknownTool));
    for meta in ["describe_tool", "run_tool", "run_readonly_tool"] {
        let ask = async |tool: &str| {
            let e = error(world.call(&format!("docent_{meta}"), json!({ "tool": tool })).await);
            serde_json::to_string(&e).unwrap().replace(tool, "X")
        };
        assert_eq!(ask("fake.hidden").await, ask("fake.absent").await, "{meta}");
        assert!(ask("fake.hidden").await.contains("NOT_FOUND"));
    }
    let seen = caller(&["see:hidden"]);
    assert!(matches!(world.call_as(&seen, "fake.hidden", json!({})).await, CallAnswer::Outcome(_)));
    assert_eq!(world.fake.calls(), 1);
}

#[tokio::test]
async fn a_challenge_names_its_scopes_and_nothing_is_sent() {
    let world = World::small();
    for (tool, arguments) in [("fake.deploy", json!({})), ("docent_run_tool", json!({"tool": "fake.deploy"}))]
    {
        match world.call(tool, arguments).await {
            CallAnswer::Challenge(challenge) => assert_eq!(challenge.scopes[0].as_str(), "ops:deploy"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.fake.calls(), 0);
    let answer = world.call_as(&caller(&["ops:deploy"]), "fake.deploy", json!({})).await;
    assert!(matches!(answer, CallAnswer::Outcome(ToolOutcome::Completed(_))), "{answer:?}");
}

#[tokio::test]
async fn a_denial_tells_its_reason_and_a_confirmation_its_question() {
    let world = World::small();
    let e = error(world.call("fake.write", json!({"target": "prod"})).await);
    assert_eq!(e.code, ErrorCode::Forbidden);
    assert!(e.message.contains("not in production"), "{e}");
    assert!(matches!(world.call("fake.write", json!({"target": "test"})).await, CallAnswer::Outcome(_)));
    let e = error(world.call("fake.confirm", json!({})).await);
    assert_eq!(e.code, ErrorCode::ConfirmationRequired);
    assert!(e.message.contains("Really?"), "{e}");
    assert_eq!(world.fake.calls(), 1);
}

#[tokio::test]
async fn arguments_are_checked_after_policy_and_before_the_upstream() {
    let world = World::small();
    let e = error(world.call("fake.read", json!({"txt": "hi"})).await);
    assert_eq!((e.code, e.field.as_deref()), (ErrorCode::InvalidArgument, Some("/txt")));
    assert!(e.message.contains("did you mean `text`?"), "{e}");
    assert!(matches!(world.call("fake.hidden", json!({"txt": 1})).await, CallAnswer::UnknownTool));
    assert_eq!(world.fake.calls(), 0);
}

#[tokio::test]
async fn a_call_that_hangs_is_cancelled_and_a_write_is_unknown() {
    let world = World::small();
    world.fake.will(Act::Hang);
    let read = error(world.call("fake.read", json!({})).await);
    assert_eq!((read.code, read.retryable), (ErrorCode::Timeout, true));
    assert!(world.fake.cancelled.load(Ordering::SeqCst), "the adapter was told");
    let write = error(world.call("fake.write", json!({})).await);
    assert_eq!((write.code, write.retryable), (ErrorCode::UnknownOutcome, false));
    let run = json!({"tool": "fake.write", "wait_seconds": 1});
    assert_eq!(error(world.call("docent_run_tool", run).await).code, ErrorCode::UnknownOutcome);
}

#[tokio::test]
async fn a_caller_that_gives_up_frees_the_slot_and_the_upstream_hears_of_it() {
    let world = World::small();
    world.fake.will(Act::Hang);
    let ctx = caller(&[]);
    let cancel = ctx.cancel.clone();
    let call = world.call_as(&ctx, "fake.write", json!({}));
    let ((), answer) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            cancel.cancel();
        },
        call
    );
    assert_eq!(error(answer).code, ErrorCode::UnknownOutcome);
    assert!(world.fake.cancelled.load(Ordering::SeqCst));
    world.fake.will(Act::Echo);
    for _ in 0..4 {
        structured(world.call("fake.read", json!({})).await);
    }
}

#[tokio::test]
async fn more_calls_than_slots_wait_and_then_are_told_to_come_back() {
    let world = World::small();
    world.fake.will(Act::Hang);
    let (a, b, c) = tokio::join!(
        world.call("fake.write", json!({})),
        world.call("fake.write", json!({})),
        world.call("fake.write", json!({}))
    );
    assert_eq!(world.fake.calls(), 2, "concurrency = 2");
    let mut codes = [a, b, c].map(|x| error(x).code);
    codes.sort_by_key(|c| c.as_str());
    assert_eq!(codes, [ErrorCode::RateLimited, ErrorCode::UnknownOutcome, ErrorCode::UnknownOutcome]);
}

#[tokio::test]
async fn a_flood_of_text_is_cut_within_its_budget() {
    let world = World::small();
    world.fake.will(Act::Text("ü".repeat(100_000)));
    let value = structured(world.call("fake.read", json!({})).await);
    let text = value["text"].as_str().unwrap();
    assert!(text.len() <= crate::limits::TEXT_BYTES && text.starts_with("[cut: "), "{}", text.len());
}

#[tokio::test]
async fn an_upstream_failure_is_told_without_its_details() {
    let world = World::small();
    world.fake.will(Act::Fail(UpstreamError {
        source_kind: ErrorSource::Upstream,
        retry: Retry::Safe,
        message: "connection refused".to_owned(),
        detail: "10.0.0.1:99".to_owned(),
    }));
    let e = error(world.call("fake.write", json!({})).await);
    assert_eq!((e.code, e.retryable), (ErrorCode::UpstreamUnavailable, true));
    assert!(!serde_json::to_string(&e).unwrap().contains("10.0.0.1"));
}

#[tokio::test]
async fn the_read_only_dispatcher_takes_readers_only() {
    let world = World::small();
    let run = |tool: &str| json!({"tool": tool, "arguments": {"text": "x"}});
    structured(world.call("docent_run_readonly_tool", run("fake.read")).await);
    let e = error(world.call("docent_run_readonly_tool", run("fake.write")).await);
    assert!(e.message.contains("`docent_run_tool`"), "{e}");
    assert_eq!(e.field.as_deref(), Some("/tool"));
    structured(world.call("docent_run_tool", run("fake_write")).await);
    let e = error(world.call("docent_run_tool", run("docent_search_tools")).await);
    assert!(e.message.contains("call it directly"), "{e}");
    assert_eq!(world.fake.calls(), 2);
}

#[tokio::test]
async fn what_policy_withholds_is_gone_from_the_result_and_a_fault_sends_nothing() {
    let world = World::small();
    let rules = "fn rules(p) { p.allow().upstream(\"fake\"); }\n";
    world.with_policy(&format!(
        "{rules}fn redact(caller, tool) {{ if has_scope(caller, \"all\") {{ [] }} else {{ [\"text\"] }} }}"
    ));
    let value = structured(world.call("fake.read", json!({"text": "secret", "target": "t"})).await);
    assert_eq!(value["data"]["echo"], json!({"target": "t"}));
    let all = structured(world.call_as(&caller(&["all"]), "fake.read", json!({"text": "secret"})).await);
    assert_eq!(all["data"]["echo"], json!({"text": "secret"}));
    let before = world.fake.calls();
    world.with_policy(&format!("{rules}fn redact(caller, tool) {{ throw \"broken\" }}"));
    let e = error(world.call("fake.read", json!({})).await);
    assert_eq!((e.code, world.fake.calls()), (ErrorCode::Forbidden, before));
}

#[tokio::test]
async fn calls_can_be_spawned() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let world = World::small();
    structured(is_send(world.call("fake.read", json!({}))).await);
}
