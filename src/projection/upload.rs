//! Arguments that are sent as bytes: the raw body of a request, the parts of a form. A file comes from the gateway as
//! `{base64, filename, content_type}`; a caller may write the same, or a plain text.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::Value;

use super::template::plain;
use crate::call::{ErrorCode, HttpBody, Part, ToolError};
use crate::json;

/// The media type of a text that says none.
const TEXT: &str = "text/plain; charset=utf-8";
/// The media type of bytes that say none.
const BINARY: &str = "application/octet-stream";

/// What is sent of one argument.
struct Upload<'a> {
    bytes: Bytes,
    file_name: Option<&'a str>,
    content_type: Option<&'a str>,
}

/// A body that is one argument; its own type unless the template's headers say one.
pub(super) fn raw(argument: &str, value: &Value) -> Result<HttpBody, ToolError> {
    let Upload { bytes, content_type, .. } = read(argument, value)?;
    let default = if value.is_object() { BINARY } else { TEXT };
    Ok(HttpBody::Raw { content_type: content_type.unwrap_or(default).to_owned(), bytes })
}

/// One part for a value, one for each element of a list.
pub(super) fn parts(name: &str, argument: &str, value: &Value, out: &mut Vec<Part>) -> Result<(), ToolError> {
    if let Value::Array(items) = value {
        return items.iter().try_for_each(|item| parts(name, argument, item, out));
    }
    let Upload { bytes, file_name, content_type } = read(argument, value)?;
    let is_file = is_file(value);
    out.push(Part {
        name: name.to_owned(),
        file_name: is_file.then(|| file_name.unwrap_or(name).to_owned()),
        content_type: content_type.or(is_file.then_some(BINARY)).map(str::to_owned),
        bytes,
    });
    Ok(())
}

/// A part that is a text of the template.
pub(super) fn text_part(name: &str, text: String) -> Part {
    Part { name: name.to_owned(), file_name: None, content_type: None, bytes: Bytes::from(text) }
}

fn is_file(value: &Value) -> bool {
    let has = |key: &str| value.get(key).is_some_and(Value::is_string);
    value.is_object() && (has("base64") || has("text"))
}

fn read<'a>(argument: &str, value: &'a Value) -> Result<Upload<'a>, ToolError> {
    let Value::Object(file) = value else {
        return Ok(Upload { bytes: Bytes::from(plain(value)), file_name: None, content_type: None });
    };
    if !is_file(value) {
        let bytes = Bytes::from(json::to_bytes(value));
        return Ok(Upload { bytes, file_name: None, content_type: Some("application/json") });
    }
    let text = |key: &str| file.get(key).and_then(Value::as_str);
    let bytes = match text("base64") {
        Some(encoded) => decode(encoded).ok_or_else(|| refused(argument, "is not base64 (RFC 4648)"))?,
        None => Bytes::from(text("text").unwrap_or_default().to_owned()),
    };
    let (file_name, content_type) = (text("filename"), text("content_type"));
    let is_type = |t: &str| t.contains('/') && t.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    if file_name.is_some_and(|n| n.contains(char::is_control)) || !content_type.is_none_or(is_type) {
        return Err(refused(argument, "has a `filename` or `content_type` that no header may hold"));
    }
    Ok(Upload { bytes, file_name, content_type })
}

fn refused(argument: &str, why: &str) -> ToolError {
    ToolError::new(ErrorCode::InvalidArgument, format!("the argument `{argument}` {why}"))
        .field(format!("/{}", json::pointer_token(argument)))
}

/// Base64 in either alphabet, with or without padding.
fn decode(text: &str) -> Option<Bytes> {
    let engines = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
    engines.iter().find_map(|engine| engine.decode(text).ok()).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_the_bytes_of_a_file_or_a_text() {
        let file = json!({"base64": "//4=", "filename": "a.bin", "content_type": "image/x"});
        let body = |value: &Value| match raw("f", value).unwrap() {
            HttpBody::Raw { content_type, bytes } => (content_type, bytes.to_vec()),
            other => panic!("{other:?}"),
        };
        assert_eq!(body(&file), ("image/x".to_owned(), vec![0xff, 0xfe]));
        assert_eq!(body(&json!("hi")), (TEXT.to_owned(), b"hi".to_vec()));
        assert_eq!(body(&json!({"n": 1})), ("application/json".to_owned(), b"{\"n\":1}".to_vec()));
        for bad in [
            json!({"base64": "%"}),
            json!({"text": "", "filename": "a\r\nb"}),
            json!({"text": "", "content_type": "x"}),
        ] {
            let error = raw("f", &bad).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some("/f")));
        }
    }

    #[test]
    fn a_list_is_several_parts() {
        let mut out = Vec::new();
        let list = json!([{"base64": "AA==", "filename": "a"}, "text", 7]);
        parts("files", "f", &list, &mut out).unwrap();
        let told: Vec<_> =
            out.iter().map(|p| (p.file_name.as_deref(), p.content_type.as_deref(), p.bytes.len())).collect();
        assert_eq!(told, [(Some("a"), Some(BINARY), 1), (None, None, 4), (None, None, 1)]);
    }
}
