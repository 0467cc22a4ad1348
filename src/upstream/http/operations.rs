//! Kind `openapi`: the document of a pack becomes tools, and their arguments become requests.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path};
use std::sync::Arc;

use crate::call::HttpRequest;
use crate::diagnostic::{Diagnostic, Severity};
use crate::json::{self, Object};
use crate::limits;
use crate::upstream::bare::discovered;
use crate::upstream::config::{AuthConfig, HttpTarget, OpenApiSource, OperationFilter, UpstreamConfig};
use crate::upstream::openapi::{self, CredentialPlace, Filter, Location, Operation};
use crate::upstream::{Discovery, ErrorSource, Retry, UpstreamError};

/// A document as tools, ready for calls.
#[derive(Debug)]
pub(super) struct Operations {
    by_name: HashMap<Arc<str>, Operation>,
    pub(super) discovery: Discovery,
    /// Where requests go; `None` where neither the pack nor the document says.
    pub(super) target: Option<HttpTarget>,
}

impl Operations {
    /// Reads the document. It takes seconds for the largest ones: not for an async thread.
    pub(super) fn load(config: &UpstreamConfig, source: &OpenApiSource) -> Result<Self, UpstreamError> {
        let unusable = |why: String| {
            let message = format!("the OpenAPI document of `{}` cannot be used", config.id);
            UpstreamError::internal(message).detail(&why)
        };
        let bytes = json::read_capped(&source.spec, limits::OPENAPI_BYTES_MAX)
            .map_err(|e| unusable(e.to_string()))?;
        let folder = source.spec.parent().unwrap_or(&config.dir).to_path_buf();
        let loader = move |name: &str| sibling(&folder, name);
        let name = document_name(config, &source.spec);
        let options = options(config, source).map_err(unusable)?;
        let import = openapi::import(&bytes, &name, &loader, &options)
            .map_err(|d| UpstreamError::internal(d.message.clone()).detail(&d))?;
        let mut found = Discovery { complete: true, problems: import.diagnostics, ..Discovery::default() };
        // What is broken in a document costs an operation, never the home.
        for problem in &mut found.problems.0 {
            problem.severity = problem.severity.max(Severity::Warning);
            if problem.file.is_empty() {
                problem.file.push_str(&name);
            }
        }
        for skipped in import.skipped.iter().filter(|s| !s.filtered) {
            let message = format!("{} is no tool: {}", skipped.operation, skipped.reason);
            found.problems.push(
                Diagnostic::warning("skipped-operation", &*name, message)
                    .help("mend the document, or exclude the operation"),
            );
        }
        let mut by_name = HashMap::with_capacity(import.tools.len());
        let mut used = HashSet::new();
        for (tool, operation) in import.tools {
            let names = [tool.id.as_str(), &*tool.name];
            used.extend(names.iter().filter_map(|n| Some(config.overrides.get_key_value(*n)?.0.as_str())));
            let own = config.own(&tool.id, &tool.name);
            if own.is_some_and(|o| o.hide) {
                continue;
            }
            by_name.insert(Arc::clone(&tool.name), operation);
            found.tools.push(discovered(config, tool, own));
        }
        config.unused_overrides(&used, &mut found.problems);
        let target = target(source, import.base_url.as_deref(), &mut found, &name);
        Ok(Self { by_name, discovery: found, target })
    }

    /// The request of one operation.
    pub(super) fn request(
        &self,
        name: &str,
        arguments: &Object,
    ) -> Option<Result<HttpRequest, UpstreamError>> {
        let operation = self.by_name.get(name)?;
        let made = operation.request(arguments);
        Some(made.map_err(|e| UpstreamError::new(ErrorSource::Caller, Retry::Never, e.message)))
    }
}

fn document_name(config: &UpstreamConfig, spec: &Path) -> String {
    let file = spec.strip_prefix(&config.dir).unwrap_or(spec).to_string_lossy();
    format!("{}/{file}", config.file.name.rsplit_once('/').map_or("", |(folder, _)| folder))
}

/// A document beside the main one, below its folder.
fn sibling(folder: &Path, name: &str) -> Result<Vec<u8>, String> {
    let path = Path::new(name);
    if path.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err("it leaves the document's folder".to_owned());
    }
    json::read_capped(&folder.join(path), limits::OPENAPI_BYTES_MAX).map_err(|e| e.to_string())
}

fn options(config: &UpstreamConfig, source: &OpenApiSource) -> Result<openapi::Options, String> {
    let filter = |f: &OperationFilter| Filter::new(&f.tags, &f.methods, &f.paths, &f.operations);
    Ok(openapi::Options {
        base_url: source.base_url.as_ref().map(ToString::to_string),
        include: filter(&source.include)?,
        exclude: filter(&source.exclude)?,
        credentials: places(&config.auth, source),
        ..openapi::Options::new(config.id.clone())
    })
}

/// Where the pack's own values go: what stands there is no argument.
fn places(auth: &AuthConfig, source: &OpenApiSource) -> Vec<CredentialPlace> {
    let headers = auth.headers.iter().chain(&source.headers);
    let mut places: Vec<CredentialPlace> =
        headers.map(|(name, _)| CredentialPlace::new(Location::Header, name.as_str())).collect();
    places.extend(auth.query.iter().map(|(name, _)| CredentialPlace::new(Location::Query, name.as_str())));
    if auth.bearer.is_some() || auth.basic.is_some() || auth.oauth2.is_some() {
        places.push(CredentialPlace::new(Location::Header, "authorization"));
    }
    places
}

fn target(
    source: &OpenApiSource,
    base_url: Option<&str>,
    found: &mut Discovery,
    name: &str,
) -> Option<HttpTarget> {
    let base_url = source.base_url.clone().or_else(|| url::Url::parse(base_url?).ok());
    let usable = base_url.filter(|u| matches!(u.scheme(), "http" | "https") && u.host().is_some());
    let Some(base_url) = usable else {
        let reason: Arc<str> = Arc::from("nobody has said where the service is");
        for tool in &mut found.tools {
            tool.tool.availability = crate::catalog::Availability::Unavailable(Arc::clone(&reason));
        }
        found.problems.push(
            Diagnostic::warning("no-base-url", name, "the document names no server that can be used")
                .help("add `base_url = \"https://…\"` to upstream.toml"),
        );
        return None;
    };
    Some(HttpTarget {
        base_url,
        headers: source.headers.clone(),
        reply_headers: source.reply_headers.clone(),
    })
}
