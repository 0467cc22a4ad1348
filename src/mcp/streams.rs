//! Event streams: messages that come without being asked for one by one, and the cap on how many one caller
//! may hold open.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::mpsc;

use crate::limits::STREAMS_PER_CALLER_MAX;

/// Whole JSON-RPC messages, one after the other. Dropping it means that nobody listens any more.
pub type Messages = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The messages of a channel.
pub(super) fn of_channel(receiver: mpsc::Receiver<Bytes>) -> Messages {
    Box::pin(unfold(receiver, |mut receiver| async move {
        let message = receiver.recv().await?;
        Some((message, receiver))
    }))
}

/// How many streams each caller holds open.
#[derive(Debug, Default)]
pub(super) struct StreamCounts(Arc<Mutex<HashMap<Arc<str>, usize>>>);

impl StreamCounts {
    /// A place for one more stream of a caller; it is given back when the place is dropped.
    pub(super) fn open(&self, subject: &Arc<str>) -> Option<StreamPlace> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = map.entry(Arc::clone(subject)).or_default();
        if *count >= STREAMS_PER_CALLER_MAX {
            return None;
        }
        *count += 1;
        Some(StreamPlace { counts: Arc::clone(&self.0), subject: Arc::clone(subject) })
    }

    /// Streams open now.
    pub(super) fn total(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// One open stream.
pub(super) struct StreamPlace {
    counts: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    subject: Arc<str>,
}

impl fmt::Debug for StreamPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamPlace").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut map = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = map.get_mut(&self.subject) {
            *count -= 1;
            if *count == 0 {
                map.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_capped_per_caller_and_given_back() {
        let counts = StreamCounts::default();
        let (alice, bob): (Arc<str>, Arc<str>) = (Arc::from("alice"), Arc::from("bob"));
        let mut held: Vec<StreamPlace> =
            (0..STREAMS_PER_CALLER_MAX).map(|_| counts.open(&alice).unwrap()).collect();
        assert!(counts.open(&alice).is_none());
        assert!(counts.open(&bob).is_some());
        held.pop();
        assert!(counts.open(&alice).is_some());
        drop(held);
        assert_eq!(counts.total(), 0);
    }
}
