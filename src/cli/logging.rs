//! Log lines on stderr: stdout belongs to data and to the stdio wire.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use super::failure;
use crate::config::{Environment, LogFormat, Telemetry};

/// Starts logging, once per process. The filter is `DOCENT_LOG`, else `RUST_LOG`, else `telemetry.log`, else
/// `default`.
pub(super) fn start(env: &Environment, telemetry: &Telemetry, default: &str) {
    let from_env = ["DOCENT_LOG", "RUST_LOG"].into_iter().find_map(|name| Some((name, env.var(name)?)));
    let filter = match &from_env {
        Some((name, text)) => EnvFilter::try_new(text).unwrap_or_else(|e| {
            failure::say(format_args!("warning: {name} is not a log filter: {e}"));
            EnvFilter::new(default)
        }),
        None => EnvFilter::new(telemetry.log.as_deref().unwrap_or(default)),
    };
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr()) && env.var("NO_COLOR").is_none();
    // A second start (tests that run commands in one process) keeps the first.
    match telemetry.log_format {
        LogFormat::Text => builder.with_ansi(colour).with_target(false).try_init().ok(),
        LogFormat::Json => builder.json().flatten_event(true).try_init().ok(),
    };
}
