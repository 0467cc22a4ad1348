//! Rosters: how all tools of a catalog stand for one caller, by word-wise algebra over bitmaps.
//!
//! Made once per class of callers that are equal in everything the policies look at, and kept.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::answer::Vote;
use super::ballot::{Standing, vote_of};
use super::column::{Column, Filled, ToolTable, fill};
use super::function::Phase;
use super::principal::Principal;
use super::set::Inner;
use super::views::CallerRead;
use crate::catalog::{Catalog, ToolSet};
use crate::id::{Scope, ToolNo};
use crate::json;
use crate::script::stack;

/// Rosters kept per catalog: 10,000 tools take about 8 KB each, and 40 KB more per policy function.
const ROSTERS_MAX: usize = 1_024;

/// How the tools of a catalog stand for a caller, arguments not known. `visible` is the union of the others.
#[derive(Debug)]
pub struct Roster {
    /// Tools whose existence the caller may know: those of the four sets below.
    pub visible: ToolSet,
    /// Tools that may be called.
    pub callable: ToolSet,
    /// Tools that need more scopes first.
    pub challenged: ToolSet,
    /// Tools that a person has to confirm.
    pub confirm: ToolSet,
    /// Tools whose arguments decide.
    pub conditional: ToolSet,
    class: [u8; 32],
    shown: [u8; 32],
    pub(super) columns: Vec<Column>,
}

impl Roster {
    /// A hash that two callers share only if their rosters are equal: for cache keys and cursors.
    pub fn class(&self) -> [u8; 32] {
        self.class
    }

    /// A hash of the visible tools alone: callers who see the same tools share it, however they stand.
    pub fn shown(&self) -> [u8; 32] {
        self.shown
    }

    /// How a visible tool stands; `None` for every other, without telling why.
    pub fn standing(&self, tool: ToolNo) -> Option<Standing> {
        [
            (&self.callable, Standing::Callable),
            (&self.challenged, Standing::Challenge),
            (&self.confirm, Standing::Confirm),
            (&self.conditional, Standing::Conditional),
        ]
        .into_iter()
        .find(|(set, _)| set.contains(tool))
        .map(|(_, standing)| standing)
    }
}

/// A policy set on one catalog: every rule's tools as a bitmap, and the rosters made so far.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) serial: u64,
    len: usize,
    covers: Vec<ToolSet>,
    /// Tools that ask for a scope, per scope.
    scope_needs: Vec<(Scope, ToolSet)>,
    /// Tools of a tier, per tier.
    tier_needs: Vec<(Arc<str>, ToolSet)>,
    table: OnceLock<Arc<ToolTable>>,
    /// What functions have read of callers so far. It only grows; its size is part of every key.
    reads: RwLock<BTreeSet<CallerRead>>,
    rosters: RwLock<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_class: HashMap<[u8; 32], Arc<Roster>>,
    order: VecDeque<[u8; 32]>,
}

impl Compiled {
    pub(super) fn of(inner: &Inner, catalog: &Catalog) -> Self {
        let len = catalog.len();
        let mut covers = vec![ToolSet::none(len); inner.rules.len()];
        let mut scopes: HashMap<Scope, ToolSet> = HashMap::new();
        let mut tiers: HashMap<Arc<str>, ToolSet> = HashMap::new();
        for (no, tool) in catalog.iter() {
            for (rule, set) in inner.rules.iter().zip(&mut covers) {
                if rule.covers(tool) {
                    set.insert(no);
                }
            }
            for scope in tool.scopes.iter() {
                scopes.entry(scope.clone()).or_insert_with(|| ToolSet::none(len)).insert(no);
            }
            if let Some(tier) = &tool.tier {
                tiers.entry(Arc::clone(tier)).or_insert_with(|| ToolSet::none(len)).insert(no);
            }
        }
        let mut scope_needs: Vec<_> = scopes.into_iter().collect();
        let mut tier_needs: Vec<_> = tiers.into_iter().collect();
        // In order, so that the class of a caller does not depend on the order of a hash map.
        scope_needs.sort_by(|a, b| a.0.cmp(&b.0));
        tier_needs.sort_by(|a, b| a.0.cmp(&b.0));
        Self {
            serial: catalog.serial(),
            len,
            covers,
            scope_needs,
            tier_needs,
            table: OnceLock::new(),
            reads: RwLock::default(),
            rosters: RwLock::default(),
        }
    }

    /// Whether a rule covers a tool.
    pub(super) fn covers(&self, rule: usize, tool: ToolNo) -> bool {
        self.covers.get(rule).is_some_and(|set| set.contains(tool))
    }

    /// Rules, by index, that cover no tool at all.
    pub(super) fn idle(&self) -> impl Iterator<Item = usize> {
        self.covers.iter().enumerate().filter(|(_, set)| set.is_empty()).map(|(i, _)| i)
    }

    pub(super) fn table(&self, catalog: &Catalog) -> Arc<ToolTable> {
        Arc::clone(self.table.get_or_init(|| Arc::new(ToolTable::of(catalog))))
    }

    /// Everything that the policies look at in a caller, as a hash: equal hashes, equal rosters.
    fn class(&self, inner: &Inner, who: &Principal) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        hash.update(&inner.digest);
        hash.update(&self.serial.to_le_bytes());
        let mut bits: Vec<u8> = Vec::with_capacity(inner.rules.len() + 32);
        bits.extend(inner.rules.iter().map(|r| u8::from(r.concerns(who, &inner.tiers))));
        bits.extend(self.scope_needs.iter().map(|(s, _)| u8::from(who.scopes.contains(s))));
        bits.extend(
            self.tier_needs.iter().map(|(t, _)| u8::from(inner.tiers.reaches(who.tier.as_deref(), t))),
        );
        hash.update(&bits);
        for read in self.reads.read().unwrap_or_else(PoisonError::into_inner).iter() {
            // Name and value, so that a grown list of reads never meets an older key.
            hash.update(read.name().as_bytes());
            hash.update(blake3::hash(&json::canonical(&read.value(who, &inner.tiers))).as_bytes());
        }
        *hash.finalize().as_bytes()
    }

    /// The roster of a caller: kept, or made now.
    pub(super) fn roster(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        catalog: &Catalog,
        who: &Principal,
    ) -> Arc<Roster> {
        let class = self.class(inner, who);
        let kept = |class: &[u8; 32]| {
            let rosters = self.rosters.read().unwrap_or_else(PoisonError::into_inner);
            rosters.by_class.get(class).map(Arc::clone)
        };
        if let Some(roster) = kept(&class) {
            return roster;
        }
        let (columns, complete) = self.columns(inner, catalog, who);
        // Functions may have read more of the caller than was known to be read: the key takes it in.
        let class = self.class(inner, who);
        let roster = Arc::new(self.count(inner, who, columns, class));
        if complete {
            self.keep(class, &roster);
        }
        roster
    }

    fn keep(&self, class: [u8; 32], roster: &Arc<Roster>) {
        let mut rosters = self.rosters.write().unwrap_or_else(PoisonError::into_inner);
        if rosters.by_class.insert(class, Arc::clone(roster)).is_none() {
            rosters.order.push_back(class);
        }
        while rosters.order.len() > ROSTERS_MAX {
            if let Some(oldest) = rosters.order.pop_front() {
                rosters.by_class.remove(&oldest);
            }
        }
    }

    /// One column per `visible` and `decide` function, made on a deep stack in one go.
    fn columns(&self, inner: &Arc<Inner>, catalog: &Catalog, who: &Principal) -> (Vec<Column>, bool) {
        if !inner.functions.iter().any(|f| matches!(f.phase, Phase::Visible | Phase::Decide)) {
            return (Vec::new(), true);
        }
        let (table, owned, who) = (self.table(catalog), Arc::clone(inner), Arc::new(who.clone()));
        let filled = stack::run(move || -> Vec<Filled> {
            owned.tool_functions().map(|f| fill(f, &who, &owned.tiers, &table)).collect()
        });
        // Without a thread there are no columns, and a function without a column counts as failed.
        let Ok(filled) = filled else { return (Vec::new(), false) };
        let complete = filled.iter().all(|f| f.complete);
        let mut reads = self.reads.write().unwrap_or_else(PoisonError::into_inner);
        let columns = filled.into_iter().map(|f| {
            reads.extend(f.reads);
            f.column
        });
        (columns.collect(), complete)
    }

    /// The algebra. The same order as `Ballot`; `tests` hold the two against each other.
    fn count(&self, inner: &Inner, who: &Principal, columns: Vec<Column>, class: [u8; 32]) -> Roster {
        let none = ToolSet::none(self.len);
        let mut refused = none.clone();
        let [mut allow, mut challenged, mut confirm, mut depends] =
            [none.clone(), none.clone(), none.clone(), none];
        if inner.broken || columns.len() < inner.tool_functions().count() {
            refused = ToolSet::all(self.len);
        }
        for (rule, covers) in inner.rules.iter().zip(&self.covers) {
            if !rule.concerns(who, &inner.tiers) {
                continue;
            }
            match vote_of(rule, None) {
                Vote::Hide | Vote::Deny(_) | Vote::Fault(_) => refused.union(covers),
                Vote::Challenge(_) => challenged.union(covers),
                Vote::Confirm { .. } => confirm.union(covers),
                Vote::Allow => allow.union(covers),
                Vote::Depends => depends.union(covers),
                Vote::Abstain => {}
            }
        }
        for column in &columns {
            for (no, outcome) in (0u32..).map(ToolNo).zip(column.iter()) {
                match outcome.vote {
                    Vote::Hide | Vote::Deny(_) | Vote::Fault(_) => refused.insert(no),
                    Vote::Challenge(_) => challenged.insert(no),
                    Vote::Confirm { .. } => confirm.insert(no),
                    Vote::Allow => allow.insert(no),
                    Vote::Depends => depends.insert(no),
                    Vote::Abstain => {}
                }
            }
        }
        for (_, covers) in
            self.tier_needs.iter().filter(|(t, _)| !inner.tiers.reaches(who.tier.as_deref(), t))
        {
            refused.union(covers);
        }
        let mut visible = allow.clone();
        for set in [&challenged, &confirm, &depends] {
            visible.union(set);
        }
        visible.subtract(&refused);
        for (_, covers) in self.scope_needs.iter().filter(|(s, _)| !who.scopes.contains(s)) {
            challenged.union(covers);
        }
        challenged.intersect(&visible);
        let rest = |mut set: ToolSet, taken: &[&ToolSet]| {
            set.intersect(&visible);
            for other in taken {
                set.subtract(other);
            }
            set
        };
        let confirm = rest(confirm, &[&challenged]);
        let callable = rest(allow, &[&challenged, &confirm]);
        let conditional = rest(depends, &[&challenged, &confirm, &callable]);
        let bits: Vec<u8> = visible.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let shown = *blake3::hash(&bits).as_bytes();
        Roster { visible, callable, challenged, confirm, conditional, class, shown, columns }
    }
}
