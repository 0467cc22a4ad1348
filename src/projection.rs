//! Arguments to an upstream request, an upstream reply to a small result under a schema.
//!
//! Pure: a projection reads the arguments, the reply and the call's facts, and nothing else. A projection
//! that faults fails the call; it is never skipped.

mod accept;
mod api;
mod ask;
mod bare;
mod compose;
mod context;
mod contract;
mod coverage;
mod document;
mod engine;
mod envelope;
mod host;
mod keep;
mod lines;
mod made;
mod outline;
mod plain;
mod plan;
mod pointer;
mod projector;
mod read;
mod reply;
mod request;
mod scan;
mod script;
#[cfg(test)]
mod script_tests;
mod scrub;
mod seen;
mod select;
mod sink;
mod spec;
mod template;
#[cfg(test)]
mod tests;
mod tree;
mod upload;
mod view;

pub use api::{CallFacts, Elapsed, PackSources, ResultBudget, ScriptCalls, Shaped};
pub use bare::unprojected;
pub use coverage::{Coverage, CoveredFunction};
pub use engine::Projection;
pub use host::reference;
pub use keep::{Keeping, Kept, Part, PartError, RESULT_META, RESULT_URI, at, part};
pub use plain::PLAIN_SCHEMA;
pub use projector::Projector;
pub use scrub::scrub;
pub use select::{FIELD_BYTES_MAX, FIELDS_MAX, Fields};
pub use spec::ProjectionSpec;
pub use template::Template;
