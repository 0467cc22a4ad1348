//! The revisions of the protocol that docent speaks, and what differs between them.

use std::fmt;

/// A protocol revision. The order is that of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2025-03-26: batches, no structured results.
    V2025_03_26,
    /// 2025-06-18: structured results, titles.
    V2025_06_18,
    /// 2025-11-25: the newest revision of the session wire.
    V2025_11_25,
    /// 2026-07-28: the stateless wire.
    V2026_07_28,
}

impl Revision {
    /// All of them, newest first: the order in which they are announced.
    pub const ALL: [Self; 4] = [Self::V2026_07_28, Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26];

    /// The newest revision of the session wire: the answer to an `initialize` that names no known one.
    pub const NEWEST_SESSION: Self = Self::V2025_11_25;

    /// The revision of a version text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == text)
    }

    /// The version text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether this is the stateless wire: every request carries its own version and capabilities.
    pub fn is_stateless(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// Whether an array of messages is taken (2025-03-26 only; removed with 2025-06-18).
    pub fn takes_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Whether tools have titles and output schemas, and results a structured half (since 2025-06-18).
    pub fn is_structured(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// The revision that an `initialize` asking for `wanted` settles on: that one where the session wire has
    /// it, else the newest of the session wire.
    pub fn negotiate(wanted: &str) -> Self {
        Self::parse(wanted).filter(|r| !r.is_stateless()).unwrap_or(Self::NEWEST_SESSION)
    }

    /// Whether a version text is of the stateless wire or later: versions are dates, so text order is time.
    pub fn text_is_stateless(text: &str) -> bool {
        text.len() == 10 && text.is_ascii() && text >= Self::V2026_07_28.as_str()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_or_stateless_version_is_answered_with_the_newest_session_revision() {
        for (wanted, settled) in [
            ("2025-03-26", Revision::V2025_03_26),
            ("2025-06-18", Revision::V2025_06_18),
            ("2025-11-25", Revision::V2025_11_25),
            ("2026-07-28", Revision::V2025_11_25),
            ("2024-11-05", Revision::V2025_11_25),
            ("nonsense", Revision::V2025_11_25),
        ] {
            assert_eq!(Revision::negotiate(wanted), settled, "{wanted}");
        }
    }

    #[test]
    fn the_era_of_a_version_text_is_its_date() {
        assert!(Revision::text_is_stateless("2026-07-28") && Revision::text_is_stateless("2027-01-01"));
        assert!(!Revision::text_is_stateless("2025-11-25") && !Revision::text_is_stateless("zzz"));
    }
}
