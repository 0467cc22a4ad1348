//! The one writer, on a thread of its own, and the bounded queue to it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::chain::AuditKey;
use super::drift::Drift;
use super::entry::{ArgumentSummary, CallEntry};
use super::log::{Log, Pending, Written};
use super::recent::{Query, Recent, RecentRecord};
use super::refusals::{self, Refusals};
use super::settings::{ArgumentDetail, AuditSettings};
use crate::clock::Clock;
use crate::json::{self, Object};

/// Records that wait for the writer: some tenths of a second of a very busy server, a few MiB.
const QUEUE: usize = 8_192;
/// Records written at once: one look at the head, one write.
const BATCH: usize = 2_048;
/// How long records gather before they are written. Waking the writer for each would cost a busy server more
/// than the records do; a crash can lose what was told within this time.
const GATHER: Duration = Duration::from_millis(50);
/// How often what is known of tools is kept.
const SAVE_EVERY: Duration = Duration::from_mins(1);
/// How long a flush waits for the writer.
const FLUSH_TIME: Duration = Duration::from_secs(10);

/// The kind of record of requests without a caller.
const REFUSED: &str = "unauthenticated";

enum Message {
    Call(Box<CallEntry>, u64),
    Note(&'static str, Value, u64),
    /// Everything before it is written when the other end hears of it.
    Flush(SyncSender<()>),
}

/// The way to the writer, and its thread.
#[derive(Debug)]
struct Queue {
    sender: SyncSender<Message>,
    writer: Thread,
}

/// The audit of one process. Clones are the same one; the default records nothing.
#[derive(Debug, Clone, Default)]
pub struct Audit(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    clock: Clock,
    settings: AuditSettings,
    key: AuditKey,
    argument_key: [u8; 32],
    sender: OnceLock<Option<Queue>>,
    shared: Arc<Shared>,
}

/// What the writer and everybody else see.
#[derive(Debug, Default)]
struct Shared {
    recent: Mutex<Recent>,
    written: AtomicU64,
    lost: AtomicU64,
    signals: AtomicU64,
    failing: AtomicBool,
    failure: Mutex<String>,
    refusals: Refusals,
}

/// How the audit does, for readiness and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct AuditStatus {
    /// Whether records are kept at all.
    pub enabled: bool,
    /// Records written since the start.
    pub written: u64,
    /// Records that are lost: the queue was full, or the file could not be written.
    pub lost: u64,
    /// Signals of drift since the start.
    pub signals: u64,
    /// Why records cannot be written now; empty where they can.
    pub failure: String,
}

impl Audit {
    /// The audit below a data directory. Only the key is made now; files and the thread come with the first
    /// record, so that a command that calls nothing leaves nothing.
    pub fn open(data: &Path, settings: AuditSettings, clock: Clock) -> std::io::Result<Self> {
        if !settings.enabled {
            return Ok(Self::default());
        }
        let dir = data.join("audit");
        let key = match &settings.key {
            Some(material) => AuditKey::of(material),
            None => {
                std::fs::create_dir_all(&dir)?;
                AuditKey::stored_or_drawn(&dir)?
            }
        };
        let argument_key = key.of_arguments();
        let (sender, shared) = (OnceLock::new(), Arc::default());
        Ok(Self(Some(Arc::new(Inner { dir, clock, settings, key, argument_key, sender, shared }))))
    }

    /// Whether records are kept: what is only for them need not be worked out otherwise.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// What is to be recorded of arguments, and their compact JSON where that takes it. Work it out before a call
    /// consumes them.
    pub fn arguments(&self, arguments: &Object) -> (ArgumentSummary, Option<String>) {
        match &self.0 {
            Some(inner) if inner.settings.arguments != ArgumentDetail::None => {
                let text = json::object_text(arguments);
                let detail = inner.settings.arguments;
                (ArgumentSummary::of(arguments, &text, &inner.argument_key, detail), Some(text))
            }
            _ => (ArgumentSummary::default(), None),
        }
    }

    /// Records a call or a refusal. Never waits: where the queue is full the record is lost, counted, and the
    /// log says how many.
    pub fn call(&self, entry: CallEntry) {
        if let Some(inner) = &self.0 {
            let at = inner.clock.unix_ms();
            inner.send(Message::Call(Box::new(entry), at));
        }
    }

    /// Records something else that an auditor asks for, by its kind and members: an admin's act, a reload.
    pub fn note(&self, kind: &'static str, members: Value) {
        if let Some(inner) = &self.0 {
            let at = inner.clock.unix_ms();
            inner.send(Message::Note(kind, members, at));
        }
    }

    /// Records a request that was refused before there was a caller: the first of a reason at once, the others
    /// of a minute together.
    pub fn refused(&self, reason: &'static str) {
        if let Some(inner) = &self.0 {
            let at = inner.clock.unix_ms();
            if inner.shared.refusals.count(reason, at) {
                inner.send(Message::Note(REFUSED, refusals::body(reason, 1, None), at));
            }
        }
    }

    /// The newest records, newest first.
    pub fn recent(&self, query: &Query) -> Vec<RecentRecord> {
        self.0.as_ref().map_or_else(Vec::new, |inner| {
            inner.shared.recent.lock().unwrap_or_else(PoisonError::into_inner).find(query)
        })
    }

    /// How it does.
    pub fn status(&self) -> AuditStatus {
        let Some(inner) = &self.0 else { return AuditStatus::default() };
        let shared = &inner.shared;
        AuditStatus {
            enabled: true,
            written: shared.written.load(Ordering::Relaxed),
            lost: shared.lost.load(Ordering::Relaxed),
            signals: shared.signals.load(Ordering::Relaxed),
            failure: shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Waits until everything recorded so far is written, at most ten seconds. Blocks its thread.
    pub fn flush(&self) {
        let queue = self.0.as_ref().and_then(|inner| inner.sender.get()?.as_ref());
        if let Some(queue) = queue {
            let (done, heard) = sync_channel(1);
            if queue.sender.send(Message::Flush(done)).is_ok() {
                queue.writer.unpark();
                heard.recv_timeout(FLUSH_TIME).ok();
            }
        }
    }
}

impl Inner {
    fn send(&self, message: Message) {
        let sent = match self.sender.get_or_init(|| self.start()) {
            Some(queue) => queue.sender.try_send(message),
            None => Err(TrySendError::Disconnected(message)),
        };
        if sent.is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Starts the writer. Nothing where the system gives no thread: then every record is counted as lost.
    fn start(&self) -> Option<Queue> {
        let (sender, receiver) = sync_channel(QUEUE);
        let mut writer = Writer {
            dir: self.dir.clone(),
            clock: self.clock.clone(),
            key: self.key.clone(),
            settings: self.settings.clone(),
            shared: Arc::clone(&self.shared),
            log: None,
            drift: Drift::load(&self.dir),
            lost_told: 0,
        };
        let thread =
            std::thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run(&receiver));
        match thread {
            Ok(thread) => Some(Queue { sender, writer: thread.thread().clone() }),
            Err(e) => {
                tracing::error!(error = %e, "the audit has no thread: nothing is recorded");
                *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = e.to_string();
                None
            }
        }
    }
}

struct Writer {
    dir: PathBuf,
    clock: Clock,
    key: AuditKey,
    settings: AuditSettings,
    shared: Arc<Shared>,
    log: Option<Log>,
    drift: Drift,
    lost_told: u64,
}

impl Writer {
    fn run(&mut self, receiver: &Receiver<Message>) {
        let mut more_wait = false;
        loop {
            let first = match receiver.recv_timeout(SAVE_EVERY) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => {
                    self.write(Vec::new());
                    self.save();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if !more_wait && !matches!(first, Message::Flush(_)) {
                // A flush ends it early.
                std::thread::park_timeout(GATHER);
            }
            let (mut records, mut waiting) = (Vec::new(), Vec::new());
            let more = std::iter::from_fn(|| receiver.try_recv().ok());
            let messages: Vec<Message> = std::iter::once(first).chain(more).take(BATCH).collect();
            more_wait = messages.len() == BATCH;
            for message in messages {
                match message {
                    Message::Call(call, at_ms) => self.take(&call, at_ms, &mut records),
                    Message::Note(kind, body, at_ms) => {
                        records.push(Pending { kind, at_ms, body: body.to_string() });
                    }
                    Message::Flush(done) => waiting.push(done),
                }
            }
            if !waiting.is_empty() {
                self.refused(true, &mut records);
            }
            self.write(records);
            if !waiting.is_empty() {
                self.save();
            }
            // A flush that nobody waits for any more is no failure.
            for done in waiting {
                done.send(()).ok();
            }
        }
        self.save();
    }

    fn take(&mut self, call: &CallEntry, at_ms: u64, records: &mut Vec<Pending>) {
        records.push(Pending { kind: "call", at_ms, body: call.body() });
        for body in self.drift.see(call) {
            self.shared.signals.fetch_add(1, Ordering::Relaxed);
            tracing::info!(signal = %body, "the use of a tool changed");
            records.push(Pending { kind: "signal", at_ms, body: body.to_string() });
        }
    }

    fn write(&mut self, mut records: Vec<Pending>) {
        let now = self.clock.unix_ms();
        self.refused(false, &mut records);
        let lost = self.shared.lost.load(Ordering::Relaxed);
        let gap = lost.saturating_sub(self.lost_told);
        if gap > 0 {
            let body =
                json!({ "lost": gap, "reason": "the queue was full, or the log could not be written" });
            records.push(Pending { kind: "gap", at_ms: now, body: body.to_string() });
        }
        if records.is_empty() {
            return;
        }
        let count = u64::try_from(records.len()).unwrap_or(u64::MAX);
        match self.append(&records, now) {
            Ok(written) => {
                self.lost_told = lost;
                self.shared.written.fetch_add(count, Ordering::Relaxed);
                if self.shared.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the audit is written again");
                    self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clear();
                }
                let mut recent = self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
                for record in written {
                    recent.push(record);
                }
            }
            Err(e) => {
                // The gap record is not one that was lost.
                self.shared.lost.fetch_add(count - u64::from(gap > 0), Ordering::Relaxed);
                self.log = None;
                let text = e.to_string();
                if !self.shared.failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(error = text, dir = %self.dir.display(), "the audit cannot be written");
                }
                *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
        }
    }

    /// Adds what is to be told of refused requests.
    fn refused(&self, all: bool, records: &mut Vec<Pending>) {
        let at_ms = self.clock.unix_ms();
        let due = self.shared.refusals.due(at_ms, all);
        records.extend(due.into_iter().map(|body| Pending { kind: REFUSED, at_ms, body: body.to_string() }));
    }

    fn append(&mut self, records: &[Pending], now_ms: u64) -> std::io::Result<Vec<Written>> {
        let mut log = match self.log.take() {
            Some(log) => log,
            None => Log::open(&self.dir, self.key.clone(), self.settings.clone())?,
        };
        let written = log.append(records, now_ms)?;
        self.log = Some(log);
        Ok(written)
    }

    fn save(&mut self) {
        if let Err(e) = self.drift.save(&self.dir) {
            tracing::debug!(error = %e, "what is known of tools is not kept");
        }
    }
}
