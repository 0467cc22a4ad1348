//! Takes fields out of a result that a policy withholds from this caller.
//!
//! Works on the JSON text, so that what stays keeps every digit. A rule is a member's name, which goes
//! wherever it stands, or a JSON Pointer, in which `*` stands for any member or element. Text that is not JSON
//! has no fields and stays as it is.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::call::{ReplyBody, ToolResult, UpstreamReply};
use crate::json::{self, JsonText};

/// Where the answer of an upstream stands in the result of a tool without a form of its own.
const DATA: &str = "/data";
/// Nesting that is followed; deeper parts cannot be looked into and are withheld whole.
const DEPTH_MAX: usize = crate::limits::JSON_DEPTH_MAX;

/// Applies the rules to every half of a result.
pub(super) fn redact(result: &mut ToolResult, rules: &[Arc<str>]) {
    if rules.is_empty() {
        return;
    }
    let rules: Vec<Rule<'_>> = rules.iter().map(|r| Rule::parse(r)).collect();
    if let Some(structured) = &result.structured {
        // A text or a number has no fields.
        if json_of(structured.as_str()).is_some() {
            let clean = cleaned(structured.as_str(), &rules, result.is_plain);
            result.structured = clean.and_then(|t| JsonText::parse(t).ok());
        }
    }
    if let Some(clean) = result.text.as_deref().and_then(|text| of_text(text, &rules)) {
        result.text = Some(clean);
    }
    for block in &mut result.blocks {
        if let Some(clean) = of_block(block, &rules) {
            *block = clean;
        }
    }
}

/// Applies the rules to a reply that is shown as it came, before anything of it is cut. Where it becomes the `data`
/// of a result, rules about that are rules about the reply.
pub(super) fn reply(reply: &mut UpstreamReply, rules: &[Arc<str>]) {
    if rules.is_empty() {
        return;
    }
    let is_data = !matches!(&reply.body, ReplyBody::Mcp(mcp) if mcp.artifacts.is_none());
    let inside = rules.iter().filter(|_| is_data).filter_map(|r| r.strip_prefix(DATA));
    let rules = rules.iter().map(|r| &**r).chain(inside.filter(|r| r.starts_with('/')));
    let rules: Vec<Rule<'_>> = rules.map(Rule::parse).collect();
    match &mut reply.body {
        ReplyBody::Bytes { bytes, .. } => {
            if let Some(clean) = std::str::from_utf8(bytes).ok().and_then(|text| of_text(text, &rules)) {
                *bytes = clean.into();
            }
        }
        ReplyBody::Mcp(mcp) => {
            for block in &mut mcp.content {
                if let Some(clean) = of_block(block, &rules) {
                    *block = clean;
                }
            }
            if let Some(structured) = &mut mcp.structured
                && let Some(clean) = of_text(structured.get(), &rules)
            {
                *structured = RawValue::from_string(clean).unwrap_or_else(|_| RawValue::NULL.to_owned());
            }
        }
        ReplyBody::Value(value) => {
            if let Some(clean) = of_text(&json::to_text(value), &rules) {
                *value = serde_json::from_str(&clean).unwrap_or_default();
            }
        }
        ReplyBody::Empty => {}
    }
}

/// A text that is JSON, without the fields; nothing for other text.
fn of_text(text: &str, rules: &[Rule<'_>]) -> Option<String> {
    cleaned(text, rules, false)
}

/// The same; of a result's plain form the member `text` is looked into as well.
fn cleaned(text: &str, rules: &[Rule<'_>], is_plain: bool) -> Option<String> {
    let raw: &RawValue = json_of(text)?;
    let paths = rules.iter().filter_map(Rule::path).collect();
    let names = rules.iter().filter_map(Rule::name).collect();
    Some(json::to_text(&Clean { raw, names: &names, paths, depth: 0, inside: is_plain.then_some(rules) }))
}

/// Only containers have fields; a number or a sentence in quotes is left alone.
fn json_of(text: &str) -> Option<&RawValue> {
    text.trim_start().starts_with(['{', '[']).then(|| serde_json::from_str(text).ok()).flatten()
}

/// A content block whose `text` is JSON, cleaned.
fn of_block(block: &RawValue, rules: &[Rule<'_>]) -> Option<Box<RawValue>> {
    let mut value: serde_json::Value = serde_json::from_str(block.get()).ok()?;
    let clean = of_text(value.get("text")?.as_str()?, rules)?;
    *value.get_mut("text")? = serde_json::Value::from(clean);
    RawValue::from_string(json::to_text(&value)).ok()
}

enum Rule<'a> {
    Name(&'a str),
    Pointer(Vec<String>),
}

impl<'a> Rule<'a> {
    fn parse(text: &'a str) -> Self {
        match text.strip_prefix('/') {
            None => Self::Name(text),
            Some(rest) => Self::Pointer(rest.split('/').map(json::pointer_name).collect()),
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Pointer(_) => None,
        }
    }

    fn path(&self) -> Option<&[String]> {
        match self {
            Self::Name(_) => None,
            Self::Pointer(path) => Some(path),
        }
    }
}

/// A part of the result, written without what is withheld.
struct Clean<'a> {
    raw: &'a RawValue,
    names: &'a Vec<&'a str>,
    /// What is left of the pointers that led here.
    paths: Vec<&'a [String]>,
    depth: usize,
    /// The rules for what the text inside says: for the root of a plain form, and for its `text`.
    inside: Option<&'a [Rule<'a>]>,
}

impl<'a> Clean<'a> {
    /// The part below `key`, or nothing where it is withheld.
    fn below(&self, key: &str, raw: &'a RawValue) -> Option<Self> {
        let mut paths = Vec::new();
        for path in &self.paths {
            let Some((first, rest)) = path.split_first() else { continue };
            if first != key && first != "*" {
                continue;
            }
            if rest.is_empty() {
                return None;
            }
            paths.push(rest);
        }
        let inside = self.inside.filter(|_| self.depth == 0 && key == "text");
        (self.depth < DEPTH_MAX).then_some(Self {
            raw,
            names: self.names,
            paths,
            depth: self.depth + 1,
            inside,
        })
    }

    /// The text that a plain form holds, cleaned where it is JSON.
    fn text_inside(&self) -> Option<String> {
        let rules = self.inside.filter(|_| self.depth > 0)?;
        of_text(&serde_json::from_str::<String>(self.raw.get()).ok()?, rules)
    }
}

impl Serialize for Clean<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        if let Some(clean) = self.text_inside() {
            return out.serialize_str(&clean);
        }
        let text = self.raw.get().trim_start();
        if text.starts_with('{')
            && let Ok(Members(members)) = serde_json::from_str::<Members<'_>>(text)
        {
            let kept = members
                .into_iter()
                .filter(|(key, _)| !self.names.contains(&key.as_str()))
                .filter_map(|(key, raw)| Some((self.below(&key, raw)?, key)));
            return out.collect_map(kept.map(|(value, key)| (key, value)));
        }
        if text.starts_with('[')
            && let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text)
        {
            let kept = items.into_iter().enumerate().filter_map(|(at, raw)| self.below(&at.to_string(), raw));
            return out.collect_seq(kept);
        }
        self.raw.serialize(out)
    }
}

/// The members of an object in order, values as they are written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str, rules: &[&str]) -> String {
        let mut result = ToolResult {
            structured: Some(JsonText::parse(text.to_owned()).unwrap()),
            text: Some(format!("{text} ")),
            ..ToolResult::default()
        };
        let rules: Vec<Arc<str>> = rules.iter().map(|r| Arc::from(*r)).collect();
        redact(&mut result, &rules);
        let text = result.structured.unwrap().as_str().to_owned();
        assert_eq!(result.text.unwrap().trim_end(), text, "both halves");
        text
    }

    #[test]
    fn names_go_everywhere_and_pointers_where_they_point() {
        let text = r#"{"id":12345678901234567890123,"token":"x","user":{"token":1,"mail":"m"},"rows":[{"mail":"a","n":1.10},{"mail":"b"}]}"#;
        assert_eq!(
            clean(text, &["token"]),
            r#"{"id":12345678901234567890123,"user":{"mail":"m"},"rows":[{"mail":"a","n":1.10},{"mail":"b"}]}"#
        );
        assert_eq!(
            clean(text, &["/rows/*/mail", "/user", "/token"]),
            r#"{"id":12345678901234567890123,"rows":[{"n":1.10},{}]}"#
        );
        assert_eq!(clean(text, &["/rows/1", "/no/such", "id"]), clean(text, &["id", "/rows/1"]));
    }

    #[test]
    fn the_text_of_a_plain_form_is_looked_into() {
        let text = r#"{"text":"{\"token\":1,\"a\":2}","data":null,"deep":{"text":"{\"token\":1}"}}"#;
        let plain = |is_plain| {
            let structured = Some(JsonText::parse(text.to_owned()).unwrap());
            let mut result = ToolResult { structured, is_plain, ..ToolResult::default() };
            redact(&mut result, &[Arc::from("token")]);
            result.structured.unwrap().as_str().to_owned()
        };
        assert_eq!(plain(true), r#"{"text":"{\"a\":2}","data":null,"deep":{"text":"{\"token\":1}"}}"#);
        assert_eq!(plain(false), text);
    }

    #[test]
    fn rules_about_data_are_rules_about_the_reply_that_becomes_it() {
        let bytes = |body: &'static str| UpstreamReply {
            status: 200,
            headers: Vec::new(),
            body: ReplyBody::Bytes { media_type: "application/json".to_owned(), bytes: body.into() },
            warnings: Vec::new(),
        };
        let mut found = bytes(r#"{"rows":[{"mail":"a","n":1}]}"#);
        reply(&mut found, &[Arc::from("/data/rows/*/mail")]);
        let ReplyBody::Bytes { bytes, .. } = &found.body else { panic!() };
        assert_eq!(&bytes[..], br#"{"rows":[{"n":1}]}"#);
    }

    #[test]
    fn plain_text_has_no_fields_and_blocks_are_looked_into() {
        let block = r#"{"type":"text","text":"{\"token\":1,\"a\":2}"}"#;
        let mut result = ToolResult {
            text: Some("the token is here".to_owned()),
            blocks: vec![RawValue::from_string(block.to_owned()).unwrap()],
            ..ToolResult::default()
        };
        redact(&mut result, &[Arc::from("token")]);
        assert_eq!(result.text.as_deref(), Some("the token is here"));
        assert_eq!(result.blocks[0].get(), r#"{"type":"text","text":"{\"a\":2}"}"#);
    }
}
