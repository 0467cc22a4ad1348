//! The resources that one client watches: of a session, of a pipe, of one `subscriptions/listen`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::service::Service;
use crate::gateway::{Gateway, RequestContext, Watched};
use crate::limits::SUBSCRIPTIONS_MAX;

/// The notification that a watched resource changed. It has no payload: reading says what there is now.
pub(super) const UPDATED: &str = "notifications/resources/updated";

/// Watched resources by address.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<BTreeMap<Arc<str>, Watched>>);

impl Subscriptions {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a resource; `false` where there are too many already. Twice is once.
    pub(super) fn add(&self, gateway: &Gateway, uri: &str) -> bool {
        let mut all = self.all();
        if all.contains_key(uri) {
            return true;
        }
        if all.len() >= SUBSCRIPTIONS_MAX {
            return false;
        }
        all.insert(Arc::from(uri), gateway.watch_resource(uri));
        true
    }

    /// Watches it no more.
    pub(super) fn remove(&self, uri: &str) {
        self.all().remove(uri);
    }

    /// The addresses that are watched.
    pub(super) fn uris(&self) -> Vec<Arc<str>> {
        self.all().keys().cloned().collect()
    }

    /// The addresses that the news is for and that the caller may (still) know of, as parameters of [`UPDATED`].
    pub(super) fn told(
        &self,
        service: &dyn Service,
        ctx: &RequestContext,
        news: Result<Arc<str>, RecvError>,
    ) -> Vec<Value> {
        let uris: Vec<Arc<str>> = match news {
            Ok(uri) => self.all().get_key_value(&uri).map(|(uri, _)| Arc::clone(uri)).into_iter().collect(),
            // Some news was lost: whatever is watched may have changed.
            Err(RecvError::Lagged(_)) => self.all().keys().cloned().collect(),
            Err(RecvError::Closed) => Vec::new(),
        };
        let Some(gateway) = service.gateway() else { return Vec::new() };
        let shown = uris.into_iter().filter(|uri| gateway.shows_resource(ctx, uri));
        shown.map(|uri| json!({ "uri": &*uri })).collect()
    }
}

/// The next news of watched resources; never, where there is no gateway to bring any.
pub(super) async fn next(news: &mut Option<broadcast::Receiver<Arc<str>>>) -> Result<Arc<str>, RecvError> {
    let told = match news {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    };
    if matches!(told, Err(RecvError::Closed)) {
        *news = None;
    }
    told
}
