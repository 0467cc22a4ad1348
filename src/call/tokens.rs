//! What an answer costs a model: ceil(bytes / 4) of the whole answer, its own cost included (seed 004).

use serde::Serialize;

/// Bytes that count as one token.
const BYTES_PER_TOKEN: usize = 4;

/// The exact cost of the answer it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TokenCost {
    /// ceil(bytes / 4) of the complete serialized answer, this number included.
    pub estimated_tokens: usize,
    /// What was allowed.
    pub budget: usize,
    /// Whether the first is at most the second.
    pub within_budget: bool,
}

/// The tokens of a number of bytes.
pub fn tokens_of(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// The cost of an answer, where `bytes(cost)` is its length with that cost written into it.
///
/// The number is part of what it counts. A larger number never makes the answer shorter (more digits, and
/// `false` is longer than `true`), so counting up from zero ends at the least fixed point in a few rounds.
pub fn cost_of(budget: usize, bytes: impl Fn(TokenCost) -> usize) -> TokenCost {
    let cost =
        |tokens: usize| TokenCost { estimated_tokens: tokens, budget, within_budget: tokens <= budget };
    let mut tokens = 0;
    loop {
        let next = tokens_of(bytes(cost(tokens)));
        if next <= tokens {
            return cost(tokens);
        }
        tokens = next;
    }
}

/// The smallest budget in which an answer fits, where `bytes` is as for [`cost_of`].
pub fn smallest_budget(bytes: impl Fn(TokenCost) -> usize) -> usize {
    let mut budget = 0;
    loop {
        let tokens = cost_of(budget, &bytes).estimated_tokens;
        if tokens <= budget {
            return budget;
        }
        budget = tokens;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json;

    #[derive(Serialize)]
    struct Answer {
        text: String,
        token_cost: TokenCost,
    }

    proptest! {
        #[test]
        fn the_cost_counts_itself_and_the_smallest_budget_works(len in 0usize..9_000, budget in 1usize..3_000) {
            let bytes = |token_cost| json::encoded_len(&Answer { text: "x".repeat(len), token_cost });
            let cost = cost_of(budget, bytes);
            prop_assert_eq!(cost.estimated_tokens, tokens_of(bytes(cost)));
            prop_assert_eq!(cost.within_budget, cost.estimated_tokens <= budget);
            let smallest = smallest_budget(bytes);
            prop_assert!(cost_of(smallest, bytes).within_budget);
            prop_assert!(!cost_of(smallest - 1, bytes).within_budget);
        }
    }
}
