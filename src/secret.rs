//! A text that must not be shown: tokens, keys, passwords. Its `Debug` and `Display` print no part of it.

use std::fmt;
use std::sync::Arc;

/// A secret value. Only [`Secret::expose`] gives it out, where it is put on the wire or compared.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself: for the wire and for comparing, never for a message, a log or a hash that is shown.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_nothing_of_itself() {
        let s = Secret::new("hunter2");
        assert_eq!((format!("{s:?}{s}"), s.expose()), ("(secret)(secret)".to_owned(), "hunter2"));
    }
}
