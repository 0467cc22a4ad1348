//! The keys that belong to one kind of upstream.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::Reader;
use crate::json::Object;
use crate::limits;
use crate::secret::Secret;
use crate::settings::{Located, Section};

/// A header or query name with its secret value.
pub type SecretPair = (String, Secret);

/// What an upstream is.
#[derive(Debug, Clone)]
pub enum KindConfig {
    /// An MCP server.
    Mcp(McpSource),
    /// An HTTP service described by an OpenAPI document.
    OpenApi(OpenApiSource),
    /// An HTTP service whose tools are written by hand.
    Http(HttpTarget),
    /// Local programs.
    Command(CommandDefaults),
    /// Tools made in Rhai alone.
    Script,
    /// Definitions without anything behind them.
    Catalog(CatalogSource),
}

/// Which wire an MCP server is spoken to on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// `server/discover` first, `initialize` where that is not understood.
    #[default]
    Auto,
    /// `initialize`, revisions up to 2025-11-25.
    Session,
    /// Revision 2026-07-28.
    Stateless,
}

/// An MCP server.
#[derive(Debug, Clone)]
pub struct McpSource {
    /// How it is reached.
    pub transport: McpTransport,
    /// Which wire.
    pub era: Era,
    /// A child without calls is stopped after this long.
    pub idle: Duration,
    /// The list of tools is walked again after this long.
    pub refresh: Duration,
}

/// How an MCP server is reached.
#[derive(Debug, Clone)]
pub enum McpTransport {
    /// A child process on stdin and stdout.
    Stdio(CommandDefaults),
    /// Streamable HTTP.
    Http(HttpTarget),
}

/// An HTTP address with its fixed headers.
#[derive(Debug, Clone)]
pub struct HttpTarget {
    /// Requests stay below it.
    pub base_url: url::Url,
    /// Headers of every request; values may be secret.
    pub headers: Vec<SecretPair>,
    /// Reply headers that projections may read, besides the usual ones, in lower case.
    pub reply_headers: Vec<String>,
}

/// An OpenAPI document and the part of it that becomes tools.
#[derive(Debug, Clone)]
pub struct OpenApiSource {
    /// The document, below the pack's folder.
    pub spec: PathBuf,
    /// Where the service is; `None` takes the document's own server.
    pub base_url: Option<url::Url>,
    /// Headers of every request; values may be secret.
    pub headers: Vec<SecretPair>,
    /// Reply headers that projections may read, besides the usual ones.
    pub reply_headers: Vec<String>,
    /// Only these operations; empty means all.
    pub include: OperationFilter,
    /// Not these.
    pub exclude: OperationFilter,
}

/// Globs over operations.
#[derive(Debug, Clone, Default)]
pub struct OperationFilter {
    /// Tags.
    pub tags: Vec<String>,
    /// `GET`, `POST`, …
    pub methods: Vec<String>,
    /// Path templates.
    pub paths: Vec<String>,
    /// operationIds.
    pub operations: Vec<String>,
}

/// How programs are started.
#[derive(Debug, Clone, Default)]
pub struct CommandDefaults {
    /// The argument vector of an MCP child; empty for kind `command`, where each tool has its own.
    pub command: Vec<String>,
    /// Variables besides `PATH` and `HOME`; values may be secret.
    pub env: Vec<SecretPair>,
    /// The working folder; `None` is the pack's folder.
    pub cwd: Option<PathBuf>,
    /// docent's own `PATH`.
    pub path: Option<String>,
    /// docent's own `HOME`.
    pub home: Option<String>,
}

/// A file of definitions.
#[derive(Debug, Clone)]
pub struct CatalogSource {
    /// JSON lines, plain or gzipped, below the pack's folder or by absolute path.
    pub file: PathBuf,
    /// Only records whose fields equal these.
    pub filter: Object,
}

type KindReader = fn(&mut Section, &mut Reader<'_>) -> Option<KindConfig>;

const KINDS: [(&str, KindReader); 6] = [
    ("mcp", mcp),
    ("openapi", openapi),
    ("http", |s, r| http_target(s, "base_url", r).map(KindConfig::Http)),
    ("command", |s, r| Some(KindConfig::Command(surroundings(s, r)))),
    ("script", |_, _| Some(KindConfig::Script)),
    ("catalog", catalog),
];

impl KindConfig {
    /// The word of the kind.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Mcp(_) => "mcp",
            Self::OpenApi(_) => "openapi",
            Self::Http(_) => "http",
            Self::Command(_) => "command",
            Self::Script => "script",
            Self::Catalog(_) => "catalog",
        }
    }

    pub(super) fn read(root: &mut Section, reader: &mut Reader<'_>) -> Option<Self> {
        if !root.has("kind") {
            drop(root.required_string("kind"));
            return None;
        }
        root.one_of("kind", &KINDS).and_then(|read| read(root, reader))
    }
}

fn mcp(root: &mut Section, reader: &mut Reader<'_>) -> Option<KindConfig> {
    let eras = [("auto", Era::Auto), ("session", Era::Session), ("stateless", Era::Stateless)];
    let era = root.one_of("era", &eras).unwrap_or_default();
    let idle = root.integer("idle_seconds", 1..=86_400).map_or(limits::CHILD_IDLE, Duration::from_secs);
    let refresh =
        root.integer("refresh_seconds", 1..=86_400).map_or(limits::DISCOVERY_REFRESH, Duration::from_secs);
    let transport = match (root.has("command"), root.has("url")) {
        (true, false) => {
            let words = root.strings("command").unwrap_or_default();
            let expand = |t: &Located<String>| Some(reader.expand(root, t)?.expose().to_owned());
            let words: Vec<String> = words.iter().filter_map(expand).collect();
            let command = CommandDefaults { command: words, ..surroundings(root, reader) };
            if command.command.is_empty() {
                let message = "`command` names no program";
                root.error(
                    root.offset(),
                    "missing-key",
                    message,
                    "write `command = [\"program\", \"argument\"]`",
                );
                return None;
            }
            McpTransport::Stdio(command)
        }
        (false, true) => McpTransport::Http(http_target(root, "url", reader)?),
        (both, _) => {
            let message = if both { "both `command` and `url`" } else { "neither `command` nor `url`" };
            for key in ["command", "url", "env", "cwd", "headers", "reply_headers"] {
                drop(root.json(key));
            }
            root.error(root.offset(), "mcp-transport", message, "an MCP server has one of them");
            return None;
        }
    };
    Some(KindConfig::Mcp(McpSource { transport, era, idle, refresh }))
}

fn openapi(root: &mut Section, reader: &mut Reader<'_>) -> Option<KindConfig> {
    let spec = root.required_string("spec");
    let base_url = root.string("base_url");
    let base_url = base_url.and_then(|text| {
        let expanded = reader.expand(root, &text)?;
        http_url(root, &Located { value: expanded.expose().to_owned(), offset: text.offset })
    });
    let headers = secret_pairs(root, "headers", reader, true);
    let reply_headers = lower(root.plain_strings("reply_headers"));
    let include = OperationFilter::read(root, "include");
    let exclude = OperationFilter::read(root, "exclude");
    if spec.value.is_empty() {
        return None;
    }
    let spec = reader.file(root, &spec, limits::OPENAPI_BYTES_MAX)?;
    Some(KindConfig::OpenApi(OpenApiSource { spec, base_url, headers, reply_headers, include, exclude }))
}

impl OperationFilter {
    fn read(root: &mut Section, key: &str) -> Self {
        let Some(mut section) = root.section(key) else { return Self::default() };
        Self {
            tags: section.plain_strings("tags"),
            methods: section.plain_strings("methods"),
            paths: section.plain_strings("paths"),
            operations: section.plain_strings("operations"),
        }
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.methods.is_empty() && self.paths.is_empty() && self.operations.is_empty()
    }
}

fn http_target(root: &mut Section, key: &str, reader: &mut Reader<'_>) -> Option<HttpTarget> {
    let url = root.required_string(key);
    let headers = secret_pairs(root, "headers", reader, true);
    let reply_headers = lower(root.plain_strings("reply_headers"));
    if url.value.is_empty() {
        return None;
    }
    let expanded = reader.expand(root, &url)?.expose().to_owned();
    let base_url = http_url(root, &Located { value: expanded, offset: url.offset })?;
    Some(HttpTarget { base_url, headers, reply_headers })
}

fn lower(names: Vec<String>) -> Vec<String> {
    names.into_iter().map(|n| n.to_ascii_lowercase()).collect()
}

/// An absolute `http` or `https` address without credentials and fragment.
pub(super) fn http_url(section: &Section, text: &Located<String>) -> Option<url::Url> {
    if text.value.is_empty() {
        return None;
    }
    let problem = match url::Url::parse(&text.value) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => "is not an http or https address",
        Ok(url) if !url.username().is_empty() || url.password().is_some() => "carries credentials",
        Ok(url) if url.fragment().is_some() => "has a fragment",
        Ok(url) => return Some(url),
        Err(_) => "is not an absolute address",
    };
    section.error(
        text.offset,
        "bad-url",
        format!("the address {problem}"),
        "write \"https://host/path\"; credentials belong into `[auth]`",
    );
    None
}

/// A table of names and secret values. Header names and values are checked as RFC 9110 wants them.
pub(super) fn secret_pairs(
    section: &mut Section,
    key: &str,
    reader: &mut Reader<'_>,
    headers: bool,
) -> Vec<SecretPair> {
    let found = section.string_table(key);
    let names: Vec<&str> = found.iter().map(|(n, _)| n.as_str()).collect();
    if names.len() == 2 && names.contains(&"name") && names.contains(&"value") {
        let offset = found.first().map_or(section.offset(), |(_, v)| v.offset);
        let message = format!("`{}` is a table of names and values", section.full_key(key));
        section.error(offset, "wrong-shape", message, format!("write `{key} = {{ \"X-Api-Key\" = \"…\" }}`"));
        return Vec::new();
    }
    let mut pairs = Vec::with_capacity(found.len());
    for (name, text) in &found {
        let Some(value) = reader.expand(section, text) else { continue };
        if headers && (!is_token(name) || value.expose().chars().any(char::is_control)) {
            let message = format!("`{name}` is not a header that can be sent");
            section.error(
                text.offset,
                "bad-header",
                message,
                "names are tokens, values have no control characters",
            );
            continue;
        }
        let name = if headers { name.to_ascii_lowercase() } else { name.clone() };
        pairs.push((name, value));
    }
    pairs
}

/// A token of RFC 9110 §5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

/// Variables and folder of programs.
fn surroundings(root: &mut Section, reader: &mut Reader<'_>) -> CommandDefaults {
    let env = root.string_table("env");
    let env = env.into_iter().filter_map(|(k, t)| Some((k, reader.expand(root, &t)?))).collect();
    let cwd = root.string("cwd").and_then(|t| {
        let text = reader.expand(root, &t)?;
        let path = reader.dir.join(text.expose());
        if path.is_dir() {
            return Some(path);
        }
        root.error(t.offset, "missing-folder", "`cwd` is not a folder", "create it or name another");
        None
    });
    CommandDefaults {
        command: Vec::new(),
        env,
        cwd,
        path: reader.environment("PATH"),
        home: reader.environment("HOME"),
    }
}

fn catalog(root: &mut Section, reader: &mut Reader<'_>) -> Option<KindConfig> {
    let name = root.required_string("file");
    let filter = root.object("where").unwrap_or_default();
    if let Some((key, _)) =
        filter.iter().find(|(_, v)| !matches!(v, Value::String(_) | Value::Bool(_) | Value::Number(_)))
    {
        let message = format!("`where.{key}` must be a string, a number or a boolean");
        root.error(
            root.offset(),
            "wrong-type",
            message,
            "a record is taken where the field equals the value",
        );
    }
    if name.value.is_empty() {
        return None;
    }
    let expanded = reader.expand_name(root, &name)?.expose().to_owned();
    let named = Located { value: expanded, offset: name.offset };
    let file = if std::path::Path::new(&named.value).is_absolute() {
        PathBuf::from(&named.value)
    } else {
        reader.dir.join(&named.value)
    };
    match crate::json::read_capped(&file, limits::CATALOG_BYTES_MAX) {
        Ok(bytes) => drop(reader.files.update(&bytes)),
        Err(e) => {
            let message = format!("cannot read `{}`: {e}", named.value);
            root.error(named.offset, "unreadable-file", message, "the path is relative to this folder");
            return None;
        }
    }
    Some(KindConfig::Catalog(CatalogSource { file, filter }))
}
