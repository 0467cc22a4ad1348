//! Authorization: who may see, call, must step up or confirm, and why.
//!
//! A pure engine: it decides from the caller's facts, the tool's facts and the arguments, never from a
//! socket or a file. There is no error type: a script that faults denies, with a diagnostic. Rules of
//! scripts, tables of docent.toml and functions end in the same votes, counted in one place (`ballot`).

mod agents;
mod answer;
mod asked;
mod ballot;
mod builder;
mod cases;
mod column;
mod compare;
mod coverage;
mod decision;
mod explain;
mod function;
mod glob;
mod host;
mod lint;
mod owned;
mod principal;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod questions;
mod roster;
mod rule;
mod set;
mod shadow;
mod sums;
mod tables;
#[cfg(test)]
mod tests;
mod tier;
mod views;

pub use agents::{AgentDecision, AgentDecisions};
pub use ballot::Standing;
pub use cases::CaseOutcome;
pub use compare::{Change, ComparedCaller, PolicyDiff, Side, diff};
pub use coverage::{Coverage, Unreached};
pub use decision::{Confirmation, Decision, Permit, Reason, RuleRef, ScopeChallenge};
pub use explain::{Explanation, ExplanationStep, MatrixRow};
pub use glob::matches as pattern_matches;
pub use host::reference;
pub use owned::Ledger;
pub use principal::{ClientFacts, DiscoveryMode, Principal};
pub use roster::Roster;
pub use set::PolicySet;
pub use shadow::{Difference, Shadow, ShadowReport};
pub use tables::PolicyTables;
pub use tier::Tiers;
pub use views::AgentFacts;
