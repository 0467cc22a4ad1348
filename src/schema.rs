//! JSON Schemas as docent uses them: kept as text, compiled on first use, shared by content.
//!
//! A schema of an upstream is untrusted: no reference is ever fetched, depth and size are bounded.

mod changes;
mod compat;
pub mod fold;
pub mod lint;
mod text;
mod validate;

pub use changes::{SchemaChange, Use, schema_changes};
pub use compat::compat;
pub use text::SchemaText;
pub use validate::{SchemaProblem, Validators, pattern_is_safe};
