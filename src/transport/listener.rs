//! The accept loop. `axum::serve` has neither header timeouts nor a cap on connections, and both keep one
//! slow or greedy client from taking the server (RFC 9110 practice; many advisories).

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Front, Lanes};
use crate::eager::{Habit, Pause};
use crate::limits::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEADER_TIME};

/// A pause after a failed accept: out of file descriptors is not mended by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets running requests end for at most `drain`. Event streams do not end by
/// themselves: tell [`crate::mcp::Mcp::drain`] too.
pub async fn serve(
    listener: TcpListener,
    front: Front,
    lanes: &Lanes,
    shutdown: CancellationToken,
    drain: Duration,
) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let served = connection(stream, front.clone(), shutdown.clone(), place);
                match lanes.next() {
                    Some(lane) => drop(connections.spawn_on(served, lane)),
                    None => drop(connections.spawn(served)),
                }
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
) -> io::Result<(std::net::TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Without it every event of a stream waits some 40 ms for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    // Taken from this reactor: the lane that serves it has its own.
    Ok((stream.into_std()?, place))
}

async fn connection(
    stream: std::net::TcpStream,
    front: Front,
    shutdown: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let habit = Habit::default();
    // Since the last answer, until the next request.
    let pause = Mutex::new(None);
    let answer = service_fn(|request: hyper::Request<Incoming>| {
        if let Some(pause) = lock(&pause).take() {
            Pause::ended(pause);
        }
        // Boxed at once: hyper moves what it is given several times, and this is two kilobytes.
        let answered = Box::pin(front.clone().answer(request.map(Body::new)));
        let (habit, pause) = (&habit, &pause);
        async move {
            let response = answered.await;
            *lock(pause) = Some(habit.pause());
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let served = std::future::poll_fn(|cx| {
        let polled = connection.as_mut().poll(cx);
        if let (true, Some(pause)) = (polled.is_pending(), lock(&pause).as_mut()) {
            pause.look_again_if_idle(cx);
        }
        polled
    });
    let ended = tokio::select! {
        ended = served => ended,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
