//! The accept loop. `axum::serve` has neither header timeouts nor a cap on connections, and both keep one
//! slow or greedy client from taking the server (RFC 9110 practice; many advisories).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEADER_TIME};

/// A pause after a failed accept: out of file descriptors is not mended by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets running requests end for at most `drain`. Event streams do not end by
/// themselves: tell [`crate::mcp::Mcp::drain`] too.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken, drain: Duration) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                connections.spawn(connection(stream, router.clone(), shutdown.clone(), place));
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(drain, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections cut off at the end of the drain time");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Without it every event of a stream waits some 40 ms for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    Ok((stream, place))
}

async fn connection(
    stream: TcpStream,
    router: Router,
    shutdown: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that breaks off, sends no HTTP or is too slow: its affair, not ours.
        tracing::debug!(%error, "a connection ended early");
    }
}
