//! A future that goes on as a task of its own when its owner is dropped before it ended.
//!
//! A call must not be taken along by its connection, yet a task per call costs a switch between threads. So
//! the connection polls the call itself, and only what is left of it when the connection goes becomes a task.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Work that its owner polls, and that outlives it.
pub(super) struct Outliving<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send + 'static> Outliving<T> {
    /// Wraps the work; it begins when it is first polled.
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for Outliving<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(work) = self.0.as_mut() else { return Poll::Pending };
        let ended = work.as_mut().poll(cx);
        if ended.is_ready() {
            self.0 = None;
        }
        ended
    }
}

impl<T: Send + 'static> Drop for Outliving<T> {
    fn drop(&mut self) {
        if let (Some(rest), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            // Its result has nobody left to go to.
            drop(runtime.spawn(async move { drop(rest.await) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn dropped_work_goes_on_and_ended_work_does_not_run_twice() {
        let (go, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (start, end) = (Arc::clone(&go), Arc::clone(&done));
        let mut work = Outliving::new(async move {
            start.notified().await;
            end.notify_one();
        });
        let early = tokio::time::timeout(Duration::from_millis(1), &mut work).await;
        assert!(early.is_err(), "it waits");
        drop(work);
        go.notify_one();
        tokio::time::timeout(Duration::from_secs(5), done.notified())
            .await
            .expect("it went on without its owner");
        assert_eq!(Outliving::new(async { 7 }).await, 7);
    }
}
