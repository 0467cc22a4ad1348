//! `docent policy explain`, `matrix`, `diff` and `replay`: why, for whom, and what an edit changes.

mod compare;

use clap::{Args, Subcommand};

use super::open::{self, Reach};
use super::{Context, Failure, call};
use crate::id::Scope;
use crate::policy::{Explanation, Principal, RuleRef, Standing};
use crate::snapshot::OfferedRow;

/// Interrogates the policies.
#[derive(Debug, Args)]
pub(super) struct Policy {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    Explain(Explain),
    Matrix(Matrix),
    Diff(compare::Diff),
    Replay(compare::Replay),
}

/// Tells the decision, the rule that made it, and what it read.
#[derive(Debug, Args)]
struct Explain {
    /// The tool's id or name, the resource's address, the prompt's or the agent's name
    subject: String,
    /// The caller: a table of [callers]
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// The arguments of the call, as a JSON object
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Print `{decision, rule, reason, scopes, steps, facts}`
    #[arg(long)]
    json: bool,
}

/// Tells for every tool, resource and prompt what every caller gets.
#[derive(Debug, Args)]
struct Matrix {
    /// Print one row of decisions for each caller
    #[arg(long)]
    json: bool,
}

impl Policy {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.command {
            PolicyCommand::Explain(explain) => explain.run(context),
            PolicyCommand::Matrix(matrix) => matrix.run(context),
            PolicyCommand::Diff(diff) => diff.run(context),
            PolicyCommand::Replay(replay) => replay.run(context),
        }
    }
}

impl Explain {
    fn run(self, context: &mut Context) -> Result<(), Failure> {
        let args = self.args.as_deref().map(call::arguments).transpose()?;
        let opened = open::open(context, Reach::Known)?;
        let who = opened.caller(self.caller.as_deref())?;
        let none = || format!("there is no tool, resource, prompt or agent `{}`", self.subject);
        let explained = opened.gateway().explain_for(&who, &self.subject, args.as_ref());
        let explained = explained.ok_or_else(|| Failure::failed(format_args!("{}", none())))?;
        if self.json {
            return context.out.json(&explained);
        }
        print(context, &who.subject, &self.subject, &explained)
    }
}

fn print(context: &mut Context, who: &str, subject: &str, told: &Explanation) -> Result<(), Failure> {
    let hidden = if told.visible { "" } else { ", and it is hidden" };
    context.out.line(format_args!("{who} → {subject}: {}{hidden}", told.decision))?;
    context.out.line(format_args!("  because {}", told.reason))?;
    context.out.line(format_args!("  rule: {}", place(&told.rule)))?;
    if !told.scopes.is_empty() {
        let scopes: Vec<&str> = told.scopes.iter().map(Scope::as_str).collect();
        context.out.line(format_args!("  needs the scopes {}", scopes.join(", ")))?;
    }
    for step in &told.steps {
        let text = if step.text.is_empty() { String::new() } else { format!(": {}", step.text) };
        context.out.line(format_args!(
            "  {} {} said {}{text}",
            step.phase,
            place(&step.rule),
            step.answer
        ))?;
    }
    for (name, value) in &told.facts {
        context.out.line(format_args!("  read {name} = {value}"))?;
    }
    Ok(())
}

fn place(rule: &RuleRef) -> String {
    match &*rule.file {
        "" => "none; what nothing allows is denied".to_owned(),
        _ => rule.to_string(),
    }
}

impl Matrix {
    fn run(&self, context: &mut Context) -> Result<(), Failure> {
        let opened = open::open(context, Reach::Known)?;
        let snapshot = opened.snapshot();
        let callers: Vec<(String, Principal)> = compare::callers(&snapshot.callers).into_iter().collect();
        let rows = snapshot.matrix(&callers);
        if self.json {
            return context.out.json(&rows);
        }
        let tools = snapshot.catalog.tools().iter().map(|t| t.id.as_str());
        let resources = snapshot.offers.resources.iter().chain(&snapshot.offers.templates);
        let resources: Vec<&str> = resources.map(|r| &*r.entry.uri).collect();
        let prompts: Vec<&str> = snapshot.offers.prompts.iter().map(|p| &*p.entry.name).collect();
        let names = tools.clone().chain(resources.iter().copied()).chain(prompts.iter().copied());
        let width = names.map(str::len).max().unwrap_or(0).min(48);
        let callers: Vec<&str> = rows.iter().map(|r| r.tools.caller.as_str()).collect();
        context.out.line(format_args!("{:width$}  {}", "", callers.join("  ")))?;
        let mut line = |name: &str, of: &dyn Fn(&OfferedRow) -> Option<Standing>| {
            let cell = |row: &OfferedRow| {
                let word = of(row).map(serde_json::to_value).and_then(Result::ok).unwrap_or_default();
                let w = row.tools.caller.chars().count();
                format!("{:w$}", word.as_str().unwrap_or("hidden"))
            };
            let cells: Vec<String> = rows.iter().map(cell).collect();
            context.out.line(format_args!("{name:width$}  {}", cells.join("  ").trim_end()))
        };
        for tool in snapshot.catalog.tools() {
            line(tool.id.as_str(), &|row| row.tools.tools.get(&tool.id).copied())?;
        }
        for uri in resources {
            line(uri, &|row| row.resources.get(uri).copied())?;
        }
        for name in prompts {
            line(name, &|row| row.prompts.get(name).copied())?;
        }
        Ok(())
    }
}
