//! Which cores the processes of a run are on (Linux, by `taskset`).

use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where a process of a run may be.
#[derive(Clone, Copy)]
pub(crate) enum Core {
    /// One core alone.
    Only(usize),
    /// Every core of the machine.
    Any,
}

static CORES: OnceLock<usize> = OnceLock::new();

/// Keeps this process on the first core. To be called before it has threads; whether it could.
pub(crate) fn stay_on_the_first_core() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let me = std::process::id().to_string();
    let moved = || {
        let mut taskset = Command::new("taskset");
        taskset.args(["-cp", "0", &me]).stdout(Stdio::null()).stderr(Stdio::null());
        taskset.status().is_ok_and(|status| status.success())
    };
    let stays = cores > 1 && moved();
    if stays {
        CORES.set(cores).ok();
    }
    stays
}

/// A program to be started where it may be, if this process stays on a core.
pub(crate) fn on_cores(core: Core, program: &str) -> Command {
    let Some(cores) = CORES.get() else { return Command::new(program) };
    let mut command = Command::new("taskset");
    let list = match core {
        Core::Only(no) => no.to_string(),
        Core::Any => format!("0-{}", cores - 1),
    };
    command.args(["-c", &list, program]);
    command
}
