//! The confirm gate: a call that a person has to say yes to first.
//!
//! The person answers through the client where the policy takes a client's word (`confirm_by_client`) and the
//! client can ask, else an operator answers at the console. A client's answer is good for the one call it was
//! asked about; an operator's is a grant for one caller and one tool, which ends by itself.

mod book;
mod summary;

pub(super) use book::Book;
pub use book::{GrantView, PendingView, SettleError, Verdict};

use std::sync::Arc;

use serde_json::{Value, json};

use crate::call::{Asking, ClientRequest, ErrorCode, ToolCall, ToolError};
use crate::catalog::Tool;
use crate::id::ToolNo;
use crate::json::{self, Object};
use crate::policy::{Confirmation, Decision, Permit};
use crate::store::StoreError;

use super::ask::{STATE_TTL_MS, binding, was_confirmed};
use super::view::View;
use super::{CallAnswer, ClientQuestion, Gateway, RequestContext, failure};
use book::{Asked, Cover};

const PURPOSE: &str = "confirm";
/// The one question of the gate.
const KEY: &str = "confirm";

/// Leave that a person gave.
pub(super) struct Confirmed {
    pub(super) permit: Permit,
    /// Whether it was the client's own word.
    pub(super) by_client: bool,
    /// `_meta` of the result: how long the grant behind it lasts, so that its end surprises nobody.
    pub(super) meta: Option<Value>,
}

impl Gateway {
    /// Settles a call that needs a confirmation: there is one, or the answer says how to get it.
    pub(super) async fn confirmed(
        &self,
        ctx: &RequestContext,
        view: &View,
        (no, tool): (ToolNo, &Tool),
        call: &ToolCall,
        (confirmation, may_ask): (&Confirmation, bool),
    ) -> Result<Confirmed, Box<CallAnswer>> {
        let asked = self.asked(ctx, tool, call, confirmation);
        let mut decayed = None;
        let mut by_client = false;
        let kept = |e: StoreError| {
            tracing::error!(tool.id = %tool.id, error = %e, "confirmations cannot be read or kept");
            boxed(failure::internal())
        };
        let meta = match self.confirmations().cover(self.store(), &asked).await.map_err(kept)? {
            Cover::Granted { expires_in, idle_in } => Some(json!({ "dev.docent/grant": {
                "tool": tool.id,
                "expires_in_seconds": expires_in,
                "idle_expires_in_seconds": idle_in,
            }})),
            Cover::Once => None,
            Cover::Denied => return Err(boxed(refused(&tool.wire_name))),
            uncovered => {
                if let Cover::Decayed(why) = uncovered {
                    decayed = Some(why);
                }
                if !(may_ask && confirmation.by_client && ctx.negotiated.elicitation) {
                    let waiting = self.confirmations().ask(self.store(), &asked).await.map_err(kept)?;
                    let waits = failure::confirmation_waits(&tool.wire_name, confirmation, &waiting, decayed);
                    return Err(boxed(waits));
                }
                self.clients_word(ctx, view, tool, (&call.arguments, &asked)).await?;
                by_client = true;
                None
            }
        };
        match view.snapshot.policy.decide_confirmed(view.catalog(), &ctx.principal, no, &call.arguments) {
            Decision::Permit(permit) => Ok(Confirmed { permit, by_client, meta }),
            other => Err(Box::new(Self::refuse(ctx, tool, other))),
        }
    }

    fn asked(
        &self,
        ctx: &RequestContext,
        tool: &Tool,
        call: &ToolCall,
        confirmation: &Confirmation,
    ) -> Asked {
        let arguments = json::canonical_object(&call.arguments);
        Asked {
            caller: Arc::clone(&ctx.principal.subject),
            tool: tool.id.clone(),
            question: Arc::clone(&confirmation.question),
            rule: confirmation.rule.clone(),
            arguments: *blake3::hash(&arguments).as_bytes(),
            summary: summary::of(&call.arguments),
            now_ms: self.clock().unix_ms(),
        }
    }

    /// The client's own answer: yes, or what to tell the client instead.
    async fn clients_word(
        &self,
        ctx: &RequestContext,
        view: &View,
        tool: &Tool,
        (arguments, asked): (&Object, &Asked),
    ) -> Result<(), Box<CallAnswer>> {
        if was_confirmed(self, ctx, (&view.snapshot, tool), arguments) {
            return Ok(());
        }
        let binding = binding(PURPOSE, ctx, tool, arguments, &asked.question);
        let key = self.cursor_key(&view.snapshot);
        let ask = || {
            let position = self.confirmations().fresh(asked.now_ms.saturating_add(STATE_TTL_MS));
            let mut params = Object::new();
            params.insert("message".to_owned(), question(&tool.wire_name, asked).into());
            // A form without fields: accepting or declining is the answer.
            params.insert("requestedSchema".to_owned(), json!({ "type": "object", "properties": {} }));
            let request = ClientRequest { key: KEY.to_owned(), asking: Asking::Elicitation, params };
            let state = key.seal(&binding, position);
            Box::new(CallAnswer::Ask(Box::new(ClientQuestion { requests: vec![request], state })))
        };
        let Some(reply) = ctx.reply.as_deref() else { return Err(ask()) };
        let Some(token) = &reply.state else { return Err(ask()) };
        let Ok(position) = key.open(&binding, token) else { return Err(Box::new(CallAnswer::BadState)) };
        let action = reply.responses.get(KEY).and_then(|r| r.get("action")).and_then(Value::as_str);
        match action {
            Some("accept") if self.spend(position, asked.now_ms).await => {
                tracing::info!(
                    tool.id = %tool.id,
                    principal.id = %asked.caller,
                    policy.rule = %asked.rule,
                    "a call was confirmed by its client"
                );
                Ok(())
            }
            Some("decline" | "cancel") => Err(boxed(refused(&tool.wire_name))),
            // Nothing, something else, an answer that is too old or was used before: the question stands.
            _ => Err(ask()),
        }
    }

    /// Uses up an answer. One that cannot be noted as used is none.
    async fn spend(&self, position: u64, now_ms: u64) -> bool {
        self.store().spend(position, now_ms).await.unwrap_or_else(|error| {
            tracing::error!(error = %error, "an answer cannot be noted as used");
            false
        })
    }

    /// What waits for an operator, and the grants that hold.
    pub async fn confirmations_overview(&self) -> Result<(Vec<PendingView>, Vec<GrantView>), SettleError> {
        Book::list(self.store(), self.clock().unix_ms()).await
    }

    /// An operator's answer to a question. Nobody answers its own.
    pub async fn settle_confirmation(&self, id: &str, by: &str, verdict: Verdict) -> Result<(), SettleError> {
        Book::settle(self.store(), id, by, verdict, self.clock().unix_ms()).await
    }

    /// Ends a grant before its time.
    pub async fn revoke_grant(&self, id: &str) -> Result<(), SettleError> {
        Book::revoke(self.store(), id).await
    }
}

fn boxed(error: ToolError) -> Box<CallAnswer> {
    Box::new(error.into())
}

fn question(tool: &str, asked: &Asked) -> String {
    let arguments = if asked.summary.is_empty() { "no arguments" } else { &asked.summary };
    format!("{}\n\nThe call: {tool} with {arguments}", asked.question)
}

fn refused(tool: &str) -> ToolError {
    ToolError::new(
        ErrorCode::Forbidden,
        format!("A person said no to this call of `{tool}`. Nothing was done; do not repeat it."),
    )
}
