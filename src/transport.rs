//! HTTP (axum) and stdio: bytes to messages and back, and everything that must hold before a message is read.
//!
//! Host and Origin, body size, credentials and time limits are settled here; what a message means is for
//! `mcp`. Nothing here knows tools.

mod access;
mod admin;
mod api;
mod body;
mod compress;
mod files;
mod http;
mod jobs;
mod lanes;
mod listener;
mod metrics;
mod origin;
mod reply;
mod stdio;

pub use access::{Access, AccessHandle};
pub use http::{Front, front};
pub use lanes::Lanes;
pub use listener::serve;
pub use origin::Boundary;
pub use stdio::run_stdio;
