//! `docent record TOOL JSON`: makes a call and saves what the upstream answered as a case, secrets replaced.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::open::{self, Opened, Reach};
use super::test::{CaseFile, request_value, settle};
use super::{Context, Failure, call, failure};
use crate::call::{ReplyBody, UpstreamReply, UpstreamRequest};
use crate::catalog::Tool;
use crate::gateway::{RequestContext, Tape, Taped};
use crate::json::{self, Object};
use crate::projection::scrub;

/// Bytes of a body that stands in the case itself; larger ones are files beside it.
const INLINE_BYTES_MAX: usize = 2_048;
/// What stands in place of a secret.
const REPLACED: &str = "[secret removed]";
/// Parts of a member's name that make its value a secret.
const SECRET_NAMES: [&str; 8] =
    ["password", "passwd", "secret", "token", "apikey", "api_key", "authorization", "credential"];

/// Makes a call and saves the reply and the result as a case of the pack.
#[derive(Debug, Args)]
pub(super) struct Record {
    /// The tool's id or name
    tool: String,
    /// Its arguments as a JSON object; `-` reads them from stdin
    #[arg(default_value = "{}")]
    arguments: String,
    /// The caller: a table of [callers]
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// The name of the case [default: the tool's name and a number]
    #[arg(long)]
    name: Option<String>,
    /// The case file in the pack's folder `cases`
    #[arg(long, value_name = "FILE", default_value = "recorded.yaml")]
    file: String,
    /// Print `{file, name, case}`
    #[arg(long)]
    json: bool,
}

impl Record {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let arguments = call::arguments(&self.arguments)?;
        let plain = Path::new(&self.file).file_name().is_some_and(|n| n == self.file.as_str());
        if !plain
            || !matches!(Path::new(&self.file).extension().and_then(|e| e.to_str()), Some("yaml" | "yml"))
        {
            return Err(Failure::Usage("`--file` is a file name that ends in .yaml".to_owned()));
        }
        let opened = open::open(context, Reach::Upstreams)?;
        let snapshot = opened.snapshot();
        let (no, tool) = snapshot.catalog.lookup(&self.tool).ok_or_else(|| {
            Failure::failed(format_args!("there is no tool `{}`; `docent tools` lists them", self.tool))
        })?;
        let tape = Tape::default();
        let caller = opened.caller(self.caller.as_deref())?;
        let request = RequestContext { tape: Some(tape.clone()), ..opened.request(caller) };
        let now_ms = opened.gateway().clock().unix_ms();
        let answer = call::make(&opened, &request, &self.tool, arguments.clone());
        let outcome = call::settle(answer, &self.tool)?;
        let taped = tape.take();
        if taped.is_empty() {
            failure::say("nothing was asked of the upstream, so there is nothing to record");
            return call::print(&mut context.out, outcome, &self.tool, false).and(Err(Failure::Told));
        }
        let has_script =
            snapshot.plan(no).and_then(|p| p.projection.as_ref()).is_some_and(|p| p.has_script());
        let mut case = Object::new();
        case.insert("tool".to_owned(), Value::from(tool.name.as_ref()));
        case.insert("args".to_owned(), clean(&Value::Object(arguments)));
        if has_script {
            case.insert("now_ms".to_owned(), Value::from(now_ms));
            if !request.principal.claims.is_empty() {
                let claims = clean(&Value::Object(request.principal.claims.as_ref().clone()));
                case.insert("caller".to_owned(), json!({ "claims": claims }));
            }
        }
        self.save(context, &opened, tool, case, taped)
    }

    /// Writes the case into its file, and what came of it as its expectation.
    fn save(
        &self,
        context: &mut Context,
        opened: &Opened,
        tool: &Tool,
        mut case: Object,
        taped: Vec<Taped>,
    ) -> Result<(), Failure> {
        let folder = format!("scripts/{}/cases", tool.upstream);
        let name = format!("{folder}/{}", self.file);
        let home = opened.app.dir();
        let written = |e: std::io::Error| Failure::failed(format_args!("{folder} cannot be written: {e}"));
        std::fs::create_dir_all(home.join(&folder)).map_err(written)?;
        let mut file = if home.join(&name).exists() {
            CaseFile::read(home, &name).map_err(|e| Failure::failed(format_args!("{name}: {e}")))?
        } else {
            CaseFile::new(
                &name,
                "# Recorded by `docent record`, secrets replaced. Run with `docent test`.\n\n",
            )
        };
        let title = self.name.clone().unwrap_or_else(|| format!("{} {}", tool.name, file.cases.len() + 1));
        let stem = stem(&title);
        let snapshot = opened.snapshot();
        let plan = snapshot.catalog.lookup(tool.id.as_str()).and_then(|(no, _)| snapshot.plan(no));
        let runs = plan.and_then(|p| p.projection.as_ref()).is_some_and(|p| p.is_script());
        exchanges(&mut case, taped, runs, |at, ending, bytes| {
            let reply = format!("replies/{stem}-{at}.{ending}");
            std::fs::create_dir_all(home.join(&folder).join("replies"))?;
            std::fs::write(home.join(&folder).join(&reply), bytes)?;
            Ok(reply)
        })
        .map_err(written)?;
        let mut named = Object::from_iter([("name".to_owned(), Value::from(title.as_str()))]);
        named.extend(case);
        file.push(Value::Object(named));
        let at = file.cases.len() - 1;
        settle(opened, &mut file, at)
            .map_err(|e| Failure::failed(format_args!("what was recorded cannot be replayed: {e}")))?;
        file.write(home).map_err(|e| Failure::failed(format_args!("{name}: {e}")))?;
        if self.json {
            let case = file.cases.get(at).cloned().unwrap_or_default();
            return context.out.json(&json!({ "file": name, "name": title, "case": case }));
        }
        context.out.line(format_args!("{name}: {title}"))?;
        failure::say(
            "note: look through it before it is committed: only what looks like a secret was replaced",
        );
        Ok(())
    }
}

/// A name for files.
fn stem(title: &str) -> String {
    let text: String =
        title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    json::cut(text.trim_matches('-'), 60).to_owned()
}

/// Puts requests, replies and inner results into a case: lists of them where a script `runs` the whole call, else
/// the only one. `save` writes a large body and gives its file.
fn exchanges(
    case: &mut Object,
    taped: Vec<Taped>,
    runs: bool,
    mut save: impl FnMut(usize, &str, &[u8]) -> std::io::Result<String>,
) -> std::io::Result<()> {
    let (mut requests, mut replies, mut calls) = (Vec::new(), Vec::new(), Object::new());
    for taped in taped {
        match taped {
            Taped::Called(tool, result) => {
                let results = calls.entry(tool).or_insert_with(|| json!([]));
                if let Some(list) = results.as_array_mut() {
                    list.push(clean(&result));
                }
            }
            Taped::Asked(request, reply) => {
                if let UpstreamRequest::Http(_) = &request {
                    requests.push(clean(&request_value(&request)));
                }
                let at = replies.len() + 1;
                replies.push(reply_value(&reply, |ending, bytes| save(at, ending, bytes))?);
            }
        }
    }
    for (mut list, single, many) in [(requests, "request", "requests"), (replies, "reply", "replies")] {
        match list.pop() {
            None => {}
            Some(only) if !runs => drop(case.insert(single.to_owned(), only)),
            Some(last) => {
                list.push(last);
                case.insert(many.to_owned(), Value::from(list));
            }
        }
    }
    if !calls.is_empty() {
        case.insert("calls".to_owned(), Value::Object(calls));
    }
    Ok(())
}

/// A reply as a case states it.
fn reply_value(
    reply: &UpstreamReply,
    save: impl FnOnce(&str, &[u8]) -> std::io::Result<String>,
) -> std::io::Result<Value> {
    let mut out = Object::new();
    if reply.status != 200 {
        out.insert("status".to_owned(), Value::from(reply.status));
    }
    // Dates change with every answer and decide nothing.
    let mut headers: Object = reply
        .headers
        .iter()
        .filter(|(name, _)| name != "date")
        .map(|(name, value)| (name.clone(), Value::from(scrub(value).as_ref())))
        .collect();
    match &reply.body {
        ReplyBody::Empty => {}
        ReplyBody::Value(value) => drop(out.insert("body".to_owned(), clean(value))),
        ReplyBody::Mcp(mcp) => {
            let raw =
                |r: &serde_json::value::RawValue| clean(&serde_json::from_str(r.get()).unwrap_or_default());
            let content: Vec<Value> = mcp.content.iter().map(|b| raw(b)).collect();
            let mut result = json!({ "content": content, "isError": mcp.is_error });
            if let (Some(structured), Some(map)) = (&mcp.structured, result.as_object_mut()) {
                map.insert("structuredContent".to_owned(), raw(structured));
            }
            if let (Some(_), Some(map)) = (&mcp.artifacts, result.as_object_mut()) {
                map.insert("artifacts".to_owned(), json!([]));
            }
            out.insert("mcp".to_owned(), result);
        }
        ReplyBody::Bytes { media_type, bytes } => {
            headers.insert("content-type".to_owned(), Value::from(media_type.as_str()));
            let text = std::str::from_utf8(bytes).ok();
            let value: Option<Value> = text.and_then(|t| serde_json::from_str(t).ok());
            // A number that no value holds digit for digit stays in a file as it came.
            let exact = text.is_none_or(|t| json::inexact_number(t).is_none());
            let (key, body) = match (text, value) {
                (Some(_), Some(value)) if exact && bytes.len() <= INLINE_BYTES_MAX => ("body", clean(&value)),
                (Some(text), None) if bytes.len() <= INLINE_BYTES_MAX => {
                    ("text", Value::from(scrub(text).as_ref()))
                }
                (Some(_), Some(value)) if exact => {
                    let pretty = serde_json::to_string_pretty(&clean(&value)).unwrap_or_default();
                    ("body_file", Value::from(save("json", format!("{pretty}\n").as_bytes())?))
                }
                (Some(text), value) => {
                    let ending = if value.is_some() { "json" } else { "txt" };
                    ("body_file", Value::from(save(ending, clean_text(text, value.as_ref()).as_bytes())?))
                }
                (None, _) => ("body_file", Value::from(save("bin", bytes)?)),
            };
            out.insert(key.to_owned(), body);
        }
    }
    if !headers.is_empty() {
        out.insert("headers".to_owned(), Value::Object(headers));
    }
    Ok(Value::Object(out))
}

/// The text of a body that stays digit for digit: without what looks like a secret, and without the texts that
/// stand under a name that says so.
fn clean_text(text: &str, value: Option<&Value>) -> String {
    fn named<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| named(item, found)),
            Value::Object(map) => map.iter().for_each(|(key, value)| match value {
                Value::String(text) if is_secret(key) && !text.is_empty() => found.push(text),
                other => named(other, found),
            }),
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Some(value) = value {
        named(value, &mut found);
    }
    // The longest first: one may be a part of another.
    found.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let replaced = json::to_text(REPLACED);
    found
        .iter()
        .fold(scrub(text).into_owned(), |text, secret| text.replace(&json::to_text(secret), &replaced))
}

/// Whether what stands under a name is a secret.
fn is_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| lower.contains(part))
}

/// A value without secrets: what looks like one, and what stands under a name that says so.
fn clean(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(scrub(text).as_ref()),
        Value::Array(items) => items.iter().map(clean).collect(),
        Value::Object(map) => {
            let member = |(key, value): (&String, &Value)| {
                let value = match value {
                    Value::String(text) if is_secret(key) && !text.is_empty() => Value::from(REPLACED),
                    other => clean(other),
                };
                (key.clone(), value)
            };
            map.iter().map(member).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_by_name_and_by_look() {
        let value = json!({"userAccessToken": "abc", "n": 1, "password": "", "deep": [{"note": format!("key ghp_{}", "a1b2c3d4".repeat(5))}]});
        let clean = clean(&value);
        assert_eq!(clean["userAccessToken"], REPLACED);
        assert_eq!(clean["password"], "");
        assert!(!clean.to_string().contains("ghp_"), "{clean}");
    }

    #[test]
    fn large_and_exact_bodies_become_files() {
        let reply = |text: &str| UpstreamReply {
            status: 200,
            headers: vec![("date".to_owned(), "x".to_owned()), ("etag".to_owned(), "1".to_owned())],
            body: ReplyBody::Bytes {
                media_type: "application/json".to_owned(),
                bytes: text.to_owned().into(),
            },
            warnings: Vec::new(),
        };
        let made = |text: &str| {
            let mut saved = Vec::new();
            let value = reply_value(&reply(text), |ending, bytes| {
                saved = bytes.to_vec();
                Ok(format!("replies/x.{ending}"))
            })
            .unwrap();
            (value, String::from_utf8(saved).unwrap())
        };
        let (small, file) = made("{\"a\": 1}");
        assert_eq!((small["body"]["a"].as_i64(), file.as_str()), (Some(1), ""));
        assert_eq!(small["headers"], json!({"etag": "1", "content-type": "application/json"}));
        let (wide, file) = made("{\"id\":123456789012345678901234567890}");
        assert_eq!((&wide["body_file"], file.contains("678901234567890")), (&json!("replies/x.json"), true));
        let (large, file) = made(&format!("{{\"a\":\"{}\"}}", "x".repeat(3_000)));
        assert!(large["body"].is_null() && file.len() > 3_000);
    }
}
