//! JSON Schemas as docent uses them: kept as text, compiled on first use, shared by content.
//!
//! A schema of an upstream is untrusted: no reference is ever fetched, depth and size are bounded.

pub mod fold;
pub mod lint;
mod text;
mod validate;

pub use text::SchemaText;
pub use validate::{SchemaProblem, Validators, pattern_is_safe};
