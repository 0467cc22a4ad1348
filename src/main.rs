//! The `docent` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    docent::cli::run()
}
