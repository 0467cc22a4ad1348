//! The one integration-test binary.

mod tidy;
