//! `docent import openapi FILE`: an API description as a pack of tools, or what it would become.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::init::{self, name_of};
use super::{Context, Failure, failure};
use crate::catalog::CatalogBuilder;
use crate::diagnostic::Diagnostics;
use crate::id::UpstreamId;
use crate::json;
use crate::limits::OPENAPI_BYTES_MAX;
use crate::upstream::openapi::{self, Options};

/// Makes a pack of tools from a description.
#[derive(Debug, Args)]
pub(super) struct Import {
    #[command(subcommand)]
    command: ImportCommand,
}

#[derive(Debug, Subcommand)]
enum ImportCommand {
    Openapi(OpenApi),
}

/// Makes every operation of an OpenAPI or Swagger document a tool: writes scripts/NAME/.
#[derive(Debug, Args)]
struct OpenApi {
    /// The document, JSON or YAML
    file: PathBuf,
    /// The pack's name [default: made from the file's]
    #[arg(long, value_parser = parse_name)]
    name: Option<UpstreamId>,
    /// Write nothing, only tell
    #[arg(long)]
    dry_run: bool,
    /// Print `{operations, tools, skipped}`
    #[arg(long)]
    json: bool,
}

fn parse_name(text: &str) -> Result<UpstreamId, String> {
    UpstreamId::parse(text).map_err(|e| e.to_string())
}

impl Import {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let ImportCommand::Openapi(openapi) = self.command;
        openapi.run(context)
    }
}

impl OpenApi {
    fn run(self, context: &mut Context) -> Result<(), Failure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let stem = self.file.file_stem().map_or_else(|| "api".into(), |s| s.to_string_lossy());
                UpstreamId::parse(&name_of(&stem)).map_err(Failure::failed)?
            }
        };
        let import = self.read(name.clone())?;
        for diagnostic in &import.diagnostics.0 {
            failure::say(diagnostic);
        }
        if !self.dry_run {
            self.write(context, &name, import.base_url.is_some())?;
        }
        self.tell(context, &import)
    }

    fn read(&self, name: UpstreamId) -> Result<openapi::Import, Failure> {
        let shown = self.file.display();
        let document = json::read_capped(&self.file, OPENAPI_BYTES_MAX)
            .map_err(|e| Failure::failed(format_args!("{shown} cannot be read: {e}")))?;
        let folder = self.file.parent().unwrap_or(Path::new("")).to_owned();
        let loader =
            |path: &str| json::read_capped(&folder.join(path), OPENAPI_BYTES_MAX).map_err(|e| e.to_string());
        openapi::import(&document, &shown.to_string(), &loader, &Options::new(name))
            .map_err(|diagnostic| Failure::failed(format_args!("the document cannot be used\n{diagnostic}")))
    }

    fn tell(&self, context: &mut Context, import: &openapi::Import) -> Result<(), Failure> {
        let mut builder = CatalogBuilder::new(Vec::new());
        import.tools.iter().for_each(|(tool, _)| builder.push(tool.clone()));
        let catalog = builder.build(&mut Diagnostics::default());
        let tools: Vec<Value> = import
            .tools
            .iter()
            .map(|(tool, operation)| {
                let name = catalog.lookup(tool.id.as_str()).map(|(_, t)| t.wire_name.to_string());
                let operation = format!("{} {}", operation.method(), operation.path_template());
                json!({ "id": tool.id, "name": name, "operation": operation })
            })
            .collect();
        let skipped: Vec<Value> =
            import.skipped.iter().map(|s| json!({ "operation": s.operation, "reason": s.reason })).collect();
        let operations = tools.len() + skipped.len();
        if self.json {
            return context
                .out
                .json(&json!({ "operations": operations, "tools": tools, "skipped": skipped }));
        }
        for (tool, operation) in &import.tools {
            let (method, path) = (operation.method(), operation.path_template());
            context.out.line(format_args!("{}  {method} {path}", tool.id))?;
        }
        for skipped in &import.skipped {
            context.out.line(format_args!("skipped {}: {}", skipped.operation, skipped.reason))?;
        }
        context.out.line(format_args!(
            "{operations} operation{}: {} tool{}, {} skipped",
            if operations == 1 { "" } else { "s" },
            tools.len(),
            if tools.len() == 1 { "" } else { "s" },
            skipped.len()
        ))
    }

    /// Writes the pack; a folder that is there already is left alone.
    fn write(&self, context: &Context, name: &UpstreamId, has_address: bool) -> Result<(), Failure> {
        let folder = context.home.join("scripts").join(name.as_str());
        if folder.exists() {
            return Err(Failure::failed(format_args!(
                "{} is there already: give another `--name`, or remove it",
                folder.display()
            )));
        }
        let pack = init::openapi(&self.file, name.as_str().to_owned()).map_err(Failure::Failed)?;
        pack.write(&context.home)?;
        failure::say(format_args!(
            "scripts/{name}/ is written. Next:\n  name it in docent.toml: [upstreams] enabled = [\"{name}\", …]\n  allow it in policies/, e.g. p.allow().upstream(\"{name}\")"
        ));
        if !has_address {
            failure::say(format_args!(
                "  set `base_url` in scripts/{name}/upstream.toml: the document names no address"
            ));
        }
        Ok(())
    }
}
