//! Ranked search over the catalog. The only module that knows tantivy.
//!
//! It takes a [`ToolSet`](crate::catalog::ToolSet), never a principal: what is not in the set is not
//! counted, not scored and not hinted at.

mod api;
mod asking;
mod dictionary;
pub mod discover;
pub mod evaluate;
mod exact;
mod fields;
mod graph;
mod index;
mod long;
mod num;
mod postings;
mod question;
mod ranking;
mod renew;
mod saved;
mod score;
mod scores;
mod semantic;
pub mod sentence;
mod slips;
mod synonyms;
mod text;
mod trigram;
mod usage;
mod verbs;
mod view;

#[cfg(test)]
mod tests;

pub use api::{Filters, Hit, Query, Results, Signal};
pub use index::ToolIndex;
pub use ranking::Ranking;
pub use renew::Earlier;
pub use saved::NotAnIndex;
pub use usage::{Lesson, UsageRecord, UsageView};
