//! `docent usage`: what searches and the runs after them have taught, to look at, to carry elsewhere, to forget.

use clap::Args;
use serde_json::{Value, json};

use super::{Context, Failure, open};
use crate::store::Store;
use crate::store::usage::UsageRow;

/// Shows what successful runs after searches have taught the ranking.
#[derive(Debug, Args)]
pub(super) struct Usage {
    /// Forget all of it
    #[arg(long, conflicts_with = "json")]
    forget: bool,
    /// Print `{usage: [{scope, words, tool, at_ms, weight}]}`
    #[arg(long)]
    json: bool,
}

impl Usage {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let data = context.env.data_dir(context.data.as_deref(), &context.home).map_err(Failure::failed)?;
        let store = Store::open(&data).map_err(Failure::failed)?;
        let runtime = open::runtime()?;
        if self.forget {
            let forgotten = runtime.block_on(store.forget_usage()).map_err(Failure::failed)?;
            return context.out.line(format_args!("{forgotten} forgotten"));
        }
        let rows = runtime.block_on(store.usage()).map_err(Failure::failed)?;
        if self.json {
            let rows: Vec<Value> = rows.iter().map(record).collect();
            return context.out.json(&json!({ "usage": rows }));
        }
        let width = rows.iter().map(|row| row.tool.len()).max().unwrap_or(0).min(48);
        rows.iter().try_for_each(|row| context.out.line(format_args!("{:width$}  {}", row.tool, row.words)))
    }
}

fn record(row: &UsageRow) -> Value {
    json!({
        "scope": row.scope,
        "words": row.words.split(' ').collect::<Vec<_>>(),
        "tool": row.tool,
        "at_ms": row.at_ms,
        "weight": row.weight,
    })
}
