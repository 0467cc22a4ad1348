//! A permitted call as a piece of work: run in place by whoever asked, handed over as a job when patience ends,
//! or flown once for all equal calls.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::Value;

use crate::audit::Dedup;
use crate::cache::{Entry, ReplayKey};
use crate::call::{ErrorCode, ToolError, ToolOutcome, ToolResult};
use crate::cursor::Parts;
use crate::id::ToolNo;
use crate::jobs::{Claimed, Job, JobView, Progress, Replay};
use crate::json::{self, JsonText, Object};
use crate::limits::{JOB_ANSWER_TIME, REJOIN_TIME, REPLAY_WINDOW};
use crate::upstream::ProgressSink;

use super::call::add_meta;
use super::failure;
use super::invoke::{Decided, failed};
use super::record::Record;
use super::script::Reentry;
use super::{CallAnswer, ClientReply, Gateway, RequestContext};

/// Between looks at whether somebody came back to a keyed call.
const REJOIN_LOOK: Duration = Duration::from_millis(250);

/// Between a question and the end of the call that brings it.
const ASK_TIME: Duration = Duration::from_secs(5);

/// Everything that a permitted call needs to be carried out, whoever still waits for it.
pub(super) struct Work {
    pub(super) decided: Decided,
    pub(super) no: ToolNo,
    pub(super) arguments: Object,
    /// What the result says of a person's confirmation.
    pub(super) confirmed: Option<Value>,
    pub(super) place: Reentry,
    pub(super) record: Record,
}

type Running = Pin<Box<dyn Future<Output = ToolOutcome> + Send>>;

/// What came of waiting for a call.
#[derive(Debug)]
pub(super) enum Came {
    /// Its outcome, and whether an equal call's was taken.
    Outcome(ToolOutcome, Option<Dedup>),
    /// It goes on as a job.
    Running(Box<JobView>),
}

impl Came {
    fn own(outcome: ToolOutcome) -> Self {
        Self::Outcome(outcome, None)
    }

    fn failed(error: ToolError) -> Self {
        Self::own(ToolOutcome::Failed(error))
    }
}

impl Work {
    /// Carries it out.
    pub(super) async fn run(self, gateway: Gateway) -> ToolOutcome {
        let Self { mut decided, no, mut arguments, confirmed, place, mut record } = self;
        let is_outermost = place.is_outermost();
        let asked = place.asked();
        // Only a script asks, and then begins anew with what it was answered.
        let asks = is_outermost && decided.projection.as_ref().is_some_and(|p| p.is_script());
        let mut shaped = loop {
            let again = if asks { arguments.clone() } else { Object::new() };
            let shaped = Box::pin(decided.carry_out(&gateway, arguments, place.clone())).await;
            let Some(answer) = asked.take().filter(|_| is_outermost) else { break shaped };
            match decided.job.as_ref().filter(|job| !job.asks_its_caller()) {
                // Nothing has come of the call yet; its maker takes the question.
                None => {
                    asked.put(record.refused(answer));
                    // Read only by those who joined it: whoever made the call reads the question.
                    return ToolOutcome::Failed(failure::asks_another());
                }
                Some(job) => match Box::pin(gateway.ask_by_job(job, answer)).await {
                    Ok(reply) => decided.answered(&gateway, reply),
                    Err(error) => break failed(error),
                },
            }
            arguments = again;
        };
        let Decided { snapshot, ctx, tool, withheld, job, .. } = &decided;
        if let ToolOutcome::Completed(result) = &mut shaped.outcome {
            gateway.note_created(ctx, snapshot, no, result).await;
            gateway.withhold(tool, result, withheld);
            add_meta(result, confirmed);
        }
        if let Some(kept) = shaped.kept.take() {
            Box::pin(gateway.keep(&snapshot.settings.budgets, &ctx.principal, tool, kept, withheld)).await;
        }
        gateway.tell(&decided, &shaped);
        if let Some(job) = job.as_ref().filter(|j| j.is_shown()) {
            record.job(&job.id, false);
        }
        record.ended(&shaped);
        if is_outermost {
            gateway.ran(ctx, snapshot, tool, &shaped.outcome).await;
        }
        shaped.outcome
    }

    /// Makes it a job's work: the job's cancellation ends it, and its progress is the job's.
    fn belong_to(mut self, job: &Arc<Job>, gateway: &Gateway) -> Self {
        let (of, clock) = (Arc::clone(job), gateway.clock().clone());
        let sink = move |done, total, message: Option<&str>| of.report(done, total, message, clock.now());
        self.decided.ctx.cancel = job.cancel.clone();
        self.decided.ctx.progress = Some(ProgressSink::new(sink));
        self.decided.job = Some(Arc::clone(job));
        self
    }
}

impl Gateway {
    fn new_job(&self, work: &Work) -> Arc<Job> {
        let tool = &work.decided.tool;
        let caller = &work.decided.ctx.principal.subject;
        Job::new(caller, &tool.id, tool.annotations.is_read_only(), self.clock().unix_ms())
    }

    /// Runs a call in place; when `patience` ends before it does, it goes on as a job.
    pub(super) async fn run_or_hand_over(
        &self,
        ctx: &RequestContext,
        work: Work,
        patience: Duration,
    ) -> Came {
        let job = self.new_job(&work);
        let work = work.belong_to(&job, self);
        if patience.is_zero() {
            if let Err(full) = self.jobs().admit(&job) {
                return Came::failed(failure::too_many(full));
            }
            return self.hand_over(&job, Box::pin(work.run(self.clone()))).await;
        }
        let mut running: Running = Box::pin(work.run(self.clone()));
        let ended = watch(ctx, &job, &mut running, patience).await;
        match ended {
            Some(outcome) => Came::own(outcome),
            // Without room it is waited for to its end, which its own deadline brings.
            None if self.jobs().admit(&job).is_err() => Came::own(running.await),
            None => self.hand_over(&job, running).await,
        }
    }

    /// What a job asks that nobody waits for: it stands in the job until its caller answers it there.
    async fn ask_by_job(&self, job: &Arc<Job>, answer: CallAnswer) -> Result<ClientReply, ToolError> {
        let question = match answer {
            CallAnswer::Ask(question) => *question,
            CallAnswer::CannotAsk(missing) => return Err(failure::cannot_ask(&missing)),
            _ => return Err(failure::internal()),
        };
        // In this order: whoever is told finds the question.
        let (answers, ()) =
            tokio::join!(job.ask(question.requests, JOB_ANSWER_TIME), async { self.jobs().tell(job) });
        let answers = answers.ok_or_else(failure::unanswered)?;
        Ok(ClientReply { responses: answers, state: Some(question.state) })
    }

    /// Lets an admitted job go on by itself, and gives its id away.
    async fn hand_over(&self, job: &Arc<Job>, running: Running) -> Came {
        job.leave();
        let (gateway, of) = (self.clone(), Arc::clone(job));
        // Nobody joins it: its end is told through the job.
        drop(tokio::spawn(async move {
            let outcome = guarded(running).await;
            // Boxed like whatever comes after a wait: the room for it would be taken while a job waits.
            Box::pin(gateway.jobs().finish(&of, outcome)).await;
        }));
        self.shown(job).await
    }

    async fn shown(&self, job: &Arc<Job>) -> Came {
        if let Err(error) = self.jobs().show(job).await {
            // It runs all the same, and this process knows it; only a restart would not.
            tracing::error!(job.id = &*job.id, error = %error, "a job cannot be written down");
        }
        Came::Running(Box::new(job.view()))
    }

    /// Runs a call at most once for its key: equal calls join it while it runs and get its result for a while
    /// after.
    pub(super) async fn run_once(
        &self,
        ctx: &RequestContext,
        work: Work,
        (key, args): (ReplayKey, [u8; 32]),
        patience: Duration,
    ) -> Came {
        let now = self.clock().unix_ms();
        let entered = self.replays().enter(&key, args, now, || {
            let job = self.new_job(&work);
            self.jobs().admit(&job).map(|()| job)
        });
        let job = match entered {
            Err(full) => return Came::failed(failure::too_many(full)),
            Ok(Entry::Collision) => {
                let refusal = ToolOutcome::Failed(failure::replay_collision());
                work.record.deduplicated(Dedup::Collision, &refusal);
                return Came::Outcome(refusal, Some(Dedup::Collision));
            }
            Ok(Entry::Ended(outcome)) => {
                work.record.deduplicated(Dedup::Replayed, &outcome);
                return Came::Outcome(ToolOutcome::clone(&outcome), Some(Dedup::Replayed));
            }
            Ok(Entry::Running(job)) => {
                let came = self.wait_for(ctx, &job, patience, Some(Dedup::Joined)).await;
                match &came {
                    Came::Outcome(outcome, _) => work.record.deduplicated(Dedup::Joined, outcome),
                    Came::Running(job) => work.record.joined(&job.id),
                }
                return came;
            }
            Ok(Entry::First(job)) => job,
        };
        let work = work.belong_to(&job, self);
        drop(tokio::spawn(self.clone().fly(Arc::clone(&job), key, args, work)));
        self.wait_for(ctx, &job, patience, None).await
    }

    /// The one flight of a key. It is nobody's: callers come and go, and its end is told through the job.
    async fn fly(self, job: Arc<Job>, key: ReplayKey, args: [u8; 32], work: Work) {
        let replay = Replay { key: key.digest, args };
        let outcome = match self.jobs().claim(&job, replay).await {
            Ok(Claimed::Mine) => guarded(work.run(self.clone())).await,
            Ok(Claimed::Ended(outcome)) => {
                self.replays().count_elsewhere(false);
                work.record.deduplicated(Dedup::Replayed, &outcome);
                ToolOutcome::clone(&outcome)
            }
            Ok(Claimed::Collision) => {
                self.replays().count_elsewhere(true);
                let error = ToolOutcome::Failed(failure::replay_collision());
                work.record.deduplicated(Dedup::Collision, &error);
                error
            }
            Err(error) => {
                tracing::error!(error = %error, "a keyed call cannot be written down, so it is not made");
                let outcome = ToolOutcome::Failed(failure::not_kept());
                drop(work.record.refused(CallAnswer::Outcome(outcome.clone())));
                outcome
            }
        };
        let now = self.clock().unix_ms();
        let answer = Job::is_replayed_after(&outcome).then(|| {
            let until = now.saturating_add(u64::try_from(REPLAY_WINDOW.as_millis()).unwrap_or(u64::MAX));
            (Arc::new(outcome.clone()), bytes(&outcome), until)
        });
        // First the answer, then the end: whoever learns of the end and asks again finds it.
        self.replays().land(&key, answer, now);
        self.jobs().finish(&job, outcome).await;
    }

    async fn wait_for(
        &self,
        ctx: &RequestContext,
        job: &Arc<Job>,
        patience: Duration,
        dedup: Option<Dedup>,
    ) -> Came {
        let tell = |p: &Progress| forward(ctx, Some(p));
        let ended = tokio::select! {
            ended = job.wait(patience, tell) => ended,
            () = ctx.cancel.cancelled() => {
                leave(ctx, job);
                return Came::failed(failure::left(job.read_only));
            }
        };
        let dedup = if job.is_answered_before() { Some(Dedup::Replayed) } else { dedup };
        match ended {
            Some(outcome) => Came::Outcome(ToolOutcome::clone(&outcome), dedup),
            None if job.leave() => self.shown(job).await,
            // It asks just now: the end of the call, which brings the question, is a moment away.
            None => match job.wait(ASK_TIME, |_| {}).await {
                Some(outcome) => Came::Outcome(ToolOutcome::clone(&outcome), dedup),
                None => self.shown(job).await,
            },
        }
    }
}

/// A caller gave up. The last one takes the call along; one whose connection was merely lost gets time to come back
/// to it.
fn leave(ctx: &RequestContext, job: &Arc<Job>) {
    let is_abandoned = |job: &Job| job.waiting() == 0 && !job.is_shown();
    if !is_abandoned(job) {
        return;
    }
    if !ctx.may_return {
        return job.ask_to_end();
    }
    let job = Arc::clone(job);
    drop(tokio::spawn(async move {
        let mut left = REJOIN_TIME;
        while !left.is_zero() && job.outcome().is_none() {
            tokio::time::sleep(REJOIN_LOOK).await;
            left = left.saturating_sub(REJOIN_LOOK);
            if !is_abandoned(&job) {
                return;
            }
        }
        job.ask_to_end();
    }));
}

/// Runs a call in place while `patience` lasts: tells progress, and passes on that the caller gave up.
async fn watch(
    ctx: &RequestContext,
    job: &Arc<Job>,
    running: &mut Running,
    patience: Duration,
) -> Option<ToolOutcome> {
    let deadline = tokio::time::sleep(patience);
    tokio::pin!(deadline);
    let (mut told, mut given_up) = (None, false);
    loop {
        let changed = job.notified();
        tokio::pin!(changed);
        // The work may report while it is polled below, before the notice is.
        changed.as_mut().enable();
        let progress = job.progress();
        if progress != told {
            forward(ctx, progress.as_ref());
            told = progress;
        }
        tokio::select! {
            biased;
            outcome = &mut *running => {
                forward(ctx, job.progress().filter(|p| told.as_ref() != Some(p)).as_ref());
                return Some(outcome);
            }
            () = changed => {}
            () = ctx.cancel.cancelled(), if !given_up => {
                given_up = true;
                job.cancel.cancel();
            }
            () = &mut deadline => return None,
        }
    }
}

fn forward(ctx: &RequestContext, progress: Option<&Progress>) {
    if let (Some(sink), Some(progress)) = (&ctx.progress, progress) {
        sink.report(progress.done, progress.total, progress.message.as_deref());
    }
}

/// Work that nobody polls but its own task: a panic must not leave its waiters without an end.
async fn guarded(work: impl Future<Output = ToolOutcome>) -> ToolOutcome {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_panic| {
        // The panic hook has logged what and where. Whether anything was sent is not known.
        tracing::error!("a call ended abnormally");
        ToolOutcome::Failed(failure::broke_off())
    })
}

/// A guess at what an outcome takes in memory.
fn bytes(outcome: &ToolOutcome) -> usize {
    const FRAME: usize = 256;
    match outcome {
        ToolOutcome::Completed(result) => {
            let blocks: usize = result.blocks.iter().map(|b| b.get().len()).sum();
            FRAME
                + blocks
                + result.structured.as_ref().map_or(0, JsonText::len)
                + result.text.as_ref().map_or(0, String::len)
        }
        ToolOutcome::Failed(error) => FRAME + json::encoded_len(error),
    }
}

/// Says of an outcome that it is an earlier call's.
pub(super) fn mark_deduplicated(outcome: &mut ToolOutcome) {
    const MARK: &str = "deduplicated";
    match outcome {
        ToolOutcome::Completed(ToolResult { meta, .. }) => {
            let meta = meta.get_or_insert_with(|| serde_json::json!({}));
            if let Some(members) = meta.as_object_mut() {
                members.insert(MARK.to_owned(), true.into());
            }
        }
        ToolOutcome::Failed(error) => {
            let details = error.details.get_or_insert_with(|| Box::new(serde_json::json!({})));
            if let Some(members) = details.as_object_mut() {
                members.insert(MARK.to_owned(), true.into());
            }
        }
    }
}

/// What makes a call the same as another one: the caller's own key, else the arguments where the pack says that
/// equal calls share an answer (design §3.7).
pub(super) fn replay_key(
    caller: &Arc<str>,
    tool: &str,
    request_key: Option<&str>,
    is_listed: bool,
    arguments: &Object,
) -> Result<Option<(ReplayKey, [u8; 32])>, ToolError> {
    if request_key.is_none() && !is_listed {
        return Ok(None);
    }
    if request_key.is_some_and(|k| k.is_empty() || k.len() > crate::limits::REQUEST_KEY_BYTES_MAX) {
        return Err(ToolError::new(
            ErrorCode::InvalidArgument,
            format!(
                "`request_key` has 1 to {} bytes. Give one, such as a UUID, or leave it out.",
                crate::limits::REQUEST_KEY_BYTES_MAX
            ),
        )
        .field("/request_key"));
    }
    let args = *blake3::hash(&json::canonical_object(arguments)).as_bytes();
    let mut parts = Parts::of("docent replay key 1");
    parts.add(caller.as_bytes());
    parts.add(tool.as_bytes());
    match request_key {
        Some(key) => parts.add(key.as_bytes()),
        None => {
            parts.add(b"");
            parts.add(&args);
        }
    }
    Ok(Some((ReplayKey { caller: Arc::clone(caller), digest: parts.digest() }, args)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(caller: &str, tool: &str, key: Option<&str>, arguments: &Value) -> (ReplayKey, [u8; 32]) {
        replay_key(&Arc::from(caller), tool, key, true, arguments.as_object().unwrap()).unwrap().unwrap()
    }

    #[test]
    fn keys_differ_by_caller_tool_and_key_and_not_by_the_order_of_arguments() {
        let (a, b) = (json!({"x": 1, "y": [1, 2]}), json!({"y": [1, 2], "x": 1}));
        assert_eq!(key("a", "t", None, &a), key("a", "t", None, &b));
        assert_ne!(key("a", "t", None, &a).0, key("a", "t", None, &json!({"x": 1, "y": [2, 1]})).0);
        let keyed = key("a", "t", Some("k"), &a);
        assert_eq!(keyed.0, key("a", "t", Some("k"), &json!({})).0, "the arguments stand beside the key");
        assert_ne!(keyed.1, key("a", "t", Some("k"), &json!({})).1);
        for other in
            [key("b", "t", Some("k"), &a), key("a", "u", Some("k"), &a), key("a", "t", Some("l"), &a)]
        {
            assert_ne!(keyed.0, other.0);
        }
        assert_ne!(
            key("a", "tk", Some("x"), &a).0,
            key("a", "t", Some("kx"), &a).0,
            "parts do not run together"
        );
        let none = replay_key(&Arc::from("a"), "t", None, false, &Object::new()).unwrap();
        assert!(none.is_none(), "nothing is shared where nobody asked for it");
        for bad in [String::new(), "x".repeat(257)] {
            let error = replay_key(&Arc::from("a"), "t", Some(&bad), false, &Object::new()).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("/request_key"));
        }
    }
}
