//! Rosters: how all tools of a catalog stand for one caller, by word-wise algebra over bitmaps.
//!
//! Made once per class of callers that are equal in everything the policies look at, and kept.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::ballot::{Standing, vote_of};
use super::column::{Column, Filled, ToolTable, fill};
use super::function::Phase;
use super::principal::Principal;
use super::rule::{Effect, Rule};
use super::set::Inner;
use super::sums::{self, STEPS_MAX, Sums, with_scopes};
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
    /// The scopes that rules name, where a challenge may ask for some: callers that differ in them may come to
    /// stand differently once they have come back.
    named_scopes: Vec<Scope>,
    rosters: RwLock<Kept<Roster>>,
    columns: RwLock<Kept<Vec<Column>>>,
}

/// What was made for classes of callers, the newest.
#[derive(Debug)]
struct Kept<T> {
    by_class: HashMap<[u8; 32], Arc<T>>,
    order: VecDeque<[u8; 32]>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { by_class: HashMap::new(), order: VecDeque::new() }
    }
}

fn kept<T>(from: &RwLock<Kept<T>>, class: &[u8; 32]) -> Option<Arc<T>> {
    from.read().unwrap_or_else(PoisonError::into_inner).by_class.get(class).map(Arc::clone)
}

fn keep<T>(into: &RwLock<Kept<T>>, class: [u8; 32], made: &Arc<T>) {
    let mut kept = into.write().unwrap_or_else(PoisonError::into_inner);
    if kept.by_class.insert(class, Arc::clone(made)).is_none() {
        kept.order.push_back(class);
    }
    while kept.order.len() > ROSTERS_MAX {
        if let Some(oldest) = kept.order.pop_front() {
            kept.by_class.remove(&oldest);
        }
    }
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
            named_scopes: named_scopes(inner),
            rosters: RwLock::default(),
            columns: RwLock::default(),
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
        if !self.named_scopes.is_empty() {
            bits.extend(inner.rules.iter().map(|r| u8::from(r.could_concern(who, &inner.tiers))));
            bits.extend(self.named_scopes.iter().map(|s| u8::from(who.scopes.contains(s))));
        }
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
        if let Some(roster) = kept(&self.rosters, &class) {
            return roster;
        }
        let (columns, mut complete) = self.columns_of(inner, catalog, who);
        let sums = self.sums(inner, who, &columns);
        let every = ToolSet::all(self.len);
        let visible = self.shown(inner, catalog, (who, &columns, &sums), &every, (1, &mut complete));
        // Functions may have read more of the caller than was known to be read: the key takes it in.
        let class = self.class(inner, who);
        let roster = Arc::new(self.stand(inner, who, (sums, visible), class));
        if complete {
            keep(&self.rosters, class, &roster);
        }
        roster
    }

    /// What the functions answer this caller about every tool: kept, or made now; and whether it may be kept.
    pub(super) fn columns_of(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        catalog: &Catalog,
        who: &Principal,
    ) -> (Arc<Vec<Column>>, bool) {
        if inner.tool_functions().next().is_none() {
            return (Arc::default(), true);
        }
        let class = self.class(inner, who);
        if let Some(columns) = kept(&self.columns, &class) {
            return (columns, true);
        }
        let (columns, complete) = self.fill(inner, catalog, who);
        let columns = Arc::new(columns);
        if complete {
            keep(&self.columns, self.class(inner, who), &columns);
        }
        (columns, complete)
    }

    /// One column per `visible` and `decide` function, made on a deep stack in one go.
    fn fill(&self, inner: &Arc<Inner>, catalog: &Catalog, who: &Principal) -> (Vec<Column>, bool) {
        let (table, owned, who) = (self.table(catalog), Arc::clone(inner), Arc::new(who.clone()));
        let filled = stack::run(move || -> Vec<Filled> {
            owned.tool_functions().map(|f| fill(f, &who, &owned.tiers, &table)).collect()
        });
        // Without a thread there are no columns, and a function without a column counts as failed.
        let Ok(filled) = filled else { return (Vec::new(), false) };
        let complete = filled.iter().all(|f| f.complete);
        let runs: usize = filled.iter().map(|f| f.runs).sum();
        tracing::debug!(
            policy.functions = filled.len(),
            policy.runs = runs,
            "policies were asked about every tool"
        );
        let mut reads = self.reads.write().unwrap_or_else(PoisonError::into_inner);
        let columns = filled.into_iter().map(|f| {
            reads.extend(f.reads);
            f.column
        });
        (columns.collect(), complete)
    }

    /// Every vote on every tool.
    fn sums(&self, inner: &Inner, who: &Principal, columns: &[Column]) -> Sums {
        let mut sums = Sums::none(self.len);
        if inner.broken || columns.len() < inner.tool_functions().count() {
            sums.refused = ToolSet::all(self.len);
        }
        for (rule, covers) in inner.rules.iter().zip(&self.covers) {
            if rule.concerns(who, &inner.tiers)
                && let Some(set) = sums.of(&vote_of(rule, None))
            {
                set.union(covers);
            }
        }
        for column in columns {
            sums::add_column(&mut sums, column);
        }
        sums
    }

    /// Tools among `within` that something speaks for: now, or once the caller has come back with what it is asked
    /// for. The same question as `PolicySet::opens`; `properties` hold the two against each other.
    fn shown(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        catalog: &Catalog,
        (who, columns, sums): (&Principal, &[Column], &Sums),
        within: &ToolSet,
        (step, complete): (usize, &mut bool),
    ) -> ToolSet {
        let mut shown = sums.open(within);
        let only = sums.only_challenged(within);
        if only.is_empty() || step > STEPS_MAX {
            return shown;
        }
        for (scopes, tools) in sums::by_scopes(inner, who, (&self.covers, columns), only) {
            let wider = with_scopes(who, &scopes);
            let (columns, whole) = self.columns_of(inner, catalog, &wider);
            *complete &= whole;
            let sums = self.sums(inner, &wider, &columns);
            shown.union(&self.shown(
                inner,
                catalog,
                (&wider, &columns, &sums),
                &tools,
                (step + 1, &mut *complete),
            ));
        }
        shown
    }

    /// How the visible tools stand. The same order as `Ballot`; `properties` hold the two against each other.
    fn stand(
        &self,
        inner: &Inner,
        who: &Principal,
        (sums, mut visible): (Sums, ToolSet),
        class: [u8; 32],
    ) -> Roster {
        let Sums { allow, mut challenged, confirm, depends, .. } = sums;
        for (_, covers) in
            self.tier_needs.iter().filter(|(t, _)| !inner.tiers.reaches(who.tier.as_deref(), t))
        {
            visible.subtract(covers);
        }
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
        Roster { visible, callable, challenged, confirm, conditional, class, shown }
    }
}

/// The scopes that rules name, where some policy may challenge; else none need be looked at.
fn named_scopes(inner: &Inner) -> Vec<Scope> {
    let challenges = inner.rules.iter().any(|r| matches!(r.effect, Effect::Challenge(_)));
    if !challenges && !inner.functions.iter().any(|f| f.phase == Phase::Decide) {
        return Vec::new();
    }
    let named: BTreeSet<&Scope> = inner.rules.iter().flat_map(Rule::scopes).collect();
    named.into_iter().cloned().collect()
}
