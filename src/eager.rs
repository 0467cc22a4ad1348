//! Looking for an answer again and again before sleeping.
//!
//! To put a thread to sleep and to wake it costs some 50 µs on a virtual machine, as much as a fast upstream
//! takes. Where the last answer came quickly and nothing else is to be done, the thread that waits for the next
//! one looks for it for a moment; all its other tasks run in between. At most one wait of a process does so.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

/// How long a wait is eager: what a call of a fast upstream takes, its own wake-up included. This is also the
/// most that one call burns for nothing.
const EAGER: Duration = Duration::from_micros(200);
/// An answer within this time makes the next wait eager: it holds the sleep and the wake-up that were saved.
const QUICK: Duration = Duration::from_micros(400);

/// Answers waited for in this process, and whether one of the waits is eager.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What is known of one source of answers: an upstream, a client's next request.
#[derive(Debug, Default)]
pub struct Habit(AtomicBool);

/// The one eager wait.
#[derive(Debug)]
struct Turn;

impl Turn {
    fn take() -> Option<Self> {
        (!TAKEN.swap(true, Ordering::Relaxed)).then_some(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Relaxed);
    }
}

/// Counts an answer that is waited for.
struct Waiting;

impl Waiting {
    fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Habit {
    /// Waits for an answer that was asked for just now.
    pub async fn answer<T>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let _waiting = Waiting::begin();
        let mut pause = self.pause();
        let answer = std::future::poll_fn(|cx| {
            let polled = poll(cx);
            if polled.is_pending() && WAITING.load(Ordering::Relaxed) == 1 {
                pause.look_again(cx);
            }
            polled
        })
        .await;
        pause.ended();
        answer
    }

    /// Begins a wait for what somebody may send from now on.
    pub fn pause(&self) -> Pause<'_> {
        Pause { habit: self, began: Instant::now(), is_eager: self.0.load(Ordering::Relaxed), turn: None }
    }
}

/// A wait that has begun.
#[derive(Debug)]
pub struct Pause<'a> {
    habit: &'a Habit,
    began: Instant,
    is_eager: bool,
    turn: Option<Turn>,
}

impl Pause<'_> {
    /// After a poll that brought nothing: has the task polled once more as soon as its thread has looked for
    /// events, without a sleep between. Does nothing where the wait is not, or no longer, eager.
    pub fn look_again(&mut self, cx: &mut Context<'_>) {
        if !self.is_eager {
            return;
        }
        self.is_eager = self.began.elapsed() < EAGER;
        self.turn = self.turn.take().or_else(Turn::take).filter(|_| self.is_eager);
        if self.turn.is_some() {
            // The runtime polls the task again after its other tasks and its reactor had their turn.
            let again = std::pin::pin!(tokio::task::yield_now());
            let deferred = again.poll(cx);
            debug_assert!(deferred.is_pending(), "a task gives way at least once");
        }
    }

    /// The same while answers are waited for elsewhere is for those.
    pub fn look_again_if_idle(&mut self, cx: &mut Context<'_>) {
        if WAITING.load(Ordering::Relaxed) == 0 {
            self.look_again(cx);
        }
    }

    /// What was waited for is there.
    pub fn ended(self) {
        self.habit.0.store(self.began.elapsed() < QUICK, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_quick_answer_makes_the_next_wait_eager_and_a_slow_one_ends_that() {
        let habit = Habit::default();
        let polls = |ready_at: usize| {
            let mut count = 0;
            move |cx: &mut Context<'_>| {
                count += 1;
                if count >= ready_at {
                    return Poll::Ready(count);
                }
                if count == 1 {
                    // The source itself wakes once.
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        };
        assert_eq!(habit.answer(polls(2)).await, 2, "woken by its source");
        assert!(habit.0.load(Ordering::Relaxed));
        assert_eq!(habit.answer(polls(5)).await, 5, "looked for without being woken");
        let slow = std::pin::pin!(tokio::time::sleep(QUICK * 10));
        let mut slow = slow;
        habit.answer(|cx| slow.as_mut().poll(cx)).await;
        assert!(!habit.0.load(Ordering::Relaxed));
    }
}
