//! HTTP/1.1 connections that are polled inside the task that uses them: a call costs no hop to another task
//! and no channel to a pool. An idle connection is looked at when it is taken out, so one that the other
//! side has closed is found before anything is sent on it.
//!
//! Connections stay with the thread whose reactor they were opened on (the lanes of `transport`): an answer
//! that comes back on another thread costs a wake-up across cores.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};

use crate::clock::Clock;
use crate::eager::Habit;
use crate::limits;

/// An idle connection is not used again after this long: servers commonly close after 60 to 75 s.
const IDLE: Duration = Duration::from_secs(50);
/// The runtime of this task, and so its reactor.
fn home() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Io = TokioIo<Box<dyn Stream>>;

/// A connection and the half that sends on it.
struct Live {
    sender: SendRequest<Full<Bytes>>,
    connection: Pin<Box<Connection<Io, Full<Bytes>>>>,
    ended: bool,
    /// The runtime whose reactor tells of it.
    home: Option<Id>,
}

impl Live {
    fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.ended && self.connection.as_mut().poll(cx).is_ready() {
            self.ended = true;
        }
    }
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum SendFault {
    /// Nothing was sent.
    Connect(String),
    /// It was sent, or may have been.
    Lost(String),
}

/// Connections to one address.
pub(super) struct Pool {
    host: String,
    port: u16,
    tls: Option<tokio_rustls::TlsConnector>,
    idle: Mutex<Vec<(Live, Instant)>>,
    idle_max: usize,
    clock: Clock,
    habit: Habit,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool for an `http` or `https` address. The error tells why TLS cannot be used here.
    pub(super) fn new(url: &url::Url, idle_max: usize, clock: Clock) -> Result<Self, String> {
        let tls = match url.scheme() {
            "https" => {
                crate::upstream::http::install_crypto();
                let mut config = rustls::ClientConfig::with_platform_verifier().map_err(|e| e.to_string())?;
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                Some(tokio_rustls::TlsConnector::from(Arc::new(config)))
            }
            _ => None,
        };
        Ok(Self {
            host: url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default().unwrap_or(80),
            tls,
            idle: Mutex::new(Vec::new()),
            idle_max,
            clock,
            habit: Habit::default(),
        })
    }

    /// Sends a request. A kept connection that turns out to be closed before anything was sent on it is
    /// replaced by a new one.
    pub(super) async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Exchange<'_>, SendFault> {
        loop {
            let (mut live, kept) = match self.take() {
                Some(live) => (live, true),
                // Boxed: most calls find a connection and need not carry the room for making one.
                None => (Box::pin(self.connect()).await.map_err(SendFault::Connect)?, false),
            };
            let mut response = std::pin::pin!(live.sender.try_send_request(request));
            let (connection, ended) = (&mut live.connection, &mut live.ended);
            let sent = self.habit.answer(|cx| {
                if !*ended && connection.as_mut().poll(cx).is_ready() {
                    *ended = true;
                }
                response.as_mut().poll(cx)
            });
            match sent.await {
                Ok(response) => return Ok(Exchange { pool: self, live: Some(live), response }),
                Err(mut e) => match e.take_message() {
                    Some(unsent) if kept => request = unsent,
                    Some(_) => return Err(SendFault::Connect(e.into_error().to_string())),
                    None => return Err(SendFault::Lost(super::super::http::chain(&e.into_error()))),
                },
            }
        }
    }

    /// A kept connection of this thread that is still open.
    fn take(&self) -> Option<Live> {
        let home = home();
        loop {
            let (mut live, since) = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                let own = idle.iter().rposition(|(live, _)| live.home == home)?;
                idle.remove(own)
            };
            if self.clock.now().saturating_duration_since(since) > IDLE {
                continue;
            }
            // It is only looked at. With the call's own waker, sending on it would wake the call once in vain.
            live.drive(&mut Context::from_waker(Waker::noop()));
            if !live.ended && live.sender.is_ready() {
                return Some(live);
            }
        }
    }

    fn keep(&self, live: Live) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= self.idle_max {
            // The one that has waited longest, maybe for a thread that has gone.
            drop(idle.remove(0));
        }
        idle.push((live, self.clock.now()));
    }

    async fn connect(&self) -> Result<Live, String> {
        let opening = async {
            let tcp = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|e| e.to_string())?;
            tcp.set_nodelay(true).map_err(|e| e.to_string())?;
            let stream: Box<dyn Stream> = match &self.tls {
                None => Box::new(tcp),
                Some(tls) => {
                    let name = rustls::pki_types::ServerName::try_from(self.host.clone())
                        .map_err(|e| e.to_string())?;
                    Box::new(tls.connect(name, tcp).await.map_err(|e| e.to_string())?)
                }
            };
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())
        };
        let opened = tokio::time::timeout(limits::CONNECT_TIMEOUT, opening).await;
        let (sender, connection) = opened.map_err(|_late| "no connection in time".to_owned())??;
        Ok(Live { sender, connection: Box::pin(connection), ended: false, home: home() })
    }
}

/// A response under way. Dropping it before its end closes the connection, which cancels the request.
pub(super) struct Exchange<'a> {
    pool: &'a Pool,
    live: Option<Live>,
    response: Response<Incoming>,
}

impl Exchange<'_> {
    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next part of the body; `None` at its end, after which the connection is kept for others.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let Some(live) = &mut self.live else { return Ok(None) };
            let body = self.response.body_mut();
            let frame = std::future::poll_fn(|cx| {
                let first = Pin::new(&mut *body).poll_frame(cx);
                if first.is_ready() {
                    return first;
                }
                live.drive(cx);
                Pin::new(&mut *body).poll_frame(cx)
            })
            .await;
            match frame {
                None => {
                    self.finish();
                    return Ok(None);
                }
                Some(Err(e)) => return Err(super::super::http::chain(&e)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Gives the connection back. It is driven to its rest when it is taken again: here the answer still holds the
    /// buffer that it was read into, and the next read would begin with a new one.
    fn finish(&mut self) {
        let closes = self.header("connection").is_some_and(|how| how.eq_ignore_ascii_case("close"));
        if let Some(live) = self.live.take().filter(|live| !live.ended && !closes) {
            self.pool.keep(live);
        }
    }

    /// The whole body, at most `max` bytes. `Ok(None)` means that there is more.
    pub(super) async fn read(&mut self, max: usize) -> Result<Option<Bytes>, String> {
        let announced = self.header("content-length").and_then(|n| n.parse::<usize>().ok());
        if announced.is_some_and(|n| n > max) {
            return Ok(None);
        }
        let Some(first) = self.chunk().await? else { return Ok(Some(Bytes::new())) };
        if first.len() > max {
            return Ok(None);
        }
        let Some(second) = self.chunk().await? else { return Ok(Some(first)) };
        let mut all = Vec::with_capacity(announced.unwrap_or(first.len() + second.len()));
        all.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(part) = next {
            if all.len() + part.len() > max {
                return Ok(None);
            }
            all.extend_from_slice(&part);
            next = self.chunk().await?;
        }
        Ok(Some(all.into()))
    }
}
