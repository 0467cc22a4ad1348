//! From a document to its tools: walks the operations, names them, binds each one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::argument::{Arguments, described};
use super::closure::close;
use super::convert::Converter;
use super::document::{At, Documents, Version};
use super::encode::{Style, is_header_name};
use super::filter::Candidate;
use super::naming::{derived_name, operation_name, unique};
use super::operation::{Location, Operation, Piece, has_dot_segment};
use super::parameter::{Declared, Parameter, gather, is_argument_header};
use super::security::{CredentialPlace, Requirement, SchemeKind, requirements, schemes};
use super::server::{self, Address};
use super::text::{self, TITLE_CHARS_MAX, clean};
use super::{Import, Loader, Options, Skipped, payload};
use crate::catalog::{Deprecation, Tool, ToolAnnotations};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::id::ToolId;
use crate::limits::TOOLS_PER_UPSTREAM_MAX;

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// What a path may hold as it is (RFC 3986 §3.3); a template's other characters are encoded.
const PATH_TEXT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'`')
    .add(b'\\')
    .add(b'^')
    .add(b'|')
    .add(b'?')
    .add(b'#')
    .add(b'{')
    .add(b'}')
    .add(b'[')
    .add(b']');

/// One operation of the document, before it is a tool.
struct Found<'d> {
    method: &'static str,
    path: &'d str,
    item: At<'d>,
    at: At<'d>,
    name: String,
}

/// Reads a document and makes its operations tools. The error is one that leaves nothing to serve: it is not
/// JSON or YAML, or no OpenAPI. `name` is the document's file name, as diagnostics show it.
pub fn import(
    document: &[u8],
    name: &str,
    loader: &Loader<'_>,
    options: &Options,
) -> Result<Import, Box<Diagnostic>> {
    let documents = Documents::load(document, name, loader)?;
    let mut importer = Importer::new(&documents, options);
    let mut skipped = Vec::new();
    let found = importer.operations(&mut skipped);
    importer.settle_servers(&found);
    let mut tools = Vec::new();
    let mut taken = HashSet::new();
    for operation in found {
        let label = operation.label();
        if let Some(reason) = importer.left_out(&operation) {
            skipped.push(Skipped { operation: label, reason, filtered: true });
            continue;
        }
        match importer.tool(&operation, &mut taken) {
            Ok(tool) => tools.push(tool),
            Err(reason) => skipped.push(Skipped { operation: label, reason, filtered: false }),
        }
    }
    let title = documents.root().get("info").and_then(|i| i.text("title")).unwrap_or_default();
    let title = clean(title, TITLE_CHARS_MAX);
    let Importer { converter, base_url, security, mut diagnostics, .. } = importer;
    for note in converter.into_notes() {
        diagnostics.push(Diagnostic {
            severity: Severity::Note,
            ..Diagnostic::warning("openapi-loose", name, note)
        });
    }
    Ok(Import { tools, skipped, base_url, security, title, diagnostics })
}

struct Importer<'d, 'o> {
    converter: Converter<'d>,
    options: &'o Options,
    base_url: Option<String>,
    /// The document's own address, as far as it is whole.
    home: Option<url::Url>,
    /// Whether an operation has a path of its own at the same origin, so that paths begin at the origin.
    from_origin: bool,
    guarded: Arc<[CredentialPlace]>,
    security: Vec<super::SecurityScheme>,
    needs: Arc<[Vec<Requirement>]>,
    diagnostics: Diagnostics,
}

impl<'d> Found<'d> {
    fn label(&self) -> String {
        let id = self.at.text("operationId").map(|id| format!(" ({})", clean(id, 80))).unwrap_or_default();
        format!("{} {}{id}", self.method, self.path)
    }

    fn tags(&self) -> Vec<&'d str> {
        self.at.items("tags").filter_map(|t| t.value.as_str()).collect()
    }
}

impl<'d, 'o> Importer<'d, 'o> {
    fn new(documents: &'d Documents, options: &'o Options) -> Self {
        let security = schemes(documents);
        let mut guarded = options.credentials.clone();
        guarded.extend(security.iter().filter_map(|s| match &s.kind {
            SchemeKind::ApiKey(place) => Some(place.clone()),
            _ => None,
        }));
        Self {
            converter: Converter::new(documents),
            options,
            base_url: options.base_url.clone(),
            home: None,
            from_origin: false,
            guarded: guarded.into(),
            needs: requirements(documents.root()).unwrap_or_default(),
            security,
            diagnostics: Diagnostics::default(),
        }
    }

    /// All operations in the order of the document, with their names.
    fn operations(&mut self, skipped: &mut Vec<Skipped>) -> Vec<Found<'d>> {
        let documents = self.converter.documents;
        let fault = |operation: String, reason: String| Skipped { operation, reason, filtered: false };
        let mut found: Vec<Found<'d>> = Vec::new();
        for (path, item) in documents.root().members("paths").filter(|(path, _)| !path.starts_with("x-")) {
            let item = match documents.resolve(item) {
                Ok((item, _)) => item,
                Err(why) => {
                    skipped.push(fault(path.to_owned(), why));
                    continue;
                }
            };
            for (method, at) in item.object().into_iter().flatten() {
                let Some(method) = METHODS.iter().find(|m| *m == method) else { continue };
                let at = item.of(at);
                let upper = upper(method);
                if !at.value.is_object() {
                    skipped.push(fault(format!("{upper} {path}"), "it is no object".to_owned()));
                } else if found.len() >= TOOLS_PER_UPSTREAM_MAX {
                    skipped.push(fault(
                        format!("{upper} {path}"),
                        format!("more than {TOOLS_PER_UPSTREAM_MAX} operations"),
                    ));
                } else {
                    found.push(Found { method: upper, path, item, at, name: String::new() });
                }
            }
        }
        name_all(&mut found);
        found
    }

    /// Where requests go, and whether any operation lives elsewhere at the same origin.
    fn settle_servers(&mut self, found: &[Found<'d>]) {
        let documents = self.converter.documents;
        if self.options.base_url.is_some() {
            return;
        }
        match server::of_document(documents) {
            Some(Address::Absolute(url)) => {
                self.from_origin = found.iter().any(|f| match own_address(f) {
                    Some(Address::Absolute(own)) => own.origin() == url.origin() && own.path() != url.path(),
                    Some(Address::Relative(_)) => true,
                    _ => false,
                });
                let base =
                    if self.from_origin { url.origin().ascii_serialization() } else { url.to_string() };
                self.base_url = Some(base.trim_end_matches('/').to_owned());
                self.home = Some(url);
            }
            Some(Address::Relative(path)) => self.no_address(&format!("only a path (`{path}`)")),
            Some(Address::Unusable(text)) => self.no_address(&format!("`{}`", clean(&text, 80))),
            None => self.no_address("no server"),
        }
    }

    fn no_address(&mut self, what: &str) {
        let message = format!("the document names {what} as its address");
        self.diagnostics
            .push(Diagnostic::warning("openapi-server", "", message).help("set `base_url` in upstream.toml"));
    }

    fn left_out(&self, found: &Found<'d>) -> Option<String> {
        let tags = found.tags();
        let operation = found.at.text("operationId").unwrap_or(&found.name);
        let candidate = Candidate { tags: &tags, method: found.method, path: found.path, operation };
        if !self.options.include.takes(candidate) {
            return Some("`include` does not name it".to_owned());
        }
        self.options.exclude.hits(candidate).then(|| "`exclude` names it".to_owned())
    }

    /// The path before the template, where an operation has its own address. The error is another origin: a
    /// request has no host, and the upstream's credentials are not for another one.
    fn prefix(&self, found: &Found<'d>) -> Result<String, String> {
        let Some(home) = &self.home else { return Ok(String::new()) };
        let of_home =
            || if self.from_origin { home.path().trim_end_matches('/').to_owned() } else { String::new() };
        match own_address(found) {
            None | Some(Address::Unusable(_)) => Ok(of_home()),
            Some(Address::Relative(path)) => Ok(path.trim_end_matches('/').to_owned()),
            Some(Address::Absolute(own)) if own.origin() == home.origin() => {
                Ok(if self.from_origin { own.path().trim_end_matches('/').to_owned() } else { String::new() })
            }
            Some(Address::Absolute(own)) => Err(format!(
                "it lives at another host ({}); import it as an upstream of its own with that `base_url`",
                own.origin().ascii_serialization()
            )),
        }
    }

    fn tool(&mut self, found: &Found<'d>, taken: &mut HashSet<String>) -> Result<(Tool, Operation), String> {
        let documents = self.converter.documents;
        let prefix = self.prefix(found)?;
        let declared = gather(documents, found.item, found.at)?;
        let mut arguments = Arguments::default();
        drop(self.converter.take_refs());
        let mut parameters = Vec::new();
        let (pieces, fixed_query) = self.path(found, &prefix, &declared, &mut arguments, &mut parameters)?;
        for location in [Location::Query, Location::Header, Location::Cookie] {
            for d in declared.iter().filter(|d| d.location == location) {
                self.parameter(d, &mut arguments, &mut parameters)?;
            }
        }
        let body = payload::plan(&mut self.converter, found.at, &declared, &mut arguments)?;
        let renames = std::mem::take(&mut arguments.renames).into_boxed_slice();
        let refs = self.converter.take_refs();
        let schemas = close(&mut self.converter, arguments.into_root(), &refs)?;
        let operation = Operation {
            method: found.method,
            template: Arc::from(found.path),
            pieces,
            fixed_query,
            parameters: parameters.into(),
            body,
            accept: accept(documents, found.at),
            guarded: Arc::clone(&self.guarded),
            security: requirements(found.at).unwrap_or_else(|| Arc::clone(&self.needs)),
            renames,
        };
        let id =
            ToolId::parse(&format!("{}.{}", self.options.upstream, found.name)).map_err(|e| e.to_string())?;
        // INVARIANT: `name_all` made the names unique; this only keeps two imports of one name from passing.
        let name = unique(&found.name, taken);
        let mut tool = Tool::new(id, self.options.upstream.clone(), name, schemas.strict);
        tool.wire_schema = schemas.wire;
        self.describe(found, &mut tool);
        Ok((tool, operation))
    }

    /// Splits the template into pieces and makes its parameters arguments.
    #[expect(clippy::type_complexity, reason = "the two halves of a template, used once")]
    fn path(
        &mut self,
        found: &Found<'d>,
        prefix: &str,
        declared: &[Declared<'d>],
        arguments: &mut Arguments,
        parameters: &mut Vec<Parameter>,
    ) -> Result<(Box<[Piece]>, Box<[(String, String)]>), String> {
        // A fragment is never sent; Amazon's documents tell operations of one path apart by it.
        let template = found.path.split('#').next().unwrap_or_default();
        let (template, query) = template.split_once('?').unwrap_or((template, ""));
        let slash = if template.starts_with('/') { "" } else { "/" };
        let mut pieces = vec![Piece::Text(format!("{prefix}{slash}").into())];
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, tail) = after.split_once('}').ok_or("its path has `{` without `}`")?;
            pieces.push(Piece::Text(utf8_percent_encode(before, PATH_TEXT).to_string().into()));
            pieces.push(Piece::Parameter(self.path_parameter(name, declared, arguments, parameters)));
            rest = tail;
        }
        pieces.push(Piece::Text(utf8_percent_encode(rest, PATH_TEXT).to_string().into()));
        pieces.retain(|p| !matches!(p, Piece::Text(t) if t.is_empty()));
        let fixed: String =
            pieces.iter().map(|p| if let Piece::Text(t) = p { t.as_ref() } else { "x" }).collect();
        if has_dot_segment(&fixed) {
            return Err("its path has a segment `.` or `..`".to_owned());
        }
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let fixed_query = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains('{'))
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(k, v)| (decode(k), decode(v)))
            .collect();
        Ok((pieces.into(), fixed_query))
    }

    fn path_parameter(
        &mut self,
        name: &str,
        declared: &[Declared<'d>],
        arguments: &mut Arguments,
        parameters: &mut Vec<Parameter>,
    ) -> usize {
        if let Some(no) = parameters.iter().position(|p| &*p.name == name) {
            return no;
        }
        let version = self.converter.documents.version;
        let found = declared.iter().find(|d| d.location == Location::Path && d.name == name);
        let schema = match found {
            Some(d) => self.parameter_schema(d),
            None => {
                self.converter
                    .note(format!("the path parameter `{name}` is declared nowhere; it is taken as a text"));
                serde_json::json!({"type": "string"})
            }
        };
        let (style, explode) = found.map_or((Style::Simple, false), |d| d.style(version));
        let argument = arguments.add(name, Location::Path, schema, true);
        parameters.push(Parameter {
            argument: argument.into(),
            name: name.into(),
            location: Location::Path,
            style,
            explode,
            required: true,
        });
        parameters.len() - 1
    }

    fn parameter(
        &mut self,
        declared: &Declared<'d>,
        arguments: &mut Arguments,
        parameters: &mut Vec<Parameter>,
    ) -> Result<(), String> {
        let Declared { name, location, at, .. } = *declared;
        if self.guarded.iter().any(|place| place.is(location, name)) {
            return Ok(());
        }
        let required = at.flag("required");
        if location == Location::Header {
            if !is_argument_header(name) {
                return Ok(());
            }
            if !is_header_name(name) {
                if required {
                    return Err(format!(
                        "its header `{}` has a name that no header may have",
                        clean(name, 40)
                    ));
                }
                return Ok(());
            }
        }
        let (style, explode) = declared.style(self.converter.documents.version);
        let schema = self.parameter_schema(declared);
        let argument = arguments.add(name, location, schema, required);
        parameters.push(Parameter {
            argument: argument.into(),
            name: name.into(),
            location,
            style,
            explode,
            required,
        });
        Ok(())
    }

    fn parameter_schema(&mut self, declared: &Declared<'d>) -> serde_json::Value {
        let version = self.converter.documents.version;
        let schema =
            declared.schema(version).map_or(serde_json::json!({}), |at| self.converter.schema(at, 1));
        let mut schema = described(schema, declared.at.text("description"));
        if declared.at.flag("deprecated")
            && let serde_json::Value::Object(map) = &mut schema
        {
            map.insert("deprecated".to_owned(), serde_json::Value::Bool(true));
        }
        schema
    }

    /// Everything of a tool that is for its readers.
    fn describe(&self, found: &Found<'d>, tool: &mut Tool) {
        let fallback = format!("{} {}", found.method, found.path);
        let summary = found.at.text("summary").or_else(|| found.item.text("summary")).unwrap_or_default();
        let long =
            found.at.text("description").or_else(|| found.item.text("description")).unwrap_or_default();
        tool.description = text::description(summary, long, &fallback).into();
        let title = clean(summary, TITLE_CHARS_MAX);
        tool.title = (!title.is_empty()).then(|| Arc::from(title));
        tool.annotations = annotations(found.method);
        tool.category = Arc::clone(&self.options.category);
        let tags = found.tags();
        let own = tags.iter().map(|t| clean(t, 60)).filter(|t| !t.is_empty()).map(Arc::from);
        tool.tags = self.options.tags.iter().cloned().chain(own).collect();
        let id = found.at.text("operationId").unwrap_or_default();
        tool.search_hints = format!("{fallback} {id}").trim_end().into();
        if found.at.flag("deprecated") {
            tool.deprecated = Some(Deprecation {
                reason: Arc::from("deprecated by its OpenAPI document"),
                replacement: None,
            });
        }
    }
}

fn own_address(found: &Found<'_>) -> Option<Address> {
    server::of(found.at).or_else(|| server::of(found.item))
}

fn upper(method: &str) -> &'static str {
    match method {
        "get" => "GET",
        "put" => "PUT",
        "post" => "POST",
        "delete" => "DELETE",
        "options" => "OPTIONS",
        "head" => "HEAD",
        "patch" => "PATCH",
        _ => "TRACE",
    }
}

/// Names all operations: their ids, made plain; where an id is missing or repeated, method and path besides.
/// The first of several keeps the id, and only an edit of the document changes a name.
fn name_all(found: &mut [Found<'_>]) {
    let mut uses: HashMap<String, usize> = HashMap::new();
    for f in found.iter() {
        *uses.entry(f.at.text("operationId").map(operation_name).unwrap_or_default()).or_default() += 1;
    }
    let mut taken: HashSet<String> =
        uses.iter().filter(|(name, n)| **n == 1 && !name.is_empty()).map(|(name, _)| name.clone()).collect();
    for f in found.iter_mut() {
        let own = f.at.text("operationId").map(operation_name).unwrap_or_default();
        let derived = derived_name(f.method, f.path);
        f.name = if own.is_empty() {
            unique(&derived, &mut taken)
        } else if uses.get(&own) == Some(&1) || taken.insert(own.clone()) {
            own
        } else {
            unique(&operation_name(&format!("{own}_{derived}")), &mut taken)
        };
    }
}

/// What a method promises (RFC 9110 §9.2). POST and PATCH promise nothing, so nothing is said of them.
fn annotations(method: &str) -> ToolAnnotations {
    let base = ToolAnnotations { open_world: Some(true), ..ToolAnnotations::default() };
    match method {
        "GET" | "HEAD" | "OPTIONS" | "TRACE" => ToolAnnotations {
            read_only: Some(true),
            destructive: Some(false),
            idempotent: Some(true),
            ..base
        },
        "PUT" => ToolAnnotations { read_only: Some(false), idempotent: Some(true), ..base },
        "DELETE" => ToolAnnotations {
            read_only: Some(false),
            destructive: Some(true),
            idempotent: Some(true),
            ..base
        },
        _ => ToolAnnotations { read_only: Some(false), idempotent: Some(false), ..base },
    }
}

/// The media types of the successful answers as an `Accept` header, JSON first; at most four.
fn accept(documents: &Documents, operation: At<'_>) -> Option<Arc<str>> {
    let mut kinds: Vec<&str> = Vec::new();
    if documents.version == Version::Swagger2 {
        let holder = if operation.get("produces").is_some() { operation } else { documents.root() };
        kinds.extend(holder.items("produces").filter_map(|v| v.value.as_str()));
    } else {
        for (status, response) in operation.members("responses") {
            if status.starts_with('2') || status == "default" {
                let Ok((response, _)) = documents.resolve(response) else { continue };
                kinds.extend(response.members("content").map(|(kind, _)| kind));
            }
        }
    }
    let plain =
        |k: &&str| k.contains('/') && k.len() <= 100 && k.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    let mut seen = HashSet::new();
    kinds.retain(|k| plain(k) && seen.insert(*k));
    kinds.sort_by_key(|k| usize::from(!super::body::is_json(k)));
    kinds.truncate(4);
    (!kinds.is_empty()).then(|| Arc::from(kinds.join(", ")))
}
