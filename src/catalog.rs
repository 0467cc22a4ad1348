//! The catalog: every tool of one generation, in id order, immutable once built.
//!
//! It knows what a tool is, not where it runs nor who may use it. Tools have dense numbers inside one
//! generation; a [`ToolSet`] is a bitmap over them.

mod build;
mod contract;
mod names;
mod set;
mod tool;

pub use build::{Catalog, CatalogBuilder};
pub use contract::{ContractChange, Hash, ToolContract, changes, surface_hash};
pub use names::wire_name;
pub use set::ToolSet;
pub use tool::{Availability, Deprecation, Tool, ToolAnnotations};
