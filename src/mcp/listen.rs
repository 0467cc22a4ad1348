//! Notifications of changes: `subscriptions/listen` on the stateless wire, the session's stream on the other.
//!
//! A caller is told only when what it is shown has changed.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::core::{Exchange, Mcp};
use super::encode::{ResultWriter, notification};
use super::envelope::{Params, RequestId};
use super::error::{INTERNAL_ERROR, RpcError};
use super::session::Session;
use super::streams::{Messages, StreamPlace, of_channel};

/// Messages that wait for a slow reader of a stream.
const QUEUE: usize = 8;
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// The filter of `subscriptions/listen`. What is not named here is not honoured and not acknowledged.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Filter {
    tools_list_changed: Option<bool>,
}

#[derive(Deserialize)]
struct ListenParams {
    notifications: Filter,
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
        let filter = params.read::<ListenParams>()?.notifications;
        let place = self.streams.open(&exchange.ctx.principal.subject).ok_or_else(too_many)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(Arc::clone(self).run_listen(exchange, id.clone(), filter, sender, place));
        Ok(of_channel(receiver))
    }

    async fn run_listen(
        self: Arc<Self>,
        exchange: Exchange,
        id: RequestId,
        filter: Filter,
        sender: mpsc::Sender<Bytes>,
        _place: StreamPlace,
    ) {
        let mut changes = self.service.changes();
        changes.mark_unchanged();
        let mut surface = self.service.surface(&exchange.ctx);
        let subscription = id.value();
        let wants_tools = filter.tools_list_changed == Some(true);
        let honoured = if wants_tools { json!({ "toolsListChanged": true }) } else { json!({}) };
        let tell = |method: &str, mut params: Value| {
            if let Some(members) = params.as_object_mut() {
                members.insert("_meta".to_owned(), json!({ SUBSCRIPTION_ID: subscription }));
            }
            notification(method, &params)
        };
        let mut next = tell("notifications/subscriptions/acknowledged", json!({ "notifications": honoured }));
        loop {
            if sender.send(next).await.is_err() {
                return;
            }
            loop {
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
                    changed = changes.changed(), if wants_tools => {
                        if changed.is_err() {
                            return;
                        }
                    }
                }
                let now = self.service.surface(&exchange.ctx);
                if std::mem::replace(&mut surface, now) != now {
                    break;
                }
            }
            next = tell(TOOLS_CHANGED, json!({}));
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
        loop {
            let surface = self.service.surface(&exchange.ctx);
            if session.is_newest_stream(number)
                && session.must_tell(surface, std::mem::take(&mut just_opened))
            {
                let message = notification(TOOLS_CHANGED, &json!({}));
                if sender.send(message).await.is_err() {
                    break;
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
