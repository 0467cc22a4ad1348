//! What a caller's successful calls created: told to the policies (`owns`), kept over a
//! restart and shared by the processes of one data directory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::{Gateway, RequestContext, failure};
use crate::call::{ToolError, ToolResult};
use crate::id::ToolNo;
use crate::snapshot::Snapshot;
use crate::store::StoreError;
use crate::store::owned::OwnedRow;

/// A row is dated before it is written, so one that was dated earlier may be seen later. In milliseconds; far more
/// than a write waits for the disk.
const COMMIT_TIME_MS: u64 = 30_000;

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
        let (caller, kind, at_ms) = (subject.to_string(), creates.kind.to_string(), self.clock().unix_ms());
        let row = OwnedRow { caller, kind, id, at_ms };
        if let Err(error) = Box::pin(self.store().created(row)).await {
            // It is its own until the process ends; after that the policy refuses, which is the safe side.
            tracing::error!(error = %error, "what a call created is not kept");
        }
    }

    /// Tells the policies what callers created before this process began. To be called once, before it serves.
    pub async fn restore_owned(&self) -> Result<(), StoreError> {
        self.learn_owned(&self.snapshot(), 0).await
    }

    /// Tells the policies what callers created in other processes over the same data directory. Asked before a
    /// decision that may look at it; a ledger that cannot be read decides nothing.
    pub(super) async fn renew_owned(&self, snapshot: &Snapshot) -> Result<(), ToolError> {
        if !snapshot.policy.asks_ownership() {
            return Ok(());
        }
        let since = self.owned_until().load(Ordering::Relaxed).saturating_sub(COMMIT_TIME_MS);
        // Boxed: few homes ask for it, and their calls alone carry the room.
        Box::pin(self.learn_owned(snapshot, since)).await.map_err(|error| {
            tracing::error!(error = %error, "what callers own cannot be read, so nothing is decided by it");
            failure::internal()
        })
    }

    async fn learn_owned(&self, snapshot: &Snapshot, since_ms: u64) -> Result<(), StoreError> {
        for row in self.store().owned(since_ms).await? {
            self.owned_until().fetch_max(row.at_ms, Ordering::Relaxed);
            snapshot.policy.ledger().created(&Arc::from(row.caller), &row.kind, &row.id);
        }
        Ok(())
    }
}
