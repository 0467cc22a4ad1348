//! `docent policy diff OTHER_HOME` and `docent policy replay AUDIT`: what an edit changes, before it is shipped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::audit::{self, Read};
use crate::auth::Authenticator;
use crate::cli::open::{self, Reach};
use crate::cli::{Context, Failure, failure};
use crate::id::{AgentId, Scope};
use crate::json::Object;
use crate::policy::{Change, ComparedCaller, Principal, RuleRef, Side, diff};
use crate::snapshot::Snapshot;

/// Tells which decisions are others in another home: the same one after an edit.
#[derive(Debug, Args)]
pub(super) struct Diff {
    /// The home after the edit
    other: PathBuf,
    /// Print `{changed, unchanged, conditional}`
    #[arg(long)]
    json: bool,
}

/// Decides recorded calls anew: what would have become of them under the policies of this home.
#[derive(Debug, Args)]
pub(super) struct Replay {
    /// A file of records, or the folder `audit` of a data directory
    audit: PathBuf,
    /// Print `{records, replayed, unchanged, changed, unknown}`
    #[arg(long)]
    json: bool,
}

/// The callers of a home by name; `anonymous` where no token is needed.
pub(super) fn callers(of: &Authenticator) -> BTreeMap<String, Principal> {
    let names = of.names().chain(std::iter::once("anonymous"));
    names.filter_map(|n| Some((n.to_owned(), Principal::clone(&*of.caller(n)?)))).collect()
}

impl Diff {
    pub(super) fn run(&self, context: &mut Context) -> Result<(), Failure> {
        let before = open::open(context, Reach::Known)?;
        let after = self.other(context)?;
        let (before, after) = (before.snapshot(), after.snapshot());
        let (old, new) = (callers(&before.callers), callers(&after.callers));
        let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let compared: Vec<ComparedCaller> = names
            .into_iter()
            .map(|name| ComparedCaller {
                name: name.clone(),
                before: old.get(name).cloned(),
                after: new.get(name).cloned(),
            })
            .collect();
        let found = diff(of(&before), of(&after), &compared);
        if self.json {
            return context.out.json(&found);
        }
        for change in &found.changed {
            context.out.line(line(change))?;
        }
        let conditional = match found.conditional {
            0 => String::new(),
            n => format!("; {n} of them leave it to the arguments, which are not compared"),
        };
        context.out.line(format_args!(
            "{} changed, {} unchanged{conditional}",
            found.changed.len(),
            found.unchanged
        ))
    }

    fn other(&self, context: &Context) -> Result<open::Opened, Failure> {
        let other = Context {
            env: context.env.clone(),
            home: self.other.clone(),
            data: None,
            out: super::super::Output::stdout(),
        };
        open::open(&other, Reach::Known)
    }
}

fn of(snapshot: &Snapshot) -> Side<'_> {
    Side { policy: &snapshot.policy, catalog: &snapshot.catalog }
}

fn line(change: &Change) -> String {
    let rule = match &*change.rule.file {
        "" => "by default".to_owned(),
        _ => format!("by {}", change.rule),
    };
    let detail = if change.detail.is_empty() { String::new() } else { format!(" ({})", change.detail) };
    format!("{} → {}: {} → {}{detail}, {rule}", change.caller, change.tool, change.before, change.after)
}

/// What became of recorded calls.
#[derive(Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON that is printed")]
struct Replayed {
    /// Records of calls that were read.
    records: u64,
    /// Those that could be decided anew.
    replayed: u64,
    /// Those of them that are decided as they were.
    unchanged: u64,
    /// The others, alike ones together.
    changed: Vec<ReplayedChange>,
    /// What cannot be known, alike ones together. Not known is not allowed.
    unknown: Vec<Unknown>,
}

#[derive(Debug, Serialize)]
struct ReplayedChange {
    #[serde(flatten)]
    change: Change,
    /// How many records.
    records: u64,
    /// The number of the first.
    first: u64,
}

#[derive(Debug, Serialize)]
struct Unknown {
    caller: String,
    tool: String,
    reason: &'static str,
    records: u64,
}

impl Replay {
    pub(super) fn run(&self, context: &mut Context) -> Result<(), Failure> {
        let opened = open::open(context, Reach::Known)?;
        let mut replay = Replaying::new(opened.snapshot());
        let read = read(&self.audit, |record| replay.record(&record))?;
        if read.skipped > 0 {
            failure::say(format_args!("note: {} lines are no records", read.skipped));
        }
        let done = replay.finish();
        if self.json {
            return context.out.json(&done);
        }
        for ReplayedChange { change, records, first } in &done.changed {
            context.out.line(format_args!("{} ({records} records, first {first})", line(change)))?;
        }
        for Unknown { caller, tool, reason, records } in &done.unknown {
            context.out.line(format_args!("{caller} → {tool}: not known, {reason} ({records} records)"))?;
        }
        let unknown = done.records - done.replayed;
        context.out.line(format_args!(
            "{} calls: {} decided as they were, {} otherwise, {unknown} not known",
            done.records,
            done.unchanged,
            done.replayed - done.unchanged
        ))
    }
}

fn read(path: &Path, each: impl FnMut(Value)) -> Result<Read, Failure> {
    audit::read(path, each).map_err(Failure::failed)
}

struct Replaying {
    snapshot: Arc<Snapshot>,
    callers: BTreeMap<String, Principal>,
    out: Replayed,
    changed: BTreeMap<Change, (u64, u64)>,
    unknown: BTreeMap<(String, String, &'static str), u64>,
}

impl Replaying {
    fn new(snapshot: Arc<Snapshot>) -> Self {
        let callers = callers(&snapshot.callers);
        Self {
            snapshot,
            callers,
            out: Replayed::default(),
            changed: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    fn record(&mut self, record: &Value) {
        let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
        // docent's own tools have no upstream and no rule: nothing decides on them.
        if text("kind") != "call" || (text("upstream").is_empty() && text("decision") == "permit") {
            return;
        }
        self.out.records += 1;
        let (caller, tool) = (text("caller").to_owned(), text("tool").to_owned());
        // Hidden and not there are refused alike.
        let before = match text("decision") {
            "permit" => "permit",
            "challenge" => "challenge",
            "confirm" => "confirm",
            _ => "deny",
        };
        match self.decide(record, &caller, &tool) {
            Err(reason) if before != "deny" || reason != NO_TOOL => {
                *self.unknown.entry((caller, tool, reason)).or_default() += 1;
            }
            // What was not there is not there now either.
            Err(_) => {
                (self.out.replayed, self.out.unchanged) = (self.out.replayed + 1, self.out.unchanged + 1);
            }
            Ok((after, _)) if after == before => {
                (self.out.replayed, self.out.unchanged) = (self.out.replayed + 1, self.out.unchanged + 1);
            }
            Ok((after, rule)) => {
                self.out.replayed += 1;
                let seq = record.get("seq").and_then(Value::as_u64).unwrap_or(0);
                let change = Change { caller, tool, before, after, rule, detail: String::new() };
                self.changed.entry(change).or_insert((0, seq)).0 += 1;
            }
        }
    }

    fn decide(
        &self,
        record: &Value,
        caller: &str,
        tool: &str,
    ) -> Result<(&'static str, RuleRef), &'static str> {
        let Snapshot { catalog, policy, .. } = &*self.snapshot;
        let (no, _) = catalog.lookup(tool).ok_or(NO_TOOL)?;
        let who = self.principal(record, caller).ok_or("the record does not tell the caller's rights")?;
        let arguments = arguments(record);
        policy
            .verdict(catalog, &who, no, arguments.as_ref())
            .ok_or("it depends on arguments, whose values were not recorded (`audit_arguments = \"values\"`)")
    }

    /// The caller as it was then: its scopes, tier and agent are in the record, its claims are today's.
    fn principal(&self, record: &Value, caller: &str) -> Option<Principal> {
        let scopes = record.get("scopes")?.as_array()?;
        let text = |name: &str| record.get(name).and_then(Value::as_str);
        let known = self.callers.get(caller);
        Some(Principal {
            subject: Arc::from(caller),
            scopes: scopes.iter().filter_map(|s| Scope::parse(s.as_str()?).ok()).collect(),
            tier: text("tier").map(Arc::from),
            agent: text("agent").and_then(|a| AgentId::parse(a).ok()),
            claims: known.map_or_else(Arc::default, |k| Arc::clone(&k.claims)),
            ..Principal::default()
        })
    }

    fn finish(mut self) -> Replayed {
        self.out.changed = self
            .changed
            .into_iter()
            .map(|(change, (records, first))| ReplayedChange { change, records, first })
            .collect();
        let unknown = self.unknown.into_iter();
        self.out.unknown = unknown
            .map(|((caller, tool, reason), records)| Unknown { caller, tool, reason, records })
            .collect();
        self.out
    }
}

const NO_TOOL: &str = "the tool is not in the catalog";

/// The arguments of a record: their values, or none where there were none.
fn arguments(record: &Value) -> Option<Object> {
    let told = record.get("arguments")?;
    match told.get("values") {
        Some(Value::Object(values)) => Some(values.clone()),
        // `{}` has two bytes.
        _ if told.get("bytes").and_then(Value::as_u64) == Some(2) => Some(Object::new()),
        _ => None,
    }
}
