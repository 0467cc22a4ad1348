//! `docent call TOOL JSON`: one call through the whole path: policy, validation, projection, upstream.

use std::io::Read as _;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::open::{self, Opened, Reach};
use super::{Context, Failure, Output, failure};
use crate::call::{ToolCall, ToolOutcome};
use crate::gateway::{CallAnswer, RequestContext, challenge_error};
use crate::json::{self, JsonError, Object};
use crate::limits;
use crate::mcp;

/// Makes one call through the whole path.
#[derive(Debug, Args)]
pub(super) struct Call {
    /// The tool's id or name
    tool: String,
    /// Its arguments as a JSON object; `-` reads them from stdin
    #[arg(default_value = "{}")]
    arguments: String,
    /// The caller: a table of [callers]
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// Print the `CallToolResult`
    #[arg(long)]
    json: bool,
}

impl Call {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let arguments = arguments(&self.arguments)?;
        let opened = open::open(context, Reach::Upstreams)?;
        let request = opened.request(opened.caller(self.caller.as_deref())?);
        let answer = make(&opened, &request, &self.tool, arguments);
        let mut outcome = settle(answer, &self.tool)?;
        if self.json {
            outcome = opened.gateway().told(&request, &self.tool, outcome);
        }
        print(&mut context.out, outcome, &self.tool, self.json)
    }
}

/// How long a command waits for its call: longer than any tool may take, since there is nobody to come back for a
/// job.
const PATIENCE: Duration = Duration::from_hours(24);

/// One call and what came of it.
pub(super) fn make(opened: &Opened, request: &RequestContext, tool: &str, arguments: Object) -> CallAnswer {
    let call =
        ToolCall { tool: tool.to_owned(), arguments, wait: PATIENCE, request_key: None, fields: Vec::new() };
    opened.wait(opened.gateway().call_tool(request, call))
}

/// The outcome of an answer; an unknown tool is a failure of the command.
pub(super) fn settle(answer: CallAnswer, tool: &str) -> Result<ToolOutcome, Failure> {
    match answer {
        CallAnswer::Outcome(outcome) => Ok(outcome),
        // A command is patient, so its call never becomes a job.
        CallAnswer::Running(job) => {
            Err(Failure::failed(format_args!("`{tool}` goes on as the job {}", job.id)))
        }
        CallAnswer::Challenge(challenge) => Ok(ToolOutcome::Failed(challenge_error(&challenge))),
        CallAnswer::Ask(_) | CallAnswer::CannotAsk(_) | CallAnswer::NeedsTask | CallAnswer::BadState => {
            Err(Failure::failed("the call asks for an answer that the command line cannot give"))
        }
        CallAnswer::UnknownTool => Err(Failure::failed(format_args!(
            "there is no tool `{tool}` for this caller; `docent tools` lists them"
        ))),
    }
}

/// Prints a result; one that failed makes the command fail.
pub(super) fn print(out: &mut Output, outcome: ToolOutcome, tool: &str, json: bool) -> Result<(), Failure> {
    if json {
        let result = mcp::call_tool_result(tool, "cli", outcome);
        out.json(&result)?;
        let failed = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        return if failed { Err(Failure::Told) } else { Ok(()) };
    }
    match outcome {
        ToolOutcome::Failed(error) => Err(Failure::failed(error)),
        ToolOutcome::Completed(result) => {
            let plain = result.structured.as_ref().filter(|_| result.is_plain).map(json::JsonText::value);
            let text = plain.as_ref().and_then(|p| p.get("text")?.as_str()).or(result.text.as_deref());
            for warning in plain.iter().filter_map(|p| p.get("warnings")?.as_array()).flatten() {
                failure::say(format_args!("warning: {}", warning.as_str().unwrap_or_default()));
            }
            match (result.structured.as_ref().filter(|_| text.is_none()), text) {
                (Some(structured), _) => out.json(&structured.value())?,
                (None, Some(text)) => out.line(text.strip_suffix('\n').unwrap_or(text))?,
                (None, None) => {}
            }
            for block in &result.blocks {
                out.line(block.get())?;
            }
            if result.is_error { Err(Failure::Told) } else { Ok(()) }
        }
    }
}

/// Arguments as they stand on the command line, or from stdin.
pub(super) fn arguments(text: &str) -> Result<Object, Failure> {
    let mut bytes = text.as_bytes().to_vec();
    if text == "-" {
        bytes.clear();
        let max = u64::try_from(limits::REQUEST_BODY_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
        std::io::stdin()
            .take(max)
            .read_to_end(&mut bytes)
            .map_err(|e| Failure::failed(format_args!("stdin cannot be read: {e}")))?;
    }
    match json::parse_exact_bytes(&bytes, limits::REQUEST_BODY_BYTES_MAX) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => {
            Err(Failure::Usage("the arguments must be a JSON object, such as '{\"limit\": 5}'".to_owned()))
        }
        Err(JsonError::Malformed(e)) => Err(Failure::Usage(format!("the arguments are not JSON: {e}"))),
        Err(e) => Err(Failure::Usage(format!("the arguments cannot be taken: {e}"))),
    }
}
