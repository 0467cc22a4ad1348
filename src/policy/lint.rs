//! Rules that load and cannot mean what they say: covering nothing, contradicting themselves, written twice,
//! and a set of rules that allows nothing at all.

use super::function::Phase;
use super::rule::{CallerTest, Effect, Rule, ToolTest};
use super::set::PolicySet;
use crate::catalog::Catalog;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity, did_you_mean};
use crate::id::Scope;

impl PolicySet {
    /// Reports what looks like a slip of the pen. `scopes` are those that callers hold or that the settings name.
    /// A rule has to cover something in one of the catalogs.
    pub fn lint(&self, catalogs: &[&Catalog], scopes: &[Scope], diagnostics: &mut Diagnostics) {
        let rules = &self.inner().rules;
        let mut idle: Vec<usize> = (0..rules.len()).collect();
        for compiled in catalogs.iter().map(|c| self.compiled(c)) {
            let here: Vec<usize> = compiled.idle().collect();
            idle.retain(|rule| here.contains(rule));
        }
        // What an agent narrows was written by nobody: an agent may name every tool.
        for rule in idle.into_iter().filter_map(|i| rules.get(i)).filter(|r| r.at.line > 0) {
            let message = "this rule covers no tool of the catalog";
            let help = "check the spelling of its tags, upstreams, categories and patterns";
            let note = at(rule, "idle-rule", message).help(help);
            diagnostics.push(Diagnostic { severity: Severity::Note, ..note });
        }
        for rule in rules {
            if let Some(why) = contradiction(rule) {
                let message = format!("this rule never applies: {why}");
                diagnostics.push(at(rule, "dead-rule", message).help("take one of the two tests out"));
            }
            for (scope, near) in strange_scopes(rule, scopes) {
                let message = format!("no caller holds the scope `{scope}`");
                diagnostics.push(at(rule, "unknown-scope", message).help(format!("did you mean `{near}`?")));
            }
        }
        for (i, rule) in rules.iter().enumerate().filter(|(_, r)| r.at.line > 0) {
            if let Some(twin) = rules.iter().take(i).find(|other| same(other, rule)) {
                let message = format!("this rule says the same as the one at {}", twin.at);
                diagnostics.push(at(rule, "same-rule", message).help("remove one of them"));
            }
        }
        self.lint_whole(catalogs, diagnostics);
    }

    /// Rules that only refuse refuse everything: nothing is allowed by being left over.
    fn lint_whole(&self, catalogs: &[&Catalog], diagnostics: &mut Diagnostics) {
        let inner = self.inner();
        if !self.may_open_agents()
            && let Some(first) = inner.functions.iter().find(|f| f.phase == Phase::AgentOpen)
        {
            let message = "no `agent_open` allows anything, so no agent is ever opened";
            let help =
                "answer `allow()` where it may be opened, or `challenge([…])` with the scopes that it takes";
            let mut warning = Diagnostic::warning("nothing-allowed", &*first.at.file, message).help(help);
            warning.line = first.at.line;
            diagnostics.push(warning);
        }
        let allows = |r: &Rule| matches!(r.effect, Effect::Allow | Effect::Confirm { .. });
        let may = inner.rules.iter().any(allows) || inner.functions.iter().any(|f| f.phase == Phase::Decide);
        if may || catalogs.iter().all(|c| c.is_empty()) {
            return;
        }
        let place = inner.rules.iter().find(|r| r.at.line > 0).map(|r| r.at.clone());
        let file = place.as_ref().map_or("docent.toml", |p| &*p.file);
        let message = "no policy allows anything, so every tool is refused to everybody";
        let help = "a tool is allowed by `p.allow()`, `[[allow]]` or `decide`; denying some allows no others";
        let mut warning = Diagnostic::warning("nothing-allowed", file, message).help(help);
        warning.line = place.map_or(0, |p| p.line);
        diagnostics.push(warning);
    }
}

fn at(rule: &Rule, code: &'static str, message: impl Into<String>) -> Diagnostic {
    let mut found = Diagnostic::warning(code, &*rule.at.file, message);
    found.line = rule.at.line;
    found
}

/// Two tests of a rule that cannot both hold.
fn contradiction(rule: &Rule) -> Option<String> {
    let held: Vec<&Scope> = rule.caller.iter().filter_map(scopes_held).flatten().collect();
    for test in &rule.caller {
        if let CallerTest::UnlessScopes(lacked) = test
            && lacked.iter().all(|s| held.contains(&s))
        {
            return Some("it asks for scopes and for their absence".to_owned());
        }
    }
    if let Effect::Challenge(asked) = &rule.effect
        && asked.iter().all(|s| held.contains(&s))
    {
        return Some("it challenges for scopes that its own test asks for".to_owned());
    }
    let tags = |pick: fn(&ToolTest) -> Option<&Vec<std::sync::Arc<str>>>| {
        rule.tool.iter().filter_map(pick).flatten()
    };
    let all = |t: &ToolTest| matches!(t, ToolTest::Tags(_));
    let wanted = tags(|t| if let ToolTest::Tags(tags) = t { Some(tags) } else { None });
    let unwanted: Vec<_> =
        tags(|t| if let ToolTest::UnlessTags(tags) = t { Some(tags) } else { None }).collect();
    if rule.tool.iter().any(all) && wanted.into_iter().any(|tag| unwanted.contains(&tag)) {
        return Some("it asks for a tag and for its absence".to_owned());
    }
    let flags = [
        (ToolTest::ReadOnly(true), ToolTest::ReadOnly(false)),
        (ToolTest::Destructive(true), ToolTest::Destructive(false)),
        (ToolTest::OpenWorld(true), ToolTest::OpenWorld(false)),
        (ToolTest::Idempotent(true), ToolTest::Idempotent(false)),
        (ToolTest::Deprecated(true), ToolTest::Deprecated(false)),
    ];
    let both = flags.iter().any(|(yes, no)| rule.tool.contains(yes) && rule.tool.contains(no));
    both.then(|| "it asks for an annotation and for its absence".to_owned())
}

fn scopes_held(test: &CallerTest) -> Option<&Vec<Scope>> {
    if let CallerTest::Scopes(scopes) = test { Some(scopes) } else { None }
}

/// Scopes that a rule names and nobody holds, where one that somebody holds is spelled almost the same. A scope
/// that is only strange may come with a token.
fn strange_scopes<'a>(rule: &'a Rule, known: &'a [Scope]) -> Vec<(&'a Scope, &'a str)> {
    let tests = rule.caller.iter().filter_map(|t| match t {
        CallerTest::Scopes(s) | CallerTest::AnyScopes(s) | CallerTest::UnlessScopes(s) => Some(s),
        _ => None,
    });
    let asked = match &rule.effect {
        Effect::Challenge(scopes) => Some(scopes),
        _ => None,
    };
    tests
        .chain(asked)
        .flatten()
        .filter(|s| !known.contains(s))
        .filter_map(|s| Some((s, did_you_mean(s.as_str(), known.iter().map(Scope::as_str))?)))
        .collect()
}

/// Whether two rules are one written twice. Places do not count, and neither does the order of tests.
fn same(a: &Rule, b: &Rule) -> bool {
    fn each<T: PartialEq>(a: &[T], b: &[T]) -> bool {
        a.len() == b.len() && a.iter().all(|t| b.contains(t)) && b.iter().all(|t| a.contains(t))
    }
    a.effect == b.effect
        && each(&a.tool, &b.tool)
        && each(&a.caller, &b.caller)
        && each(&a.arguments, &b.arguments)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{load, sample};
    use super::*;

    fn codes(rules: &str) -> Vec<String> {
        let set = load(&[("a.rhai", &format!("fn rules(p) {{\n{rules}\n}}"))]);
        let known = ["ops:read", "ops:deploy"].map(|s| Scope::parse(s).unwrap());
        let mut found = Diagnostics::default();
        set.lint(&[&sample()], &known, &mut found);
        found.0.iter().map(|d| format!("{}:{}", d.code, d.line)).collect()
    }

    #[test]
    fn agents_that_nothing_opens_are_told() {
        let told = |text: &str| {
            let set = load(&[("a.rhai", "fn rules(p) { p.allow(); }"), ("b.rhai", text)]);
            let mut found = Diagnostics::default();
            set.lint(&[&sample()], &[], &mut found);
            found.0.iter().map(|d| format!("{}:{}", d.code, d.line)).collect::<Vec<_>>()
        };
        let refuses = "if agent.id == \"x\" { deny(\"retired\") } else { abstain() }";
        assert_eq!(told(&format!("fn agent_open(caller, agent) {{ {refuses} }}")), ["nothing-allowed:1"]);
        for opens in ["allow()", "challenge([\"x\"])"] {
            assert!(told(&format!("fn agent_open(caller, agent) {{ {opens} }}")).is_empty(), "{opens}");
        }
        assert!(told("fn agent_visible(caller, agent) { true }").is_empty());
    }

    #[test]
    fn slips_of_the_pen_are_named_with_their_line() {
        assert!(codes("p.allow().tags([\"ci\"]);").is_empty());
        assert_eq!(codes("p.allow().tags([\"cii\"]);"), ["idle-rule:2"]);
        assert_eq!(
            codes("p.allow();\np.deny(\"x\").scopes([\"ops:read\"]).unless_scopes([\"ops:read\"]);"),
            ["dead-rule:3"]
        );
        assert_eq!(codes("p.allow();\np.challenge([\"ops:read\"]).scopes([\"ops:read\"]);"), ["dead-rule:3"]);
        assert_eq!(codes("p.allow().tags([\"ci\"]).unless_tags([\"ci\"]);"), ["idle-rule:2", "dead-rule:2"]);
        assert_eq!(codes("p.allow().scopes([\"ops:raed\"]);"), ["unknown-scope:2"]);
        assert!(codes("p.allow().scopes([\"billing\"]);").is_empty(), "a token may bring it");
        assert_eq!(codes("p.allow().tags([\"ci\"]);\np.allow().tags([\"ci\"]);"), ["same-rule:3"]);
        assert_eq!(codes("p.deny(\"no\").tags([\"ci\"]);"), ["nothing-allowed:2"]);
    }
}
