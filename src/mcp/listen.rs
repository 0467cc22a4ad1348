//! Notifications of changes: `subscriptions/listen` on the stateless wire, the session's stream on the other.
//!
//! A caller is told only when what it is shown has changed.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::core::{Exchange, Mcp};
use super::encode::{ResultWriter, notification};
use super::envelope::{Params, RequestId};
use super::error::{INTERNAL_ERROR, RpcError};
use super::session::Session;
use super::streams::{Messages, StreamPlace, of_channel};
use super::topics::{Seen, Topic};

/// Messages that wait for a slow reader of a stream.
const QUEUE: usize = 8;
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

#[derive(Deserialize)]
struct ListenParams {
    notifications: Map<String, Value>,
}

fn too_many() -> RpcError {
    RpcError::new(INTERNAL_ERROR, "too many event streams are open for this caller: close one first")
}

impl Mcp {
    /// `subscriptions/listen`: the acknowledgement, then what was asked for, until either side ends it.
    pub(super) fn listen(
        self: &Arc<Self>,
        exchange: Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Result<Messages, RpcError> {
        let topics = Topic::asked(&params.read::<ListenParams>()?.notifications);
        let place = self.streams.open(&exchange.ctx.principal.subject).ok_or_else(too_many)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(Arc::clone(self).run_listen(exchange, id.clone(), topics, sender, place));
        Ok(of_channel(receiver))
    }

    async fn run_listen(
        self: Arc<Self>,
        exchange: Exchange,
        id: RequestId,
        topics: Vec<Topic>,
        sender: mpsc::Sender<Bytes>,
        _place: StreamPlace,
    ) {
        let mut changes = self.service.changes();
        changes.mark_unchanged();
        let honoured: Map<String, Value> =
            topics.iter().map(|t| (t.filter().to_owned(), Value::Bool(true))).collect();
        let (waits, mut seen) = (!topics.is_empty(), Seen::now(topics, &*self.service, &exchange.ctx));
        let subscription = id.value();
        let tell = |method: &str, mut params: Value| {
            if let Some(members) = params.as_object_mut() {
                members.insert("_meta".to_owned(), json!({ SUBSCRIPTION_ID: subscription }));
            }
            notification(method, &params)
        };
        let mut next =
            vec![tell("notifications/subscriptions/acknowledged", json!({ "notifications": honoured }))];
        loop {
            for message in next {
                if sender.send(message).await.is_err() {
                    return;
                }
            }
            next = loop {
                tokio::select! {
                    () = sender.closed() => return,
                    () = exchange.ctx.cancel.cancelled() => return,
                    () = self.drain.cancelled() => {
                        let meta = json!({ SUBSCRIPTION_ID: subscription });
                        let end = ResultWriter::new(&id, 0).finish(exchange.revision, Some(meta), &self.server_info());
                        // Nobody listens any more: then nobody misses it either.
                        sender.send(end).await.ok();
                        return;
                    }
                    changed = changes.changed(), if waits => {
                        if changed.is_err() {
                            return;
                        }
                    }
                }
                let moved = seen.moved(&*self.service, &exchange.ctx);
                if !moved.is_empty() {
                    break moved.into_iter().map(|t| tell(t.notification(), json!({}))).collect();
                }
            };
        }
    }

    /// The event stream of a session: `list_changed`, also for a change that came while no stream was open.
    pub(super) fn session_stream(
        self: &Arc<Self>,
        exchange: Exchange,
        session: Arc<Session>,
    ) -> Result<Messages, RpcError> {
        let place = self.streams.open(&exchange.ctx.principal.subject).ok_or_else(too_many)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(Arc::clone(self).run_session_stream(exchange, session, sender, place));
        Ok(of_channel(receiver))
    }

    async fn run_session_stream(
        self: Arc<Self>,
        exchange: Exchange,
        session: Arc<Session>,
        sender: mpsc::Sender<Bytes>,
        _place: StreamPlace,
    ) {
        let number = session.stream_opened();
        let mut changes = self.service.changes();
        let mut just_opened = true;
        'open: loop {
            let first = std::mem::take(&mut just_opened);
            let now = Seen::now(Topic::told(session.negotiated), &*self.service, &exchange.ctx);
            for (topic, surface) in now.0 {
                if session.is_newest_stream(number) && session.must_tell(topic, surface, first) {
                    let message = notification(topic.notification(), &json!({}));
                    if sender.send(message).await.is_err() {
                        break 'open;
                    }
                }
            }
            tokio::select! {
                () = sender.closed() => break,
                () = session.ended.cancelled() => break,
                () = self.drain.cancelled() => break,
                changed = changes.changed() => if changed.is_err() { break },
            }
        }
        session.stream_closed(self.sessions.now_ms());
    }
}
