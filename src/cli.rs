//! The commands of the docent program, one file each (contract §1.2).
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 fine, 1 the thing asked about failed, 2 the
//! home is broken, 64 usage. What a command does lives below; here it is only read and printed.

mod audit;
mod call;
mod check;
mod eval;
mod failure;
mod import;
mod init;
mod logging;
mod open;
mod output;
mod policy;
mod project;
mod record;
mod search;
mod serve;
mod surface;
mod test;
mod token;
mod tools;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Environment;
use failure::Failure;
use output::Output;

/// A gateway between agents and every tool they may use.
#[derive(Debug, Parser)]
#[command(name = "docent", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    /// The home: a folder with a docent.toml [default: the current folder, else `$DOCENT_HOME`]
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Where state is kept [default: `$DOCENT_DATA`, else a folder of the platform's state directory]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Init(init::Init),
    Check(check::Check),
    Test(test::Test),
    Tools(tools::Tools),
    Describe(search::Describe),
    Surface(surface::Surface),
    Search(search::Search),
    Call(call::Call),
    Project(project::Project),
    Record(record::Record),
    Policy(policy::Policy),
    Eval(eval::Eval),
    Usage(usage::Usage),
    Token(token::Token),
    Audit(audit::Audit),
    Import(import::Import),
}

/// What every command is given.
#[derive(Debug)]
struct Context {
    env: Environment,
    home: PathBuf,
    data: Option<PathBuf>,
    out: Output,
}

/// Runs the command of this process's arguments.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    let env = Environment::process();
    let home = env.home_dir(cli.home.as_deref());
    let mut context = Context { env, home, data: cli.data, out: Output::stdout() };
    let done = match cli.command {
        Command::Serve(command) => command.run(&mut context),
        Command::Init(command) => command.run(&mut context),
        Command::Check(command) => command.run(&mut context),
        Command::Test(command) => command.run(&mut context),
        Command::Tools(command) => command.run(&mut context),
        Command::Describe(command) => command.run(&mut context),
        Command::Surface(command) => command.run(&mut context),
        Command::Search(command) => command.run(&mut context),
        Command::Call(command) => command.run(&mut context),
        Command::Project(command) => command.run(&mut context),
        Command::Record(command) => command.run(&mut context),
        Command::Policy(command) => command.run(&mut context),
        Command::Eval(command) => command.run(&mut context),
        Command::Usage(command) => command.run(&mut context),
        Command::Token(command) => command.run(&mut context),
        Command::Audit(command) => command.run(&mut context),
        Command::Import(command) => command.run(&mut context),
    };
    failure::exit(done.and_then(|()| context.out.flush()))
}
