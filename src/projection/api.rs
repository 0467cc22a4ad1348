//! What goes into and comes out of a projection.

use std::sync::Arc;

use crate::call::{Omission, ToolOutcome};
use crate::json::Object;
use crate::limits;

/// The shaping of one tool as `upstream.toml` writes it (contract §1.3, §1.7), read but not yet compiled.
#[derive(Debug, Clone, Default)]
pub struct ProjectionSpec {}

/// Facts of a call that a script may read as `ctx`.
#[derive(Debug, Clone, Default)]
pub struct CallFacts {
    /// The caller's name.
    pub subject: Arc<str>,
    /// The caller's claims that policy lets through.
    pub claims: Arc<Object>,
    /// Milliseconds since the epoch when the call began.
    pub now_ms: u64,
    /// The call's correlation id.
    pub correlation_id: Arc<str>,
    /// The tool's id.
    pub tool: Arc<str>,
}

/// How large a result may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultBudget {
    /// Bytes of the structured half.
    pub result_bytes: usize,
    /// Bytes of unprojected text.
    pub text_bytes: usize,
    /// Records of a page.
    pub records: usize,
}

impl Default for ResultBudget {
    fn default() -> Self {
        Self {
            result_bytes: limits::RESULT_BYTES,
            text_bytes: limits::TEXT_BYTES,
            records: limits::RESULT_RECORDS,
        }
    }
}

/// A shaped reply and its receipt.
#[derive(Debug, Clone)]
pub struct Shaped {
    /// The result or the failure.
    pub outcome: ToolOutcome,
    /// Bytes of the reply.
    pub bytes_in: usize,
    /// Bytes of the result.
    pub bytes_out: usize,
    /// What was left out.
    pub omitted: Vec<Omission>,
}
