//! Ranked search over the catalog. The only module that knows tantivy.
//!
//! It takes a [`ToolSet`](crate::catalog::ToolSet), never a principal: what is not in the set is not
//! counted, not scored and not hinted at.

mod api;

pub use api::{Filters, Hit, Query, Results, Signal};
