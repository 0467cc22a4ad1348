//! Calls that survive: jobs, their owners and their ends; equal calls that run once.

use super::*;
use crate::audit::Dedup;
use crate::cache::ReplayCounts;
use crate::jobs::JobView;

/// A world whose tools may take long, and wait for each other at two slots.
fn patient() -> World {
    let hints = CallHints { timeout: Duration::from_mins(10), ..CallHints::default() };
    let world = World::with_hints(0, ServerSettings::default(), &hints);
    world.fake.will(Act::Hold);
    world
}

fn let_go(world: &World, calls: usize) {
    world.fake.go.add_permits(calls);
}

/// Runs a tool by the dispatcher.
async fn run(world: &World, ctx: &RequestContext, tool: &str, wait: u64, key: Option<&str>) -> CallAnswer {
    let mut arguments = json!({"tool": tool, "arguments": {}, "wait_seconds": wait});
    if let Some(key) = key {
        arguments["request_key"] = json!(key);
    }
    world.call_as(ctx, "docent_run_tool", arguments).await
}

fn running(answer: CallAnswer) -> JobView {
    match answer {
        CallAnswer::Running(job) => *job,
        other => panic!("not a job: {other:?}"),
    }
}

async fn status(world: &World, ctx: &RequestContext, id: &str, wait: u64) -> CallAnswer {
    world.call_as(ctx, "docent_job_status", json!({"job_id": id, "wait_seconds": wait})).await
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

fn is_deduplicated(result: &ToolResult) -> bool {
    result.meta.as_ref().is_some_and(|m| m["deduplicated"] == json!(true))
}

#[tokio::test]
async fn a_call_that_outlasts_patience_goes_on_as_a_job_of_its_caller() {
    let world = patient();
    let ann = caller(&[]);
    let job = running(run(&world, &ann, "fake.read", 0, None).await);
    eventually("it runs", || world.fake.calls() == 1).await;
    let now = structured(status(&world, &ann, &job.id, 0).await);
    assert_eq!(
        (&now["status"], &now["progress"], &now["total"]),
        (&json!("running"), &json!(1.0), &json!(2.0))
    );
    assert_eq!((&now["tool"], &now["message"]), (&json!("fake.read"), &json!("held")));
    let bob = RequestContext::new(
        Arc::new(Principal { subject: Arc::from("bob"), ..Principal::default() }),
        "req-2",
    );
    for tool in ["docent_job_status", "docent_job_cancel"] {
        let ask = async |ctx, id: &str| error(world.call_as(ctx, tool, json!({ "job_id": id })).await);
        assert_eq!(ask(&bob, &job.id).await, ask(&ann, "job_none").await, "another's is an unknown one");
    }
    assert!(!world.fake.cancelled.load(Ordering::SeqCst));
    let waits = status(&world, &ann, &job.id, 30);
    let (end, ()) = tokio::join!(waits, async { let_go(&world, 1) });
    let end = structured(end);
    assert_eq!((&end["status"], &end["result"]["data"]), (&json!("completed"), &json!({"call": 1})));
    let again = structured(status(&world, &ann, &job.id, 30).await);
    assert_eq!(again["result"], end["result"], "it is kept");
}

#[tokio::test]
async fn a_job_of_a_tool_that_was_hidden_since_is_an_unknown_job() {
    let world = patient();
    let ann = caller(&[]);
    let job = running(run(&world, &ann, "fake.read", 0, None).await);
    world.with_policy("fn rules(p) { p.allow().upstream(\"fake\"); p.hide().tool(\"fake.read\"); }");
    assert_eq!(
        error(status(&world, &ann, &job.id, 0).await),
        error(status(&world, &ann, "job_none", 0).await)
    );
    world.with_policy(
        "fn rules(p) { p.allow().upstream(\"fake\"); p.challenge([\"more\"]).tool(\"fake.read\"); }",
    );
    for tool in ["docent_job_status", "docent_job_cancel"] {
        let answer = world.call_as(&ann, tool, json!({"job_id": &*job.id})).await;
        assert!(matches!(answer, CallAnswer::Challenge(_)), "{answer:?}");
    }
    world.with_policy(POLICY);
    assert_eq!(structured(status(&world, &ann, &job.id, 0).await)["status"], "running");
}

#[tokio::test]
async fn a_cancelled_job_reaches_the_upstream_and_says_that_the_write_is_unknown() {
    let world = patient();
    let ann = caller(&[]);
    let job = running(run(&world, &ann, "fake.write", 0, None).await);
    eventually("it runs", || world.fake.calls() == 1).await;
    let end = result(world.call_as(&ann, "docent_job_cancel", json!({"job_id": &*job.id})).await);
    let value = end.structured.unwrap().value();
    assert_eq!((&value["status"], end.is_error), (&json!("cancelled"), false), "{value}");
    assert_eq!(value["error"]["code"], "UNKNOWN_OUTCOME");
    assert!(world.fake.cancelled.load(Ordering::SeqCst));
    assert!(result(status(&world, &ann, &job.id, 0).await).is_error, "as a result it is a failed call");
}

#[tokio::test]
async fn jobs_wait_for_a_slot_and_their_time_begins_with_it() {
    let world = patient();
    let ann = caller(&[]);
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(running(run(&world, &ann, "fake.read", 0, None).await));
    }
    eventually("two run", || world.fake.calls() == 2).await;
    let third = structured(status(&world, &ann, &jobs[2].id, 0).await);
    assert_eq!(third["status"], "queued", "{third}");
    let cancelled = world.call_as(&ann, "docent_job_cancel", json!({"job_id": &*jobs[2].id})).await;
    let value = structured(cancelled);
    assert_eq!((&value["status"], world.fake.calls()), (&json!("cancelled"), 2), "it was never sent");
    assert_ne!(value["error"]["code"], "UNKNOWN_OUTCOME", "{value}");
    let_go(&world, 2);
    for job in &jobs[..2] {
        assert_eq!(structured(status(&world, &ann, &job.id, 30).await)["status"], "completed");
    }
}

#[tokio::test]
async fn five_hundred_jobs_of_one_caller_put_off_another_one_by_a_turn() {
    let world = patient();
    let greedy = caller(&[]);
    let modest = Principal { subject: Arc::from("modest"), ..Default::default() };
    let modest = RequestContext::new(Arc::new(modest), "req-2");
    for _ in 0..500 {
        running(run(&world, &greedy, "fake.read", 0, None).await);
    }
    eventually("two run", || world.fake.calls() == 2).await;
    let job = running(run(&world, &modest, "fake.read", 0, None).await);
    // The two that run, one more of the greedy caller's at most, and this one.
    let_go(&world, 4);
    let end = structured(status(&world, &modest, &job.id, 30).await);
    assert_eq!(end["status"], "completed", "{end}");
    assert!(end["result"]["data"]["call"].as_u64().is_some_and(|call| call <= 4), "{end}");
}

#[tokio::test]
async fn a_caller_without_room_is_refused_and_another_one_is_not() {
    let world = patient();
    let greedy = caller(&[]);
    let modest = Principal { subject: Arc::from("modest"), ..Default::default() };
    let modest = RequestContext::new(Arc::new(modest), "req-2");
    let most = crate::limits::JOBS_PER_CALLER_MAX;
    for n in 0..most {
        // Not by `run`: the jobs are what counts here, not their calls.
        let id = ToolId::parse("fake.read").unwrap();
        let job = crate::jobs::Job::new(&greedy.principal.subject, &id, true, 0);
        world.gateway.jobs().admit(&job).unwrap_or_else(|full| panic!("{n}: {full}"));
    }
    let refused = error(run(&world, &greedy, "fake.read", 0, None).await);
    assert_eq!((refused.code, refused.retryable), (ErrorCode::RateLimited, true), "{refused}");
    assert!(refused.message.contains("10000"), "{refused}");
    assert_eq!(world.fake.calls(), 0, "nothing was sent");
    let keyed = error(run(&world, &greedy, "fake.write", 0, Some("k")).await);
    assert_eq!(keyed.code, ErrorCode::RateLimited);
    let_go(&world, 1);
    let job = running(run(&world, &modest, "fake.read", 0, None).await);
    assert_eq!(structured(status(&world, &modest, &job.id, 30).await)["status"], "completed");
    assert_eq!(world.gateway.jobs().counts().refused, 2);
}

#[tokio::test]
async fn other_arguments_for_a_key_that_runs_are_refused_at_once_and_disturb_nothing() {
    let world = patient();
    let ann = caller(&[]);
    let first = run(&world, &ann, "fake.write", 30, Some("k"));
    let (first, ()) = tokio::join!(first, async {
        eventually("it runs", || world.fake.calls() == 1).await;
        let other =
            json!({"tool": "fake.write", "arguments": {"text": "x"}, "request_key": "k", "wait_seconds": 30});
        let collision = error(world.call_as(&ann, "docent_run_tool", other).await);
        assert_eq!(collision.code, ErrorCode::ReplayKeyCollision, "while the first one runs");
        let_go(&world, 1);
    });
    assert_eq!(structured(first)["data"], json!({"call": 1}));
    assert_eq!(world.gateway.replays().counts(), ReplayCounts { collisions: 1, ..ReplayCounts::default() });
}

#[tokio::test]
async fn a_call_within_patience_is_no_job_and_a_panic_ends_one_as_unknown() {
    let world = patient();
    let ann = caller(&[]);
    let_go(&world, 1);
    assert_eq!(structured(run(&world, &ann, "fake.read", 30, None).await)["data"], json!({"call": 1}));
    assert_eq!(world.gateway.jobs().counts().underway, 0);
    world.fake.will(Act::Panic);
    let job = running(run(&world, &ann, "fake.write", 0, None).await);
    let end = structured(status(&world, &ann, &job.id, 30).await);
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("failed"), &json!("UNKNOWN_OUTCOME")),
        "{end}"
    );
}

#[tokio::test]
async fn equal_keys_run_once_whoever_waits_and_other_arguments_collide() {
    let world = patient();
    let ann = caller(&[]);
    let first = run(&world, &ann, "fake.write", 30, Some("k"));
    let second = run(&world, &ann, "fake.write", 30, Some("k"));
    let (first, second, ()) = tokio::join!(first, second, async {
        eventually("one runs", || world.fake.calls() == 1).await;
        let_go(&world, 5);
    });
    let (first, second) = (result(first), result(second));
    assert!(!is_deduplicated(&first) && is_deduplicated(&second), "{first:?} {second:?}");
    let third = result(run(&world, &ann, "fake.write", 30, Some("k")).await);
    assert!(is_deduplicated(&third));
    assert_eq!(third.structured.unwrap().value()["data"], json!({"call": 1}));
    let other = json!({"tool": "fake.write", "arguments": {"text": "x"}, "request_key": "k"});
    let collision = error(world.call_as(&ann, "docent_run_tool", other).await);
    assert_eq!((collision.code, collision.retryable), (ErrorCode::ReplayKeyCollision, false));
    let direct = json!({"request_key": "k"});
    assert!(
        is_deduplicated(&result(world.call_as(&ann, "fake.write", direct).await)),
        "the same by the front door"
    );
    assert_eq!(world.fake.calls(), 1);
    let counts = world.gateway.replays().counts();
    assert_eq!(counts, ReplayCounts { joined: 1, replayed: 2, collisions: 1 });
    let other_key = run(&world, &ann, "fake.write", 30, Some("l")).await;
    assert_eq!(structured(other_key)["data"], json!({"call": 2}));
}

#[tokio::test]
async fn authorization_comes_before_a_replay() {
    let world = patient();
    let ann = caller(&[]);
    let_go(&world, 1);
    result(run(&world, &ann, "fake.write", 30, Some("k")).await);
    world.with_policy(
        "fn rules(p) { p.allow().upstream(\"fake\"); p.deny(\"no more\").tool(\"fake.write\"); }",
    );
    let refused = error(run(&world, &ann, "fake.write", 30, Some("k")).await);
    assert_eq!(refused.code, ErrorCode::NotFound, "{refused}");
}

#[tokio::test]
async fn a_lost_leader_takes_nothing_along_and_a_failure_is_not_replayed() {
    let world = patient();
    let mut ann = caller(&[]);
    ann.may_return = true;
    {
        let leads = run(&world, &ann, "fake.write", 30, Some("k"));
        tokio::pin!(leads);
        let lost = tokio::time::timeout(Duration::from_millis(50), &mut leads).await;
        assert!(lost.is_err());
        ann.cancel.cancel();
        assert_eq!(error(leads.await).code, ErrorCode::UnknownOutcome);
    }
    let back = RequestContext { cancel: tokio_util::sync::CancellationToken::default(), ..ann.clone() };
    let rejoined = run(&world, &back, "fake.write", 30, Some("k"));
    let (rejoined, ()) = tokio::join!(rejoined, async { let_go(&world, 1) });
    assert_eq!(structured(rejoined)["data"], json!({"call": 1}));
    world.fake.will(Act::Fail(UpstreamError::new(ErrorSource::Upstream, Retry::Safe, "refused")));
    for calls in [2, 3] {
        error(run(&world, &back, "fake.write", 30, Some("fails")).await);
        assert_eq!(world.fake.calls(), calls, "what failed is tried again");
    }
    world.fake.will(Act::Fail(UpstreamError::new(ErrorSource::Upstream, Retry::Unknown, "lost")));
    for _ in 0..3 {
        let lost = error(run(&world, &back, "fake.write", 30, Some("unknown")).await);
        assert_eq!(lost.code, ErrorCode::UnknownOutcome);
    }
    assert_eq!(world.fake.calls(), 4, "what may have happened is not sent again");
}

#[tokio::test]
async fn a_caller_that_cancels_a_keyed_call_on_purpose_ends_it() {
    let world = patient();
    let ann = caller(&[]);
    let waits = run(&world, &ann, "fake.write", 30, Some("k"));
    let (_, ()) = tokio::join!(waits, async {
        eventually("it runs", || world.fake.calls() == 1).await;
        ann.cancel.cancel();
    });
    eventually("the upstream heard", || world.fake.cancelled.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn listed_tools_share_equal_calls_without_a_key_and_follow_their_own_patience() {
    let hints = CallHints {
        timeout: Duration::from_mins(10),
        dedup: Some(Arc::from("a second one would be seen")),
        wait: Some(Duration::ZERO),
        ..CallHints::default()
    };
    let world = World::with_hints(0, ServerSettings::default(), &hints);
    world.fake.will(Act::Hold);
    let ann = caller(&[]);
    let direct = async |arguments: Value| {
        let arguments = arguments.as_object().unwrap().clone();
        let wait = crate::limits::CALL_WAIT;
        let call = ToolCall {
            tool: "fake_write".to_owned(),
            arguments,
            wait,
            request_key: None,
            fields: Vec::new(),
        };
        world.gateway.call_tool(&ann, call).await
    };
    let (first, second) = (running(direct(json!({})).await), running(direct(json!({})).await));
    assert_eq!(first.id, second.id, "one job for both");
    let other = running(direct(json!({"text": "other"})).await);
    assert_ne!(first.id, other.id);
    let_go(&world, 2);
    let end = structured(status(&world, &ann, &first.id, 30).await);
    assert_eq!(end["status"], "completed");
    structured(status(&world, &ann, &other.id, 30).await);
    assert_eq!(world.fake.calls(), 2);
    assert!(is_deduplicated(&result(direct(json!({})).await)));
}

#[tokio::test]
async fn progress_of_a_call_is_told_to_everyone_who_waits_with_a_token() {
    let world = patient();
    let heard: Arc<Mutex<Vec<f64>>> = Arc::default();
    let mut ann = caller(&[]);
    let into = Arc::clone(&heard);
    ann.progress =
        Some(crate::upstream::ProgressSink::new(move |done, _, _| into.lock().unwrap().push(done)));
    let own = run(&world, &ann, "fake.read", 30, None);
    let (_, ()) = tokio::join!(own, async {
        eventually("it is told", || heard.lock().unwrap().len() == 1).await;
        let_go(&world, 1);
    });
    let job = running(run(&world, &caller(&[]), "fake.read", 0, None).await);
    eventually("it runs", || world.fake.calls() == 2).await;
    let waits = status(&world, &ann, &job.id, 30);
    let (_, ()) = tokio::join!(waits, async {
        eventually("the one who polls is told", || heard.lock().unwrap().len() == 2).await;
        let_go(&world, 1);
    });
    assert_eq!(*heard.lock().unwrap(), [1.0, 1.0]);
}

#[test]
fn what_a_record_says_of_a_repeat_is_one_word() {
    let words = [Dedup::Replayed, Dedup::Joined, Dedup::Collision].map(Dedup::word);
    assert_eq!(words, [json!("replayed"), json!("joined"), json!("collision")]);
}

#[tokio::test]
async fn a_dispatcher_takes_a_key_from_its_meta_as_well_and_never_two() {
    let world = patient();
    let ann = caller(&[]);
    let_go(&world, 9);
    let dispatched = async |meta: Option<&str>, argument: Option<&str>| {
        let mut arguments = json!({"tool": "fake.write", "arguments": {}});
        if let Some(key) = argument {
            arguments["request_key"] = json!(key);
        }
        let call = ToolCall {
            tool: "docent_run_tool".to_owned(),
            arguments: arguments.as_object().unwrap().clone(),
            wait: crate::limits::CALL_WAIT,
            request_key: meta.map(str::to_owned),
            fields: Vec::new(),
        };
        world.gateway.call_tool(&ann, call).await
    };
    assert!(!is_deduplicated(&result(dispatched(Some("k"), None).await)));
    for (meta, argument) in [(Some("k"), None), (None, Some("k")), (Some("k"), Some("k"))] {
        assert!(is_deduplicated(&result(dispatched(meta, argument).await)), "{meta:?} {argument:?}");
    }
    let two = error(dispatched(Some("k"), Some("l")).await);
    assert_eq!((two.code, two.field.as_deref()), (ErrorCode::InvalidArgument, Some("/request_key")));
    assert_eq!(world.fake.calls(), 1);
}
