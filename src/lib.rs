//! docent stands between agents and every tool they may use.
//!
//! Modules in reading order, lowest rank first; a module names only modules of lower ranks
//! (`tests/it/tidy.rs` checks it, `ARCHITECTURE.md` explains it).

pub mod call;
pub mod catalog;
pub mod clock;
pub mod diagnostic;
pub mod id;
pub mod json;
pub mod limits;
pub mod policy;
pub mod schema;
pub mod secret;
pub mod settings;
