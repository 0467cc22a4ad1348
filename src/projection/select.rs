//! The members that a caller asks for: the others are left out of every record, except those that the schema
//! of the tool's results requires.

use std::collections::BTreeMap;

use super::keep::members;
use super::scan;
use crate::call::{ErrorCode, ToolError};
use crate::json;

/// Names that one call may select.
pub const FIELDS_MAX: usize = 100;
/// Bytes of one of them.
pub const FIELD_BYTES_MAX: usize = 256;

/// Selected members: plain names, or JSON Pointers in which `*` stands for every element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    root: Node,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    whole: bool,
    below: BTreeMap<String, Node>,
}

impl Fields {
    /// Reads the names and pointers of a call. An empty list selects nothing and is refused.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolError> {
        let refused =
            |message: String| Err(ToolError::new(ErrorCode::InvalidArgument, message).field("/fields"));
        let mut root = Node::default();
        let mut count = 0;
        for text in texts {
            count += 1;
            if count > FIELDS_MAX || text.is_empty() || text.len() > FIELD_BYTES_MAX {
                return refused(format!(
                    "`fields` takes 1 to {FIELDS_MAX} names of members, each of 1 to {FIELD_BYTES_MAX} bytes."
                ));
            }
            let mut node = &mut root;
            match text.strip_prefix('/') {
                Some(pointer) => {
                    for step in pointer.split('/') {
                        let key = json::pointer_name(step);
                        node = node.below.entry(key).or_default();
                    }
                }
                None => node = node.below.entry(text.to_owned()).or_default(),
            }
            node.whole = true;
        }
        if count == 0 {
            return refused("`fields` is empty: name the members you want, or leave it out.".to_owned());
        }
        Ok(Self { root })
    }

    /// The names of the first level, and whether anything deeper is selected.
    pub(super) fn names(&self) -> (Vec<&str>, bool) {
        let deep = self.root.below.values().any(|node| !node.below.is_empty());
        (self.root.below.keys().map(String::as_str).collect(), deep)
    }

    /// Writes the selected members of a record, and those in `keep`. What is no object or list stays.
    pub(super) fn select(&self, json: &str, keep: &[String], out: &mut String) {
        self.root.write(json, keep, out);
    }
}

impl Node {
    fn write(&self, json: &str, keep: &[String], out: &mut String) {
        match json.trim_start().bytes().next() {
            Some(b'{') => self.write_object(json, keep, out),
            Some(b'[') => self.write_list(json, out),
            _ => out.push_str(json),
        }
    }

    fn write_object(&self, json: &str, keep: &[String], out: &mut String) {
        out.push('{');
        let begin = out.len();
        for (key, value) in members(json) {
            let name = scan::decode(key).unwrap_or_default();
            let node = self.below.get(&*name);
            let kept = keep.iter().any(|k| **k == *name);
            if node.is_none() && !kept {
                continue;
            }
            if out.len() > begin {
                out.push(',');
            }
            out.push_str(key);
            out.push(':');
            match node {
                Some(node) if !node.whole && !kept => node.write(value, &[], out),
                _ => out.push_str(value),
            }
        }
        out.push('}');
    }

    /// Lists on the way: `*` is every element; an element that nothing selects is left out.
    fn write_list(&self, json: &str, out: &mut String) {
        out.push('[');
        let begin = out.len();
        for (at, element) in super::envelope::elements(json).into_iter().enumerate() {
            let Some(node) = self.below.get("*").or_else(|| self.below.get(&at.to_string())) else {
                continue;
            };
            if out.len() > begin {
                out.push(',');
            }
            if node.whole {
                out.push_str(element);
            } else {
                node.write(element, &[], out);
            }
        }
        out.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(fields: &[&str], keep: &[&str], json: &str) -> String {
        let keep: Vec<String> = keep.iter().map(|k| (*k).to_owned()).collect();
        let mut out = String::new();
        Fields::parse(fields.iter().copied()).unwrap().select(json, &keep, &mut out);
        out
    }

    #[test]
    fn members_are_selected_in_their_order_and_required_ones_stay() {
        let json = r#"{"id":12345678901234567890123,"a":{"x":1,"y":[1]},"b":2.50,"c/d":null}"#;
        assert_eq!(
            selected(&["b", "c/d"], &["id"], json),
            r#"{"id":12345678901234567890123,"b":2.50,"c/d":null}"#
        );
        assert_eq!(selected(&["/a/y", "/c~1d", "none"], &[], json), r#"{"a":{"y":[1]},"c/d":null}"#);
        assert_eq!(selected(&["/a/y", "a"], &[], json), r#"{"a":{"x":1,"y":[1]}}"#);
    }

    #[test]
    fn lists_are_walked_with_a_star() {
        let json = r#"{"n":3,"items":[{"id":1,"t":"a"},{"id":2},7]}"#;
        assert_eq!(selected(&["/items/*/id"], &[], json), r#"{"items":[{"id":1},{"id":2},7]}"#);
        assert_eq!(selected(&["/items/1"], &[], json), r#"{"items":[{"id":2}]}"#);
    }

    #[test]
    fn nothing_and_nonsense_are_refused() {
        assert!(Fields::parse([]).unwrap_err().message.contains("empty"));
        assert!(Fields::parse([""]).is_err());
        assert_eq!(Fields::parse(["a", "/b/c"]).unwrap().names(), (vec!["a", "b"], true));
    }
}
