//! One generation: catalog, policies, projections, index; built whole, published whole.
//!
//! A request takes one [`Snapshot`] and sees nothing else. Building is a pure function of a [`Home`] and the
//! upstreams' tools; a home that does not build leaves the last good snapshot in place. Nothing here knows
//! callers' requests or the wire.

mod home;
mod publish;
mod settings;

pub use home::{Home, Pack};
pub use publish::{Publisher, Snapshot};
pub use settings::{AgentSettings, Budgets, ModelHint, ServerSettings};
