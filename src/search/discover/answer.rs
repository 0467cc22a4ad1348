//! The answer of a discovery: as many rows as fit the budget, what they cost, and receipts for the rest.

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::candidate::Candidate;
use super::options::{BUDGET_MIN, DiscoverOptions, OutputBudget, Tier};
use super::{DiscoverError, Scored};
use crate::call::Omission;
use crate::call::tokens::{TokenCost, cost_of, smallest_budget};
use crate::cursor::{Binding, CursorKey};
use crate::json::{self, cut};
use crate::search::asking::unsteps;
use crate::search::ranking::{Ranking, SIGNAL_NAMES};

/// The version of the result's shape.
pub const CONTRACT_VERSION: u32 = 1;
/// How long a host may keep an answer.
pub const CACHE_TTL_MS: u64 = 30_000;
/// What makes answers and cursors stale at once (seed 004).
pub const INVALIDATES_ON: [&str; 6] = [
    "profile_changed",
    "tool_contract_changed",
    "workspace_extension_changed",
    "authorization_changed",
    "ranking_signal_changed",
    "cursor_integrity_key_rotated",
];
/// Bytes of a description in a compact row: ten rows have to fit the default budget.
const COMPACT_BYTES: usize = 160;
/// Bytes of a cache key that are written.
const CACHE_KEY_BYTES: usize = 16;
/// Steps in which a signal is written.
const SIGNAL_STEPS: f64 = 10_000.0;

/// The six signals of a row or their weights, each 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SignalSet {
    /// Words and spelling.
    pub lexical: f64,
    /// Meaning.
    pub semantic: f64,
    /// Where the tool belongs.
    pub graph: f64,
    /// 1: what is not permitted is not there.
    pub permission: f64,
    /// How current it is.
    pub freshness: f64,
    /// How often it was the right one.
    pub usage: f64,
}

/// One tool found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it does; cut after a word where no schemas were asked for.
    pub description: String,
    /// Its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Its tier.
    pub tier: Tier,
    /// The sum of signal times weight.
    pub score: f64,
    /// The signals.
    pub signals: SignalSet,
    /// The signals whose source is the host; the others' source is in [`RankingPolicy::sources`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from_host: Vec<&'static str>,
    /// Its input schema, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
}

/// How rows are ordered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankingPolicy {
    /// The version of the formula.
    pub version: u32,
    /// The formula.
    pub formula: &'static str,
    /// The public weights.
    pub weights: SignalSet,
    /// Where a signal is from unless the row lists it in `from_host`.
    pub sources: Sources,
}

/// Where signals are from. A `fallback` is a constant that stands in for what nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sources {
    lexical: &'static str,
    semantic: &'static str,
    graph: &'static str,
    permission: &'static str,
    freshness: &'static str,
    usage: &'static str,
}

const SOURCES: Sources = Sources {
    lexical: "computed",
    semantic: "computed",
    graph: "computed",
    permission: "authorization",
    freshness: "fallback",
    usage: "fallback",
};

/// What the answer costs a model, itself included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// ceil(bytes / 4) of the whole answer as compact JSON.
    pub estimated_tokens: usize,
    /// What was allowed.
    #[serde(serialize_with = "budget")]
    pub budget: OutputBudget,
    /// Whether it fits: an answer that does not is an error.
    pub within_budget: bool,
}

fn budget<S: Serializer>(budget: &OutputBudget, to: S) -> Result<S::Ok, S::Error> {
    match budget {
        OutputBudget::Tokens(tokens) => to.serialize_u64(u64::try_from(*tokens).unwrap_or(u64::MAX)),
        OutputBudget::Unbounded => to.serialize_str("unbounded"),
    }
}

/// How the answer may be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// Differs wherever the answer could.
    pub key: String,
    /// For so many milliseconds.
    pub ttl_ms: u64,
    /// `private`: for this caller only.
    pub scope: &'static str,
    /// Events that end it earlier.
    pub invalidates_on: [&'static str; 6],
}

/// What was left out and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Whether anything was.
    pub has_omissions: bool,
    /// Each kind of it.
    pub omitted: Vec<Omission>,
}

/// One page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Discovery {
    /// `tool_discovery`.
    pub result_type: &'static str,
    /// [`CONTRACT_VERSION`].
    pub contract_version: u32,
    /// The query as it was understood.
    pub query: String,
    /// The profile as given.
    pub profile: String,
    /// The rows, best first.
    pub tools: Vec<Row>,
    /// How many tools match in all.
    pub total: usize,
    /// How many are here.
    pub returned: usize,
    /// Whether more follow.
    pub has_more: bool,
    /// Where they begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// What this costs.
    pub token_cost: Cost,
    /// How rows were ordered.
    pub ranking_policy: RankingPolicy,
    /// How it may be kept.
    pub cache: Cache,
    /// What is missing.
    pub omission_receipt: Receipt,
}

/// What an answer is made of.
pub(super) struct Page<'a> {
    pub(super) query: String,
    pub(super) options: &'a DiscoverOptions,
    pub(super) ranking: &'a Ranking,
    pub(super) total: usize,
    pub(super) offset: usize,
    pub(super) found: Vec<(&'a Candidate, Scored)>,
    pub(super) key: CursorKey,
    pub(super) binding: Binding<'a>,
}

impl Page<'_> {
    /// Takes as many rows as fit.
    pub(super) fn answer(self) -> Result<Discovery, DiscoverError> {
        let rows: Vec<Row> = self.found.iter().map(|(c, s)| self.row(c, s)).collect();
        let lengths: Vec<usize> = rows.iter().map(json::encoded_len).collect();
        let allowed = match self.options.output_budget {
            OutputBudget::Tokens(tokens) => tokens,
            OutputBudget::Unbounded => usize::MAX,
        };
        let least = rows.len().min(1);
        let mut required = 0;
        for returned in (least..=rows.len()).rev() {
            let mut answer = self.envelope(&rows, returned);
            // Rows and the commas between them are added to what the answer takes without them.
            let taken = lengths.iter().take(returned).sum::<usize>() + returned.saturating_sub(1);
            let bytes = |cost: TokenCost| {
                let budget = match self.options.output_budget {
                    OutputBudget::Tokens(_) => OutputBudget::Tokens(cost.budget),
                    OutputBudget::Unbounded => OutputBudget::Unbounded,
                };
                Cost { estimated_tokens: cost.estimated_tokens, budget, within_budget: cost.within_budget }
            };
            let counted = |cost: TokenCost| {
                json::encoded_len(&Discovery { token_cost: bytes(cost), ..answer.clone() }) + taken
            };
            let cost = cost_of(allowed, counted);
            if cost.within_budget {
                answer.token_cost = bytes(cost);
                answer.tools = rows.into_iter().take(returned).collect();
                return Ok(answer);
            }
            if returned == least {
                required = smallest_budget(counted).max(BUDGET_MIN);
            }
        }
        Err(DiscoverError::BudgetTooSmall { budget: allowed, required })
    }

    /// The answer without its rows and its cost.
    fn envelope(&self, rows: &[Row], returned: usize) -> Discovery {
        let end = self.offset.saturating_add(returned);
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let has_more = end < self.total;
        Discovery {
            result_type: "tool_discovery",
            contract_version: CONTRACT_VERSION,
            query: self.query.clone(),
            profile: self.options.profile.clone(),
            tools: Vec::new(),
            total: self.total,
            returned,
            has_more,
            next_cursor: has_more.then(|| self.key.seal(&self.binding, wide(end))),
            token_cost: Cost { estimated_tokens: 0, budget: self.options.output_budget, within_budget: true },
            ranking_policy: RankingPolicy {
                version: 1,
                formula: "weighted_sum_then_name",
                weights: signal_set(&self.ranking.signals),
                sources: SOURCES,
            },
            cache: Cache {
                key: self.cache_key(),
                ttl_ms: CACHE_TTL_MS,
                scope: "private",
                invalidates_on: INVALIDATES_ON,
            },
            omission_receipt: self.receipt(rows, returned),
        }
    }

    /// Differs with everything that a page token is bound to, with the key, and with what a walk may change.
    fn cache_key(&self) -> String {
        let budget = match self.options.output_budget {
            OutputBudget::Tokens(tokens) => tokens,
            OutputBudget::Unbounded => 0,
        };
        let place = format!("{}/{}/{budget}", self.offset, self.options.limit);
        let binding = Binding { purpose: "discover_tools cache", ..self.binding };
        let token = self.key.seal(&binding, 0);
        let hash = blake3::hash(format!("{token}/{place}").as_bytes()).to_hex();
        cut(&hash, CACHE_KEY_BYTES * 2).to_owned()
    }

    fn row(&self, candidate: &Candidate, scored: &Scored) -> Row {
        let full = self.options.include_schema;
        Row {
            name: candidate.name.clone(),
            description: if full { candidate.description.clone() } else { brief(&candidate.description) },
            family: candidate.family.clone(),
            tier: candidate.tier,
            score: unsteps(scored.score),
            signals: signal_set(&scored.values),
            from_host: candidate.signals.all().iter().filter(|(_, v)| v.is_some()).map(|(n, _)| *n).collect(),
            input_schema: full.then(|| candidate.input_schema.clone()),
        }
    }

    fn receipt(&self, rows: &[Row], returned: usize) -> Receipt {
        let mut omitted = Vec::new();
        let mut add = |name: &str, count: Option<usize>, reason: &str, restore: &str| {
            omitted.push(Omission {
                name: name.to_owned(),
                count: count.and_then(|n| u64::try_from(n).ok()),
                reason: reason.to_owned(),
                restore_with: restore.to_owned(),
            });
        };
        let end = self.offset.saturating_add(returned);
        if end < self.total {
            let reason = if returned < rows.len() { "token_budget" } else { "limit" };
            add("tools", Some(self.total - end), reason, "cursor = next_cursor");
        }
        if !self.options.include_schema && returned > 0 {
            add("input_schema", Some(returned), "compact_projection", "includeSchema = true");
            let pairs = rows.iter().zip(&self.found).take(returned);
            let cut = pairs.filter(|(row, (c, _))| row.description.len() < c.description.len()).count();
            if cut > 0 {
                add("description", Some(cut), "compact_projection", "includeSchema = true");
            }
        }
        Receipt { has_omissions: !omitted.is_empty(), omitted }
    }
}

/// The beginning of a description, cut after a word.
fn brief(description: &str) -> String {
    if description.len() <= COMPACT_BYTES {
        return description.to_owned();
    }
    let head = cut(description, COMPACT_BYTES - '…'.len_utf8());
    let head = head.rsplit_once(char::is_whitespace).map_or(head, |(before, _)| before);
    format!("{}…", head.trim_end())
}

/// Signals as they are written: four digits are more than anyone reads.
fn signal_set(values: &[f32; SIGNAL_NAMES.len()]) -> SignalSet {
    let [lexical, semantic, graph, permission, freshness, usage] =
        values.map(|v| (f64::from(v) * SIGNAL_STEPS).round() / SIGNAL_STEPS);
    SignalSet { lexical, semantic, graph, permission, freshness, usage }
}
