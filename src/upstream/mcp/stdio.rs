//! An MCP server as a child process: one shared child, started on first use, stopped when idle, started
//! again with growing pauses when it dies. One message a line, each line bounded.

mod child;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::rpc::{self, Fault, Outgoing, ServerFacts};
use super::signals::Signals;
use super::{Asked, Track};
use crate::clock::Clock;
use crate::limits;
use crate::upstream::config::{CommandDefaults, Era, UpstreamConfig};
use crate::upstream::process::{Group, find};
use crate::upstream::{ErrorSource, Retry, UpstreamError};
use child::{Agreed, Child};

/// How long a child may take over the first question before the older handshake is tried as well. Programs
/// that start slowly answer the second question late; that is bounded by the caller's deadline.
const PROBE: Duration = Duration::from_secs(4);
/// How long a handshake may take: the slowest starter is a package runner that downloads first.
const HANDSHAKE: Duration = Duration::from_mins(1);
/// A child that lives shorter than this has failed.
const LIFE_MIN: Duration = Duration::from_secs(10);
/// Bytes of a handshake's answer.
const HANDSHAKE_BYTES: usize = 1024 * 1024;

/// What is remembered from one child to the next.
#[derive(Debug, Default)]
struct History {
    failures: u32,
    not_before: Option<Instant>,
    /// Which wire the last child spoke.
    stateless: Option<bool>,
    last_words: String,
}

/// A server behind a child process.
#[derive(Debug)]
pub(super) struct StdioLink {
    upstream: String,
    defaults: CommandDefaults,
    dir: std::path::PathBuf,
    era: Era,
    idle: Duration,
    signals: Arc<Signals>,
    clock: Clock,
    running: ArcSwapOption<Child>,
    starting: tokio::sync::Mutex<()>,
    history: Arc<Mutex<History>>,
    ids: Arc<AtomicU64>,
    stop: CancellationToken,
    /// Ends the child when the link is dropped.
    _guard: DropGuard,
}

impl StdioLink {
    pub(super) fn new(
        config: &UpstreamConfig,
        defaults: &CommandDefaults,
        (era, idle): (Era, Duration),
        signals: Arc<Signals>,
        clock: Clock,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            upstream: config.id.as_str().to_owned(),
            defaults: defaults.clone(),
            dir: config.dir.clone(),
            era,
            idle,
            signals,
            clock,
            running: ArcSwapOption::empty(),
            starting: tokio::sync::Mutex::new(()),
            history: Arc::default(),
            ids: Arc::new(AtomicU64::new(1)),
            _guard: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Sends one request and waits for its answer. The caller bounds it in time.
    pub(super) async fn request(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        track: &Track,
    ) -> Result<Box<str>, Fault> {
        let child = self.child().await?;
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        track.begin(id, true);
        let meta = child.agreed().and_then(|a| a.meta.as_deref());
        let text = asked.out.text(id, meta);
        child.ask(id, text, asked.max, asked.progress.cloned(), asked.read_only).await
    }

    /// Tells the child that the caller of a request gave up.
    pub(super) fn cancel(&self, id: u64) {
        if let Some(child) = self.running.load_full() {
            child.tell(rpc::cancelled(id));
        }
    }

    /// Ends the child.
    pub(super) async fn close(&self) {
        if let Some(child) = self.running.swap(None) {
            child.stop.cancel();
            drop(tokio::time::timeout(limits::KILL_GRACE * 4, child.ended.cancelled()).await);
        }
    }

    /// The running child, or a new one. A start goes on when the caller who needed it gives up.
    async fn child(self: &Arc<Self>) -> Result<Arc<Child>, Fault> {
        if let Some(child) = self.alive() {
            return Ok(child);
        }
        let link = Arc::clone(self);
        let start = tokio::spawn(async move {
            let _starting = link.starting.lock().await;
            match link.alive() {
                Some(child) => Ok(child),
                None => link.start().await,
            }
        });
        match start.await {
            Ok(started) => started,
            Err(e) => Err(UpstreamError::internal("the program could not be started").detail(&e).into()),
        }
    }

    fn alive(&self) -> Option<Arc<Child>> {
        self.running.load_full().filter(|c| !c.ended.is_cancelled() && !c.stop.is_cancelled())
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start(&self) -> Result<Arc<Child>, Fault> {
        self.may_start()?;
        let mut argv = self.defaults.command.clone();
        let program = argv.first().cloned().unwrap_or_default();
        let Some(found) = find(&program, &self.defaults, &self.dir) else {
            let why = format!("the program `{program}` is not installed on this server");
            return Err(self.failed(&why));
        };
        if let Some(first) = argv.first_mut() {
            *first = found.to_string_lossy().into_owned();
        }
        let cwd = self.defaults.cwd.as_deref().unwrap_or(&self.dir);
        let group = Group::start(&argv, &self.defaults, cwd, true)
            .map_err(|e| self.failed(&format!("the program `{program}` cannot be started ({})", e.kind())))?;
        let child = Child::run(&self.upstream, group, Arc::clone(&self.signals), self.stop.child_token());
        tokio::spawn(supervise(Arc::clone(&child), Arc::clone(&self.history), self.idle, self.clock.clone()));
        match tokio::time::timeout(HANDSHAKE, self.agree(&child)).await {
            Ok(Ok(agreed)) => {
                self.history().stateless = Some(agreed.meta.is_some());
                let stateless = agreed.meta.is_some();
                let listens = agreed.facts.tells_changes && stateless;
                child.set_agreed(agreed);
                if listens {
                    let told = self.listen(&child);
                    tokio::spawn(follow_watched(Arc::clone(&child), Arc::clone(&self.ids), told));
                }
                if !stateless {
                    for uri in self.signals.watched() {
                        child.tell(subscribe(self.ids.fetch_add(1, Ordering::Relaxed), &uri));
                    }
                }
                self.running.store(Some(Arc::clone(&child)));
                Ok(child)
            }
            Ok(Err(fault)) => {
                child.stop.cancel();
                Err(fault)
            }
            Err(_) => {
                child.stop.cancel();
                Err(self.failed("it started but did not answer"))
            }
        }
    }

    /// Refuses while a child that keeps dying is left alone.
    fn may_start(&self) -> Result<(), Fault> {
        let history = self.history();
        let now = self.clock.now();
        let wait = history.not_before.map(|t| t.saturating_duration_since(now)).filter(|w| !w.is_zero());
        let Some(wait) = wait else { return Ok(()) };
        let seconds = wait.as_secs().saturating_add(1);
        let message = format!(
            "upstream `{}` ended {} times in a row; it is started again in {seconds} s. Its last words: {}",
            self.upstream, history.failures, history.last_words
        );
        Err(UpstreamError::new(ErrorSource::Upstream, Retry::After(seconds), message).into())
    }

    fn failed(&self, why: &str) -> Fault {
        let mut history = self.history();
        history.fail(self.clock.now(), why.to_owned());
        UpstreamError::unreachable(&self.upstream, why).into()
    }

    /// The handshake of either wire.
    async fn agree(&self, child: &Child) -> Result<Agreed, Fault> {
        let probes = match self.era {
            Era::Auto => self.history().stateless != Some(false),
            Era::Stateless => true,
            Era::Session => false,
        };
        if !probes {
            return self.initialize(child).await;
        }
        let mut asking = std::pin::pin!(self.discover(child));
        match tokio::time::timeout(PROBE, &mut asking).await {
            Ok(Ok(Some(agreed))) => return Ok(agreed),
            Ok(Err(fault)) => return Err(fault),
            _ if self.era == Era::Stateless => {
                return Err(self.failed("it does not speak the stateless revision"));
            }
            Ok(Ok(None)) => return self.initialize(child).await,
            Err(_) => {}
        }
        // A program that starts slowly, or one that leaves unknown questions alone: whichever answer counts.
        let mut greeting = std::pin::pin!(self.initialize(child));
        let (mut asked, mut refused) = (false, None);
        loop {
            tokio::select! {
                found = &mut asking, if !asked => {
                    asked = true;
                    if let Some(agreed) = found? {
                        return Ok(agreed);
                    }
                }
                greeted = &mut greeting, if refused.is_none() => match greeted {
                    Ok(agreed) => return Ok(agreed),
                    Err(fault) => refused = Some(fault),
                },
            }
            if let Some(fault) = refused.take_if(|_| asked) {
                return Err(fault);
            }
        }
    }

    /// `server/discover`; `None` where the server does not offer the stateless revision.
    async fn discover(&self, child: &Child) -> Result<Option<Agreed>, Fault> {
        let meta = rpc::stateless_meta();
        let out = Outgoing { method: "server/discover", params: "", name: None, progress: false };
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        match child.ask(id, out.text(id, Some(&meta)), HANDSHAKE_BYTES, None, true).await {
            Ok(result) if rpc::offers_stateless(&result) => {
                let facts = ServerFacts::read(&result, Some(rpc::STATELESS_VERSION));
                Ok(Some(Agreed { facts, meta: Some(meta) }))
            }
            Err(Fault::Upstream(e)) => Err(e.into()),
            Ok(_) | Err(Fault::Rpc(_)) => Ok(None),
        }
    }

    async fn initialize(&self, child: &Child) -> Result<Agreed, Fault> {
        let params = rpc::initialize_params();
        let out = Outgoing { method: "initialize", params: &params, name: None, progress: false };
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let result = child.ask(id, out.text(id, None), HANDSHAKE_BYTES, None, true).await?;
        child.tell(rpc::INITIALIZED.to_owned());
        Ok(Agreed { facts: ServerFacts::read(&result, None), meta: None })
    }

    /// Asks a stateless server to tell when its lists and the watched resources change; the answer comes when
    /// the stream ends. Gives the number of the request.
    fn listen(&self, child: &Child) -> u64 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        child.tell(listen(id, &self.signals));
        id
    }

    /// What was agreed with the running child.
    pub(super) fn facts(&self) -> Option<ServerFacts> {
        self.alive()?.agreed().map(|a| a.facts.clone())
    }

    /// Whether watching is a request of its own, as on the session wire.
    pub(super) fn subscribes(&self) -> bool {
        self.alive().is_none_or(|child| child.agreed().is_none_or(|a| a.meta.is_none()))
    }
}

fn listen(id: u64, signals: &Signals) -> String {
    let params = signals.filter();
    let out = Outgoing { method: "subscriptions/listen", params: &params, name: None, progress: false };
    out.text(id, Some(&rpc::stateless_meta()))
}

fn subscribe(id: u64, uri: &str) -> String {
    let params = format!("\"uri\":{}", crate::json::to_text(uri));
    let out = Outgoing { method: "resources/subscribe", params: &params, name: None, progress: false };
    out.text(id, None)
}

/// On the stateless wire what is watched is part of the subscription: another set is another one.
async fn follow_watched(child: Arc<Child>, ids: Arc<AtomicU64>, mut told: u64) {
    let mut sets = child.signals.set_changes();
    loop {
        tokio::select! {
            () = child.ended.cancelled() => return,
            changed = sets.changed() => if changed.is_err() { return },
        }
        let id = ids.fetch_add(1, Ordering::Relaxed);
        child.tell(listen(id, &child.signals));
        child.tell(rpc::cancelled(told));
        told = id;
    }
}

impl History {
    fn fail(&mut self, now: Instant, why: String) {
        self.failures = self.failures.saturating_add(1);
        self.last_words = why;
        let pause = match self.failures {
            1 => Duration::ZERO,
            n => limits::RECONNECT_PAUSE.saturating_mul(1 << (n - 2).min(6)),
        };
        self.not_before = Some(now + pause);
    }
}

/// Watches one child to its end: ends it when nobody uses it, counts it as failed when it ends by itself.
async fn supervise(child: Arc<Child>, history: Arc<Mutex<History>>, idle: Duration, clock: Clock) {
    let began = clock.now();
    let check = idle.min(Duration::from_secs(30));
    loop {
        tokio::select! {
            () = child.ended.cancelled() => break,
            () = tokio::time::sleep(check) => {
                if child.is_idle(idle) && child.signals.watched().is_empty() {
                    child.stop.cancel();
                }
            }
        }
    }
    let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
    let by_itself = !child.stop.is_cancelled();
    if by_itself && clock.now().saturating_duration_since(began) < LIFE_MIN {
        history.fail(clock.now(), child.last_words());
    } else {
        (history.failures, history.not_before) = (0, None);
    }
}
