//! Kind `command`: a tool is one run of a local program, its output the result.
//!
//! An argument vector and never a shell, a cleared environment, a process group that ends with the call,
//! output bounded while it is read.

mod files;
mod run;
mod template;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Semaphore;

pub(super) use template::Template;

use super::bare::by_hand;
use super::config::{CommandDefaults, CommandOutput, CommandTool, ToolConfig, UpstreamConfig};
use super::process::{Group, find};
use super::{
    Discovery, ErrorSource, Invocation, Retry, Upstream, UpstreamError, UpstreamState, UpstreamStatus,
};
use crate::call::{ReplyBody, UpstreamReply, UpstreamRequest};
use crate::catalog::Availability;
use crate::id::UpstreamId;
use crate::json::Object;
use crate::schema::SchemaText;
use run::{Ended, Limits};
use template::{OUTPUT_DIR, value_of};

/// Local programs.
#[derive(Debug)]
pub(super) struct Commands {
    config: UpstreamConfig,
    defaults: CommandDefaults,
    tools: BTreeMap<Arc<str>, Program>,
    slots: Semaphore,
}

/// One tool, ready to run.
#[derive(Debug)]
struct Program {
    tool: CommandTool,
    /// Defaults of the schema's properties.
    defaults: Object,
}

impl Commands {
    pub(super) fn new(config: &UpstreamConfig, defaults: &CommandDefaults) -> Self {
        let program = |t: &ToolConfig| {
            let defaults = t.input_schema.as_ref().map(schema_defaults).unwrap_or_default();
            Some((Arc::clone(&t.name), Program { tool: t.command.clone()?, defaults }))
        };
        Self {
            tools: config.tools.iter().filter_map(program).collect(),
            slots: Semaphore::new(config.concurrency),
            config: config.clone(),
            defaults: defaults.clone(),
        }
    }

    fn folder(&self) -> &Path {
        self.defaults.cwd.as_deref().unwrap_or(&self.config.dir)
    }

    /// Why a tool cannot run here, if it cannot.
    fn missing(&self, tool: &ToolConfig) -> Option<Arc<str>> {
        let program = tool.command.as_ref()?.run.program()?;
        match find(program, &self.defaults, &self.config.dir) {
            Some(_) => None,
            None => Some(Arc::from(format!("the program `{program}` is not installed on this server"))),
        }
    }

    async fn call(&self, call: Invocation<'_>) -> Result<UpstreamReply, UpstreamError> {
        let UpstreamRequest::Arguments(arguments) = &call.request else {
            return Err(UpstreamError::internal("a program takes arguments, not an HTTP request"));
        };
        let program = self.tools.get(call.name).ok_or_else(|| {
            let message = format!("upstream `{}` has no tool `{}`", self.config.id, call.name);
            UpstreamError::new(ErrorSource::Unsupported, Retry::Never, message)
        })?;
        let output = match program.tool.output {
            CommandOutput::Files => Some(files::Folder::new()?),
            CommandOutput::Text | CommandOutput::Json => None,
        };
        let argv = self.vector(program, arguments, output.as_ref(), call.lent)?;
        let input = program.tool.stdin.as_ref().and_then(|n| value_of(arguments, &program.defaults, n));
        let input = input.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
        let slot = tokio::select! {
            slot = self.slots.acquire() => slot,
            () = call.cancel.cancelled() => return Err(UpstreamError::cancelled(false, call.read_only)),
            () = tokio::time::sleep_until(call.deadline.into()) => {
                return Err(UpstreamError::timeout(self.config.id.as_str(), false, call.read_only));
            }
        };
        let group = Group::start(&argv, &self.defaults, self.folder(), input.is_some()).map_err(|e| {
            let name = argv.first().map_or("", String::as_str);
            let message = format!("the program `{name}` cannot be started: {}", e.kind());
            UpstreamError::new(ErrorSource::Upstream, Retry::Never, message).detail(&e)
        })?;
        let limits = Limits {
            upstream: self.config.id.as_str(),
            deadline: call.deadline,
            cancel: &call.cancel,
            read_only: call.read_only,
            bytes: self.config.read_bytes(),
        };
        let ended = run::run(group, input, &limits).await?;
        drop(slot);
        self.reply(program, &argv, ended, output)
    }

    /// The argument vector, the program found, paths checked.
    fn vector(
        &self,
        program: &Program,
        arguments: &Object,
        output: Option<&files::Folder>,
        lent: &[PathBuf],
    ) -> Result<Vec<String>, UpstreamError> {
        let refuse = |name: &str, why: &str| {
            let message = format!("the argument `{name}` cannot be used: {why}");
            UpstreamError::new(ErrorSource::Caller, Retry::Never, message)
        };
        for name in &program.tool.paths {
            let value = value_of(arguments, &program.defaults, name);
            let items = value
                .and_then(Value::as_array)
                .map_or_else(|| value.into_iter().collect::<Vec<&Value>>(), |items| items.iter().collect());
            for path in items
                .into_iter()
                .filter_map(Value::as_str)
                .filter(|p| !lent.iter().any(|l| l == Path::new(p)))
            {
                stays_below(self.folder(), path).map_err(|why| refuse(name, why))?;
            }
        }
        let folder = output.map(|o| Value::from(o.path().to_string_lossy().into_owned()));
        let value_of = |n: &str| {
            if n == OUTPUT_DIR { folder.as_ref() } else { value_of(arguments, &program.defaults, n) }
        };
        let mut argv = program.tool.run.expand(&value_of).map_err(|(name, why)| refuse(&name, &why))?;
        if let Some(first) = argv.first_mut() {
            let found = find(first, &self.defaults, &self.config.dir).ok_or_else(|| {
                let message = format!("the program `{first}` is not installed on this server");
                UpstreamError::new(ErrorSource::Upstream, Retry::Never, message)
            })?;
            *first = found.to_string_lossy().into_owned();
        }
        Ok(argv)
    }

    fn reply(
        &self,
        program: &Program,
        argv: &[String],
        ended: Ended,
        output: Option<files::Folder>,
    ) -> Result<UpstreamReply, UpstreamError> {
        let mut warnings = Vec::new();
        let fine = ended.code.is_some_and(|c| c == 0 || program.tool.ok_codes.contains(&c));
        if !fine && !ended.cut {
            return Ok(self.failure(argv, &ended));
        }
        if ended.cut {
            if program.tool.output != CommandOutput::Text {
                return Err(UpstreamError::too_large(self.config.id.as_str(), self.config.read_bytes()));
            }
            warnings.push(format!(
                "the output was cut at {} bytes and the program ended",
                self.config.read_bytes()
            ));
        }
        let name = argv.first().map_or("", |p| p.rsplit('/').next().unwrap_or(p));
        if let Some(code @ 1..) = ended.code {
            warnings.push(format!("`{name}` ended with exit code {code}"));
        }
        let said = ended.stderr.trim();
        if !said.is_empty() {
            warnings.push(format!("`{name}` said: {said}"));
        }
        let code = ended.code.unwrap_or(0).to_string();
        let headers = vec![("exit-code".to_owned(), code)];
        let body = match (output, program.tool.output) {
            (Some(folder), _) => folder.collect(self.config.read_bytes(), &ended.stdout, &mut warnings)?,
            (None, CommandOutput::Json) => {
                ReplyBody::Bytes { media_type: "application/json".to_owned(), bytes: ended.stdout.into() }
            }
            (None, _) if ended.stdout.is_empty() => ReplyBody::Empty,
            (None, _) => ReplyBody::Bytes { media_type: "text/plain".to_owned(), bytes: ended.stdout.into() },
        };
        Ok(UpstreamReply { status: 200, headers, body, warnings })
    }

    /// A run that failed: the program's own words, without the secrets it was given.
    fn failure(&self, argv: &[String], ended: &Ended) -> UpstreamReply {
        let program = argv.first().map_or("", |p| p.rsplit('/').next().unwrap_or(p));
        let mut text = match ended.code {
            Some(code) => format!("`{program}` ended with exit code {code}"),
            None => format!("`{program}` was ended by a signal"),
        };
        if !ended.stderr.is_empty() {
            text.push_str(": ");
            text.push_str(&ended.stderr);
        }
        for secret in self.config.echoes() {
            if !secret.expose().is_empty() {
                text = text.replace(secret.expose(), "(secret)");
            }
        }
        let code = ended.code.map_or_else(|| "signal".to_owned(), |c| c.to_string());
        UpstreamReply {
            // 422 stands for a program that refused, 500 for one that broke.
            status: if ended.code.is_some() { 422 } else { 500 },
            headers: vec![("exit-code".to_owned(), code)],
            body: ReplyBody::Bytes { media_type: "text/plain".to_owned(), bytes: text.into() },
            warnings: Vec::new(),
        }
    }
}

/// `default` of each property of a schema.
fn schema_defaults(schema: &SchemaText) -> Object {
    let schema = schema.value();
    let properties = schema.get("properties").and_then(Value::as_object);
    let with_default = |(name, p): (&String, &Value)| Some((name.clone(), p.get("default")?.clone()));
    properties.map(|p| p.iter().filter_map(with_default).collect()).unwrap_or_default()
}

/// Whether a path stays below a folder, symbolic links followed as far as the path exists.
fn stays_below(folder: &Path, path: &str) -> Result<(), &'static str> {
    let relative = Path::new(path);
    if relative.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err("it must be a path below the working folder, without `..`");
    }
    let root = folder.canonicalize().map_err(|_ignored| "the working folder is gone")?;
    let mut existing: PathBuf = root.join(relative);
    while !existing.as_os_str().is_empty() {
        if let Ok(real) = existing.canonicalize() {
            return if real.starts_with(&root) { Ok(()) } else { Err("it leads out of the working folder") };
        }
        if existing.symlink_metadata().is_ok() {
            return Err("it is a link that leads nowhere");
        }
        existing.pop();
    }
    Ok(())
}

impl Upstream for Commands {
    fn id(&self) -> &UpstreamId {
        &self.config.id
    }

    fn discover(&self) -> BoxFuture<'_, Result<Discovery, UpstreamError>> {
        let tools = self.config.tools.iter().filter_map(|t| {
            let mut found = by_hand(&self.config, t)?;
            if let Some(reason) = self.missing(t) {
                found.tool.availability = Availability::Unavailable(reason);
            }
            Some(found)
        });
        let found = Discovery { tools: tools.collect(), complete: true, ..Discovery::default() };
        Box::pin(std::future::ready(Ok(found)))
    }

    fn invoke<'a>(&'a self, call: Invocation<'a>) -> BoxFuture<'a, Result<UpstreamReply, UpstreamError>> {
        Box::pin(self.call(call))
    }

    fn status(&self) -> UpstreamStatus {
        let missing: Vec<_> = self.config.tools.iter().filter_map(|t| self.missing(t)).collect();
        let all = !missing.is_empty() && missing.len() == self.config.tools.len();
        UpstreamStatus {
            id: self.config.id.clone(),
            kind: self.config.kind.word(),
            state: if all { UpstreamState::Down } else { UpstreamState::Up },
            complete: true,
            tools: self.config.tools.len(),
            note: missing.first().map(ToString::to_string).unwrap_or_default(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
