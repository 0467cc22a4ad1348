//! A question to the index and its answer.

use std::borrow::Cow;

use serde::Serialize;

use crate::id::ToolNo;

/// Which tools may be found, besides the caller's own set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filters {
    /// Only this category.
    pub category: Option<String>,
    /// Only this upstream.
    pub upstream: Option<String>,
    /// Only tools known to read only.
    pub read_only: bool,
}

/// One search.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    /// What is needed, at most [`crate::limits::QUERY_CHARS_MAX`] code points; may be empty (browse by filter).
    pub text: &'a str,
    /// Filters.
    pub filters: Filters,
    /// Hits to skip.
    pub offset: usize,
    /// Hits wanted.
    pub limit: usize,
    /// Whether to give each hit's signals.
    pub explain: bool,
}

/// One signal of a hit's score (seed 004).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Signal {
    /// `lexical`, `semantic`, `graph`, `permission`, `freshness` or `usage`.
    pub name: &'static str,
    /// Its value, 0 to 1.
    pub value: f64,
    /// Its public weight.
    pub weight: f64,
    /// Where the value is from: `computed`, `host`, `authorization`, `fallback`, `off`, or `model NAME` for the semantic
    /// one where a sentence model was asked.
    pub source: Cow<'static, str>,
}

/// One tool found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The tool.
    pub tool: ToolNo,
    /// Its score, rounded so that equal means equal.
    pub score: f64,
    /// Whether it was named exactly.
    pub exact: bool,
    /// Its signals, if asked for.
    pub signals: Vec<Signal>,
}

/// What a search found.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// The hits from `offset` on, best first; equal scores in id order.
    pub hits: Vec<Hit>,
    /// How many tools match in all.
    pub total: usize,
}
