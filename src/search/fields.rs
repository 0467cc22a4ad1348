//! Which texts of a tool are searched, and in which field. It knows nothing of weights.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ranking::{FIELDS, GIST_PARTS};
use super::text;
use crate::catalog::Tool;
use crate::json;

/// Bytes of a description that are searched: past them stand examples and terms of use.
const DESCRIPTION_BYTES: usize = 2_000;
/// Bytes of one parameter's description that are searched.
const PARAMETER_BYTES: usize = 300;
/// Bytes of a schema that is read for its parameters.
const SCHEMA_BYTES: usize = 1024 * 1024;
/// Bytes of the first sentence, where it stands for a missing title.
const HEAD_BYTES: usize = 160;
/// Bytes of a description that a sentence model reads: what a tool is for stands first, and its time is dear.
const SENTENCE_BYTES: usize = 300;

/// Words of `search_hints` that say how and not what.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The fields' texts, in the order of [`super::ranking::FIELD_NAMES`].
pub(super) type Texts = [String; FIELDS];

#[derive(Deserialize, Default)]
struct Schema {
    #[serde(default)]
    properties: BTreeMap<String, Property>,
}

/// Only what is searched is kept; a property may be any JSON (`true`, text), hence the untyped description.
#[derive(Deserialize, Default)]
#[serde(default)]
struct PropertyTexts {
    description: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Property {
    Table(PropertyTexts),
    Other(serde::de::IgnoredAny),
}

/// The texts of a tool by field.
pub(super) fn texts(tool: &Tool) -> Texts {
    let (mut parameters, mut parameter_texts) = (String::new(), String::new());
    let schema: Schema =
        json::parse_as(tool.input_schema.as_str().as_bytes(), SCHEMA_BYTES).unwrap_or_default();
    for (name, property) in &schema.properties {
        push(&mut parameters, name);
        if let Property::Table(PropertyTexts { description: Some(serde_json::Value::String(text)) }) =
            property
        {
            push(&mut parameter_texts, json::cut(text, PARAMETER_BYTES));
        }
    }
    let (mut upstream, mut path) = (tool.upstream.as_str().to_owned(), String::new());
    for hint in tool.search_hints.split_whitespace().filter(|h| !METHODS.contains(h)) {
        push(if hint.contains('/') { &mut path } else { &mut upstream }, hint);
    }
    let mut tags = tool.category.as_ref().to_owned();
    tool.tags.iter().for_each(|tag| push(&mut tags, tag));
    [
        tool.name.as_ref().to_owned(),
        head(tool).to_owned(),
        json::cut(&tool.description, DESCRIPTION_BYTES).to_owned(),
        parameters,
        parameter_texts,
        upstream,
        tags,
        path,
    ]
}

/// The title, or else the first sentence of the description.
pub(super) fn head(tool: &Tool) -> &str {
    if let Some(title) = tool.title.as_deref().or(tool.annotations.title.as_deref()).filter(|t| !t.is_empty())
    {
        return title;
    }
    let text = json::cut(&tool.description, HEAD_BYTES);
    text.split_once(['\n']).map_or(text, |(first, _)| first).split(". ").next().unwrap_or(text)
}

/// The words that stand for the whole tool in the semantic signal, in the order of [`super::ranking::GIST_NAMES`]: where it
/// belongs (without `generic` words), what it is called and what it says first.
pub(super) fn gist(tool: &Tool, generic: &[String]) -> [Vec<String>; GIST_PARTS] {
    let text = json::cut(&tool.description, HEAD_BYTES);
    let first = text.split(". ").next().filter(|t| !t.is_empty()).or(tool.title.as_deref()).unwrap_or("");
    let hints = tool.search_hints.split_whitespace().filter(|h| !METHODS.contains(h) && !h.contains('/'));
    let words = |text: &str| text::chunks(text).flat_map(text::split).collect::<Vec<_>>();
    let upstream = std::iter::once(tool.upstream.as_str()).chain(hints).flat_map(words);
    [upstream.filter(|word| !generic.contains(word)).collect(), words(&tool.name), words(first)]
}

/// What a sentence model reads of a tool: where it is from, what it is called, how its description begins.
pub(super) fn sentence(tool: &Tool) -> String {
    let name: Vec<String> = text::chunks(&tool.name).flat_map(text::split).collect();
    let texts = [tool.description.as_ref(), tool.title.as_deref().unwrap_or("")];
    let says = texts.into_iter().find(|t| !t.trim().is_empty()).unwrap_or("");
    format!("{}: {}. {}", tool.upstream, name.join(" "), json::cut(says, SENTENCE_BYTES))
}

fn push(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(more);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::id::{ToolId, UpstreamId};
    use crate::schema::SchemaText;

    #[test]
    fn every_text_lands_in_its_field() {
        let schema = json!({"type": "object", "properties": {
            "owner": {"type": "string", "description": "Who owns it"}, "odd": true, "n": {"description": 3}}});
        let mut tool = Tool::new(
            ToolId::parse("github.list_issues").unwrap(),
            UpstreamId::parse("github").unwrap(),
            "list_issues",
            SchemaText::of(&schema),
        );
        tool.description = "Lists issues. All of them.".into();
        tool.category = "code".into();
        tool.tags = ["bugs".into()].into();
        tool.search_hints = "GET /repos/{owner}/issues octo".into();
        let expected = [
            "list_issues",
            "Lists issues",
            "Lists issues. All of them.",
            "n odd owner",
            "Who owns it",
            "github octo",
            "code bugs",
            "/repos/{owner}/issues",
        ];
        assert_eq!(texts(&tool), expected.map(str::to_owned));
        let gist = gist(&tool, &["octo".to_owned()]);
        assert_eq!(gist.map(|words| words.join(" ")), ["github", "list issues", "lists issues"]);
    }
}
