//! A projection compiled from its spec: the request it makes, the shape it gives, the schema it keeps.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::compose::{Data, Finish};
use super::context::Mapped;
use super::contract::Contract;
use super::envelope::Notes;
use super::plan::{Found, Plan};
use super::request::Request;
use super::scan::{self, Ceilings};
use super::script::{Roles, described};
use super::sink::RecordSink;
use super::spec::{LinesSpec, MappingSpec, PagingMode};
use super::{CallFacts, Fields, ResultBudget, ScriptCalls, Shaped, bare, reply};
use crate::call::{ErrorCode, ReplyBody, ToolError, UpstreamReply, UpstreamRequest};
use crate::json::{self as bounded, Object};
use crate::limits::RESULT_RECORDS;
use crate::schema::{SchemaText, Validators};

/// The compiled shaping of one tool. Immutable and shared.
#[derive(Debug)]
pub struct Projection {
    pub(super) read_only: bool,
    pub(super) request: Option<Request>,
    pub(super) roles: Option<Roles>,
    pub(super) lines: Option<LinesSpec>,
    pub(super) mapping: Option<(Plan, MappingSpec)>,
    pub(super) takes_offset: bool,
    pub(super) takes_limit: bool,
    /// Defaults of the input schema, for arguments that are absent.
    pub(super) defaults: Object,
    pub(super) contract: Contract,
    pub(super) validators: Arc<Validators>,
}

/// Bytes of a mapping's records that a script is handed besides: more than any result keeps.
const MAPPED_BYTES_MAX: usize = 1024 * 1024;

impl Projection {
    /// Whether a script makes the whole result: call [`Projection::run`] instead of request, invoke, shape.
    pub fn is_script(&self) -> bool {
        self.roles.as_ref().is_some_and(Roles::runs)
    }

    /// Whether a script takes part: requesting and shaping may then take as long as it is allowed to.
    pub fn has_script(&self) -> bool {
        self.roles.is_some()
    }

    /// Whether an argument is sent as bytes, so that a file in its place keeps its name and type.
    pub fn sends_bytes_of(&self, argument: &str) -> bool {
        self.request.as_ref().is_some_and(|request| request.sends_bytes_of(argument))
    }

    /// Whether its results take the form of tools that have none of their own: it neither maps nor projects, and
    /// names no family and no schema. A script that makes the whole result may still give content blocks.
    pub fn is_plain(&self) -> bool {
        let projects = self.roles.as_ref().is_some_and(Roles::projects);
        let shapes = !self.is_script() && (self.mapping.is_some() || projects);
        !shapes && matches!(self.contract, Contract::Free)
    }

    /// What to ask the upstream: the template's or script's request, else the arguments for the adapter.
    pub fn request(&self, args: &Object, facts: &CallFacts) -> Result<UpstreamRequest, ToolError> {
        if let Some(roles) = self.roles.as_ref().filter(|r| r.requests()) {
            let asked = roles.request(&self.filled(args), facts);
            return asked.map(UpstreamRequest::Http).map_err(|(error, detail)| {
                if !detail.is_empty() {
                    tracing::error!(tool.id = %facts.tool, request.id = %facts.correlation_id, detail, "a request script failed");
                }
                error
            });
        }
        match &self.request {
            Some(request) => request.build(&self.filled(args)).map(UpstreamRequest::Http),
            None => Ok(UpstreamRequest::Arguments(args.clone())),
        }
    }

    fn filled(&self, args: &Object) -> Object {
        let mut filled = self.defaults.clone();
        filled.extend(args.iter().map(|(k, v)| (k.clone(), v.clone())));
        filled
    }

    /// Shapes a reply. Blocks for as long as a script may run where there is one.
    pub fn shape(
        &self,
        reply: &UpstreamReply,
        args: &Object,
        facts: &CallFacts,
        budget: &ResultBudget,
    ) -> Shaped {
        let finish = self.finish(facts, budget, reply::size(reply));
        let args = &self.filled(args);
        let own = self.roles.as_ref().map_or(Ok(None), |r| r.failed(reply, args, facts));
        match own {
            Ok(Some(error)) => return finish.failure(error),
            Ok(None) => {}
            Err(error) => {
                let internal = bare::internal(&facts.correlation_id);
                return finish.failure(internal).with_detail(described(&error));
            }
        }
        if let Some(error) = self.failed(reply) {
            return finish.failure(error);
        }
        let projecting = self.roles.as_ref().filter(|r| r.projects());
        if self.is_plain() {
            return bare::unprojected(reply, facts, budget);
        }
        let mut notes = Notes::default();
        reply.warnings.iter().for_each(|w| notes.warn(w));
        if let Some(roles) = projecting {
            return match self.mapped_for_script(reply, args, budget, &mut notes) {
                Ok(mapped) => roles.project(reply, mapped, args, facts, notes, &finish),
                Err(why) => finish.unreadable(&why),
            };
        }
        match self.data(reply, args, &finish, &mut notes) {
            Ok(data) => finish.success(data, notes),
            Err(why) => finish.unreadable(&why),
        }
    }

    /// Runs the script's `run(args, ctx)`; `calls` is used from the thread that runs it and may block it.
    pub fn run(
        &self,
        args: &Object,
        facts: &CallFacts,
        calls: &Arc<dyn ScriptCalls>,
        budget: &ResultBudget,
    ) -> Shaped {
        let Some(roles) = &self.roles else {
            return Shaped::failed(bare::internal(&facts.correlation_id), 0);
        };
        roles.run(&self.filled(args), facts, calls, |bytes_in, conclude| {
            conclude(&self.finish(facts, budget, bytes_in))
        })
    }

    /// The schema that every success fits, to be advertised.
    pub fn output_schema(&self) -> Option<&SchemaText> {
        self.contract.schema()
    }

    /// A failure in the tool's own envelope, so that it fits the advertised schema too; `None` where the
    /// tool has none and the error is shown as it is.
    pub fn failure(&self, error: &ToolError, correlation_id: &str) -> Option<Value> {
        match &self.contract {
            Contract::Enveloped(envelope) => Some(envelope.failure(error, &Notes::default(), correlation_id)),
            Contract::Free | Contract::Bare(_) => None,
        }
    }

    /// The families that a result's data may have (seed 001), by name; none where it has no envelope.
    pub fn families(&self) -> Vec<&str> {
        match &self.contract {
            Contract::Enveloped(envelope) => envelope.family_names().collect(),
            Contract::Free | Contract::Bare(_) => Vec::new(),
        }
    }

    /// Checks which members a caller asks for against what this tool's results can have. A tool without a
    /// schema of its own takes any.
    pub fn check_fields(&self, fields: &Fields) -> Result<(), ToolError> {
        self.contract.check_fields(fields)
    }

    fn finish<'a>(&'a self, facts: &'a CallFacts, budget: &'a ResultBudget, bytes_in: usize) -> Finish<'a> {
        let (contract, validators) = (&self.contract, &*self.validators);
        Finish {
            contract,
            validators,
            budget,
            facts,
            bytes_in,
            is_plain: self.is_script() && self.is_plain(),
        }
    }

    /// What the status, or an MCP server's own verdict, says went wrong.
    fn failed(&self, reply: &UpstreamReply) -> Option<ToolError> {
        match &reply.body {
            ReplyBody::Mcp(mcp) if mcp.is_error => {
                let said = reply::message(reply);
                let text =
                    if said.is_empty() { "the upstream refused without a word".to_owned() } else { said };
                Some(ToolError::new(ErrorCode::UpstreamRejected, text))
            }
            ReplyBody::Mcp(_) => None,
            _ => reply::failure(reply, self.read_only),
        }
    }

    /// The reply's data under the mapping; `Err` says why it cannot be read.
    fn data(
        &self,
        reply: &UpstreamReply,
        args: &Object,
        finish: &Finish<'_>,
        notes: &mut Notes,
    ) -> Result<Data, String> {
        let source = self.source(reply)?;
        match &self.mapping {
            Some((plan, spec)) => self.mapped(plan, spec, &source, args, finish, notes),
            None => {
                let mut compact = String::with_capacity(source.len());
                scan::copy(scan::checked(source.as_bytes())?, Ceilings::NONE, &mut compact)
                    .map_err(|e| e.to_string())?;
                finish.read(&compact, notes)
            }
        }
    }

    /// Runs the mapping into a sink.
    fn mapped(
        &self,
        plan: &Plan,
        spec: &MappingSpec,
        source: &str,
        args: &Object,
        finish: &Finish<'_>,
        notes: &mut Notes,
    ) -> Result<Data, String> {
        let (family, keep): (String, &[String]) = match &self.contract {
            Contract::Enveloped(envelope) => {
                let family = envelope.family_names().next().unwrap_or_default();
                let (data, item) = envelope.required(family);
                (family.to_owned(), if plan.is_list() { item } else { data })
            }
            Contract::Free | Contract::Bare(_) => (String::new(), &[]),
        };
        let window = self.window(spec, args, finish.budget);
        let sink = |bytes: usize| {
            let mut sink =
                RecordSink::new(window.limit, bytes).keeping(keep).selecting(finish.facts.fields.as_ref());
            if let Some(keeping) = &finish.facts.keeping {
                // Of a complete list the caller's own window is all that could be missed.
                let records = if window.local { window.limit } else { usize::MAX };
                sink = sink.aside(records, keeping.bytes_max());
            }
            if window.local { sink.skipping(window.offset) } else { sink }
        };
        let mut shown = sink(finish.budget.result_bytes);
        let found = plan.run(source, &mut shown)?;
        shown.fault()?;
        notes.cuts(found.cuts);
        if shown.shrunk().is_some() {
            notes.omit("members and texts of a record", None, "byte_budget", "ask for fewer fields");
        }
        // Rare: a list inside a record was cut. Once more without that ceiling, for what is kept aside.
        let uncut = match &finish.facts.keeping {
            Some(keeping) if found.cuts.elements > 0 => {
                let mut all = sink(keeping.bytes_max());
                plan.with_all_elements().run(source, &mut all)?;
                Some(all.into_records())
            }
            _ => None,
        };
        if plan.is_list() {
            return Ok(window.page(family, spec, &found, shown).with_whole(uncut));
        }
        let whole = uncut.map(|all| all.into_first(1)).filter(|record| !record.is_empty());
        let whole = whole.or_else(|| shown.shrunk().map(str::to_owned));
        let record = shown.into_records().into_first(1);
        if record.is_empty() {
            return Err("the record does not fit the budget at all".to_owned());
        }
        let whole = whole.map(|whole| in_family(&family, whole));
        Ok(Data::Other { text: in_family(&family, record), family, whole })
    }

    /// What the mapping makes of a reply for the script beside it: a list of records, or one record.
    fn mapped_for_script(
        &self,
        reply: &UpstreamReply,
        args: &Object,
        budget: &ResultBudget,
        notes: &mut Notes,
    ) -> Result<Option<Mapped>, String> {
        let Some((plan, spec)) = &self.mapping else { return Ok(None) };
        let source = self.source(reply)?;
        let window = self.window(spec, args, budget);
        let mut sink = RecordSink::new(window.limit, MAPPED_BYTES_MAX);
        if window.local {
            sink = sink.skipping(window.offset);
        }
        let found = plan.run(&source, &mut sink)?;
        sink.fault()?;
        notes.cuts(found.cuts);
        let kept = u64::try_from(sink.shown()).unwrap_or(u64::MAX);
        if plan.is_list() && found.records > kept && (!window.local || sink.over_bytes()) {
            notes.omit("records", Some(found.records - kept), "limit", "narrow the query");
        }
        let records = sink.into_records();
        let text = records.first(records.len());
        let text = if plan.is_list() { format!("[{text}]") } else { text.to_owned() };
        Ok(Some(Mapped { text, records: found.records }))
    }

    /// The JSON text of a reply; a table of text becomes a list.
    fn source<'a>(&self, reply: &'a UpstreamReply) -> Result<Cow<'a, str>, String> {
        match &self.lines {
            Some(lines) => Ok(Cow::Owned(lines.to_json(&reply::plain_text(reply)))),
            None => reply::json_text(reply),
        }
    }

    fn window(&self, spec: &MappingSpec, args: &Object, budget: &ResultBudget) -> Window {
        let number =
            |name: &str| args.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let cap = spec.limit.unwrap_or(RESULT_RECORDS).min(budget.records).max(1);
        let limit = number("limit").filter(|_| self.takes_limit).unwrap_or(cap).clamp(1, cap);
        Window {
            offset: number("offset").filter(|_| self.takes_offset).unwrap_or(0),
            limit,
            local: spec.paging == PagingMode::Complete && (self.takes_offset || self.takes_limit),
            takes_offset: self.takes_offset,
        }
    }
}

/// A bare record, `{kind: "record", record}` for the generated family, its members beside `kind` for others. The
/// record is not copied: it may be as large as a result.
fn in_family(family: &str, mut record: String) -> String {
    if family.is_empty() || !record.starts_with('{') {
        return record;
    }
    if family == "record" {
        record.reserve_exact(RECORD_HEAD.len() + 1);
        record.insert_str(0, RECORD_HEAD);
        record.push('}');
        return record;
    }
    let comma = if record == "{}" { "" } else { "," };
    record.insert_str(1, &format!("\"kind\":{}{comma}", bounded::to_text(family)));
    record
}

/// What stands before a record of the generated family.
const RECORD_HEAD: &str = "{\"kind\":\"record\",\"record\":";

/// The part of a collection that a call asks for.
#[derive(Debug, Clone, Copy)]
struct Window {
    offset: usize,
    limit: usize,
    /// Whether docent itself cuts the window out of a complete collection.
    local: bool,
    takes_offset: bool,
}

impl Window {
    /// The page around records. What is not known is null, never guessed.
    fn page(self, family: String, spec: &MappingSpec, found: &Found, sink: RecordSink) -> Data {
        let complete = spec.paging == PagingMode::Complete;
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let (over_bytes, returned) = (sink.over_bytes(), wide(sink.shown()));
        let offset = wide(self.offset);
        let total = if complete { Some(found.records) } else { found.total };
        let before = if self.local { offset.min(found.records) } else { 0 };
        // A window that the caller asked for leaves nothing out beyond itself; a ceiling of docent does.
        let reach = found.records.saturating_sub(before);
        let reach = if self.local { reach.min(wide(self.limit)) } else { reach };
        let beyond = reach.saturating_sub(returned);
        let has_more = match total {
            Some(total) if complete || self.takes_offset => Some(offset + returned < total),
            _ if beyond > 0 => Some(true),
            _ => None,
        };
        let next = (has_more == Some(true) && self.takes_offset && returned > 0).then(|| offset + returned);
        let mode = match (complete, self.local) {
            (false, _) => "upstream",
            (true, true) => "local",
            (true, false) => "none",
        };
        let page = json!({
            "offset": offset,
            "limit": self.limit,
            "returned": returned,
            "total": total,
            "has_more": has_more,
            "next_offset": next,
            "mode": mode,
            "unit": spec.unit.as_deref().unwrap_or("records"),
        });
        let page = page.as_object().cloned().unwrap_or_default();
        let why = if over_bytes { "byte_budget" } else { "limit" };
        let (shown, whole_first) = (sink.shown(), sink.shrunk().map(str::to_owned));
        let mut items = sink.into_records();
        let mut first = None;
        if let Some(whole) = whole_first {
            first = items.iter().next().map(str::to_owned);
            items = std::iter::once(whole).chain(items.iter().skip(1).map(str::to_owned)).collect();
        }
        Data::Page { family, items, shown, first, whole: None, page, beyond, why }
    }
}
