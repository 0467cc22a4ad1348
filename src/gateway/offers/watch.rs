//! Watching resources: who watches what, and what is told when it changed.
//!
//! A pack's own resources change with the home; those of MCP upstreams when the upstream says so. Upstreams are
//! asked to tell by one task, which follows the set of what is watched and the adapters of each generation.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

use super::super::Gateway;
use crate::catalog::{of_upstream, upstream_uri};
use crate::cursor::Digest;
use crate::snapshot::Snapshot;
use crate::upstream::{Upstream, UpstreamSet};

/// Updates that wait for a slow session; one that falls behind is told of all that it watches.
const UPDATES: usize = 1_024;

/// What is watched, by address, and the news of it.
#[derive(Debug)]
pub(in super::super) struct Watches {
    counts: Mutex<BTreeMap<Arc<str>, usize>>,
    moved: Notify,
    news: broadcast::Sender<Arc<str>>,
}

impl Default for Watches {
    fn default() -> Self {
        let (news, _) = broadcast::channel(UPDATES);
        Self { counts: Mutex::default(), moved: Notify::new(), news }
    }
}

impl Watches {
    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One watched resource; it is watched until this is dropped.
#[derive(Debug)]
pub struct Watched {
    watches: Arc<Watches>,
    uri: Arc<str>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut counts = self.watches.counts();
        if let Some(count) = counts.get_mut(&self.uri) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uri);
                self.watches.moved.notify_one();
            }
        }
    }
}

/// An adapter's own stream of news.
type News = (Arc<str>, broadcast::Receiver<Arc<str>>);

impl Gateway {
    /// Begins to watch a resource. Whether the caller may know of it is for
    /// [`Gateway::shows_resource`], now and whenever there is news.
    pub fn watch_resource(&self, uri: &str) -> Watched {
        let (watches, uri) = (Arc::clone(self.watches()), Arc::<str>::from(uri));
        *watches.counts().entry(Arc::clone(&uri)).or_default() += 1;
        watches.moved.notify_one();
        Watched { watches, uri }
    }

    /// Tells of watched resources that changed, by address.
    pub fn resource_updates(&self) -> broadcast::Receiver<Arc<str>> {
        self.watches().news.subscribe()
    }

    /// Tells that a resource changed, if anybody watches it.
    pub(in super::super) fn resource_changed(&self, uri: &str) {
        let watches = self.watches();
        let known = watches.counts().get_key_value(uri).map(|(uri, _)| Arc::clone(uri));
        if let Some(uri) = known {
            // Nobody listens just now: then the next read says it.
            watches.news.send(uri).ok();
        }
    }

    /// Follows what is watched, the generations and the upstreams until `stop` fires.
    pub async fn follow_resources(&self, stop: CancellationToken) {
        let mut published = self.publisher().subscribe();
        let mut snapshot = self.snapshot();
        let mut asked: HashMap<Arc<str>, Arc<dyn Upstream>> = HashMap::new();
        let mut news = all_news(&snapshot.upstreams);
        loop {
            let mut waiting: FuturesUnordered<_> = news.iter_mut().map(next).collect();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.watches().moved.notified() => {}
                more = published.changed() => {
                    if more.is_err() {
                        return;
                    }
                    drop(waiting);
                    let now = self.snapshot();
                    self.tell_edits(&snapshot, &now);
                    snapshot = now;
                    news = all_news(&snapshot.upstreams);
                }
                Some((upstream, told)) = waiting.next() => {
                    drop(waiting);
                    match told {
                        Ok(origin) => self.resource_changed(&upstream_uri(&upstream, &origin)),
                        // Some news was lost: all of this upstream may have changed.
                        Err(broadcast::error::RecvError::Lagged(_)) => {
                            let of = upstream_uri(&upstream, "");
                            let watched: Vec<Arc<str>> = self.watches().counts().keys().cloned().collect();
                            let these = watched.iter().filter(|uri| uri.starts_with(&of));
                            these.for_each(|uri| self.resource_changed(uri));
                        }
                        Err(broadcast::error::RecvError::Closed) => news.retain(|(id, _)| *id != upstream),
                    }
                    continue;
                }
            }
            self.ask_to_tell(&snapshot.upstreams, &mut asked);
        }
    }

    /// Resources of packs that an edit of the home changed or took away.
    fn tell_edits(&self, before: &Snapshot, now: &Snapshot) {
        if before.offers.digest == now.offers.digest {
            return;
        }
        let digest = |snapshot: &Snapshot, uri: &str| -> Option<Digest> {
            match snapshot.offers.find(uri) {
                Some(crate::snapshot::Found::Resource(resource, _)) => Some(resource.digest),
                _ => None,
            }
        };
        let watched: Vec<Arc<str>> = self.watches().counts().keys().cloned().collect();
        for uri in watched.iter().filter(|uri| digest(before, uri) != digest(now, uri)) {
            self.resource_changed(uri);
        }
    }

    /// Asks upstreams to tell of what is watched now, and no longer of what is not.
    fn ask_to_tell(&self, set: &UpstreamSet, asked: &mut HashMap<Arc<str>, Arc<dyn Upstream>>) {
        let wanted: Vec<Arc<str>> = self.watches().counts().keys().cloned().collect();
        asked.retain(|uri, adapter| {
            let Some((upstream, origin)) = of_upstream(uri) else { return false };
            let same = set.get(upstream).is_some_and(|now| Arc::ptr_eq(now, adapter));
            let keep = same && wanted.binary_search(uri).is_ok();
            if !keep {
                adapter.watch(origin, false);
            }
            keep
        });
        for uri in wanted {
            let Some((upstream, origin)) = of_upstream(&uri) else { continue };
            let Some(adapter) = set.get(upstream).filter(|_| !asked.contains_key(&uri)) else { continue };
            if adapter.watch(origin, true) {
                asked.insert(Arc::clone(&uri), Arc::clone(adapter));
            }
        }
    }
}

fn all_news(set: &UpstreamSet) -> Vec<News> {
    let of = |id: &crate::id::UpstreamId| Some((Arc::from(id.as_str()), set.get(id.as_str())?.updates()?));
    set.ids().filter_map(of).collect()
}

async fn next((upstream, news): &mut News) -> (Arc<str>, Result<Arc<str>, broadcast::error::RecvError>) {
    (Arc::clone(upstream), news.recv().await)
}
