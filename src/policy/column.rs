//! Functions over a whole catalog: run once per class of what they read, not once per tool.
//!
//! A function's answer depends on the values it reads, in the order it reads them. The runs so far form a
//! tree: each node asks for one attribute, each edge is one of its values, each leaf is an answer. A tool
//! whose values lead to a leaf has its answer without running anything; else the function runs once and the
//! path it took is added.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::answer::{Outcome, Vote};
use super::function::{PhaseFunction, Question};
use super::principal::Principal;
use super::tier::Tiers;
use super::views::{CallerRead, ToolFacts, ToolRead};
use crate::catalog::{Catalog, ToolSet};
use crate::clock::Clock;
use crate::id::{Scope, ToolNo};
use crate::json;

/// Runs of one function for one caller: as many as the largest catalog has tools, should it read their ids.
const RUNS_MAX: usize = 50_000;
/// Attributes whose values are kept as numbers, per catalog: 40 KB each at 10,000 tools. Policies read some
/// dozens; what they ask of a tool with the words of a caller would grow without end.
const VALUES_KEPT: usize = 256;
/// Values of an attribute whose edges stand in a row; most attributes are a yes or no.
const EDGES_IN_ROW: usize = 8;
/// No edge there.
const NO_EDGE: u32 = u32::MAX;
/// Wall time of one function over one catalog; what is left then counts as failed.
const COLUMN_TIME: Duration = Duration::from_secs(2);

/// What policies may read of every tool of a catalog, and the values of attributes as small numbers.
#[derive(Debug)]
pub(super) struct ToolTable {
    pub(super) tools: Vec<Arc<ToolFacts>>,
    values: RwLock<Values>,
}

#[derive(Debug, Default)]
struct Values {
    by_read: HashMap<ToolRead, Arc<[u32]>>,
    order: VecDeque<ToolRead>,
}

impl ToolTable {
    pub(super) fn of(catalog: &Catalog) -> Self {
        let tools = catalog.tools().iter().map(|t| Arc::new(ToolFacts::of(t))).collect();
        Self { tools, values: RwLock::default() }
    }

    /// One number per tool: equal numbers are equal values.
    fn column(&self, read: &ToolRead) -> Arc<[u32]> {
        let known = |values: &Values| values.by_read.get(read).map(Arc::clone);
        if let Some(found) = known(&self.values.read().unwrap_or_else(PoisonError::into_inner)) {
            return found;
        }
        let mut numbers: HashMap<Vec<u8>, u32> = HashMap::new();
        let number = |tool: &Arc<ToolFacts>| match read.value(tool) {
            // The commonest by far. Other values begin at 2, so a fact that is both stays apart.
            Value::Bool(yes) => u32::from(yes),
            other => {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX).saturating_add(2);
                *numbers.entry(json::canonical(&other)).or_insert(next)
            }
        };
        let column: Arc<[u32]> = self.tools.iter().map(number).collect();
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known(&values) {
            return found;
        }
        values.by_read.insert(read.clone(), Arc::clone(&column));
        values.order.push_back(read.clone());
        if values.order.len() > VALUES_KEPT
            && let Some(oldest) = values.order.pop_front()
        {
            values.by_read.remove(&oldest);
        }
        column
    }
}

/// The answers of one function for one caller, to every tool.
#[derive(Debug)]
pub(super) struct Column {
    outcomes: Vec<Outcome>,
    of_tool: Vec<u32>,
}

impl Column {
    /// The answer for a tool, by its number.
    pub(super) fn outcome(&self, tool: usize) -> Option<&Outcome> {
        self.outcomes.get(usize::try_from(*self.of_tool.get(tool)?).ok()?)
    }

    /// The tools of each challenge, with the scopes that it asks for.
    pub(super) fn challenges(&self) -> Vec<(Vec<Scope>, ToolSet)> {
        let asks = |outcome: &Outcome| match &outcome.vote {
            Vote::Challenge(scopes) => Some((scopes.clone(), ToolSet::none(self.of_tool.len()))),
            _ => None,
        };
        let mut found: Vec<_> = self.outcomes.iter().map(asks).collect();
        if found.iter().any(Option::is_some) {
            for (no, outcome) in (0u32..).map(ToolNo).zip(&self.of_tool) {
                let cell = usize::try_from(*outcome).ok().and_then(|at| found.get_mut(at));
                if let Some(Some((_, tools))) = cell {
                    tools.insert(no);
                }
            }
        }
        found.into_iter().flatten().collect()
    }

    /// Every tool's answer, in order of numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Outcome> {
        (0..self.of_tool.len()).filter_map(|i| self.outcome(i))
    }
}

enum Node {
    Ask { column: Arc<[u32]>, edges: Edges },
    Leaf(u32),
}

/// From the value of an attribute to the next node.
struct Edges {
    row: [u32; EDGES_IN_ROW],
    beyond: HashMap<u32, u32>,
}

impl Default for Edges {
    fn default() -> Self {
        Self { row: [NO_EDGE; EDGES_IN_ROW], beyond: HashMap::new() }
    }
}

impl Edges {
    fn get(&self, value: u32) -> Option<usize> {
        let place = usize::try_from(value).ok().and_then(|at| self.row.get(at));
        let node = place.or_else(|| self.beyond.get(&value)).filter(|node| **node != NO_EDGE)?;
        usize::try_from(*node).ok()
    }

    fn insert(&mut self, value: u32, node: u32) {
        match usize::try_from(value).ok().and_then(|at| self.row.get_mut(at)) {
            Some(place) => *place = node,
            None => {
                self.beyond.insert(value, node);
            }
        }
    }
}

/// A column, what it read of the caller, and whether it may be kept (one that ran out of time may not).
pub(super) struct Filled {
    pub(super) column: Column,
    pub(super) reads: BTreeSet<CallerRead>,
    pub(super) complete: bool,
    /// How often the function ran for it.
    pub(super) runs: usize,
}

struct Filling<'a> {
    function: &'a PhaseFunction,
    question: Question,
    table: &'a ToolTable,
    nodes: Vec<Node>,
    outcomes: Vec<Outcome>,
    numbers: HashMap<Outcome, u32>,
    reads: BTreeSet<CallerRead>,
    runs: usize,
    until: Instant,
    complete: bool,
}

/// Asks a function about every tool. Call it where the stack is deep (`script::stack::run`).
pub(super) fn fill(
    function: &PhaseFunction,
    who: &Arc<Principal>,
    tiers: &Arc<Tiers>,
    table: &ToolTable,
) -> Filled {
    let Some(first) = table.tools.first() else {
        let column = Column { outcomes: Vec::new(), of_tool: Vec::new() };
        return Filled { column, reads: BTreeSet::new(), complete: true, runs: 0 };
    };
    let question = Question {
        who: Arc::clone(who),
        tiers: Arc::clone(tiers),
        tool: Arc::clone(first),
        arguments: None,
        ledger: Arc::default(),
    };
    let mut filling = Filling {
        function,
        question,
        table,
        nodes: Vec::new(),
        outcomes: Vec::new(),
        numbers: HashMap::new(),
        reads: BTreeSet::new(),
        runs: 0,
        until: Clock::system().now() + COLUMN_TIME,
        complete: true,
    };
    let of_tool = (0..table.tools.len()).map(|i| filling.answer(i)).collect();
    Filled {
        column: Column { outcomes: filling.outcomes, of_tool },
        reads: filling.reads,
        complete: filling.complete,
        runs: filling.runs,
    }
}

impl Filling<'_> {
    /// The number of the outcome for a tool: from the tree, or by running the function.
    fn answer(&mut self, tool: usize) -> u32 {
        let mut at = 0;
        loop {
            match self.nodes.get(at) {
                Some(Node::Leaf(outcome)) => return *outcome,
                Some(Node::Ask { column, edges }) => {
                    match column.get(tool).and_then(|value| edges.get(*value)) {
                        Some(next) => at = next,
                        None => return self.run(tool),
                    }
                }
                None => return self.run(tool),
            }
        }
    }

    fn run(&mut self, tool: usize) -> u32 {
        let spent = self.runs >= RUNS_MAX;
        if spent || (self.runs.is_multiple_of(64) && Clock::system().now() > self.until) {
            self.complete &= spent;
            self.runs = RUNS_MAX;
            return self.number(Outcome { vote: self.too_much(), at: self.function.at.clone() });
        }
        self.runs += 1;
        let Some(facts) = self.table.tools.get(tool) else { return 0 };
        self.question.tool = Arc::clone(facts);
        let (outcome, log) = self.function.ask(&self.question);
        self.reads.extend(log.caller_reads());
        // A script that ran out of time may end on a quieter machine: its tools are denied for this answer only.
        self.complete &= !log.has_met_deadline();
        let leaf = self.number(outcome);
        self.learn(&log.tool_reads(), tool, leaf);
        leaf
    }

    fn too_much(&self) -> Vote {
        Vote::Fault(Arc::from(format!(
            "{}:{}: `{}` takes too long over the whole catalog; read tags or `tool.matches(…)` instead of `tool.id`",
            self.function.at.file,
            self.function.at.line,
            self.function.phase.name()
        )))
    }

    fn number(&mut self, outcome: Outcome) -> u32 {
        let next = u32::try_from(self.outcomes.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(outcome.clone()).or_insert(next);
        if number == next {
            self.outcomes.push(outcome);
        }
        number
    }

    /// Adds the path of one run to the tree.
    fn learn(&mut self, reads: &[ToolRead], tool: usize, leaf: u32) {
        // Where the next node goes: the root, or the edge of a node for a value.
        let mut slot: Option<(usize, u32)> = None;
        let mut at = (!self.nodes.is_empty()).then_some(0);
        for read in reads {
            let node = match at {
                Some(node) => node,
                None => {
                    let ask = Node::Ask { column: self.table.column(read), edges: Edges::default() };
                    self.attach(slot, ask)
                }
            };
            let Some(Node::Ask { column, edges }) = self.nodes.get(node) else { return };
            let Some(value) = column.get(tool).copied() else { return };
            at = edges.get(value);
            slot = Some((node, value));
        }
        if at.is_none() {
            self.attach(slot, Node::Leaf(leaf));
        }
    }

    fn attach(&mut self, slot: Option<(usize, u32)>, node: Node) -> usize {
        let index = self.nodes.len();
        self.nodes.push(node);
        if let Some((parent, value)) = slot
            && let Some(Node::Ask { edges, .. }) = self.nodes.get_mut(parent)
        {
            edges.insert(value, u32::try_from(index).unwrap_or(NO_EDGE));
        }
        index
    }
}
