//! Jobs over a real store: owners, restarts, wishes from beside, keys.

use super::*;
use crate::call::ToolResult;
use crate::id::ToolId;

fn jobs(store: &Store) -> Jobs {
    Jobs::new(Clock::system(), store.clone())
}

fn start(jobs: &Jobs, caller: &str) -> Arc<Job> {
    let job = Job::new(&Arc::from(caller), &ToolId::parse("u.t").unwrap(), false, jobs.clock.unix_ms());
    jobs.admit(&job).unwrap();
    job
}

fn text(text: &str) -> ToolOutcome {
    ToolOutcome::Completed(ToolResult { text: Some(text.to_owned()), ..ToolResult::default() })
}

fn said(view: &JobView) -> Option<String> {
    match view.outcome.as_deref()? {
        ToolOutcome::Completed(result) => result.text.clone(),
        ToolOutcome::Failed(error) => Some(error.code.as_str().to_owned()),
    }
}

const NOW: Duration = Duration::ZERO;

#[tokio::test]
async fn a_job_is_known_to_its_caller_alone_and_its_result_outlives_it() {
    let jobs = jobs(&Store::in_memory());
    let job = start(&jobs, "ann");
    assert!(jobs.find("ann", &job.id).await.is_none(), "nobody was given its id");
    jobs.show(&job).await.unwrap();
    assert!(jobs.find("bob", &job.id).await.is_none() && !jobs.cancel("bob", &job.id).await);
    assert!(!job.cancel.is_cancelled());
    jobs.finish(&job, text("done")).await;
    assert_eq!(jobs.counts().underway, 0);
    let view = jobs.wait("ann", &job.id, NOW, |_| {}).await.unwrap();
    assert_eq!((view.state, said(&view).as_deref()), (JobState::Completed, Some("done")));
    assert!(jobs.cancel("ann", &job.id).await, "an ended job may be cancelled, to no effect");
    assert!(jobs.find("bob", &job.id).await.is_none());
    let listed = jobs.list("ann", 10).await;
    assert!(listed.len() == 1 && listed[0].outcome.is_none());
}

#[tokio::test]
async fn after_a_restart_results_are_there_and_running_jobs_are_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let before = jobs(&store);
    let [ended, runs, waits, began] = [(); 4].map(|()| start(&before, "ann"));
    waits.set_queued(true);
    began.set_queued(true);
    for job in [&ended, &runs, &waits, &began] {
        before.show(job).await.unwrap();
    }
    began.set_queued(false);
    before.began(&began).await.unwrap();
    before.finish(&ended, text("done")).await;
    drop((before, store));
    let after = jobs(&Store::open(dir.path()).unwrap());
    let find = async |job: &Job| after.wait("ann", &job.id, NOW, |_| {}).await.unwrap();
    assert_eq!(said(&find(&ended).await).as_deref(), Some("done"));
    let lost = find(&runs).await;
    assert_eq!((lost.state, said(&lost).as_deref()), (JobState::Failed, Some("UNKNOWN_OUTCOME")));
    assert_eq!(said(&find(&waits).await).as_deref(), Some("UPSTREAM_UNAVAILABLE"), "it was never sent");
    assert_eq!(said(&find(&began).await).as_deref(), Some("UNKNOWN_OUTCOME"), "it waited, and then was sent");
}

#[tokio::test]
async fn a_job_of_another_process_is_waited_for_and_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, asks) = (jobs(&Store::open(dir.path()).unwrap()), jobs(&Store::open(dir.path()).unwrap()));
    let job = start(&runs, "ann");
    runs.show(&job).await.unwrap();
    let stop = CancellationToken::new();
    let watch = runs.follow_wishes(stop.clone());
    let rest = async {
        assert!(asks.cancel("ann", &job.id).await);
        job.cancel.cancelled().await;
        let error = ToolError::new(ErrorCode::UnknownOutcome, "cancelled");
        runs.finish(&job, ToolOutcome::Failed(error)).await;
        let view = asks.wait("ann", &job.id, Duration::from_secs(5), |_| {}).await.unwrap();
        assert_eq!(view.state, JobState::Cancelled);
        stop.cancel();
    };
    tokio::join!(watch, rest);
}

#[tokio::test]
async fn a_key_is_claimed_once_and_answers_for_its_time() {
    let store = Store::in_memory();
    let clock = Clock::manual();
    let jobs = Jobs::new(clock.clone(), store);
    let replay = Replay { key: [1; 32], args: [1; 32] };
    let first = start(&jobs, "ann");
    assert!(matches!(jobs.claim(&first, replay).await.unwrap(), Claimed::Mine));
    jobs.finish(&first, text("once")).await;
    let again = start(&jobs, "ann");
    let Claimed::Ended(outcome) = jobs.claim(&again, replay).await.unwrap() else { panic!() };
    assert!(matches!(&*outcome, ToolOutcome::Completed(r) if r.text.as_deref() == Some("once")));
    let other = Replay { args: [2; 32], ..replay };
    assert!(matches!(jobs.claim(&again, other).await.unwrap(), Claimed::Collision));
    clock.advance(REPLAY_WINDOW);
    assert!(matches!(jobs.claim(&again, other).await.unwrap(), Claimed::Mine), "its time is over");
    let failed = ToolOutcome::Failed(ToolError::new(ErrorCode::Conflict, "no"));
    jobs.finish(&again, failed).await;
    let third = start(&jobs, "ann");
    assert!(matches!(jobs.claim(&third, replay).await.unwrap(), Claimed::Mine), "a failure is not replayed");
}

#[tokio::test]
async fn a_keyed_write_that_was_under_way_at_the_end_is_never_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let replay = Replay { key: [1; 32], args: [1; 32] };
    let before = jobs(&Store::open(dir.path()).unwrap());
    let job = start(&before, "ann");
    assert!(matches!(before.claim(&job, replay).await.unwrap(), Claimed::Mine));
    drop(before);
    let after = jobs(&Store::open(dir.path()).unwrap());
    let again = start(&after, "ann");
    let Claimed::Ended(outcome) = after.claim(&again, replay).await.unwrap() else { panic!() };
    assert!(matches!(&*outcome, ToolOutcome::Failed(e) if e.code == ErrorCode::UnknownOutcome));
}

#[tokio::test]
async fn jobs_are_bounded_per_caller_and_room_comes_back() {
    let jobs = jobs(&Store::in_memory());
    let mut all: Vec<Arc<Job>> = (0..JOBS_PER_CALLER_MAX).map(|_| start(&jobs, "ann")).collect();
    let more = Job::new(&Arc::from("ann"), &ToolId::parse("u.t").unwrap(), false, 1);
    assert_eq!(jobs.admit(&more), Err(TooMany::OfCaller));
    assert_eq!(jobs.counts().refused, 1);
    start(&jobs, "bob");
    jobs.finish(&all.pop().unwrap(), text("done")).await;
    assert_eq!(jobs.admit(&more), Ok(()));
}
