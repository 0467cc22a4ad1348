//! What the wire counts, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

/// How calls ended. A counter only grows.
#[derive(Debug, Default)]
pub struct Counters {
    calls: [AtomicU64; Outcome::ALL.len()],
}

/// How one call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a result.
    Completed,
    /// With a result that is an error.
    Failed,
    /// There is no such tool for the caller.
    Unknown,
    /// More scopes are needed.
    Challenged,
    /// The caller gave up.
    Cancelled,
    /// With a question to the person in front of the client.
    Asked,
    /// It goes on as a job.
    Running,
}

impl Outcome {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::Completed,
        Self::Failed,
        Self::Unknown,
        Self::Challenged,
        Self::Cancelled,
        Self::Asked,
        Self::Running,
    ];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Unknown => "unknown_tool",
            Self::Challenged => "challenged",
            Self::Cancelled => "cancelled",
            Self::Asked => "asked",
            Self::Running => "running",
        }
    }
}

impl Counters {
    fn of(&self, outcome: Outcome) -> Option<&AtomicU64> {
        let at = Outcome::ALL.iter().position(|o| *o == outcome)?;
        self.calls.get(at)
    }

    pub(super) fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.of(outcome) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls that ended in this way.
    pub fn calls(&self, outcome: Outcome) -> u64 {
        self.of(outcome).map_or(0, |c| c.load(Ordering::Relaxed))
    }
}
