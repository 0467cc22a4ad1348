//! The jobs of this process, bounded, and the way between them and the store.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::job::{Job, JobState, JobView, Progress};
use super::kept;
use crate::call::{ErrorCode, ToolError, ToolOutcome};
use crate::clock::Clock;
use crate::json::Object;
use crate::limits::{JOB_KEPT, JOB_RESULTS_PER_CALLER_MAX, JOBS_MAX, JOBS_PER_CALLER_MAX, REPLAY_WINDOW};
use crate::store::jobs::{Claim, JobRow};
use crate::store::{Store, StoreError};

/// How often a job of another process is looked at by those who wait for it, and wishes from other processes by
/// the one that runs it: the way between two processes is the store, which tells nobody of a change.
const LOOK: Duration = Duration::from_millis(250);
/// Moves that wait for a slow follower; one that falls behind looks at all that it follows.
const MOVES: usize = 1_024;
/// Until when a row counts that has not ended: longer than any call may take.
const RUNNING_KEPT: Duration = Duration::from_hours(24);

/// What makes two calls the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// Caller, tool, and the caller's own key or the arguments.
    pub key: [u8; 32],
    /// The arguments: the same key with others is a mistake.
    pub args: [u8; 32],
}

/// Whether a keyed job may begin.
#[derive(Debug, Clone)]
pub enum Claimed {
    /// Nobody had the key: it may.
    Mine,
    /// An equal call has ended before, in this process or an earlier one; this came of it.
    Ended(Arc<ToolOutcome>),
    /// The key was used with other arguments.
    Collision,
}

/// No room for another job. Nothing was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// The caller has as many as one caller may.
    #[error("you have {JOBS_PER_CALLER_MAX} jobs that have not ended")]
    OfCaller,
    /// All callers together have.
    #[error("the server has {JOBS_MAX} jobs that have not ended")]
    OfAll,
}

/// What `/metrics` shows of jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Jobs that wait or run now.
    pub underway: usize,
    /// Jobs that ended since the start, by [`JobState`] in the order of `JobState::ALL`.
    pub ended: [u64; JobState::ALL.len()],
    /// Calls that found no room.
    pub refused: u64,
}

/// The jobs of this process.
pub struct Jobs {
    clock: Clock,
    store: Store,
    table: Mutex<Table>,
    ended: [AtomicU64; JobState::ALL.len()],
    refused: AtomicU64,
    moved: broadcast::Sender<Arc<str>>,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<Arc<str>, Arc<Job>>,
    per_caller: HashMap<Arc<str>, usize>,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("underway", &self.table().by_id.len()).finish_non_exhaustive()
    }
}

impl Jobs {
    /// No jobs yet; those of earlier processes are in the store.
    pub fn new(clock: Clock, store: Store) -> Self {
        let (ended, refused, (moved, _)) = (Default::default(), AtomicU64::new(0), broadcast::channel(MOVES));
        Self { clock, store, table: Mutex::default(), ended, refused, moved }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job in.
    pub fn admit(&self, job: &Arc<Job>) -> Result<(), TooMany> {
        let mut table = self.table();
        let of_caller = table.per_caller.get(&job.caller).copied().unwrap_or(0);
        let full = if table.by_id.len() >= JOBS_MAX {
            Some(TooMany::OfAll)
        } else {
            (of_caller >= JOBS_PER_CALLER_MAX).then_some(TooMany::OfCaller)
        };
        if let Some(full) = full {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(full);
        }
        table.by_id.insert(Arc::clone(&job.id), Arc::clone(job));
        table.per_caller.insert(Arc::clone(&job.caller), of_caller + 1);
        Ok(())
    }

    /// Tells those who follow jobs that one moved: it asked, was answered, or has ended.
    pub fn tell(&self, job: &Job) {
        // Nobody may be listening.
        self.moved.send(Arc::clone(&job.id)).ok();
    }

    /// The ids of jobs that move, from now on.
    pub fn moves(&self) -> broadcast::Receiver<Arc<str>> {
        self.moved.subscribe()
    }

    fn forget(&self, job: &Job) {
        let mut table = self.table();
        if table.by_id.remove(&job.id).is_none() {
            return;
        }
        if let Some(count) = table.per_caller.get_mut(&job.caller) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                table.per_caller.remove(&job.caller);
            }
        }
    }

    /// Writes down that a caller is given the id of a job, so that the id is good from then on, over a restart
    /// too.
    pub async fn show(&self, job: &Arc<Job>) -> Result<(), StoreError> {
        if job.is_shown() {
            return Ok(());
        }
        job.show();
        self.write(job).await
    }

    /// Writes down that a job which waited for its slot is about to be sent.
    pub async fn began(&self, job: &Arc<Job>) -> Result<(), StoreError> {
        if job.is_shown() { self.write(job).await } else { Ok(()) }
    }

    /// Reserves the key of a job before anything is sent. While an equal call of another process runs, this
    /// waits for its end.
    pub async fn claim(&self, job: &Arc<Job>, replay: Replay) -> Result<Claimed, StoreError> {
        job.set_replay(Some(replay));
        let claimed = self.claim_in_turn(job, replay).await?;
        if !matches!(claimed, Claimed::Mine) {
            // The key is the other one's: what comes of this job is written down nowhere else.
            job.set_replay(None);
            job.set_answered_before();
        }
        Ok(claimed)
    }

    async fn claim_in_turn(&self, job: &Arc<Job>, replay: Replay) -> Result<Claimed, StoreError> {
        loop {
            let now = self.clock.unix_ms();
            match self.store.claim_job(self.row(job, now), now).await? {
                Claim::Mine => return Ok(Claimed::Mine),
                Claim::Taken(row) if row.args.as_deref() != Some(&replay.args) => {
                    return Ok(Claimed::Collision);
                }
                Claim::Taken(row) => match view(*row).outcome {
                    Some(outcome) => return Ok(Claimed::Ended(outcome)),
                    None => tokio::time::sleep(LOOK).await,
                },
            }
        }
    }

    /// Ends a job with what came of it: told to those who wait at once, kept for those who come later.
    pub async fn finish(&self, job: &Arc<Job>, outcome: ToolOutcome) {
        let now = self.clock.unix_ms();
        if !job.end(outcome, now, now.saturating_add(millis(JOB_KEPT))) {
            return;
        }
        let at = JobState::ALL.iter().position(|s| *s == job.view().state);
        if let Some(counter) = at.and_then(|at| self.ended.get(at)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if (job.is_shown() || job.replay().is_some())
            && let Err(error) = self.write(job).await
        {
            // Its waiters have it; those who come later will not, and the operator learns why.
            tracing::error!(job.id = &*job.id, error = %error, "the result of a job cannot be kept");
        }
        self.forget(job);
        self.tell(job);
    }

    async fn write(&self, job: &Arc<Job>) -> Result<(), StoreError> {
        let _turn = job.writing.lock().await;
        let row = self.row(job, self.clock.unix_ms());
        self.store.put_job(row, JOB_RESULTS_PER_CALLER_MAX).await
    }

    fn row(&self, job: &Job, now: u64) -> JobRow {
        let (view, replay, shown) = (job.view(), job.replay(), job.is_shown());
        let outcome = view.outcome.as_deref();
        let replay_until_ms = match outcome {
            Some(outcome) if replay.is_some() && Job::is_replayed_after(outcome) => {
                view.updated_ms.saturating_add(millis(REPLAY_WINDOW))
            }
            _ => 0,
        };
        let expires_ms = match view.expires_ms {
            None => now.saturating_add(millis(RUNNING_KEPT)),
            Some(expires) if shown => expires,
            Some(_) => replay_until_ms,
        };
        JobRow {
            id: view.id.to_string(),
            caller: job.caller.to_string(),
            tool: view.tool.to_string(),
            read_only: view.read_only,
            state: view.state.as_str().to_owned(),
            instance: self.store.instance().to_owned(),
            created_ms: view.created_ms,
            updated_ms: view.updated_ms,
            expires_ms,
            shown,
            cancel: false,
            replay_key: replay.as_ref().map(|r| r.key.to_vec()),
            args: replay.as_ref().map(|r| r.args.to_vec()),
            replay_until_ms,
            outcome: outcome.map(kept::write),
        }
    }

    fn own(&self, caller: &str, id: &str) -> Option<Arc<Job>> {
        let job = self.table().by_id.get(id).map(Arc::clone)?;
        (&*job.caller == caller && job.is_shown()).then_some(job)
    }

    /// A caller's job, of this process or another one. Unknown, expired and another caller's are one answer.
    pub async fn find(&self, caller: &str, id: &str) -> Option<JobView> {
        if let Some(job) = self.own(caller, id) {
            return Some(job.view());
        }
        let found = self.store.job(caller, id, self.clock.unix_ms()).await;
        found
            .unwrap_or_else(|error| {
                tracing::error!(error = %error, "a job cannot be looked up");
                None
            })
            .map(view)
    }

    /// The same once it has ended, or as it stands when `patience` is over.
    pub async fn wait(
        &self,
        caller: &str,
        id: &str,
        patience: Duration,
        tell: impl Fn(&Progress),
    ) -> Option<JobView> {
        if let Some(job) = self.own(caller, id) {
            job.wait(patience, tell).await;
            return Some(job.view());
        }
        let until = self.clock.now() + patience;
        loop {
            let view = self.find(caller, id).await?;
            let left = until.saturating_duration_since(self.clock.now());
            if view.state.is_ended() || left.is_zero() {
                return Some(view);
            }
            tokio::time::sleep(LOOK.min(left)).await;
        }
    }

    /// Brings answers to a caller's job. A job of another process asks its own callers.
    pub fn answer(&self, caller: &str, id: &str, responses: &Object) {
        if let Some(job) = self.own(caller, id) {
            job.answer(responses);
            self.tell(&job);
        }
    }

    /// Asks for the end of a caller's job; whether there is one.
    pub async fn cancel(&self, caller: &str, id: &str) -> bool {
        if let Some(job) = self.own(caller, id) {
            job.ask_to_end();
            return true;
        }
        if self.find(caller, id).await.is_none() {
            return false;
        }
        if let Err(error) = self.store.ask_job_to_end(caller, id).await {
            tracing::error!(error = %error, "the wish for a job's end cannot be written");
        }
        true
    }

    /// A caller's jobs, newest first, without their results.
    pub async fn list(&self, caller: &str, most: usize) -> Vec<JobView> {
        let rows = self.store.jobs_of(caller, self.clock.unix_ms(), most).await;
        let rows = rows.unwrap_or_else(|error| {
            tracing::error!(error = %error, "jobs cannot be listed");
            Vec::new()
        });
        let fresher = |row: JobRow| self.own(caller, &row.id).map_or_else(|| view(row), |job| job.view());
        rows.into_iter().map(fresher).map(|view| JobView { outcome: None, ..view }).collect()
    }

    /// Ends those jobs of this process whose end was asked for in another one, until `stop` fires.
    pub async fn follow_wishes(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            if self.table().by_id.is_empty() {
                continue;
            }
            let wishes = self.store.jobs_to_end().await.unwrap_or_default();
            let jobs: Vec<Arc<Job>> = {
                let table = self.table();
                wishes.iter().filter_map(|id| table.by_id.get(id.as_str()).map(Arc::clone)).collect()
            };
            for job in jobs {
                job.ask_to_end();
            }
        }
    }

    /// Asks all jobs to end and waits for that, at most `patience`: what then still runs is found lost by the
    /// next process.
    pub async fn drain(&self, patience: Duration) {
        let jobs: Vec<Arc<Job>> = self.table().by_id.values().map(Arc::clone).collect();
        for job in jobs {
            job.ask_to_end();
        }
        let all = async {
            while !self.table().by_id.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!(
                jobs = self.table().by_id.len(),
                "jobs were still under way when the server ended"
            );
        }
    }

    /// What `/metrics` shows.
    pub fn counts(&self) -> JobCounts {
        JobCounts {
            underway: self.table().by_id.len(),
            ended: std::array::from_fn(|at| self.ended.get(at).map_or(0, |c| c.load(Ordering::Relaxed))),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// A row of the store as a job. One whose process is gone has an end too.
fn view(row: JobRow) -> JobView {
    let stored = JobState::ALL.into_iter().find(|s| s.as_str() == row.state);
    let outcome = match (stored, &row.outcome) {
        (None, _) => Some(ToolOutcome::Failed(orphaned(&row))),
        (Some(state), Some(bytes)) if state.is_ended() => Some(kept::read(bytes).unwrap_or_else(unreadable)),
        (Some(_), _) => None,
    };
    JobView {
        id: Arc::from(row.id),
        tool: Arc::from(row.tool),
        read_only: row.read_only,
        state: stored.unwrap_or(JobState::Failed),
        progress: None,
        created_ms: row.created_ms,
        updated_ms: row.updated_ms,
        expires_ms: stored.is_none_or(JobState::is_ended).then_some(row.expires_ms),
        outcome: outcome.map(Arc::new),
        open: Vec::new(),
    }
}

/// What a job came to whose server ended before it did.
fn orphaned(row: &JobRow) -> ToolError {
    if row.state == "never_started" {
        let message = "The server ended before the job began; nothing was sent. Make the call again.";
        return ToolError::new(ErrorCode::UpstreamUnavailable, message).retryable();
    }
    let advice = if row.read_only {
        "The tool only reads: make the call again."
    } else {
        "It may have been carried out or not. Do not repeat it: look first whether it took effect."
    };
    ToolError::new(ErrorCode::UnknownOutcome, format!("The server ended while the job ran. {advice}"))
}

fn unreadable() -> ToolOutcome {
    let message = "The result was written by another version of the server and cannot be read by this one.";
    ToolOutcome::Failed(ToolError::new(ErrorCode::InternalError, message))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
