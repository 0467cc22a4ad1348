//! What all votes on all tools come to, as bitmaps, and which tools a caller may know of.
//!
//! A challenge alone shows nothing: it does where something would allow the tool to the caller that came back
//! with what is asked for, so that nobody is sent for scopes that open no door.

use std::collections::BTreeSet;

use super::answer::Vote;
use super::ballot::vote_of;
use super::column::Column;
use super::principal::Principal;
use super::set::Inner;
use crate::catalog::ToolSet;
use crate::id::{Scope, ToolNo};

/// Challenges behind challenges: a caller that came back with all that was asked for may be asked for more.
/// So many times; what needs more steps is not shown.
pub(super) const STEPS_MAX: usize = 3;

/// The caller as it would be with more scopes.
pub(super) fn with_scopes(who: &Principal, scopes: &BTreeSet<Scope>) -> Principal {
    let mut wider = who.clone();
    wider.scopes.extend(scopes.iter().cloned());
    wider
}

/// Votes by kind.
#[derive(Debug)]
pub(super) struct Sums {
    pub(super) refused: ToolSet,
    pub(super) allow: ToolSet,
    pub(super) challenged: ToolSet,
    pub(super) confirm: ToolSet,
    pub(super) depends: ToolSet,
}

impl Sums {
    /// Nothing was said of `len` tools.
    pub(super) fn none(len: usize) -> Self {
        let none = || ToolSet::none(len);
        Self { refused: none(), allow: none(), challenged: none(), confirm: none(), depends: none() }
    }

    /// What a vote goes into.
    pub(super) fn of(&mut self, vote: &Vote) -> Option<&mut ToolSet> {
        Some(match vote {
            Vote::Hide | Vote::Deny(_) | Vote::Fault(_) => &mut self.refused,
            Vote::Challenge(_) => &mut self.challenged,
            Vote::Confirm { .. } => &mut self.confirm,
            Vote::Allow => &mut self.allow,
            Vote::Depends => &mut self.depends,
            Vote::Abstain => return None,
        })
    }

    /// What speaks for a tool besides a challenge, and is not refused, among `within`.
    pub(super) fn open(&self, within: &ToolSet) -> ToolSet {
        let mut open = self.allow.clone();
        open.union(&self.confirm);
        open.union(&self.depends);
        open.subtract(&self.refused);
        open.intersect(within);
        open
    }

    /// What only a challenge speaks for, and is not refused, among `within`.
    pub(super) fn only_challenged(&self, within: &ToolSet) -> ToolSet {
        let mut only = self.challenged.clone();
        only.intersect(within);
        for other in [&self.refused, &self.allow, &self.confirm, &self.depends] {
            only.subtract(other);
        }
        only
    }
}

/// Challenged tools by the scopes that they ask for, all challenges of a tool together.
pub(super) fn by_scopes(
    inner: &Inner,
    who: &Principal,
    (covers, columns): (&[ToolSet], &[Column]),
    tools: ToolSet,
) -> Vec<(BTreeSet<Scope>, ToolSet)> {
    let mut cells = vec![(BTreeSet::new(), tools)];
    for (rule, covers) in inner.rules.iter().zip(covers).filter(|(r, _)| r.concerns(who, &inner.tiers)) {
        if let Vote::Challenge(scopes) = vote_of(rule, None) {
            split(&mut cells, covers, &scopes);
        }
    }
    for column in columns {
        for (scopes, tools) in column.challenges() {
            split(&mut cells, &tools, &scopes);
        }
    }
    cells
}

/// Adds scopes to what the tools of `set` ask for.
fn split(cells: &mut Vec<(BTreeSet<Scope>, ToolSet)>, set: &ToolSet, scopes: &[Scope]) {
    let mut more = Vec::new();
    for (asked, tools) in cells.iter_mut() {
        let mut inside = tools.clone();
        inside.intersect(set);
        if inside.is_empty() {
            continue;
        }
        tools.subtract(set);
        let mut asked = asked.clone();
        asked.extend(scopes.iter().cloned());
        more.push((asked, inside));
    }
    cells.extend(more);
    cells.retain(|(_, tools)| !tools.is_empty());
}

/// Puts the votes of a column in.
pub(super) fn add_column(sums: &mut Sums, column: &Column) {
    for (no, outcome) in (0u32..).map(ToolNo).zip(column.iter()) {
        if let Some(set) = sums.of(&outcome.vote) {
            set.insert(no);
        }
    }
}
