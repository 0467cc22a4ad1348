//! Ranked search over the catalog. The only module that knows tantivy.
