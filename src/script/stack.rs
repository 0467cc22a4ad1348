//! Threads with stacks deep enough for any script.
//!
//! Data nested some thousands of levels overflows the 2 MiB stack of an ordinary thread when it is cloned,
//! compared or dropped, and that ends the process. Evaluations therefore run on a thread with
//! [`STACK_BYTES`]: in place where the caller's own thread has been adopted (the runtime of `docent serve`
//! starts its threads that way), else on a small pool started at first use.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Bytes of stack: eight times what the deepest data needs that the deadline lets a script build.
/// Reserved address space only; pages are taken when they are touched.
pub const STACK_BYTES: usize = 16 * 1024 * 1024;

/// Threads of the pool. It serves commands and tests; a server's own threads are adopted.
const POOL_THREADS: usize = 4;
/// Evaluations waiting for a thread before the next caller blocks in `send`.
const POOL_QUEUE: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static DEEP: Cell<bool> = const { Cell::new(false) };
}

/// Promises that this thread was started with at least [`STACK_BYTES`]: scripts then run in place.
/// For `on_thread_start` of a runtime built with `thread_stack_size(STACK_BYTES)`.
pub fn adopt_current_thread() {
    DEEP.set(true);
}

/// Whether scripts run in place on this thread.
pub fn is_deep() -> bool {
    DEEP.get()
}

/// No thread with a deep stack could be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no thread for scripts could be started")]
pub struct NoThread;

/// Runs `work` with a deep stack and waits for it.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoThread> {
    if is_deep() {
        return Ok(work());
    }
    let (done, answer) = sync_channel(1);
    let job: Job = Box::new(move || {
        // The caller waits below, so nobody is left to take the answer only if it was torn down.
        drop(done.send(work()));
    });
    POOL.as_ref().ok_or(NoThread)?.send(job).map_err(|_closed| NoThread)?;
    answer.recv().map_err(|_closed| NoThread)
}

/// Runs `work` on a deep thread of its own where this one is not deep: for evaluations that wait for other
/// evaluations, which must never wait for each other's place in the pool.
pub fn run_apart<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, NoThread> {
    if is_deep() {
        return Ok(work());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("docent-script-run".to_owned()).stack_size(STACK_BYTES);
        let deep = || {
            adopt_current_thread();
            work()
        };
        thread.spawn_scoped(scope, deep).map_err(|_io| NoThread)?.join().map_err(|_panic| NoThread)
    })
}

static POOL: LazyLock<Option<SyncSender<Job>>> = LazyLock::new(|| {
    let (sender, receiver) = sync_channel::<Job>(POOL_QUEUE);
    let receiver = Arc::new(Mutex::new(receiver));
    let started = (0..POOL_THREADS)
        .filter(|i| {
            let jobs = Arc::clone(&receiver);
            std::thread::Builder::new()
                .name(format!("docent-script-{i}"))
                .stack_size(STACK_BYTES)
                .spawn(move || serve(&jobs))
                .is_ok()
        })
        .count();
    (started > 0).then_some(sender)
});

fn serve(jobs: &Mutex<Receiver<Job>>) {
    adopt_current_thread();
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A panic costs its own caller an answer, never the thread.
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_a_deep_thread_and_a_panic_is_an_error() {
        assert!(!is_deep());
        assert_eq!(run(is_deep), Ok(true));
        assert_eq!(run(|| run(is_deep)), Ok(Ok(true)), "in place, so the pool cannot wait for itself");
        for _ in 0..POOL_THREADS * 2 {
            assert_eq!(run(|| -> u8 { panic!("planted") }), Err(NoThread));
        }
        assert_eq!(run(|| 7), Ok(7));
        assert_eq!(run_apart(is_deep), Ok(true));
        assert_eq!(run_apart(|| -> u8 { panic!("planted") }), Err(NoThread));
    }
}
