//! One record before it is written: who called what, what was decided by which rule, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use super::settings::ArgumentDetail;
use crate::id::{Generation, Scope};
use crate::json::{self, Object, ObjectWriter};
use crate::policy::{Principal, RuleRef};

/// Names of arguments recorded of one call: a tool with more is told by the first.
const NAMES_MAX: usize = 32;
/// Bytes of one name: names of unknown arguments are the caller's own text.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of arguments whose values are recorded, where the settings ask for values; larger ones are summarised.
const VALUES_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a usual record, and of the part of it that tells of arguments: room taken at once.
const BODY_BYTES: usize = 640;
const SUMMARY_BYTES: usize = 128;
/// Hexadecimal digits of the hash of arguments: 64 bits tell equal calls of one log apart.
const DIGEST_DIGITS: usize = 16;

/// The way by which a call came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

impl Via {
    /// Its word in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Run => "run",
            Self::RunReadonly => "run_readonly",
            Self::Script => "script",
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl Outcome {
    /// Its word in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Refused => "refused",
            Self::Pending => "pending",
        }
    }
}

/// What the replay cache had to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dedup {
    /// An earlier result was given again; the upstream was not asked.
    Replayed,
    /// It joined an equal call that was under way.
    Joined,
    /// The same key came with other arguments: refused.
    Collision,
}

impl Dedup {
    /// Its word in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Joined => "joined",
            Self::Collision => "collision",
        }
    }
}

/// What is recorded of a call's arguments.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ArgumentSummary {
    /// Bytes of the compact JSON.
    pub bytes: usize,
    /// A keyed hash: equal arguments have equal ones, and nobody without the key can try values.
    pub digest: String,
    /// Names of the top-level arguments, cut after 32.
    pub names: Vec<String>,
    /// The values, only where the settings ask for them.
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

    /// The member of a record; what is empty is left out.
    fn json(&self) -> String {
        let mut out = ObjectWriter::with_capacity(SUMMARY_BYTES);
        out.number("bytes", self.bytes);
        if !self.digest.is_empty() {
            out.text("digest", &self.digest);
        }
        if !self.names.is_empty() {
            out.texts("names", self.names.iter().map(String::as_str));
        }
        if let Some(values) = &self.values {
            out.json("values", &json::object_text(values));
        }
        out.finish()
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
    /// The members of the record, after `seq`, `at` and `kind`, as a JSON object. Written member by member: it is the
    /// larger part of what a record costs.
    pub(super) fn body(&self) -> String {
        let who = &self.who;
        let mut out = ObjectWriter::with_capacity(BODY_BYTES);
        out.text("request", &self.request);
        out.text("caller", &who.subject);
        out.texts("scopes", who.scopes.iter().map(Scope::as_str));
        out.text("tool", json::cut(&self.tool, 2 * NAME_BYTES_MAX));
        out.text("via", self.via.word());
        out.text("decision", self.decision);
        out.text("rule", &self.rule.to_string());
        out.number("generation", self.generation.0);
        out.json("arguments", &self.arguments.json());
        out.text("outcome", self.outcome.word());
        out.number("duration_us", self.duration.as_micros());
        out.number("bytes_in", self.bytes_in);
        out.number("bytes_out", self.bytes_out);
        let named = [
            ("agent", who.agent.as_ref().map(crate::id::AgentId::as_str)),
            ("tier", who.tier.as_deref()),
            ("client", who.client.name.as_deref()),
            ("upstream", self.upstream.as_deref()),
            ("code", Some(self.code).filter(|code| !code.is_empty())),
        ];
        for (name, value) in named {
            if let Some(value) = value {
                out.text(name, value);
            }
        }
        if self.omitted > 0 {
            out.number("omitted", self.omitted);
        }
        for (name, value) in [("dedup", self.dedup.map(Dedup::word)), ("job", self.job.as_deref())] {
            if let Some(value) = value {
                out.text(name, value);
            }
        }
        out.finish()
    }
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
        assert_eq!(
            summary.json(),
            format!(r#"{{"bytes":28,"digest":"{}","names":["path","n"]}}"#, summary.digest)
        );
        assert_eq!(of(ArgumentDetail::None), ArgumentSummary::default());
        assert_eq!(ArgumentSummary::default().json(), r#"{"bytes":0}"#);
        assert!(of(ArgumentDetail::Values).json().ends_with(r#","values":{"path":"/etc/secret","n":1}}"#));
        assert_eq!(of(ArgumentDetail::Values).values.unwrap(), arguments);
        assert_ne!(
            ArgumentSummary::of(&arguments, &text, &[8; 32], ArgumentDetail::Summary).digest,
            summary.digest,
            "another key, another hash"
        );
    }

    #[test]
    fn a_record_tells_what_there_is_and_leaves_out_what_there_is_not() {
        let mut entry = super::super::tests::entry("a.\"b\"");
        let told = |entry: &CallEntry| serde_json::from_str::<Value>(&entry.body()).unwrap();
        let usual = json!({
            "request": "r-1", "caller": "alice", "scopes": [], "tool": "a.\"b\"", "via": "direct", "decision": "permit",
            "rule": "policies/a.rhai:3", "generation": 1, "arguments": {"bytes": 0}, "outcome": "ok",
            "duration_us": 5_000, "bytes_in": 10, "bytes_out": 20, "upstream": "a",
        });
        assert_eq!(told(&entry), usual);
        let who = Principal {
            scopes: [Scope::parse("s:1").unwrap(), Scope::parse("s:2").unwrap()].into_iter().collect(),
            tier: Some("pro".into()),
            client: crate::policy::ClientFacts { name: Some("c\n".into()), version: None },
            ..Principal::clone(&entry.who)
        };
        (entry.who, entry.via, entry.outcome) = (Arc::new(who), Via::RunReadonly, Outcome::Error);
        (entry.code, entry.omitted, entry.upstream) = ("TIMEOUT", 2, None);
        (entry.dedup, entry.job) = (Some(Dedup::Joined), Some("j_1".into()));
        let told = told(&entry);
        for (name, value) in [
            ("scopes", json!(["s:1", "s:2"])),
            ("tier", json!("pro")),
            ("client", json!("c\n")),
            ("via", json!("run_readonly")),
            ("outcome", json!("error")),
            ("code", json!("TIMEOUT")),
            ("omitted", json!(2)),
            ("dedup", json!("joined")),
            ("job", json!("j_1")),
            ("upstream", Value::Null),
        ] {
            assert_eq!(told[name], value, "{name}");
        }
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
