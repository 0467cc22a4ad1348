//! Serving: HTTP until the app stops, or one client on stdin and stdout.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::auth::Authenticator;
use crate::config::ListenAddress;
use crate::gateway::Gateway;
use crate::limits::DRAIN_TIME;
use crate::mcp::Mcp;
use crate::policy::{DiscoveryMode, Principal};
use crate::snapshot::Snapshot;
use crate::transport::{self, Access, AccessHandle, Boundary, Lanes};

use super::App;

/// How often sessions that were idle for too long are forgotten.
const SWEEP: Duration = Duration::from_mins(1);

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address would let everybody in.
    #[error("{0}")]
    Open(String),
    /// `--as` names nobody.
    #[error("there is no caller `{0}`: `[callers.{0}]` is not in docent.toml")]
    NoCaller(String),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Standard input or output broke.
    #[error("the pipe broke: {0}")]
    Pipe(#[from] io::Error),
}

impl App {
    /// Binds an address, refusing one that would let everybody in. Port 0 takes any free one. From here on no
    /// reload may open the server to the world either.
    pub async fn bind(
        &self,
        address: ListenAddress,
        as_caller: Option<&Arc<Principal>>,
    ) -> Result<TcpListener, ServeError> {
        let ListenAddress(wanted) = address;
        let callers = callers(&self.gateway.snapshot(), as_caller);
        address.check(&callers).map_err(ServeError::Open)?;
        let failed = |source| ServeError::Bind { address: wanted, source };
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        self.bound.set(ListenAddress(bound)).ok();
        tracing::info!(address = %bound, tools = self.gateway.snapshot().catalog.len(), "listening");
        Ok(listener)
    }

    /// Serves HTTP until the app stops, then lets calls under way end for [`DRAIN_TIME`]. `as_caller` makes
    /// every request speak for one caller, without tokens: give it to [`App::bind`] too, which then refuses
    /// every address but loopback.
    /// Connections are spread over `lanes`, which must live until the app is closed.
    pub async fn serve_http(
        self: &Arc<Self>,
        listener: TcpListener,
        as_caller: Option<Arc<Principal>>,
        lanes: &Lanes,
    ) {
        let mcp = self.wire();
        let access = AccessHandle::new(access(&self.gateway, as_caller.as_ref()));
        self.follow_access(access.clone(), as_caller);
        let front = transport::front(mcp, access);
        transport::serve(listener, front, lanes, self.stop.clone(), DRAIN_TIME).await;
    }

    /// Serves one client on a pipe as one caller, until it ends or the app stops.
    pub async fn serve_stdio(
        self: &Arc<Self>,
        caller: Arc<Principal>,
        discovery: Option<DiscoveryMode>,
    ) -> Result<(), ServeError> {
        let pipe = (tokio::io::stdin(), tokio::io::stdout());
        transport::run_stdio(self.wire(), caller, discovery, pipe, self.stop.clone()).await?;
        Ok(())
    }

    /// A caller by name, as `--as` gives it.
    pub fn caller(&self, name: &str) -> Result<Arc<Principal>, ServeError> {
        self.gateway.snapshot().callers.caller(name).ok_or_else(|| ServeError::NoCaller(name.to_owned()))
    }

    /// The wire over this app's gateway; its streams end and its sessions are swept with the app.
    fn wire(self: &Arc<Self>) -> Arc<Mcp> {
        let mcp = Mcp::new(Arc::new(self.gateway.clone()), self.options.clock.clone());
        let (stop, swept) = (self.stop.clone(), Arc::clone(&mcp));
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => break swept.drain(),
                    () = tokio::time::sleep(SWEEP) => swept.sweep(),
                }
            }
        });
        mcp
    }

    /// A published generation brings its callers and its boundary with it.
    fn follow_access(self: &Arc<Self>, handle: AccessHandle, as_caller: Option<Arc<Principal>>) {
        let (gateway, stop) = (self.gateway.clone(), self.stop.clone());
        let mut published = self.publisher.subscribe();
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    more = published.changed() => if more.is_err() { return },
                }
                handle.replace(access(&gateway, as_caller.as_ref()));
            }
        });
    }

    /// Waits for SIGINT or SIGTERM, then stops the app; a second signal is left to the system.
    pub async fn stop_on_signal(&self) {
        match signal().await {
            Ok(name) => tracing::info!(signal = name, "stopping"),
            Err(e) => {
                tracing::error!(error = %e, "signals cannot be received; stop the process another way");
                std::future::pending::<()>().await;
            }
        }
        self.stop.cancel();
    }
}

fn access(gateway: &Gateway, as_caller: Option<&Arc<Principal>>) -> Access {
    let snapshot = gateway.snapshot();
    let settings = &snapshot.settings;
    let public_url = settings.public_url.as_deref();
    let (boundary, bad) = Boundary::new(&settings.allowed_hosts, &settings.allowed_origins, public_url);
    for entry in bad {
        tracing::warn!(entry, "neither a host nor an origin; nobody is let in by it");
    }
    let callers = callers(&snapshot, as_caller);
    Access {
        boundary,
        callers,
        public_url: settings.public_url.clone(),
        issuer: settings.issuer.clone(),
        scopes_supported: settings.scopes_supported.clone(),
        audit: gateway.audit().clone(),
    }
}

/// The callers of a snapshot; with `as_caller` everybody is that one.
fn callers(snapshot: &Snapshot, as_caller: Option<&Arc<Principal>>) -> Arc<Authenticator> {
    match as_caller {
        None => Arc::clone(&snapshot.callers),
        Some(principal) => Arc::new(Authenticator::clone(&snapshot.callers).opened_as(Arc::clone(principal))),
    }
}

#[cfg(unix)]
async fn signal() -> io::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}

#[cfg(not(unix))]
async fn signal() -> io::Result<&'static str> {
    tokio::signal::ctrl_c().await.map(|()| "interrupt")
}
