//! `[[tool]]` and `[override."id"]`: what the operator says of one tool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{KindConfig, Reader, read_scopes};
use crate::catalog::{Deprecation, TaskSupport, Tool, ToolAnnotations};
use crate::diagnostic::did_you_mean;
use crate::id::{Scope, ToolId, UpstreamId};
use crate::limits;
use crate::projection::ProjectionSpec;
use crate::schema::SchemaText;
use crate::settings::{Located, Section};
use crate::upstream::Created;
use crate::upstream::command::Template;

/// What a program's run gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommandOutput {
    /// Its standard output as text.
    #[default]
    Text,
    /// Its standard output as one JSON value.
    Json,
    /// The files that it leaves in the folder `{output_dir}` of its run.
    Files,
}

/// How a tool of kind `command` runs.
#[derive(Debug, Clone)]
pub struct CommandTool {
    /// The argument vector.
    pub(in crate::upstream) run: Template,
    /// Arguments that are paths: they must stay below the working folder.
    pub paths: Vec<String>,
    /// What its run gives.
    pub output: CommandOutput,
    /// The argument whose text goes to standard input.
    pub stdin: Option<String>,
    /// Exit codes that are a success besides 0, e.g. 1 of `grep` and `diff`.
    pub ok_codes: Vec<i32>,
}

/// One tool as `upstream.toml` has it: everything optional, since an override changes only what it names.
#[derive(Debug, Clone, Default)]
pub struct ToolConfig {
    /// Its name at the upstream: the id without `<upstream>.`.
    pub name: Arc<str>,
    /// Where its table stands in the file.
    pub offset: usize,
    /// Left out of the catalog.
    pub hide: bool,
    /// A title for people.
    pub title: Option<Arc<str>>,
    /// What it does.
    pub description: Option<Arc<str>>,
    /// The strict schema of its arguments.
    pub input_schema: Option<SchemaText>,
    /// Whether combinators at the schema's root are folded away where it is shown (the default): some providers
    /// refuse a whole request over one of them.
    pub fold_schema: Option<bool>,
    /// Hints; only those that are set change anything.
    pub annotations: ToolAnnotations,
    /// Its category.
    pub category: Option<Arc<str>>,
    /// Its labels, instead of the upstream's.
    pub tags: Option<Vec<Arc<str>>>,
    /// The tier that a caller needs.
    pub tier: Option<Arc<str>>,
    /// Scopes that a caller needs, instead of the upstream's.
    pub scopes: Option<Vec<Scope>>,
    /// Facts that policies may read, besides the upstream's.
    pub facts: BTreeMap<String, Value>,
    /// Why it should no longer be used.
    pub deprecated: Option<Deprecation>,
    /// How long one call may take.
    pub timeout: Option<Duration>,
    /// How long a call waits before it becomes a job.
    pub wait: Option<Duration>,
    /// Whether a direct call is answered with a task.
    pub tasks: Option<TaskSupport>,
    /// Further names under which it can be called.
    pub aliases: Vec<Arc<str>>,
    /// Why its calls may be deduplicated; `None` means that they are not.
    pub dedup: Option<Arc<str>>,
    /// What a successful call creates, which its caller then owns.
    pub creates: Option<Created>,
    /// How it runs, for kind `command`.
    pub command: Option<CommandTool>,
    /// Request and result shaping.
    pub projection: Option<Arc<ProjectionSpec>>,
}

/// Bytes of a tool's name in MCP.
const ALIAS_BYTES_MAX: usize = 128;

/// Why equal calls may share one answer (seed 002). Nobody can check the reason but a reader, so there must be one.
fn dedup(section: &mut Section) -> Arc<str> {
    let reason = section.required_string("reason");
    // A reason that is not there at all has been told already.
    if reason.value.trim().is_empty() && reason.offset != section.offset() {
        section.error(
            reason.offset,
            "missing-reason",
            "the reason of `dedup` is empty",
            "say why a retry is realistic, what the repeat would leave behind, and why nobody means it",
        );
    }
    Arc::from(reason.value)
}

/// `aliases = ["old_name"]`: names as MCP allows them.
fn aliases(section: &mut Section) -> Vec<Arc<str>> {
    let fits = |name: &str| {
        (1..=ALIAS_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b))
    };
    let mut names = Vec::new();
    for name in section.strings("aliases").unwrap_or_default() {
        if fits(&name.value) {
            names.push(Arc::from(name.value));
        } else {
            let message =
                format!("`{}` cannot be a tool's name", crate::json::cut(&name.value, ALIAS_BYTES_MAX));
            let help = "1 to 128 of A-Z a-z 0-9 _ - . /";
            section.error(name.offset, "bad-id", message, help);
        }
    }
    names
}

impl ToolConfig {
    pub(super) fn read_tool(
        section: &mut Section,
        upstream: &UpstreamId,
        kind: Option<&KindConfig>,
        reader: &mut Reader<'_>,
    ) -> Option<Self> {
        let id = section.required_string("id");
        let own = id.value.strip_prefix(upstream.as_str()).and_then(|r| r.strip_prefix('.'));
        let name: Arc<str> = Arc::from(own.unwrap_or(&id.value));
        let mut tool = Self { name, offset: section.offset(), ..Self::default() };
        tool.read_common(section, reader);
        if matches!(kind, Some(KindConfig::Command(_))) {
            tool.command = command_tool(section, tool.input_schema.as_ref());
        }
        if tool.description.as_deref().is_none_or(str::is_empty) {
            let message = format!("tool `{}` has no description", tool.name);
            section.error(
                tool.offset,
                "missing-description",
                message,
                "add `description = \"…\"`: models choose tools by it",
            );
        }
        if id.value.is_empty() {
            return None;
        }
        if let Err(e) = ToolId::parse(&format!("{upstream}.{}", tool.name)) {
            section.error(id.offset, "bad-id", e.to_string(), "write `id = \"name\"`");
            return None;
        }
        Some(tool)
    }

    pub(super) fn read_override(section: &mut Section, offset: usize, reader: &mut Reader<'_>) -> Self {
        let mut tool = Self { offset, ..Self::default() };
        tool.hide = section.boolean("hide").unwrap_or(false);
        tool.read_common(section, reader);
        tool
    }

    fn read_common(&mut self, section: &mut Section, reader: &mut Reader<'_>) {
        self.title = section.string("title").map(|t| Arc::from(t.value));
        self.description = section.string("description").map(|t| Arc::from(t.value));
        self.input_schema = input_schema(section, reader);
        self.fold_schema = section.boolean("fold_schema");
        self.annotations = annotations(section);
        self.category = section.string("category").map(|t| Arc::from(t.value));
        self.tags = section.strings("tags").map(|t| t.into_iter().map(|t| Arc::from(t.value)).collect());
        self.tier = section.string("tier").map(|t| Arc::from(t.value));
        self.scopes = read_scopes(section);
        self.facts = section.object("facts").unwrap_or_default().into_iter().collect();
        self.deprecated = section.section("deprecated").map(|mut s| deprecation(&mut s));
        self.timeout = section.integer("timeout_ms", 1..=3_600_000).map(Duration::from_millis);
        self.wait = section.integer("wait_seconds", 0..=300).map(Duration::from_secs);
        let support =
            [TaskSupport::Forbidden, TaskSupport::Optional, TaskSupport::Required].map(|t| (t.as_str(), t));
        self.tasks = section.one_of("tasks", &support);
        if self.tasks == Some(TaskSupport::Required) && self.wait.is_some() {
            section.error(
                section.offset(),
                "nothing-waits",
                format!(
                    "`{}` has no meaning beside `tasks = \"required\"`",
                    section.full_key("wait_seconds")
                ),
                "leave it out: a call that is answered with a task is not waited for",
            );
        }
        self.projection = ProjectionSpec::read(section, reader.pack).map(Arc::new);
        self.creates = section.section("creates").and_then(|mut s| created(&mut s));
        self.dedup = section.section("dedup").map(|mut s| dedup(&mut s));
        self.aliases = aliases(section);
    }

    /// Applies what is said here to a discovered tool.
    pub fn apply(&self, tool: &mut Tool) {
        let set = |to: &mut Option<Arc<str>>, from: &Option<Arc<str>>| {
            if from.is_some() {
                to.clone_from(from);
            }
        };
        set(&mut tool.title, &self.title);
        set(&mut tool.tier, &self.tier);
        if let Some(text) = &self.description {
            tool.description = Arc::clone(text);
        }
        if let Some(text) = &self.category {
            tool.category = Arc::clone(text);
        }
        if let Some(schema) = &self.input_schema {
            (tool.input_schema, tool.wire_schema) = (schema.clone(), schema.clone());
        }
        tool.tasks = self.tasks.or(tool.tasks);
        if let Some(tags) = &self.tags {
            tool.tags = Arc::from(tags.as_slice());
        }
        if let Some(scopes) = &self.scopes {
            tool.scopes = Arc::from(scopes.as_slice());
        }
        if self.deprecated.is_some() {
            tool.deprecated.clone_from(&self.deprecated);
        }
        if !self.facts.is_empty() {
            let mut facts = tool.facts.as_ref().clone();
            facts.extend(self.facts.clone());
            tool.facts = Arc::new(facts);
        }
        if !self.aliases.is_empty() {
            tool.aliases = Arc::from(self.aliases.as_slice());
        }
        let (own, hints) = (&self.annotations, &mut tool.annotations);
        set(&mut hints.title, &own.title);
        hints.read_only = own.read_only.or(hints.read_only);
        hints.destructive = own.destructive.or(hints.destructive);
        hints.idempotent = own.idempotent.or(hints.idempotent);
        hints.open_world = own.open_world.or(hints.open_world);
    }
}

/// `input_schema`: a table, or the name of a JSON file below the pack's folder.
fn input_schema(section: &mut Section, reader: &mut Reader<'_>) -> Option<SchemaText> {
    let found = section.json("input_schema")?;
    let schema = match found.value {
        Value::String(name) => {
            let name = Located { value: name, offset: found.offset };
            let path = reader.file(section, &name, limits::HOME_FILE_BYTES_MAX)?;
            let read = crate::json::read_capped(&path, limits::HOME_FILE_BYTES_MAX)
                .and_then(|b| crate::json::parse(&b, limits::HOME_FILE_BYTES_MAX));
            match read {
                Ok(schema) => schema,
                Err(e) => {
                    let message = format!("`{}` is not JSON: {e}", name.value);
                    section.error(found.offset, "bad-schema", message, "write a JSON Schema of 2020-12");
                    return None;
                }
            }
        }
        value => value,
    };
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    if !is_object || crate::json::depth_exceeds(&schema, limits::JSON_DEPTH_MAX) {
        section.error(
            found.offset,
            "bad-schema",
            "the root of `input_schema` must have `type = \"object\"`",
            "arguments are always an object: list them under `properties`",
        );
        return None;
    }
    Some(SchemaText::of(&schema))
}

/// Both spellings are taken: MCP's (`readOnlyHint`) and the one of policies (`read_only`).
fn annotations(section: &mut Section) -> ToolAnnotations {
    let Some(mut hints) = section.section("annotations") else { return ToolAnnotations::default() };
    let mut hint = |wire: &str, short: &str| {
        let (long, short) = (hints.boolean(wire), hints.boolean(short));
        long.or(short)
    };
    let (read_only, destructive) =
        (hint("readOnlyHint", "read_only"), hint("destructiveHint", "destructive"));
    let (idempotent, open_world) =
        (hint("idempotentHint", "idempotent"), hint("openWorldHint", "open_world"));
    let title = hints.string("title").map(|t| Arc::from(t.value));
    ToolAnnotations { title, read_only, destructive, idempotent, open_world }
}

/// `creates = { kind = "issue", id = "/data/id" }`
fn created(section: &mut Section) -> Option<Created> {
    let (kind, id) = (section.required_string("kind"), section.required_string("id"));
    if !id.value.is_empty() && !id.value.starts_with('/') {
        let message = format!("`{}` is not a JSON Pointer", section.full_key("id"));
        section.error(id.offset, "bad-pointer", message, "for example \"/data/id\"");
        return None;
    }
    Some(Created { kind: Arc::from(kind.value), id: Arc::from(id.value) })
}

fn deprecation(section: &mut Section) -> Deprecation {
    let reason = Arc::from(section.required_string("reason").value);
    let replacement = section.string("replacement").and_then(|t| match ToolId::parse(&t.value) {
        Ok(id) => Some(id),
        Err(e) => {
            section.error(t.offset, "bad-id", e.to_string(), "write the other tool's id");
            None
        }
    });
    Deprecation { reason, replacement }
}

fn command_tool(section: &mut Section, schema: Option<&SchemaText>) -> Option<CommandTool> {
    let run = read_run(section);
    let outputs =
        [("text", CommandOutput::Text), ("json", CommandOutput::Json), ("files", CommandOutput::Files)];
    let output = section.one_of("output", &outputs).unwrap_or_default();
    let stdin = section.string("stdin");
    let paths = section.strings("paths").unwrap_or_default();
    let ok_codes = read_codes(section);
    let (run, offset) = run?;
    let schema = schema.map(SchemaText::value).unwrap_or_default();
    let known: Vec<&str> = schema
        .get("properties")
        .and_then(Value::as_object)
        .map(|p| p.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let named = run.arguments().map(|n| (n, offset));
    let named = named.chain(stdin.iter().chain(&paths).map(|t| (t.value.as_str(), t.offset)));
    for (name, offset) in named.filter(|(n, _)| !known.contains(n)) {
        let help = match did_you_mean(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("properties of the schema: {}", known.join(", ")),
        };
        let message = format!("`{name}` is not an argument of this tool");
        section.error(offset, "unknown-argument", message, help);
    }
    let paths = paths.into_iter().map(|t| t.value).collect();
    Some(CommandTool { run, paths, output, stdin: stdin.map(|t| t.value), ok_codes })
}

/// `run`: words and groups of words.
fn read_run(section: &mut Section) -> Option<(Template, usize)> {
    let help = "write `run = [\"program\", \"{argument}\", [\"--option\", \"{other}\"]]`";
    let Some(found) = section.json("run") else {
        let message = format!("`{}` is missing", section.full_key("run"));
        section.error(section.offset(), "missing-key", message, help);
        return None;
    };
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let groups: Option<Vec<Vec<String>>> = found.value.as_array().and_then(|words| {
        let group = |w: &Value| match w {
            Value::Array(words) => words.iter().map(text).collect(),
            word => text(word).map(|w| vec![w]),
        };
        words.iter().map(group).collect()
    });
    let compiled = groups
        .ok_or_else(|| "`run` is an array of words and of groups of words".to_owned())
        .and_then(|g| Template::compile(&g));
    match compiled {
        Ok(template) => Some((template, found.offset)),
        Err(why) => {
            section.error(found.offset, "bad-command", why, help);
            None
        }
    }
}

/// `ok_codes`: exit codes from 1 to 255.
fn read_codes(section: &mut Section) -> Vec<i32> {
    let Some(found) = section.json("ok_codes") else { return Vec::new() };
    let code = |c: &Value| c.as_i64().and_then(|c| i32::try_from(c).ok()).filter(|c| (1..=255).contains(c));
    let codes = found.value.as_array().and_then(|codes| codes.iter().map(code).collect());
    codes.unwrap_or_else(|| {
        let message = "`ok_codes` must be an array of exit codes from 1 to 255";
        section.error(found.offset, "wrong-type", message, "write `ok_codes = [1]`");
        Vec::new()
    })
}
