//! `docent check`: loads everything and tells every mistake at once; budgets; how providers would take the tools.
//!
//! MCP servers are not contacted: the same home gives the same answer everywhere.

mod budgets;

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::json;

use super::{Context, Failure, open};
use crate::app::App;
use crate::catalog::Tool;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::id::Scope;
use crate::schema::lint::{Provider, lint};
use crate::snapshot::Snapshot;

/// Findings of one kind told per pack; an imported document can have thousands.
const FINDINGS_PER_PACK: usize = 5;

/// Loads everything and tells every mistake at once.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Warnings count as mistakes too
    #[arg(long)]
    strict: bool,
    /// Print `{ok, diagnostics}`
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let runtime = open::runtime()?;
        let opened = runtime.block_on(App::open(&context.home, open::options(context, None, None, false)));
        let mut summary = None;
        let mut diagnostics = match &opened {
            Err(broken) => broken.0.clone(),
            Ok(app) => {
                let mut found = app.diagnostics().clone();
                let snapshot = app.gateway().snapshot();
                budgets::check(app.gateway(), &mut found);
                odd_rules(&snapshot, &mut found);
                lint_tools(&snapshot, &mut found);
                summary = Some(summarise(&snapshot));
                found
            }
        };
        diagnostics.sort();
        let (errors, warnings) = (diagnostics.count(Severity::Error), diagnostics.count(Severity::Warning));
        let ok = errors == 0 && !(self.strict && warnings > 0);
        if self.json {
            context.out.json(&json!({ "ok": ok, "diagnostics": diagnostics }))?;
        } else {
            for diagnostic in &diagnostics.0 {
                context.out.line(diagnostic)?;
            }
            context.out.line(last_line(errors, warnings, summary.as_deref(), ok))?;
        }
        match (errors, ok) {
            (1.., _) => Err(Failure::BrokenTold),
            (0, false) => Err(Failure::Told),
            (0, true) => Ok(()),
        }
    }
}

fn plural(n: usize, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

fn last_line(errors: usize, warnings: usize, summary: Option<&str>, ok: bool) -> String {
    let mut counts = Vec::new();
    if errors > 0 {
        counts.push(plural(errors, "error", "errors"));
    }
    if warnings > 0 {
        counts.push(plural(warnings, "warning", "warnings"));
    }
    let word = match (ok, errors) {
        (true, _) => "fine",
        (false, 0) => "not fine",
        (false, _) => "broken",
    };
    let parts: Vec<&str> = summary.into_iter().chain(counts.iter().map(String::as_str)).collect();
    format!("{word}: {}", parts.join(", "))
}

/// What was loaded, in one line.
fn summarise(snapshot: &Snapshot) -> String {
    let statuses = snapshot.upstreams.statuses();
    let servers = statuses.iter().filter(|s| s.kind == "mcp").count();
    let tools = plural(snapshot.catalog.len(), "tool", "tools");
    let upstreams = plural(statuses.len(), "upstream", "upstreams");
    let (rules, functions) = snapshot.policy.size();
    let mut parts = vec![
        format!("{tools} of {upstreams}"),
        plural(rules + functions, "rule", "rules"),
        plural(snapshot.callers.names().count(), "caller", "callers"),
    ];
    if !snapshot.settings.agents.is_empty() {
        parts.push(plural(snapshot.settings.agents.len(), "agent", "agents"));
    }
    if servers > 0 {
        parts.push(format!("{} not asked for tools", plural(servers, "MCP server", "MCP servers")));
    }
    parts.join(", ")
}

/// Rules that cannot mean what they say. Nothing is said while tools are missing that they could be about.
fn odd_rules(snapshot: &Snapshot, diagnostics: &mut Diagnostics) {
    if snapshot.catalog.is_empty() || snapshot.upstreams.statuses().iter().any(|s| !s.complete) {
        return;
    }
    let callers = snapshot.callers.names().filter_map(|n| snapshot.callers.caller(n));
    let mut scopes: BTreeSet<Scope> = callers.flat_map(|c| c.scopes.clone()).collect();
    scopes.extend(snapshot.settings.scopes_supported.iter().filter_map(|s| Scope::parse(s).ok()));
    let scopes: Vec<Scope> = scopes.into_iter().collect();
    let catalogs = [&*snapshot.catalog, &snapshot.offers.subjects];
    snapshot.policy.lint(&catalogs, &scopes, diagnostics);
}

/// Lints every tool, placed at the tool's table where it has one. Many of one kind are told as a few and a
/// count.
fn lint_tools(snapshot: &Snapshot, diagnostics: &mut Diagnostics) {
    let max = snapshot.settings.budgets.schema_bytes_per_tool;
    let mut counts: BTreeMap<(&str, &'static str), usize> = BTreeMap::new();
    for tool in snapshot.catalog.tools() {
        for (code, message, help) in findings(tool, max) {
            let pack = snapshot.upstreams.config(tool.upstream.as_str()).map_or("", |c| c.id.as_str());
            let count = counts.entry((pack, code)).or_default();
            *count += 1;
            if *count <= FINDINGS_PER_PACK {
                let message = format!("`{}`: {message}", tool.id);
                diagnostics.push(placed(snapshot, tool, code, message).help(help));
            }
        }
    }
    for ((pack, code), count) in counts {
        if let Some(more) = count.checked_sub(FINDINGS_PER_PACK).filter(|n| *n > 0) {
            let message = format!("{} like that: {code}", plural(more, "more tool is", "more tools are"));
            let note = Diagnostic::warning(code, file_of(pack), message);
            diagnostics.push(Diagnostic { severity: Severity::Note, ..note });
        }
    }
}

/// Code, message and way out of everything that could be better in a tool.
fn findings(tool: &Tool, schema_bytes_max: usize) -> Vec<(&'static str, String, &'static str)> {
    let mut out: Vec<_> = lint(&tool.wire_name, &tool.description, &tool.wire_schema.value())
        .into_iter()
        .map(|f| (f.rule, format!("{} ({})", f.message, provider(f.provider)), f.help))
        .collect();
    if tool.description.trim().is_empty() {
        out.push((
            "no-description",
            "it has no description, and models and search choose tools by it".to_owned(),
            "give it one in `[override.\"tool.id\"]`",
        ));
    }
    let bytes = tool.wire_schema.len();
    if bytes > schema_bytes_max {
        out.push((
            "schema-bytes",
            format!(
                "its input schema has {bytes} bytes, `budgets.schema_bytes_per_tool` is {schema_bytes_max}"
            ),
            "write a smaller `input_schema` in `[override.\"tool.id\"]`, or raise the budget",
        ));
    }
    // The same rule of several providers is told once.
    out.sort_by_key(|(code, ..)| *code);
    out.dedup_by_key(|(code, ..)| *code);
    out
}

fn provider(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "Anthropic",
        Provider::OpenAi => "OpenAI",
        Provider::Gemini => "Gemini",
    }
}

/// The file of a pack; tools of a catalog name upstreams that are no packs, and share the folder.
fn file_of(pack: &str) -> String {
    if pack.is_empty() { "scripts".to_owned() } else { format!("scripts/{pack}/upstream.toml") }
}

/// A warning at the tool's table, or of its pack's file as a whole.
fn placed(snapshot: &Snapshot, tool: &Tool, code: &'static str, message: String) -> Diagnostic {
    let Some(config) = snapshot.upstreams.config(tool.upstream.as_str()) else {
        return Diagnostic::warning(code, file_of(""), message);
    };
    let warning = Diagnostic::warning(code, &*config.file.name, message);
    match config.tools.iter().find(|t| t.name == tool.name) {
        Some(own) => warning.at_offset(&config.file.text, own.offset),
        None => warning,
    }
}
