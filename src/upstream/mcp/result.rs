//! A `CallToolResult` as it is read: leniently, in one pass, every block as it came.

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of a result that docent reads.
#[derive(Deserialize)]
pub(super) struct RawResult<'a> {
    #[serde(borrow, default)]
    pub(super) content: Content<'a>,
    #[serde(borrow, default, rename = "structuredContent")]
    pub(super) structured: Option<&'a RawValue>,
    #[serde(default, rename = "isError")]
    pub(super) is_error: Value,
    #[serde(borrow, default, rename = "_meta")]
    pub(super) meta: Option<&'a RawValue>,
    #[serde(default, rename = "resultType")]
    pub(super) kind: Value,
}

/// The blocks of a result, found in the same pass as the result's other members.
#[derive(Default)]
pub(super) enum Content<'a> {
    #[default]
    Absent,
    Blocks(Vec<&'a RawValue>),
    /// Anything but a list.
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOfBlocks)
    }
}

struct ListOfBlocks;

impl<'de> Visitor<'de> for ListOfBlocks {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("anything")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut blocks = Vec::new();
        while let Some(block) = list.next_element()? {
            blocks.push(block);
        }
        Ok(Content::Blocks(blocks))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Content::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Content::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Content::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Content::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Content::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Content::Other)
    }
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
                (Content::Blocks(found), Some(count)) => assert_eq!(found.len(), count),
                (Content::Absent, None) => assert_eq!(content, "null"),
                (Content::Other, None) => assert_ne!(content, "null"),
                (_, blocks) => panic!("{content}: {blocks:?}"),
            }
        }
    }
}
