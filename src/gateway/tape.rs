//! What passes between one call and its upstreams, for `docent record`. Never on while serving.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::call::{UpstreamReply, UpstreamRequest};

/// One exchange of a call.
#[derive(Debug, Clone)]
pub enum Taped {
    /// A request of the call or of its script, and the reply, without the upstream's own credentials.
    Asked(UpstreamRequest, Box<UpstreamReply>),
    /// A call of another tool by the script, and its result.
    Called(String, Value),
}

/// Collects the exchanges of one call. Clones are the same tape.
#[derive(Debug, Clone, Default)]
pub struct Tape(Arc<Mutex<Vec<Taped>>>);

impl Tape {
    /// Adds an exchange.
    pub(super) fn add(&self, taped: Taped) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(taped);
    }

    /// What was taped, in order.
    pub fn take(&self) -> Vec<Taped> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
