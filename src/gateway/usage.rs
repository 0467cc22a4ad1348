//! Usage memory: searches are remembered for a while, a successful run after one teaches its scope.
//!
//! A scope is what callers share who have the same rights in the same tenant; nothing is learnt across scopes.
//! Ranking reads a frozen view; page tokens are bound to it, and a walk that began over one goes on over it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::call::ToolOutcome;
use crate::catalog::Tool;
use crate::cursor::{Digest, Parts};
use crate::id::{self, ToolId};
use crate::policy::Principal;
use crate::search::{Lesson, UsageRecord, UsageView};
use crate::snapshot::Snapshot;
use crate::store::usage::{USAGE_PER_SCOPE_MAX, UsageRow};

use super::view::View;
use super::{Gateway, RequestContext};

/// How long a search waits for the run that it led to.
const WINDOW: Duration = Duration::from_mins(10);
/// Searches of one caller that wait: the last one and those that it rephrased.
const WAITING_MAX: usize = 3;
/// Callers whose searches wait; the one that searched longest ago is forgotten first.
const CALLERS_MAX: usize = 1_024;
/// A search that was rephrased before the run counts half: it may have been for something else.
const REPHRASED: f32 = 0.5;
/// Scopes in memory; the others are in the store and come back when they search.
const SCOPES_MAX: usize = 256;
/// Frozen views of a scope that walks may still go over.
const FROZEN_MAX: usize = 4;
/// Claims that name a tenant, in the order in which they are looked for.
const TENANT_CLAIMS: [&str; 4] = ["tenant", "tenant_id", "tid", "org_id"];

/// What the gateway remembers of searches and runs.
#[derive(Debug, Default)]
pub(super) struct Usage {
    waiting: Mutex<HashMap<Digest, VecDeque<Search>>>,
    scopes: Mutex<HashMap<Arc<str>, Scope>>,
}

/// A search that no run has followed yet.
#[derive(Debug)]
struct Search {
    words: Vec<String>,
    at_ms: u64,
}

/// What a scope has learnt.
#[derive(Debug, Default)]
struct Scope {
    /// The newest first.
    lessons: Vec<Arc<Lesson>>,
    /// Counts what was learnt: a view is as good as its number.
    learnt: u64,
    used_ms: u64,
    frozen: VecDeque<Frozen>,
}

/// The view of a scope over one state of the catalog.
#[derive(Debug)]
struct Frozen {
    state: Digest,
    class: Digest,
    learnt: u64,
    view: Arc<UsageView>,
}

impl Gateway {
    /// The views that a search of this caller may use, the newest first.
    pub(super) async fn usage_views(&self, ctx: &RequestContext, view: &View) -> Vec<Arc<UsageView>> {
        if !view.snapshot.index.learns() {
            return vec![Arc::default()];
        }
        let scope = scope_of(&ctx.principal);
        if !self.usage().knows(&scope) {
            // What cannot be read is told once per scope, and the scope begins anew.
            let rows = self.store().usage_of(&scope).await.unwrap_or_else(|error| {
                tracing::warn!(error = %error, "what searches have taught cannot be read");
                Vec::new()
            });
            self.usage().load(&scope, &rows);
        }
        self.usage().views(&scope, view, self.clock().unix_ms())
    }

    /// Notes what was searched for.
    pub(super) fn searched(&self, ctx: &RequestContext, view: &View, needs: &[String]) {
        let index = &view.snapshot.index;
        if index.learns() {
            let words = needs.iter().map(|need| index.usage_words(need)).filter(|w| !w.is_empty());
            self.usage().wait(caller_of(ctx), words.collect(), self.clock().unix_ms());
        }
    }

    /// Learns from a run: if it succeeded, the searches that wait have led to this tool.
    pub(super) async fn ran(
        &self,
        ctx: &RequestContext,
        snapshot: &Snapshot,
        tool: &Tool,
        outcome: &ToolOutcome,
    ) {
        let succeeded = matches!(outcome, ToolOutcome::Completed(result) if !result.is_error);
        if !succeeded || !snapshot.index.learns() {
            return;
        }
        let records = self.usage().taught(ctx, tool, self.clock().unix_ms());
        if records.is_empty() {
            return;
        }
        let scope = scope_of(&ctx.principal);
        let rows: Vec<UsageRow> = records.iter().map(|record| row_of(&scope, record)).collect();
        // A scope that is not in memory reads this back from the store when it searches.
        self.usage().learn(&scope, records);
        if let Err(error) = Box::pin(self.store().learn_usage(rows)).await {
            tracing::warn!(error = %error, "what a search has taught cannot be kept");
        }
    }
}

impl Usage {
    fn knows(&self, scope: &str) -> bool {
        lock(&self.scopes).contains_key(scope)
    }

    fn load(&self, scope: &Arc<str>, rows: &[UsageRow]) {
        let lessons = rows.iter().filter_map(record_of).map(|r| Arc::new(Lesson::of(r))).collect();
        let mut scopes = lock(&self.scopes);
        if scopes.len() >= SCOPES_MAX
            && let Some(oldest) = scopes.iter().min_by_key(|(_, s)| s.used_ms).map(|(k, _)| Arc::clone(k))
        {
            scopes.remove(&oldest);
        }
        scopes.entry(Arc::clone(scope)).or_insert_with(|| Scope { lessons, ..Scope::default() });
    }

    fn views(&self, scope: &Arc<str>, view: &View, now_ms: u64) -> Vec<Arc<UsageView>> {
        let (state, class) = (view.snapshot.state, view.class);
        let fits = |f: &&Frozen| f.state == state && f.class == class;
        let (lessons, learnt, before) = {
            let mut scopes = lock(&self.scopes);
            let known = scopes.entry(Arc::clone(scope)).or_default();
            known.used_ms = now_ms;
            if known.frozen.iter().filter(fits).any(|f| f.learnt == known.learnt) {
                return known.frozen.iter().filter(fits).map(|f| Arc::clone(&f.view)).collect();
            }
            let before = known.frozen.iter().find(fits).map(|f| Arc::clone(&f.view));
            (known.lessons.clone(), known.learnt, before)
        };
        // Nobody waits for this: two searches at once may both do it, with the same outcome.
        let snapshot = &view.snapshot;
        let frozen = UsageView::freeze(
            &snapshot.index,
            &snapshot.catalog,
            &view.roster.visible,
            lessons.iter().map(Arc::as_ref),
            now_ms,
            before.as_deref(),
        );
        let made = Arc::new(frozen);
        let mut scopes = lock(&self.scopes);
        // The scope may have left memory, or have come back, meanwhile: what was made serves this search alone then.
        let Some(known) = scopes.get_mut(scope).filter(|known| known.learnt >= learnt) else {
            return vec![made];
        };
        if !known.frozen.iter().filter(fits).any(|f| f.learnt >= learnt) {
            known.frozen.push_front(Frozen { state, class, learnt, view: made });
            known.frozen.truncate(FROZEN_MAX);
        }
        known.frozen.iter().filter(fits).map(|f| Arc::clone(&f.view)).collect()
    }

    fn wait(&self, caller: Digest, searches: Vec<Vec<String>>, now_ms: u64) {
        let mut waiting = lock(&self.waiting);
        let newest = |w: &VecDeque<Search>| w.back().map_or(0, |s| s.at_ms);
        if waiting.len() >= CALLERS_MAX
            && let Some(oldest) = waiting.iter().min_by_key(|(_, w)| newest(w)).map(|(k, _)| *k)
        {
            waiting.remove(&oldest);
        }
        let list = waiting.entry(caller).or_default();
        for words in searches {
            list.retain(|s| s.words != words);
            list.push_back(Search { words, at_ms: now_ms });
        }
        while list.len() > WAITING_MAX {
            list.pop_front();
        }
    }

    /// What a successful run of a tool teaches: the last search led to it, those before it were rephrased.
    fn taught(&self, ctx: &RequestContext, tool: &Tool, now_ms: u64) -> Vec<UsageRecord> {
        let mut waiting = lock(&self.waiting);
        // Most calls follow no search: then it need not be worked out whose call this is.
        let found = if waiting.is_empty() { None } else { waiting.remove(&caller_of(ctx)) };
        drop(waiting);
        let Some(searches) = found else { return Vec::new() };
        let window = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
        let fresh = searches.into_iter().rev().filter(|s| now_ms.saturating_sub(s.at_ms) <= window);
        let record = |(place, search): (usize, Search)| UsageRecord {
            words: search.words,
            tool: tool.id.clone(),
            at_ms: now_ms,
            weight: if place == 0 { 1.0 } else { REPHRASED },
        };
        fresh.enumerate().map(record).collect()
    }

    fn learn(&self, scope: &Arc<str>, records: Vec<UsageRecord>) {
        let lessons: Vec<Arc<Lesson>> = records.into_iter().map(|r| Arc::new(Lesson::of(r))).collect();
        let mut scopes = lock(&self.scopes);
        let Some(scope) = scopes.get_mut(scope) else { return };
        for lesson in lessons {
            scope.learnt += 1;
            let (words, tool) = (&lesson.record().words, &lesson.record().tool);
            scope.lessons.retain(|l| l.record().words != *words || l.record().tool != *tool);
            scope.lessons.insert(0, lesson);
        }
        scope.lessons.truncate(USAGE_PER_SCOPE_MAX);
    }
}

/// Callers of one tenant who hold the same scopes and tier: they may use the same tools.
fn scope_of(principal: &Principal) -> Arc<str> {
    let mut parts = Parts::of("docent 2026 usage scope");
    let tenant = TENANT_CLAIMS.iter().find_map(|claim| principal.claims.get(*claim));
    parts.add(tenant.map(ToString::to_string).unwrap_or_default().as_bytes());
    parts.add(principal.tier.as_deref().unwrap_or("").as_bytes());
    principal.scopes.iter().for_each(|scope| parts.add(scope.as_str().as_bytes()));
    let hash = id::hex(&parts.digest());
    Arc::from(hash.get(..32).unwrap_or_default())
}

/// Whose searches and runs belong together.
fn caller_of(ctx: &RequestContext) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("docent 2026 usage caller");
    hasher.update(ctx.principal.subject.as_bytes());
    hasher.update(&[0]);
    hasher.update(scope_of(&ctx.principal).as_bytes());
    *hasher.finalize().as_bytes()
}

fn row_of(scope: &str, record: &UsageRecord) -> UsageRow {
    UsageRow {
        scope: scope.to_owned(),
        words: record.words.join(" "),
        tool: record.tool.as_str().to_owned(),
        at_ms: record.at_ms,
        weight: f64::from(record.weight),
    }
}

fn record_of(row: &UsageRow) -> Option<UsageRecord> {
    let words = row.words.split(' ').map(str::to_owned).collect();
    let weight = if row.weight >= 1.0 { 1.0 } else { REPHRASED };
    Some(UsageRecord { words, tool: ToolId::parse(&row.tool).ok()?, at_ms: row.at_ms, weight })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
