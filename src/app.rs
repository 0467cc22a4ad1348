//! The composition root: build, serve, reload, drain.
