//! The shipped policies: they load without a word, their cases hold, their reference is the source's.

use docent::catalog::Catalog;
use docent::diagnostic::{Diagnostics, SourceFile};
use docent::policy::{PolicySet, PolicyTables};

use crate::support::root;

const MARK: &str = "<!-- reference -->\n";

fn files(folder: &str, ending: &str) -> Vec<SourceFile> {
    let mut names: Vec<String> = std::fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    let read = |name: &String| std::fs::read_to_string(root().join(folder).join(name)).unwrap();
    names.iter().map(|name| SourceFile::new(format!("{folder}/{name}"), read(name))).collect()
}

fn shipped() -> PolicySet {
    let mut diagnostics = Diagnostics::default();
    let tiers = ["workbench", "action", "system"].map(str::to_owned);
    let sources = files("policies", ".rhai");
    let set = PolicySet::load(&sources, PolicyTables::default(), &tiers, &mut diagnostics);
    assert_eq!(diagnostics.to_string(), "");
    set
}

#[test]
fn the_shipped_cases_hold_and_reach_every_rule() {
    let (set, mut diagnostics) = (shipped(), Diagnostics::default());
    let outcomes: Vec<_> = files("policies/cases", ".yaml")
        .iter()
        .flat_map(|file| set.run_cases(file, (&Catalog::default(), &[]), &mut diagnostics))
        .collect();
    assert_eq!(diagnostics.to_string(), "");
    assert!(outcomes.len() >= 8);
    for outcome in &outcomes {
        assert!(outcome.ok, "{}\n{}", outcome.name, outcome.diff);
    }
    let reached = outcomes.into_iter().flat_map(|o| o.reached).collect();
    let (rules, functions) = set.coverage(&reached);
    assert!(rules.total > 3 && rules.missing.is_empty(), "{rules:?}");
    assert!(functions.missing.is_empty(), "{functions:?}");
}

#[test]
fn a_case_that_fails_says_what_was_decided_and_where() {
    let file = SourceFile::new(
        "policies/cases/x.yaml",
        "tools: [{ id: a.b, read_only: true }]\ncallers: { v: {} }\ncases:\n  - { name: wrong, caller: v, tool: a.b, expect: deny }\n  - { name: roster, caller: v, visible: [] }\n  - { name: stray, caller: w, tool: a.b, expect: deny }\n",
    );
    let mut diagnostics = Diagnostics::default();
    let outcomes = shipped().run_cases(&file, (&Catalog::default(), &[]), &mut diagnostics);
    let diffs: Vec<&str> = outcomes.iter().map(|o| o.diff.as_str()).collect();
    assert_eq!(outcomes.iter().map(|o| o.ok).collect::<Vec<_>>(), [false, false, false]);
    assert!(
        diffs[0].starts_with("- expect: deny\n+ expect: permit (at policies/10-base.rhai:8: "),
        "{}",
        diffs[0]
    );
    assert_eq!(diffs[1], "+ visible: a.b is, and is not expected");
    assert!(diffs[2].contains("no caller `w`"));
    let file = SourceFile::new("policies/cases/y.yaml", "cases:\n  - { name: x, caller: v, tol: a.b }\n");
    assert!(shipped().run_cases(&file, (&Catalog::default(), &[]), &mut diagnostics).is_empty());
    let told = diagnostics.to_string();
    assert!(told.starts_with("policies/cases/y.yaml:2:") && told.contains("tol"), "{told}");
}

#[test]
fn the_reference_in_the_readme_is_the_sources() {
    let path = root().join("policies/README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, written) = text.split_once(MARK).unwrap();
    let reference = format!("\n{}\n", docent::policy::reference());
    if std::env::var("DOCENT_UPDATE").is_ok() {
        std::fs::write(&path, format!("{head}{MARK}{reference}")).unwrap();
        return;
    }
    assert_eq!(written, reference, "renew it with DOCENT_UPDATE=1 cargo test --test it policies");
}
