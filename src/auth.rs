//! From a bearer token to a principal.
//!
//! It knows the callers of a home and the hashes of their tokens, never the tokens themselves; JWTs it checks
//! with the keys of their issuer. It decides who is asking, not what they may do: that is `policy`. It knows
//! neither HTTP nor the settings file.

mod authenticator;
mod jwt;
mod token;

pub use authenticator::{AuthRefusal, Authenticator, CallerEntry};
pub use jwt::{FetchKeys, JwtAlgorithm, JwtSettings, JwtVerifier, KeySource, RoleRights};
pub use token::{GeneratedToken, TOKEN_BYTES_MAX, TokenHash, TokenHashError};
