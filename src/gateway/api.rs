//! What goes into and comes out of the use cases.

use std::sync::Arc;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::call::{Asking, ToolOutcome};
use crate::catalog::{TaskSupport, ToolAnnotations};
use crate::diagnostic::Diagnostic;
use crate::id::Generation;
use crate::jobs::JobView;
use crate::json;
use crate::policy::{DiscoveryMode, Principal, ScopeChallenge};
use crate::schema::SchemaText;
use crate::upstream::{ProgressSink, UpstreamStatus};

use super::{ClientQuestion, ClientReply, Tape};

/// Whom a request speaks for and how it may end early. The first parameter of every use case.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The caller.
    pub principal: Arc<Principal>,
    /// The discovery mode of the connection (`?discovery=`, `--discovery`): it beats every other source.
    pub discovery: Option<DiscoveryMode>,
    /// What client and server agreed on besides the protocol.
    pub negotiated: Negotiated,
    /// The correlation id: in every log line and error of the request, sent on to upstreams.
    pub correlation_id: Arc<str>,
    /// Fires when the caller gives up or the server drains.
    pub cancel: CancellationToken,
    /// Where progress goes, if the caller gave a token.
    pub progress: Option<ProgressSink>,
    /// What the client brought in answer to an earlier [`CallAnswer::Ask`].
    pub reply: Option<Arc<ClientReply>>,
    /// Where what passes between the call and its upstreams is taped, for `docent record` alone.
    pub tape: Option<Tape>,
    /// Whether `cancel` may fire for a connection that was merely lost: a keyed call then waits a little for its
    /// caller to come back.
    pub may_return: bool,
}

/// Extensions that a client declared and the server has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// `dev.docent/progressive-tool-discovery`: the list is the entry catalog, results have one canonical half.
    pub progressive: bool,
    /// `io.modelcontextprotocol/tasks`: a call that takes long is answered with a task.
    pub tasks: bool,
    /// `io.modelcontextprotocol/agents`: every tool that an agent names must be in the list, so the list is
    /// always complete, and the extension above does not apply.
    pub agents: bool,
    /// Elicitation in form mode: the client can ask the person in front of it.
    pub elicitation: bool,
    /// The client lends its model.
    pub sampling: bool,
    /// The client tells its folders.
    pub roots: bool,
}

impl Negotiated {
    /// Whether the list is the entry catalog and results are canonical.
    pub fn is_progressive(self) -> bool {
        self.progressive && !self.agents
    }

    /// Whether the client can be asked for something.
    pub fn can(self, asking: Asking) -> bool {
        match asking {
            Asking::Elicitation => self.elicitation,
            Asking::Sampling => self.sampling,
            Asking::Roots => self.roots,
        }
    }

    /// Whether the client can be asked for anything.
    pub fn can_be_asked(self) -> bool {
        Asking::ALL.into_iter().any(|asking| self.can(asking))
    }

    /// The same with a client that cannot be asked.
    #[must_use]
    pub fn without_asking(self) -> Self {
        Self { elicitation: false, sampling: false, roots: false, ..self }
    }
}

impl RequestContext {
    /// A context that nothing cancels, without progress and without a connection mode.
    pub fn new(principal: Arc<Principal>, correlation_id: impl Into<Arc<str>>) -> Self {
        Self {
            principal,
            discovery: None,
            negotiated: Negotiated::default(),
            correlation_id: correlation_id.into(),
            cancel: CancellationToken::new(),
            progress: None,
            reply: None,
            tape: None,
            may_return: false,
        }
    }
}

/// A tool as a list shows it. Made once per generation and shared by every page that shows it.
#[derive(Debug, Clone)]
pub struct ToolEntry {
    /// The wire name: what a caller writes in `tools/call`.
    pub name: Arc<str>,
    /// A title for people.
    pub title: Option<Arc<str>>,
    /// What it does, for models.
    pub description: Arc<str>,
    /// The input schema as shown: an object at its root.
    pub input_schema: SchemaText,
    /// The output schema, where docent guarantees one.
    pub output_schema: Option<SchemaText>,
    /// MCP's hints.
    pub annotations: ToolAnnotations,
    /// Whether a direct call is answered with a task, where that is to be told.
    pub tasks: Option<TaskSupport>,
}

impl ToolEntry {
    /// What the entry takes on the wire in bytes, a little more rather than less.
    pub fn bytes(&self) -> usize {
        /// Member names, punctuation and all five annotations.
        const FRAME: usize = 260;
        /// What is told of tasks.
        const EXECUTION: usize = 44;
        FRAME
            + self.tasks.map_or(0, |_| EXECUTION)
            + self.name.len()
            + self.title.as_deref().map_or(0, json::encoded_len)
            + json::encoded_len(&*self.description)
            + self.input_schema.len()
            + self.output_schema.as_ref().map_or(0, SchemaText::len)
            + self.annotations.title.as_deref().map_or(0, json::encoded_len)
    }
}

/// One page of the list of tools.
#[derive(Debug, Clone, Default)]
pub struct ToolPage {
    /// The generation that the entries are of.
    pub generation: Generation,
    /// The entries: on the first page the meta-tools come first, then tools in id order.
    pub tools: Vec<Arc<ToolEntry>>,
    /// The token of the next page, if there is one.
    pub next_cursor: Option<String>,
}

/// Why there is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The cursor is malformed, forged, another caller's, or of an older generation: one answer for all.
    #[error("the cursor is not valid (any more); start again without it")]
    BadCursor,
}

/// What became of a call.
#[derive(Debug, Clone)]
pub enum CallAnswer {
    /// It was carried out, or it failed in a way that the model should read.
    Outcome(ToolOutcome),
    /// No such tool for this caller: unknown and hidden give this one answer.
    UnknownTool,
    /// It goes on as a job: the caller's patience ended first.
    Running(Box<JobView>),
    /// More scopes are needed first. On HTTP this is a 403 before any byte of a body.
    Challenge(ScopeChallenge),
    /// The client is to be asked; the call comes again with the answer
    /// ([`RequestContext::reply`]). Only where the client declared that it can ask.
    Ask(Box<ClientQuestion>),
    /// The tool needs what its client did not declare.
    CannotAsk(Vec<Asking>),
    /// The tool is answered with a task only, and the client takes none.
    NeedsTask,
    /// The state that came with an answer is not one that docent sealed for this call.
    BadState,
}

/// What a caller may rely on, as one digest: equal digests mean an equal surface hash and the same discovery
/// mode. A description that is reworded moves neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Surface(pub [u8; 32]);

/// Whether the server does its work, for `/readyz`.
#[derive(Debug, Clone, Serialize)]
pub struct Readiness {
    /// Whether everything is as the home wants it.
    pub ready: bool,
    /// The generation that serves.
    pub generation: Generation,
    /// Why it is not ready: one sentence each.
    pub reasons: Vec<String>,
    /// The mistakes of a reload that failed; the generation before it serves on.
    pub diagnostics: Vec<Diagnostic>,
    /// Every upstream's state.
    pub upstreams: Vec<UpstreamStatus>,
}

impl From<crate::cursor::BadCursor> for ListError {
    fn from(_bad: crate::cursor::BadCursor) -> Self {
        Self::BadCursor
    }
}
