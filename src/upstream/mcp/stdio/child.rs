//! One running child: its pipes, who waits for which answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::rpc::{Fault, Message, Progress, ServerFacts};
use super::super::signals::Signals;
use crate::json;
use crate::limits;
use crate::upstream::process::{Group, Tail};
use crate::upstream::{ProgressSink, UpstreamError, text};

/// Messages on their way to a child that does not read.
const OUTBOX: usize = 256;
/// Bytes of a line beyond the largest answer that is waited for: the envelope, and notifications.
const LINE_SLACK: usize = 64 * 1024;
/// Bytes of one line of standard error in the log.
const LOG_LINE: usize = 500;

/// What was agreed with a child.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) facts: ServerFacts,
    /// Members of `_meta` of every request, on the stateless wire.
    pub(super) meta: Option<String>,
}

struct Waiter {
    answer: oneshot::Sender<Result<Box<str>, Fault>>,
    progress: Option<ProgressSink>,
    max: usize,
    read_only: bool,
}

/// A running child.
pub(super) struct Child {
    upstream: String,
    outbox: mpsc::Sender<String>,
    waiting: Mutex<HashMap<u64, Waiter>>,
    agreed: OnceLock<Agreed>,
    used: Mutex<Instant>,
    tail: Mutex<Tail>,
    /// What the server says by itself.
    pub(super) signals: Arc<Signals>,
    /// Ends it.
    pub(super) stop: CancellationToken,
    /// Fires when it has ended.
    pub(super) ended: CancellationToken,
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

/// Takes a waiter out when its caller gives up.
struct Leave<'a>(&'a Child, u64);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        drop(self.0.waiting().remove(&self.1));
    }
}

impl Child {
    /// Serves a started program's pipes in a task of their own until it ends or is stopped.
    pub(super) fn run(
        upstream: &str,
        group: Group,
        signals: Arc<Signals>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let (outbox, inbox) = mpsc::channel(OUTBOX);
        let child = Arc::new(Self {
            upstream: upstream.to_owned(),
            outbox,
            waiting: Mutex::default(),
            agreed: OnceLock::new(),
            used: Mutex::new(Instant::now()),
            tail: Mutex::default(),
            signals,
            stop,
            ended: CancellationToken::new(),
        });
        tokio::spawn(serve(Arc::clone(&child), group, inbox));
        child
    }

    pub(super) fn agreed(&self) -> Option<&Agreed> {
        self.agreed.get()
    }

    pub(super) fn set_agreed(&self, agreed: Agreed) {
        self.agreed.get_or_init(|| agreed);
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether nobody has used it for so long and nobody waits.
    pub(super) fn is_idle(&self, idle: Duration) -> bool {
        self.waiting().is_empty()
            && self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= idle
    }

    /// The end of its standard error.
    pub(super) fn last_words(&self) -> String {
        let words = self.tail.lock().unwrap_or_else(PoisonError::into_inner).text();
        if words.is_empty() { "none".to_owned() } else { words }
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn ask(
        &self,
        id: u64,
        text: String,
        max: usize,
        progress: Option<ProgressSink>,
        read_only: bool,
    ) -> Result<Box<str>, Fault> {
        self.touch();
        let (answer, answered) = oneshot::channel();
        self.waiting().insert(id, Waiter { answer, progress, max, read_only });
        let leave = Leave(self, id);
        if self.ended.is_cancelled() || self.outbox.send(text).await.is_err() {
            return Err(UpstreamError::unreachable(&self.upstream, "its program has ended").into());
        }
        let outcome = answered.await;
        drop(leave);
        self.touch();
        outcome.unwrap_or_else(|_closed| Err(self.lost(read_only).into()))
    }

    /// Sends a notification or an answer; dropped when the child does not read.
    pub(super) fn tell(&self, text: String) {
        if self.outbox.try_send(text).is_err() {
            tracing::debug!(upstream.id = %self.upstream, "a notification was dropped");
        }
    }

    fn lost(&self, read_only: bool) -> UpstreamError {
        UpstreamError::lost(&self.upstream, "ended before it answered", read_only).detail(&self.last_words())
    }

    fn take(&self, line: &str) {
        for message in Message::all(line) {
            if let Some(id) = message.answers() {
                let Some(waiter) = self.waiting().remove(&id) else { continue };
                let outcome = if line.len() > waiter.max.saturating_add(LINE_SLACK) {
                    Err(UpstreamError::too_large(&self.upstream, waiter.max).into())
                } else {
                    message.outcome().map_err(Fault::Rpc)
                };
                // A caller that gave up meanwhile wants nothing.
                drop(waiter.answer.send(outcome));
                continue;
            }
            if let Some(reply) = message.reply() {
                self.tell(reply);
            }
            match message.method.as_deref() {
                _ if self.signals.note(&message) => {}
                Some("notifications/progress") => self.progress(&message),
                _ => {}
            }
        }
    }

    fn progress(&self, message: &Message<'_>) {
        let Some(step) = message.params.and_then(|p| serde_json::from_str::<Progress<'_>>(p).ok()) else {
            return;
        };
        let id = step.token.get().trim_matches('"').parse::<u64>().unwrap_or(0);
        let sink = self.waiting().get(&id).and_then(|w| w.progress.clone());
        if let Some(sink) = sink {
            sink.report(step.done, step.total, step.message.as_deref());
        }
    }

    /// Bytes that a line may have now: as the largest answer that is waited for.
    fn line_max(&self) -> usize {
        self.waiting().values().map(|w| w.max).max().unwrap_or(0).saturating_add(LINE_SLACK)
    }

    /// A line that is too long: the request that it answers is told, by the number near its beginning; all
    /// are where it has none.
    fn too_long(&self, beginning: &[u8]) {
        let beginning = String::from_utf8_lossy(beginning);
        let id = beginning
            .split("\"id\":")
            .nth(1)
            .map(|rest| rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>());
        let id = id.and_then(|d| d.parse::<u64>().ok());
        let mut waiting = self.waiting();
        let all: Vec<u64> = waiting.keys().copied().collect();
        let of = id.filter(|id| waiting.contains_key(id)).map_or(all, |id| vec![id]);
        for waiter in of.iter().filter_map(|id| waiting.remove(id)).collect::<Vec<_>>() {
            let error = UpstreamError::too_large(&self.upstream, waiter.max);
            drop(waiter.answer.send(Err(error.into())));
        }
    }

    fn fail_all(&self) {
        let waiters: Vec<Waiter> = self.waiting().drain().map(|(_, w)| w).collect();
        for waiter in waiters {
            let error = self.lost(waiter.read_only);
            drop(waiter.answer.send(Err(error.into())));
        }
    }
}

/// How long the rest of standard error is read after a program has ended; something that it left running may
/// hold the pipe open for ever.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The task of one child.
async fn serve(child: Arc<Child>, mut group: Group, inbox: mpsc::Receiver<String>) {
    let (stdin, stdout, stderr) =
        (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
    let mut log = std::pin::pin!(log(&child, stderr));
    let mut said_all = false;
    let logging = async {
        (&mut log).await;
        said_all = true;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = read(&child, stdout) => {}
        () = write(stdin, inbox) => {}
        () = child.stop.cancelled() => {}
        () = logging => {}
    }
    // The pipes are closed now, which asks a well-behaved server to end.
    if tokio::time::timeout(limits::KILL_GRACE, group.child.wait()).await.is_err() {
        tracing::debug!(upstream.id = %child.upstream, "the program did not end by itself");
    }
    group.end().await;
    if !said_all {
        // What it said before it ended may still be in the pipe, and is what an operator wants to read.
        tokio::time::timeout(LAST_WORDS, log).await.ok();
    }
    child.ended.cancel();
    child.fail_all();
}

async fn write(pipe: Option<ChildStdin>, mut inbox: mpsc::Receiver<String>) {
    let Some(mut pipe) = pipe else { return };
    while let Some(mut line) = inbox.recv().await {
        line.push('\n');
        if pipe.write_all(line.as_bytes()).await.is_err() || pipe.flush().await.is_err() {
            return;
        }
    }
}

async fn read(child: &Child, pipe: Option<ChildStdout>) {
    let Some(pipe) = pipe else { return };
    let mut reader = BufReader::with_capacity(64 * 1024, pipe);
    let mut line: Vec<u8> = Vec::new();
    let mut skipping = false;
    loop {
        let Ok(part) = reader.fill_buf().await else { return };
        if part.is_empty() {
            return;
        }
        let end = part.iter().position(|b| *b == b'\n');
        let (piece, used) = match end {
            Some(at) => (part.get(..at).unwrap_or_default(), at + 1),
            None => (part, part.len()),
        };
        if !skipping {
            line.extend_from_slice(piece);
        }
        reader.consume(used);
        if !skipping && line.len() > LINE_SLACK && line.len() > child.line_max() {
            child.too_long(line.get(..1024).unwrap_or(&line));
            skipping = true;
        }
        if end.is_some() {
            if !skipping && let Ok(text) = std::str::from_utf8(&line) {
                child.take(text);
            }
            line.clear();
            line.shrink_to(LINE_SLACK);
            skipping = false;
        }
    }
}

/// Standard error goes to the log, line by line and bounded, and its end is kept for messages.
async fn log(child: &Child, pipe: Option<ChildStderr>) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = [0u8; 4096];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        let part = buffer.get(..n).unwrap_or_default();
        child.tail.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        let said = text::plain(&String::from_utf8_lossy(part));
        for line in said.lines().filter(|l| !l.trim().is_empty()) {
            tracing::debug!(upstream.id = %child.upstream, line = json::cut(line, LOG_LINE), "upstream says");
        }
    }
}
