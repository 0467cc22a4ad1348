//! One record before it is written: who called what, what was decided by which rule, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::settings::ArgumentDetail;
use crate::id::{Generation, Scope};
use crate::json::{self, Object};
use crate::policy::{Principal, RuleRef};

/// Names of arguments recorded of one call: a tool with more is told by the first.
const NAMES_MAX: usize = 32;
/// Bytes of one name: names of unknown arguments are the caller's own text.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of arguments whose values are recorded, where the settings ask for values; larger ones are summarised.
const VALUES_BYTES_MAX: usize = 16 * 1024;
/// Hexadecimal digits of the hash of arguments: 64 bits tell equal calls of one log apart.
const DIGEST_DIGITS: usize = 16;

/// The way by which a call came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// `tools/call` of the tool itself.
    #[default]
    Direct,
    /// `docent_run_tool`.
    Run,
    /// `docent_run_readonly_tool`.
    RunReadonly,
    /// A script that calls other tools.
    Script,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a result.
    Ok,
    /// With an error, or a result that is one.
    Error,
    /// It was not carried out: policy, arguments, or a tool that is not there.
    Refused,
    /// It runs on as a job; the job's end is a record of its own.
    Pending,
}

/// What the replay cache had to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dedup {
    /// An earlier result was given again; the upstream was not asked.
    Replayed,
    /// It joined an equal call that was under way.
    Joined,
    /// The same key came with other arguments: refused.
    Collision,
}

/// What is recorded of a call's arguments.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ArgumentSummary {
    /// Bytes of the compact JSON.
    pub bytes: usize,
    /// A keyed hash: equal arguments have equal ones, and nobody without the key can try values.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Names of the top-level arguments, cut after 32.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The values, only where the settings ask for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Object>,
}

impl ArgumentSummary {
    /// The summary of arguments, whose compact JSON is `text`. About a microsecond for usual ones.
    pub(super) fn of(arguments: &Object, text: &str, key: &[u8; 32], detail: ArgumentDetail) -> Self {
        if detail == ArgumentDetail::None {
            return Self::default();
        }
        let hex = blake3::keyed_hash(key, text.as_bytes()).to_hex();
        let names = arguments.keys().take(NAMES_MAX).map(|n| json::cut(n, NAME_BYTES_MAX).to_owned());
        let keep = detail == ArgumentDetail::Values && text.len() <= VALUES_BYTES_MAX;
        Self {
            bytes: text.len(),
            digest: hex.get(..DIGEST_DIGITS).unwrap_or_default().to_owned(),
            names: names.collect(),
            values: keep.then(|| arguments.clone()),
        }
    }
}

/// A call or a refusal, as the gateway tells of it.
#[derive(Debug, Clone)]
pub struct CallEntry {
    /// The correlation id of the request.
    pub request: Arc<str>,
    /// Who called.
    pub who: Arc<Principal>,
    /// The tool's id; of a tool that is not there, what the caller wrote.
    pub tool: Arc<str>,
    /// Its upstream, where there is one.
    pub upstream: Option<Arc<str>>,
    /// How the call came in.
    pub via: Via,
    /// `permit`, `deny`, `challenge`, `confirm`; `unknown` for a tool that is not there, or hidden from the caller.
    pub decision: &'static str,
    /// The rule that decided.
    pub rule: RuleRef,
    /// The generation that served.
    pub generation: Generation,
    /// What is recorded of the arguments.
    pub arguments: ArgumentSummary,
    /// How it ended.
    pub outcome: Outcome,
    /// The error's code; empty where there is none.
    pub code: &'static str,
    /// How long it took, the queue included.
    pub duration: Duration,
    /// Bytes of the upstream's reply.
    pub bytes_in: usize,
    /// Bytes of the result.
    pub bytes_out: usize,
    /// Omissions in the result.
    pub omitted: usize,
    /// What the replay cache did.
    pub dedup: Option<Dedup>,
    /// The job it became or belongs to.
    pub job: Option<Arc<str>>,
}

impl CallEntry {
    /// The members of the record, after `seq`, `at` and `kind`, as a JSON object. Written without a value in
    /// between: it is the larger part of what a record costs.
    pub(super) fn body(&self) -> String {
        let who = &self.who;
        json::to_text(&Body {
            request: &self.request,
            caller: &who.subject,
            scopes: who.scopes.iter().map(Scope::as_str).collect(),
            tool: json::cut(&self.tool, 2 * NAME_BYTES_MAX),
            via: self.via,
            decision: self.decision,
            rule: self.rule.to_string(),
            generation: self.generation.0,
            arguments: &self.arguments,
            outcome: self.outcome,
            duration_us: u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            agent: who.agent.as_ref().map(crate::id::AgentId::as_str),
            tier: who.tier.as_deref(),
            client: who.client.name.as_deref(),
            upstream: self.upstream.as_deref(),
            code: (!self.code.is_empty()).then_some(self.code),
            omitted: (self.omitted > 0).then_some(self.omitted),
            dedup: self.dedup,
            job: self.job.as_deref(),
        })
    }
}

/// The record of a call as it stands in the log.
#[derive(Serialize)]
struct Body<'a> {
    request: &'a str,
    caller: &'a str,
    scopes: Vec<&'a str>,
    tool: &'a str,
    via: Via,
    decision: &'a str,
    rule: String,
    generation: u64,
    arguments: &'a ArgumentSummary,
    outcome: Outcome,
    duration_us: u64,
    bytes_in: usize,
    bytes_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup: Option<Dedup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_summary_tells_names_and_size_and_no_value() {
        let arguments = json!({"path": "/etc/secret", "n": 1}).as_object().unwrap().clone();
        let text = json::to_text(&arguments);
        let of = |detail| ArgumentSummary::of(&arguments, &text, &[7; 32], detail);
        let summary = of(ArgumentDetail::Summary);
        assert_eq!((summary.bytes, summary.names.as_slice()), (28, &["path".to_owned(), "n".to_owned()][..]));
        assert_eq!(summary.digest.len(), DIGEST_DIGITS);
        assert!(!json::to_text(&summary).contains("secret"));
        assert_eq!(of(ArgumentDetail::None), ArgumentSummary::default());
        assert_eq!(of(ArgumentDetail::Values).values.unwrap(), arguments);
        assert_ne!(
            ArgumentSummary::of(&arguments, &text, &[8; 32], ArgumentDetail::Summary).digest,
            summary.digest,
            "another key, another hash"
        );
    }

    #[test]
    fn a_name_or_a_list_of_names_cannot_grow_without_end() {
        let arguments: Object = (0..100).map(|i| (format!("{i:0>200}"), Value::Null)).collect();
        let text = json::to_text(&arguments);
        let summary = ArgumentSummary::of(&arguments, &text, &[7; 32], ArgumentDetail::Values);
        assert_eq!((summary.names.len(), summary.names[0].len()), (NAMES_MAX, NAME_BYTES_MAX));
        assert!(summary.values.is_none(), "20,000 bytes are not kept");
    }
}
