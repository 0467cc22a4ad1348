//! One run of a program: input written, output read within bounds, ended in time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

use crate::upstream::UpstreamError;
use crate::upstream::process::{Group, Tail};

/// How long the pipes of a program that has ended are still read.
const PIPE_GRACE: Duration = Duration::from_millis(200);

/// What bounds a run.
pub(super) struct Limits<'a> {
    pub(super) upstream: &'a str,
    pub(super) deadline: Instant,
    pub(super) cancel: &'a CancellationToken,
    pub(super) read_only: bool,
    pub(super) bytes: usize,
}

/// How a run ended.
pub(super) struct Ended {
    pub(super) stdout: Vec<u8>,
    /// The end of standard error, as text.
    pub(super) stderr: String,
    /// The exit code; `None` for a signal.
    pub(super) code: Option<i32>,
    /// Whether there was more output than allowed.
    pub(super) cut: bool,
}

/// Runs a started program to its end, or ends it with its whole group.
pub(super) async fn run(
    mut group: Group,
    input: Option<String>,
    limits: &Limits<'_>,
) -> Result<Ended, UpstreamError> {
    enum Stop {
        Done(Result<Ended, std::io::Error>),
        Cancelled,
        Late,
    }
    let stop = tokio::select! {
        done = to_the_end(&mut group, input, limits.bytes) => Stop::Done(done),
        () = limits.cancel.cancelled() => Stop::Cancelled,
        () = tokio::time::sleep_until(limits.deadline.into()) => Stop::Late,
    };
    // What a program left running behind it ends with the call.
    group.end().await;
    match stop {
        Stop::Done(ended) => {
            ended.map_err(|e| UpstreamError::lost(limits.upstream, "broke off", limits.read_only).detail(&e))
        }
        Stop::Cancelled => Err(UpstreamError::cancelled(true, limits.read_only)),
        Stop::Late => Err(UpstreamError::timeout(limits.upstream, true, limits.read_only)),
    }
}

async fn to_the_end(group: &mut Group, input: Option<String>, max: usize) -> std::io::Result<Ended> {
    let (stdin, stdout, stderr) =
        (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
    let (out, tail) = (Mutex::new(Vec::new()), Mutex::new(Tail::default()));
    let mut read = std::pin::pin!(read_capped(stdout, max, &out));
    let mut others = std::pin::pin!(async { tokio::join!(write_all(stdin, input), drain(stderr, &tail)) });
    let (mut read_done, mut others_done, mut status) = (false, false, None);
    let mut grace = std::pin::pin!(tokio::time::sleep(PIPE_GRACE));
    let cut = loop {
        tokio::select! {
            over = &mut read, if !read_done => {
                read_done = true;
                if over? {
                    break true;
                }
            }
            _ = &mut others, if !others_done => others_done = true,
            ended = group.child.wait(), if status.is_none() => {
                status = Some(ended?);
                grace.as_mut().reset(tokio::time::Instant::now() + PIPE_GRACE);
            }
            // A grandchild may hold the pipes open; what it might still say is not waited for.
            () = &mut grace, if status.is_some() => break false,
        }
        if read_done && others_done && status.is_some() {
            break false;
        }
    };
    let stdout = std::mem::take(&mut *out.lock().unwrap_or_else(PoisonError::into_inner));
    let stderr = tail.lock().unwrap_or_else(PoisonError::into_inner).text();
    Ok(Ended { stdout, stderr, code: status.and_then(|s| s.code()), cut })
}

async fn write_all(pipe: Option<ChildStdin>, text: Option<String>) {
    if let (Some(mut pipe), Some(text)) = (pipe, text) {
        // A program may end without reading all of its input.
        drop(pipe.write_all(text.as_bytes()).await);
    }
}

async fn drain(pipe: Option<ChildStderr>, tail: &Mutex<Tail>) {
    let mut buffer = [0u8; 4096];
    let Some(mut pipe) = pipe else { return };
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(buffer.get(..n).unwrap_or_default());
    }
}

/// Reads to the end or until there is more than `max`; `true` for the latter.
async fn read_capped(pipe: Option<ChildStdout>, max: usize, out: &Mutex<Vec<u8>>) -> std::io::Result<bool> {
    let Some(mut pipe) = pipe else { return Ok(false) };
    let mut buffer = vec![0u8; 16 * 1024];
    loop {
        let n = pipe.read(&mut buffer).await?;
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        let room = max - out.len();
        out.extend_from_slice(buffer.get(..n.min(room)).unwrap_or_default());
        match n {
            0 => return Ok(false),
            n if n > room => return Ok(true),
            _ => {}
        }
    }
}
