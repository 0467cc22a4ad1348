//! The one integration-test binary.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::format_push_string,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and their helpers too"
)]

mod agents;
mod agents_walk;
mod ask;
mod ask_jobs;
mod auth;
mod check;
mod cli;
mod clients;
mod clients_limited;
mod clients_rmcp;
mod confirm;
mod discovery;
mod docs;
mod docs_facts;
mod entry_points;
mod faults;
mod files;
mod init;
mod interrogation;
mod jwt;
mod keys;
mod mutations;
mod offers;
mod offers_watch;
mod ombi;
mod ombi_mutations;
mod ombi_samples;
mod ombi_served;
mod one_decision;
mod openapi;
mod operator;
mod packs;
mod packs_mutations;
mod policies;
mod results;
mod search_quality;
mod semantic;
mod shaping_memory;
mod support;
mod survive;
mod tasks;
mod tidy;
mod upstream_command;
mod upstream_http;
mod upstream_mcp;
mod upstream_real;
mod upstream_registry;
mod upstream_support;
mod usage;
mod validation;
mod wire_boundary;
mod wire_double;
mod wire_rmcp;
mod wire_session;
mod wire_stateless;
mod wire_stdio;
