//! The audit: one record for every call and every refusal, in files that only grow and cannot be changed unseen.
//!
//! Records pass through a bounded queue to one writer thread, so that a call never waits for a disk. Every line
//! carries a keyed blake3 tag over itself and the line before it; a sealed head tells where the chain ends, so
//! that an edit, a cut and a lost file show ([`verify`]). Values of arguments are not recorded unless the
//! settings ask for it. It knows neither the wire nor the settings file.

mod chain;
mod drift;
mod entry;
mod log;
mod read;
mod recent;
mod refusals;
mod settings;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use chain::AuditKey;
pub use entry::{ArgumentSummary, CallEntry, Dedup, Outcome, Via};
pub use read::{Read, ReadError, read, tail};
pub use recent::{Query, RecentRecord};
pub use settings::{ArgumentDetail, AuditSettings};
pub use verify::{Verified, verify};
pub use writer::{Audit, AuditStatus};
