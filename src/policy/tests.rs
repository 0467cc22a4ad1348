//! Decisions through the public face: files and tables in, decisions, rosters and explanations out.

use serde_json::{Value, json};

use super::*;
use crate::catalog::{Catalog, CatalogBuilder, Tool};
use crate::diagnostic::{Diagnostics, SourceFile};
use crate::id::{Scope, ToolId, ToolNo, UpstreamId};
use crate::json::Object;
use crate::schema::SchemaText;

pub(super) fn tool(id: &str, edit: impl FnOnce(&mut Tool)) -> Tool {
    let (upstream, name) = id.split_once('.').unwrap();
    let mut tool = Tool::new(
        ToolId::parse(id).unwrap(),
        UpstreamId::parse(upstream).unwrap(),
        name,
        SchemaText::empty_object(),
    );
    edit(&mut tool);
    tool
}

pub(super) fn catalog(tools: Vec<Tool>) -> Catalog {
    let mut builder = CatalogBuilder::new(Vec::new());
    for tool in tools {
        builder.push(tool);
    }
    builder.build(&mut Diagnostics::default())
}

pub(super) fn scopes(list: &[&str]) -> Vec<Scope> {
    list.iter().map(|s| Scope::parse(s).unwrap()).collect()
}

pub(super) fn caller(subject: &str, held: &[&str]) -> Principal {
    Principal { subject: subject.into(), scopes: scopes(held).into_iter().collect(), ..Principal::default() }
}

fn sources(files: &[(&str, &str)]) -> Vec<SourceFile> {
    files.iter().map(|(name, text)| SourceFile::new(format!("policies/{name}"), *text)).collect()
}

pub(super) fn load(files: &[(&str, &str)]) -> PolicySet {
    let mut diagnostics = Diagnostics::default();
    let tiers = ["workbench", "action", "system"].map(str::to_owned);
    let set = PolicySet::load(&sources(files), PolicyTables::default(), &tiers, &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{diagnostics}");
    set
}

fn mistakes(text: &str) -> String {
    let mut diagnostics = Diagnostics::default();
    let set = PolicySet::load(&sources(&[("a.rhai", text)]), PolicyTables::default(), &[], &mut diagnostics);
    let catalog = sample();
    for (no, _) in catalog.iter() {
        let decision = set.decide(&catalog, &caller("root", &["a", "b"]), no, None);
        assert!(
            !diagnostics.has_errors()
                || matches!(decision, Decision::Deny { reason: Reason::PolicyFault(_), .. }),
            "a set with a mistake denies everything"
        );
        assert!(
            !diagnostics.has_errors() || set.roster(&catalog, &Principal::anonymous()).visible.is_empty()
        );
    }
    diagnostics.to_string()
}

pub(super) fn sample() -> Catalog {
    catalog(vec![
        tool("billing.pay", |t| t.tags = vec!["money".into()].into()),
        tool("ci.log", |t| {
            t.tags = vec!["ci".into()].into();
            t.annotations.read_only = Some(true);
        }),
        tool("ci.run", |t| t.tags = vec!["ci".into()].into()),
        tool("deploy.prod", |t| t.tags = vec!["ci".into(), "deploy".into()].into()),
        tool("deploy.test", |t| {
            t.tags = vec!["ci".into(), "deploy".into()].into();
            t.tier = Some("action".into());
        }),
        tool("vault.read", |t| t.scopes = scopes(&["vault:read", "vault:list"]).into()),
    ])
}

/// A decision in a word or two.
fn word(decision: &Decision) -> String {
    match decision {
        Decision::Permit(p) => format!("permit {}:{}", p.rule().file, p.rule().line),
        Decision::Deny { reason, rule } => format!("{reason:?} {}:{}", rule.file, rule.line),
        Decision::Challenge(c) => format!("challenge {:?} {}:{}", c.scopes, c.rule.file, c.rule.line),
        Decision::Confirm(c) => {
            format!("confirm {} {} {}:{}", c.question, c.by_client, c.rule.file, c.rule.line)
        }
    }
}

fn decide(
    set: &PolicySet,
    catalog: &Catalog,
    who: &Principal,
    id: &str,
    arguments: impl std::borrow::Borrow<Value>,
) -> String {
    let (no, _) = catalog.lookup(id).unwrap();
    word(&set.decide(catalog, who, no, arguments.borrow().as_object()))
}

fn visible(set: &PolicySet, catalog: &Catalog, who: &Principal) -> Vec<String> {
    let roster = set.roster(catalog, who);
    roster.visible.iter().map(|no| catalog.get(no).unwrap().id.to_string()).collect()
}

const RULES: &str = r#"
fn rules(p) {
  p.allow().tags(["ci"]).scopes(["ops:read"]);
  p.allow().upstream("billing");
  p.hide().upstream("billing").unless_scopes(["billing:read"]);
  p.challenge(["ops:deploy"]).tool("deploy.*");
  p.deny("not on fridays").tool("deploy.prod").when_arg("/target", "prod");
  p.confirm("Really?").tool("ci.run").by_client();
}
"#;

#[test]
fn the_contracts_example_decides_as_it_reads() {
    let (set, catalog) = (load(&[("10.rhai", RULES)]), sample());
    let nobody = caller("nobody", &[]);
    let ops = caller("ops", &["ops:read"]);
    let mut deployer = caller("deployer", &["ops:read", "ops:deploy", "billing:read"]);
    deployer.tier = Some("system".into());

    assert_eq!(
        visible(&set, &catalog, &nobody),
        ["ci.run"],
        "a confirm stands alone; nobody is sent for a scope that is not enough"
    );
    assert_eq!(visible(&set, &catalog, &ops), ["ci.log", "ci.run", "deploy.prod"]);
    assert_eq!(
        visible(&set, &catalog, &deployer),
        ["billing.pay", "ci.log", "ci.run", "deploy.prod", "deploy.test"]
    );
    let ask = |who: &Principal, id: &str, arguments: Value| decide(&set, &catalog, who, id, arguments);
    assert_eq!(ask(&ops, "ci.log", json!({})), "permit policies/10.rhai:3");
    assert_eq!(ask(&ops, "ci.run", json!({})), "confirm Really? true policies/10.rhai:8");
    assert_eq!(ask(&ops, "billing.pay", json!({})), "Hidden policies/10.rhai:5");
    assert_eq!(ask(&ops, "deploy.prod", json!({})), "challenge [\"ops:deploy\"] policies/10.rhai:6");
    assert_eq!(ask(&ops, "vault.read", json!({})), "NotAllowed :0");
    assert_eq!(ask(&deployer, "deploy.prod", json!({"target": "test"})), "permit policies/10.rhai:3");
    let friday = "Denied(\"not on fridays\") policies/10.rhai:7";
    assert_eq!(ask(&deployer, "deploy.prod", json!({"target": "prod"})), friday);
    assert_eq!(ask(&ops, "deploy.prod", json!({"target": "prod"})), friday, "a deny beats a challenge");
    deployer.tier = Some("workbench".into());
    assert_eq!(
        ask(&deployer, "deploy.test", json!({})),
        "Tier { required: \"action\" } scripts/deploy/upstream.toml:0"
    );
}

#[test]
fn a_tools_own_scopes_challenge_only_what_is_allowed_and_visible() {
    let catalog = sample();
    let allow = "fn rules(p) {\n  p.allow().upstream(\"vault\");\n}";
    let set = load(&[("a.rhai", allow)]);
    let half = caller("half", &["vault:list"]);
    let challenge = "challenge [\"vault:list\", \"vault:read\"] scripts/vault/upstream.toml:0";
    assert_eq!(decide(&set, &catalog, &half, "vault.read", json!({})), challenge);
    assert_eq!(
        decide(&set, &catalog, &caller("b", &["vault:list", "vault:read"]), "vault.read", json!({})),
        "permit policies/a.rhai:2"
    );
    let hidden = load(&[("a.rhai", allow), ("b.rhai", "fn rules(p) { p.hide().tool(\"vault.*\") }")]);
    assert_eq!(decide(&hidden, &catalog, &half, "vault.read", json!({})), "Hidden policies/b.rhai:1");
    assert_eq!(decide(&load(&[]), &catalog, &half, "vault.read", json!({})), "NotAllowed :0");
}

#[test]
fn functions_decide_like_rules_and_see_what_they_may() {
    let text = r#"
fn visible(caller, tool) {
  tool.upstream != "billing" || has_scope(caller, "billing:read")
}

fn decide(caller, tool, args) {
  if tool.matches("deploy.*") {
    if args.target == "prod" && "team" in caller.claims { return deny("not this one"); }
    return challenge(["ops:deploy"]);
  }
  if "ci" in tool.tags && caller.tier_at_least("action") { allow() } else { abstain() }
}
"#;
    let (set, catalog) = (load(&[("f.rhai", text)]), sample());
    let mut ann = caller("ann", &["ops:deploy"]);
    ann.tier = Some("system".into());
    ann.claims = std::sync::Arc::new(json!({"team": "x"}).as_object().unwrap().clone());
    assert_eq!(visible(&set, &catalog, &ann), ["ci.log", "ci.run", "deploy.prod", "deploy.test"]);
    let roster = set.roster(&catalog, &ann);
    assert_eq!((roster.callable.count(), roster.conditional.count()), (2, 2));
    assert_eq!(decide(&set, &catalog, &ann, "ci.log", json!({})), "permit policies/f.rhai:11");
    assert_eq!(
        decide(&set, &catalog, &ann, "deploy.prod", json!({"target": "prod"})),
        "Denied(\"not this one\") policies/f.rhai:8"
    );
    assert_eq!(
        decide(&set, &catalog, &ann, "deploy.prod", json!({})),
        "NotAllowed :0",
        "a satisfied challenge grants nothing"
    );
    let bob = caller("bob", &[]);
    assert_eq!(
        decide(&set, &catalog, &bob, "deploy.prod", json!({})),
        "NotAllowed :0",
        "nor does it ask for what opens nothing"
    );
    assert_eq!(decide(&set, &catalog, &bob, "billing.pay", json!({})), "Hidden policies/f.rhai:2");
    assert_eq!(decide(&set, &catalog, &bob, "ci.log", json!({})), "NotAllowed :0");
}

#[test]
fn whatever_fails_denies_and_says_where() {
    let catalog = sample();
    let everyone = "fn rules(p) { p.allow(); }";
    for (text, expected) in [
        ("fn visible(caller, tool) { 1 }", "`visible` must return true or false, it returned i64"),
        ("fn decide(caller, tool, args) { true }", "`decide` must return allow(), deny(…)"),
        ("fn decide(caller, tool, args) { }", "it returned nothing"),
        ("fn decide(caller, tool, args) { tool.tags + 1; allow() }", "policies/f.rhai:1:"),
        ("fn decide(caller, tool, args) { throw \"no\" }", "policies/f.rhai:1:"),
        ("fn r(n) { r(n + 1) } fn visible(caller, tool) { r(0) }", "deeper than a script may"),
        (
            "fn r(n) { if n > 0 { r(n - 1); r(n - 1) } } fn visible(caller, tool) { r(22); true }",
            "policies/f.rhai:1:",
        ),
        ("fn decide(caller, tool, args) { deny(\"\") }", "the reason is empty"),
        ("fn visible(caller, tool) { let o = tool; o.nope }", "policies/f.rhai:1:"),
    ] {
        let set = load(&[("f.rhai", text), ("g.rhai", everyone)]);
        let who = caller("a", &[]);
        assert!(set.roster(&catalog, &who).visible.is_empty(), "{text}");
        for (no, _) in catalog.iter() {
            match set.decide(&catalog, &who, no, Some(&Object::new())) {
                Decision::Deny { reason: Reason::PolicyFault(found), .. } => {
                    assert!(found.contains(expected), "{text}: {found}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}

#[test]
fn policies_that_would_lie_do_not_load() {
    for (text, expected) in [
        (
            "fn visible(caller, tool) { tool.catgory == \"x\" }",
            "a.rhai:1:33: error[unknown-field]: `tool` has no field `catgory`",
        ),
        ("fn visible(caller, tool) { tool.catgory == \"x\" }", "did you mean `tool.category`?"),
        ("fn visible(me, it) { me.scope.len() > 0 }", "`caller` has no field `scope`"),
        (
            "fn decide(caller, tool, args) { if tool.annotations.readonly { allow() } else { abstain() } }",
            "`tool.annotations` has no field `readonly`",
        ),
        ("fn visible(caller, tool) { caller[\"tier\"] == \"x\" }", "`caller` has fields, not an index"),
        (
            "fn visible(caller, tool) { ok(caller, tool) } fn ok(caller, t) { caller.team == 1 }",
            "`caller` has no field `team`",
        ),
        ("fn visible(caller, tool) { tool.arguments.x }", "`tool` has no field `arguments`"),
        ("fn visble(caller, tool) { true }", "did you mean `visible`?"),
        ("fn visible(caller) { true }", "write `fn visible(caller, tool)`"),
        ("fn decide(caller, tool) { allow() }", "write `fn decide(caller, tool, args)`"),
        ("fn visible(caller, tool) { ownz(\"job\", tool.id) }", "unknown function `ownz`"),
        ("fn visible(caller, tool) { args.x }", "error[script-syntax]"),
        ("fn rules(p) { p.alow() }", "did you mean `allow`?"),
        ("fn rules(p) { p.allow().tag(\"x\") }", "did you mean `tags`?"),
        ("fn rules(p) { p.deny() }", "`deny` cannot be called with (Policy)"),
        (
            "fn rules(p) {\n  p.allow();\n  p.allow().tags([]);\n}",
            "a.rhai:3:13: error[policy-rules]: expected a text or a list of texts, not empty",
        ),
        ("fn rules(p) { p.hide().when_arg(\"/x\", 1) }", "`hide` cannot look at arguments"),
        ("fn rules(p) { p.deny(\"x\").when_arg(\"x\", 1) }", "write `/name`"),
        ("fn rules(p) { p.allow().by_client() }", "`by_client` belongs to `confirm`"),
        ("fn rules(p) { p.challenge([\"not a scope\"]) }", "the scope `not a scope`"),
        ("fn rules(p) { p.allow().tags(7) }", "expected a text"),
        ("let x = 1;", "error[script-top-level]"),
        ("fn rules(p) { p.deny(\"x\").no_such }", "error[policy-rules]"),
    ] {
        let found = mistakes(text);
        assert!(found.contains(expected), "{text}\n{found}");
    }
    assert!(mistakes("").contains("warning[empty-policy]"));
}

#[test]
fn an_explanation_names_the_rule_the_votes_and_the_facts() {
    let (set, catalog) = (load(&[("10.rhai", RULES)]), sample());
    let ops = caller("ops", &["ops:read"]);
    let (no, _) = catalog.lookup("deploy.prod").unwrap();
    let arguments = json!({"target": "prod"});
    let explained =
        serde_json::to_value(set.explain(&catalog, &ops, no, arguments.as_object()).unwrap()).unwrap();
    assert_eq!(explained["decision"], "deny");
    assert_eq!(explained["rule"], json!({"file": "policies/10.rhai", "line": 7}));
    assert_eq!(explained["reason"], "not on fridays");
    let steps: Vec<String> = explained["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            format!(
                "{}:{} {}",
                s["rule"]["line"],
                s["phase"].as_str().unwrap(),
                s["answer"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(steps, ["3:rule allow", "6:rule challenge", "7:rule deny"]);
    assert_eq!(explained["facts"]["caller.scopes"], json!(["ops:read"]));
    assert_eq!(explained["facts"]["tool.tags"], json!(["ci", "deploy"]));
    let unknown = set.explain(&catalog, &ops, no, None).unwrap();
    assert_eq!((unknown.decision, unknown.visible), ("challenge", true));
    assert_eq!(unknown.scopes, scopes(&["ops:deploy"]));
}

#[test]
fn arguments_that_decide_make_a_tool_conditional_never_callable() {
    let set = load(&[("a.rhai", "fn rules(p) { p.allow().tool(\"ci.run\").when_arg(\"/dry\", true); }")]);
    let (catalog, who) = (sample(), caller("a", &[]));
    let roster = set.roster(&catalog, &who);
    assert_eq!((roster.visible.count(), roster.conditional.count(), roster.callable.count()), (1, 1, 0));
    assert_eq!(decide(&set, &catalog, &who, "ci.run", json!({"dry": true})), "permit policies/a.rhai:1");
    assert_eq!(decide(&set, &catalog, &who, "ci.run", json!({"dry": false})), "NotAllowed :0");
    assert_eq!(decide(&set, &catalog, &who, "ci.run", Value::Null), "NotAllowed policies/a.rhai:1");
}

#[test]
fn a_confirmed_call_is_permitted_unless_something_else_stands_against_it() {
    let (set, catalog) = (load(&[("10.rhai", RULES)]), sample());
    let (no, _) = catalog.lookup("ci.run").unwrap();
    let ops = caller("ops", &["ops:read"]);
    assert!(matches!(set.decide_confirmed(&catalog, &ops, no, &Object::new()), Decision::Permit(_)));
    let (prod, _) = catalog.lookup("deploy.prod").unwrap();
    assert!(matches!(set.decide_confirmed(&catalog, &ops, prod, &Object::new()), Decision::Challenge(_)));
}

#[test]
fn ownership_is_looked_up_when_the_call_is_there() {
    let text = "fn decide(caller, tool, args) {\n  if owns(\"run\", args.id) { allow() } else { deny(\"not yours\") }\n}";
    let set = load(&[("a.rhai", text)]);
    let (catalog, who) = (sample(), caller("a", &[]));
    let no = catalog.lookup("ci.run").unwrap().0;
    let conditional = |set: &PolicySet| set.roster(&catalog, &who).conditional.contains(no);
    assert!(conditional(&set), "a list cannot know it");
    let arguments = json!({"id": 7});
    assert!(decide(&set, &catalog, &who, "ci.run", arguments.clone()).contains("not yours"));
    set.ledger().created(&who.subject, "run", "7");
    assert_eq!(decide(&set, &catalog, &who, "ci.run", arguments.clone()), "permit policies/a.rhai:2");
    assert!(decide(&set, &catalog, &caller("b", &[]), "ci.run", arguments.clone()).contains("not yours"));
    assert!(conditional(&set));
    let edited = load(&[("b.rhai", text)]).with_ledger(std::sync::Arc::clone(set.ledger()));
    assert_eq!(decide(&edited, &catalog, &who, "ci.run", arguments), "permit policies/b.rhai:2");
    let elsewhere = load(&[("a.rhai", "fn agent_visible(caller, agent) { owns(\"run\", 7) }")]);
    let agent = AgentFacts {
        id: crate::id::AgentId::parse("x").unwrap(),
        description: "".into(),
        capabilities: Vec::new(),
        tools: Vec::new(),
    };
    assert!(!elsewhere.agent_visible(&who, &agent), "where it is not known, it refuses");
}

#[test]
fn the_class_of_a_caller_is_what_the_policies_on_agents_read() {
    let set = load(&[(
        "a.rhai",
        "fn agent_visible(caller, agent) { agent.id != \"x\" || caller.has_scope(\"s\") }",
    )]);
    let agent = |id: &str| AgentFacts {
        id: crate::id::AgentId::parse(id).unwrap(),
        description: "".into(),
        capabilities: Vec::new(),
        tools: Vec::new(),
    };
    let (with, without, same) = (caller("a", &["s"]), caller("b", &[]), caller("c", &["other"]));
    let agents = [agent("x"), agent("y")];
    let hidden = |who| {
        let decided = set.agents(who, &agents);
        assert!(decided.complete);
        decided.of.iter().map(AgentDecision::is_hidden).collect::<Vec<_>>()
    };
    assert_eq!((hidden(&with), hidden(&without)), (vec![false, false], vec![true, false]));
    assert_ne!(set.agent_class(&with), set.agent_class(&without));
    assert_eq!(set.agent_class(&same), set.agent_class(&without), "nothing else of them is read");
    assert!(set.speaks_of_agents() && !load(&[("10.rhai", RULES)]).speaks_of_agents());
}

#[test]
fn tables_of_docent_toml_are_rules_and_their_mistakes_are_told() {
    let read = |text: &str| {
        let mut diagnostics = Diagnostics::default();
        let file = SourceFile::new("docent.toml", text);
        let tables = crate::settings::read(&file, &mut diagnostics, PolicyTables::read);
        let set = PolicySet::load(&[], tables, &[], &mut diagnostics);
        (set, diagnostics.to_string())
    };
    let (set, problems) = read(
        "[[allow]]\nread_only = true\n\n[[allow]]\ntools = [\"ci.*\"]\nscopes = [\"ops:read\"]\nclaims = { team = [\"a\", \"b\"] }\n\n[[deny]]\ntags = [\"money\"]\nreason = \"no money\"\n\n[[challenge]]\nrequire = [\"x:y\"]\nupstreams = [\"deploy\"]\n\n[[allow]]\ntools = [\"deploy.*\"]\nscopes = [\"x:y\"]\n",
    );
    assert_eq!(problems, "");
    let catalog = sample();
    let mut ops = caller("ops", &["ops:read"]);
    assert_eq!(decide(&set, &catalog, &ops, "ci.log", json!({})), "permit docent.toml:1");
    assert_eq!(decide(&set, &catalog, &ops, "ci.run", json!({})), "NotAllowed :0");
    ops.claims = std::sync::Arc::new(json!({"team": "b"}).as_object().unwrap().clone());
    assert_eq!(decide(&set, &catalog, &ops, "ci.run", json!({})), "permit docent.toml:4");
    assert_eq!(decide(&set, &catalog, &ops, "billing.pay", json!({})), "Denied(\"no money\") docent.toml:9");
    assert_eq!(decide(&set, &catalog, &ops, "deploy.prod", json!({})), "challenge [\"x:y\"] docent.toml:13");
    let (_, problems) =
        read("[[allow]]\ntag = [\"x\"]\n[[challenge]]\ntags = [\"y\"]\n[[deny]]\nscopes = []\n");
    for expected in [
        "unknown key `tag` in `[allow[0]]`",
        "a challenge needs `require`",
        "`deny[0].scopes` is an empty list",
    ] {
        assert!(problems.contains(expected), "{problems}");
    }
}

/// Seed 003: never a challenge for a hidden target; and what no scope would open is hidden.
#[test]
fn a_challenge_shows_what_its_scopes_would_open_and_nothing_else() {
    let text = r#"
fn decide(caller, tool, args) {
  if tool.matches("ci.*") {
    if !caller.has_scope("a") { return challenge(["a"]); }
    if !caller.has_scope("b") { return challenge(["b"]); }
    return if caller.claims.team == "x" { allow() } else { abstain() };
  }
  if tool.matches("deploy.*") { return challenge(["n" + caller.scopes.len()]); }
  if tool.matches("vault.*") {
    return if args.open == true && caller.has_scope("a") { allow() } else { challenge(["a"]) };
  }
  challenge(["a"])
}
"#;
    let rules =
        "fn rules(p) { p.hide().upstream(\"billing\").scopes([\"a\"]); p.allow().upstream(\"billing\"); }";
    let (set, catalog) = (load(&[("f.rhai", text), ("r.rhai", rules)]), sample());
    let mut ann = caller("ann", &[]);
    let shown = |who: &Principal| visible(&set, &catalog, who);
    // `billing` is allowed and challenged: that it would be hidden from a caller with more is no ground to hide it now.
    assert_eq!(shown(&ann), ["billing.pay", "vault.read"]);
    assert_eq!(decide(&set, &catalog, &ann, "ci.log", json!({})), "NotAllowed :0");
    assert_eq!(decide(&set, &catalog, &ann, "deploy.prod", json!({})), "NotAllowed :0", "asks for ever more");
    let asked = "challenge [\"a\", \"vault:list\", \"vault:read\"] policies/f.rhai:10";
    assert_eq!(decide(&set, &catalog, &ann, "vault.read", json!({"open": true})), asked);
    assert_eq!(decide(&set, &catalog, &ann, "vault.read", json!({"open": false})), "NotAllowed :0");
    // Another caller of the same scopes, whom the same steps lead in: no answer of ann's is used for it.
    ann.claims = std::sync::Arc::new(json!({"team": "x"}).as_object().unwrap().clone());
    assert_eq!(shown(&ann), ["billing.pay", "ci.log", "ci.run", "vault.read"]);
    assert_eq!(decide(&set, &catalog, &ann, "ci.log", json!({})), "challenge [\"a\"] policies/f.rhai:4");
    let half = Principal { scopes: scopes(&["a"]).into_iter().collect(), ..ann.clone() };
    assert_eq!(decide(&set, &catalog, &half, "ci.log", json!({})), "challenge [\"b\"] policies/f.rhai:5");
    // Rules alone, of callers that differ only in what stands beside the scopes.
    let rules = "fn rules(p) {\n  p.allow().tags([\"ci\"]).scopes([\"a\", \"b\"]).subject(\"ann\");\n  p.challenge([\"a\"]).tags([\"ci\"]);\n}";
    let set = load(&[("r.rhai", rules)]);
    for (name, held, seen) in [("bob", "b", 0), ("ann", "c", 0), ("ann", "b", 3), ("ann", "a", 0)] {
        assert_eq!(set.roster(&catalog, &caller(name, &[held])).visible.count(), seen, "{name} with {held}");
    }
}

#[test]
fn agents_are_hidden_challenged_and_opened() {
    let agent = AgentFacts {
        id: crate::id::AgentId::parse("release").unwrap(),
        description: "".into(),
        capabilities: vec!["release".into()],
        tools: Vec::new(),
    };
    let text = "fn agent_visible(caller, agent) { caller.has_scope(\"ops:read\") }\nfn agent_open(caller, agent) {\n  if caller.has_scope(\"ops:deploy\") { allow() } else { challenge([\"ops:deploy\"]) }\n}";
    let set = load(&[("a.rhai", text)]);
    assert!(!set.agent_visible(&caller("a", &[]), &agent));
    assert!(matches!(
        set.agent_open(&caller("a", &[]), &agent),
        AgentDecision::Deny { reason: Reason::Hidden, .. }
    ));
    match set.agent_open(&caller("a", &["ops:read"]), &agent) {
        AgentDecision::Challenge(c) => assert_eq!((c.scopes, c.rule.line), (scopes(&["ops:deploy"]), 3)),
        other => panic!("{other:?}"),
    }
    assert_eq!(set.agent_open(&caller("a", &["ops:read", "ops:deploy"]), &agent), AgentDecision::Open);
    assert_eq!(load(&[]).agent_open(&caller("a", &[]), &agent), AgentDecision::Open);
    // A challenge by itself is what it takes: refused without, opened with, and refused where more stands against it.
    let alone = load(&[("a.rhai", "fn agent_open(caller, agent) { challenge([\"ops:deploy\"]) }")]);
    assert!(matches!(alone.agent_open(&caller("a", &[]), &agent), AgentDecision::Challenge(_)));
    assert_eq!(alone.agent_open(&caller("a", &["ops:deploy"]), &agent), AgentDecision::Open);
    let two = "if !caller.has_scope(\"one\") { challenge([\"one\"]) } else { challenge([\"two\"]) }";
    let two = load(&[("a.rhai", &format!("fn agent_open(caller, agent) {{ {two} }}"))]);
    match two.agent_open(&caller("a", &[]), &agent) {
        AgentDecision::Challenge(c) => assert_eq!(c.scopes, scopes(&["one", "two"]), "all at once"),
        other => panic!("{other:?}"),
    }
    let in_vain = "if caller.has_scope(\"one\") { deny(\"retired\") } else { challenge([\"one\"]) }";
    let in_vain = load(&[("a.rhai", &format!("fn agent_open(caller, agent) {{ {in_vain} }}"))]);
    for held in [&[][..], &["one"]] {
        let decided = in_vain.agent_open(&caller("a", held), &agent);
        assert!(
            matches!(decided, AgentDecision::Deny { .. }),
            "nobody is sent for what opens nothing: {decided:?}"
        );
    }
    let silent = load(&[("a.rhai", "fn agent_open(caller, agent) { abstain() }")]);
    assert!(matches!(silent.agent_open(&caller("a", &[]), &agent), AgentDecision::Deny { .. }));
    let faulty = load(&[("a.rhai", "fn agent_open(caller, agent) { confirm(\"x\") }")]);
    assert!(matches!(
        faulty.agent_open(&caller("a", &[]), &agent),
        AgentDecision::Deny { reason: Reason::PolicyFault(_), .. }
    ));
}

#[test]
fn redactions_are_united_and_a_fault_is_an_error() {
    let text = "fn redact(caller, tool) { if caller.has_scope(\"pii\") { [] } else { [\"email\", \"/owner/phone\"] } }";
    let set = load(&[("a.rhai", text), ("b.rhai", "fn redact(caller, tool) { [\"email\", \"ssn\"] }")]);
    let catalog = sample();
    let first = &catalog.tools()[0];
    let dropped = set.redactions(&caller("a", &[]), first).unwrap();
    assert_eq!(dropped.iter().map(|d| &**d).collect::<Vec<_>>(), ["/owner/phone", "email", "ssn"]);
    assert_eq!(set.redactions(&caller("a", &["pii"]), first).unwrap().len(), 2);
    let faulty = load(&[("a.rhai", "fn redact(caller, tool) { [1] }")]);
    assert!(faulty.redactions(&caller("a", &[]), first).is_err());
}

#[test]
fn rosters_are_shared_by_class_and_never_between_catalogs() {
    let text = "fn rules(p) { p.allow().scopes([\"a\"]); }\nfn visible(caller, tool) { tool.id != caller.claims.own }";
    let (set, catalog, other) = (load(&[("a.rhai", text)]), sample(), sample());
    let share = |a: &Principal, b: &Principal| {
        std::sync::Arc::ptr_eq(&set.roster(&catalog, a), &set.roster(&catalog, b))
    };
    assert!(share(&caller("x", &["a"]), &caller("y", &["a", "unread"])), "the subject is never read");
    assert!(!share(&caller("x", &["a"]), &caller("x", &[])));
    let mut own = caller("x", &["a"]);
    own.claims = std::sync::Arc::new(json!({"own": "ci.run"}).as_object().unwrap().clone());
    assert!(!share(&own, &caller("x", &["a"])));
    assert_eq!(
        set.roster(&catalog, &own).visible.count() + 1,
        set.roster(&catalog, &caller("x", &["a"])).visible.count()
    );
    assert_ne!(set.roster(&catalog, &own).class(), set.roster(&other, &own).class());
    assert_eq!(
        set.decide(&catalog, &own, ToolNo(99), None),
        Decision::Deny { reason: Reason::Hidden, rule: RuleRef { file: "".into(), line: 0 } }
    );
}

#[test]
fn a_matrix_counts_and_names() {
    let (set, catalog) = (load(&[("10.rhai", RULES)]), sample());
    let rows = set
        .matrix(&catalog, &[("nobody".into(), caller("n", &[])), ("ops".into(), caller("o", &["ops:read"]))]);
    let ops = &rows[1];
    assert_eq!((ops.callable, ops.challenged, ops.confirm, ops.conditional, ops.hidden), (1, 1, 1, 0, 3));
    assert_eq!(
        serde_json::to_value(&ops.tools).unwrap(),
        json!({"ci.log": "callable", "ci.run": "confirm", "deploy.prod": "challenge"})
    );
    let mut diagnostics = Diagnostics::default();
    load(&[("a.rhai", "fn rules(p) {\n  p.allow().tags([\"cii\"]);\n}")]).lint(
        &[&catalog],
        &[],
        &mut diagnostics,
    );
    assert!(diagnostics.to_string().contains("policies/a.rhai:2:1: note[idle-rule]"), "{diagnostics}");
}
