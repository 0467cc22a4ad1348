//! `search_tools`: ranked search, one page that fits its token budget, and receipts for what did not.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::call::tokens::{TokenCost, cost_of, smallest_budget, tokens_of};
use crate::call::{ErrorCode, Omission, ToolError};
use crate::catalog::{Availability, Tool, ToolAnnotations};
use crate::cursor::{BadCursor, Binding, Digest};
use crate::id::ToolNo;
use crate::json::{self, JsonText, Object, cut};
use crate::search::{Filters, Hit, Query, Results, UsageView};
use crate::upstream::UpstreamState;

use super::super::view::View;
use super::super::{Gateway, RequestContext};
use super::args;

const PURPOSE: &str = "search_tools";
const LIMIT: usize = 10;
/// Tokens of an answer where the caller names none: ten brief rows fit (seed 004).
const BUDGET_BRIEF: usize = 1_200;
/// The same with schemas or signals.
const BUDGET_WIDE: usize = 4_800;
/// Bytes of a description in a brief row. Where the rows asked for do not fit their budget the next limit is
/// tried: a shorter description is worth more than a missing tool.
const BRIEF_BYTES: [usize; 4] = [160, 110, 70, 40];
/// Bytes of a schema inside a row: a larger one is told by its size and read with `describe_tool`.
const ROW_SCHEMA_BYTES_MAX: usize = 12 * 1024;
/// Hits taken of each need when several are merged.
const NEED_HITS_MAX: usize = 1_000;
/// Questions that a sentence model is asked at once in this process: each takes a whole core.
const THINKING_MAX: usize = 2;

/// How much a row tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Brief,
    Schema,
    Explain,
}

/// The question, checked.
#[derive(Debug)]
struct Ask {
    needs: Vec<String>,
    several: bool,
    filters: Filters,
    limit: usize,
    detail: Detail,
    budget: usize,
}

/// A hit and, where several needs were asked, which of them it serves.
#[derive(Debug, PartialEq)]
struct Found {
    hit: Hit,
    needs: Vec<usize>,
}

#[derive(Serialize)]
struct Answer<'a> {
    tools: &'a [Box<RawValue>],
    total: usize,
    returned: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queries: Vec<NeedTotal<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
    token_cost: TokenCost,
    omission_receipt: Receipt,
}

#[derive(Debug, Clone, Serialize)]
struct NeedTotal<'a> {
    query: &'a str,
    total: usize,
}

#[derive(Debug, Clone, Serialize)]
struct Receipt {
    has_omissions: bool,
    omitted: Vec<Omission>,
}

/// Answers a search. The arguments have passed the schema. `usage`: what the caller's scope remembers, the newest
/// first; a walk that began over an older view goes on over it.
pub(super) fn search(
    gateway: &Gateway,
    ctx: &RequestContext,
    view: &View,
    usage: &[Arc<UsageView>],
    arguments: &Object,
) -> Result<JsonText, ToolError> {
    let ask = Ask::read(arguments, tokens_of(view.snapshot.settings.budgets.result_bytes))?;
    let question = ask.digest();
    let (offset, usage) = match args::text(arguments, "cursor") {
        None => (0, usage.first().map(AsRef::as_ref)),
        Some(token) => {
            let key = gateway.cursor_key(&view.snapshot);
            let opened = usage
                .iter()
                .map(AsRef::as_ref)
                .find_map(|usage| Some((key.open(&bound(view, question, usage), token).ok()?, usage)));
            let (position, usage) = opened.ok_or_else(|| {
                ToolError::new(ErrorCode::StaleCursor, format!("{}.", capital(&BadCursor.to_string())))
                    .field("/cursor")
            })?;
            (usize::try_from(position).unwrap_or(usize::MAX), Some(usage))
        }
    };
    let nothing = UsageView::default();
    let usage = usage.unwrap_or(&nothing);
    let binding = bound(view, question, usage);
    let (found, total, totals) = ask.run(ctx, view, usage, offset);
    gateway.searched(ctx, view, &ask.needs);
    let next = |returned: usize| {
        let at = offset.saturating_add(returned);
        (at < total)
            .then(|| gateway.cursor_key(&view.snapshot).seal(&binding, u64::try_from(at).unwrap_or(u64::MAX)))
    };
    let limits = if ask.detail == Detail::Brief { &BRIEF_BYTES[..] } else { &[usize::MAX][..] };
    let mut shortest = Rows::default();
    for limit in limits {
        shortest = Rows::of(view, &found, &ask, *limit);
        let returned = shortest.rows.len();
        if let Ok(answer) = with(&ask, &shortest, returned, (total, &totals), &next) {
            return Ok(answer);
        }
    }
    fit(&ask, &shortest, (total, &totals), next)
}

/// What the page tokens of a search are bound to: besides the view, what votes on it.
fn bound(view: &View, question: Digest, usage: &UsageView) -> Binding<'static> {
    let mut binding = view.binding(PURPOSE, question);
    if !usage.is_empty() {
        binding.state =
            *blake3::Hasher::new_keyed(&binding.state).update(&usage.digest()).finalize().as_bytes();
    }
    binding
}

/// Asks the sentence model what the needs mean, where there is one, off the threads that serve: it takes milliseconds of
/// a core. [`search`] finds the answers kept. A question is at most [`crate::search::sentence::PIECES_MAX`] pieces long.
pub(super) async fn think(ctx: &RequestContext, view: &View, arguments: &Object) {
    /// Questions that are thought about at once: more would only take each other's time.
    static THINKING: Semaphore = Semaphore::const_new(THINKING_MAX);
    for need in needs(arguments).1 {
        let asker = Arc::clone(&ctx.principal);
        let Some(model) = view.snapshot.sense.has_to_think(&asker.subject, &need) else { continue };
        // The semaphore is never closed. A turn lasts as long as the work, also where nobody waits for it any more.
        let Ok(turn) = THINKING.acquire().await else { return };
        let work = move || {
            model.ask(&asker.subject, &need);
            drop(turn);
        };
        // A panic in there would come again in `search`, where it is told.
        tokio::task::spawn_blocking(work).await.ok();
    }
}

/// Whether several needs were given, and all of them.
fn needs(arguments: &Object) -> (bool, Vec<String>) {
    let many = arguments.get("queries").and_then(Value::as_array);
    let many = many.map(|list| list.iter().filter_map(Value::as_str).map(normal).collect());
    let one = || vec![args::text(arguments, "query").map(normal).unwrap_or_default()];
    (many.is_some(), many.unwrap_or_else(one))
}

impl Ask {
    /// `ceiling`: the tokens that any result may take.
    fn read(arguments: &Object, ceiling: usize) -> Result<Self, ToolError> {
        let (several, needs) = needs(arguments);
        if several && args::text(arguments, "query").is_some() {
            let e = ToolError::new(ErrorCode::InvalidArgument, "Give `query` or `queries`, not both.");
            return Err(e.field("/queries"));
        }
        let detail = match args::text(arguments, "detail") {
            Some("schema") => Detail::Schema,
            Some("explain") => Detail::Explain,
            _ => Detail::Brief,
        };
        let budget = if detail == Detail::Brief { BUDGET_BRIEF } else { BUDGET_WIDE };
        Ok(Self {
            several,
            needs,
            filters: Filters {
                category: args::text(arguments, "category").map(str::to_owned),
                upstream: args::text(arguments, "upstream").map(str::to_owned),
                ..Filters::default()
            },
            limit: args::size(arguments, "limit").unwrap_or(LIMIT),
            detail,
            budget: args::size(arguments, "budget_tokens").unwrap_or(budget).min(ceiling),
        })
    }

    /// The question that a page token belongs to. Limit, detail and budget may change during a walk.
    fn digest(&self) -> Digest {
        let question = json!([self.needs, self.several, self.filters.category, self.filters.upstream]);
        *blake3::hash(&json::canonical(&question)).as_bytes()
    }

    /// The hits of this page, how many tools match in all, and how many match each need.
    fn run(
        &self,
        ctx: &RequestContext,
        view: &View,
        usage: &UsageView,
        offset: usize,
    ) -> (Vec<Found>, usize, Vec<usize>) {
        let visible = &view.roster.visible;
        let explain = self.detail == Detail::Explain;
        let search = |text: &str, offset: usize, limit: usize| {
            let filters = self.filters.clone();
            let query = Query { text, filters, offset, limit, explain };
            let asked = view.snapshot.sense.ask(&ctx.principal.subject, text);
            view.snapshot.index.search_with(&query, visible, usage, &asked)
        };
        if let ([need], false) = (self.needs.as_slice(), self.several) {
            let Results { hits, total } = search(need, offset, self.limit);
            let found = hits.into_iter().map(|hit| Found { hit, needs: Vec::new() }).collect();
            return (found, total, Vec::new());
        }
        let results: Vec<Results> = self.needs.iter().map(|n| search(n, 0, NEED_HITS_MAX)).collect();
        let totals: Vec<usize> = results.iter().map(|r| r.total).collect();
        let merged = merge(results.into_iter().map(|r| r.hits).collect());
        // More than NEED_HITS_MAX matches of one need: the union is at least as large as that need.
        let total = merged.len();
        (merged.into_iter().skip(offset).take(self.limit).collect(), total, totals)
    }
}

/// Several ranked lists into one: everyone's first, then everyone's second; each tool once, where it stands
/// first, with all needs that found it.
fn merge(lists: Vec<Vec<Hit>>) -> Vec<Found> {
    let mut serves: HashMap<ToolNo, Vec<usize>> = HashMap::new();
    for (need, hits) in lists.iter().enumerate() {
        for hit in hits {
            serves.entry(hit.tool).or_default().push(need);
        }
    }
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut out = Vec::new();
    loop {
        let round: Vec<Hit> = lists.iter_mut().filter_map(Iterator::next).collect();
        if round.is_empty() {
            return out;
        }
        for hit in round {
            // Taking the needs out marks the tool as placed.
            if let Some(needs) = serves.remove(&hit.tool) {
                out.push(Found { hit, needs });
            }
        }
    }
}

/// The rows of a page, with descriptions of at most so many bytes.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<Box<RawValue>>,
    /// Whether each row's description was cut.
    cut: Vec<bool>,
}

impl Rows {
    fn of(view: &View, found: &[Found], ask: &Ask, description_max: usize) -> Self {
        let mut out = Self::default();
        for found in found {
            let Some((row, cut)) = row(view, found, ask, description_max) else { continue };
            let Some(raw) = raw(&row) else { continue };
            out.rows.push(raw);
            out.cut.push(cut);
        }
        out
    }
}

/// Takes as many rows as fit, and says what is missing.
fn fit(
    ask: &Ask,
    rows: &Rows,
    totals: (usize, &[usize]),
    next: impl Fn(usize) -> Option<String>,
) -> Result<JsonText, ToolError> {
    let least = rows.rows.len().min(1);
    let mut smallest = 0;
    for returned in (least..=rows.rows.len()).rev() {
        match with(ask, rows, returned, totals, &next) {
            Ok(answer) => return Ok(answer),
            Err(needed) => smallest = needed,
        }
    }
    Err(ToolError::new(
        ErrorCode::BudgetTooSmall,
        format!("Not even one row fits {} tokens: set `budget_tokens` to {smallest} or more.", ask.budget),
    )
    .field("/budget_tokens")
    .details(json!({ "required": smallest })))
}

/// The answer with the first `returned` rows, counted whole; `Err` is the least budget that it needs.
fn with(
    ask: &Ask,
    rows: &Rows,
    returned: usize,
    (total, totals): (usize, &[usize]),
    next: &impl Fn(usize) -> Option<String>,
) -> Result<JsonText, usize> {
    let cursor = next(returned);
    let cut = rows.cut.iter().take(returned).filter(|cut| **cut).count();
    let omitted = receipt(ask, (returned, rows.rows.len(), cut), cursor.is_some(), total);
    let answer = |token_cost: TokenCost| Answer {
        tools: rows.rows.get(..returned).unwrap_or_default(),
        total,
        returned,
        queries: ask.totals(totals),
        next_cursor: cursor.as_deref(),
        token_cost,
        omission_receipt: omitted.clone(),
    };
    let bytes = |cost: TokenCost| json::encoded_len(&answer(cost));
    let cost = cost_of(ask.budget, bytes);
    if !cost.within_budget {
        return Err(smallest_budget(bytes));
    }
    Ok(JsonText::parse(json::to_text(&answer(cost))).unwrap_or_else(|_never| JsonText::of(&Value::Null)))
}

impl Ask {
    fn totals<'a>(&'a self, totals: &[usize]) -> Vec<NeedTotal<'a>> {
        self.needs.iter().zip(totals).map(|(query, total)| NeedTotal { query, total: *total }).collect()
    }
}

fn receipt(ask: &Ask, (returned, found, cut): (usize, usize, usize), more: bool, total: usize) -> Receipt {
    let mut omitted = Vec::new();
    let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    if more {
        let reason = if returned < found { "token_budget" } else { "limit" };
        omitted.push(Omission {
            name: "tools".to_owned(),
            count: Some(wide(total.saturating_sub(returned))),
            reason: reason.to_owned(),
            restore_with: "cursor = next_cursor".to_owned(),
        });
    }
    if cut > 0 {
        omitted.push(Omission {
            name: "description".to_owned(),
            count: Some(wide(cut)),
            reason: "compact_projection".to_owned(),
            restore_with: "detail = \"schema\"".to_owned(),
        });
    }
    if ask.detail == Detail::Brief && returned > 0 {
        omitted.push(Omission {
            name: "input_schema".to_owned(),
            count: None,
            reason: "compact_projection".to_owned(),
            restore_with: "detail = \"schema\"".to_owned(),
        });
    }
    Receipt { has_omissions: !omitted.is_empty(), omitted }
}

/// A row of the answer, only what a choice needs, and whether its description was cut.
fn row(view: &View, found: &Found, ask: &Ask, description_max: usize) -> Option<(Object, bool)> {
    let tool = view.catalog().get(found.hit.tool)?;
    let mut row = Object::new();
    let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
    put("id", json!(tool.id));
    put("name", json!(tool.wire_name));
    let description = brief(&tool.description, description_max);
    let is_cut = description.len() != tool.description.len();
    put("description", json!(description));
    if !tool.category.is_empty() {
        put("category", json!(tool.category));
    }
    let mut available = availability(view, tool);
    if ask.detail == Detail::Brief {
        // The reason is paid for once, in `describe_tool`, not in every row.
        available.truncate(available.find(':').unwrap_or(available.len()));
    }
    put("availability", json!(available));
    let annotations = json!(ToolAnnotations { title: None, ..tool.annotations.clone() });
    if annotations.as_object().is_some_and(|a| !a.is_empty()) {
        put("annotations", annotations);
    }
    if ask.several {
        put("for", json!(found.needs));
    }
    match ask.detail {
        Detail::Brief => {}
        Detail::Schema if tool.wire_schema.len() > ROW_SCHEMA_BYTES_MAX => {
            put("input_schema_bytes", json!(tool.wire_schema.len()));
        }
        Detail::Schema => {
            put("input_schema", tool.wire_schema.value());
        }
        Detail::Explain => {
            put("score", json!(found.hit.score));
            put("exact", json!(found.hit.exact));
            put("signals", json!(found.hit.signals));
        }
    }
    Some((row, is_cut))
}

/// The beginning of a description, cut after a word.
fn brief(description: &str, max: usize) -> String {
    if description.len() <= max {
        return description.to_owned();
    }
    let head = cut(description, max.saturating_sub('…'.len_utf8()));
    let head = head.rsplit_once(char::is_whitespace).map_or(head, |(before, _)| before);
    format!("{}…", head.trim_end())
}

/// `available`, or why a call would fail now.
pub(super) fn availability(view: &View, tool: &Tool) -> String {
    if let Availability::Unavailable(reason) = &tool.availability {
        return format!("unavailable: {}", cut(reason, 120));
    }
    match view.snapshot.upstreams.status(tool.upstream.as_str()).map(|s| s.state) {
        Some(UpstreamState::Down) => "unavailable: its upstream is down".to_owned(),
        None => "unavailable: its upstream is not there".to_owned(),
        Some(UpstreamState::Up | UpstreamState::Unknown | UpstreamState::Connecting) => {
            "available".to_owned()
        }
    }
}

fn raw(row: &Object) -> Option<Box<RawValue>> {
    RawValue::from_string(json::to_text(row)).ok()
}

/// Trimmed, every run of white space one space: the same need is the same question.
fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(tool: u32) -> Hit {
        Hit { tool: ToolNo(tool), score: 1.0, exact: false, signals: Vec::new() }
    }

    #[test]
    fn needs_take_turns_and_a_tool_comes_once() {
        let merged = merge(vec![vec![hit(1), hit(2)], vec![hit(2), hit(3)], vec![]]);
        let order: Vec<_> = merged.iter().map(|f| (f.hit.tool.0, f.needs.clone())).collect();
        assert_eq!(order, [(1, vec![0]), (2, vec![0, 1]), (3, vec![1])]);
    }

    #[test]
    fn a_brief_description_ends_after_a_word_within_its_bytes() {
        assert_eq!(brief("short", 40), "short");
        let long = "wörter ".repeat(60);
        for max in BRIEF_BYTES {
            let cut = brief(&long, max);
            assert!(cut.len() <= max && cut.ends_with("wörter…"), "{cut}");
        }
        assert_eq!(brief(&long, usize::MAX), long);
    }
}
