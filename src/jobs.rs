//! Calls that outlive the request that made them: their state, their owner, their results, their turn.
//!
//! A [`Job`] is one piece of work that callers wait for, come back to and cancel; [`Jobs`] holds those of this
//! process and keeps what must survive it in the store; a [`Lane`] lets callers take turns at an upstream.
//! What the work is, who may see it and how it looks on a wire is not known here.

mod job;
mod kept;
mod lane;
mod table;

use serde_json::{Value, json};

use crate::schema::SchemaText;

pub use job::{INPUT_REQUIRED, Job, JobState, JobView, Progress};
pub use lane::{Full, Lane, Slot, Turn};
pub use table::{Claimed, JobCounts, Jobs, Replay, TooMany};

/// An output schema that also takes the answer of a call that goes on as a job.
pub fn or_running(schema: &SchemaText) -> SchemaText {
    let Value::Object(mut own) = schema.value() else { return schema.clone() };
    // Definitions are referred to from the root, so they stay there.
    let mut whole = serde_json::Map::new();
    for root in ["$schema", "$defs"] {
        whole.extend(own.remove(root).map(|value| (root.to_owned(), value)));
    }
    let running = json!({
        "type": "object",
        "description": "The call goes on as a job.",
        "properties": {
            "job_id": {"type": "string"},
            "status": {"enum": [JobState::Queued.as_str(), JobState::Running.as_str(), INPUT_REQUIRED]},
            "progress": {"type": "number"},
        },
        "required": ["job_id", "status", "progress"],
    });
    whole.insert("type".to_owned(), json!("object"));
    whole.insert("anyOf".to_owned(), json!([own, running]));
    SchemaText::of(&Value::Object(whole))
}
