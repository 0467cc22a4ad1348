//! HTTP (axum) and stdio.
