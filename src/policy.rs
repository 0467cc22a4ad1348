//! Authorization: who may see, call, must step up or confirm, and why.
//!
//! A pure engine: it decides from the caller's facts, the tool's facts and the arguments, never from a
//! clock, a socket or a file. There is no error type: a script that faults denies, with a diagnostic.

mod decision;
mod principal;

pub use decision::{Confirmation, Decision, Permit, Reason, RuleRef, ScopeChallenge};
pub use principal::{ClientFacts, DiscoveryMode, Principal};
