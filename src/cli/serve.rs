//! `docent serve`: HTTP by default, or one client on stdin and stdout.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::{Context, Failure, failure, logging, open};
use crate::app::{App, ServeError};
use crate::config::ListenAddress;
use crate::limits::DRAIN_TIME;
use crate::policy::{DiscoveryMode, Principal};
use crate::store::Store;
use crate::transport::Lanes;

/// How long threads may take to end once everything else has.
const THREAD_TIME: Duration = Duration::from_millis(500);

/// Serves the home over HTTP, or to one client on stdin and stdout.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Where to listen instead of `server.listen`, such as `127.0.0.1:7331`; port 0 takes any free one
    #[arg(long, value_name = "ADDR", value_parser = ListenAddress::parse, conflicts_with = "stdio")]
    listen: Option<ListenAddress>,
    /// Speak MCP on stdin and stdout, as the caller of `--as`
    #[arg(long)]
    stdio: bool,
    /// What `tools/list` shows on stdio: `full`, `compact` or `auto` (over HTTP a client says `?discovery=`)
    #[arg(long, value_name = "MODE", value_parser = parse_mode, requires = "stdio")]
    discovery: Option<DiscoveryMode>,
    /// The caller that every request speaks for: a table of `[callers]`; over HTTP on loopback only
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
}

fn parse_mode(word: &str) -> Result<DiscoveryMode, String> {
    DiscoveryMode::parse(word).ok_or_else(|| "one of full, compact, auto".to_owned())
}

impl Serve {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let data = context.env.data_dir(context.data.as_deref(), &context.home).map_err(Failure::failed)?;
        // Jobs and results that would silently not survive are worse than a server that does not start.
        let store = Store::open(&data).map_err(Failure::failed)?;
        let runtime = open::runtime()?;
        let lanes = if self.stdio { Lanes::none() } else { open::lanes(THREAD_TIME)? };
        let done = runtime.block_on(async {
            let options = open::options(context, Some(data), Some(store), true);
            let app = App::open(&context.home, options).await.map_err(|e| Failure::Broken(e.0))?;
            logging::start(&context.env, &app.settings().telemetry, "info");
            for diagnostic in &app.diagnostics().0 {
                failure::say(diagnostic);
            }
            let served = self.serve(&app, &lanes).await;
            app.close(DRAIN_TIME).await;
            served
        });
        drop(lanes);
        // A thread that waits for a line on stdin cannot be called back: it is left behind.
        runtime.shutdown_timeout(THREAD_TIME);
        done
    }

    async fn serve(&self, app: &Arc<App>, lanes: &Lanes) -> Result<(), Failure> {
        let callers = Arc::clone(&app.gateway().snapshot().callers);
        let named = self.caller.as_deref().map(|name| open::caller(&callers, Some(name))).transpose()?;
        if self.stdio {
            let caller = named.map_or_else(|| open::caller(&callers, None), Ok)?;
            app.keep();
            let stdio = async {
                app.first_lists().await;
                app.serve_stdio(caller, self.discovery).await
            };
            let signal = app.stop_on_signal();
            return tokio::select! {
                done = stdio => done.map_err(Failure::failed),
                () = signal => Ok(()),
            };
        }
        self.serve_http(app, named, lanes).await.map_err(|e| match e {
            ServeError::Open(message) => Failure::Usage(message),
            other => Failure::failed(other),
        })
    }

    async fn serve_http(
        &self,
        app: &Arc<App>,
        caller: Option<Arc<Principal>>,
        lanes: &Lanes,
    ) -> Result<(), ServeError> {
        let address = self.listen.unwrap_or(app.settings().listen);
        let listener = app.bind(address, caller.as_ref()).await?;
        if let Ok(bound) = listener.local_addr() {
            failure::say(format_args!("docent serves http://{bound}/mcp"));
        }
        app.keep();
        tokio::select! {
            () = app.serve_http(listener, caller, lanes) => {}
            // The server drains once the app stops: it is waited for in the other arm.
            () = async { app.stop_on_signal().await; std::future::pending().await } => {}
        }
        Ok(())
    }
}
