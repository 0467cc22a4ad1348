//! What runs beside the requests: the watch on the home, the upstreams' news, announcements; and the end.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::App;
use crate::search::sentence::Sense;

/// Upstreams that come up one after the other make one generation, not ten.
const GATHER: Duration = Duration::from_millis(100);
/// How long jobs may take to tell their upstreams that they end. One that runs on is found lost by the next process.
const JOBS_END: Duration = Duration::from_secs(2);
/// How often expired rows are taken out of the state: they are never handed out, this only makes room.
const STORE_SWEEP: Duration = Duration::from_mins(5);

impl App {
    /// Keeps the home up to date until the app is closed: edits are reloaded
    /// (where [`Options::watch`](super::Options::watch) asked for it), upstreams are connected to and
    /// listed again, changes are announced.
    pub fn keep(self: &Arc<Self>) {
        let app = Arc::clone(self);
        self.tasks.spawn(async move { app.follow_edits().await });
        let app = Arc::clone(self);
        self.tasks.spawn(async move { app.follow_upstreams().await });
        let app = Arc::clone(self);
        self.tasks.spawn(async move { app.registry.keep_fresh(app.stop.clone()).await });
        if let Some(jwt) = self.gateway.snapshot().callers.verifier().cloned() {
            self.tasks.spawn(async move { jwt.warm().await });
        }
        let (gateway, stop) = (self.gateway.clone(), self.stop.clone());
        self.tasks.spawn(async move { gateway.announce_changes(stop).await });
        let (gateway, stop) = (self.gateway.clone(), self.stop.clone());
        self.tasks.spawn(async move { gateway.follow_resources(stop).await });
        let app = Arc::clone(self);
        self.tasks.spawn(async move { app.follow_meanings().await });
        let app = Arc::clone(self);
        self.tasks.spawn(async move { app.sweep_store().await });
        let (gateway, stop) = (self.gateway.clone(), self.stop.clone());
        self.tasks.spawn(async move { gateway.jobs().follow_wishes(stop).await });
    }

    /// Takes out of the state what has expired.
    async fn sweep_store(&self) {
        loop {
            if let Err(error) = self.gateway.store().sweep(self.options.clock.unix_ms()).await {
                tracing::warn!(error = %error, "what has expired could not be taken out of the state");
            }
            if let Err(error) = self.gateway.files().sweep().await {
                tracing::warn!(error = %error, "the bytes of files that are gone could not be removed");
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(STORE_SWEEP) => {}
            }
        }
    }

    /// Has the sentence model read whatever a generation brings that it has not read.
    async fn follow_meanings(&self) {
        let mut changes = self.publisher.subscribe();
        loop {
            changes.mark_unchanged();
            if let Sense::Waiting(tools) = self.publisher.current().sense {
                tracing::info!(tools, "the sentence model reads tools; until then the shipped table ranks");
                let stop = self.stop.clone();
                self.embed(move |_, _| !stop.is_cancelled()).await;
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                change = changes.changed() => if change.is_err() { return },
            }
        }
    }

    async fn follow_edits(&self) {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut watch) = watch else { return };
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                edit = watch.changed() => if edit.is_none() { return },
            }
            // Both outcomes are logged and kept where they are asked for.
            self.reload().await.ok();
        }
    }

    async fn follow_upstreams(&self) {
        let mut changes = self.registry.changes();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                change = changes.changed() => if change.is_err() { return },
            }
            tokio::time::sleep(GATHER).await;
            changes.mark_unchanged();
            self.refresh().await;
        }
    }

    /// Ends everything: background tasks first, then the upstreams' connections and processes. Waits at most
    /// `patience` for calls under way.
    pub async fn close(&self, patience: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(patience, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                waited_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
                "calls were still under way when the server ended"
            );
        }
        self.gateway.jobs().drain(JOBS_END).await;
        self.registry.close().await;
        let audit = self.gateway.audit().clone();
        tokio::task::spawn_blocking(move || audit.flush()).await.ok();
    }
}
