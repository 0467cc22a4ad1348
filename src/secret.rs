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

/// What stands in place of a secret.
pub const REMOVED: &str = "[secret removed]";

/// Replaces every occurrence of secrets in a text that came from outside, also as JSON writes them. `None`
/// where there was none. Secrets shorter than [`SECRET_BYTES_MIN`](crate::limits::SECRET_BYTES_MIN) stay: they
/// are words that any text may hold.
pub fn remove(text: &str, secrets: &[Secret]) -> Option<String> {
    let mut clean: Option<String> = None;
    for secret in secrets.iter().map(Secret::expose).filter(|s| s.len() >= crate::limits::SECRET_BYTES_MIN) {
        let escaped = serde_json::Value::from(secret).to_string();
        let escaped = escaped.trim_matches('"');
        for form in [secret, escaped] {
            let now = clean.as_deref().unwrap_or(text);
            if now.contains(form) {
                clean = Some(now.replace(form, REMOVED));
            }
        }
    }
    clean
}

/// Looks up the references `${env:NAME}` and `${file:PATH}` of settings. `config` makes one that reads the
/// process environment and files; tests make one from a table.
#[derive(Clone)]
pub struct Resolver(Arc<dyn Fn(Reference<'_>) -> Option<String> + Send + Sync>);

/// One reference inside a setting's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'a> {
    /// `${env:NAME}`
    Env(&'a str),
    /// `${file:PATH}`, relative to the home
    File(&'a str),
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl Resolver {
    /// A resolver from a look-up; `None` means that the variable or file is not there.
    pub fn new(look_up: impl Fn(Reference<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    /// Replaces every reference in `text`. The error names the reference that has no value, never a value.
    pub fn expand(&self, text: &str) -> Result<Secret, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let (inner, tail) = after.split_once('}').ok_or_else(|| "`${` without its `}`".to_owned())?;
            let reference = match inner.split_once(':') {
                Some(("env", name)) => Reference::Env(name),
                Some(("file", path)) => Reference::File(path),
                _ => return Err(format!("`${{{inner}}}` is not `${{env:NAME}}` or `${{file:PATH}}`")),
            };
            out.push_str(&(self.0)(reference).ok_or_else(|| format!("`${{{inner}}}` has no value"))?);
            rest = tail;
        }
        out.push_str(rest);
        Ok(Secret::new(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoed_secrets_are_removed_as_they_are_and_as_json_writes_them() {
        let secrets = [Secret::new("pa\"ss-word"), Secret::new("abc"), Secret::new("token-123")];
        let text = r#"{"a":"pa\"ss-word","b":"xtoken-123y","c":"abc"}"#;
        let clean = remove(text, &secrets).unwrap();
        assert_eq!(clean, r#"{"a":"[secret removed]","b":"x[secret removed]y","c":"abc"}"#);
        assert_eq!(remove("pa\"ss-word", &secrets).unwrap(), REMOVED);
        assert_eq!(remove("nothing here", &secrets), None);
    }

    #[test]
    fn references_are_expanded_or_named() {
        let resolver = Resolver::new(|r| (r == Reference::Env("KEY")).then(|| "k".to_owned()));
        assert_eq!(resolver.expand("Bearer ${env:KEY}!").unwrap().expose(), "Bearer k!");
        assert_eq!(resolver.expand("${env:NONE}").unwrap_err(), "`${env:NONE}` has no value");
        assert_eq!(resolver.expand("${KEY}").unwrap_err(), "`${KEY}` is not `${env:NAME}` or `${file:PATH}`");
        assert!(resolver.expand("${env:KEY").is_err());
    }

    #[test]
    fn a_secret_prints_nothing_of_itself() {
        let s = Secret::new("hunter2");
        assert_eq!((format!("{s:?}{s}"), s.expose()), ("(secret)(secret)".to_owned(), "hunter2"));
    }
}
