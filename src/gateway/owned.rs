//! What a caller's successful calls created: told to the policies (`owns`) and kept over a restart.

use std::sync::Arc;

use serde_json::Value;

use super::{Gateway, RequestContext};
use crate::call::ToolResult;
use crate::id::ToolNo;
use crate::snapshot::Snapshot;
use crate::store::StoreError;
use crate::store::owned::OwnedRow;

impl Gateway {
    /// Notes what a successful call created as its caller's own, where the pack says where the id stands. It is
    /// kept before the caller has its answer, so that nobody is told of a thing that it does not own.
    pub(super) async fn note_created(
        &self,
        ctx: &RequestContext,
        snapshot: &Snapshot,
        no: ToolNo,
        result: &ToolResult,
    ) {
        let Some(creates) = snapshot.plan(no).and_then(|plan| plan.hints.creates.as_ref()) else { return };
        let Some(structured) = result.structured.as_ref().filter(|_| !result.is_error) else { return };
        let value = structured.value();
        // Of a tool without a form of its own the pointer may be one into the upstream's answer, too.
        let inside = || value.get("data").filter(|_| result.is_plain)?.pointer(&creates.id);
        let id = match value.pointer(&creates.id).or_else(inside) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => return,
        };
        let subject = &ctx.principal.subject;
        if !snapshot.policy.ledger().created(subject, &creates.kind, &id) {
            return;
        }
        let row = OwnedRow { caller: subject.to_string(), kind: creates.kind.to_string(), id };
        if let Err(error) = self.store().created(row, self.clock().unix_ms()).await {
            // It is its own until the process ends; after that the policy refuses, which is the safe side.
            tracing::error!(error = %error, "what a call created is not kept");
        }
    }

    /// Tells the policies what callers created before this process began. To be called once, before it serves.
    pub async fn restore_owned(&self) -> Result<(), StoreError> {
        let rows = self.store().owned().await?;
        let snapshot = self.snapshot();
        for row in rows {
            snapshot.policy.ledger().created(&Arc::from(row.caller), &row.kind, &row.id);
        }
        Ok(())
    }
}
