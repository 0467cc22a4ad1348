//! `discover_tools`: progressive discovery over any list of tools, as a library function (seed 004).
//!
//! It ranks candidates that a host has (not docent's catalog), with docent's own index, and answers one page that
//! fits a token budget, with receipts for what it left out and a cursor that cannot be forged. It keeps nothing
//! between calls but the process's own cursor key: a host that asks often keeps [`Candidates`]. It knows no callers, no wire and no clock.

mod answer;
mod candidate;
mod options;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

pub use answer::{
    CACHE_TTL_MS, CONTRACT_VERSION, Cache, Cost, Discovery, INVALIDATES_ON, RankingPolicy, Receipt, Row,
    SignalSet,
};
pub use candidate::{CANDIDATES_MAX, Candidate, HostSignals, read_candidates};
pub use options::{
    BUDGET_DEFAULT, BUDGET_MIN, CURSOR_CHARS_MAX, DiscoverOptions, LIMIT_DEFAULT, LIMIT_MAX, OutputBudget,
    Tier,
};

use crate::catalog::ToolSet;
use crate::cursor::{BadCursor, Binding, CursorKey, Digest};
use crate::id::ToolNo;

use super::asking::HostValues;
use super::index::ToolIndex;
use super::ranking::Ranking;
use super::score::Scored;

/// What the cursors are for.
const PURPOSE: &str = "discover_tools";
/// Bytes of the key that a process draws for itself.
const OWN_KEY_BYTES: usize = 32;

/// Why there is no answer. Every message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoverError {
    /// An option or a candidate is not as it has to be.
    #[error("`{at}` {problem}")]
    Invalid {
        /// Where: `limit`, `candidates/3/name`.
        at: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The cursor is of another question, other candidates, another key, or of nobody.
    #[error(transparent)]
    BadCursor(#[from] BadCursor),
    /// The smallest answer is larger than the budget.
    #[error(
        "not even one tool fits {budget} tokens: set `outputBudget` to {required} or more, or to \"unbounded\""
    )]
    BudgetTooSmall {
        /// What was allowed.
        budget: usize,
        /// The smallest budget that works for the same question.
        required: usize,
    },
    /// The machine gave no randomness for the process's own key.
    #[error("no random bytes for a cursor key of this process: give `cursorIntegrityKey`")]
    NoRandomness,
}

impl DiscoverError {
    fn invalid(at: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { at: at.into(), problem: problem.into() }
    }
}

/// Ranks the candidates that are authorized and answers one page, with the shipped ranking.
///
/// The answer depends on the arguments alone, not on the order of the candidates (and, where no key is given,
/// on the key that this process drew once).
pub fn discover_tools(
    candidates: &[Candidate],
    options: &DiscoverOptions,
) -> Result<Discovery, DiscoverError> {
    Candidates::new(candidates, shipped())?.discover(options)
}

/// The shipped ranking, read once: it is a constant of the program.
fn shipped() -> &'static Ranking {
    static SHIPPED: OnceLock<Ranking> = OnceLock::new();
    SHIPPED.get_or_init(Ranking::shipped)
}

/// Authorized candidates with their index, to be asked more than once.
#[derive(Debug)]
pub struct Candidates {
    /// In the order of name, then digest: the numbers of the index.
    list: Vec<Candidate>,
    host: Vec<HostValues>,
    index: ToolIndex,
    ranking: Ranking,
    digest: Digest,
}

impl Candidates {
    /// Checks the candidates, drops those that are not authorized, and indexes the rest.
    pub fn new(candidates: &[Candidate], ranking: &Ranking) -> Result<Self, DiscoverError> {
        candidate::check(candidates)?;
        let mut list: Vec<(Digest, &Candidate)> =
            candidates.iter().filter(|c| c.authorized).map(|c| (c.digest(), c)).collect();
        list.sort_by(|(a, x), (b, y)| (x.name.as_bytes(), a).cmp(&(y.name.as_bytes(), b)));
        let mut hasher = blake3::Hasher::new();
        for (digest, _) in &list {
            hasher.update(digest);
        }
        let list: Vec<Candidate> = list.into_iter().map(|(_, c)| c.clone()).collect();
        let tools = list.iter().enumerate().map(|(no, c)| c.tool(no).map(Arc::new));
        let tools = tools.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            host: list.iter().map(|c| c.signals.values()).collect(),
            index: ToolIndex::of(&tools, ranking),
            ranking: ranking.clone(),
            digest: *hasher.finalize().as_bytes(),
            list,
        })
    }

    /// One page of what matches.
    pub fn discover(&self, options: &DiscoverOptions) -> Result<Discovery, DiscoverError> {
        let query = options.check()?;
        let chosen = self.chosen(options)?;
        let mut ranked = self.index.scored(&query, &chosen, &self.host);
        // Numbers stand in the order of names.
        ranked.sort_unstable_by_key(|s| (std::cmp::Reverse(s.score), s.tool));
        let key = key(options)?;
        let binding = Binding {
            purpose: PURPOSE,
            class: self.digest,
            question: options.question(&query),
            state: self.state(&ranked),
        };
        let offset = match &options.cursor {
            None => 0,
            Some(token) => usize::try_from(key.open(&binding, token)?).map_err(|_far| BadCursor)?,
        };
        let found: Vec<(&Candidate, Scored)> = ranked
            .iter()
            .skip(offset)
            .take(options.limit)
            .filter_map(|s| Some((self.list.get(s.tool.index())?, *s)))
            .collect();
        answer::Page {
            query,
            options,
            ranking: &self.ranking,
            total: ranked.len(),
            offset,
            found,
            key,
            binding,
        }
        .answer()
    }

    /// The candidates of the family and tier that were asked for.
    fn chosen(&self, options: &DiscoverOptions) -> Result<ToolSet, DiscoverError> {
        if let Some(family) = &options.family
            && !self.list.iter().any(|c| c.family.as_ref() == Some(family))
        {
            return Err(DiscoverError::invalid("family", self.families(family)));
        }
        let mut set = ToolSet::none(self.list.len());
        for (no, candidate) in (0u32..).zip(&self.list) {
            let family = options.family.is_none() || options.family == candidate.family;
            if family && candidate.tier <= options.tier {
                set.insert(ToolNo(no));
            }
        }
        Ok(set)
    }

    /// What is said of a family that no authorized candidate has.
    fn families(&self, wrong: &str) -> String {
        /// More would make the message longer than a page of tools.
        const NAMED_MAX: usize = 20;
        let known: std::collections::BTreeSet<&str> =
            self.list.iter().filter_map(|c| c.family.as_deref()).collect();
        let named = known.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
        match known.len() {
            0 => format!("is `{wrong}`, but no candidate has a family: leave it out"),
            1..=NAMED_MAX => format!("is `{wrong}`; the families are {named}"),
            n => format!("is `{wrong}`; the {n} families are {named}, …"),
        }
    }

    /// What a walk goes over: the ranked list itself, so that nothing that changes it can be forgotten here.
    fn state(&self, ranked: &[Scored]) -> Digest {
        let mut hasher = blake3::Hasher::new();
        for weight in &self.ranking.signals {
            hasher.update(&weight.to_le_bytes());
        }
        for scored in ranked {
            hasher.update(&scored.tool.0.to_le_bytes());
            hasher.update(&scored.score.to_le_bytes());
            for value in &scored.values {
                hasher.update(&value.to_le_bytes());
            }
        }
        *hasher.finalize().as_bytes()
    }
}

/// The host's key, or the one that this process drew for itself when it first needed one.
fn key(options: &DiscoverOptions) -> Result<CursorKey, DiscoverError> {
    static OWN: OnceLock<Option<CursorKey>> = OnceLock::new();
    if let Some(material) = &options.cursor_integrity_key {
        return Ok(CursorKey::new(material.expose().as_bytes()));
    }
    let own = OWN.get_or_init(|| {
        let mut material = [0; OWN_KEY_BYTES];
        getrandom::fill(&mut material).ok().map(|()| CursorKey::new(&material))
    });
    own.clone().ok_or(DiscoverError::NoRandomness)
}
