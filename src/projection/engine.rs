//! A projection compiled from its spec: the request it makes, the shape it gives, the schema it keeps.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::compose::{Data, Finish};
use super::contract::{Contract, Definitions, SharedDefinitions};
use super::envelope::Notes;
use super::plan::{Found, Plan};
use super::pointer::Pointer;
use super::request::Request;
use super::sink::RecordSink;
use super::spec::{LinesSpec, MappingSpec, PagingMode, ProjectionSpec};
use super::{CallFacts, PackSources, ResultBudget, ScriptCalls, Shaped, bare, reply, scan};
use crate::call::{ErrorCode, ReplyBody, ToolError, UpstreamReply, UpstreamRequest};
use crate::catalog::Tool;
use crate::diagnostic::{Diagnostics, Severity};
use crate::json::{self as bounded, Object};
use crate::limits::RESULT_RECORDS;
use crate::schema::{SchemaText, Validators};

/// Compiles projections: one for a load of the home, so that scripts and schemas are shared.
#[derive(Debug, Default)]
pub struct Projector {
    validators: Arc<Validators>,
    packs: Mutex<Vec<(Arc<PackSources>, SharedDefinitions)>>,
}

impl Projector {
    /// A compiler that shares validators with the rest of the gateway.
    pub fn new(validators: Arc<Validators>) -> Self {
        Self { validators, packs: Mutex::default() }
    }

    /// Compiles one tool's shaping. `None`, with diagnostics, where it cannot be used.
    pub fn compile(
        &self,
        tool: &Tool,
        spec: &ProjectionSpec,
        diagnostics: &mut Diagnostics,
    ) -> Option<Projection> {
        let before = diagnostics.count(Severity::Error);
        let input = tool.input_schema.value();
        let definitions = self.definitions(&spec.pack, diagnostics);
        let request = spec.request.as_ref().map(|r| Request::compile(r, &spec.place, &input, diagnostics));
        let mapping = match (&spec.mapping, &spec.lines) {
            (Some(mapping), Some(_)) if mapping.collection.is_none() => {
                Some(MappingSpec { collection: Some(Pointer::default()), ..mapping.clone() })
            }
            (None, Some(lines)) => Some(lines.mapping()),
            (mapping, _) => mapping.clone(),
        };
        let contract = Contract::compose(
            &tool.name,
            spec,
            mapping.as_ref(),
            &definitions,
            &self.validators,
            diagnostics,
        );
        let takes = |name: &str| input.pointer(&format!("/properties/{name}")).is_some();
        let sound = diagnostics.count(Severity::Error) == before;
        sound.then(|| Projection {
            read_only: tool.annotations.is_read_only(),
            request,
            lines: spec.lines.clone(),
            mapping: mapping.map(|m| (Plan::compile(&m), m)),
            takes_offset: takes("offset"),
            takes_limit: takes("limit"),
            contract,
            validators: Arc::clone(&self.validators),
        })
    }

    /// The shared definitions of a pack, loaded (and their mistakes told) once.
    fn definitions(&self, pack: &Arc<PackSources>, diagnostics: &mut Diagnostics) -> SharedDefinitions {
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = packs.iter().find(|(p, _)| Arc::ptr_eq(p, pack)) {
            return Arc::clone(found);
        }
        let loaded = Arc::new(Definitions::load(&pack.schemas, diagnostics));
        packs.push((Arc::clone(pack), Arc::clone(&loaded)));
        loaded
    }
}

/// The compiled shaping of one tool. Immutable and shared.
#[derive(Debug)]
pub struct Projection {
    read_only: bool,
    request: Option<Request>,
    lines: Option<LinesSpec>,
    mapping: Option<(Plan, MappingSpec)>,
    takes_offset: bool,
    takes_limit: bool,
    contract: Contract,
    validators: Arc<Validators>,
}

impl Projection {
    /// Whether a script makes the whole result: call [`Projection::run`] instead of request, invoke, shape.
    pub fn is_script(&self) -> bool {
        false
    }

    /// What to ask the upstream: the template's or script's request, else the arguments for the adapter.
    pub fn request(&self, args: &Object, facts: &CallFacts) -> Result<UpstreamRequest, ToolError> {
        let _ = facts;
        match &self.request {
            Some(request) => request.build(args).map(UpstreamRequest::Http),
            None => Ok(UpstreamRequest::Arguments(args.clone())),
        }
    }

    /// Shapes a reply. Blocks for as long as a script may run where there is one.
    pub fn shape(
        &self,
        reply: &UpstreamReply,
        args: &Object,
        facts: &CallFacts,
        budget: &ResultBudget,
    ) -> Shaped {
        let finish = self.finish(&facts.correlation_id, budget, reply::size(reply));
        if let Some(error) = self.failed(reply) {
            return finish.failure(error);
        }
        if self.mapping.is_none() && matches!(self.contract, Contract::Free) {
            return bare::unprojected(reply, budget);
        }
        let mut notes = Notes::default();
        reply.warnings.iter().for_each(|w| notes.warn(w));
        match self.data(reply, args, budget, &mut notes) {
            Ok(data) => finish.success(data, notes),
            Err(why) => finish.unreadable(&why),
        }
    }

    /// Runs the script's `run(args, ctx)`; `calls` is used from this thread and may block it.
    pub fn run(
        &self,
        args: &Object,
        facts: &CallFacts,
        calls: &Arc<dyn ScriptCalls>,
        budget: &ResultBudget,
    ) -> Shaped {
        let _ = (args, calls, budget);
        Shaped::failed(bare::internal(&facts.correlation_id), 0)
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

    fn finish<'a>(
        &'a self,
        correlation_id: &'a str,
        budget: &'a ResultBudget,
        bytes_in: usize,
    ) -> Finish<'a> {
        let (contract, validators) = (&self.contract, &*self.validators);
        Finish { contract, validators, budget, correlation_id, bytes_in }
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
        budget: &ResultBudget,
        notes: &mut Notes,
    ) -> Result<Data, String> {
        let source = match &self.lines {
            Some(lines) => Cow::Owned(lines.to_json(&reply::plain_text(reply))),
            None => reply::json_text(reply)?,
        };
        match &self.mapping {
            Some((plan, spec)) => self.mapped(plan, spec, &source, args, budget, notes),
            None => Data::read(scan::checked(source.as_bytes())?, budget.records, notes),
        }
    }

    fn mapped(
        &self,
        plan: &Plan,
        spec: &MappingSpec,
        source: &str,
        args: &Object,
        budget: &ResultBudget,
        notes: &mut Notes,
    ) -> Result<Data, String> {
        let family = match &self.contract {
            Contract::Enveloped(envelope) => envelope.family_names().next().unwrap_or_default().to_owned(),
            Contract::Free | Contract::Bare(_) => String::new(),
        };
        let window = self.window(spec, args, budget);
        let keep = match &self.contract {
            Contract::Enveloped(envelope) => envelope.required(&family).1,
            Contract::Free | Contract::Bare(_) => &[],
        };
        let mut sink = RecordSink::new(window.limit, budget.result_bytes).keeping(keep);
        if window.local {
            sink = sink.skipping(window.offset);
        }
        let found = plan.run(source, &mut sink)?;
        sink.fault()?;
        notes.cuts(found.cuts);
        if sink.shrunk() {
            notes.omit("members and texts of a record", None, "byte_budget", "ask for fewer fields");
        }
        if !plan.is_list() {
            let record = sink.into_parts().pop().ok_or("the record does not fit the budget at all")?;
            return Ok(Data::Other { text: in_family(&family, &record), family });
        }
        Ok(window.page(family, spec, &found, sink))
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

/// A bare record, `{kind: "record", record}` for the generated family, its members beside `kind` for others.
fn in_family(family: &str, record: &str) -> String {
    match (family, record.strip_prefix('{')) {
        ("", _) | (_, None) => record.to_owned(),
        ("record", _) => format!("{{\"kind\":\"record\",\"record\":{record}}}"),
        (name, Some("}")) => format!("{{\"kind\":{}}}", bounded::to_text(name)),
        (name, Some(rest)) => format!("{{\"kind\":{},{rest}", bounded::to_text(name)),
    }
}

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
        let (over_bytes, returned) = (sink.over_bytes(), wide(sink.len()));
        let offset = wide(self.offset);
        let total = if complete { Some(found.records) } else { found.total };
        let before = if self.local { offset.min(found.records) } else { 0 };
        let beyond = found.records.saturating_sub(before + returned);
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
        // A window that the caller asked for leaves nothing out; a ceiling of docent does.
        let asked = self.local && !over_bytes;
        let why = if over_bytes { "byte_budget" } else { "limit" };
        Data::Page { family, items: sink.into_parts(), page, beyond: if asked { 0 } else { beyond }, why }
    }
}

impl LinesSpec {
    /// The mapping of a table without one: every line a record, every column a field.
    fn mapping(&self) -> MappingSpec {
        let pointer = |name: &String| Pointer(vec![super::pointer::Step::Key(name.clone())]);
        MappingSpec {
            collection: Some(Pointer::default()),
            fields: self.columns.iter().map(|c| (c.clone(), pointer(c))).collect(),
            paging: PagingMode::Complete,
            ..MappingSpec::default()
        }
    }
}
