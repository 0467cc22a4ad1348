//! What a call asks of its own client: the questions of its script, and what came in answer.
//!
//! A client keeps nothing for us between two requests, so what was answered before travels with it: sealed, bound
//! to the caller, the tool and the arguments.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::call::{Asking, ClientRequest, ToolError};
use crate::catalog::Tool;
use crate::cursor::{Binding, Digest, Parts};
use crate::json::{self, Object};

use super::invoke::Decided;
use super::{CallAnswer, Gateway, RequestContext, failure};

/// How long a client may take to bring an answer: a person has to see the question.
pub(super) const STATE_TTL_MS: u64 = 10 * 60 * 1_000;
/// Bytes of a state at most: the answers of earlier rounds.
const STATE_BYTES_MAX: usize = 128 * 1024;

/// Questions to a client (MCP: elicitation, sampling, roots).
#[derive(Debug, Clone)]
pub struct ClientQuestion {
    /// What is asked, each under a key of its own.
    pub requests: Vec<ClientRequest>,
    /// What has to come back with the answers.
    pub state: String,
}

/// What a client brought in answer to earlier questions. Nothing in it is believed before the state is checked.
#[derive(Debug, Clone, Default)]
pub struct ClientReply {
    /// Answers by key.
    pub responses: Object,
    /// The state as it came back.
    pub state: Option<String>,
}

/// What the script of one call asked so far.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Whether the client's word was taken for this call.
    pub(super) confirmed: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The answers that the script was given.
    used: Object,
    /// What the call comes to because of a question.
    answer: Option<CallAnswer>,
}

impl Asked {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the call comes to because of a question, if the script asked one that is not answered.
    pub(super) fn take(&self) -> Option<CallAnswer> {
        self.inner().answer.take()
    }

    /// Puts an answer back for whoever made the call.
    pub(super) fn put(&self, answer: CallAnswer) {
        self.inner().answer = Some(answer);
    }

    /// Ends the script; its own failure is not told, the answer is.
    fn ends(&self, answer: CallAnswer) -> ToolError {
        self.put(answer);
        failure::internal()
    }

    /// The answers to a script's questions, or the error that ends it until they come.
    pub(super) fn ask(
        &self,
        gateway: &Gateway,
        call: &Decided,
        arguments: &Object,
        questions: Vec<ClientRequest>,
    ) -> Result<Object, ToolError> {
        let ctx = &call.ctx;
        let missing: Vec<Asking> =
            questions.iter().map(|q| q.asking).filter(|a| !ctx.negotiated.can(*a)).collect();
        if !missing.is_empty() {
            return Err(self.ends(CallAnswer::CannotAsk(missing)));
        }
        let binding = binding("ask", ctx, &call.tool, arguments, "");
        let key = gateway.cursor_key(&call.snapshot);
        let now = gateway.clock().unix_ms();
        let mut known = Object::new();
        if let Some(reply) = ctx.reply.as_deref() {
            let state = reply.state.as_deref().map(|token| key.open_text(&binding, token, STATE_BYTES_MAX));
            match state {
                Some(Ok(text)) => {
                    known = State::read(&text).filter(|s| s.until > now).map_or(known, |s| s.answers);
                }
                // It may be the state of the confirmation that this very request brought.
                Some(Err(_)) if !self.confirmed.load(Ordering::Relaxed) => {
                    return Err(self.ends(CallAnswer::BadState));
                }
                Some(Err(_)) | None => {}
            }
            known.extend(reply.responses.clone());
        }
        let mut answers = Object::new();
        let mut open = Vec::new();
        for question in questions {
            match known.get(&question.key) {
                Some(answer) => drop(answers.insert(question.key, answer.clone())),
                None => open.push(question),
            }
        }
        self.inner().used.extend(answers.clone());
        if open.is_empty() {
            return Ok(answers);
        }
        let confirmed = self.confirmed.load(Ordering::Relaxed);
        let used = self.inner().used.clone();
        let state =
            json!({ "until": now.saturating_add(STATE_TTL_MS), "answers": used, "confirmed": confirmed });
        let state = key.seal_text(&binding, &json::to_text(&state));
        Err(self.ends(CallAnswer::Ask(Box::new(ClientQuestion { requests: open, state }))))
    }
}

/// What a state of this module holds.
struct State {
    until: u64,
    answers: Object,
    confirmed: bool,
}

impl State {
    fn read(text: &str) -> Option<Self> {
        let value = json::parse(text.as_bytes(), text.len()).ok()?;
        Some(Self {
            until: value.get("until")?.as_u64()?,
            answers: value.get("answers")?.as_object()?.clone(),
            confirmed: value.get("confirmed").and_then(Value::as_bool).unwrap_or(false),
        })
    }
}

/// Whether the state of a script's question says that this call was confirmed by its client before.
pub(super) fn was_confirmed(
    gateway: &Gateway,
    ctx: &RequestContext,
    (snapshot, tool): (&crate::snapshot::Snapshot, &Tool),
    arguments: &Object,
) -> bool {
    let token = ctx.reply.as_deref().and_then(|r| r.state.as_deref());
    let binding = binding("ask", ctx, tool, arguments, "");
    let key = gateway.cursor_key(snapshot);
    let state = token.and_then(|t| key.open_text(&binding, t, STATE_BYTES_MAX).ok());
    let now = gateway.clock().unix_ms();
    state.and_then(|text| State::read(&text)).is_some_and(|s| s.confirmed && s.until > now)
}

/// What an answer is bound to: the caller, the tool, the arguments, and the question where it is shown to people.
pub(super) fn binding(
    purpose: &'static str,
    ctx: &RequestContext,
    tool: &Tool,
    arguments: &Object,
    question: &str,
) -> Binding<'static> {
    let digest = |both: [&[u8]; 2]| -> Digest {
        let mut parts = Parts::default();
        for part in both {
            parts.add(part);
        }
        parts.digest()
    };
    Binding {
        purpose,
        class: digest([ctx.principal.subject.as_bytes(), b"caller"]),
        question: digest([tool.id.as_str().as_bytes(), &json::canonical_object(arguments)]),
        state: digest([question.as_bytes(), b"question"]),
    }
}
