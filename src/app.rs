//! The composition root: a home opened, built, kept up to date, served and drained.
//!
//! The only place where everything meets. The same [`App`] serves HTTP and stdio, runs the commands of the
//! CLI and stands in tests and benches; what listens and what prints is not known here.

mod index_file;
mod keep;
mod kept_file;
mod load;
mod meanings;
mod serve;

pub use serve::ServeError;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config::{Environment, ListenAddress, Settings};
use crate::diagnostic::Diagnostics;
use crate::gateway::Gateway;
use crate::id::Generation;
use crate::schema::Validators;
use crate::snapshot::{Home, HomeWatch, Publisher};
use crate::store::Store;
use crate::upstream::Registry;
use meanings::Meanings;

/// What a process brings along.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The folder for what upstreams brought in earlier runs and other state; `None` keeps nothing.
    pub data: Option<PathBuf>,
    /// The state that was opened in `data`; `None` keeps jobs and results until the process ends.
    pub store: Option<Store>,
    /// The environment that references of settings are looked up in.
    pub environment: Environment,
    /// The time.
    pub clock: Clock,
    /// Whether edits of the home are followed from the moment it is opened.
    pub watch: bool,
}

/// A home that cannot be served: every mistake of it.
#[derive(Debug, thiserror::Error)]
#[error("the home is broken:\n{0}")]
pub struct Broken(pub Diagnostics);

/// An opened home.
#[derive(Debug)]
pub struct App {
    dir: PathBuf,
    options: Options,
    settings: Settings,
    diagnostics: Diagnostics,
    registry: Registry,
    publisher: Arc<Publisher>,
    validators: Arc<Validators>,
    gateway: Gateway,
    meanings: Arc<Meanings>,
    /// The last good home and the number of its generation; held while a new one is built.
    built: Mutex<(Arc<Home>, Generation)>,
    /// The address served, once there is one.
    bound: OnceLock<ListenAddress>,
    /// Taken by [`App::keep`].
    watch: std::sync::Mutex<Option<HomeWatch>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl App {
    /// Loads a home and builds its first generation: with the tools of every upstream that needs no
    /// connection, and with those that MCP upstreams brought in an earlier run. Nothing runs in the background
    /// before [`App::keep`].
    pub async fn open(dir: &Path, options: Options) -> Result<Arc<Self>, Broken> {
        let app = load::open(dir, options).await?;
        if let Err(error) = app.gateway.restore_agents().await {
            tracing::error!(error = %error, "the agents that were published before are not there");
        }
        if let Err(error) = app.gateway.restore_owned().await {
            tracing::error!(error = %error, "what callers created before is not known: policies that ask refuse");
        }
        Ok(Arc::new(app))
    }

    /// The use cases.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// What docent.toml said of the process when it was opened.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The folder of the home.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is worth knowing of the home as it was opened: warnings, and what its upstreams got wrong.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    /// Where tasks of this app are spawned, so that a drain can wait for them.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Fires when the app drains.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_semantic;
