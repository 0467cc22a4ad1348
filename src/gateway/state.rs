//! What the server says of itself: readiness, and that surfaces may have changed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::diagnostic::Severity;
use crate::snapshot::Snapshot;
use crate::upstream::{UpstreamState, UpstreamStatus};

use super::{Gateway, Readiness};

/// Between two announcements: an upstream that comes up, or an edit with many saves, is one change to clients.
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(500);

impl Gateway {
    /// Whether the server does its work: every upstream is there and the last reload succeeded.
    pub fn readiness(&self) -> Readiness {
        let snapshot = self.snapshot();
        let failure = self.publisher().failure();
        let upstreams = snapshot.upstreams.statuses();
        let mut reasons = Vec::new();
        if let Some(failure) = &failure {
            reasons.push(format!(
                "the last edit of the home has {} error(s); the generation before it serves on",
                failure.count(Severity::Error)
            ));
        }
        reasons.extend(snapshot.callers.verifier().and_then(crate::auth::JwtVerifier::key_failure));
        let audit = self.audit().status();
        if !audit.failure.is_empty() {
            reasons.push(format!(
                "the audit cannot be written, {} record(s) are lost: {}",
                audit.lost, audit.failure
            ));
        }
        reasons.extend(upstreams.iter().filter_map(|status| degraded(status, snapshot.lists(&status.id))));
        Readiness {
            ready: reasons.is_empty(),
            generation: snapshot.generation,
            reasons,
            diagnostics: failure.map(|d| d.0.clone()).unwrap_or_default(),
            upstreams,
        }
    }

    /// Announces published generations to [`Gateway::changes`] until `stop` fires: at once, then not again for
    /// half a second; a generation in which nobody can see a difference is not announced.
    pub async fn announce_changes(&self, stop: CancellationToken) {
        let mut published = self.publisher().subscribe();
        let mut agents = self.agent_changes();
        let state = |now: &Snapshot| (now.state, now.offers.digest, self.agent_definitions(now));
        let mut shown = state(&self.snapshot());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                more = published.changed() => if more.is_err() { return },
                more = agents.changed() => if more.is_err() { return },
            }
            let now = self.snapshot();
            if std::mem::replace(&mut shown, state(&now)) != shown {
                self.announced().send_replace(now.generation);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(ANNOUNCE_PAUSE) => {}
            }
        }
    }
}

/// `listed` tells whether the generation that serves was built with the upstream's tools.
fn degraded(status: &UpstreamStatus, listed: bool) -> Option<String> {
    let what = match status.state {
        UpstreamState::Down => "is down",
        UpstreamState::Connecting if !status.complete => "is being connected to",
        UpstreamState::Unknown if !status.complete => "was not reached yet",
        UpstreamState::Up if !status.complete => "has not brought all its tools",
        UpstreamState::Up if !listed => "has answered, its tools are being published",
        UpstreamState::Up | UpstreamState::Unknown | UpstreamState::Connecting => return None,
    };
    let note = if status.note.is_empty() { String::new() } else { format!(": {}", status.note) };
    Some(format!("the upstream `{}` {what}{note}", status.id))
}
