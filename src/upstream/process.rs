//! Child processes: no shell, a cleared environment, a process group of their own that ends as a whole.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::config::CommandDefaults;
use crate::limits;

/// `PATH` where docent itself has none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A child and its group. Dropping it kills the group at once.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) child: Child,
    leader: Option<u32>,
}

impl Group {
    /// Starts `argv` in `cwd`. The caller has checked that the vector is not empty.
    pub(super) fn start(
        argv: &[String],
        defaults: &CommandDefaults,
        cwd: &Path,
        stdin: bool,
    ) -> std::io::Result<Self> {
        let (program, arguments) = argv.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", search_path(defaults))
            .current_dir(cwd)
            .stdin(if stdin { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(home) = &defaults.home {
            command.env("HOME", home);
        }
        command.envs(defaults.env.iter().map(|(name, value)| (name, value.expose())));
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn()?;
        Ok(Self { leader: child.id(), child })
    }

    /// Asks the group to end, waits a moment, then ends it.
    pub(super) async fn end(&mut self) {
        self.signal(false);
        if tokio::time::timeout(limits::KILL_GRACE, self.child.wait()).await.is_err() {
            self.signal(true);
            drop(tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await);
        }
        self.signal(true);
        self.leader = None;
    }

    #[cfg(unix)]
    fn signal(&self, hard: bool) {
        use rustix::process::{Pid, Signal, kill_process_group};
        let pid = self.leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // A group that has ended is what we want.
            kill_process_group(pid, if hard { Signal::KILL } else { Signal::TERM }).ok();
        }
    }

    #[cfg(not(unix))]
    fn signal(&mut self, hard: bool) {
        if hard {
            drop(self.child.start_kill());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(true);
    }
}

fn search_path(defaults: &CommandDefaults) -> &str {
    defaults.path.as_deref().unwrap_or(PATH)
}

/// Where a program is: as it stands where it has a `/` (relative to the pack), else on `PATH`.
pub(super) fn find(program: &str, defaults: &CommandDefaults, pack: &Path) -> Option<std::path::PathBuf> {
    if program.contains('/') {
        return Some(pack.join(program)).filter(|p| is_executable(p));
    }
    let own = defaults.env.iter().find(|(n, _)| n == "PATH").map(|(_, v)| v.expose());
    let path = own.unwrap_or_else(|| search_path(defaults));
    path.split(':').filter(|d| !d.is_empty()).map(|d| Path::new(d).join(program)).find(|p| is_executable(p))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// The last `max` bytes of what was added.
#[derive(Debug, Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let over = self.0.len().saturating_sub(limits::STDERR_BYTES);
        if over > limits::STDERR_BYTES {
            self.0.drain(..over);
        }
    }

    /// As text without control characters, at most [`limits::STDERR_BYTES`].
    pub(super) fn text(&self) -> String {
        let from = self.0.len().saturating_sub(limits::STDERR_BYTES);
        let text = String::from_utf8_lossy(self.0.get(from..).unwrap_or_default());
        super::text::plain(text.trim())
    }
}
