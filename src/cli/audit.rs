//! `docent audit tail` and `docent audit verify`: what was done, and whether the record of it is whole.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{Context, Failure};
use crate::audit::{self, AuditKey};
use crate::config;

/// Reads and checks the record of all calls.
#[derive(Debug, Args)]
pub(super) struct Audit {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    Tail(Tail),
    Verify(Verify),
}

/// Prints the newest records, oldest first.
#[derive(Debug, Args)]
struct Tail {
    /// How many
    #[arg(short = 'n', long, default_value_t = 20, value_name = "COUNT")]
    count: usize,
    /// Print a JSON array of whole records
    #[arg(long)]
    json: bool,
}

/// Checks that no record was changed and none is missing.
#[derive(Debug, Args)]
struct Verify {
    /// Print `{ok, records, first_bad}`
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.command {
            AuditCommand::Tail(tail) => tail.run(context),
            AuditCommand::Verify(verify) => verify.run(context),
        }
    }
}

/// The folder of the audit of this home.
pub(super) fn folder(context: &Context) -> Result<PathBuf, Failure> {
    let data = context.env.data_dir(context.data.as_deref(), &context.home).map_err(Failure::failed)?;
    Ok(data.join("audit"))
}

impl Tail {
    fn run(&self, context: &mut Context) -> Result<(), Failure> {
        let records = audit::tail(&folder(context)?, self.count).map_err(Failure::failed)?;
        if self.json {
            return context.out.json(&records);
        }
        records.iter().try_for_each(|record| context.out.line(line(record)))
    }
}

/// A record for people: when, who, what, how it was decided and how it ended.
fn line(record: &Value) -> String {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
    let head = format!("{} {:>6}", text("at"), record.get("seq").map(Value::to_string).unwrap_or_default());
    if text("kind") != "call" {
        let mut rest = record.clone();
        if let Some(map) = rest.as_object_mut() {
            for name in ["seq", "at", "kind", "tag"] {
                map.remove(name);
            }
        }
        return format!("{head} {} {rest}", text("kind"));
    }
    let milliseconds = record.get("duration_us").and_then(Value::as_u64).unwrap_or(0) / 1_000;
    let mut out =
        format!("{head} {} → {} {} {}", text("caller"), text("tool"), text("decision"), text("outcome"));
    for (name, word) in [("code", ""), ("rule", "by "), ("dedup", "dedup "), ("job", "job ")] {
        if !text(name).is_empty() {
            out = format!("{out} {word}{}", text(name));
        }
    }
    format!("{out} {milliseconds} ms")
}

impl Verify {
    fn run(&self, context: &mut Context) -> Result<(), Failure> {
        let dir = folder(context)?;
        // A home that does not load has a log all the same; only the key may stand in its settings.
        let resolver = context.env.resolver(&context.home);
        let settings = config::load(&context.home, &resolver).settings.telemetry.audit;
        let key = settings.key.as_ref().map(AuditKey::of).or_else(|| AuditKey::stored(&dir));
        let key = match key {
            Some(key) => key,
            // Nothing can have been written without a key.
            None if !dir.join("head.json").exists() => AuditKey::of(&crate::secret::Secret::new("")),
            None => {
                let text = format!("there is no key for {}: give `telemetry.audit_key`", dir.display());
                return Err(Failure::failed(text));
            }
        };
        let found = audit::verify(&dir, &key).map_err(Failure::failed)?;
        if self.json {
            context.out.json(&found)?;
        } else if found.ok {
            context.out.line(format_args!(
                "{} records, from number {}: all as they were written",
                found.records, found.first
            ))?;
        } else {
            let place = found.place.as_deref().map_or(String::new(), |p| format!(" ({p})"));
            let reason = found.reason.as_deref().unwrap_or_default();
            let seq = found.first_bad.unwrap_or(0);
            context
                .out
                .line(format_args!("{} records are good; record {seq}{place}: {reason}", found.records))?;
        }
        if found.ok { Ok(()) } else { Err(Failure::Told) }
    }
}
