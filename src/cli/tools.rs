//! `docent tools`: what a caller sees.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::open::{self, Reach};
use super::test::cost::{Cost, costs};
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
    /// Tell what results save, measured on the recorded cases of the packs
    #[arg(long)]
    cost: bool,
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
        let costs = if self.cost { costs(&opened) } else { BTreeMap::new() };
        if self.json {
            let mode = opened.gateway().mode(&request).as_str();
            let rows: Vec<Value> =
                tools.iter().map(|t| row(t, costs.get(t.id.as_str()), self.cost)).collect();
            return context.out.json(&json!({ "total": rows.len(), "mode": mode, "tools": rows }));
        }
        let width = tools.iter().map(|t| t.id.as_str().len()).max().unwrap_or(0).min(48);
        if self.cost {
            context.out.line(format_args!("{:width$}  cases  tokens before  after  saved", "tool"))?;
        }
        for tool in tools {
            if self.cost {
                let cost = measured(costs.get(tool.id.as_str()));
                context.out.line(format_args!("{:width$}  {cost}", tool.id.as_str()))?;
                continue;
            }
            context.out.line(format_args!(
                "{:width$}  {}",
                tool.id.as_str(),
                first_line(&tool.description)
            ))?;
        }
        Ok(())
    }
}

/// One row of what was measured.
fn measured(cost: Option<&Cost>) -> String {
    match cost {
        None => "    -  no case ends in a result".to_owned(),
        Some(c) => {
            let saved = format!("{}%", c.saved_percent());
            format!("{:5}  {:13}  {:5}  {saved:>5}", c.cases, c.tokens_in, c.tokens_out)
        }
    }
}

fn row(tool: &Tool, cost: Option<&Cost>, with_cost: bool) -> Value {
    let mut row = json!({
        "id": tool.id,
        "name": tool.wire_name,
        "upstream": tool.upstream,
        "category": tool.category,
        "description_bytes": tool.description.len(),
        "schema_bytes": tool.wire_schema.len(),
    });
    if let (true, Some(members)) = (with_cost, row.as_object_mut()) {
        members.insert("cost".to_owned(), json!(cost));
    }
    row
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
