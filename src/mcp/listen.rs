//! Notifications of changes: `subscriptions/listen` on the stateless wire, the session's stream on the other.
//!
//! A caller is told only when what it is shown has changed.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::core::{Exchange, Mcp};
use super::encode::{ResultWriter, notification};
use super::envelope::{Params, RequestId};
use super::error::{INTERNAL_ERROR, MISSING_CAPABILITY, RpcError};
use super::extensions::tasks_required;
use super::session::Session;
use super::streams::{Messages, StreamPlace, of_channel};
use super::subscriptions::{self, Subscriptions, UPDATED};
use super::topics::{Seen, Topic};
use crate::limits::SUBSCRIPTIONS_MAX;

/// Messages that wait for a slow reader of a stream.
const QUEUE: usize = 8;
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

#[derive(Deserialize)]
struct ListenParams {
    notifications: Map<String, Value>,
}

/// The member of the filter that names resources to watch.
const WATCHED: &str = "resourceSubscriptions";

/// The member of the filter that names tasks to follow (SEP-2663).
const TASKS: &str = "taskIds";
/// The notification that a followed task moved: what `tasks/get` would answer now.
const TASK_MOVED: &str = "notifications/tasks";

/// The tasks that a filter names; for clients that declared the extension.
fn asked_tasks(exchange: &Exchange, filter: &Map<String, Value>) -> Result<Vec<String>, RpcError> {
    let Some(asked) = filter.get(TASKS) else { return Ok(Vec::new()) };
    if !exchange.ctx.negotiated.tasks {
        let why = "`taskIds` are for clients that declare the extension `io.modelcontextprotocol/tasks`";
        return Err(RpcError::new(MISSING_CAPABILITY, why).data(tasks_required()));
    }
    let ids = asked.as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(ids.take(SUBSCRIPTIONS_MAX).map(str::to_owned).collect())
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
        let tasks = asked_tasks(&exchange, &filter)?;
        let mut topics = Topic::asked(&filter);
        topics.retain(|t| t.is_offered(&*self.service));
        let watched = self.watched(&exchange, filter.get(WATCHED));
        let place = self.streams.open(&exchange.ctx.principal.subject).ok_or_else(too_many)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(Arc::clone(self).run_listen(
            exchange,
            id.clone(),
            (topics, watched, tasks),
            sender,
            place,
        ));
        Ok(of_channel(receiver))
    }

    async fn run_listen(
        self: Arc<Self>,
        exchange: Exchange,
        id: RequestId,
        (topics, watched, tasks): (Vec<Topic>, Subscriptions, Vec<String>),
        sender: mpsc::Sender<Bytes>,
        _place: StreamPlace,
    ) {
        let mut changes = self.service.changes();
        changes.mark_unchanged();
        let mut news = self.service.gateway().map(crate::gateway::Gateway::resource_updates);
        let mut honoured: Map<String, Value> =
            topics.iter().map(|t| (t.filter().to_owned(), Value::Bool(true))).collect();
        let uris = watched.uris();
        if !uris.is_empty() {
            honoured.insert(WATCHED.to_owned(), json!(uris));
        }
        // Before the first look at the tasks: what moves between the two is still told.
        let mut moves = self.service.gateway().map(|gateway| gateway.jobs().moves());
        let tasks = self.followed_tasks(&exchange, &tasks).await;
        let followed: Vec<&str> = tasks.iter().map(|(id, _)| id.as_str()).collect();
        if !followed.is_empty() {
            honoured.insert(TASKS.to_owned(), json!(followed));
        }
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
        // One that has ended, or asks, moves no more by itself: its follower learns of it now.
        let still = tasks.iter().filter(|(_, task)| task.get("status").is_none_or(|s| s != "working"));
        next.extend(still.map(|(_, task)| tell(TASK_MOVED, task.clone())));
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
                        let end = ResultWriter::new(&id, 0).finish(exchange.revision, Some(&meta), &self.server_info());
                        // Nobody listens any more: then nobody misses it either.
                        sender.send(end).await.ok();
                        return;
                    }
                    changed = changes.changed(), if waits => {
                        if changed.is_err() {
                            return;
                        }
                    }
                    told = subscriptions::next(&mut news), if !uris.is_empty() => {
                        let updates = watched.told(&*self.service, &exchange.ctx, told);
                        break updates.into_iter().map(|params| tell(UPDATED, params)).collect();
                    }
                    moved = subscriptions::next(&mut moves), if !followed.is_empty() => {
                        break self.moved_tasks(&exchange, &followed, moved).await.into_iter()
                            .map(|task| tell(TASK_MOVED, task))
                            .collect();
                    }
                }
                let moved = seen.moved(&*self.service, &exchange.ctx);
                if !moved.is_empty() {
                    break moved.into_iter().map(|t| tell(t.notification(), json!({}))).collect();
                }
            };
        }
    }

    /// The followed tasks that news of a job is about, as they are now.
    async fn moved_tasks(
        &self,
        exchange: &Exchange,
        followed: &[&str],
        moved: Result<Arc<str>, RecvError>,
    ) -> Vec<Value> {
        let is_meant = |id: &str| match &moved {
            Ok(moved) => **moved == *id,
            // Some news was lost: any may have moved.
            Err(RecvError::Lagged(_)) => true,
            Err(RecvError::Closed) => false,
        };
        let mut tasks = Vec::new();
        for id in followed.iter().filter(|id| is_meant(id)) {
            tasks.extend(self.task_now(exchange, id).await);
        }
        tasks
    }

    /// The resources of a filter that this caller may know of; of the others nothing is said, neither that they
    /// are hidden nor that they are not there.
    fn watched(&self, exchange: &Exchange, asked: Option<&Value>) -> Subscriptions {
        let watched = Subscriptions::default();
        if let (Some(gateway), Some(Value::Array(uris))) = (self.service.gateway(), asked) {
            let known = uris.iter().filter_map(Value::as_str).take(SUBSCRIPTIONS_MAX);
            for uri in known.filter(|uri| gateway.shows_resource(&exchange.ctx, uri)) {
                watched.add(gateway, uri);
            }
        }
        watched
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
        let mut news = self.service.gateway().map(crate::gateway::Gateway::resource_updates);
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
            // News of watched resources changes no list: the lists are looked at again for what announces them.
            loop {
                tokio::select! {
                    () = sender.closed() => break 'open,
                    () = session.ended.cancelled() => break 'open,
                    () = self.drain.cancelled() => break 'open,
                    changed = changes.changed() => {
                        if changed.is_err() {
                            break 'open;
                        }
                        break;
                    }
                    told = subscriptions::next(&mut news) => {
                        if !session.is_newest_stream(number) {
                            continue;
                        }
                        for params in session.subscriptions.told(&*self.service, &exchange.ctx, told) {
                            if sender.send(notification(UPDATED, &params)).await.is_err() {
                                break 'open;
                            }
                        }
                    }
                }
            }
        }
        session.stream_closed(self.sessions.now_ms());
    }
}
