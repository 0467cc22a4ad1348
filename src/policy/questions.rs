//! Functions that ask about fields against functions that hold them: the same answers, in fewer runs.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::asked::Lazy;
use super::host::engine;
use super::tests::{caller, catalog, load, tool};
use crate::catalog::Catalog;
use crate::diagnostic::{Diagnostics, SourceFile};

const FIELDS: [&str; 5] = ["tool.id", "tool.name", "tool.upstream", "tool.category", "caller.subject"];
/// Operands: whole texts, parts, one character, nothing, another field.
const TEXTS: [&str; 9] =
    ["\"u1.n3\"", "\"u1\"", "\"n\"", "\"c0\"", "'u'", "'x'", "()", "\"ann\"", "caller.claims.own"];
const ITEMS: [&str; 6] = ["\"t1\"", "\"s0\"", "'x'", "1", "caller.claims.own", "\"\""];

/// A condition over a field: `{}` is where the field stands.
fn condition() -> impl Strategy<Value = (&'static str, String)> {
    let text = (0..FIELDS.len(), 0..TEXTS.len(), 0..8usize).prop_map(|(field, text, form)| {
        let with = TEXTS[text];
        let quoted = if with.starts_with(['"', '\'']) { with } else { "\"u\"" };
        let form = match form {
            0 => format!("{{}} == {with}"),
            1 => format!("{with} != {{}}"),
            2 => format!("{{}} != {with}"),
            3 => format!("{with} == {{}}"),
            4 => format!("{{}}.starts_with({quoted})"),
            5 => format!("{{}}.ends_with({quoted})"),
            6 => format!("{{}}.contains({quoted})"),
            _ => "glob(\"u?.*\", {})".to_owned(),
        };
        (FIELDS[field], form)
    });
    let list = (0..3usize, 0..ITEMS.len(), any::<bool>()).prop_map(|(field, item, method)| {
        let (field, item) = (["tool.tags", "tool.scopes", "caller.scopes"][field], ITEMS[item]);
        (field, if method { format!("{{}}.contains({item})") } else { format!("{item} in {{}}") })
    });
    prop_oneof![text, list]
}

/// Conditions in pairs, each pair with an answer: once with the fields asked, once with them held.
fn texts(conditions: &[(&'static str, String)]) -> [String; 2] {
    let answers = ["allow()", "deny(\"no\")", "challenge([\"s1\"])", "confirm(\"sure?\")"];
    let write = |hold: bool| {
        let one = |(field, form): &(&str, String)| {
            let put = |with: &str| form.replace("{}", with);
            if hold {
                format!("({{ let held = {field}; {} }})", put("held"))
            } else {
                format!("({})", put(field))
            }
        };
        let lines = conditions.chunks(2).zip(answers.iter().cycle()).map(|(pair, answer)| {
            let tests: Vec<String> = pair.iter().map(one).collect();
            format!("  if {} {{ return {answer}; }}\n", tests.join(" && "))
        });
        format!("fn decide(caller, tool, args) {{\n{}  abstain()\n}}", lines.collect::<String>())
    };
    [write(false), write(true)]
}

fn tools() -> Catalog {
    catalog(
        (0..60)
            .map(|n| {
                tool(&format!("u{}.n{n}", n % 3), |t| {
                    t.category = format!("c{}", n % 2).into();
                    t.tags = [format!("t{}", n % 4), "x".to_owned()].map(Into::into).into_iter().collect();
                    if n % 5 == 0 {
                        t.scopes = super::tests::scopes(&["s0"]).into();
                    }
                })
            })
            .collect(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_field_that_is_asked_answers_what_it_answers_when_held(
        conditions in prop::collection::vec(condition(), 2..10), held in prop::collection::vec(0usize..3, 0..3),
    ) {
        let [asked, kept] = texts(&conditions);
        let (asked, kept) = (load(&[("a.rhai", &asked)]), load(&[("a.rhai", &kept)]));
        let catalog = tools();
        let held: Vec<String> = held.iter().map(|n| format!("s{n}")).collect();
        let held: Vec<&str> = held.iter().map(String::as_str).collect();
        let mut who = caller("ann", &held);
        who.claims = std::sync::Arc::new([("own".to_owned(), "u1.n4".into())].into_iter().collect());
        let (one, two) = (asked.roster(&catalog, &who), kept.roster(&catalog, &who));
        for (no, tool) in catalog.iter() {
            prop_assert_eq!(one.standing(no), two.standing(no), "{}", tool.id);
            // A catalog of one tool has nothing to reuse an answer from.
            let alone = super::tests::catalog(vec![tool.clone()]);
            let naive = asked.roster(&alone, &who).standing(crate::id::ToolNo(0));
            prop_assert_eq!(one.standing(no), naive, "{}", tool.id);
        }
    }
}

fn lazy(text: &str) -> Lazy {
    let mut diagnostics = Diagnostics::default();
    let script = engine().compile(&SourceFile::new("policies/a.rhai", text), &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{diagnostics}");
    Lazy::of(&script.unwrap())
}

#[test]
fn a_field_that_is_held_anywhere_in_the_file_is_a_value() {
    let covers = |text: &str| {
        let lazy = lazy(text);
        ["id", "tags"].into_iter().filter(|f| lazy.covers(f)).collect::<BTreeSet<_>>()
    };
    let wrap = |body: &str| format!("fn visible(caller, tool) {{ {body} }}");
    for asked in [
        "\"a\" in tool.tags && tool.id == \"x\"",
        "!(\"a\" in tool.tags) || \"x\" != tool.id",
        "tool.tags.contains(\"a\") && tool.id.starts_with(\"x\")",
        "let t = tool; \"a\" in t.tags && glob(\"x*\", t.id)",
        "contains(tool.tags, \"a\")",
    ] {
        assert_eq!(covers(&wrap(asked)), BTreeSet::from(["id", "tags"]), "{asked}");
    }
    for held in [
        "let all = tool.tags; tool.id + \"x\"; true",
        "tool.tags.len() == 0 && tool.id.len() > 3",
        "tool.tags[0] == \"a\" && tool.id[0] == 'a'",
        "tool.tags == [\"a\"] && (switch tool.id { \"a\" => true, _ => false })",
        "tool.id in tool.tags",
        "\"a\" in tool.tags && tool.id == \"x\" && tool.tags.len() > tool.id.len()",
    ] {
        let found = covers(&wrap(held));
        assert!(!found.contains("id"), "{held}: {found:?}");
    }
    let own = "fn contains(list, item) { list.len() == item }\n";
    assert!(!covers(&format!("{own}{}", wrap("contains(tool.tags, 1)"))).contains("tags"));
}

#[test]
fn an_explanation_shows_the_text_that_was_asked_about() {
    let set = load(&[(
        "a.rhai",
        "fn decide(caller, tool, args) {\n  if tool.id.starts_with(\"u1.\") && caller.subject == \"ann\" {\n    return allow();\n  }\n  abstain()\n}",
    )]);
    let catalog = tools();
    let (no, _) = catalog.iter().find(|(_, t)| t.id.as_str() == "u1.n1").unwrap();
    let explained = set.explain(&catalog, &caller("ann", &[]), no, None).unwrap();
    let told = serde_json::to_value(&explained).unwrap();
    assert_eq!((&told["rule"]["line"], &told["decision"]), (&3.into(), &"permit".into()), "{told}");
    assert_eq!(
        (&told["facts"]["tool.id"], &told["facts"]["caller.subject"]),
        (&"u1.n1".into(), &"ann".into())
    );
}

/// What a roster of functions costs is how often they run: a few times for thousands of tools.
#[test]
fn thousands_of_tools_take_few_runs_where_fields_are_asked() {
    let catalog = catalog(
        (0..3_000)
            .map(|n| {
                tool(&format!("u{}.n{n}", n % 60), |t| {
                    t.category = format!("c{}", n % 25).into();
                    t.tags = [format!("t{}", n % 97), format!("x{}", n % 41)]
                        .map(Into::into)
                        .into_iter()
                        .collect();
                    t.annotations.read_only = Some(n % 3 == 0);
                })
            })
            .collect(),
    );
    let asked = r#"
fn visible(caller, tool) { tool.category != "c3" || "a" in caller.scopes }
fn decide(caller, tool, args) {
  if tool.id.starts_with("u1") {
    return if tool.annotations.read_only { allow() } else { challenge(["a"]) };
  }
  if "t10" in tool.tags && tool.upstream != "u7" { return allow(); }
  if tool.tags.contains("x4") && args.target == "prod" { return deny("no"); }
  abstain()
}
"#;
    let runs = |text: &str| {
        let set = load(&[("a.rhai", text)]);
        let table = super::column::ToolTable::of(&catalog);
        let (who, tiers) = (std::sync::Arc::new(caller("ann", &[])), std::sync::Arc::default());
        let filled = set.inner().tool_functions().map(|f| super::column::fill(f, &who, &tiers, &table).runs);
        filled.sum::<usize>()
    };
    assert!((5..=12).contains(&runs(asked)), "{}", runs(asked));
    // One text that is held is one run for each of its values, and no more.
    let held = runs("fn visible(caller, tool) { let c = tool.category; c.len() > 2 }");
    assert_eq!(held, 25);
}
