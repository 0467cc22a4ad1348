//! Two policies on the same question: what an edit would change, for callers and tools, and for recorded calls.

use std::collections::BTreeSet;

use serde::Serialize;

use super::ballot::Standing;
use super::decision::{Decision, RuleRef};
use super::principal::Principal;
use super::roster::Roster;
use super::set::PolicySet;
use crate::catalog::Catalog;
use crate::id::{Scope, ToolNo};
use crate::json::Object;

/// A policy set and the catalog it decides over.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The policies.
    pub policy: &'a PolicySet,
    /// The tools.
    pub catalog: &'a Catalog,
}

/// A caller by name, as it is before and after. `None`: it is not there.
#[derive(Debug, Clone)]
pub struct ComparedCaller {
    /// Its name.
    pub name: String,
    /// As the first side knows it.
    pub before: Option<Principal>,
    /// As the second side knows it.
    pub after: Option<Principal>,
}

/// One decision that is another one now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Change {
    /// The caller.
    pub caller: String,
    /// The tool.
    pub tool: String,
    /// `permit`, `deny`, `challenge`, `confirm`, `conditional` (the arguments decide), or `absent`.
    pub before: &'static str,
    /// The same, after.
    pub after: &'static str,
    /// The rule that decides now; where nothing allows it any more, the rule that did.
    pub rule: RuleRef,
    /// What changed inside the same answer: other scopes, another question.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// What a changed policy changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PolicyDiff {
    /// What is decided otherwise, by caller and tool.
    pub changed: Vec<Change>,
    /// Pairs of a caller and a tool that are decided as before.
    pub unchanged: usize,
    /// Those of them where both sides leave it to the arguments: what these decide is not compared.
    pub conditional: usize,
}

/// What one side says of a pair: the word, the rule, and what else counts.
struct Said {
    word: &'static str,
    rule: RuleRef,
    detail: String,
}

impl Side<'_> {
    fn said(&self, who: &Principal, no: ToolNo, standing: Option<Standing>) -> Said {
        let decision = self.policy.decide(self.catalog, who, no, None);
        let detail = match &decision {
            Decision::Permit(_) | Decision::Deny { .. } => String::new(),
            Decision::Challenge(c) => list(&c.scopes),
            Decision::Confirm(c) => {
                format!("{}{}", c.question, if c.by_client { " (by the client too)" } else { "" })
            }
        };
        Said { word: word_of(standing), rule: decision.rule().clone(), detail }
    }
}

fn list(scopes: &[Scope]) -> String {
    scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(" ")
}

/// The word of `policy explain` for how a tool stands.
pub(super) fn word_of(standing: Option<Standing>) -> &'static str {
    match standing {
        Some(Standing::Callable) => "permit",
        Some(Standing::Challenge) => "challenge",
        Some(Standing::Confirm) => "confirm",
        Some(Standing::Conditional) => "conditional",
        _ => "deny",
    }
}

/// Compares two sides for every caller and every tool of both. Hidden and denied are the same to a caller.
pub fn diff(before: Side<'_>, after: Side<'_>, callers: &[ComparedCaller]) -> PolicyDiff {
    let ids: BTreeSet<&str> =
        before.catalog.tools().iter().chain(after.catalog.tools()).map(|t| t.id.as_str()).collect();
    let pairs: Vec<(&str, Option<ToolNo>, Option<ToolNo>)> = ids
        .into_iter()
        .map(|id| (id, before.catalog.lookup(id).map(|f| f.0), after.catalog.lookup(id).map(|f| f.0)))
        .collect();
    let mut out = PolicyDiff::default();
    for caller in callers {
        let roster = |side: Side<'_>, who: &Option<Principal>| {
            who.as_ref().map(|who| side.policy.roster(side.catalog, who))
        };
        let rosters = (roster(before, &caller.before), roster(after, &caller.after));
        for (id, old, new) in &pairs {
            let was = standing(rosters.0.as_deref(), *old);
            let is = standing(rosters.1.as_deref(), *new);
            // Only what shows more than its standing has to be looked at where that is the same.
            let plain = matches!(was, Some(Some(Standing::Callable | Standing::Conditional) | None) | None);
            if was == is && plain {
                out.unchanged += 1;
                out.conditional += usize::from(was == Some(Some(Standing::Conditional)));
                continue;
            }
            let said = |side: Side<'_>, who: &Option<Principal>, no: Option<ToolNo>, stands| match (who, no) {
                (Some(who), Some(no)) => side.said(who, no, stands),
                _ => Said { word: "absent", rule: super::ballot::nowhere(), detail: String::new() },
            };
            let was = said(before, &caller.before, *old, was.flatten());
            let is = said(after, &caller.after, *new, is.flatten());
            if was.word == is.word && was.detail == is.detail {
                out.unchanged += 1;
                continue;
            }
            out.changed.push(change(&caller.name, id, was, is));
        }
    }
    out
}

/// How a pair stands: nothing where the caller or the tool is not there.
#[expect(clippy::option_option, reason = "not there, there and hidden, there and visible")]
fn standing(roster: Option<&Roster>, no: Option<ToolNo>) -> Option<Option<Standing>> {
    Some(roster?.standing(no?))
}

fn change(caller: &str, tool: &str, was: Said, is: Said) -> Change {
    let detail =
        if was.word == is.word { format!("{} → {}", was.detail, is.detail) } else { String::new() };
    let rule = if is.rule.file.is_empty() { was.rule } else { is.rule };
    Change {
        caller: caller.to_owned(),
        tool: tool.to_owned(),
        before: was.word,
        after: is.word,
        rule,
        detail,
    }
}

impl PolicySet {
    /// The decision on a call as the audit writes it: `permit`, `deny` (also for what is hidden), `challenge` or
    /// `confirm`, and its rule. `None`: it depends on arguments, and they are not known.
    pub fn verdict(
        &self,
        catalog: &Catalog,
        who: &Principal,
        no: ToolNo,
        arguments: Option<&Object>,
    ) -> Option<(&'static str, RuleRef)> {
        if !self.roster(catalog, who).visible.contains(no) {
            let decision = self.decide(catalog, who, no, None);
            let is_refusal = matches!(decision, Decision::Deny { .. });
            let rule = if is_refusal { decision.rule().clone() } else { super::ballot::nowhere() };
            return Some(("deny", rule));
        }
        if arguments.is_none() && self.asks_for_arguments(catalog, who, no) {
            return None;
        }
        let decision = self.decide(catalog, who, no, arguments);
        Some((decision.word(), decision.rule().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{caller, load, sample};
    use super::*;

    fn compare(before: &str, after: &str, who: &Principal) -> PolicyDiff {
        let (one, two, catalog) = (load(&[("a.rhai", before)]), load(&[("a.rhai", after)]), sample());
        let callers =
            [ComparedCaller { name: "a".into(), before: Some(who.clone()), after: Some(who.clone()) }];
        diff(Side { policy: &one, catalog: &catalog }, Side { policy: &two, catalog: &catalog }, &callers)
    }

    #[test]
    fn only_what_is_decided_otherwise_is_named_with_its_new_rule() {
        let before = "fn rules(p) {\n  p.allow().tags([\"ci\"]);\n}";
        let after = "fn rules(p) {\n  p.allow().tags([\"ci\"]);\n  p.deny(\"frozen\").tool(\"ci.run\");\n}";
        let who = caller("a", &[]);
        let found = compare(before, after, &who);
        assert_eq!(found.changed.len(), 1, "{found:?}");
        let change = &found.changed[0];
        assert_eq!((change.tool.as_str(), change.before, change.after), ("ci.run", "permit", "deny"));
        assert_eq!(change.rule.to_string(), "policies/a.rhai:3");
        assert_eq!(found.changed.len() + found.unchanged, sample().len());
        assert_eq!(compare(before, before, &who).changed, []);
        // The rule that allowed it, where nothing does any more.
        let gone = compare(before, "fn rules(p) { p.allow().tags([\"none\"]); }", &who);
        assert!(gone.changed.iter().all(|c| c.rule.to_string() == "policies/a.rhai:2"), "{gone:?}");
    }

    #[test]
    fn other_scopes_of_a_challenge_are_a_change() {
        let rules = |scope: &str| {
            format!(
                "fn rules(p) {{ p.allow().tool(\"ci.run\"); p.challenge([\"{scope}\"]).tool(\"ci.run\"); }}"
            )
        };
        let found = compare(&rules("a"), &rules("b"), &caller("a", &[]));
        assert_eq!((found.changed.len(), found.changed[0].detail.as_str()), (1, "a → b"));
    }

    #[test]
    fn a_caller_that_is_not_there_any_more_is_absent() {
        let (set, catalog) = (load(&[("a.rhai", "fn rules(p) { p.allow().tags([\"ci\"]); }")]), sample());
        let side = Side { policy: &set, catalog: &catalog };
        let callers = [ComparedCaller { name: "a".into(), before: Some(caller("a", &[])), after: None }];
        let found = diff(side, side, &callers);
        assert_eq!((found.changed.len(), found.unchanged), (catalog.len(), 0));
        assert!(found.changed.iter().all(|c| c.after == "absent"));
    }
}
