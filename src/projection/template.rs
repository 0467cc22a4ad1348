//! Texts with `{argument}` placeholders. A template only says where arguments go; how each place encodes
//! them is decided by the request that holds it.

use serde_json::Value;

use crate::json::{self, Object};

/// One piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Literal text.
    Text(String),
    /// An argument by name. `segments` is `{*name}`: in a path, slashes in the value separate segments.
    Argument {
        /// The argument's name.
        name: String,
        /// Whether slashes separate.
        segments: bool,
    },
}

/// A text with placeholders; `{{` and `}}` stand for braces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template(pub(super) Vec<Piece>);

impl Template {
    /// A text without placeholders, braces and all.
    pub fn literal(text: &str) -> Self {
        Self(vec![Piece::Text(text.to_owned())])
    }

    /// Parses a template; the error has the byte offset inside the text.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        let at = |rest: &str| text.len() - rest.len();
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("{{") {
                literal.push('{');
                rest = after;
            } else if let Some(after) = rest.strip_prefix("}}") {
                literal.push('}');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let Some((name, tail)) = after.split_once('}') else {
                    return Err((at(rest), "this `{` is never closed; a literal one is `{{`".to_owned()));
                };
                let (segments, name) = name.strip_prefix('*').map_or((false, name), |n| (true, n));
                if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "_-.$".contains(c)) {
                    return Err((at(rest), format!("`{{{name}}}` is not an argument name")));
                }
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Argument { name: name.to_owned(), segments });
                rest = tail;
            } else if c == '}' {
                return Err((at(rest), "this `}` closes nothing; a literal one is `}}`".to_owned()));
            } else {
                literal.push(c);
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self(pieces))
    }

    /// The arguments it names.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|p| match p {
            Piece::Argument { name, .. } => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The argument's name where the whole text is one placeholder.
    pub fn whole(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Argument { name, .. }] => Some(name),
            _ => None,
        }
    }

    /// The text with every argument put in; `None` where one is absent or null.
    pub fn fill(&self, args: &Object) -> Option<String> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Argument { name, .. } => out.push_str(&plain(present(args, name)?)),
            }
        }
        Some(out)
    }
}

/// An argument that is there and not null.
pub(super) fn present<'a>(args: &'a Object, name: &str) -> Option<&'a Value> {
    args.get(name).filter(|v| !v.is_null())
}

/// A value as plain text: strings as they are, lists joined by commas, everything else as JSON.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        other => json::to_text(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_are_parsed_and_filled() {
        let t = Template::parse("a {{x}} {name}/{*path}").unwrap();
        assert_eq!(t.arguments().collect::<Vec<_>>(), ["name", "path"]);
        let args = json!({"name": 7, "path": "b/c"});
        assert_eq!(t.fill(args.as_object().unwrap()).unwrap(), "a {x} 7/b/c");
        assert_eq!(t.fill(json!({"name": null, "path": ""}).as_object().unwrap()), None);
        assert_eq!(Template::parse("{q}").unwrap().whole(), Some("q"));
    }

    #[test]
    fn mistakes_have_a_place() {
        assert_eq!(Template::parse("ab{c").unwrap_err().0, 2);
        assert_eq!(Template::parse("a}").unwrap_err().0, 1);
        assert!(Template::parse("{a b}").unwrap_err().1.contains("not an argument name"));
    }
}
