//! Rhai, sandboxed. The only module that knows it.
