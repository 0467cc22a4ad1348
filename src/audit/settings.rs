//! What docent.toml says of the audit (`[telemetry]`).

use std::time::Duration;

use crate::secret::Secret;

/// How long records are kept (*default* of `telemetry.audit_retention_days`): a quarter, what most reviews ask for.
pub(super) const RETENTION: Duration = Duration::from_hours(90 * 24);
/// Bytes of all files (*default* of `telemetry.audit_bytes_max`): three million calls.
pub(super) const BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// How much of a call's arguments is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArgumentDetail {
    /// Nothing.
    None,
    /// Names, size, and a keyed hash by which equal arguments are known; no value.
    #[default]
    Summary,
    /// The values too, as far as they fit: for `docent policy replay` of policies that read arguments.
    Values,
}

impl ArgumentDetail {
    /// The words of `telemetry.audit_arguments`.
    pub const WORDS: [(&'static str, Self); 3] =
        [("none", Self::None), ("summary", Self::Summary), ("values", Self::Values)];
}

/// The keys of `[telemetry]` that begin with `audit`, defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// `telemetry.audit`: whether records are written at all.
    pub enabled: bool,
    /// `telemetry.audit_arguments`
    pub arguments: ArgumentDetail,
    /// `telemetry.audit_retention_days`
    pub retention: Duration,
    /// `telemetry.audit_bytes_max`: the oldest files go when all together are larger.
    pub bytes_max: u64,
    /// `telemetry.audit_key`: what the chain is keyed with; a file of the data directory where there is none.
    pub key: Option<Secret>,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            arguments: ArgumentDetail::default(),
            retention: RETENTION,
            bytes_max: BYTES_MAX,
            key: None,
        }
    }
}
