//! What an MCP server says by itself: that its lists changed, that a watched resource did. And which resources
//! are watched, so that a new connection watches them again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use tokio::sync::{broadcast, watch};

use super::rpc::Message;
use crate::json;

/// Updates that wait for a slow reader; one that falls behind reads everything anew.
const UPDATES: usize = 256;

/// Shared by a server's connections, one after the other.
#[derive(Debug)]
pub(super) struct Signals {
    changed: AtomicBool,
    updates: broadcast::Sender<Arc<str>>,
    /// Addresses and how many watch each.
    watched: Mutex<BTreeMap<Arc<str>, usize>>,
    /// Counts changes of the set.
    set: watch::Sender<u64>,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            changed: AtomicBool::new(false),
            updates: broadcast::channel(UPDATES).0,
            watched: Mutex::default(),
            set: watch::channel(0).0,
        }
    }
}

impl Signals {
    fn watched_set(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, usize>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that some list changed.
    pub(super) fn mark_changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Whether some list changed since [`Signals::forget_change`].
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// The lists are about to be walked.
    pub(super) fn forget_change(&self) {
        self.changed.store(false, Ordering::Relaxed);
    }

    /// Tells of watched resources that changed, by the server's own addresses.
    pub(super) fn updates(&self) -> broadcast::Receiver<Arc<str>> {
        self.updates.subscribe()
    }

    /// Fires when the set of watched resources changes.
    pub(super) fn set_changes(&self) -> watch::Receiver<u64> {
        self.set.subscribe()
    }

    /// Watches a resource once more; whether it is the first time.
    pub(super) fn watch(&self, uri: &str) -> bool {
        let mut set = self.watched_set();
        let count = set.entry(Arc::from(uri)).or_default();
        *count += 1;
        let first = *count == 1;
        drop(set);
        if first {
            self.set.send_modify(|n| *n += 1);
        }
        first
    }

    /// Watches it once less; whether nobody is left.
    pub(super) fn unwatch(&self, uri: &str) -> bool {
        let mut set = self.watched_set();
        let Some(count) = set.get_mut(uri) else { return false };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        set.remove(uri);
        drop(set);
        self.set.send_modify(|n| *n += 1);
        true
    }

    /// What is watched now.
    pub(super) fn watched(&self) -> Vec<Arc<str>> {
        self.watched_set().keys().cloned().collect()
    }

    /// Takes note of a notification; whether it was one of these.
    pub(super) fn note(&self, message: &Message<'_>) -> bool {
        #[derive(Deserialize)]
        struct Updated {
            uri: String,
        }
        match message.method.as_deref() {
            Some(
                "notifications/tools/list_changed"
                | "notifications/resources/list_changed"
                | "notifications/prompts/list_changed",
            ) => self.mark_changed(),
            Some("notifications/resources/updated") => {
                let updated = message.params.and_then(|p| serde_json::from_str::<Updated>(p).ok());
                let Some(Updated { uri }) = updated else { return true };
                // A server may tell of a part of what is watched; whoever watches the whole wants to know.
                let whole = self.watched_set().keys().rfind(|w| uri.starts_with(&***w)).cloned();
                if let Some(whole) = whole {
                    // Nobody listens: then nobody misses it.
                    self.updates.send(whole).ok();
                }
            }
            _ => return false,
        }
        true
    }

    /// The filter of `subscriptions/listen` (MCP 2026-07-28, subscriptions), as the inside of `params`.
    pub(super) fn filter(&self) -> String {
        let watched = self.watched();
        let resources = if watched.is_empty() {
            String::new()
        } else {
            format!(r#","resourceSubscriptions":{}"#, json::to_text(&watched))
        };
        format!(
            r#""notifications":{{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true{resources}}}"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(signals: &Signals, text: &str) -> bool {
        signals.note(&Message::all(text)[0])
    }

    #[test]
    fn only_watched_resources_are_told_of_and_each_set_is_announced_once() {
        let signals = Signals::default();
        let (mut updates, mut sets) = (signals.updates(), signals.set_changes());
        assert!(signals.watch("a://x") && !signals.watch("a://x"));
        assert!(sets.has_changed().unwrap());
        sets.mark_unchanged();
        let update = r#"{"method":"notifications/resources/updated","params":{"uri":"a://x/part"}}"#;
        assert!(note(&signals, update));
        assert_eq!(&*updates.try_recv().unwrap(), "a://x");
        assert!(note(&signals, &update.replace("a://x", "b://y")));
        assert!(updates.try_recv().is_err());
        assert!(!signals.unwatch("a://x") && !sets.has_changed().unwrap());
        assert!(signals.unwatch("a://x") && sets.has_changed().unwrap());
        assert!(!signals.unwatch("a://x"));
    }

    #[test]
    fn every_changed_list_counts_and_the_filter_is_json() {
        let signals = Signals::default();
        assert!(
            note(&signals, r#"{"method":"notifications/prompts/list_changed"}"#) && signals.has_changed()
        );
        assert!(!note(&signals, r#"{"method":"notifications/progress"}"#));
        signals.watch("a://\"x");
        let filter: serde_json::Value = serde_json::from_str(&format!("{{{}}}", signals.filter())).unwrap();
        assert_eq!(filter["notifications"]["resourceSubscriptions"][0], "a://\"x");
    }
}
