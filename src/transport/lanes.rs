//! Threads that each drive their own connections.
//!
//! A work-stealing runtime wakes a second thread for almost every request of a proxied call, and on a virtual
//! machine such a wake-up costs more than the request. A lane is one thread with a reactor of its own: what a
//! connection waits for, its upstream's answer included, comes back to the thread that asked. Scripts and
//! large results leave the lane for a blocking thread, so that one call does not hold up its neighbours.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Threads that serve connections. Dropping them ends the threads once they come to rest.
#[derive(Debug)]
pub struct Lanes {
    handles: Vec<Handle>,
    next: AtomicUsize,
    threads: Vec<std::thread::JoinHandle<()>>,
    stop: Option<DropGuard>,
}

impl Lanes {
    /// No threads: every connection is served by the runtime that accepts it. For tests and tools.
    pub fn none() -> Self {
        Self { handles: Vec::new(), next: AtomicUsize::new(0), threads: Vec::new(), stop: None }
    }

    /// `count` threads with stacks of `stack` bytes; `begin` runs first on each. At their end blocking work has
    /// `rest` to come to its own.
    pub fn start(count: usize, stack: usize, begin: fn(), rest: Duration) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let (mut handles, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .thread_stack_size(stack)
                .on_thread_start(begin)
                .build()?;
            handles.push(runtime.handle().clone());
            let stopped = stop.clone();
            let thread = std::thread::Builder::new().name(format!("docent-lane-{number}")).stack_size(stack);
            threads.push(thread.spawn(move || {
                begin();
                runtime.block_on(stopped.cancelled());
                runtime.shutdown_timeout(rest);
            })?);
        }
        Ok(Self { handles, next: AtomicUsize::new(0), threads, stop: Some(stop.drop_guard()) })
    }

    /// The lane for the next connection; `None` means the runtime of the caller.
    pub(super) fn next(&self) -> Option<&Handle> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.handles.get(turn.checked_rem(self.handles.len())?)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.stop = None;
        for thread in self.threads.drain(..) {
            // A panic there has been reported by the panic hook.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_go_round_and_stay_on_their_thread() {
        let lanes = Lanes::start(2, 1 << 20, || (), Duration::from_millis(10)).unwrap();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let work = async {
                let before = std::thread::current().id();
                tokio::task::yield_now().await;
                assert_eq!(before, std::thread::current().id());
                std::thread::current().name().map(str::to_owned)
            };
            seen.push(lanes.next().unwrap().spawn(work).await.unwrap().unwrap());
        }
        assert_eq!(seen, ["docent-lane-0", "docent-lane-1", "docent-lane-0", "docent-lane-1"]);
        tokio::task::spawn_blocking(move || drop(lanes)).await.unwrap();
        assert!(Lanes::none().next().is_none());
    }
}
