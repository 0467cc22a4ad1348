//! URI templates (RFC 6570): which address fits one, and what its variables are then.
//!
//! `{name}` stands for text without `/ ? #`, `{+name}` for any text. Upstreams may use every other operator of
//! the RFC; there an expression fits any text, since only they have to understand it.

use std::collections::BTreeMap;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

/// Bytes of an address or a template: longer ones no client sends, and matching stays cheap.
pub const URI_BYTES_MAX: usize = 4_096;
/// Variables of one template.
const VARIABLES_MAX: usize = 16;

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    text: Arc<str>,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// The names of one expression (one, where an operator of ours holds it) and whether it fits any text.
    Variable {
        names: Vec<String>,
        any: bool,
    },
}

/// What the variables of a template stand for in one address, decoded.
pub type Variables = BTreeMap<String, String>;

impl UriTemplate {
    /// Parses a template that an operator wrote: `{name}` and `{+name}`, each with text between them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let template = Self::lenient(text)?;
        let mut before = false;
        for part in &template.parts {
            let variable = match part {
                Part::Literal(_) => false,
                Part::Variable { names, .. } => {
                    let plain = |n: &String| {
                        !n.is_empty() && n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    };
                    if names.len() != 1 || !names.iter().all(plain) {
                        return Err("a variable is `{name}` or `{+name}`, of letters, digits and `_`".into());
                    }
                    true
                }
            };
            if variable && before {
                return Err("two variables need text between them".into());
            }
            before = variable;
        }
        let mut names: Vec<&str> = template.variables().collect();
        names.sort_unstable();
        names.dedup();
        if names.len() != template.variables().count() {
            return Err("a variable stands in it twice".into());
        }
        Ok(template)
    }

    /// Parses a template of an upstream, whatever operators it uses.
    pub fn lenient(text: &str) -> Result<Self, String> {
        if text.len() > URI_BYTES_MAX {
            return Err(format!("it is longer than {URI_BYTES_MAX} bytes"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, tail)) = rest.split_once('{') {
            let Some((inner, after)) = tail.split_once('}') else {
                return Err("a `{` is never closed".into());
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            parts.push(expression(inner));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        if parts.iter().filter(|p| matches!(p, Part::Variable { .. })).count() > VARIABLES_MAX {
            return Err(format!("it has more than {VARIABLES_MAX} variables"));
        }
        Ok(Self { text: Arc::from(text), parts })
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts
            .iter()
            .flat_map(|p| match p {
                Part::Literal(_) => &[][..],
                Part::Variable { names, .. } => names.as_slice(),
            })
            .map(String::as_str)
    }

    /// What the variables are, where `uri` fits. Each takes the shortest text that lets the rest fit; the last
    /// one all there is.
    pub fn matches(&self, uri: &str) -> Option<Variables> {
        if uri.len() > URI_BYTES_MAX {
            return None;
        }
        let mut found = Variables::new();
        let mut rest = uri;
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            let (mut names, mut any) = match part {
                Part::Literal(text) => {
                    rest = rest.strip_prefix(text.as_str())?;
                    continue;
                }
                Part::Variable { names, any } => (names.as_slice(), *any),
            };
            // Expressions without text between them: only the upstream knows where one ends.
            while parts.next_if(|p| matches!(p, Part::Variable { .. })).is_some() {
                (names, any) = (&[], true);
            }
            let taken = match parts.next_if(|p| matches!(p, Part::Literal(_))) {
                None => std::mem::take(&mut rest),
                Some(Part::Literal(next)) => {
                    let at = if parts.peek().is_none() {
                        rest.len().checked_sub(next.len()).filter(|_| rest.ends_with(next.as_str()))?
                    } else {
                        rest.find(next.as_str())?
                    };
                    let taken = rest.get(..at)?;
                    rest = rest.get(at + next.len()..)?;
                    taken
                }
                Some(Part::Variable { .. }) => return None,
            };
            if !any && (taken.is_empty() || taken.contains(['/', '?', '#'])) {
                return None;
            }
            let value = percent_decode_str(taken).decode_utf8().ok()?;
            if value.chars().any(char::is_control) {
                return None;
            }
            // Of several names in one expression nobody but the upstream knows which is which.
            if let [name] = names {
                found.insert(name.clone(), value.into_owned());
            }
        }
        rest.is_empty().then_some(found)
    }
}

fn expression(inner: &str) -> Part {
    let (any, list) = match inner.strip_prefix(['+', '#', '.', '/', ';', '?', '&']) {
        Some(list) => (true, list),
        None => (inner.contains([',', '*', ':']), inner),
    };
    let name = |n: &str| n.split(['*', ':']).next().unwrap_or_default().to_owned();
    Part::Variable { names: list.split(',').map(name).collect(), any }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matched(template: &str, uri: &str) -> Option<Vec<(String, String)>> {
        UriTemplate::parse(template).unwrap().matches(uri).map(|v| v.into_iter().collect())
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn variables_are_found_and_decoded() {
        assert_eq!(matched("t://{id}/data", "t://12%203/data"), Some(pairs(&[("id", "12 3")])));
        assert_eq!(matched("t://{id}.json", "t://a.json.json"), Some(pairs(&[("id", "a.json")])));
        assert_eq!(matched("t://{a}/{b}", "t://x/y"), Some(pairs(&[("a", "x"), ("b", "y")])));
        assert_eq!(matched("t://f/{+path}", "t://f/a/b?c"), Some(pairs(&[("path", "a/b?c")])));
        assert_eq!(matched("t://plain", "t://plain"), Some(pairs(&[])));
    }

    #[test]
    fn what_does_not_fit_is_no_match() {
        for (template, uri) in [
            ("t://{id}/data", "t://a/b/data"),
            ("t://{id}/data", "t:///data"),
            ("t://{id}", "t://%ff"),
            ("t://{id}", "t://a%00b"),
            ("t://{id}", "u://a"),
            ("t://plain", "t://plain2"),
        ] {
            assert_eq!(matched(template, uri), None, "{template} {uri}");
        }
    }

    #[test]
    fn mistakes_are_told_and_upstreams_may_use_every_operator() {
        for bad in ["t://{a}{b}", "t://{a,b}", "t://{", "t://{?q}{a}", "t://{a}/{a}", "t://{}"] {
            assert!(UriTemplate::parse(bad).is_err(), "{bad}");
        }
        let theirs = UriTemplate::lenient("s://x{/path*}{?q,lang}").unwrap();
        assert_eq!(theirs.variables().collect::<Vec<_>>(), ["path", "q", "lang"]);
        let search = UriTemplate::lenient("s://x/{a}{?q,lang}").unwrap();
        assert!(search.matches("s://y").is_none() && search.matches("s://x/1?q=2").is_some());
    }

    proptest! {
        #[test]
        fn nothing_panics_and_values_come_back(value in "[^/?#%\\p{Cc}]{1,20}", junk in "\\PC{0,60}") {
            let template = UriTemplate::parse("t://{v}/end").unwrap();
            let found = template.matches(&format!("t://{value}/end")).unwrap();
            prop_assert_eq!(&found["v"], &value);
            drop(UriTemplate::lenient(&junk).map(|t| t.matches(&junk)));
        }
    }
}
