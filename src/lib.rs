//! docent stands between agents and every tool they may use.
//!
//! Modules in reading order, lowest rank first; a module names only modules of lower ranks
//! (`tests/it/tidy.rs` checks it, `ARCHITECTURE.md` explains it).

pub mod app;
pub mod audit;
pub mod auth;
pub mod cache;
pub mod call;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod config;
pub mod cursor;
pub mod diagnostic;
pub mod eager;
pub mod files;
pub mod gateway;
pub mod id;
pub mod jobs;
pub mod json;
pub mod limits;
pub mod mcp;
pub mod media;
pub mod policy;
pub mod projection;
pub mod schema;
pub mod script;
pub mod search;
pub mod secret;
pub mod settings;
pub mod snapshot;
pub mod store;
pub mod transport;
pub mod upstream;
