//! JSON Pointers (RFC 6901) into upstream replies, with one addition: a step `*` means every element.

use std::fmt;

use crate::json;

/// One step of a [`Pointer`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// A key of an object, or an index where the value is an array.
    Key(String),
    /// Every element of an array; a key spelled `*` is written `~2`.
    Each,
}

/// A place in a reply: `""` is the whole, `/user/login` a key in a key, `/labels/*/name` a list of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Pointer(pub(super) Vec<Step>);

impl Pointer {
    /// Parses a pointer; the error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("`{text}` is not a JSON Pointer: it must be empty or begin with `/`"));
        };
        rest.split('/')
            .map(|token| match token {
                "*" => Ok(Step::Each),
                _ => unescape(token).map(Step::Key),
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self)
    }

    /// How many lists of lists it makes: at most one `*` keeps results flat.
    pub(super) fn wildcards(&self) -> usize {
        self.0.iter().filter(|s| **s == Step::Each).count()
    }
}

fn unescape(token: &str) -> Result<String, String> {
    let mut out = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        if c != '~' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('0') => out.push('~'),
            Some('1') => out.push('/'),
            Some('2') => out.push('*'),
            _ => return Err(format!("`{token}` has a `~` that is not `~0` (~), `~1` (/) or `~2` (*)")),
        }
    }
    Ok(out)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            match step {
                Step::Each => f.write_str("/*")?,
                Step::Key(key) if key == "*" => f.write_str("/~2")?,
                Step::Key(key) => write!(f, "/{}", json::pointer_token(key))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_and_written_alike() {
        for text in ["", "/", "/a/b", "/a~1b/~0/~2", "/labels/*/name", "/0"] {
            assert_eq!(Pointer::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Pointer::parse("/~2").unwrap().0, [Step::Key("*".to_owned())]);
        assert!(Pointer::parse("a").unwrap_err().contains("begin with `/`"));
        assert!(Pointer::parse("/a~3").unwrap_err().contains("~0"));
    }
}
