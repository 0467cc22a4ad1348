//! Tiers: an ordered ladder, and flat peers beside it.

use std::sync::Arc;

/// The ladder of `[tiers].order`, lowest rung first. A tier that is not on it is a flat peer: it reaches
/// itself and nothing else.
#[derive(Debug, Clone, Default)]
pub struct Tiers(Vec<Arc<str>>);

impl Tiers {
    /// A ladder, lowest rung first.
    pub fn new(order: &[String]) -> Self {
        Self(order.iter().map(|t| Arc::from(t.as_str())).collect())
    }

    /// The rungs, lowest first.
    pub fn order(&self) -> &[Arc<str>] {
        &self.0
    }

    fn rung(&self, tier: &str) -> Option<usize> {
        self.0.iter().position(|t| **t == *tier)
    }

    /// Whether a caller's tier reaches the one required: the same, or a higher rung of the ladder.
    pub fn reaches(&self, held: Option<&str>, required: &str) -> bool {
        let Some(held) = held else { return false };
        held == required
            || self.rung(held).zip(self.rung(required)).is_some_and(|(held, required)| held >= required)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_is_cumulative_and_peers_are_flat() {
        let tiers = Tiers::new(&["workbench".into(), "action".into(), "system".into()]);
        assert!(tiers.reaches(Some("system"), "workbench") && tiers.reaches(Some("action"), "action"));
        assert!(!tiers.reaches(Some("workbench"), "action") && !tiers.reaches(None, "workbench"));
        assert!(tiers.reaches(Some("external"), "external"));
        assert!(!tiers.reaches(Some("external"), "workbench") && !tiers.reaches(Some("system"), "external"));
    }
}
