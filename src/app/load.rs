//! From files to a published generation, the first and every later one.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::auth::{Authenticator, FetchKeys};
use crate::config::{self, Loaded, Settings};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::files::Files;
use crate::gateway::{Gateway, Services};
use crate::id::Generation;
use crate::limits::FIRST_LISTS_WAIT;
use crate::schema::Validators;
use crate::search::sentence::Sense;
use crate::snapshot::{self, Before, Home, HomeWatch, Publisher, Snapshot};
use crate::store::Store;
use crate::upstream::{self, Registry, UpstreamSet};

use super::index_file::IndexFile;
use super::meanings::Meanings;
use super::{App, Broken, Options};

pub(super) async fn open(dir: &Path, options: Options) -> Result<App, Broken> {
    // Before the first read: an edit in between is then told, not lost.
    let watch = options.watch.then(|| watch(dir, &options)).flatten();
    let Loaded { home, settings, mut diagnostics } = read(dir, &options).await.map_err(Broken)?;
    let Some(mut home) = home else { return Err(Broken(diagnostics)) };
    home.callers = connected(&home.callers, &options, None);
    let registry = Registry::new(options.clock.clone(), options.data.as_deref());
    let upstreams = registry.stage(configs(&home));
    registry.discover(&upstreams, true).await;
    let (home, validators) = (Arc::new(home), Arc::<Validators>::default());
    let generation = Generation(1);
    let meanings = Arc::new(Meanings::new(options.data.as_deref()));
    let means = Means { validators: &validators, options: &options, meanings: &meanings };
    let first = make(&home, upstreams.clone(), means, None, generation, &mut diagnostics).await;
    let Some(first) = first else { return Err(Broken(diagnostics)) };
    registry.adopt(upstreams);
    let publisher = Arc::new(Publisher::new(first));
    let clock = options.clock.clone();
    let store = options.store.clone().unwrap_or_else(Store::in_memory);
    let audit = audit(&options, &settings, &mut diagnostics);
    let files = Files::new(options.data.as_deref(), store.clone(), options.clock.clone());
    Ok(App {
        dir: dir.to_owned(),
        settings,
        diagnostics,
        registry,
        gateway: Gateway::with(
            Arc::clone(&publisher),
            clock,
            Services { validators: Arc::clone(&validators), store, audit, files },
        ),
        publisher,
        validators,
        meanings,
        built: Mutex::new((home, generation)),
        bound: std::sync::OnceLock::new(),
        watch: std::sync::Mutex::new(watch),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
        options,
    })
}

impl App {
    /// Reads the home again and publishes what it says now. A broken home leaves the last good generation
    /// serving; its mistakes are the error, and stand in `/readyz` until they are mended.
    pub async fn reload(&self) -> Result<Generation, Broken> {
        let mut built = self.built.lock().await;
        let started = self.options.clock.now();
        match self.rebuild(&mut built).await {
            Ok((generation, diagnostics)) => {
                let snapshot = self.publisher.current();
                tracing::info!(
                    snapshot.generation = generation.0,
                    tools = snapshot.catalog.len(),
                    warnings = diagnostics.count(Severity::Warning),
                    duration_ms = millis(self.options.clock.now().saturating_duration_since(started)),
                    "home reloaded"
                );
                Ok(generation)
            }
            Err(diagnostics) => {
                tracing::warn!(
                    snapshot.generation = built.1.0,
                    errors = diagnostics.count(Severity::Error),
                    first = diagnostics.0.iter().find(|d| d.severity == Severity::Error).map(first_line),
                    "the edited home is broken, the last good generation serves on"
                );
                self.publisher.fail(diagnostics.clone());
                Err(Broken(diagnostics))
            }
        }
    }

    async fn rebuild(
        &self,
        built: &mut (Arc<Home>, Generation),
    ) -> Result<(Generation, Diagnostics), Diagnostics> {
        let Loaded { home, mut diagnostics, settings } = read(&self.dir, &self.options).await?;
        let Some(mut home) = home else { return Err(diagnostics) };
        home.callers = connected(&home.callers, &self.options, Some(&built.0.callers));
        if let Some(Err(message)) = self.bound.get().map(|bound| bound.check(&home.callers)) {
            diagnostics.push(
                Diagnostic::error("open-to-others", config::MAIN_FILE, message)
                    .help("keep `auth.mode`, or restart the server on a loopback address"),
            );
            return Err(diagnostics);
        }
        if settings != self.settings {
            diagnostics.push(
                Diagnostic::warning(
                    "restart-needed",
                    config::MAIN_FILE,
                    "`server.listen` and `[telemetry]` are read at start only",
                )
                .help("restart the server to apply the change"),
            );
        }
        let upstreams = self.registry.stage(configs(&home));
        self.registry.discover(&upstreams, true).await;
        let home = Arc::new(home);
        let generation = Generation(built.1.0 + 1);
        let before = Some(self.publisher.current());
        let next = make(&home, upstreams.clone(), self.means(), before, generation, &mut diagnostics).await;
        let Some(next) = next else { return Err(diagnostics) };
        self.publisher.publish(next);
        // Only now are the adapters that fell out let go: nothing that serves names them any more.
        self.registry.adopt(upstreams);
        *built = (home, generation);
        Ok((generation, diagnostics))
    }

    /// Publishes the same home with what its upstreams bring now.
    pub(super) async fn refresh(&self) {
        let mut built = self.built.lock().await;
        let (home, generation) = (Arc::clone(&built.0), Generation(built.1.0 + 1));
        let mut diagnostics = Diagnostics::default();
        let (upstreams, before) = (self.registry.current(), Some(self.publisher.current()));
        match make(&home, upstreams, self.means(), before, generation, &mut diagnostics).await {
            Some(next) => {
                tracing::info!(
                    snapshot.generation = generation.0,
                    tools = next.catalog.len(),
                    "what upstreams bring, or what is known of it, changed"
                );
                self.publisher.refresh(next);
                built.1 = generation;
            }
            None => tracing::warn!(
                first = diagnostics.0.iter().find(|d| d.severity == Severity::Error).map(first_line),
                "what an upstream brings does not build, the last good generation serves on"
            ),
        }
    }

    fn means(&self) -> Means<'_> {
        Means { validators: &self.validators, options: &self.options, meanings: &self.meanings }
    }

    /// Embeds the tools that the sentence model has not read, if there are any and a model is configured, and publishes
    /// the same home with it. `goes_on` is told how many are done and how many there are; `false` ends the work, and
    /// what was made is kept. Minutes of a core where there are thousands, beside everything that serves.
    pub async fn embed(&self, goes_on: impl Fn(usize, usize) -> bool + Send + 'static) {
        let snapshot = self.publisher.current();
        if !matches!(snapshot.sense, Sense::Waiting(_)) {
            return;
        }
        let meanings = Arc::clone(&self.meanings);
        let work = move || meanings.embed(&snapshot.catalog, &goes_on);
        if let Err(error) = tokio::task::spawn_blocking(work).await {
            return tracing::error!(error = %error, "embedding tools failed inside docent");
        }
        self.refresh().await;
    }

    /// Waits until upstreams that were never listed before have been, at most [`FIRST_LISTS_WAIT`], and
    /// publishes what came: for a client on a pipe, which may list its tools once, at its start.
    pub async fn first_lists(&self) {
        if !self.registry.awaits_first_lists() {
            return;
        }
        if tokio::time::timeout(FIRST_LISTS_WAIT, self.registry.first_lists()).await.is_err() {
            tracing::warn!(
                waited_ms = millis(FIRST_LISTS_WAIT),
                "some upstream has not listed its tools yet; they come with the next list"
            );
        }
        self.refresh().await;
    }

    /// Waits until every upstream was asked for its tools once, and publishes what came: for commands, which
    /// have no background.
    pub async fn discover(&self) {
        self.registry.discover(&self.registry.current(), false).await;
        self.refresh().await;
    }
}

/// The callers with a way to the keys of their issuer. Keys that were read before are taken over.
fn connected(
    callers: &Arc<Authenticator>,
    options: &Options,
    before: Option<&Arc<Authenticator>>,
) -> Arc<Authenticator> {
    let fetcher: Arc<dyn FetchKeys> = Arc::new(Documents);
    Arc::new(callers.connected(&fetcher, &options.clock, before.map(AsRef::as_ref)))
}

/// Keys come over the same bounded HTTP as everything else.
#[derive(Debug)]
struct Documents;

impl FetchKeys for Documents {
    fn fetch(&self, url: url::Url, max: usize) -> BoxFuture<'static, Result<Bytes, String>> {
        Box::pin(upstream::document(url, max))
    }
}

/// The audit of this process. Where its folder cannot be made nothing is recorded, and the warning says so: a
/// command that looks at something is not stopped by it.
fn audit(options: &Options, settings: &Settings, diagnostics: &mut Diagnostics) -> Audit {
    let Some(data) = &options.data else { return Audit::default() };
    let opened = Audit::open(data, settings.telemetry.audit.clone(), options.clock.clone());
    opened.unwrap_or_else(|e| {
        let message = format!("the audit in {} cannot be opened: {e}", data.display());
        let help = "give docent a data directory that it may write, or set `telemetry.audit = false`";
        diagnostics.push(Diagnostic::warning("no-audit", config::MAIN_FILE, message).help(help));
        Audit::default()
    })
}

fn watch(dir: &Path, options: &Options) -> Option<HomeWatch> {
    match snapshot::watch(dir, options.data.as_deref()) {
        Ok(watch) => Some(watch),
        Err(e) => {
            tracing::error!(error = %e, "the home cannot be watched: edits need a restart");
            None
        }
    }
}

fn configs(home: &Home) -> Vec<upstream::UpstreamConfig> {
    home.packs.iter().map(|p| p.config.clone()).collect()
}

/// Reads the files on a thread that may block.
async fn read(dir: &Path, options: &Options) -> Result<Loaded, Diagnostics> {
    let (dir, environment) = (dir.to_owned(), options.environment.clone());
    let read = move || config::load(&dir, &environment.resolver(&dir));
    tokio::task::spawn_blocking(read).await.map_err(|e| fault("reading the home", &e))
}

/// What every generation of a process is made with.
#[derive(Debug, Clone, Copy)]
struct Means<'a> {
    validators: &'a Arc<Validators>,
    options: &'a Options,
    meanings: &'a Arc<Meanings>,
}

/// Builds on a thread that may compute: 10,000 tools take about a second.
async fn make(
    home: &Arc<Home>,
    upstreams: UpstreamSet,
    with: Means<'_>,
    before: Option<Arc<Snapshot>>,
    generation: Generation,
    diagnostics: &mut Diagnostics,
) -> Option<Snapshot> {
    let (home, validators, meanings) =
        (Arc::clone(home), Arc::clone(with.validators), Arc::clone(with.meanings));
    let file = IndexFile::of(with.options.data.as_deref());
    let build = move || {
        let mut found = Diagnostics::default();
        if let Err(mistake) = meanings.take(home.model.as_ref()) {
            found.push(*mistake);
            return (None, found);
        }
        let saved = if before.is_none() { file.read() } else { None };
        let over = Before { snapshot: before.as_deref(), index: saved.as_deref() };
        let built = snapshot::build_over(&home, upstreams, &validators, over, generation, &mut found);
        if let Some(built) = &built {
            let same = before.as_ref().is_some_and(|b| Arc::ptr_eq(&b.index, &built.index));
            if !same && !saved.is_some_and(|bytes| built.index.is_saved_as(&bytes)) {
                file.write(&built.index);
            }
        }
        let asked_before = before.is_some_and(|before| matches!(before.sense, Sense::Model(_)));
        let built = built.map(|built| {
            let sense = meanings.sense(&built.catalog, asked_before);
            built.with_sense(sense)
        });
        (built, found)
    };
    match tokio::task::spawn_blocking(build).await {
        Ok((built, found)) => {
            diagnostics.extend(found);
            built
        }
        Err(e) => {
            diagnostics.extend(fault("building the home", &e));
            None
        }
    }
}

/// A panic in our own code must not end a server that serves.
fn fault(doing: &str, error: &tokio::task::JoinError) -> Diagnostics {
    let message = format!("{doing} failed inside docent: {error}");
    Diagnostics(vec![
        Diagnostic::error("internal", config::MAIN_FILE, message).help("report this as a fault of docent"),
    ])
}

fn first_line(diagnostic: &Diagnostic) -> String {
    format!("{}:{}: {}", diagnostic.file, diagnostic.line, diagnostic.message)
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
