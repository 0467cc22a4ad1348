//! A `CallToolResult` as it is read: leniently, in one pass, every block as it came.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::Shallow;

/// The members of a result that docent reads.
#[derive(Deserialize)]
pub(super) struct RawResult<'a> {
    /// Its blocks, where it is a list.
    #[serde(borrow, default)]
    pub(super) content: Shallow<'a>,
    #[serde(borrow, default, rename = "structuredContent")]
    pub(super) structured: Option<&'a RawValue>,
    #[serde(default, rename = "isError")]
    pub(super) is_error: Value,
    #[serde(borrow, default, rename = "_meta")]
    pub(super) meta: Option<&'a RawValue>,
    #[serde(default, rename = "resultType")]
    pub(super) kind: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_of_any_type_leaves_the_rest_readable() {
        for (content, blocks) in [
            (r#"[{"type":"text","text":"a"}, 7]"#, Some(2)),
            ("[]", Some(0)),
            ("null", None),
            ("{\"a\":[1]}", None),
            ("\"x\"", None),
            ("-1", None),
            ("1.5", None),
            ("18446744073709551615", None),
            ("true", None),
        ] {
            let text = format!(r#"{{"content":{content},"isError":true,"structuredContent":{{}}}}"#);
            let read: RawResult<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(read.is_error, Value::Bool(true), "{content}");
            match (read.content, blocks) {
                (Shallow::List(found), Some(count)) => assert_eq!(found.len(), count),
                (Shallow::Null, None) => assert_eq!(content, "null"),
                (Shallow::Object(_) | Shallow::Scalar, None) => assert_ne!(content, "null"),
                (_, blocks) => panic!("{content}: {blocks:?}"),
            }
        }
    }
}
