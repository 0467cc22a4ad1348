//! The current snapshot, swapped whole; who waits for a new one; why the last reload failed.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::diagnostic::Diagnostics;
use crate::id::Generation;

use super::Snapshot;

/// Holds the current snapshot and the mistakes of a reload that did not become one.
#[derive(Debug)]
pub struct Publisher {
    current: ArcSwap<Snapshot>,
    changes: watch::Sender<Generation>,
    failed: Mutex<Option<Arc<Diagnostics>>>,
}

impl Publisher {
    /// Starts with a first snapshot.
    pub fn new(first: Snapshot) -> Self {
        let (changes, _) = watch::channel(first.generation);
        Self { current: ArcSwap::from_pointee(first), changes, failed: Mutex::new(None) }
    }

    /// The current snapshot. Take it once per request.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Makes a snapshot of an edited home the current one and forgets an earlier failure.
    pub fn publish(&self, snapshot: Snapshot) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.refresh(snapshot);
    }

    /// Makes a snapshot of the same home the current one: an upstream brought other tools. A failed edit
    /// is still not mended.
    pub fn refresh(&self, snapshot: Snapshot) {
        let generation = snapshot.generation;
        self.current.store(Arc::new(snapshot));
        self.changes.send_replace(generation);
    }

    /// Keeps the mistakes of a reload that failed; the current snapshot stays.
    pub fn fail(&self, diagnostics: Diagnostics) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(diagnostics));
    }

    /// The mistakes of the last reload, while they are not mended.
    pub fn failure(&self) -> Option<Arc<Diagnostics>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells of every generation published from now on.
    pub fn subscribe(&self) -> watch::Receiver<Generation> {
        self.changes.subscribe()
    }
}
