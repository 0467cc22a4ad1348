//! Generated policies, callers and tools against a model that fits on a screen.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{caller, catalog, load, scopes, tool};
use super::*;
use crate::catalog::{Catalog, Tool};

/// A rule as data: for the model, and as text for docent.
#[derive(Debug, Clone)]
struct Sketch {
    verb: usize,
    tags: Option<Vec<usize>>,
    upstream: Option<usize>,
    read_only: Option<bool>,
    holds: Option<Vec<usize>>,
    lacks: Option<Vec<usize>>,
    tier: Option<usize>,
    target: Option<usize>,
}

const TIERS: [&str; 4] = ["workbench", "action", "system", "external"];
const DEMANDS: [usize; 2] = [0, 1];

fn sketch() -> impl Strategy<Value = Sketch> {
    let few = || prop::option::of(prop::collection::vec(0usize..4, 1..3));
    (
        0usize..5,
        few(),
        prop::option::of(0usize..3),
        prop::option::of(any::<bool>()),
        few(),
        few(),
        prop::option::of(0usize..4),
        prop::option::of(0usize..2),
    )
        .prop_map(|(verb, tags, upstream, read_only, holds, lacks, tier, target)| Sketch {
            verb,
            tags,
            upstream,
            read_only,
            holds,
            lacks,
            tier,
            // `hide` cannot look at arguments.
            target: target.filter(|_| verb != 1),
        })
}

fn names(prefix: &str, numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|n| format!("{prefix}{n}")).collect()
}

impl Sketch {
    fn text(&self) -> String {
        let verb = ["allow()", "hide()", "deny(\"no\")", "challenge([\"s0\", \"s1\"])", "confirm(\"sure?\")"]
            [self.verb];
        let mut text = vec![format!("  p.{verb}")];
        let list = |names: Vec<String>| serde_json::to_string(&names).unwrap();
        for (call, numbers, prefix) in
            [("tags", &self.tags, "t"), ("scopes", &self.holds, "s"), ("unless_scopes", &self.lacks, "s")]
        {
            if let Some(numbers) = numbers {
                text.push(format!(".{call}({})", list(names(prefix, numbers))));
            }
        }
        if let Some(u) = self.upstream {
            text.push(format!(".upstream(\"u{u}\")"));
        }
        if let Some(flag) = self.read_only {
            text.push(format!(".read_only({flag})"));
        }
        if let Some(tier) = self.tier {
            text.push(format!(".tier(\"{}\")", TIERS[tier]));
        }
        if let Some(target) = self.target {
            text.push(format!(".when_arg(\"/target\", {target})"));
        }
        text.concat() + ";\n"
    }

    /// Whether it applies, and whether that is certain.
    fn applies(&self, who: &Principal, tool: &Tool, arguments: Option<&Value>) -> Option<bool> {
        let held = |numbers: &Vec<usize>| names("s", numbers).iter().all(|s| who.has_scope(s));
        let fixed =
            self.tags.iter().all(|t| names("t", t).iter().all(|t| tool.tags.iter().any(|x| **x == **t)))
                && self.upstream.is_none_or(|u| tool.upstream.as_str() == format!("u{u}"))
                && self.read_only.is_none_or(|r| (tool.annotations.read_only == Some(true)) == r)
                && self.holds.iter().all(held)
                && !self.lacks.iter().any(held)
                && self.tier.is_none_or(|t| reaches(who, TIERS[t]))
                && (self.verb != 3 || !held(&DEMANDS.to_vec()));
        match (fixed, self.target, arguments) {
            (false, ..) => Some(false),
            (true, Some(_), None) => None,
            (true, Some(target), Some(arguments)) => Some(arguments["target"] == json!(target)),
            (true, None, _) => Some(true),
        }
    }
}

fn reaches(who: &Principal, tier: &str) -> bool {
    let rung = |t: &str| TIERS[..3].iter().position(|x| *x == t);
    who.tier.as_deref().is_some_and(|t| t == tier || rung(t).zip(rung(tier)).is_some_and(|(a, b)| a >= b))
}

/// Whether a caller that came back with all that challenges ask for here would find the tool open.
fn opens(rules: &[Sketch], who: &Principal, tool: &Tool, arguments: Option<&Value>) -> bool {
    let mut wider = who.clone();
    wider.scopes.extend(scopes(&["s0", "s1"]));
    let says = |verbs: &[usize], sure: bool| {
        let fits = |r: &Sketch| r.applies(&wider, tool, arguments);
        rules.iter().any(|r| verbs.contains(&r.verb) && fits(r).map_or(!sure, |applies| applies))
    };
    !says(&[1, 2], true) && says(&[0, 3, 4], false)
}

/// The model: what a reader of the contract would write on a napkin.
fn model(rules: &[Sketch], who: &Principal, tool: &Tool, arguments: Option<&Value>) -> Standing {
    let any =
        |verb: usize| rules.iter().any(|r| r.verb == verb && r.applies(who, tool, arguments) == Some(true));
    let maybe =
        rules.iter().any(|r| [0, 3, 4].contains(&r.verb) && r.applies(who, tool, arguments).is_none());
    match () {
        () if any(1) => Standing::Hidden,
        () if any(2) => Standing::Denied,
        () if !(any(0) || any(4) || maybe || any(3) && opens(rules, who, tool, arguments)) => {
            Standing::NotAllowed
        }
        () if tool.tier.as_ref().is_some_and(|t| !reaches(who, t)) => Standing::Tier,
        () if any(3) || tool.scopes.iter().any(|s| !who.scopes.contains(s)) => Standing::Challenge,
        () if any(4) => Standing::Confirm,
        () if any(0) => Standing::Callable,
        () => Standing::Conditional,
    }
}

fn standing_of(decision: &Decision) -> Standing {
    match decision {
        Decision::Permit(_) => Standing::Callable,
        Decision::Challenge(_) => Standing::Challenge,
        Decision::Confirm(_) => Standing::Confirm,
        Decision::Deny { reason: Reason::Hidden, .. } => Standing::Hidden,
        Decision::Deny { reason: Reason::Denied(_), .. } => Standing::Denied,
        Decision::Deny { reason: Reason::NotAllowed, .. } => Standing::NotAllowed,
        Decision::Deny { reason: Reason::Tier { .. }, .. } => Standing::Tier,
        Decision::Deny { reason: Reason::PolicyFault(_), .. } => Standing::Fault,
    }
}

/// 70 tools: more than one word of a bitmap.
fn tools() -> Catalog {
    let of = |n: usize| {
        tool(&format!("u{}.n{n:02}", n % 3), |t| {
            t.tags = (0..4).filter(|i| n >> i & 1 == 1).map(|i| format!("t{i}").into()).collect();
            t.annotations.read_only = [None, Some(true), Some(false)][n % 7 % 3];
            t.scopes = if n.is_multiple_of(5) { scopes(&["s2"]).into() } else { [].into() };
            t.tier = n.is_multiple_of(6).then(|| TIERS[n / 6 % 4].into());
        })
    };
    catalog((0..70).map(of).collect())
}

fn callers() -> impl Strategy<Value = Principal> {
    (prop::collection::btree_set(0usize..4, 0..4), prop::option::of(0usize..4)).prop_map(|(held, tier)| {
        let names: Vec<String> = held.iter().map(|n| format!("s{n}")).collect();
        let mut who = caller("c", &names.iter().map(String::as_str).collect::<Vec<_>>());
        who.tier = tier.map(|t| TIERS[t].into());
        who
    })
}

fn text_of(rules: &[Sketch]) -> String {
    format!("fn rules(p) {{\n{}}}", rules.iter().map(Sketch::text).collect::<String>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn decisions_equal_the_model_and_rosters_equal_decisions(
        rules in prop::collection::vec(sketch(), 0..10),
        who in prop::collection::vec(callers(), 1..4),
        target in 0usize..3,
    ) {
        let set = load(&[("a.rhai", &text_of(&rules))]);
        let catalog = tools();
        let arguments = json!({ "target": target });
        for who in &who {
            let roster = set.roster(&catalog, who);
            for (no, tool) in catalog.iter() {
                let unknown = model(&rules, who, tool, None);
                // The roster is the bitmap path, `standing` the row path, the model neither.
                prop_assert_eq!(set.standing(&catalog, who, no), unknown);
                prop_assert_eq!(roster.visible.contains(no), unknown.is_visible());
                prop_assert_eq!(roster.standing(no), Some(unknown).filter(|s| s.is_visible()));
                let decided = set.decide(&catalog, who, no, arguments.as_object());
                prop_assert_eq!(standing_of(&decided), model(&rules, who, tool, Some(&arguments)));
                // Listing and calling cannot disagree: what is permitted is listed.
                if matches!(decided, Decision::Permit(_) | Decision::Challenge(_) | Decision::Confirm(_)) {
                    prop_assert!(roster.visible.contains(no));
                }
                if no.0 % 16 > 0 {
                    continue;
                }
                let explained = set.explain(&catalog, who, no, arguments.as_object()).unwrap();
                prop_assert_eq!(explained.decision == "permit", matches!(decided, Decision::Permit(_)));
            }
        }
    }

    #[test]
    fn adding_a_deny_or_a_hide_never_grants(
        rules in prop::collection::vec(sketch(), 0..8),
        more in sketch(),
        hide in any::<bool>(),
        who in callers(),
    ) {
        let less = Sketch { verb: if hide { 1 } else { 2 }, target: more.target.filter(|_| !hide), ..more };
        let before = load(&[("a.rhai", &text_of(&rules))]);
        let after = load(&[("a.rhai", &text_of(&rules)), ("b.rhai", &text_of(&[less]))]);
        let catalog = tools();
        let (b, a) = (before.roster(&catalog, &who), after.roster(&catalog, &who));
        for (less, more) in [(&a.visible, &b.visible), (&a.callable, &b.callable)] {
            prop_assert!(less.iter().all(|no| more.contains(no)));
        }
    }

    #[test]
    fn the_order_of_files_decides_nothing(rules in prop::collection::vec(sketch(), 2..8), who in callers()) {
        let (first, second) = rules.split_at(rules.len() / 2);
        let one = load(&[("a.rhai", &text_of(first)), ("b.rhai", &text_of(second))]);
        let two = load(&[("a.rhai", &text_of(second)), ("b.rhai", &text_of(first))]);
        let catalog = tools();
        let (one, two) = (one.roster(&catalog, &who), two.roster(&catalog, &who));
        prop_assert_eq!(&one.visible, &two.visible);
        prop_assert_eq!((&one.callable, &one.challenged, &one.confirm), (&two.callable, &two.challenged, &two.confirm));
    }
}

/// The same policy as rules and as functions that read in several orders, some of it only on some paths.
#[test]
fn a_function_answers_by_class_what_it_answers_tool_by_tool() {
    let functions = r#"
fn visible(caller, tool) { !(tool.upstream == "u1" && !caller.has_scope("s1")) }
fn decide(caller, tool, args) {
  if tool.has_tag("t0") {
    if tool.annotations.read_only { return allow(); }
    if tool.id == "u2.n05" { return deny("that one"); }
    return if caller.tier_at_least("action") { confirm("sure?") } else { abstain() };
  }
  if "t1" in tool.tags { challenge(["s0"]) } else { abstain() }
}
"#;
    let rules = r#"
fn rules(p) {
  p.hide().upstream("u1").unless_scopes(["s1"]);
  p.allow().tags(["t0"]).read_only();
  p.deny("that one").tool("u2.n05").read_only(false);
  p.confirm("sure?").tags(["t0"]).read_only(false).tier("action").unless_tool("u2.n05");
  p.challenge(["s0"]).tags(["t1"]).unless_tags(["t0"]);
}
"#;
    let (by_function, by_rule, catalog) =
        (load(&[("f.rhai", functions)]), load(&[("r.rhai", rules)]), tools());
    let mut seen = BTreeSet::new();
    for held in [&[][..], &["s0"], &["s1"], &["s0", "s1", "s2"]] {
        for tier in [None, Some("workbench"), Some("system"), Some("external")] {
            let mut who = caller("c", held);
            who.tier = tier.map(Into::into);
            let (f, r) = (by_function.roster(&catalog, &who), by_rule.roster(&catalog, &who));
            for (no, tool) in catalog.iter() {
                assert_eq!(f.standing(no), r.standing(no), "{} for {who:?}", tool.id);
                assert_eq!(
                    f.standing(no),
                    Some(by_function.standing(&catalog, &who, no)).filter(|s| s.is_visible())
                );
                seen.insert(by_function.standing(&catalog, &who, no));
            }
        }
    }
    assert!(seen.len() >= 6, "the sample reaches most standings: {seen:?}");
}
