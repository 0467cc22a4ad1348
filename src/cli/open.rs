//! Opens a home for one command: read, built, its upstreams asked as far as the command needs.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::{Context, Failure, failure};
use crate::app::{App, Options};
use crate::auth::Authenticator;
use crate::clock::Clock;
use crate::diagnostic::did_you_mean;
use crate::gateway::{Gateway, RequestContext};
use crate::policy::Principal;
use crate::script::stack;
use crate::search::sentence::Sense;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::transport::Lanes;
use crate::upstream::UpstreamState;

/// How long a command waits for its upstreams to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far a command reaches beyond the files of the home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The files only: the same answer everywhere and every time.
    Files,
    /// MCP servers' tools as remembered; if one was never listed, all are asked now.
    Known,
    /// Every MCP server is asked.
    Upstreams,
}

/// A home that loads.
#[derive(Debug)]
pub(super) struct Opened {
    /// The composed program.
    pub(super) app: Arc<App>,
    runtime: Runtime,
}

/// What a command brings along. Only one that serves follows edits, and needs its state to survive it.
pub(super) fn options(
    context: &Context,
    data: Option<PathBuf>,
    store: Option<Store>,
    watch: bool,
) -> Options {
    Options { data, store, environment: context.env.clone(), clock: Clock::system(), watch }
}

/// The state of a data directory for a command that can do without: then it says so.
fn store(data: &Path) -> Option<Store> {
    Store::open(data).inspect_err(|e| failure::say(format_args!("note: {e}; nothing is kept"))).ok()
}

/// A runtime: everything of a command is waited for in one place.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Scripts run in place on these threads instead of hopping to a pool of deep ones.
        .thread_stack_size(stack::STACK_BYTES)
        .on_thread_start(stack::adopt_current_thread)
        .build()
        .map_err(|e| Failure::failed(format_args!("no threads can be started: {e}")))
}

/// A lane for each core: see [`Lanes`]. `rest` is what their blocking work has at the end.
pub(super) fn lanes(rest: Duration) -> Result<Lanes, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Lanes::start(cores, stack::STACK_BYTES, stack::adopt_current_thread, rest)
        .map_err(|e| Failure::failed(format_args!("no threads can be started: {e}")))
}

/// Opens the home of this command; a broken one ends the command with all its mistakes.
pub(super) fn open(context: &Context, reach: Reach) -> Result<Opened, Failure> {
    let runtime = runtime()?;
    let data = match reach {
        Reach::Files => None,
        Reach::Known | Reach::Upstreams => context.env.data_dir(context.data.as_deref(), &context.home).ok(),
    };
    // Only a call can leave something to be kept.
    let store = data.as_deref().filter(|_| reach == Reach::Upstreams).and_then(store);
    let opened = runtime.block_on(App::open(&context.home, options(context, data, store, false)));
    let app = opened.map_err(|e| Failure::Broken(e.0))?;
    super::logging::start(&context.env, &app.settings().telemetry, "warn");
    let upstreams = &app.gateway().snapshot().upstreams;
    let unknown = upstreams.discoveries().len() < upstreams.statuses().len();
    if reach == Reach::Upstreams || (reach == Reach::Known && unknown) {
        runtime.block_on(app.discover());
    }
    let opened = Opened { app, runtime };
    if reach != Reach::Files {
        opened.tell_states();
    }
    Ok(opened)
}

impl Opened {
    /// The use cases.
    pub(super) fn gateway(&self) -> &Gateway {
        self.app.gateway()
    }

    /// The one generation of this command.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.gateway().snapshot()
    }

    /// The caller that a command speaks as: `--as NAME`, else `anonymous` where no token is needed.
    pub(super) fn caller(&self, name: Option<&str>) -> Result<Arc<Principal>, Failure> {
        caller(&self.snapshot().callers, name)
    }

    /// A request of this command.
    #[expect(clippy::unused_self, reason = "a request is made of an opened home")]
    pub(super) fn request(&self, caller: Arc<Principal>) -> RequestContext {
        RequestContext::new(caller, "cli")
    }

    /// Waits for something.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Has the sentence model read the tools that it does not know, where there are at most so many; else says that the
    /// shipped table ranks.
    pub(super) fn meanings(&self, most: usize) {
        let Sense::Waiting(tools) = self.snapshot().sense else { return };
        if tools > most {
            return failure::say(format_args!(
                "note: the sentence model has not read {tools} tools: the shipped table ranks; `docent serve` or \
                 `docent eval` has them read"
            ));
        }
        let bar = std::io::stderr().is_terminal();
        let told = move |done: usize, all: usize| {
            if bar {
                let end = if done == all { "\n" } else { "" };
                write!(std::io::stderr(), "\rthe sentence model reads tools: {done}/{all}{end}").ok();
            }
            true
        };
        self.wait(self.app.embed(told));
    }

    /// Says on stderr which upstreams' tools may be missing.
    fn tell_states(&self) {
        for status in self.snapshot().upstreams.statuses() {
            if (status.state == UpstreamState::Down || !status.complete) && !status.note.is_empty() {
                failure::say(format_args!("note: upstream {}: {}", status.id, status.note));
            }
        }
    }
}

impl Drop for Opened {
    /// Ends connections and child processes, whichever way the command ended.
    fn drop(&mut self) {
        self.runtime.block_on(self.app.close(PATIENCE));
    }
}

/// A caller by name, or `anonymous`.
pub(super) fn caller(callers: &Authenticator, name: Option<&str>) -> Result<Arc<Principal>, Failure> {
    let Some(name) = name else {
        return callers.caller("anonymous").ok_or_else(|| {
            Failure::Usage("auth.mode = \"token\": name a caller with `--as NAME`".to_owned())
        });
    };
    callers.caller(name).ok_or_else(|| {
        let known: Vec<&str> = callers.names().collect();
        let help = match did_you_mean(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "docent.toml has no [callers.NAME]".to_owned(),
            None => format!("callers: {}", known.join(", ")),
        };
        Failure::Usage(format!("there is no caller `{name}`; {help}"))
    })
}
