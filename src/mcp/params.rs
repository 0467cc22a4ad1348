//! `x-mcp-header`: arguments that a client repeats as `Mcp-Param-*` headers (MCP 2026-07-28, streamable HTTP,
//! custom headers).

use serde_json::Value;

use crate::json::Object;

use super::headers::{Header, Headers, decode};

/// The keyword in a property's schema.
pub(super) const KEYWORD: &str = "x-mcp-header";
/// Nesting of properties that is looked into: the depth that providers take of a schema.
const DEPTH_MAX: usize = 10;

/// One argument with a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParam {
    /// The header's name after `Mcp-Param-`.
    pub header: String,
    /// The property's place: the names from the root down.
    pub path: Vec<String>,
}

/// The header arguments of an input schema, found through `properties` only, as the rules demand. A schema
/// that breaks the rules (a bad or repeated name, a property that is no string, integer or boolean) has none:
/// clients drop such a tool, so nothing is asked of them.
pub fn header_params(schema: &Value) -> Vec<HeaderParam> {
    let mut found = Vec::new();
    if !collect(schema, &mut Vec::new(), &mut found) {
        return Vec::new();
    }
    let mut names: Vec<String> = found.iter().map(|p| p.header.to_ascii_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() == found.len() { found } else { Vec::new() }
}

/// Whether everything below is in order.
fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<HeaderParam>) -> bool {
    if path.len() > DEPTH_MAX {
        return true;
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return true };
    properties.iter().all(|(name, property)| {
        path.push(name.clone());
        let fine = match property.get(KEYWORD) {
            None => true,
            Some(Value::String(header)) if is_token(header) && is_plain(property) => {
                found.push(HeaderParam { header: header.clone(), path: path.clone() });
                true
            }
            Some(_) => false,
        } && collect(property, path, found);
        path.pop();
        fine
    })
}

fn is_plain(property: &Value) -> bool {
    matches!(property.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean"))
}

/// RFC 9110 §5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Compares the headers with the arguments; the text of a difference names the header, never a value.
pub(super) fn check(params: &[HeaderParam], headers: &dyn Headers, arguments: &Object) -> Result<(), String> {
    for param in params {
        let name = format!("Mcp-Param-{}", param.header);
        let value = lookup(arguments, &param.path).filter(|v| !v.is_null());
        let given = match headers.find(&name) {
            Header::Absent => None,
            Header::Value(text) => Some(decode(text).ok_or_else(|| format!("`{name}` cannot be decoded"))?),
            Header::Unreadable => {
                return Err(format!("`{name}` comes twice or has characters that no header may have"));
            }
        };
        match (value, given) {
            (None, None) => {}
            (Some(value), Some(given)) if same(value, &given) => {}
            (Some(_), None) => return Err(format!("`{name}` is missing; the body has a value for it")),
            _ => return Err(format!("`{name}` differs from the body")),
        }
    }
    Ok(())
}

fn lookup<'a>(arguments: &'a Object, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(arguments.get(first)?, |value, name| value.get(name))
}

/// Integers compare as numbers, so that `007` and `7` are the same.
fn same(value: &Value, given: &str) -> bool {
    match value {
        Value::String(text) => text == given,
        Value::Bool(flag) => given == if *flag { "true" } else { "false" },
        Value::Number(n) => {
            n.as_i64().zip(given.parse().ok()).is_some_and(|(a, b): (i64, i64)| a == b)
                || n.as_u64().zip(given.parse().ok()).is_some_and(|(a, b): (u64, u64)| a == b)
                || n.to_string() == given
        }
        // A value of another type breaks the tool's schema, and the call says so.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Fixed(&'static [(&'static str, &'static str)]);

    impl Headers for Fixed {
        fn find(&self, name: &str) -> Header<'_> {
            self.0
                .iter()
                .find(|(n, _)| n.eq_ignore_ascii_case(name))
                .map_or(Header::Absent, |(_, v)| Header::Value(v))
        }

        fn list(&self, _: &str) -> Vec<&str> {
            Vec::new()
        }
    }

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "size": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "other": {"type": "string"},
        }})
    }

    #[test]
    fn annotated_properties_are_found_and_broken_annotations_void_all() {
        let names: Vec<String> = header_params(&schema()).into_iter().map(|p| p.path.join("/")).collect();
        assert_eq!(names, ["region", "size/n", "dry"]);
        for broken in [
            json!({"a": {"type": "string", "x-mcp-header": "Bad name"}}),
            json!({"a": {"type": "string", "x-mcp-header": 7}}),
            json!({"a": {"type": "number", "x-mcp-header": "A"}}),
            json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
        ] {
            assert_eq!(header_params(&json!({"properties": broken})), [], "{broken}");
        }
    }

    #[test]
    fn headers_must_say_what_the_body_says() {
        let params = header_params(&schema());
        let run = |headers: &'static [(&'static str, &'static str)], arguments: Value| {
            check(&params, &Fixed(headers), arguments.as_object().unwrap())
        };
        let all = json!({"region": "eu", "size": {"n": 7}, "dry": true, "other": "x"});
        assert_eq!(
            run(&[("mcp-param-region", "eu"), ("Mcp-Param-N", "07"), ("Mcp-Param-Dry", "true")], all.clone()),
            Ok(())
        );
        assert_eq!(
            run(&[("mcp-param-region", "=?base64?ZXU=?=")], json!({"region": "eu", "dry": null})),
            Ok(())
        );
        assert_eq!(run(&[], json!({})), Ok(()));
        for (headers, arguments) in [
            (&[][..], json!({"region": "eu"})),
            (&[("Mcp-Param-Region", "us")][..], json!({"region": "eu"})),
            (&[("Mcp-Param-Region", "eu")][..], json!({})),
            (&[("Mcp-Param-Region", "=?base64?***?=")][..], json!({"region": "eu"})),
            (&[("Mcp-Param-N", "8")][..], json!({"size": {"n": 7}})),
            (&[("Mcp-Param-Dry", "True")][..], json!({"dry": true})),
        ] {
            assert!(run(headers, arguments.clone()).is_err(), "{headers:?} {arguments}");
        }
    }
}
