//! A projection compiled from its spec: the request it makes, the shape it gives, the schema it keeps.

use std::sync::Arc;

use super::request::Request;
use super::spec::ProjectionSpec;
use super::{CallFacts, ResultBudget, ScriptCalls, Shaped, bare};
use crate::call::{ToolError, UpstreamReply, UpstreamRequest};
use crate::catalog::Tool;
use crate::diagnostic::Diagnostics;
use crate::json::Object;
use crate::schema::{SchemaText, Validators};

/// Compiles projections: one for a load of the home, so that scripts and schemas are shared.
#[derive(Debug, Default)]
pub struct Projector {
    validators: Arc<Validators>,
}

impl Projector {
    /// A compiler that shares validators with the rest of the gateway.
    pub fn new(validators: Arc<Validators>) -> Self {
        Self { validators }
    }

    /// Compiles one tool's shaping. `None`, with diagnostics, where it cannot be used.
    pub fn compile(
        &self,
        tool: &Tool,
        spec: &ProjectionSpec,
        diagnostics: &mut Diagnostics,
    ) -> Option<Projection> {
        let before = diagnostics.count(crate::diagnostic::Severity::Error);
        let input = tool.input_schema.value();
        let request = spec.request.as_ref().map(|r| Request::compile(r, &spec.place, &input, diagnostics));
        let sound = diagnostics.count(crate::diagnostic::Severity::Error) == before;
        sound.then(|| Projection { request, validators: Arc::clone(&self.validators), output_schema: None })
    }
}

/// The compiled shaping of one tool. Immutable and shared.
#[derive(Debug)]
pub struct Projection {
    request: Option<Request>,
    validators: Arc<Validators>,
    output_schema: Option<SchemaText>,
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

    /// Shapes a reply. Blocking for as long as the script's deadline allows (50 ms) where there is one.
    pub fn shape(
        &self,
        reply: &UpstreamReply,
        args: &Object,
        facts: &CallFacts,
        budget: &ResultBudget,
    ) -> Shaped {
        let _ = (args, facts, &self.validators);
        bare::unprojected(reply, budget)
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
        self.output_schema.as_ref()
    }
}
