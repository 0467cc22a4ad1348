//! `docent tools`: what a caller sees.

use clap::Args;
use serde_json::{Value, json};

use super::open::{self, Reach};
use super::{Context, Failure};
use crate::catalog::Tool;

/// Characters of a description shown to people.
const SHOWN_CHARS: usize = 88;

/// Lists the tools that a caller sees.
#[derive(Debug, Args)]
pub(super) struct Tools {
    /// The caller: a table of [callers]
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// Print `{tools, total, mode}`
    #[arg(long)]
    json: bool,
}

impl Tools {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let opened = open::open(context, Reach::Known)?;
        let request = opened.request(opened.caller(self.caller.as_deref())?);
        let snapshot = opened.snapshot();
        let roster = snapshot.policy.roster(&snapshot.catalog, &request.principal);
        let tools: Vec<&Tool> = roster.visible.iter().filter_map(|no| snapshot.catalog.get(no)).collect();
        if self.json {
            let mode = opened.gateway().mode(&request).as_str();
            let rows: Vec<Value> = tools.iter().map(|t| row(t)).collect();
            return context.out.json(&json!({ "total": rows.len(), "mode": mode, "tools": rows }));
        }
        let width = tools.iter().map(|t| t.id.as_str().len()).max().unwrap_or(0).min(48);
        for tool in tools {
            context.out.line(format_args!(
                "{:width$}  {}",
                tool.id.as_str(),
                first_line(&tool.description)
            ))?;
        }
        Ok(())
    }
}

fn row(tool: &Tool) -> Value {
    json!({
        "id": tool.id,
        "name": tool.wire_name,
        "upstream": tool.upstream,
        "category": tool.category,
        "description_bytes": tool.description.len(),
        "schema_bytes": tool.wire_schema.len(),
    })
}

/// The beginning of a description, for one line of a terminal.
pub(super) fn first_line(text: &str) -> String {
    let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default().trim();
    // Control characters of a foreign description must not reach the terminal.
    let mut shown: String = line.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect();
    if line.chars().count() > SHOWN_CHARS {
        shown.push('…');
    }
    shown
}
