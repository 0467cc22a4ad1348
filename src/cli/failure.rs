//! How a command can end, and the exit code of each way.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::diagnostic::Diagnostics;

/// The thing asked about failed.
const FAILED: u8 = 1;
/// The home is broken.
const BROKEN: u8 = 2;
/// Wrong usage (`EX_USAGE` of sysexits.h).
const USAGE: u8 = 64;

/// Why a command did not end well.
#[derive(Debug)]
pub(super) enum Failure {
    /// The thing asked about failed; the text says what and what to do.
    Failed(String),
    /// The same, and it was already told on stdout.
    Told,
    /// The home does not load.
    Broken(Diagnostics),
    /// The same, and it was already told on stdout.
    BrokenTold,
    /// The arguments make no sense together.
    Usage(String),
    /// Nobody reads stdout any more, as in `docent tools | head`: an end like any other.
    Closed,
}

impl Failure {
    /// A failure in words.
    pub(super) fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }
}

/// Tells a failure on stderr and gives its exit code.
pub(super) fn exit(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Told) => ExitCode::from(FAILED),
        Err(Failure::Failed(message)) => {
            say(format_args!("error: {message}"));
            ExitCode::from(FAILED)
        }
        Err(Failure::BrokenTold) => ExitCode::from(BROKEN),
        Err(Failure::Broken(diagnostics)) => {
            for diagnostic in &diagnostics.0 {
                say(diagnostic);
            }
            say("error: the home is broken; `docent check` tells the same");
            ExitCode::from(BROKEN)
        }
        Err(Failure::Usage(message)) => {
            say(format_args!("error: {message}\n\nFor more information, try '--help'."));
            ExitCode::from(USAGE)
        }
    }
}

/// Tells what clap has to say: help and version on stdout, mistakes on stderr.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    error.print().ok();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// One message on stderr. If stderr is closed there is nobody to tell.
pub(super) fn say(message: impl fmt::Display) {
    writeln!(io::stderr(), "{message}").ok();
}
