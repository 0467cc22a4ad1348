//! The two dialects and their ceilings, each with its reason.

use std::time::Duration;

/// What a script may do: the language of policies is smaller than that of projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// No loops, no anonymous functions: it terminates by construction (recursion is bounded).
    Policy,
    /// Loops and anonymous functions, over larger data.
    Projection,
}

/// The ceilings of one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Operations of the interpreter (about 0.1 µs each).
    pub operations: u64,
    /// Nested calls of script functions.
    pub call_levels: usize,
    /// Nesting of expressions outside functions.
    pub expression_depth: usize,
    /// Nesting of expressions inside functions.
    pub function_depth: usize,
    /// Bytes of one text.
    pub string_bytes: usize,
    /// Elements of one list, those of lists inside it included.
    pub array_items: usize,
    /// Entries of one object, those of objects inside it included.
    pub map_entries: usize,
    /// Variables alive at once.
    pub variables: usize,
    /// Functions defined in one script.
    pub functions: usize,
    /// Wall time of one evaluation; checked between operations, so one native call runs to its end.
    pub deadline: Duration,
    /// Bytes that one evaluation may hold more than when it began (only where the allocator is metered).
    pub memory_bytes: u64,
}

/// Lists and objects of a policy are short: scopes and tags of one caller and one tool.
const POLICY: Limits = Limits {
    operations: 100_000,
    call_levels: 24,
    expression_depth: 32,
    function_depth: 32,
    string_bytes: 64 * 1024,
    array_items: 1_000,
    map_entries: 256,
    variables: 128,
    functions: 128,
    // Only a backstop: 100,000 operations take about 10 ms. On a machine that computes for ten others they take
    // ten times as long, and a home must not fail to load because of its neighbours.
    deadline: Duration::from_secs(1),
    memory_bytes: 16 * 1024 * 1024,
};

/// 1,000,000 operations are 100 records of 10,000 operations each. Lists stay at 1,000 because Rhai counts
/// the whole list again at every push (8,000 pushes take 5 s); records go to the native sink instead, and
/// with lists this short nothing a script builds is nested deeper than the stack allows.
const PROJECTION: Limits = Limits {
    operations: 1_000_000,
    call_levels: 32,
    expression_depth: 64,
    function_depth: 32,
    string_bytes: 256 * 1024,
    array_items: 1_000,
    map_entries: 1_000,
    variables: 256,
    functions: 128,
    deadline: Duration::from_millis(250),
    memory_bytes: 64 * 1024 * 1024,
};

/// Where the allocator has no meter, memory is bounded by operations alone, so there are fewer of them.
const OPERATIONS_UNMETERED: u64 = 50_000;

impl Dialect {
    /// The ceilings of the dialect.
    pub fn limits(self) -> Limits {
        let limits = match self {
            Self::Policy => POLICY,
            Self::Projection => PROJECTION,
        };
        if super::meter::available() {
            limits
        } else {
            Limits { operations: limits.operations.min(OPERATIONS_UNMETERED), ..limits }
        }
    }
}
