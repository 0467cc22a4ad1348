//! The meter of a running evaluation: a deadline, and the bytes that this thread allocated since it began.
//!
//! Rhai's own limits do not bound memory (`map[key] = value` escapes the size check), so the allocator is
//! asked between operations. Where it cannot be asked, [`super::Dialect::limits`] lowers the operations.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::error::{ErrorKind, fault};
use super::{HostResult, Limits};
use crate::clock::Clock;

#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Why the meter stopped an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Deadline(Duration),
    Memory(u64),
}

impl Stop {
    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Self::Deadline(_) => ErrorKind::Deadline,
            Self::Memory(_) => ErrorKind::Limit,
        }
    }

    pub(super) fn message(self) -> String {
        match self {
            Self::Deadline(limit) => format!("it ran longer than {} ms", limit.as_millis()),
            Self::Memory(limit) => format!("it took more than {} MiB of memory", limit / (1024 * 1024)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Running {
    deadline: Instant,
    allowed: Duration,
    held: u64,
    memory: u64,
    stopped: Option<Stop>,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// Bytes this thread holds now, if the allocator tells: allocated minus freed, never negative.
#[cfg(unix)]
fn held() -> Option<u64> {
    use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};
    thread_local! {
        static COUNTERS: Option<(ThreadLocal<u64>, ThreadLocal<u64>)> =
            allocatedp::read().ok().zip(deallocatedp::read().ok());
    }
    COUNTERS.with(|counters| counters.as_ref().map(|(a, d)| a.get().wrapping_sub(d.get())))
}

#[cfg(not(unix))]
fn held() -> Option<u64> {
    None
}

/// Whether allocations are metered on this machine.
pub(super) fn available() -> bool {
    held().is_some()
}

/// Meters this thread until dropped. Evaluations inside an evaluation keep the outer deadline.
#[derive(Debug)]
pub(super) struct Guard(Option<Running>);

impl Guard {
    pub(super) fn start(limits: &Limits) -> Self {
        let before = RUNNING.get();
        let deadline = Clock::system().now() + limits.deadline;
        RUNNING.set(Some(Running {
            deadline: before.map_or(deadline, |b| b.deadline.min(deadline)),
            allowed: limits.deadline,
            held: held().unwrap_or(0),
            memory: limits.memory_bytes,
            stopped: None,
        }));
        Self(before)
    }

    /// Why the evaluation that runs on this thread was stopped, if it was.
    pub(super) fn stopped() -> Option<Stop> {
        RUNNING.get().and_then(|r| r.stopped)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// Operations between two looks at the clock: together they take a few microseconds, and each look costs as
/// much as half an operation. Memory is looked at every time.
const CLOCK_EVERY: u64 = 16;

/// Whether the running evaluation has used up its time or memory.
fn exceeded() -> Option<Stop> {
    exceeded_at(0)
}

/// The same after so many operations of the interpreter.
pub(super) fn exceeded_at(operations: u64) -> Option<Stop> {
    let mut running = RUNNING.get()?;
    let grown = held().unwrap_or(0).wrapping_sub(running.held);
    // A thread that frees what others allocated can fall below its start: that is no growth.
    let stop = if grown > running.memory && grown < u64::MAX / 2 {
        Some(Stop::Memory(running.memory))
    } else if operations.is_multiple_of(CLOCK_EVERY) && Clock::system().now() > running.deadline {
        Some(Stop::Deadline(running.allowed))
    } else {
        None
    };
    if stop.is_some() {
        running.stopped = stop;
        RUNNING.set(Some(running));
    }
    stop
}

/// For host functions that wait for others (an upstream, another tool): the evaluation's clock stands still
/// and what is allocated meanwhile is not its own. Evaluations inside `work` are metered for themselves.
pub fn waiting<T>(work: impl FnOnce() -> T) -> T {
    let Some(before) = RUNNING.get() else { return work() };
    let (begin, held_before) = (Clock::system().now(), held().unwrap_or(0));
    RUNNING.set(None);
    let result = work();
    let grown = held().unwrap_or(0).wrapping_sub(held_before);
    RUNNING.set(Some(Running {
        deadline: before.deadline + Clock::system().now().saturating_duration_since(begin),
        held: before.held.wrapping_add(grown),
        ..before
    }));
    result
}

/// For host functions that work long: an error once the evaluation's time or memory is used up.
pub fn checkpoint() -> HostResult<()> {
    match exceeded() {
        Some(stop) => Err(fault(stop.message())),
        None => Ok(()),
    }
}
