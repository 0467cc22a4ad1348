//! Kind `catalog`: definitions from a file of JSON lines, with nothing behind them. They are listed and
//! searched like any other tool; a call answers that the tool is unavailable.

use std::borrow::{Borrow, Cow};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::bare::discovered;
use super::config::{CatalogSource, UpstreamConfig};
use super::{
    Discovered, Discovery, ErrorSource, Invocation, Retry, Upstream, UpstreamError, UpstreamState,
    UpstreamStatus, text,
};
use crate::call::UpstreamReply;
use crate::catalog::{Availability, Tool, ToolAnnotations};
use crate::diagnostic::Diagnostic;
use crate::id::{ToolId, UpstreamId};
use crate::json::{self, Object};
use crate::limits;
use crate::schema::SchemaText;

/// Mistakes reported of one file; more would only flood the report.
const PROBLEMS_MAX: usize = 20;

/// A file of definitions.
#[derive(Debug)]
pub(super) struct CatalogUpstream {
    config: UpstreamConfig,
    source: CatalogSource,
    tools: Mutex<usize>,
}

/// One line of the file (`catalogs/README.md`).
#[derive(Deserialize)]
struct Record {
    id: String,
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    category: String,
    #[serde(default)]
    tags: Vec<String>,
    upstream: String,
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    annotations: Hints,
    #[serde(default)]
    input_schema: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Hints {
    title: Option<String>,
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

/// The members of a record as they stand: only those that a filter names become values.
#[derive(Deserialize)]
#[serde(transparent)]
struct Members<'a>(#[serde(borrow)] HashMap<Name<'a>, &'a RawValue>);

#[derive(Deserialize, PartialEq, Eq, Hash)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Borrow<str> for Name<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Members<'_> {
    fn fit(&self, filter: &Object) -> bool {
        filter.iter().all(|(name, wanted)| {
            let found = self.0.get(name.as_str());
            found.is_some_and(|raw| {
                json::parse(raw.get().as_bytes(), limits::TOOL_DEFINITION_BYTES_MAX)
                    .is_ok_and(|v| v == *wanted)
            })
        })
    }
}

/// One copy of each text that many tools share.
#[derive(Default)]
struct Shared(HashSet<Arc<str>>);

impl Shared {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(found) = self.0.get(text) {
            return Arc::clone(found);
        }
        let new: Arc<str> = Arc::from(text);
        self.0.insert(Arc::clone(&new));
        new
    }
}

impl CatalogUpstream {
    pub(super) fn new(config: &UpstreamConfig, source: &CatalogSource) -> Self {
        Self { config: config.clone(), source: source.clone(), tools: Mutex::new(0) }
    }
}

/// Reads the file. It takes a second for the largest ones: not for an async thread.
fn load(config: &UpstreamConfig, source: &CatalogSource) -> Result<Discovery, UpstreamError> {
    let packed = json::read_capped(&source.file, limits::CATALOG_BYTES_MAX)
        .map_err(|e| UpstreamError::internal("the catalog's file cannot be read").detail(&e))?;
    let reader: Box<dyn Read + '_> = if packed.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::read::MultiGzDecoder::new(packed.as_slice()))
    } else {
        Box::new(packed.as_slice())
    };
    let cap = u64::try_from(limits::CATALOG_BYTES_MAX).unwrap_or(u64::MAX);
    let mut lines = BufReader::with_capacity(256 * 1024, reader.take(cap));
    let mut load = Load {
        config,
        filter: &source.filter,
        shared: Shared::default(),
        reason: Arc::from("it is a definition only: this catalog has nothing behind it"),
        found: Discovery { complete: true, ..Discovery::default() },
    };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = lines.read_until(b'\n', &mut line);
        match read {
            Ok(0) => break,
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => load.line(number, &line),
            Err(e) => {
                load.problem(number, format!("the file breaks off: {e}"));
                break;
            }
        }
        if load.found.tools.len() >= limits::TOOLS_PER_UPSTREAM_MAX {
            load.problem(number, format!("more than {} tools", limits::TOOLS_PER_UPSTREAM_MAX));
            break;
        }
    }
    Ok(load.found)
}
struct Load<'a> {
    config: &'a UpstreamConfig,
    filter: &'a Object,
    shared: Shared,
    reason: Arc<str>,
    found: Discovery,
}

impl Load<'_> {
    fn problem(&mut self, line: usize, message: String) {
        self.found.complete = false;
        if self.found.problems.0.len() < PROBLEMS_MAX {
            let mut problem = Diagnostic::warning("bad-record", &*self.config.file.name, message)
                .help("the record was skipped; the rest of the catalog stands");
            problem.message = format!("catalog line {line}: {}", problem.message);
            self.found.problems.push(problem);
        }
    }

    fn line(&mut self, number: usize, line: &[u8]) {
        if !self.filter.is_empty() {
            match json::parse_as::<Members<'_>>(line, limits::TOOL_DEFINITION_BYTES_MAX) {
                Ok(record) if !record.fit(self.filter) => return,
                Ok(_) => {}
                Err(e) => return self.problem(number, e.to_string()),
            }
        }
        let record: Record = match json::parse_as(line, limits::TOOL_DEFINITION_BYTES_MAX) {
            Ok(record) => record,
            Err(e) => return self.problem(number, e.to_string()),
        };
        match self.tool(record) {
            Ok(tool) => self.found.tools.extend(tool),
            Err(why) => self.problem(number, why),
        }
    }

    /// `None` for one that an override hides.
    fn tool(&mut self, record: Record) -> Result<Option<Discovered>, String> {
        let id = ToolId::parse(&record.id).map_err(|e| e.to_string())?;
        let upstream = UpstreamId::parse(&record.upstream).map_err(|e| e.to_string())?;
        let schema = record.input_schema.as_deref().map(SchemaText::of_raw);
        let schema = schema.filter(|s| s.as_str().starts_with('{')).unwrap_or_else(SchemaText::empty_object);
        let mut tool = Tool::new(id, upstream, text::plain(&record.name), schema);
        tool.title = record.title.map(|t| Arc::from(text::plain(&t)));
        tool.description = Arc::from(text::plain(&record.description));
        tool.category = self.shared.text(&text::plain(&record.category));
        tool.tags = record.tags.iter().map(|t| self.shared.text(&text::plain(t))).collect();
        let hints = record.annotations;
        tool.annotations = ToolAnnotations {
            title: hints.title.map(|t| Arc::from(text::plain(&t))),
            read_only: hints.read_only_hint,
            destructive: hints.destructive_hint,
            idempotent: hints.idempotent_hint,
            open_world: hints.open_world_hint,
        };
        let words = [record.method, record.path, record.server].into_iter().flatten();
        tool.search_hints = Arc::from(text::plain(&words.collect::<Vec<_>>().join(" ")));
        tool.availability = Availability::Unavailable(Arc::clone(&self.reason));
        let own = self.config.overrides.get(&record.id);
        let shown = !own.is_some_and(|o| o.hide);
        Ok(shown.then(|| discovered(self.config, tool, own)))
    }
}

impl Upstream for CatalogUpstream {
    fn id(&self) -> &UpstreamId {
        &self.config.id
    }

    fn discover(&self) -> BoxFuture<'_, Result<Discovery, UpstreamError>> {
        Box::pin(async {
            let (config, source) = (self.config.clone(), self.source.clone());
            let loading = tokio::task::spawn_blocking(move || load(&config, &source)).await;
            let found = loading
                .map_err(|e| UpstreamError::internal("the catalog could not be read").detail(&e))??;
            *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = found.tools.len();
            Ok(found)
        })
    }

    fn invoke<'a>(&'a self, call: Invocation<'a>) -> BoxFuture<'a, Result<UpstreamReply, UpstreamError>> {
        let message = format!("the tool `{}` is a definition only: nothing runs it here", call.name);
        let error = UpstreamError::new(ErrorSource::Unsupported, Retry::Never, message);
        Box::pin(std::future::ready(Err(error)))
    }

    fn status(&self) -> UpstreamStatus {
        UpstreamStatus {
            id: self.config.id.clone(),
            kind: self.config.kind.word(),
            state: UpstreamState::Up,
            complete: true,
            tools: *self.tools.lock().unwrap_or_else(PoisonError::into_inner),
            note: "definitions only".to_owned(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
