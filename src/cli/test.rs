//! `docent test [FILTER]`: runs the cases of the enabled packs and of the policies.

mod case;
pub(super) mod cost;
mod coverage;
mod shape;

use std::fmt::Write as _;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::open::{self, Opened, Reach};
use super::{Context, Failure, failure};
use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile};
use crate::json;
use crate::limits::HOME_FILE_BYTES_MAX;
use case::ProjectionCase;
pub(super) use case::{CaseFile, Reply};
use cost::Covered;
pub(super) use shape::{request_value, upstream_reply};

/// Runs all cases: recorded replies and expected decisions.
#[derive(Debug, Args)]
pub(super) struct Test {
    /// Only cases whose file or name holds this text
    filter: Option<String>,
    /// Writes what came out as the new expectation of every case that fails
    #[arg(long)]
    update: bool,
    /// Names the policy rules and the functions of scripts that no case reached
    #[arg(long)]
    coverage: bool,
    /// Print `{passed, failed, cases}`, and `coverage` where it was asked for
    #[arg(long)]
    json: bool,
}

/// What became of one case.
#[derive(Debug, Serialize)]
struct Verdict {
    name: String,
    ok: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
}

impl Test {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let opened = open::open(context, Reach::Files)?;
        let covered = self.coverage.then(|| Covered::of(&opened));
        let (mut verdicts, mut reached) = (Vec::new(), coverage::Reached::default());
        for name in case_files(&opened) {
            if name.starts_with("policies/") {
                for (verdict, places) in decisions(&opened, &name) {
                    if self.wants(&verdict.name) {
                        verdicts.push(verdict);
                        reached.extend(places);
                    }
                }
            } else {
                self.shapes(&opened, covered.as_ref(), name, &mut verdicts)?;
            }
        }
        let policies = self.coverage.then(|| reached.report(&opened.snapshot()));
        self.report(context, &verdicts, covered.as_ref().zip(policies.as_ref()))
    }

    fn wants(&self, label: &str) -> bool {
        self.filter.as_ref().is_none_or(|f| label.contains(f.as_str()))
    }

    /// Runs the cases of one file of a pack, and rewrites it where `--update` has something to write.
    fn shapes(
        &self,
        opened: &Opened,
        covered: Option<&Covered>,
        name: String,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<(), Failure> {
        let mut file = match CaseFile::read(opened.app.dir(), &name) {
            Ok(file) => file,
            Err(error) => {
                verdicts.push(Verdict { name, ok: false, diff: error });
                return Ok(());
            }
        };
        let mut changed = false;
        for at in 0..file.cases.len() {
            let label = file.label(at);
            if !self.wants(&label) {
                continue;
            }
            let (diff, updates) = run_case(opened, covered, &file, at);
            if self.update && !diff.is_empty() && !updates.is_empty() {
                changed = true;
                apply(&mut file, at, updates);
                verdicts.push(Verdict { name: label, ok: true, diff: "updated".to_owned() });
            } else {
                verdicts.push(Verdict { name: label, ok: diff.is_empty(), diff });
            }
        }
        if changed {
            file.write(opened.app.dir())
                .map_err(|e| Failure::failed(format_args!("{name} cannot be written: {e}")))?;
        }
        Ok(())
    }

    fn report(
        &self,
        context: &mut Context,
        verdicts: &[Verdict],
        coverage: Option<(&Covered, &coverage::Report)>,
    ) -> Result<(), Failure> {
        let passed = verdicts.iter().filter(|v| v.ok).count();
        let failed = verdicts.len() - passed;
        if self.json {
            let mut report = serde_json::json!({ "passed": passed, "failed": failed, "cases": verdicts });
            if let (Some((covered, policies)), Some(map)) = (coverage, report.as_object_mut()) {
                let mut told = covered.json();
                if let Some(told) = told.as_object_mut() {
                    told.insert("policy".to_owned(), serde_json::json!(policies));
                }
                map.insert("coverage".to_owned(), told);
            }
            context.out.json(&report)?;
        } else {
            for verdict in verdicts {
                let word = if verdict.ok { "ok  " } else { "FAIL" };
                context.out.line(format_args!("{word} {}", verdict.name))?;
                for line in verdict.diff.lines() {
                    context.out.line(format_args!("       {line}"))?;
                }
            }
            context.out.line(format_args!("{passed} passed, {failed} failed"))?;
            if let Some((covered, policies)) = coverage {
                covered.tell(context)?;
                policies.tell(context)?;
            }
        }
        if verdicts.is_empty() {
            let what = self.filter.as_ref().map_or(String::new(), |f| format!(" whose name holds `{f}`"));
            failure::say(format_args!(
                "note: there is no case{what}; cases are scripts/*/cases/*.yaml of enabled packs and policies/cases/*.yaml"
            ));
        }
        if failed > 0 { Err(Failure::Told) } else { Ok(()) }
    }
}

/// The case files of a home, in order: packs first, then policies.
fn case_files(opened: &Opened) -> Vec<String> {
    let statuses = opened.snapshot().upstreams.statuses();
    let packs = statuses.iter().map(|s| format!("scripts/{}/cases", s.id));
    let mut out = Vec::new();
    for folder in packs.chain(std::iter::once("policies/cases".to_owned())) {
        let entries = std::fs::read_dir(opened.app.dir().join(&folder));
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|n| matches!(Path::new(n).extension().and_then(|e| e.to_str()), Some("yaml" | "yml")))
            .collect();
        names.sort_unstable();
        out.extend(names.into_iter().map(|n| format!("{folder}/{n}")));
    }
    out
}

/// What an update would write: keys and their new values.
type Updates = Vec<(&'static str, Value)>;

/// Runs one file of policy cases, each with what it reached; a file that cannot be read is a case that fails.
fn decisions(opened: &Opened, name: &str) -> Vec<(Verdict, Vec<String>)> {
    let text = match json::read_text_capped(&opened.app.dir().join(name), HOME_FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(e) => {
            return vec![(Verdict { name: name.to_owned(), ok: false, diff: e.to_string() }, Vec::new())];
        }
    };
    let snapshot = opened.snapshot();
    let mut diagnostics = Diagnostics::default();
    let agents: Vec<_> = snapshot.settings.agents.iter().map(|(id, agent)| agent.facts(id)).collect();
    let home = (&*snapshot.catalog, agents.as_slice());
    let outcomes = snapshot.policy.run_cases(&SourceFile::new(name, text), home, &mut diagnostics);
    let broken = |d: &Diagnostic| Verdict { name: name.to_owned(), ok: false, diff: d.to_string() };
    let broken = diagnostics.0.iter().map(|d| (broken(d), Vec::new()));
    let ran = outcomes.into_iter().map(|o| (Verdict { name: o.name, ok: o.ok, diff: o.diff }, o.reached));
    broken.chain(ran).collect()
}

/// Runs one case of a pack: where it differs (empty where it holds) and what an update would write.
fn run_case(opened: &Opened, covered: Option<&Covered>, file: &CaseFile, at: usize) -> (String, Updates) {
    let Some(case) = file.cases.get(at) else { return (String::new(), Vec::new()) };
    let pack = file.name.split('/').nth(1).unwrap_or_default();
    run_shape(opened, covered, file, pack, case)
        .unwrap_or_else(|error| (format!("the case cannot be run: {error}"), Vec::new()))
}

fn run_shape(
    opened: &Opened,
    covered: Option<&Covered>,
    file: &CaseFile,
    pack: &str,
    value: &Value,
) -> Result<(String, Updates), String> {
    let case: ProjectionCase = case::parse(value)?;
    let full = format!("{pack}.{}", case.tool);
    let snapshot = opened.snapshot();
    let catalog = &snapshot.catalog;
    let (no, tool) = catalog.lookup(&full).or_else(|| catalog.lookup(&case.tool)).ok_or_else(|| {
        format!("there is no tool `{full}`; tools of MCP servers are known only while serving")
    })?;
    let projection = match covered {
        Some(covered) => covered.projections.get(tool.id.as_str()).cloned(),
        None => snapshot.plan(no).and_then(|p| p.projection.clone()),
    };
    let path = opened.app.dir().join(&file.name);
    let folder = path.parent().unwrap_or(opened.app.dir());
    let budget = snapshot.settings.budgets.of_result();
    let made = shape::run(&case, tool.id.as_str(), projection.as_deref(), &budget, folder)?;
    let (mut diff, mut updates) = (String::new(), Updates::new());
    if let (Some(expected), Some(found)) = (&case.request, &made.request)
        && !holds(expected, found)
    {
        add_diff(&mut diff, "request", expected, found);
        updates.push(("request", found.clone()));
    }
    if let (Some(expected), Some(found)) = (&case.requests, &made.requests) {
        let same = expected.len() == found.len() && expected.iter().zip(found).all(|(e, f)| holds(e, f));
        if !same {
            let (expected, found) = (Value::from(expected.clone()), Value::from(found.clone()));
            add_diff(&mut diff, "requests", &expected, &found);
            updates.push(("requests", found));
        }
    }
    let expected = [
        ("expect", case.expect.clone()),
        ("text", case.text.clone().map(Value::from)),
        ("error", case.error.clone()),
    ];
    let mut stated = expected.into_iter().filter_map(|(key, value)| Some((key, value?)));
    match (stated.next(), stated.next(), &made.result) {
        (_, Some(_), _) => return Err("a case states one of `expect`, `text` and `error`".to_owned()),
        (None, None, None) => {}
        (None, None, Some((key, found))) => {
            diff = format!(
                "the case expects nothing; `docent test --update` writes what came out\n+ {key}: {found}"
            );
            updates.push((key, found.clone()));
        }
        (Some((key, value)), None, Some((kind, found))) => {
            let same = match key {
                "error" => key == *kind && error_holds(&value, found),
                _ => key == *kind && value == *found,
            };
            if !same {
                let name = |k: &str, v: &Value| serde_json::json!({ k: v });
                add_diff(&mut diff, "result", &name(key, &value), &name(kind, found));
                updates.push((kind, found.clone()));
            }
        }
        (Some(_), None, None) => return Err("a result is expected, but there is no `reply`".to_owned()),
    }
    if let (false, Some(detail)) = (diff.is_empty(), made.detail) {
        diff = format!("{diff}\nnote: {detail}");
    }
    Ok((diff, updates))
}

/// Whether everything that `expected` states stands in `found`.
fn holds(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(e), Value::Object(f)) => e.iter().all(|(k, v)| f.get(k).is_some_and(|f| holds(v, f))),
        _ => expected == found,
    }
}

/// An expected failure is a code alone, or a table of which only what it states is compared.
fn error_holds(expected: &Value, found: &Value) -> bool {
    match expected {
        Value::String(code) => found.get("code").and_then(Value::as_str) == Some(code),
        table => holds(table, found),
    }
}

fn add_diff(out: &mut String, what: &str, expected: &Value, found: &Value) {
    let pretty = |v: &Value| serde_json::to_string_pretty(v).unwrap_or_default() + "\n";
    let (expected, found) = (pretty(expected), pretty(found));
    let diff = TextDiff::from_lines(&expected, &found);
    let text = diff.unified_diff().context_radius(2).to_string();
    // Writing to a String cannot fail.
    write!(out, "{what} (- expected, + found)\n{text}").ok();
}

/// Runs a case that was just made and writes what came out as its expectation; `Err` says why it cannot run.
pub(super) fn settle(opened: &Opened, file: &mut CaseFile, at: usize) -> Result<(), String> {
    let (diff, updates) = run_case(opened, None, file, at);
    if !diff.is_empty() && updates.is_empty() {
        return Err(diff);
    }
    apply(file, at, updates);
    let (diff, _) = run_case(opened, None, file, at);
    if diff.is_empty() { Ok(()) } else { Err(format!("it comes out another way each time\n{diff}")) }
}

/// Puts new expectations into a case; the other kinds of expectation go.
fn apply(file: &mut CaseFile, at: usize, updates: Updates) {
    let Some(Value::Object(case)) = file.cases.get_mut(at) else { return };
    for (key, value) in updates {
        if key != "request" && key != "requests" {
            for other in ["expect", "text", "error"].iter().filter(|k| **k != key) {
                case.shift_remove(*other);
            }
        }
        case.insert(key.to_owned(), value);
    }
}
