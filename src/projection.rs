//! Arguments to an upstream request, an upstream reply to a small result under a schema.
//!
//! Pure: a projection reads the arguments, the reply and the call's facts, and nothing else. A projection
//! that faults fails the call; it is never skipped.

mod api;

pub use api::{CallFacts, ProjectionSpec, ResultBudget, Shaped};
