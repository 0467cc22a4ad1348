//! `Mcp-Name` and `Mcp-Param-*`: values that travel in headers of the stateless wire, and the `x-mcp-header`
//! marks in schemas that ask for them (revision 2026-07-28, streamable HTTP, custom headers).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::json::{self, Object};

/// One argument that the server wants in a header as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderMark {
    pub(super) header: HeaderName,
    /// The property's path from the root, through `properties` only.
    pub(super) path: Vec<String>,
}

/// A text as a header value: plain where it is printable ASCII without odd spaces, else in base64.
pub(super) fn encode(text: &str) -> HeaderValue {
    let printable = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    let plain = printable && text.trim() == text && !text.starts_with("=?base64?");
    let value = if plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) };
    HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static(""))
}

/// Takes the marks out of a schema. The error tells why a server that sends them breaks the rules.
pub(super) fn take_marks(schema: &mut Value) -> Result<Vec<HeaderMark>, String> {
    let mut marks = Vec::new();
    let mut path = Vec::new();
    let mut problem = None;
    properties(schema, &mut path, &mut marks, &mut problem);
    if strip(schema) > 0 {
        problem.get_or_insert_with(|| "`x-mcp-header` stands where no argument is".to_owned());
    }
    for (at, mark) in marks.iter().enumerate() {
        if marks.iter().take(at).any(|m| m.header == mark.header) {
            problem.get_or_insert_with(|| format!("two arguments want the header `{}`", mark.header));
        }
    }
    problem.map_or(Ok(marks), Err)
}

fn properties(
    schema: &mut Value,
    path: &mut Vec<String>,
    marks: &mut Vec<HeaderMark>,
    problem: &mut Option<String>,
) {
    let Some(children) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in children.iter_mut() {
        path.push(name.clone());
        let mark = property.as_object_mut().and_then(|p| p.remove("x-mcp-header"));
        if let Some(mark) = mark {
            let kind = property.get("type").and_then(Value::as_str);
            let header = mark
                .as_str()
                .filter(|m| !m.is_empty())
                .and_then(|m| HeaderName::from_bytes(format!("mcp-param-{m}").as_bytes()).ok());
            match header.filter(|_| matches!(kind, Some("integer" | "string" | "boolean"))) {
                Some(header) => marks.push(HeaderMark { header, path: path.clone() }),
                None => {
                    *problem = Some(format!("`x-mcp-header` of `{name}` breaks the rules of the revision"));
                }
            }
        }
        // The caller has bounded the depth of the schema.
        properties(property, path, marks, problem);
        path.pop();
    }
}

/// Removes marks wherever else they stand; how many there were.
fn strip(value: &mut Value) -> usize {
    match value {
        Value::Object(map) => {
            let own = usize::from(map.remove("x-mcp-header").is_some());
            own + map.values_mut().map(strip).sum::<usize>()
        }
        Value::Array(items) => items.iter_mut().map(strip).sum(),
        _ => 0,
    }
}

/// The headers of a call: those arguments that are there and not null.
pub(super) fn of_call(marks: &[HeaderMark], arguments: &Object) -> Vec<(HeaderName, HeaderValue)> {
    let value_of = |mark: &HeaderMark| {
        let (first, rest) = mark.path.split_first()?;
        let value = rest.iter().try_fold(arguments.get(first)?, |v, name| v.get(name))?;
        let text = match value {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => json::to_text(other),
        };
        Some((mark.header.clone(), encode(&text)))
    };
    marks.iter().filter_map(value_of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marks_are_taken_out_and_become_headers() {
        let mut schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}}});
        let marks = take_marks(&mut schema).unwrap();
        assert!(!schema.to_string().contains("x-mcp-header"));
        let arguments = json!({"region": "Zürich", "deep": {"n": 4}});
        let headers = of_call(&marks, arguments.as_object().unwrap());
        assert_eq!(headers[0].0, "mcp-param-region");
        assert_eq!(headers[0].1, "=?base64?WsO8cmljaA==?=");
        assert_eq!(headers[1].1, "4");
        assert!(of_call(&marks, json!({"region": null}).as_object().unwrap()).is_empty());
    }

    #[test]
    fn marks_that_break_the_rules_are_told() {
        for bad in [
            json!({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "A B"}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}}),
            json!({"properties": {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}}),
        ] {
            let mut schema = bad.clone();
            assert!(take_marks(&mut schema).is_err(), "{bad}");
            assert!(!schema.to_string().contains("x-mcp-header"));
        }
    }
}
