//! `scripts/<upstream>/upstream.toml` read whole (contract §1.3): every mistake with its place.
//!
//! Reading resolves references to secrets and hashes the files a pack names; it opens no socket and starts
//! no process. What a tool's shaping keys mean is `projection`'s matter.

mod auth;
mod kind;
mod offer;
mod tool;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use auth::{AuthConfig, OauthClient};
pub use kind::{
    CatalogSource, CommandDefaults, Era, HttpTarget, KindConfig, McpSource, McpTransport, OpenApiSource,
    OperationFilter, SecretPair,
};
pub use offer::{
    BackingCall, KnownValues, OfferAccess, PROMPT_TAG, PromptConfig, PromptPart, RESOURCE_TAG,
    ResourceConfig, ResourceSource, Role, Values,
};
pub use tool::{CommandOutput, CommandTool, ToolConfig};

use crate::diagnostic::{Diagnostic, Diagnostics, Severity, SourceFile};
use crate::id::{Scope, ToolId, UpstreamId};
use crate::limits;
use crate::projection::PackSources;
use crate::secret::{Resolver, Secret};
use crate::settings::{self, Located, Section};

/// Whether `docent.lock` stands between a discovered definition and its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pin {
    /// Definitions are taken as they come.
    #[default]
    Off,
    /// New and changed definitions are served and reported.
    Warn,
    /// New and changed definitions wait for `docent pin --approve`.
    Enforce,
}

/// What the tools of an upstream have in common unless they say otherwise.
#[derive(Debug, Clone, Default)]
pub struct ToolDefaults {
    /// Their category.
    pub category: Option<Arc<str>>,
    /// Labels of all of them.
    pub tags: Vec<Arc<str>>,
    /// The tier that a caller needs.
    pub tier: Option<Arc<str>>,
    /// Scopes that a caller needs.
    pub scopes: Vec<Scope>,
    /// Facts that policies may read.
    pub facts: BTreeMap<String, Value>,
}

/// One upstream as its file describes it, secrets resolved.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// Its id: the name of its folder.
    pub id: UpstreamId,
    /// Its folder.
    pub dir: PathBuf,
    /// The file, as diagnostics name it.
    pub file: SourceFile,
    /// What it is and where.
    pub kind: KindConfig,
    /// What its tools have in common.
    pub defaults: ToolDefaults,
    /// How long one call may take, besides the caller's own deadline.
    pub timeout: Duration,
    /// Calls at once.
    pub concurrency: usize,
    /// How many of them may be one caller's; `None` is as many as there are.
    pub concurrency_per_caller: Option<usize>,
    /// Bytes read of one reply; `None` takes [`limits::UPSTREAM_READ_BYTES`] or the server's own budget, which
    /// `config` fills in.
    pub read_bytes: Option<usize>,
    /// Whether definitions are pinned.
    pub pin: Pin,
    /// The credentials of HTTP kinds.
    pub auth: AuthConfig,
    /// Tools written by hand, with where they stand.
    pub tools: Vec<ToolConfig>,
    /// Changes to discovered tools, by id or by the upstream's own name.
    pub overrides: BTreeMap<String, ToolConfig>,
    /// `[[resource]]`: what can be read besides.
    pub resources: Vec<ResourceConfig>,
    /// `[[prompt]]`
    pub prompts: Vec<PromptConfig>,
    digest: blake3::Hash,
    secrets: Vec<Secret>,
    /// The values of the single references, without those that only say where something is.
    echoes: Vec<Secret>,
}

impl UpstreamConfig {
    /// Reads a pack's `upstream.toml`. `dir` is the pack's folder, whose name is the upstream's id.
    /// `pack` are the folder's scripts and schemas, for what shapes requests and results.
    /// `None` where the mistakes leave nothing to connect to; every mistake is in `diagnostics`.
    pub fn read(
        file: &SourceFile,
        dir: &Path,
        resolver: &Resolver,
        pack: &Arc<PackSources>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        settings::read(file, diagnostics, |root| {
            let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let id = match UpstreamId::parse(name) {
                Ok(id) => Some(id),
                Err(e) => {
                    root.error(0, "bad-id", e.to_string(), "rename the folder");
                    None
                }
            };
            let mut reader = Reader {
                dir,
                resolver,
                pack,
                secrets: Vec::new(),
                echoes: Vec::new(),
                files: blake3::Hasher::new(),
            };
            Self::read_root(root, id, file, &mut reader)
        })
    }

    fn read_root(
        root: &mut Section,
        id: Option<UpstreamId>,
        file: &SourceFile,
        reader: &mut Reader<'_>,
    ) -> Option<Self> {
        let kind = KindConfig::read(root, reader);
        let defaults = ToolDefaults::read(root);
        let timeout = root.integer("timeout_ms", 1..=3_600_000).map(Duration::from_millis);
        let concurrency = root.size("concurrency", 1..=10_000);
        let concurrency_per_caller = root.size("concurrency_per_caller", 1..=10_000);
        let read_bytes = root.size("read_bytes", 1..=1 << 30);
        let pins = [("off", Pin::Off), ("warn", Pin::Warn), ("enforce", Pin::Enforce)];
        let pin = root.one_of("pin", &pins).unwrap_or_default();
        if pin != Pin::Off {
            let help = "leave it out for now: definitions are taken as they come";
            root.error(root.offset(), "not-built-yet", "`pin` is not built yet", help);
        }
        let auth = root.section("auth").map(|mut s| AuthConfig::read(&mut s, reader)).unwrap_or_default();
        let mut tools = Vec::new();
        for mut section in root.sections("tool") {
            let Some(id) = &id else { continue };
            tools.extend(ToolConfig::read_tool(&mut section, id, kind.as_ref(), reader));
        }
        let mut overrides = BTreeMap::new();
        for (name, mut section) in root.named_sections("override") {
            overrides.insert(name.value, ToolConfig::read_override(&mut section, name.offset, reader));
        }
        let resources: Vec<ResourceConfig> =
            root.sections("resource").iter_mut().filter_map(|s| ResourceConfig::read(s, reader)).collect();
        let prompts: Vec<PromptConfig> =
            root.sections("prompt").iter_mut().filter_map(|s| PromptConfig::read(s, reader)).collect();
        let (id, kind) = (id?, kind?);
        report_duplicates(root, &tools);
        report_misplaced(root, &kind, &tools, &auth);
        reader.files.update(file.text.as_bytes());
        Some(Self {
            id,
            dir: reader.dir.to_path_buf(),
            file: file.clone(),
            kind,
            defaults,
            timeout: timeout.unwrap_or(limits::UPSTREAM_TIMEOUT),
            concurrency: concurrency.unwrap_or(limits::UPSTREAM_CONCURRENCY),
            concurrency_per_caller,
            read_bytes,
            pin,
            auth,
            tools,
            overrides,
            resources,
            prompts,
            digest: reader.files.finalize(),
            secrets: std::mem::take(&mut reader.secrets),
            echoes: std::mem::take(&mut reader.echoes),
        })
    }

    /// Whether an adapter made for `other` serves this one as well: same folder, same text, same files,
    /// same secrets. Secrets are compared, never hashed.
    pub fn same_as(&self, other: &Self) -> bool {
        self.id == other.id
            && self.dir == other.dir
            && self.digest == other.digest
            && self.read_bytes == other.read_bytes
            && self.secrets == other.secrets
    }

    /// Bytes read of one reply.
    pub fn read_bytes(&self) -> usize {
        self.read_bytes.unwrap_or(limits::UPSTREAM_READ_BYTES)
    }

    /// What is said of a tool, by its id or by its name at the upstream.
    pub fn own(&self, id: &ToolId, name: &str) -> Option<&ToolConfig> {
        let changed = self.overrides.get(id.as_str()).or_else(|| self.overrides.get(name));
        changed.or_else(|| self.tools.iter().find(|t| &*t.name == name))
    }

    /// Overrides that no tool of the list has, as warnings: for an upstream whose whole list is known.
    pub(super) fn unused_overrides(&self, used: &HashSet<&str>, found: &mut Diagnostics) {
        for (name, own) in self.overrides.iter().filter(|(k, _)| !used.contains(k.as_str())) {
            let message = format!("`[override.\"{name}\"]` changes nothing: the upstream has no such tool");
            let mut warning = self.file.error_at("unused-override", own.offset, message);
            warning.severity = Severity::Warning;
            found.push(warning.help("name a tool as `docent tools` lists it"));
        }
    }

    /// Whether any tool has request or result shaping.
    pub(super) fn shapes(&self) -> bool {
        self.tools.iter().chain(self.overrides.values()).any(|t| t.projection.is_some())
    }

    /// How often the tools of an MCP server are listed again; `None` for kinds that only change with the home.
    pub fn refresh(&self) -> Option<Duration> {
        match &self.kind {
            KindConfig::Mcp(source) => Some(source.refresh),
            _ => None,
        }
    }

    /// A digest of the file and of the files it names, without secrets: the key of remembered discoveries.
    pub fn digest(&self) -> blake3::Hash {
        self.digest
    }

    /// Every secret value of the pack by itself, to be taken out of replies that echo one.
    pub fn echoes(&self) -> &[Secret] {
        &self.echoes
    }

    /// The id of a tool that the upstream calls `name`: characters outside the alphabet become `_`.
    pub fn tool_id(&self, name: &str) -> Option<ToolId> {
        tool_id(&self.id, name)
    }
}

/// `<upstream>.<name>` with characters outside the alphabet of ids replaced by `_`.
fn tool_id(upstream: &UpstreamId, name: &str) -> Option<ToolId> {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '~') { c } else { '_' })
        .collect();
    if plain.is_empty() { None } else { ToolId::parse(&format!("{upstream}.{plain}")).ok() }
}

impl ToolDefaults {
    fn read(root: &mut Section) -> Self {
        Self {
            category: root.string("category").map(|c| Arc::from(c.value)),
            tags: root.plain_strings("tags").into_iter().map(Arc::from).collect(),
            tier: root.string("tier").map(|t| Arc::from(t.value)),
            scopes: read_scopes(root).unwrap_or_default(),
            facts: root.object("facts").unwrap_or_default().into_iter().collect(),
        }
    }
}

fn read_scopes(section: &mut Section) -> Option<Vec<Scope>> {
    let found = section.strings("scopes")?;
    let mut scopes = Vec::with_capacity(found.len());
    for text in found {
        match Scope::parse(&text.value) {
            Ok(scope) => scopes.push(scope),
            Err(e) => {
                section.error(text.offset, "bad-scope", e.to_string(), "write scopes like \"ops:read\"");
            }
        }
    }
    Some(scopes)
}

fn report_duplicates(root: &Section, tools: &[ToolConfig]) {
    let mut seen = BTreeSet::new();
    for tool in tools {
        if !seen.insert(tool.name.as_ref()) {
            let message = format!("two tools have the id `{}`", tool.name);
            root.error(tool.offset, "duplicate-tool", message, "rename one of them");
        }
    }
}

fn report_misplaced(root: &Section, kind: &KindConfig, tools: &[ToolConfig], auth: &AuthConfig) {
    let by_hand = matches!(
        kind,
        KindConfig::Http(_) | KindConfig::Command(_) | KindConfig::Script | KindConfig::OpenApi(_)
    );
    if let (false, Some(tool)) = (by_hand, tools.first()) {
        let message = format!("kind \"{}\" brings its own tools", kind.word());
        root.error(tool.offset, "misplaced-tool", message, "change them with `[override.\"tool.id\"]`");
    }
    let speaks_http = match kind {
        KindConfig::Http(_) | KindConfig::OpenApi(_) => true,
        KindConfig::Mcp(source) => matches!(source.transport, McpTransport::Http(_)),
        _ => false,
    };
    if !speaks_http && !auth.is_none() {
        let message = format!("kind \"{}\" has no HTTP request to put credentials on", kind.word());
        root.error(auth.offset, "misplaced-auth", message, "pass secrets to programs with `env = {…}`");
    }
}

/// What reading needs besides the section: the folder, the resolver, and what was resolved so far.
struct Reader<'a> {
    dir: &'a Path,
    resolver: &'a Resolver,
    pack: &'a Arc<PackSources>,
    secrets: Vec<Secret>,
    echoes: Vec<Secret>,
    files: blake3::Hasher,
}

/// Whether a value says where something is, a path or a plain address: taking those out of replies would only
/// spoil them.
fn is_place(value: &str) -> bool {
    let address = value.contains("://") && !value.contains(['@', '?']);
    address || (value.starts_with('/') && Path::new(value).exists())
}

impl Reader<'_> {
    /// Replaces references; a missing one is reported and gives `None`.
    fn expand(&mut self, section: &Section, text: &Located<String>) -> Option<Secret> {
        let value = self.expand_name(section, text)?;
        self.note_echoes(&text.value);
        Some(value)
    }

    /// The same for a name, which replies may hold: of a user, of a file.
    fn expand_name(&mut self, section: &Section, text: &Located<String>) -> Option<Secret> {
        match self.resolver.expand(&text.value) {
            Ok(secret) => {
                if text.value.contains("${") {
                    self.secrets.push(secret.clone());
                }
                Some(secret)
            }
            Err(e) => {
                section.error(text.offset, "unresolved-reference", e, "set it before docent starts");
                None
            }
        }
    }

    /// Each reference by itself: of `Bearer ${env:TOKEN}` an upstream may echo the token alone.
    fn note_echoes(&mut self, text: &str) {
        let inner = text.split("${").skip(1).filter_map(|part| Some(part.split_once('}')?.0));
        let values = inner.filter_map(|inner| self.resolver.expand(&format!("${{{inner}}}")).ok());
        let found: Vec<_> = values.filter(|value| !is_place(value.expose())).collect();
        self.echoes.extend(found);
    }

    /// The same for a value that should be a secret: a literal one is warned about.
    fn expand_secret(&mut self, section: &Section, text: &Located<String>) -> Option<Secret> {
        if !text.value.contains("${") {
            let warning =
                section.file().error_at("literal-secret", text.offset, "a secret stands in the file");
            section.report(
                Diagnostic { severity: Severity::Warning, ..warning }
                    .help("refer to it: \"${env:NAME}\" or \"${file:PATH}\"")
                    .without_line(),
            );
            self.secrets.push(Secret::new(text.value.as_str()));
            self.echoes.push(Secret::new(text.value.as_str()));
        }
        self.expand(section, text)
    }

    /// A variable of docent's own environment.
    fn environment(&self, name: &str) -> Option<String> {
        self.resolver.expand(&format!("${{env:{name}}}")).ok().map(|v| v.expose().to_owned())
    }

    /// A file below the pack's folder: the path, or a report of why not. Its bytes enter the digest.
    fn file(&mut self, section: &Section, name: &Located<String>, max: usize) -> Option<PathBuf> {
        let path = self.below(section, name)?;
        match crate::json::read_capped(&path, max) {
            Ok(bytes) => {
                self.files.update(&bytes);
                Some(path)
            }
            Err(e) => {
                let message = format!("cannot read `{}`: {e}", name.value);
                section.error(name.offset, "unreadable-file", message, "the path is relative to this folder");
                None
            }
        }
    }

    /// A path that stays below the pack's folder.
    fn below(&self, section: &Section, name: &Located<String>) -> Option<PathBuf> {
        let relative = Path::new(&name.value);
        let inside = relative
            .components()
            .all(|c| matches!(c, std::path::Component::Normal(_) | std::path::Component::CurDir));
        if !inside || name.value.is_empty() {
            let message = format!("`{}` leaves the pack's folder", name.value);
            section.error(name.offset, "path-outside", message, "name a file below this folder");
            return None;
        }
        Some(self.dir.join(relative))
    }
}
