//! What a host may rely on: strictness, order, pages, cursors, budgets, and a needle in 10,000 tools.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::json;
use crate::secret::Secret;

const WORDS: [&str; 12] = [
    "invoice", "customer", "refund", "deploy", "pod", "weather", "photo", "message", "channel", "search",
    "user", "list",
];

fn key(byte: char) -> Secret {
    Secret::new(byte.to_string().repeat(32))
}

fn asked(query: &str) -> DiscoverOptions {
    DiscoverOptions {
        query: query.to_owned(),
        cursor_integrity_key: Some(key('k')),
        ..DiscoverOptions::default()
    }
}

/// Tools of which every one matches `list`.
fn many(n: usize) -> Vec<Candidate> {
    let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}});
    (0..n)
        .map(|i| {
            let (a, b) = (WORDS[i % 11], WORDS[i / 11 % 11]);
            let mut c = Candidate::new(
                format!("list_{a}_{b}_{i}"),
                format!("Lists every {a} of a {b} with all of its fields, page by page, number {i}."),
                schema.clone(),
            );
            c.family = Some(format!("family{}", i % 3));
            c
        })
        .collect()
}

fn names(found: &Discovery) -> Vec<&str> {
    found.tools.iter().map(|t| t.name.as_str()).collect()
}

fn walk(candidates: &Candidates, mut options: DiscoverOptions, limits: &[usize]) -> Vec<String> {
    let mut all = Vec::new();
    for limit in limits.iter().cycle() {
        options.limit = *limit;
        let page = candidates.discover(&options).unwrap();
        assert_eq!(page.returned, page.tools.len());
        assert_eq!(page.has_more, page.next_cursor.is_some());
        all.extend(names(&page).into_iter().map(str::to_owned));
        match page.next_cursor {
            Some(next) => options.cursor = Some(next),
            None => {
                assert_eq!(all.len(), page.total);
                return all;
            }
        }
    }
    panic!("no limits to walk with")
}

fn problem(value: &Value) -> String {
    DiscoverOptions::read(value).unwrap_err().to_string()
}

#[test]
fn options_are_strict_and_say_what_would_be_right() {
    for (options, told) in [
        (json!([]), "`options` must be an object"),
        (json!({"limit": "5"}), "`limit` must be a whole number from 1 to 100"),
        (json!({"limit": null}), "`limit` must be a whole number"),
        (json!({"limit": 0}), "`limit` is 0; it must be from 1 to 100"),
        (json!({"limit": 101}), "from 1 to 100"),
        (json!({"limit": 2.5}), "whole number"),
        (json!({"query": null}), "`query` must be a string"),
        (json!({"query": 7}), "`query` must be a string"),
        (json!({"includeSchema": "yes"}), "`includeSchema` must be true or false"),
        (json!({"outputBudget": 127}), "at least 128"),
        (json!({"outputBudget": "all"}), "`outputBudget` must be a whole number of tokens from 128 on"),
        (json!({"tier": "internal"}), "one of core, standard, full"),
        (json!({"profile": ""}), "`profile` is no label"),
        (json!({"cursorIntegrityKey": "x".repeat(31)}), "at least 32 random bytes"),
        (json!({"limt": 5}), "`options/limt` is not known; known are query, family"),
        (json!({"includeSchema": true, "include_schema": true}), "given twice"),
        (json!({"query": "é".repeat(4_097)}), "has 4097 characters, 4096 are allowed"),
    ] {
        let found = problem(&options);
        assert!(found.contains(told), "{options}: {found}");
    }
    let longest = "é".repeat(4_096);
    assert_eq!(
        DiscoverOptions::read(&json!({"query": longest})).unwrap().query,
        longest,
        "code points, not bytes"
    );
    let read =
        DiscoverOptions::read(&json!({"limit": 7, "outputBudget": "unbounded", "tier": "core"})).unwrap();
    assert_eq!((read.limit, read.output_budget, read.tier), (7, OutputBudget::Unbounded, Tier::Core));
    let usual = DiscoverOptions::read(&json!({})).unwrap();
    assert_eq!((usual.limit, usual.output_budget), (10, OutputBudget::Tokens(1_200)));
}

#[test]
fn candidates_are_strict_and_a_misspelled_refusal_authorizes_nobody() {
    let read = |c: Value| read_candidates(&json!([c])).map_err(|e| e.to_string());
    for (candidate, told) in [
        (json!({"name": " ", "description": "d", "inputSchema": {}}), "`candidates/0/name` is blank"),
        (json!({"name": "n", "description": "", "inputSchema": {}}), "`candidates/0/description` is blank"),
        (
            json!({"name": "n", "description": "d", "inputSchema": []}),
            "`candidates/0/inputSchema` must be an object",
        ),
        (json!({"name": "n", "description": "d"}), "`candidates/0/inputSchema` is missing"),
        (
            json!({"name": "n", "description": "d", "inputSchema": {}, "authorized": "no"}),
            "must be true or false",
        ),
        (json!({"name": "n", "description": "d", "inputSchema": {}, "authorised": false}), "is not known"),
        (
            json!({"name": "n", "description": "d", "inputSchema": {}, "signals": {"usage": "1"}}),
            "a number from 0 to 1",
        ),
        (json!({"name": "n", "description": "d", "inputSchema": {}, "family": "a b"}), "is no label"),
    ] {
        let found = read(candidate.clone()).unwrap_err();
        assert!(found.contains(told), "{candidate}: {found}");
    }
    let mcp = json!({"name": "n", "description": "d", "inputSchema": {}, "title": "T", "annotations": {}});
    assert!(read(mcp).unwrap()[0].authorized);
    for reserved in ["toString", "constructor", "__proto__", "名前"] {
        let c = Candidate::new(reserved, "does something", json!({}));
        let found = discover_tools(&[c], &asked(reserved)).unwrap();
        assert_eq!(names(&found), [reserved]);
    }
}

#[test]
fn a_planted_needle_is_first_at_every_size_and_order_does_not_matter() {
    for size in [100, 1_000, 10_000] {
        let mut all = many(size - 1);
        let needle = "Verifies the signed manifest of a release before it is rolled out.";
        all.insert(size / 3, Candidate::new("verify_release_manifest", needle, json!({})));
        let options = asked("check that the release manifest is signed");
        let found = discover_tools(&all, &options).unwrap();
        assert_eq!(found.tools[0].name, "verify_release_manifest", "of {size}");
        assert!(found.token_cost.within_budget);
        // The order is the same question at every size; once more over 10,000 takes its time without optimisation.
        if size <= 1_000 {
            all.reverse();
            assert_eq!(discover_tools(&all, &options).unwrap(), found, "of {size}");
        }
    }
}

#[test]
fn what_is_not_authorized_is_not_there() {
    let mut all = many(60);
    let options = asked("list invoices");
    all.iter_mut().skip(20).for_each(|c| c.authorized = false);
    let seen = discover_tools(&all, &options).unwrap();
    assert_eq!(seen, discover_tools(&all[..20], &options).unwrap(), "as if only these existed");
    // Not even a family that only hidden tools have.
    all[0].family = Some("open".into());
    all[59].family = Some("hidden".into());
    let family = |name: &str| DiscoverOptions { family: Some(name.into()), ..asked("list") };
    let told = |name: &str| discover_tools(&all, &family(name)).unwrap_err().to_string();
    assert_eq!(told("hidden").replace("hidden", "nonsense"), told("nonsense"));
    assert_eq!(discover_tools(&all, &family("open")).unwrap().total, 1);
}

#[test]
fn host_signals_move_tools_and_are_told_apart() {
    let mut all = many(30);
    let before = discover_tools(&all, &asked("list invoice")).unwrap();
    let last = before.tools.last().unwrap().name.clone();
    let of = all.iter_mut().find(|c| c.name == last).unwrap();
    of.signals =
        HostSignals { semantic: Some(7.0), graph: Some(1.0), freshness: Some(f64::NAN), usage: None };
    let after = discover_tools(&all, &asked("list invoice")).unwrap();
    let row = &after.tools[0];
    assert_eq!((row.name.as_str(), row.signals.semantic, row.signals.freshness), (last.as_str(), 1.0, 0.0));
    assert_eq!(row.from_host, ["semantic", "graph", "freshness"]);
    let (w, s) = (after.ranking_policy.weights, row.signals);
    let sum = s.lexical * w.lexical
        + s.semantic * w.semantic
        + s.graph * w.graph
        + s.permission * w.permission
        + s.freshness * w.freshness
        + s.usage * w.usage;
    assert!((sum - row.score).abs() < 1e-3, "{sum} {}", row.score);
    assert_eq!(serde_json::to_value(&after).unwrap()["ranking_policy"]["sources"]["usage"], "fallback");
}

#[test]
fn the_defaults_fit_together_and_receipts_name_the_way_back() {
    let all = many(200);
    let found = discover_tools(&all, &asked("list invoice refund")).unwrap();
    assert_eq!(found.returned, 10);
    assert!(found.total > 50, "{}", found.total);
    let text = json::to_text(&found);
    assert_eq!(found.token_cost.estimated_tokens, text.len().div_ceil(4));
    let omitted: Vec<_> = found
        .omission_receipt
        .omitted
        .iter()
        .map(|o| (o.name.as_str(), o.reason.as_str(), o.count))
        .collect();
    assert_eq!(
        omitted,
        [
            ("tools", "limit", u64::try_from(found.total - 10).ok()),
            ("input_schema", "compact_projection", Some(10))
        ]
    );
    let whole =
        DiscoverOptions { include_schema: true, output_budget: OutputBudget::Unbounded, ..asked("list") };
    let found = discover_tools(&all, &DiscoverOptions { limit: 100, ..whole }).unwrap();
    assert_eq!(found.tools[0].input_schema, Some(all[0].input_schema.clone()));
    assert_eq!(json::to_text(&found).len().div_ceil(4), found.token_cost.estimated_tokens);
    assert_eq!(serde_json::to_value(&found).unwrap()["token_cost"]["budget"], "unbounded");
    assert_eq!((found.cache.ttl_ms, found.cache.scope), (30_000, "private"));
}

#[test]
fn no_tool_at_all_is_an_answer() {
    let found = discover_tools(&[], &asked("anything")).unwrap();
    assert_eq!((found.total, found.has_more, found.omission_receipt.has_omissions), (0, false, false));
    assert_eq!(discover_tools(&many(30), &asked("qqqq zzzz")).unwrap().total, 0, "nonsense finds nothing");
}

#[test]
fn every_bad_cursor_gives_the_same_error() {
    let candidates = Candidates::new(&many(40), &Ranking::shipped()).unwrap();
    let options = asked("list");
    let token = candidates.discover(&options).unwrap().next_cursor.unwrap();
    let with = |options: &DiscoverOptions, token: &str| {
        candidates.discover(&DiscoverOptions { cursor: Some(token.to_owned()), ..options.clone() })
    };
    assert_eq!(with(&DiscoverOptions { limit: 3, ..options.clone() }, &token).unwrap().returned, 3);
    let mut others = vec![
        DiscoverOptions { query: "list user".into(), ..options.clone() },
        DiscoverOptions { family: Some("family1".into()), ..options.clone() },
        DiscoverOptions { tier: Tier::Core, ..options.clone() },
        DiscoverOptions { include_schema: true, ..options.clone() },
        DiscoverOptions { profile: "other".into(), ..options.clone() },
        DiscoverOptions { cursor_integrity_key: Some(key('x')), ..options.clone() },
        DiscoverOptions { cursor_integrity_key: None, ..options.clone() },
    ];
    for other in &mut others {
        other.output_budget = OutputBudget::Unbounded;
    }
    for other in &others {
        assert_eq!(with(other, &token), Err(DiscoverError::BadCursor(BadCursor)), "{other:?}");
    }
    let mut fewer = many(40);
    fewer[7].authorized = false;
    let mut changed = many(40);
    changed[7].input_schema = json!({"type": "object"});
    let mut signal = many(40);
    signal[7].signals.usage = Some(0.5);
    for list in [fewer, changed, signal] {
        let options = DiscoverOptions { cursor: Some(token.clone()), ..options.clone() };
        assert_eq!(discover_tools(&list, &options), Err(DiscoverError::BadCursor(BadCursor)));
    }
    let mut turned = many(40);
    turned.reverse();
    assert!(
        discover_tools(&turned, &DiscoverOptions { cursor: Some(token), ..options }).is_ok(),
        "a shared key"
    );
    let own = DiscoverOptions { cursor_integrity_key: None, ..asked("list") };
    let token = candidates.discover(&own).unwrap().next_cursor.unwrap();
    assert!(with(&own, &token).is_ok(), "the process's own key lasts as long as the process");
}

#[test]
fn a_rotated_key_and_another_page_change_the_cache_key() {
    let candidates = Candidates::new(&many(40), &Ranking::shipped()).unwrap();
    let options = asked("list");
    let first = candidates.discover(&options).unwrap();
    let mut keys = vec![first.cache.key];
    for other in [
        DiscoverOptions { cursor: first.next_cursor, ..options.clone() },
        DiscoverOptions { limit: 9, ..options.clone() },
        DiscoverOptions { output_budget: OutputBudget::Unbounded, ..options.clone() },
        DiscoverOptions { cursor_integrity_key: Some(key('x')), ..options.clone() },
        DiscoverOptions { profile: "other".into(), ..options },
    ] {
        keys.push(candidates.discover(&other).unwrap().cache.key);
    }
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), count);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn pages_partition_what_matches_whatever_their_size(
        n in 1usize..120, limits in prop::collection::vec(1usize..40, 1..5), turn in 0usize..120,
    ) {
        let mut all = many(n);
        let one = walk(&Candidates::new(&all, shipped()).unwrap(), asked("list user"), &limits);
        all.rotate_left(turn % n);
        let other = walk(&Candidates::new(&all, shipped()).unwrap(), asked("list user"), &[100]);
        prop_assert_eq!(&one, &other);
        let mut sorted = one.clone();
        sorted.sort();
        sorted.dedup();
        prop_assert_eq!(sorted.len(), one.len(), "no tool twice");
    }

    #[test]
    fn rows_stand_by_score_then_name(n in 2usize..60, query in "(list|user|photo|deploy)( pod)?") {
        let options = DiscoverOptions { limit: 100, output_budget: OutputBudget::Unbounded, ..asked(&query) };
        let found = discover_tools(&many(n), &options).unwrap();
        for pair in found.tools.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            prop_assert!(a.score > b.score || (a.score.to_bits() == b.score.to_bits() && a.name <= b.name));
        }
    }

    #[test]
    fn the_budget_that_an_error_names_works(
        words in 20usize..900, budget in 128usize..1_500, n in 1usize..30, include_schema: bool,
    ) {
        let mut all = many(n);
        for c in &mut all {
            c.input_schema = json!({"type": "object", "description": "word ".repeat(words)});
        }
        let mut options =
            DiscoverOptions { output_budget: OutputBudget::Tokens(budget), include_schema, ..asked("list") };
        match discover_tools(&all, &options) {
            Ok(found) => {
                prop_assert!(json::to_text(&found).len().div_ceil(4) <= budget);
                prop_assert!(found.returned > 0);
            }
            Err(DiscoverError::BudgetTooSmall { budget: told, required }) => {
                prop_assert_eq!(told, budget);
                options.output_budget = OutputBudget::Tokens(required);
                prop_assert_eq!(discover_tools(&all, &options).unwrap().returned, 1);
                options.output_budget = OutputBudget::Tokens(required - 1);
                prop_assert!(discover_tools(&all, &options).is_err(), "one less does not");
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

#[test]
fn every_flipped_bit_of_a_cursor_is_refused() {
    let candidates = Candidates::new(&many(40), &Ranking::shipped()).unwrap();
    let options = asked("list");
    let token = candidates.discover(&options).unwrap().next_cursor.unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut forged = bytes.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let cursor = Some(URL_SAFE_NO_PAD.encode(forged));
        let answer = candidates.discover(&DiscoverOptions { cursor, ..options.clone() });
        assert_eq!(answer, Err(DiscoverError::BadCursor(BadCursor)), "bit {bit}");
    }
}
