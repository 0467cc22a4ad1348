//! From a bearer token to a principal.
