//! Validated names and numbers of the things docent holds.
//!
//! Every identifier is made by `parse` and is cheap to clone. Nothing here knows where a name came from.

mod random;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use random::{hex, random, unique};

/// Bytes of an identifier at most: the longest id seen among 22,742 real tools is 146 bytes.
pub const ID_BYTES_MAX: usize = 200;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text was empty.
    #[error("the {kind} is empty")]
    Empty {
        /// Which identifier was meant.
        kind: &'static str,
    },
    /// The text was longer than [`ID_BYTES_MAX`].
    #[error("the {kind} has {bytes} bytes, {ID_BYTES_MAX} are allowed")]
    TooLong {
        /// Which identifier was meant.
        kind: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A character outside the alphabet.
    #[error(
        "the {kind} `{text}` has the character {found:?}; allowed are letters, digits and {marks}",
        marks = marks(kind)
    )]
    Character {
        /// Which identifier was meant.
        kind: &'static str,
        /// The text as given.
        text: String,
        /// The first character that is not allowed.
        found: char,
    },
}

fn marks(kind: &str) -> &'static str {
    if kind == "scope" { "`_ - . ~ : / * +`" } else { "`_ - . ~`" }
}

/// Scopes carry the characters that OAuth scope tokens use in practice besides (RFC 6749 §3.3).
fn allowed(kind: &str, c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '_' | '-' | '.' | '~')
        || (kind == "scope" && matches!(c, ':' | '/' | '*' | '+'))
}

fn check(kind: &'static str, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { kind });
    }
    if text.len() > ID_BYTES_MAX {
        return Err(IdError::TooLong { kind, bytes: text.len() });
    }
    match text.chars().find(|c| !allowed(kind, *c)) {
        Some(found) => Err(IdError::Character { kind, text: text.to_owned(), found }),
        None => Ok(()),
    }
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the alphabet (letters, digits, `_ - . ~`) and the length.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                check($kind, text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The identifier as shared text.
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

identifier!(
    /// A tool: `<upstream>.<name>`, unique in a catalog.
    ToolId,
    "tool id"
);
identifier!(
    /// An upstream: the name of its folder under `scripts/`.
    UpstreamId,
    "upstream id"
);
identifier!(
    /// An agent: its key under `[agents]`.
    AgentId,
    "agent name"
);
identifier!(
    /// A scope that a caller may hold and a tool may ask for, e.g. `ops:read`.
    Scope,
    "scope"
);

/// The number of a published snapshot: it only grows, and it is in every cache key and cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Generation(pub u64);

/// The dense number of a tool inside one generation's catalog: its place in id order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolNo(pub u32);

impl ToolNo {
    /// The number as an index.
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked() {
        assert!(ToolId::parse("git.log").is_ok());
        assert!(ToolId::parse("bfcl.Hotels_4~2").is_ok());
        assert_eq!(ToolId::parse(""), Err(IdError::Empty { kind: "tool id" }));
        assert!(Scope::parse("ops:read").is_ok() && ToolId::parse("ops:read").is_err());
        assert!(matches!(ToolId::parse("a b"), Err(IdError::Character { found: ' ', .. })));
        assert!(matches!(ToolId::parse(&"x".repeat(201)), Err(IdError::TooLong { bytes: 201, .. })));
    }
}
