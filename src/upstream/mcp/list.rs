//! The tools of an MCP server, page by page: what is malformed is reported and skipped, never the list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::headers::{self, HeaderMark};
use crate::catalog::{Tool, ToolAnnotations};
use crate::diagnostic::Diagnostic;
use crate::json;
use crate::limits;
use crate::schema::SchemaText;
use crate::upstream::bare::discovered;
use crate::upstream::config::UpstreamConfig;
use crate::upstream::{Discovery, INCOMPLETE_LIST, text};

/// Problems reported of one upstream; more would only flood the report.
const PROBLEMS_MAX: usize = 50;

/// What was found so far.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    config: &'a UpstreamConfig,
    /// Whether marks for headers count: on the stateless wire over HTTP.
    marked: bool,
    bytes: usize,
    ids: HashSet<String>,
    used_overrides: HashSet<&'a str>,
    pub(super) found: Discovery,
    /// The headers that calls of a tool carry, by its name.
    pub(super) marks: HashMap<Arc<str>, Vec<HeaderMark>>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "nextCursor")]
    next: Option<&'a RawValue>,
}

/// The members of a tool that matter, each in whatever shape it came.
#[derive(Deserialize)]
struct RawTool<'a> {
    name: String,
    #[serde(default)]
    title: Value,
    #[serde(default)]
    description: Value,
    #[serde(borrow, default, rename = "inputSchema")]
    schema: Option<&'a RawValue>,
    #[serde(default)]
    annotations: Value,
}

impl<'a> Collector<'a> {
    pub(super) fn new(config: &'a UpstreamConfig, marked: bool) -> Self {
        Self {
            config,
            marked,
            bytes: 0,
            ids: HashSet::new(),
            used_overrides: HashSet::new(),
            found: Discovery { complete: true, ..Discovery::default() },
            marks: HashMap::new(),
        }
    }

    /// Something is missing from the list.
    pub(super) fn incomplete(&mut self, why: impl Into<String>) {
        self.found.complete = false;
        self.report(INCOMPLETE_LIST, &why.into(), "the tools that could be read are served");
    }

    /// Later pages are missing.
    pub(super) fn broke_off(&mut self, why: impl Into<String>) {
        self.found.broke_off = true;
        self.incomplete(why);
    }

    fn report(&mut self, code: &'static str, message: &str, help: &str) {
        if self.found.problems.0.len() < PROBLEMS_MAX {
            let message = format!("upstream `{}`: {message}", self.config.id);
            self.found.problems.push(Diagnostic::warning(code, &*self.config.file.name, message).help(help));
        }
    }

    /// Takes one page; gives the cursor of the next. An empty cursor is a cursor.
    pub(super) fn page(&mut self, result: &str) -> Option<String> {
        self.bytes += result.len();
        let page: Page<'_> = match serde_json::from_str(result) {
            Ok(page) => page,
            Err(e) => {
                self.broke_off(format!("a page of its tools is not readable: {e}"));
                return None;
            }
        };
        let tools: Option<Vec<&RawValue>> = page.tools.and_then(|t| serde_json::from_str(t.get()).ok());
        let Some(tools) = tools else {
            self.broke_off("a page of its list has no `tools`");
            return None;
        };
        for tool in tools {
            if self.found.tools.len() >= limits::TOOLS_PER_UPSTREAM_MAX {
                self.incomplete(format!("it has more than {} tools", limits::TOOLS_PER_UPSTREAM_MAX));
                return None;
            }
            if let Err((name, why)) = self.tool(tool) {
                self.incomplete(format!("the tool {name} was skipped: {why}"));
            }
        }
        if self.bytes > limits::DISCOVERY_BYTES_MAX {
            self.incomplete(format!("its definitions are larger than {} bytes", limits::DISCOVERY_BYTES_MAX));
            return None;
        }
        match serde_json::from_str(page.next?.get()) {
            Ok(Value::String(cursor)) => Some(cursor),
            _ => {
                self.broke_off("its cursor is not a string, so later pages cannot be asked for");
                None
            }
        }
    }

    fn tool(&mut self, raw: &RawValue) -> Result<(), (String, String)> {
        let tool: RawTool<'_> = serde_json::from_str(raw.get())
            .map_err(|e| ("without a readable name".to_owned(), e.to_string()))?;
        let shown = format!("`{}`", json::cut(&text::plain(&tool.name), 80));
        let skip = |why: String| Err((shown.clone(), why));
        if raw.get().len() > limits::TOOL_DEFINITION_BYTES_MAX {
            return skip(format!("its definition has {} bytes", raw.get().len()));
        }
        let Some(id) = self.config.tool_id(&tool.name) else {
            return skip("its name cannot be made an id".to_owned());
        };
        if !self.ids.insert(id.as_str().to_owned()) {
            return skip(format!("another tool has the id `{id}` already"));
        }
        let (schema, marks) = self.schema(&tool, &shown).map_err(|why| (shown.clone(), why))?;
        let mut hidden = 0;
        let mut clean = |v: &Value| {
            let (text, taken) = text::clean(v.as_str()?);
            hidden += taken;
            Some(Arc::<str>::from(text))
        };
        let mut made = Tool::new(id.clone(), self.config.id.clone(), tool.name.as_str(), schema);
        made.title = clean(&tool.title);
        made.description = clean(&tool.description).unwrap_or_default();
        made.annotations = annotations(&tool.annotations, &mut clean);
        if hidden > 0 {
            let message = format!("{hidden} hidden characters were taken out of the texts of {shown}");
            self.report(
                "hidden-characters",
                &message,
                "look at the upstream: models read what people cannot see",
            );
        }
        let config = self.config;
        let key =
            [id.as_str(), tool.name.as_str()].into_iter().find_map(|k| config.overrides.get_key_value(k));
        if let Some((key, _)) = key {
            self.used_overrides.insert(key);
        }
        if key.is_some_and(|(_, o)| o.hide) {
            return Ok(());
        }
        if !marks.is_empty() {
            self.marks.insert(Arc::clone(&made.name), marks);
        }
        self.found.tools.push(discovered(config, made, key.map(|(_, o)| o)));
        Ok(())
    }

    /// The schema as it is kept: compact, without marks for headers, without hidden characters in its prose.
    fn schema(&mut self, tool: &RawTool<'_>, shown: &str) -> Result<(SchemaText, Vec<HeaderMark>), String> {
        let Some(raw) = tool.schema.filter(|s| s.get().starts_with('{')) else {
            let message = format!("{shown} has no input schema; any object is taken");
            self.report("missing-schema", &message, "the tool is served; calls are not checked");
            return Ok((SchemaText::empty_object(), Vec::new()));
        };
        let raw = raw.get();
        if nesting(raw) > limits::JSON_DEPTH_MAX {
            return Err(format!("its schema is nested deeper than {} levels", limits::JSON_DEPTH_MAX));
        }
        let mut value: Value = serde_json::from_str(raw).map_err(|e| e.to_string())?;
        let marks = if raw.contains("x-mcp-header") {
            match headers::take_marks(&mut value) {
                Ok(marks) if self.marked => marks,
                Err(why) if self.marked => return Err(why),
                _ => Vec::new(),
            }
        } else {
            Vec::new()
        };
        let mut hidden = Hidden::default();
        hidden.clean(&mut value, true);
        if hidden.taken + hidden.kept > 0 {
            let message = format!(
                "the schema of {shown} has hidden characters: {} taken out of its prose, {} left in names and values",
                hidden.taken, hidden.kept
            );
            self.report(
                "hidden-characters",
                &message,
                "look at the upstream: models read what people cannot see",
            );
        }
        let foreign = take_foreign_refs(&mut value);
        if foreign > 0 {
            let message = format!("the schema of {shown} had {foreign} references to other places");
            self.report(
                "foreign-reference",
                &message,
                "they were taken out; what they described is not checked",
            );
        }
        if value.get("type").and_then(Value::as_str) != Some("object")
            && let Some(map) = value.as_object_mut()
        {
            map.insert("type".to_owned(), Value::from("object"));
        }
        Ok((SchemaText::of(&value), marks))
    }

    /// The whole, after the last page.
    pub(super) fn finish(mut self) -> (Discovery, HashMap<Arc<str>, Vec<HeaderMark>>) {
        if self.found.complete {
            self.config.unused_overrides(&self.used_overrides, &mut self.found.problems);
        }
        (self.found, self.marks)
    }
}

fn annotations(value: &Value, clean: &mut dyn FnMut(&Value) -> Option<Arc<str>>) -> ToolAnnotations {
    let hint = |name: &str| value.get(name).and_then(Value::as_bool);
    ToolAnnotations {
        title: value.get("title").and_then(clean),
        read_only: hint("readOnlyHint"),
        destructive: hint("destructiveHint"),
        idempotent: hint("idempotentHint"),
        open_world: hint("openWorldHint"),
    }
}

/// Takes out references to documents elsewhere: a client that followed one would call a stranger. References to
/// parts of the same schema stay.
fn take_foreign_refs(value: &mut Value) -> usize {
    match value {
        Value::Array(items) => items.iter_mut().map(take_foreign_refs).sum(),
        Value::Object(map) => {
            let mut taken = 0;
            for key in ["$ref", "$dynamicRef"] {
                if map.get(key).and_then(Value::as_str).is_some_and(|target| target.contains("://")) {
                    map.shift_remove(key);
                    taken += 1;
                }
            }
            // What these hold is data, not schema.
            let data = |key: &str| matches!(key, "const" | "enum" | "default" | "examples");
            let parts = map.iter_mut().filter(|(key, _)| !data(key));
            taken + parts.map(|(_, part)| take_foreign_refs(part)).sum::<usize>()
        }
        _ => 0,
    }
}

/// How deep a JSON text is nested, without recursion.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for b in text.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Hidden characters of a schema: taken out of prose, left in names and values, which would change meaning.
#[derive(Default)]
struct Hidden {
    taken: usize,
    kept: usize,
}

impl Hidden {
    fn clean(&mut self, value: &mut Value, prose: bool) {
        match value {
            Value::String(text) if text.chars().any(text::is_hidden) => {
                let (clean, taken) = text::clean(text);
                if prose {
                    *text = clean;
                    self.taken += taken;
                } else {
                    self.kept += taken;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|v| self.clean(v, false)),
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    self.kept += text::clean(key).1;
                    self.clean(value, matches!(key.as_str(), "description" | "title" | "$comment"));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_counts_brackets_outside_strings() {
        assert_eq!(nesting(r#"{"a":["[[[",{"b\"{":1}]}"#), 3);
        assert_eq!(nesting("1"), 0);
    }

    #[test]
    fn references_to_strangers_are_taken_out_and_nothing_else() {
        let mut schema = serde_json::json!({
            "$defs": {"a": {"$ref": "https://evil.example/a.json"}},
            "properties": {"$ref": {"$ref": "#/$defs/a"}, "b": {"anyOf": [{"$dynamicRef": "file:///etc/x"}]}},
            "examples": [{"$ref": "https://data.example"}],
        });
        assert_eq!(take_foreign_refs(&mut schema), 2);
        let expected = serde_json::json!({
            "$defs": {"a": {}},
            "properties": {"$ref": {"$ref": "#/$defs/a"}, "b": {"anyOf": [{}]}},
            "examples": [{"$ref": "https://data.example"}],
        });
        assert_eq!(schema, expected);
    }

    #[test]
    fn prose_is_cleaned_and_names_are_reported() {
        let mut value =
            serde_json::json!({"description": "a\u{200b}b", "enum": ["x\u{202e}"], "k\u{200b}": 1});
        let mut hidden = Hidden::default();
        hidden.clean(&mut value, true);
        assert_eq!((hidden.taken, hidden.kept), (1, 2));
        assert_eq!(value["description"], "ab");
    }
}
