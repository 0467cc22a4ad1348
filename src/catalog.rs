//! The catalog: every tool of one generation, in id order, immutable once built.
//!
//! It knows what a tool is, not where it runs nor who may use it. Tools have dense numbers inside one
//! generation; a [`ToolSet`] is a bitmap over them.

mod build;
mod contract;
mod names;
mod offer;
mod set;
mod tool;
mod uri;

pub use build::{Catalog, CatalogBuilder};
pub use contract::{ContractChange, Hash, ToolContract, changes, surface_hash};
pub use names::wire_name;
pub use offer::{PromptArgument, PromptEntry, ResourceEntry, SCHEME, of_upstream, upstream_uri};
pub use set::ToolSet;
pub use tool::{Availability, Deprecation, TaskSupport, Tool, ToolAnnotations};
pub use uri::{URI_BYTES_MAX, UriTemplate, Variables};
