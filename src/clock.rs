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

/// Milliseconds since 1970 as RFC 3339 in UTC, to the second.
pub fn rfc3339(ms: u64) -> String {
    let mut out = date_and_time(ms);
    out.push('Z');
    out
}

/// The same to the millisecond: for records that are sorted by it.
pub fn rfc3339_ms(ms: u64) -> String {
    let mut out = date_and_time(ms);
    out.push('.');
    push_digits(&mut out, ms % 1_000, 3);
    out.push('Z');
    out
}

/// Without its zone. Digit by digit: every record of the audit has one, and a format costs ten times as much.
fn date_and_time(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil from days: years begin in March, eras have 400 years (146,097 days).
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let mut out = String::with_capacity(24);
    let parts = [
        ('-', year, 4),
        ('-', month, 2),
        ('T', of_month, 2),
        (':', rest / 3_600, 2),
        (':', rest / 60 % 60, 2),
    ];
    for (after, value, width) in parts {
        push_digits(&mut out, value, width);
        out.push(after);
    }
    push_digits(&mut out, rest % 60, 2);
    out
}

/// The last `width` digits of a number, zeros in front.
fn push_digits(out: &mut String, value: u64, width: u32) {
    for place in (0..width).rev() {
        let digit = value / 10_u64.pow(place) % 10;
        out.push(u32::try_from(digit).ok().and_then(|d| char::from_digit(d, 10)).unwrap_or('0'));
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

    #[test]
    fn times_are_written_as_everyone_reads_them() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_996_799_999), "2026-11-29T23:59:59Z");
        assert_eq!(rfc3339_ms(1_795_996_799_009), "2026-11-29T23:59:59.009Z");
        assert_eq!(rfc3339_ms(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
    }
}
