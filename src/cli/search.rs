//! `docent search QUERY` and `docent describe TOOL`: the meta-tools from the command line.

use clap::Args;
use serde_json::Value;

use super::open::{self, Opened, Reach};
use super::test::cost::costs;
use super::tools::first_line;
use super::{Context, Failure, call};
use crate::call::ToolOutcome;
use crate::json::Object;
use crate::snapshot::MetaTool;

/// Tools that a search waits for while the sentence model reads them: some seconds. Ten thousand would take minutes.
const MEANINGS_MAX: usize = 200;

/// Searches the tools that a caller sees.
#[derive(Debug, Args)]
pub(super) struct Search {
    /// What is needed, in words
    query: String,
    /// The caller: a table of [callers]
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// Only tools of this category
    #[arg(long)]
    category: Option<String>,
    /// Only tools of this upstream
    #[arg(long)]
    upstream: Option<String>,
    /// Tools at most
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    limit: u64,
    /// Tell each tool's signals, their weights and their sources
    #[arg(long)]
    explain: bool,
    /// Print the result of the search tool
    #[arg(long)]
    json: bool,
}

/// Shows everything about one tool.
#[derive(Debug, Args)]
pub(super) struct Describe {
    /// The tool's id or name
    tool: String,
    /// The caller: a table of [callers]
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// Print the result of the describe tool (the default, since it is data)
    #[arg(long)]
    json: bool,
}

impl Search {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let opened = open::open(context, Reach::Known)?;
        opened.meanings(MEANINGS_MAX);
        let mut arguments = Object::new();
        let given = [
            ("query", Some(Value::from(self.query))),
            ("limit", Some(Value::from(self.limit))),
            ("category", self.category.map(Value::from)),
            ("upstream", self.upstream.map(Value::from)),
            ("detail", self.explain.then(|| Value::from("explain"))),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                arguments.insert(name.to_owned(), value);
            }
        }
        let found = ask(&opened, self.caller.as_deref(), MetaTool::SearchTools, arguments)?;
        if self.json || self.explain {
            return context.out.json(&found);
        }
        let text =
            |tool: &Value, key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let tools = found.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
        let width = tools.iter().map(|t| text(t, "id").len()).max().unwrap_or(0).min(48);
        for tool in &tools {
            let description = first_line(&text(tool, "description"));
            context.out.line(format_args!("{:width$}  {description}", text(tool, "id")))?;
        }
        if tools.is_empty() { Err(Failure::Failed("nothing matches".to_owned())) } else { Ok(()) }
    }
}

impl Describe {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let opened = open::open(context, Reach::Known)?;
        let arguments = Object::from_iter([("tool".to_owned(), Value::from(self.tool))]);
        let mut found = ask(&opened, self.caller.as_deref(), MetaTool::DescribeTool, arguments)?;
        let id = found.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        // What the recorded cases say of it: replies and results in bytes and tokens.
        if let (Some(cost), Some(entry)) = (costs(&opened).get(&id), found.as_object_mut()) {
            entry.insert("measured".to_owned(), serde_json::json!(cost));
        }
        context.out.json(&found)
    }
}

/// Calls a meta-tool as a caller; its structured result.
fn ask(opened: &Opened, caller: Option<&str>, tool: MetaTool, arguments: Object) -> Result<Value, Failure> {
    let request = opened.request(opened.caller(caller)?);
    let name = tool.wire_name(&opened.gateway().snapshot().settings.name);
    let answer = call::make(opened, &request, &name, arguments);
    match call::settle(answer, &name)? {
        ToolOutcome::Failed(error) => Err(Failure::failed(error)),
        ToolOutcome::Completed(result) => Ok(result.structured.map(|s| s.value()).unwrap_or_default()),
    }
}
