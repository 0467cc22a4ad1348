//! `docent project TOOL --reply FILE`: a projection on a recorded reply, offline.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::open::{self, Reach};
use super::test::{Reply, upstream_reply};
use super::{Context, Failure, call, failure};
use crate::call::{ErrorCode, Omission, ToolOutcome, UpstreamRequest};
use crate::projection::{CallFacts, Shaped, unprojected};

/// Bytes of a token, as the public estimate has it (seed 004).
const TOKEN_BYTES: usize = 4;

/// Runs a projection on a recorded reply, offline.
#[derive(Debug, Args)]
pub(super) struct Project {
    /// The tool's id or name
    tool: String,
    /// The recorded body; its ending (.json, .html, .txt) tells what it is
    #[arg(long, value_name = "FILE")]
    reply: PathBuf,
    /// The status of the recorded reply
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=599))]
    status: u16,
    /// The arguments of the call, as a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    args: String,
    /// Tell on stderr what the arguments become and what went wrong inside
    #[arg(long)]
    trace: bool,
    /// Print `{result, ok, schema_errors, bytes_in, bytes_out, tokens_in, tokens_out, omitted}`
    #[arg(long)]
    json: bool,
}

impl Project {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let args = call::arguments(&self.args)?;
        let file = self.reply.canonicalize();
        let file = file.map_err(|e| Failure::failed(format_args!("{}: {e}", self.reply.display())))?;
        let reply = Reply::of_file(self.status, file.to_string_lossy());
        let reply = upstream_reply(&reply, &context.home).map_err(Failure::Failed)?;
        let opened = open::open(context, Reach::Known)?;
        let snapshot = opened.snapshot();
        let (no, tool) = snapshot.catalog.lookup(&self.tool).ok_or_else(|| {
            Failure::failed(format_args!("there is no tool `{}`; `docent tools` lists them", self.tool))
        })?;
        let facts = CallFacts {
            subject: Arc::from("cli"),
            now_ms: opened.gateway().clock().unix_ms(),
            correlation_id: Arc::from("cli"),
            tool: Arc::from(tool.id.as_str()),
            ..CallFacts::default()
        };
        let budget = snapshot.settings.budgets.of_result();
        let projection = snapshot.plan(no).and_then(|p| p.projection.clone());
        if self.trace {
            trace_request(projection.as_deref().map(|p| p.request(&args, &facts)));
        }
        let shaped = match &projection {
            Some(p) if p.is_script() => {
                let message =
                    "its script makes several requests: run it as a case with `replies` (`docent test`)";
                return Err(Failure::failed(format_args!("`{}`: {message}", tool.id)));
            }
            Some(p) => p.shape(&reply, &args, &facts, &budget),
            None => unprojected(&reply, &facts, &budget),
        };
        if let (true, Some(detail)) = (self.trace, &shaped.detail) {
            failure::say(format_args!("detail: {detail}"));
        }
        let report = report(shaped);
        self.tell(context, &report)
    }

    fn tell(&self, context: &mut Context, report: &Report) -> Result<(), Failure> {
        if self.json {
            context.out.json(report)?;
        } else {
            match &report.result {
                Value::String(text) => context.out.line(text)?,
                other => context.out.json(other)?,
            }
            let Report { bytes_in, bytes_out, omitted, .. } = report;
            failure::say(format_args!(
                "{bytes_in} bytes in, {bytes_out} bytes out, {} omissions",
                omitted.len()
            ));
            report.schema_errors.iter().for_each(failure::say);
        }
        if report.ok { Ok(()) } else { Err(Failure::Told) }
    }
}

/// What came out, and what it took.
#[derive(Debug, Serialize)]
struct Report {
    result: Value,
    ok: bool,
    schema_errors: Vec<String>,
    bytes_in: usize,
    bytes_out: usize,
    tokens_in: usize,
    tokens_out: usize,
    omitted: Vec<Omission>,
}

fn report(shaped: Shaped) -> Report {
    let Shaped { outcome, bytes_in, bytes_out, omitted, detail, kept: _ } = shaped;
    let (ok, result, mismatch) = match outcome {
        ToolOutcome::Failed(error) => {
            let mismatch = error.code == ErrorCode::UpstreamSchemaMismatch;
            (false, serde_json::to_value(&error).unwrap_or_default(), mismatch)
        }
        ToolOutcome::Completed(r) => {
            let text = r.text.unwrap_or_default();
            (!r.is_error, r.structured.map_or_else(|| Value::from(text), |s| s.value()), false)
        }
    };
    Report {
        result,
        ok,
        schema_errors: detail.into_iter().filter(|_| mismatch).collect(),
        bytes_in,
        bytes_out,
        tokens_in: bytes_in.div_ceil(TOKEN_BYTES),
        tokens_out: bytes_out.div_ceil(TOKEN_BYTES),
        omitted,
    }
}

fn trace_request(request: Option<Result<UpstreamRequest, crate::call::ToolError>>) {
    match request {
        None => failure::say("request: the arguments as they are; the tool has no projection"),
        Some(Err(error)) => failure::say(format_args!("request: {error}")),
        Some(Ok(UpstreamRequest::Arguments(_))) => failure::say("request: the arguments as they are"),
        Some(Ok(UpstreamRequest::Http(http))) => {
            failure::say(format_args!("request: {} {}", http.method, http.path));
            for (name, value) in &http.query {
                failure::say(format_args!("  {name} = {value}"));
            }
        }
    }
}
