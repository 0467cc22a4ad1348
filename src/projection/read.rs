//! Reading the shaping keys of a `[[tool]]` or an `[override."…"]`, every mistake with its place.

use std::sync::Arc;

use serde_json::Value;

use super::PackSources;
use super::pointer::Pointer;
use super::request::refused_header;
use super::spec::{
    BodyNode, BodySpec, LinesSpec, MappingSpec, PagingMode, Place, ProjectionSpec, RequestSpec, ScriptSpec,
    TruncateSpec,
};
use super::template::{Piece, Template};
use crate::diagnostic::did_you_mean;
use crate::limits::RESULT_RECORDS;
use crate::schema::SchemaText;
use crate::settings::{Located, Section};

/// Members of one mapping, columns of one table: a record with more is not small.
const FIELDS_MAX: usize = 200;
/// Bytes a text of a result may keep: beyond the result budget it could not be sent anyway.
const TRUNCATE_BYTES: std::ops::RangeInclusive<usize> = 8..=65_536;

impl ProjectionSpec {
    /// Reads the shaping keys of a tool's table: `request`, `script`, `lines`, `collection`, `fields`,
    /// `rename`, `limit`, `truncate`, `drop_null`, `paging`, `total`, `unit`, `families`, `output_schema`.
    /// `None` where the table has none of them. Other keys of the table are the caller's.
    pub fn read(section: &mut Section, pack: &Arc<PackSources>) -> Option<Self> {
        let spec = Self {
            pack: Arc::clone(pack),
            place: Place { file: Some(section.file().clone()), offset: section.offset() },
            request: read_request(section),
            script: read_script(section, pack),
            lines: read_lines(section),
            mapping: read_mapping(section),
            families: section.strings("families").unwrap_or_default(),
            output_schema: read_output_schema(section),
        };
        let any = spec.request.is_some()
            || spec.script.is_some()
            || spec.lines.is_some()
            || spec.mapping.is_some()
            || !spec.families.is_empty()
            || spec.output_schema.is_some();
        if let (Some(schema), false) = (&spec.output_schema, spec.families.is_empty()) {
            let help = "keep `families`, or keep `output_schema` for a bare result";
            section.error(
                schema.offset,
                "conflicting-keys",
                "`families` and `output_schema` exclude each other",
                help,
            );
        }
        any.then_some(spec)
    }
}

/// A template in a string, its mistakes told at their place.
fn template(section: &Section, text: &Located<String>) -> Located<Template> {
    let value = Template::parse(&text.value).unwrap_or_else(|(at, message)| {
        let help = "placeholders are `{argument}`, or `{*argument}` for several path segments";
        section.error(text.offset + 1 + at, "bad-template", message, help);
        Template::default()
    });
    Located { value, offset: text.offset }
}

fn read_request(tool: &mut Section) -> Option<RequestSpec> {
    let mut section = tool.section("request")?;
    let method = section
        .one_of("method", &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"].map(|m| (m, m)))
        .unwrap_or("GET");
    let path = section.required_string("path");
    let mut spec =
        RequestSpec { method: method.to_owned(), path: template(&section, &path), ..RequestSpec::default() };
    check_path(&section, &path, &spec.path.value);
    for (name, text) in section.string_table("query") {
        spec.query.push((name, template(&section, &text)));
    }
    for (name, text) in section.string_table("headers") {
        let lower = name.to_ascii_lowercase();
        if refused_header(&lower) {
            let message = format!("the header `{name}` cannot be set by a tool");
            section.error(
                text.offset,
                "refused-header",
                message,
                "credentials belong in `[auth]` of the upstream",
            );
            continue;
        }
        spec.headers.push((lower, template(&section, &text)));
    }
    spec.body = read_body(&mut section);
    Some(spec)
}

/// A path begins with `/`, its literal parts are already encoded, and no literal segment climbs.
fn check_path(section: &Section, text: &Located<String>, path: &Template) {
    let begins = matches!(path.0.first(), Some(Piece::Text(t)) if t.starts_with('/'));
    if !text.value.is_empty() && !begins {
        section.error(text.offset + 1, "bad-path", "a path begins with `/`", "write `path = \"/…\"`");
    }
    let ok = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:@".contains(c);
    for piece in &path.0 {
        let Piece::Text(literal) = piece else { continue };
        if let Some(bad) = literal.chars().find(|c| !ok(*c)) {
            let message = format!("{bad:?} cannot stand in a path");
            section.error(
                text.offset + 1,
                "bad-path",
                message,
                "percent-encode it; query pairs go into `query`",
            );
        }
    }
    if text.value.split('/').any(|s| s == "." || s == "..") {
        section.error(
            text.offset + 1,
            "bad-path",
            "a path cannot climb",
            "write the path without `.` and `..`",
        );
    }
}

/// The keys that a request's body may have, one of them.
const BODIES: [&str; 4] = ["body", "form", "multipart", "raw"];

fn read_body(section: &mut Section) -> BodySpec {
    let given: Vec<&str> = BODIES.into_iter().filter(|key| section.has(key)).collect();
    if given.len() > 1 {
        let message = format!("`{}` exclude each other", given.join("` and `"));
        section.error(
            section.offset(),
            "conflicting-keys",
            message,
            "a request has one body: keep one of them",
        );
    }
    let templates = |section: &mut Section, key: &str| {
        let pairs = section.string_table(key);
        pairs.into_iter().map(|(n, t)| (n, template(section, &t))).collect::<Vec<_>>()
    };
    // All are read, so that none is told to be unknown as well.
    let (form, multipart) = (templates(section, "form"), templates(section, "multipart"));
    let raw = section.string("raw");
    let body = json_body(section);
    match raw {
        Some(raw) => BodySpec::Raw(raw),
        None if !multipart.is_empty() => BodySpec::Multipart(multipart),
        None if !form.is_empty() => BodySpec::Form(form),
        None => body,
    }
}

fn json_body(section: &mut Section) -> BodySpec {
    let Some(found) = section.json("body") else { return BodySpec::Empty };
    match found.value {
        Value::String(name) if name == "*" => BodySpec::Rest,
        Value::String(name) => BodySpec::Argument(Located { value: name, offset: found.offset }),
        Value::Object(map) => {
            let node = body_node(section, Value::Object(map), found.offset);
            BodySpec::Json(node, found.offset)
        }
        _ => {
            let help =
                "write the name of an argument, `*` for all that are left, or a table with placeholders";
            section.error(found.offset, "wrong-type", "`body` must be a string or a table", help);
            BodySpec::Empty
        }
    }
}

fn body_node(section: &Section, value: Value, offset: usize) -> BodyNode {
    match value {
        Value::String(text) if text.contains(['{', '}']) => {
            BodyNode::Text(template(section, &Located { value: text, offset }).value)
        }
        Value::Array(items) => {
            BodyNode::List(items.into_iter().map(|v| body_node(section, v, offset)).collect())
        }
        Value::Object(map) => {
            BodyNode::Table(map.into_iter().map(|(k, v)| (k, body_node(section, v, offset))).collect())
        }
        literal => BodyNode::Literal(literal),
    }
}

fn read_script(tool: &mut Section, pack: &PackSources) -> Option<ScriptSpec> {
    if !tool.has("script") {
        // Asked for all the same, so that a misspelt key finds its name.
        return tool.string("script").map(|_| None)?;
    }
    let as_text = tool.json("script")?;
    let offset = as_text.offset;
    let mut spec = ScriptSpec {
        source: tool.file().clone(),
        offset,
        request: None,
        project: None,
        run: None,
        failed: None,
    };
    let file = if let Value::String(name) = as_text.value {
        Located { value: name, offset }
    } else {
        let mut table = tool.section("script")?;
        let file = table.required_string("file");
        for (key, slot) in [
            ("request", &mut spec.request),
            ("project", &mut spec.project),
            ("run", &mut spec.run),
            ("failed", &mut spec.failed),
        ] {
            *slot = table.string(key).map(|s| s.value);
        }
        file
    };
    if let Some(source) = pack.scripts.get(&file.value) {
        spec.source = source.clone();
        return Some(spec);
    }
    let names = pack.scripts.keys().map(String::as_str);
    let help = match did_you_mean(&file.value, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if pack.scripts.is_empty() => "the pack has no *.rhai file".to_owned(),
        None => format!("the pack has {}", names.collect::<Vec<_>>().join(", ")),
    };
    tool.error(
        file.offset,
        "no-such-script",
        format!("there is no script `{}` in this pack", file.value),
        help,
    );
    None
}

fn read_lines(tool: &mut Section) -> Option<LinesSpec> {
    let mut section = tool.section("lines")?;
    let columns: Vec<String> = section.plain_strings("columns");
    if columns.is_empty() || columns.len() > FIELDS_MAX {
        let message = format!("`columns` must name 1 to {FIELDS_MAX} columns");
        section.error(section.offset(), "missing-key", message, "add `columns = [\"…\"]`");
    }
    let numbers = section.strings("numbers").unwrap_or_default();
    for number in &numbers {
        if !columns.contains(&number.value) {
            let message = format!("`numbers` names `{}`, which is no column", number.value);
            section.error(
                number.offset,
                "unknown-value",
                message,
                format!("columns are {}", columns.join(", ")),
            );
        }
    }
    let not_empty = |s: Located<String>| (!s.value.is_empty()).then_some(s.value);
    Some(LinesSpec {
        separator: section.string("separator").and_then(not_empty),
        record_separator: section
            .string("record_separator")
            .and_then(not_empty)
            .unwrap_or_else(|| "\n".to_owned()),
        skip: section.size("skip", 0..=1_000).unwrap_or(0),
        numbers: numbers.into_iter().map(|n| n.value).collect(),
        columns,
    })
}

fn pointer(section: &Section, text: &Located<String>) -> Option<Pointer> {
    let parsed = Pointer::parse(&text.value).and_then(|p| {
        if p.wildcards() > 1 { Err(format!("`{}` has more than one `*`", text.value)) } else { Ok(p) }
    });
    parsed
        .map_err(|message| {
            let help = "JSON Pointers look like `/user/login`, lists like `/labels/*/name`";
            section.error(text.offset, "bad-pointer", message, help);
        })
        .ok()
}

/// A pointer to one place: no `*`.
fn plain_pointer(section: &mut Section, key: &str) -> Option<Pointer> {
    let text = section.string(key)?;
    let found = pointer(section, &text)?;
    if found.wildcards() > 0 {
        section.error(
            text.offset,
            "bad-pointer",
            format!("`{key}` names one place, `*` cannot stand in it"),
            "name the array itself",
        );
        return None;
    }
    Some(found)
}

fn read_mapping(tool: &mut Section) -> Option<MappingSpec> {
    let any =
        ["collection", "fields", "rename", "limit", "truncate", "drop_null"].iter().any(|k| tool.has(k));
    let fields = tool.string_table("fields");
    if fields.len() > FIELDS_MAX {
        let message = format!("`fields` names {} outputs, {FIELDS_MAX} are allowed", fields.len());
        tool.error(tool.offset(), "out-of-range", message, "a result is small: name what an agent needs");
    }
    let mut spec = MappingSpec {
        collection: plain_pointer(tool, "collection"),
        fields: fields.iter().filter_map(|(n, p)| Some((n.clone(), pointer(tool, p)?))).collect(),
        limit: tool.size("limit", 1..=RESULT_RECORDS),
        drop_null: tool.boolean("drop_null").unwrap_or(false),
        total: plain_pointer(tool, "total"),
        unit: tool.string("unit").map(|u| u.value),
        paging: tool
            .one_of("paging", &[("upstream", PagingMode::Upstream), ("complete", PagingMode::Complete)])
            .unwrap_or_default(),
        ..MappingSpec::default()
    };
    for (from, to) in tool.string_table("rename") {
        if !spec.fields.is_empty() {
            let help = "`fields` already gives every output its name";
            tool.error(to.offset, "conflicting-keys", "`rename` does nothing beside `fields`", help);
        } else if spec.rename.iter().any(|(_, name)| *name == to.value) {
            let message = format!("two members are renamed to `{}`", to.value);
            tool.error(to.offset, "conflicting-keys", message, "give each its own name");
        } else {
            spec.rename.push((from, to.value));
        }
    }
    spec.truncate = read_truncate(tool);
    any.then_some(spec)
}

fn read_truncate(tool: &mut Section) -> TruncateSpec {
    let mut spec = TruncateSpec::default();
    if !tool.has("truncate") {
        return spec;
    }
    let is_table = tool.json("truncate").is_some_and(|v| v.value.is_object());
    if !is_table {
        spec.all = tool.size("truncate", TRUNCATE_BYTES);
    } else if let Some(mut table) = tool.section("truncate") {
        for key in table.keys() {
            if let Some(bytes) = table.size(&key, TRUNCATE_BYTES) {
                spec.fields.push((key, bytes));
            }
        }
    }
    spec
}

fn read_output_schema(tool: &mut Section) -> Option<Located<SchemaText>> {
    let found = tool.json("output_schema")?;
    if found.value.get("type").and_then(Value::as_str) != Some("object") {
        let help = "MCP wants an object at the root of structured content: `type = \"object\"`";
        tool.error(found.offset, "bad-schema", "`output_schema` must be a schema of an object", help);
        return None;
    }
    Some(Located { value: SchemaText::of(&found.value), offset: found.offset })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::{Diagnostics, SourceFile};
    use crate::settings;

    fn read(text: &str) -> (Option<ProjectionSpec>, Vec<String>) {
        let mut pack = PackSources::default();
        pack.scripts.insert("git.rhai".to_owned(), SourceFile::new("scripts/git/git.rhai", "fn project(){}"));
        let mut diagnostics = Diagnostics::default();
        let spec = settings::read(&SourceFile::new("upstream.toml", text), &mut diagnostics, |root| {
            ProjectionSpec::read(root, &Arc::new(pack))
        });
        (spec, diagnostics.0.iter().map(|d| format!("{}:{} {}", d.line, d.column, d.message)).collect())
    }

    #[test]
    fn a_whole_table_is_read() {
        let (spec, found) = read(
            "script = \"git.rhai\"\ncollection = \"/items\"\nlimit = 20\ndrop_null = true\nfamilies = [\"page\"]\n\
             fields = { id = \"/id\", labels = \"/labels/*/name\" }\ntruncate = { body = 200 }\n\
             request = { path = \"/repos/{owner}/issues\", query = { q = \"{q}\" }, body = \"*\" }\n",
        );
        assert_eq!(found, Vec::<String>::new());
        let spec = spec.unwrap();
        let mapping = spec.mapping.unwrap();
        assert_eq!(mapping.fields.iter().map(|f| f.0.as_str()).collect::<Vec<_>>(), ["id", "labels"]);
        assert_eq!((mapping.limit, mapping.drop_null), (Some(20), true));
        assert!(matches!(spec.request.unwrap().body, BodySpec::Rest));
        assert_eq!(&*spec.script.unwrap().source.name, "scripts/git/git.rhai");
    }

    #[test]
    fn a_table_without_shaping_keys_is_none() {
        let (spec, found) = read("");
        assert!(spec.is_none() && found.is_empty());
    }

    #[test]
    fn every_mistake_is_told_with_its_place() {
        let (_, found) = read(
            "script = \"gti.rhai\"\ncollection = \"items\"\nlimit = 101\ntruncate = 1\n\
             fields = { a = \"/x/*/y/*\" }\nrename = { b = \"c\" }\noutput_schema = { type = \"array\" }\n\
             request = { path = \"x/{id\", headers = { Host = \"h\" } }\n",
        );
        assert_eq!(
            found,
            [
                "8:23 this `{` is never closed; a literal one is `{{`",
                "8:21 a path begins with `/`",
                "8:48 the header `Host` cannot be set by a tool",
                "1:10 there is no script `gti.rhai` in this pack",
                "2:14 `items` is not a JSON Pointer: it must be empty or begin with `/`",
                "5:16 `/x/*/y/*` has more than one `*`",
                "3:9 `limit` must be a whole number from 1 to 100",
                "4:12 `truncate` must be a whole number from 8 to 65536",
                "7:17 `output_schema` must be a schema of an object",
            ]
        );
    }
}
