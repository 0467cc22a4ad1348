//! The book of confirmations: what waits for a person, what was granted until when, which answers were used.
//!
//! Everything in it is bounded and ends by itself; times come from the caller.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::cursor::Digest;
use crate::id::{self, ToolId};
use crate::policy::RuleRef;

/// A question waits this long for an operator.
const PENDING_TTL_MS: u64 = 10 * 60 * 1_000;
/// A grant that is not used ends after this long …
const GRANT_IDLE_MS: u64 = 15 * 60 * 1_000;
/// … and one that is used after this long: nobody's yes holds for the whole day.
const GRANT_TTL_MS: u64 = 30 * 60 * 1_000;
/// Questions of one caller that wait at once; its oldest make room.
const PENDING_PER_CALLER_MAX: usize = 20;
/// Questions that wait at once: more is nobody going to read.
const PENDING_MAX: usize = 1_000;
/// Grants that hold at once, and as many ended ones that are still remembered.
const GRANTS_MAX: usize = 10_000;
/// Used answers remembered until they are too old to be used again.
const SPENT_MAX: usize = 100_000;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Waiting,
    ApprovedOnce,
    Denied,
}

#[derive(Debug)]
struct Pending {
    asked: Asked,
    state: State,
    expires_ms: u64,
}

#[derive(Debug)]
struct Grant {
    id: String,
    question: Arc<str>,
    by: Arc<str>,
    issued_ms: u64,
    used_ms: u64,
}

impl Grant {
    fn expires_ms(&self) -> u64 {
        self.issued_ms.saturating_add(GRANT_TTL_MS)
    }

    fn idle_ms(&self) -> u64 {
        self.used_ms.saturating_add(GRANT_IDLE_MS)
    }

    /// Why it has ended, if it has.
    fn ended(&self, now_ms: u64) -> Option<&'static str> {
        if now_ms >= self.expires_ms() {
            Some("it had reached its end")
        } else if now_ms >= self.idle_ms() {
            Some("it was not used for a while")
        } else {
            None
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    pending: BTreeMap<String, Pending>,
    grants: HashMap<(Arc<str>, ToolId), Grant>,
    /// Used answers by their position, which is when they end.
    spent: BTreeSet<u64>,
    last_position: u64,
}

/// The book.
#[derive(Debug, Default)]
pub(in super::super) struct Book(Mutex<Inner>);

/// A question that waits for an operator.
#[derive(Debug, Clone, Serialize)]
pub struct PendingView {
    /// Names it in the operators' API.
    pub id: String,
    /// Who asks.
    pub caller: Arc<str>,
    /// For which tool.
    pub tool: ToolId,
    /// The policy's question.
    pub question: Arc<str>,
    /// The arguments in a few words.
    pub arguments: String,
    /// The rule that asks.
    pub rule: RuleRef,
    /// `waiting`, `approved_once` or `denied`.
    state: State,
    /// Seconds until it is dropped.
    pub expires_in_seconds: u64,
}

/// A grant that holds.
#[derive(Debug, Clone, Serialize)]
pub struct GrantView {
    /// Names it in the operators' API.
    pub id: String,
    /// Whose it is.
    pub caller: Arc<str>,
    /// For which tool.
    pub tool: ToolId,
    /// The question that was answered; another question needs another answer.
    pub question: Arc<str>,
    /// Who answered.
    pub approved_by: Arc<str>,
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
}

fn seconds(until_ms: u64, now_ms: u64) -> u64 {
    until_ms.saturating_sub(now_ms).div_ceil(1_000)
}

/// An id that cannot be guessed; settling takes an operator's token besides.
fn draw() -> String {
    format!("c{}", id::hex(&id::unique::<12>()))
}

impl Inner {
    fn tidy(&mut self, now_ms: u64) {
        self.pending.retain(|_, p| p.expires_ms > now_ms);
        self.spent = self.spent.split_off(&now_ms);
    }

    fn find(&self, asked: &Asked) -> Option<(&String, &Pending)> {
        self.pending.iter().find(|(_, p)| {
            p.asked.caller == asked.caller
                && p.asked.tool == asked.tool
                && p.asked.arguments == asked.arguments
                && p.asked.question == asked.question
        })
    }

    /// Makes room for one more question of a caller, at the cost of its own oldest, else of the oldest of all.
    fn make_room(&mut self, caller: &str) {
        let oldest = |own: bool, pending: &BTreeMap<String, Pending>| {
            let mine = pending.iter().filter(|(_, p)| !own || &*p.asked.caller == caller);
            mine.min_by_key(|(_, p)| p.expires_ms).map(|(id, _)| id.clone())
        };
        let own = self.pending.values().filter(|p| &*p.asked.caller == caller).count();
        let goes = if own >= PENDING_PER_CALLER_MAX {
            oldest(true, &self.pending)
        } else if self.pending.len() >= PENDING_MAX {
            oldest(false, &self.pending)
        } else {
            None
        };
        if let Some(id) = goes {
            self.pending.remove(&id);
        }
    }
}

impl Book {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call is covered; a grant that covers it lives on, a yes to this call alone is used up.
    pub(super) fn cover(&self, asked: &Asked) -> Cover {
        let mut inner = self.inner();
        inner.tidy(asked.now_ms);
        let found = inner.find(asked).map(|(id, p)| (id.clone(), p.state));
        match found {
            Some((id, State::ApprovedOnce)) => {
                inner.pending.remove(&id);
                return Cover::Once;
            }
            Some((_, State::Denied)) => return Cover::Denied,
            Some((_, State::Waiting)) | None => {}
        }
        let key = (Arc::clone(&asked.caller), asked.tool.clone());
        let Some(grant) = inner.grants.get_mut(&key) else { return Cover::None };
        if let Some(why) = grant.ended(asked.now_ms) {
            tracing::info!(tool.id = %asked.tool, principal.id = %asked.caller, why, "a grant has ended");
            inner.grants.remove(&key);
            return Cover::Decayed(why);
        }
        if grant.question != asked.question {
            return Cover::Decayed("the policy asks another question now");
        }
        grant.used_ms = asked.now_ms;
        Cover::Granted {
            expires_in: seconds(grant.expires_ms(), asked.now_ms),
            idle_in: seconds(grant.idle_ms(), asked.now_ms),
        }
    }

    /// Puts a call where operators see it; the same call asked again is the same question.
    pub(super) fn ask(&self, asked: &Asked) -> PendingView {
        let mut inner = self.inner();
        let id = match inner.find(asked) {
            Some((id, _)) => id.clone(),
            None => {
                inner.make_room(&asked.caller);
                draw()
            }
        };
        let expires_ms = asked.now_ms.saturating_add(PENDING_TTL_MS);
        let pending = Pending { asked: asked.clone(), state: State::Waiting, expires_ms };
        let view = view(&id, &pending, asked.now_ms);
        inner.pending.insert(id, pending);
        view
    }

    /// What waits and what holds, in the order in which it ends.
    pub(super) fn list(&self, now_ms: u64) -> (Vec<PendingView>, Vec<GrantView>) {
        let mut inner = self.inner();
        inner.tidy(now_ms);
        let mut pending: Vec<_> = inner.pending.iter().map(|(id, p)| view(id, p, now_ms)).collect();
        pending.sort_by_key(|p| p.expires_in_seconds);
        let holds = inner.grants.iter().filter(|(_, g)| g.ended(now_ms).is_none());
        let mut grants: Vec<_> = holds
            .map(|((caller, tool), g)| GrantView {
                id: g.id.clone(),
                caller: Arc::clone(caller),
                tool: tool.clone(),
                question: Arc::clone(&g.question),
                approved_by: Arc::clone(&g.by),
                expires_in_seconds: seconds(g.expires_ms(), now_ms),
                idle_expires_in_seconds: seconds(g.idle_ms(), now_ms),
            })
            .collect();
        grants.sort_by(|a, b| (a.expires_in_seconds, &a.id).cmp(&(b.expires_in_seconds, &b.id)));
        (pending, grants)
    }

    pub(super) fn settle(
        &self,
        id: &str,
        by: &Arc<str>,
        verdict: Verdict,
        now_ms: u64,
    ) -> Result<(), SettleError> {
        let mut inner = self.inner();
        inner.tidy(now_ms);
        let pending = inner.pending.get_mut(id).filter(|p| p.state == State::Waiting);
        let pending = pending.ok_or(SettleError::Unknown)?;
        if pending.asked.caller == *by {
            return Err(SettleError::Own);
        }
        let asked = pending.asked.clone();
        tracing::info!(
            tool.id = %asked.tool,
            principal.id = %asked.caller,
            operator = %by,
            verdict = ?verdict,
            "a confirmation was answered"
        );
        match verdict {
            Verdict::Once => pending.state = State::ApprovedOnce,
            Verdict::Deny => pending.state = State::Denied,
            Verdict::Grant => {
                inner.pending.remove(id);
                let grant = Grant {
                    id: draw(),
                    question: asked.question,
                    by: Arc::clone(by),
                    issued_ms: now_ms,
                    used_ms: now_ms,
                };
                if inner.grants.len() >= GRANTS_MAX {
                    inner.grants.retain(|_, g| g.ended(now_ms).is_none());
                }
                inner.grants.insert((asked.caller, asked.tool), grant);
            }
        }
        Ok(())
    }

    pub(super) fn revoke(&self, id: &str) -> Result<(), SettleError> {
        let mut inner = self.inner();
        let key = inner.grants.iter().find(|(_, g)| g.id == id).map(|(key, _)| key.clone());
        let (caller, tool) = key.ok_or(SettleError::Unknown)?;
        tracing::info!(tool.id = %tool, principal.id = %caller, "a grant was revoked");
        inner.grants.remove(&(caller, tool));
        Ok(())
    }

    /// A position for a sealed state that ends at about this time: no two states share one.
    pub(super) fn fresh(&self, ends_ms: u64) -> u64 {
        let mut inner = self.inner();
        inner.last_position = ends_ms.max(inner.last_position.saturating_add(1));
        inner.last_position
    }

    /// Uses up a state: whether it still holds and was not used before.
    pub(super) fn spend(&self, position: u64, now_ms: u64) -> bool {
        let mut inner = self.inner();
        inner.tidy(now_ms);
        // A full memory takes no answers rather than taking one twice.
        position > now_ms && inner.spent.len() < SPENT_MAX && inner.spent.insert(position)
    }
}

fn view(id: &str, pending: &Pending, now_ms: u64) -> PendingView {
    let asked = &pending.asked;
    PendingView {
        id: id.to_owned(),
        caller: Arc::clone(&asked.caller),
        tool: asked.tool.clone(),
        question: Arc::clone(&asked.question),
        arguments: asked.summary.clone(),
        rule: asked.rule.clone(),
        state: pending.state,
        expires_in_seconds: seconds(pending.expires_ms, now_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(caller: &str, arguments: u8, now_ms: u64) -> Asked {
        Asked {
            caller: Arc::from(caller),
            tool: ToolId::parse("a.b").unwrap(),
            question: Arc::from("Really?"),
            rule: RuleRef { file: Arc::from("p.rhai"), line: 1 },
            arguments: [arguments; 32],
            summary: String::new(),
            now_ms,
        }
    }

    fn operator() -> Arc<str> {
        Arc::from("operator")
    }

    #[test]
    fn a_grant_slides_with_use_up_to_its_end_and_its_end_is_told_once() {
        let book = Book::default();
        let id = book.ask(&asked("a", 1, 0)).id;
        assert_eq!(book.ask(&asked("a", 1, 1)).id, id, "the same call is the same question");
        book.settle(&id, &operator(), Verdict::Grant, 0).unwrap();
        assert_eq!(book.cover(&asked("b", 1, 1)), Cover::None, "another caller");
        let granted = Cover::Granted { expires_in: 1_200, idle_in: 900 };
        assert_eq!(book.cover(&asked("a", 2, 600_000)), granted, "another call of the tool");
        assert!(matches!(book.cover(&asked("a", 1, 1_499_999)), Cover::Granted { .. }), "it slid");
        assert_eq!(book.cover(&asked("a", 1, 1_800_000)), Cover::Decayed("it had reached its end"));
        assert_eq!(book.cover(&asked("a", 1, 1_800_000)), Cover::None);

        let id = book.ask(&asked("a", 1, 0)).id;
        book.settle(&id, &operator(), Verdict::Grant, 0).unwrap();
        let other = Asked { question: Arc::from("Truly?"), ..asked("a", 1, 1) };
        assert!(matches!(book.cover(&other), Cover::Decayed(_)), "a yes is to one question");
        assert_eq!(book.cover(&asked("a", 1, 900_000)), Cover::Decayed("it was not used for a while"));
    }

    #[test]
    fn a_yes_to_one_call_is_used_up_and_a_no_stays_until_it_ends() {
        let book = Book::default();
        let id = book.ask(&asked("a", 1, 0)).id;
        assert_eq!(book.settle(&id, &Arc::from("a"), Verdict::Once, 0), Err(SettleError::Own));
        book.settle(&id, &operator(), Verdict::Once, 0).unwrap();
        assert_eq!(book.settle(&id, &operator(), Verdict::Deny, 0), Err(SettleError::Unknown));
        assert_eq!(book.cover(&asked("a", 2, 0)), Cover::None, "other arguments");
        assert_eq!(book.cover(&asked("a", 1, 0)), Cover::Once);
        assert_eq!(book.cover(&asked("a", 1, 0)), Cover::None);
        let id = book.ask(&asked("a", 1, 0)).id;
        book.settle(&id, &operator(), Verdict::Deny, 0).unwrap();
        assert_eq!(book.cover(&asked("a", 1, PENDING_TTL_MS - 1)), Cover::Denied);
        assert_eq!(book.cover(&asked("a", 1, PENDING_TTL_MS)), Cover::None);
    }

    #[test]
    fn a_caller_pushes_out_only_its_own_questions() {
        let book = Book::default();
        let other = book.ask(&asked("b", 0, 0)).id;
        for n in 0..30 {
            book.ask(&asked("a", n, u64::from(n)));
        }
        let (pending, _) = book.list(30);
        assert_eq!(pending.iter().filter(|p| &*p.caller == "a").count(), PENDING_PER_CALLER_MAX);
        assert!(pending.iter().any(|p| p.id == other));
        assert_eq!(book.list(PENDING_TTL_MS + 100).0.len(), 0);
    }

    #[test]
    fn a_state_is_used_once_and_not_after_its_time() {
        let book = Book::default();
        let (a, b) = (book.fresh(1_000), book.fresh(1_000));
        assert_ne!(a, b);
        assert!(book.spend(a, 0) && !book.spend(a, 0) && !book.spend(b, b));
    }

    #[test]
    fn a_revoked_grant_is_gone() {
        let book = Book::default();
        let id = book.ask(&asked("a", 1, 0)).id;
        book.settle(&id, &operator(), Verdict::Grant, 0).unwrap();
        let grant = book.list(0).1.remove(0);
        assert_eq!((grant.expires_in_seconds, grant.idle_expires_in_seconds), (1_800, 900));
        book.revoke(&grant.id).unwrap();
        assert_eq!(book.cover(&asked("a", 1, 0)), Cover::None);
        assert_eq!(book.revoke(&grant.id), Err(SettleError::Unknown));
    }
}
