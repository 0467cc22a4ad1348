//! The pipe: one message a line. Standard output carries nothing else.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, BufWriter,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::limits::{STDIO_DRAIN_TIME, STDIO_LINE_BYTES_MAX};
use crate::mcp::{Mcp, StdioPeer, single_line};
use crate::policy::{DiscoveryMode, Principal};

/// Messages that wait for a slow reader at the other end.
const QUEUE: usize = 64;

/// Serves one client over a pipe until it ends or `shutdown` fires. Calls that still run then may end for a
/// moment.
pub async fn run_stdio(
    mcp: Arc<Mcp>,
    principal: Arc<Principal>,
    discovery: Option<DiscoveryMode>,
    (input, output): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + Send + 'static),
    shutdown: CancellationToken,
) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let writer = tokio::spawn(write(output, receiver));
    let peer = StdioPeer::new(mcp, principal, discovery, sender);
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    let read = loop {
        let read = tokio::select! {
            read = read_line(&mut input, &mut line) => read,
            () = shutdown.cancelled() => break Ok(()),
        };
        match read {
            Ok(Line::Whole) => peer.line(&line).await,
            Ok(Line::TooLong) => peer.oversized(STDIO_LINE_BYTES_MAX).await,
            Ok(Line::End) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    peer.finish(STDIO_DRAIN_TIME).await;
    drop(peer);
    let written = writer.await.map_err(io::Error::other).and_then(|w| w);
    // A client that closed its end wants no more answers.
    read.and(written.or_else(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e) }))
}

async fn write(output: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<Bytes>) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    while let Some(message) = messages.recv().await {
        output.write_all(&single_line(message)).await?;
        output.write_all(b"\n").await?;
        if messages.is_empty() {
            output.flush().await?;
        }
    }
    output.flush().await
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads one line into `line`, without its end. A line beyond the limit is read past and not kept.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    let mut too_long = false;
    loop {
        let chunk = input.fill_buf().await?;
        if chunk.is_empty() {
            let nothing = line.is_empty() && !too_long;
            return Ok(if nothing {
                Line::End
            } else if too_long {
                Line::TooLong
            } else {
                Line::Whole
            });
        }
        let (part, ended) = match chunk.iter().position(|b| *b == b'\n') {
            Some(at) => (chunk.get(..at).unwrap_or_default(), true),
            None => (chunk, false),
        };
        too_long |= line.len() + part.len() > STDIO_LINE_BYTES_MAX;
        if too_long {
            line.clear();
        } else {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(ended);
        input.consume(used);
        if ended {
            return Ok(if too_long { Line::TooLong } else { Line::Whole });
        }
    }
}
