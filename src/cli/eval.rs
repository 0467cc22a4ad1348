//! `docent eval FILE`: how well search finds the right tools of labelled queries.

mod metrics;
