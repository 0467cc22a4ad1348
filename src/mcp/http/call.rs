//! A `tools/call` over HTTP: plain JSON, unless progress was asked for and comes.
//!
//! The status is not settled before the first progress or the end, so a call that needs more scopes can
//! still be a 403, whatever the client asked for.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{FuturesUnordered, unfold};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use super::HttpReply;
use crate::limits::PROGRESS_QUEUE;
use crate::mcp::ask::{Asker, Questions};
use crate::mcp::core::{Answer, Exchange, Mcp};
use crate::mcp::envelope::{Params, RequestId};
use crate::mcp::methods::Method;
use crate::mcp::progress;

/// A call whose progress is being streamed.
struct Streaming {
    call: std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>,
    progress: mpsc::Receiver<Bytes>,
    id: RequestId,
    /// Whether the call has ended.
    ended: bool,
    /// Its answer, sent after what still waits in `progress`.
    last: Option<Bytes>,
    guard: Option<DropGuard>,
}

impl Streaming {
    /// The next message; `None` after the response.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.ended {
            tokio::select! {
                biased;
                Some(message) = self.progress.recv() => return Some(message),
                answer = &mut self.call => {
                    self.guard.take().map(DropGuard::disarm);
                    (self.ended, self.last) = (true, answer.message(&self.id));
                }
            }
        }
        match self.progress.try_recv() {
            Ok(message) => Some(message),
            Err(_) => self.last.take(),
        }
    }
}

impl Mcp {
    /// Runs a call, or waits for the result of one that is a task; `guard` cancels it when the client goes away (stateless wire only).
    pub(super) async fn post_call(
        self: &Arc<Self>,
        mut exchange: Exchange,
        id: RequestId,
        (method, params): (Method, Params),
        (token, questions): (Option<&RawValue>, Option<Arc<Questions>>),
        guard: Option<DropGuard>,
    ) -> HttpReply {
        let revision = exchange.revision;
        let progress = (token.is_some() || questions.is_some()).then(|| {
            let (sender, receiver) = mpsc::channel(PROGRESS_QUEUE);
            exchange.asker = questions.map(|questions| Asker { outbox: sender.clone(), questions });
            exchange.ctx.progress = token.map(|token| {
                // A full queue means a slow reader: the next report says more anyway.
                progress::sink(token, exchange.ctx.cancel.clone(), move |m| drop(sender.try_send(m)))
            });
            receiver
        });
        let (server, call_id) = (Arc::clone(self), id.clone());
        let mut call: std::pin::Pin<Box<dyn Future<Output = Answer> + Send>> = if method == Method::TaskResult
        {
            Box::pin(async move { server.task_result(exchange, &call_id, &params).await })
        } else {
            Box::pin(async move { server.call_tool(exchange, &call_id, &params).await })
        };
        let Some(mut progress) = progress else {
            let answer = when_woken(call).await;
            guard.map(DropGuard::disarm);
            return HttpReply::answer(revision, &id, answer);
        };
        let first = tokio::select! {
            biased;
            Some(message) = progress.recv() => message,
            answer = &mut call => {
                guard.map(DropGuard::disarm);
                let waiting = progress.try_recv();
                return match (waiting, answer) {
                    (Ok(first), Answer::Done(body)) => {
                        events(first, Streaming { call, progress, id, ended: true, last: Some(body), guard: None })
                    }
                    (_, answer) => HttpReply::answer(revision, &id, answer),
                };
            }
        };
        events(first, Streaming { call, progress, id, ended: false, last: None, guard })
    }
}

/// Polls a call only when something that it waits for has woken it. Its connection's task is woken for the request
/// body as well, twice as a rule, and each time the whole call would be asked in vain.
async fn when_woken(call: std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>) -> Answer {
    let mut only: FuturesUnordered<_> = std::iter::once(call).collect();
    // One was put in, so one comes out.
    only.next().await.unwrap_or(Answer::Cancelled)
}

fn events(first: Bytes, streaming: Streaming) -> HttpReply {
    let stream = unfold((Some(first), streaming), |(first, mut streaming)| async move {
        let message = match first {
            Some(message) => message,
            None => streaming.next().await?,
        };
        Some((message, (None, streaming)))
    });
    HttpReply::Events(Box::pin(stream))
}
