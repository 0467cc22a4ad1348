//! The one source of time. Everything that needs *now* takes a [`Clock`]; tests turn a manual one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A handle to the time: the system's, or one that a test turns by hand. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicU64>>, Option<Origin>);

#[derive(Debug, Clone, Copy)]
struct Origin(Instant);

impl Clock {
    /// The system's clocks.
    pub fn system() -> Self {
        Self(None, None)
    }

    /// A clock that stands still until [`Clock::advance`] turns it; it starts at one day after the epoch.
    #[expect(clippy::disallowed_methods, reason = "the clock is where time enters")]
    pub fn manual() -> Self {
        Self(Some(Arc::new(AtomicU64::new(86_400_000))), Some(Origin(Instant::now())))
    }

    /// Turns a manual clock forward; does nothing to the system's.
    pub fn advance(&self, by: Duration) {
        if let Some(ms) = &self.0 {
            ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }

    /// Milliseconds since the Unix epoch.
    #[expect(clippy::disallowed_methods, reason = "the clock is where time enters")]
    pub fn unix_ms(&self) -> u64 {
        match &self.0 {
            Some(ms) => ms.load(Ordering::SeqCst),
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// A monotonic instant, for deadlines and durations.
    #[expect(clippy::disallowed_methods, reason = "the clock is where time enters")]
    pub fn now(&self) -> Instant {
        match (&self.0, self.1) {
            (Some(ms), Some(Origin(start))) => start + Duration::from_millis(ms.load(Ordering::SeqCst)),
            _ => Instant::now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_turned() {
        let clock = Clock::manual();
        let (a, t) = (clock.unix_ms(), clock.now());
        clock.advance(Duration::from_secs(2));
        assert_eq!((clock.unix_ms() - a, clock.now() - t), (2_000, Duration::from_secs(2)));
    }
}
