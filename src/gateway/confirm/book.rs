//! The book of confirmations: what waits for a person, what was granted until when, which answers were used.
//!
//! Everything in it is bounded, ends by itself and survives a restart (`store::confirmations`); times come from
//! the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::cursor::Digest;
use crate::id::{self, ToolId};
use crate::policy::RuleRef;
use crate::store::confirmations::{
    CallRow, Covered, GrantRow, QUESTION_TTL_MS, QuestionRow, QuestionState, Settled,
};
use crate::store::{Store, StoreError};

/// A call that asks for a confirmation.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) caller: Arc<str>,
    pub(super) tool: ToolId,
    pub(super) question: Arc<str>,
    pub(super) rule: RuleRef,
    /// Hash of the canonical arguments.
    pub(super) arguments: Digest,
    pub(super) summary: String,
    pub(super) now_ms: u64,
}

impl Asked {
    fn call(&self) -> CallRow {
        CallRow {
            caller: self.caller.to_string(),
            tool: self.tool.as_str().to_owned(),
            arguments: self.arguments,
            question: self.question.to_string(),
        }
    }
}

/// Whether a call is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cover {
    /// By a grant; seconds until it ends for good, and until it ends unless used.
    Granted { expires_in: u64, idle_in: u64 },
    /// By a yes to this very call, which is used up now.
    Once,
    /// A person said no to this very call.
    Denied,
    /// There was a grant: why it ended.
    Decayed(&'static str),
    /// No.
    None,
}

/// The book. What it holds is in the store; this is the counter of its positions.
#[derive(Debug, Default)]
pub(in super::super) struct Book {
    last_position: AtomicU64,
}

/// A question that waits for an operator.
#[derive(Debug, Clone, Serialize)]
pub struct PendingView {
    /// Names it in the operators' API.
    pub id: String,
    /// Who asks.
    pub caller: String,
    /// For which tool.
    pub tool: String,
    /// The policy's question.
    pub question: String,
    /// The arguments in a few words.
    pub arguments: String,
    /// The rule that asks.
    pub rule: RuleRef,
    /// `waiting`, `approved_once` or `denied`.
    state: &'static str,
    /// Seconds until it is dropped.
    pub expires_in_seconds: u64,
}

/// A grant that holds.
#[derive(Debug, Clone, Serialize)]
pub struct GrantView {
    /// Names it in the operators' API.
    pub id: String,
    /// Whose it is.
    pub caller: String,
    /// For which tool.
    pub tool: String,
    /// The question that was answered; another question needs another answer.
    pub question: String,
    /// Who answered.
    pub approved_by: String,
    /// Seconds until it ends for good.
    pub expires_in_seconds: u64,
    /// Seconds until it ends unless it is used.
    pub idle_expires_in_seconds: u64,
}

/// An operator's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, to every call of the tool by this caller while the grant holds.
    Grant,
    /// Yes, to this call alone, once.
    Once,
    /// No, to this call.
    Deny,
}

/// Why an answer was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// Nothing of this id waits (any more).
    #[error("nothing of this id waits here (any more)")]
    Unknown,
    /// The caller that asks is the one that answers.
    #[error("nobody confirms its own call: another operator has to answer")]
    Own,
    /// The state cannot be read or written; nothing has changed.
    #[error("the state of confirmations cannot be read or written just now; the log says why")]
    NotKept,
}

impl From<StoreError> for SettleError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = %error, "confirmations cannot be read or kept");
        Self::NotKept
    }
}

fn seconds(until_ms: u64, now_ms: u64) -> u64 {
    until_ms.saturating_sub(now_ms).div_ceil(1_000)
}

/// An id that cannot be guessed; settling takes an operator's token besides.
fn draw() -> String {
    format!("c{}", id::hex(&id::unique::<12>()))
}

impl Book {
    /// Whether a call is covered; a grant that covers it lives on, a yes to this call alone is used up.
    pub(super) async fn cover(&self, store: &Store, asked: &Asked) -> Result<Cover, StoreError> {
        Ok(match store.cover(asked.call(), asked.now_ms).await? {
            Covered::Granted(grant) => Cover::Granted {
                expires_in: seconds(grant.expires_ms(), asked.now_ms),
                idle_in: seconds(grant.idle_ms(), asked.now_ms),
            },
            Covered::Once => Cover::Once,
            Covered::Denied => Cover::Denied,
            Covered::Decayed(why) => {
                tracing::info!(tool.id = %asked.tool, principal.id = %asked.caller, why, "a grant covers no more");
                Cover::Decayed(why)
            }
            Covered::Not => Cover::None,
        })
    }

    /// Puts a call where operators see it; the same call asked again is the same question.
    pub(super) async fn ask(&self, store: &Store, asked: &Asked) -> Result<PendingView, StoreError> {
        let mut row = QuestionRow {
            id: draw(),
            call: asked.call(),
            summary: asked.summary.clone(),
            rule: (asked.rule.file.to_string(), asked.rule.line),
            state: QuestionState::Waiting,
            expires_ms: asked.now_ms.saturating_add(QUESTION_TTL_MS),
        };
        row.id = store.ask(row.clone(), asked.now_ms).await?;
        Ok(PendingView::of(row, asked.now_ms))
    }

    /// What waits and what holds, in the order in which it ends.
    pub(super) async fn list(
        store: &Store,
        now_ms: u64,
    ) -> Result<(Vec<PendingView>, Vec<GrantView>), SettleError> {
        let (waiting, held) = store.confirmations(now_ms).await?;
        let waiting = waiting.into_iter().map(|row| PendingView::of(row, now_ms));
        Ok((waiting.collect(), held.into_iter().map(|row| GrantView::of(row, now_ms)).collect()))
    }

    pub(super) async fn settle(
        store: &Store,
        id: &str,
        by: &str,
        verdict: Verdict,
        now_ms: u64,
    ) -> Result<(), SettleError> {
        let answer = match verdict {
            Verdict::Once => (QuestionState::ApprovedOnce, None),
            Verdict::Deny => (QuestionState::Denied, None),
            Verdict::Grant => (QuestionState::ApprovedOnce, Some(draw())),
        };
        match store.settle(id, by, answer, now_ms).await? {
            Settled::Unknown => Err(SettleError::Unknown),
            Settled::Own => Err(SettleError::Own),
            Settled::Done(caller, tool) => {
                tracing::info!(
                    tool.id = %tool,
                    principal.id = %caller,
                    operator = %by,
                    verdict = ?verdict,
                    "a confirmation was answered"
                );
                Ok(())
            }
        }
    }

    pub(super) async fn revoke(store: &Store, id: &str) -> Result<(), SettleError> {
        let (caller, tool) = store.revoke_grant(id).await?.ok_or(SettleError::Unknown)?;
        tracing::info!(tool.id = %tool, principal.id = %caller, "a grant was revoked");
        Ok(())
    }

    /// A position for a sealed state that ends at about this time: no two states of this process share one.
    pub(super) fn fresh(&self, ends_ms: u64) -> u64 {
        let next = |last: u64| ends_ms.max(last.saturating_add(1));
        let last =
            self.last_position.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(last.unwrap_or_else(|unchanged| unchanged))
    }
}

impl PendingView {
    fn of(row: QuestionRow, now_ms: u64) -> Self {
        Self {
            id: row.id,
            caller: row.call.caller,
            tool: row.call.tool,
            question: row.call.question,
            arguments: row.summary,
            rule: RuleRef { file: Arc::from(row.rule.0), line: row.rule.1 },
            state: row.state.word(),
            expires_in_seconds: seconds(row.expires_ms, now_ms),
        }
    }
}

impl GrantView {
    fn of(row: GrantRow, now_ms: u64) -> Self {
        let (ends, idle) = (row.expires_ms(), row.idle_ms());
        Self {
            id: row.id,
            caller: row.caller,
            tool: row.tool,
            question: row.question,
            approved_by: row.given_by,
            expires_in_seconds: seconds(ends, now_ms),
            idle_expires_in_seconds: seconds(idle, now_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_states_share_a_position() {
        let book = Book::default();
        assert_eq!(
            [book.fresh(1_000), book.fresh(1_000), book.fresh(900), book.fresh(2_000)],
            [1_000, 1_001, 1_002, 2_000]
        );
    }

    #[tokio::test]
    async fn a_question_is_told_with_the_rule_that_asks_and_a_grant_with_its_ends() {
        let (store, book) = (Store::in_memory(), Book::default());
        let asked = Asked {
            caller: Arc::from("a"),
            tool: ToolId::parse("a.b").unwrap(),
            question: Arc::from("Really?"),
            rule: RuleRef { file: Arc::from("p.rhai"), line: 7 },
            arguments: [1; 32],
            summary: "x: 1".to_owned(),
            now_ms: 0,
        };
        let waiting = book.ask(&store, &asked).await.unwrap();
        assert_eq!(
            (waiting.rule.to_string(), waiting.state, waiting.expires_in_seconds),
            ("p.rhai:7".to_owned(), "waiting", 600)
        );
        assert_eq!(Book::settle(&store, &waiting.id, "a", Verdict::Grant, 0).await, Err(SettleError::Own));
        Book::settle(&store, &waiting.id, "operator", Verdict::Grant, 0).await.unwrap();
        let (pending, grants) = Book::list(&store, 0).await.unwrap();
        assert_eq!(
            (pending.len(), grants[0].expires_in_seconds, grants[0].idle_expires_in_seconds),
            (0, 1_800, 900)
        );
        let granted = Cover::Granted { expires_in: 1_799, idle_in: 900 };
        assert_eq!(book.cover(&store, &Asked { now_ms: 1_000, ..asked }).await.unwrap(), granted);
        Book::revoke(&store, &grants[0].id).await.unwrap();
        assert_eq!(Book::revoke(&store, &grants[0].id).await, Err(SettleError::Unknown));
    }
}
