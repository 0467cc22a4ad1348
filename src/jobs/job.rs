//! One job: what it is, how far it is, what came of it, and those who wait for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio_util::sync::CancellationToken;

use crate::call::{ClientRequest, ErrorCode, ToolOutcome};
use crate::id::{self, ToolId};
use crate::json::Object;

/// Between two rounds of telling those who wait how far a job is: an upstream may report every byte.
const PROGRESS_PAUSE: Duration = Duration::from_millis(25);
/// Bytes of randomness in an id: it is no credential, but nobody should guess it.
const ID_BYTES: usize = 16;
/// Bytes kept of a progress message.
const MESSAGE_BYTES_MAX: usize = 500;

/// The word of a job that waits for answers of its caller's client.
pub const INPUT_REQUIRED: &str = "input_required";

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for a slot of its upstream; nothing was sent.
    Queued,
    /// It is under way.
    Running,
    /// It ended with a result.
    Completed,
    /// It ended with an error, or with a result that is one.
    Failed,
    /// It was ended on demand.
    Cancelled,
}

impl JobState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    /// The word of a state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more will come of it.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// How an outcome counts.
    pub(super) fn of(outcome: &ToolOutcome, cancel_asked: bool) -> Self {
        match outcome {
            ToolOutcome::Completed(result) if !result.is_error => Self::Completed,
            ToolOutcome::Completed(_) => Self::Failed,
            ToolOutcome::Failed(_) if cancel_asked => Self::Cancelled,
            ToolOutcome::Failed(_) => Self::Failed,
        }
    }
}

/// How far a job says it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Grows; the unit is the tool's own.
    pub done: f64,
    /// What it grows to, where that is known.
    pub total: Option<f64>,
    /// The last message.
    pub message: Option<Arc<str>>,
}

/// A job at one moment.
#[derive(Debug, Clone)]
pub struct JobView {
    /// Its id.
    pub id: Arc<str>,
    /// The tool's id.
    pub tool: Arc<str>,
    /// Whether the tool only reads.
    pub read_only: bool,
    /// Where it stands.
    pub state: JobState,
    /// How far it is; nothing for one that another process runs.
    pub progress: Option<Progress>,
    /// When it began, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it last changed.
    pub updated_ms: u64,
    /// Until when its result is kept, once it has ended.
    pub expires_ms: Option<u64>,
    /// What came of it.
    pub outcome: Option<Arc<ToolOutcome>>,
    /// What it waits for its caller's client to answer.
    pub open: Vec<ClientRequest>,
}

impl JobView {
    /// The word for how it stands: that of its state, or that it waits for answers.
    pub fn status(&self) -> &'static str {
        if self.open.is_empty() || self.state.is_ended() { self.state.as_str() } else { INPUT_REQUIRED }
    }
}

/// One job of this process.
#[derive(Debug)]
pub struct Job {
    /// Its id.
    pub id: Arc<str>,
    /// The subject that started it.
    pub caller: Arc<str>,
    /// The tool's id.
    pub tool: Arc<str>,
    /// Whether the tool only reads.
    pub read_only: bool,
    /// When it began, in milliseconds since the epoch.
    pub created_ms: u64,
    /// Fires when it is to end.
    pub cancel: CancellationToken,
    state: Mutex<State>,
    changed: Notify,
    /// Held while its row is written, so that an older state never overwrites a newer one.
    pub(super) writing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    stage: JobState,
    progress: Option<Progress>,
    told: Option<Instant>,
    updated_ms: u64,
    expires_ms: Option<u64>,
    outcome: Option<Arc<ToolOutcome>>,
    /// Those who wait for it now.
    waiting: usize,
    /// Whether a caller was given its id: then it goes on whoever waits.
    is_shown: bool,
    cancel_asked: bool,
    replay: Option<Arc<super::Replay>>,
    answered_before: bool,
    stay: Stay,
    questions: Option<Box<Questions>>,
}

/// Whether somebody still waits for the call itself, who can be asked by its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    Here,
    /// It was asked something: the call ends with that.
    Asked,
    /// It has the job's id instead.
    Left,
}

/// What a job asked, and what came of that.
#[derive(Debug)]
struct Questions {
    open: Vec<ClientRequest>,
    answers: Object,
}

impl Job {
    /// A job that begins now.
    pub fn new(caller: &Arc<str>, tool: &ToolId, read_only: bool, now_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            id: Arc::from(format!("job_{}", id::hex(&id::unique::<ID_BYTES>()))),
            caller: Arc::clone(caller),
            tool: tool.shared(),
            read_only,
            created_ms: now_ms,
            cancel: CancellationToken::new(),
            state: Mutex::new(State {
                stage: JobState::Running,
                progress: None,
                told: None,
                updated_ms: now_ms,
                expires_ms: None,
                outcome: None,
                waiting: 0,
                is_shown: false,
                cancel_asked: false,
                replay: None,
                answered_before: false,
                stay: Stay::Here,
                questions: None,
            }),
            changed: Notify::new(),
            writing: tokio::sync::Mutex::new(()),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that it waits for a slot, or that it has one.
    pub fn set_queued(&self, queued: bool) {
        let mut state = self.state();
        if !state.stage.is_ended() {
            state.stage = if queued { JobState::Queued } else { JobState::Running };
        }
    }

    /// Notes how far it is. What does not grow is dropped; those who wait are told at most forty times a second.
    pub fn report(&self, done: f64, total: Option<f64>, message: Option<&str>, now: Instant) {
        let mut state = self.state();
        let grows = state.progress.as_ref().is_none_or(|p| done > p.done);
        if !done.is_finite() || !grows || state.stage.is_ended() {
            return;
        }
        let message = message.map(|m| Arc::from(crate::json::cut(m, MESSAGE_BYTES_MAX)));
        state.progress = Some(Progress { done, total: total.filter(|t| t.is_finite()), message });
        if state.told.is_none_or(|told| now.saturating_duration_since(told) >= PROGRESS_PAUSE) {
            state.told = Some(now);
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Option<Progress> {
        self.state().progress.clone()
    }

    /// What came of it, once it has ended.
    pub fn outcome(&self) -> Option<Arc<ToolOutcome>> {
        self.state().outcome.clone()
    }

    /// Asks it to end. It ends when its work has.
    pub fn ask_to_end(&self) {
        self.state().cancel_asked = true;
        self.cancel.cancel();
    }

    /// Waits until it has ended, asks something or `patience` is over; `tell` hears how far it is meanwhile.
    pub async fn wait(&self, patience: Duration, tell: impl Fn(&Progress)) -> Option<Arc<ToolOutcome>> {
        let _here = Waiting::begin(self);
        let deadline = tokio::time::sleep(patience);
        tokio::pin!(deadline);
        let mut told = None;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before the look: what changes between the two still wakes.
            changed.as_mut().enable();
            let (progress, outcome) = {
                let state = self.state();
                (state.progress.clone(), state.outcome.clone())
            };
            if progress != told {
                if let Some(progress) = &progress {
                    tell(progress);
                }
                told = progress;
            }
            if outcome.is_some() || self.has_questions() {
                return outcome;
            }
            tokio::select! {
                () = changed => {}
                () = &mut deadline => return None,
            }
        }
    }

    /// Notes that its caller goes away with its id. `false` where that caller is being asked something: the call
    /// is about to end with the question.
    pub fn leave(&self) -> bool {
        let mut state = self.state();
        if state.stay == Stay::Here {
            state.stay = Stay::Left;
        }
        state.stay == Stay::Left
    }

    /// Whether what it asks goes to the caller that still waits for the call, by ending it.
    pub fn asks_its_caller(&self) -> bool {
        let mut state = self.state();
        if state.stay == Stay::Here {
            state.stay = Stay::Asked;
        }
        state.stay == Stay::Asked
    }

    fn has_questions(&self) -> bool {
        self.state().questions.as_ref().is_some_and(|q| !q.open.is_empty())
    }

    /// Asks, and waits for all answers, at most `patience`; by key.
    pub async fn ask(&self, requests: Vec<ClientRequest>, patience: Duration) -> Option<Object> {
        self.state().questions = Some(Box::new(Questions { open: requests, answers: Object::new() }));
        self.changed.notify_waiters();
        let deadline = tokio::time::sleep(patience);
        tokio::pin!(deadline);
        let answered = loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.has_questions() {
                break true;
            }
            tokio::select! {
                () = changed => {}
                () = &mut deadline => break false,
                () = self.cancel.cancelled() => break false,
            }
        };
        let questions = self.state().questions.take()?;
        answered.then_some(questions.answers)
    }

    /// Takes answers in. What was not asked, or is answered already, is nothing.
    pub fn answer(&self, responses: &Object) {
        let mut state = self.state();
        let Some(questions) = &mut state.questions else { return };
        for request in questions.open.extract_if(.., |q| responses.contains_key(&q.key)) {
            if let Some(answer) = responses.get(&request.key) {
                questions.answers.insert(request.key, answer.clone());
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A notice of its next move. Enable it before a look at the job, so that no move falls between the two.
    pub fn notified(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Those who wait for it now.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Whether a caller was given its id.
    pub fn is_shown(&self) -> bool {
        self.state().is_shown
    }

    /// Notes that a caller is given its id.
    pub(super) fn show(&self) {
        self.state().is_shown = true;
    }

    /// What equal calls are answered from.
    pub(super) fn replay(&self) -> Option<Arc<super::Replay>> {
        self.state().replay.clone()
    }

    /// Notes its key, or that it has none after all.
    pub(super) fn set_replay(&self, replay: Option<super::Replay>) {
        self.state().replay = replay.map(Arc::new);
    }

    /// Notes that what comes of it is an earlier call's.
    pub(super) fn set_answered_before(&self) {
        self.state().answered_before = true;
    }

    /// Whether what comes of it is a call's of another process, or of an earlier one.
    pub fn is_answered_before(&self) -> bool {
        self.state().answered_before
    }

    /// Ends it. Only the first end counts.
    pub(super) fn end(&self, outcome: ToolOutcome, now_ms: u64, expires_ms: u64) -> bool {
        let mut state = self.state();
        if state.outcome.is_some() {
            return false;
        }
        state.stage = JobState::of(&outcome, state.cancel_asked);
        state.outcome = Some(Arc::new(outcome));
        state.updated_ms = now_ms;
        state.expires_ms = Some(expires_ms);
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// Whether an equal call is answered with this outcome instead of being sent: the first one succeeded, or
    /// nobody knows whether it did.
    pub fn is_replayed_after(outcome: &ToolOutcome) -> bool {
        match outcome {
            ToolOutcome::Completed(result) => !result.is_error,
            ToolOutcome::Failed(error) => error.code == ErrorCode::UnknownOutcome,
        }
    }

    /// How it stands now.
    pub fn view(&self) -> JobView {
        let state = self.state();
        JobView {
            id: Arc::clone(&self.id),
            tool: Arc::clone(&self.tool),
            read_only: self.read_only,
            state: state.stage,
            progress: state.progress.clone(),
            created_ms: self.created_ms,
            updated_ms: state.updated_ms,
            expires_ms: state.expires_ms,
            outcome: state.outcome.clone(),
            open: state.questions.as_ref().map(|q| q.open.clone()).unwrap_or_default(),
        }
    }
}

/// Counts somebody who waits, however the waiting ends.
struct Waiting<'a>(&'a Job);

impl<'a> Waiting<'a> {
    fn begin(job: &'a Job) -> Self {
        job.state().waiting += 1;
        Self(job)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting = state.waiting.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{ToolError, ToolResult};
    use crate::clock::Clock;

    fn job() -> Arc<Job> {
        Job::new(&Arc::from("ann"), &ToolId::parse("u.t").unwrap(), false, 1)
    }

    fn done() -> ToolOutcome {
        ToolOutcome::Completed(ToolResult::default())
    }

    #[tokio::test]
    async fn everyone_who_waits_gets_the_one_end_and_a_late_end_changes_nothing() {
        let job = job();
        let waits = async || job.wait(Duration::from_secs(5), |_| {}).await.is_some();
        let (a, b, ended) = tokio::join!(waits(), waits(), async {
            tokio::task::yield_now().await;
            assert_eq!(job.waiting(), 2);
            job.end(done(), 2, 10)
        });
        assert!(a && b && ended && job.waiting() == 0);
        let failed = ToolOutcome::Failed(ToolError::new(ErrorCode::InternalError, "late"));
        assert!(!job.end(failed, 3, 10));
        assert_eq!(job.view().state, JobState::Completed);
        assert!(job.wait(Duration::ZERO, |_| {}).await.is_some(), "an ended job is not waited for");
    }

    #[tokio::test]
    async fn patience_ends_without_ending_the_job() {
        let job = job();
        assert!(job.wait(Duration::from_millis(5), |_| {}).await.is_none());
        assert_eq!(job.view().state, JobState::Running);
    }

    #[tokio::test]
    async fn progress_grows_is_throttled_and_its_last_word_is_heard() {
        let (job, clock) = (job(), Clock::manual());
        let heard = Mutex::new(Vec::new());
        let wait = job.wait(Duration::from_secs(5), |p| heard.lock().unwrap().push(p.done));
        let work = async {
            for (done, pause) in [(1.0, 0), (0.5, 30), (f64::NAN, 30), (2.0, 1), (3.0, 1), (4.0, 30)] {
                clock.advance(Duration::from_millis(pause));
                job.report(done, Some(4.0), None, clock.now());
                tokio::task::yield_now().await;
            }
            job.end(done(), 2, 10);
            job.report(9.0, None, None, clock.now());
        };
        let (outcome, ()) = tokio::join!(wait, work);
        assert!(outcome.is_some());
        assert!((job.progress().unwrap().done - 4.0).abs() < f64::EPSILON);
        let heard = heard.into_inner().unwrap();
        assert_eq!(heard.last(), Some(&4.0), "{heard:?}");
        assert!(heard.windows(2).all(|w| w[0] < w[1]), "{heard:?}");
    }

    #[tokio::test]
    async fn a_question_waits_for_all_its_answers() {
        let job = job();
        assert!(job.leave() && !job.asks_its_caller(), "its caller has gone away with the id");
        let request = |key: &str| ClientRequest {
            key: key.to_owned(),
            asking: crate::call::Asking::Elicitation,
            params: Object::new(),
        };
        let answer = |key: &str, n: u8| Object::from_iter([(key.to_owned(), n.into())]);
        let asking = job.ask(vec![request("a"), request("b")], Duration::from_secs(5));
        let answering = async {
            tokio::task::yield_now().await;
            assert_eq!((job.view().status(), job.view().open.len()), ("input_required", 2));
            assert!(job.wait(Duration::from_secs(5), |_| {}).await.is_none(), "who waits is told at once");
            job.answer(&answer("c", 0));
            job.answer(&answer("a", 1));
            job.answer(&answer("a", 9));
            assert_eq!(job.view().open.len(), 1);
            job.answer(&answer("b", 2));
        };
        let (answers, ()) = tokio::join!(asking, answering);
        assert_eq!(serde_json::Value::from(answers.unwrap()), serde_json::json!({"a": 1, "b": 2}));
        assert_eq!(job.view().status(), "running");
        assert!(job.ask(vec![request("a")], Duration::from_millis(1)).await.is_none());
        let other = self::job();
        assert!(other.asks_its_caller() && !other.leave(), "who waits is asked by the call's own end");
    }

    #[test]
    fn a_cancelled_job_that_succeeded_all_the_same_is_completed() {
        let failed = || ToolOutcome::Failed(ToolError::new(ErrorCode::UnknownOutcome, "x"));
        for (outcome, asked, state) in [
            (done(), true, JobState::Completed),
            (failed(), true, JobState::Cancelled),
            (failed(), false, JobState::Failed),
        ] {
            assert_eq!(JobState::of(&outcome, asked), state);
        }
    }
}
