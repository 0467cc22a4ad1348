//! Properties of the whole index: hidden tools do not exist, pages partition, order does not matter, and the
//! same tools match as in a tantivy index with the same analyser.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use tantivy::collector::TopDocs;
use tantivy::query::{BooleanQuery, QueryClone as _, TermQuery};
use tantivy::schema::{IndexRecordOption, STORED, STRING, Schema, TEXT, Value as _};
use tantivy::{Index, TantivyDocument, Term};

use super::num;
use super::text::{Analyzer, chunks};
use super::{Earlier, Filters, Hit, Lesson, Query, Ranking, Results, ToolIndex, UsageRecord, UsageView};
use crate::catalog::{Catalog, CatalogBuilder, Tool, ToolSet};
use crate::diagnostic::{Diagnostics, SourceFile};
use crate::id::{ToolId, ToolNo, UpstreamId};
use crate::schema::SchemaText;

const WORDS: [&str; 16] = [
    "list",
    "create",
    "issue",
    "repository",
    "invoice",
    "customer",
    "refund",
    "deploy",
    "pod",
    "namespace",
    "weather",
    "photo",
    "message",
    "channel",
    "search",
    "user",
];

fn tool(id: &str, description: &str) -> Tool {
    let (upstream, name) = id.split_once('.').unwrap();
    let mut tool = Tool::new(
        ToolId::parse(id).unwrap(),
        UpstreamId::parse(upstream).unwrap(),
        name,
        SchemaText::empty_object(),
    );
    tool.description = description.into();
    tool
}

fn catalog(tools: impl IntoIterator<Item = Tool>) -> Catalog {
    let mut builder = CatalogBuilder::new(Vec::new());
    tools.into_iter().for_each(|t| builder.push(t));
    builder.build(&mut Diagnostics::default())
}

fn ask(index: &ToolIndex, text: &str, visible: &ToolSet, offset: usize, limit: usize) -> Results {
    index.search(&Query { text, filters: Filters::default(), offset, limit, explain: true }, visible)
}

fn ids(catalog: &Catalog, hits: &[Hit]) -> Vec<String> {
    hits.iter().map(|h| catalog.get(h.tool).unwrap().id.as_str().to_owned()).collect()
}

/// Lists of hundreds are walked as bitmaps and small views otherwise than large ones: the answer is the same.
#[test]
fn hidden_tools_do_not_exist_among_hundreds_either() {
    let all: Vec<Tool> = (0..700usize)
        .map(|i| {
            let word = |step: usize| WORDS[i / step % WORDS.len()];
            let text = format!("{} the {} of a {}.", word(1), word(3), word(7));
            tool(&format!("up{}.{}_{}_{i}", i % 9, word(1), word(5)), &text)
        })
        .collect();
    let whole = catalog(all.clone());
    let index = ToolIndex::build(&whole, &SHIPPED);
    for share in [2, 3, 10, 100] {
        let seen: Vec<Tool> = all.iter().skip(1).step_by(share).cloned().collect();
        let mut visible = ToolSet::none(whole.len());
        for tool in &seen {
            visible.insert(whole.lookup(tool.id.as_str()).unwrap().0);
        }
        let alone = catalog(seen);
        let other = ToolIndex::build(&alone, &SHIPPED);
        for text in
            ["create an issue for the repository", "deplyo pod", "refund up3 customer invoice", "wether"]
        {
            let a = ask(&index, text, &visible, 0, 1_000);
            let b = ask(&other, text, &ToolSet::all(alone.len()), 0, 1_000);
            assert_eq!(
                (a.total, ids(&whole, &a.hits)),
                (b.total, ids(&alone, &b.hits)),
                "{text}, 1 in {share}"
            );
            let told = |hits: &[Hit]| hits.iter().map(|h| (h.score, h.signals.clone())).collect::<Vec<_>>();
            assert_eq!(told(&a.hits), told(&b.hits), "{text}, 1 in {share}");
        }
    }
}

/// Tools with a name of two words and a description of some.
fn tools() -> impl Strategy<Value = Vec<Tool>> {
    let word = 0..WORDS.len();
    let one = (word.clone(), word.clone(), prop::collection::vec(word, 0..9));
    prop::collection::vec(one, 1..40).prop_map(|all| {
        let text = |of: &[usize]| of.iter().map(|w| WORDS[*w]).collect::<Vec<_>>().join(" ");
        all.iter()
            .enumerate()
            .map(|(i, (a, b, rest))| {
                tool(&format!("up{}.{}_{}_{i}", i % 3, WORDS[*a], WORDS[*b]), &text(rest))
            })
            .collect()
    })
}

/// One field, nothing but BM25.
const BARE: &str = "[fields]\nname = 0\ntitle = 0\nupstream = 0\ndescription = 1\n[lexical]\ntrigrams = 0\nbrevity = 0\nverb = 0\n[query]\nsynonym = 0\nexpansion = 0\njoined = 0\n[signals]\nlexical = 1\nsemantic = 0\n[floor]\nterms = 0\ntrigrams = 2\nsemantic = 2\n";

static SHIPPED: LazyLock<Ranking> = LazyLock::new(Ranking::shipped);

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hidden_tools_do_not_exist(all in tools(), mask in any::<u64>(), asked in prop::collection::vec(0..WORDS.len(), 1..5), slip in any::<bool>()) {
        let whole = catalog(all.clone());
        let seen: Vec<Tool> = whole.iter().filter(|(no, _)| mask >> (no.0 % 64) & 1 == 1).map(|(_, t)| t.clone()).collect();
        let mut visible = ToolSet::none(whole.len());
        for tool in &seen {
            visible.insert(whole.lookup(tool.id.as_str()).unwrap().0);
        }
        let alone = catalog(seen);
        let mut text = asked.iter().map(|w| WORDS[*w]).collect::<Vec<_>>().join(" ");
        if slip {
            text.push_str(" deplyo");
        }
        let ranking = &*SHIPPED;
        let a = ask(&ToolIndex::build(&whole, ranking), &text, &visible, 0, 100);
        let b = ask(&ToolIndex::build(&alone, ranking), &text, &ToolSet::all(alone.len()), 0, 100);
        prop_assert_eq!(a.total, b.total);
        prop_assert_eq!(ids(&whole, &a.hits), ids(&alone, &b.hits));
        for (x, y) in a.hits.iter().zip(&b.hits) {
            prop_assert_eq!((x.score, x.exact, &x.signals), (y.score, y.exact, &y.signals));
        }
    }

    #[test]
    fn pages_partition_the_answer(all in tools(), size in 1usize..7, asked in prop::collection::vec(0..WORDS.len(), 0..4)) {
        let catalog = catalog(all);
        let index = ToolIndex::build(&catalog, &SHIPPED);
        let visible = ToolSet::all(catalog.len());
        let text = asked.iter().map(|w| WORDS[*w]).collect::<Vec<_>>().join(" ");
        let whole = ask(&index, &text, &visible, 0, 1_000);
        prop_assert_eq!(whole.hits.len(), whole.total);
        let mut walked = Vec::new();
        while walked.len() < whole.total {
            let page = ask(&index, &text, &visible, walked.len(), size);
            prop_assert_eq!(page.total, whole.total);
            prop_assert!(!page.hits.is_empty());
            walked.extend(page.hits);
        }
        prop_assert_eq!(walked, whole.hits);
    }

    #[test]
    fn the_same_tools_match_as_in_tantivy(all in tools(), asked in prop::collection::btree_set(0..WORDS.len(), 1..3)) {
        let catalog = catalog(all);
        let words_in_all: usize = catalog.tools().iter().map(|t| t.description.split_whitespace().count()).sum();
        let text = format!("{BARE}[lengths]\ndescription = {}\n", num::count(words_in_all) / num::count(catalog.len()));
        let bare = SourceFile::new("index/ranking.toml", text);
        let none = SourceFile::new("index/synonyms.toml", "");
        let ranking = Ranking::read(Some(&bare), Some(&none), &mut Diagnostics::default());
        let index = ToolIndex::build(&catalog, &ranking);
        let words: Vec<&str> = asked.iter().map(|w| WORDS[*w]).collect();
        let ours = ask(&index, &words.join(" "), &ToolSet::all(catalog.len()), 0, 1_000);
        let theirs = reference(&catalog, &words);
        let mut matched: Vec<&String> = theirs.iter().map(|(id, _)| id).collect();
        matched.sort_unstable();
        let mut found = ids(&catalog, &ours.hits);
        found.sort_unstable();
        prop_assert_eq!(found.iter().collect::<Vec<_>>(), matched);
        // tantivy keeps lengths in a byte and counts against the mean length: close, not equal.
        let best = theirs.iter().map(|(_, s)| *s).fold(0.0, f32::max);
        if let Some(first) = ids(&catalog, &ours.hits).first() {
            let score = theirs.iter().find(|(id, _)| id == first).map_or(0.0, |(_, s)| *s);
            prop_assert!(score >= 0.8 * best, "{first} has {score}, the best {best}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Some tools go, some come, some change: the merged index is the one that building anew gives, to the byte.
    #[test]
    fn a_changed_catalog_over_the_old_index_is_as_built_anew(all in tools(), gone in any::<u64>(), changed in any::<u64>()) {
        let hit = |mask: u64, at: usize| mask >> (at % 64) & 1 == 1 && at.is_multiple_of(3);
        let before = catalog(all.iter().enumerate().filter(|(i, _)| !hit(changed, i + 1)).map(|(_, t)| t.clone()));
        let anew = |i: usize, t: &Tool| {
            let mut tool = t.clone();
            if hit(changed, i) {
                tool.description = format!("{} anew{i}", t.description).into();
                tool.category = "moved".into();
            }
            tool
        };
        let moved = catalog(all.iter().enumerate().filter(|(i, _)| !hit(gone, *i)).map(|(i, t)| anew(i, t)));
        let in_place = catalog(before.tools().iter().enumerate().map(|(i, t)| anew(i, t)));
        let old = Arc::new(ToolIndex::build(&before, &SHIPPED));
        for after in [moved, in_place] {
            let as_built = ToolIndex::build(&after, &SHIPPED).to_bytes();
            for known in [None, Some(&before)] {
                let earlier = Earlier { index: Arc::clone(&old), catalog: known };
                prop_assert_eq!(&ToolIndex::over(Some(earlier), &after, &SHIPPED).to_bytes(), &as_built);
            }
        }
    }

    /// Impacts and order against the plainest reading of BM25F: one loop over tools, terms and fields.
    #[test]
    fn scores_are_those_of_a_plain_bm25f(all in tools(), asked in prop::collection::btree_set(0..WORDS.len(), 1..4)) {
        let catalog = catalog(all);
        let text = BARE.replace("name = 0\ntitle = 0\nupstream = 0", "name = 2\ntitle = 0.7\nupstream = 0\ntags = 0\npath = 0");
        let bare = SourceFile::new("index/ranking.toml", text);
        let none = SourceFile::new("index/synonyms.toml", "");
        let ranking = Ranking::read(Some(&bare), Some(&none), &mut Diagnostics::default());
        let words: Vec<&str> = asked.iter().map(|w| WORDS[*w]).collect();
        let index = ToolIndex::build(&catalog, &ranking);
        let ours = ask(&index, &words.join(" "), &ToolSet::all(catalog.len()), 0, 1_000);
        let plain = plain_scores(&catalog, &words, &ranking);
        prop_assert_eq!(ours.total, plain.values().filter(|s| **s > 0.0).count());
        let best = plain.values().copied().fold(0.0, f32::max);
        for (hit, id) in ours.hits.iter().zip(ids(&catalog, &ours.hits)) {
            let expected = plain[&id] / best;
            let lexical = hit.signals[0].value;
            prop_assert!((lexical - f64::from(expected)).abs() < 1e-3, "{}: {} {}", id, lexical, expected);
        }
    }
}

/// BM25F as it is written down: frequencies over fields with their boosts and lengths, saturated, times rarity.
fn plain_scores(
    catalog: &Catalog,
    words: &[&str],
    ranking: &Ranking,
) -> std::collections::HashMap<String, f32> {
    let mut analyzer = Analyzer::new();
    let mut stems = |text: &str| chunks(text).flat_map(|c| analyzer.terms(c).parts).collect::<Vec<_>>();
    let asked: Vec<String> = words.iter().flat_map(|w| stems(w)).collect();
    let frequencies: Vec<Vec<f32>> = catalog
        .tools()
        .iter()
        .map(|tool| {
            let texts = super::fields::texts(tool).map(|text| stems(&text));
            let of = |term: &String| -> f32 {
                (0..texts.len())
                    .map(|f| {
                        let many = num::count(texts[f].iter().filter(|t| *t == term).count());
                        let pull = ranking.length_pull[f];
                        ranking.fields[f] * many
                            / (1.0 - pull + pull * num::count(texts[f].len()) / ranking.lengths[f])
                    })
                    .sum()
            };
            asked.iter().map(of).collect()
        })
        .collect();
    let all = num::count(catalog.len());
    let rarity = |term: usize| {
        let with = num::count(frequencies.iter().filter(|f| f[term] > 0.0).count());
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    };
    let score = |f: &Vec<f32>| (0..asked.len()).map(|t| rarity(t) * f[t] / (ranking.k1 + f[t])).sum();
    catalog.tools().iter().zip(&frequencies).map(|(t, f)| (t.id.as_str().to_owned(), score(f))).collect()
}

#[test]
fn a_saved_index_opens_as_it_was_and_a_damaged_or_foreign_one_does_not() {
    let catalog = sample();
    let index = ToolIndex::build(&catalog, &SHIPPED);
    let bytes = index.to_bytes();
    let again = ToolIndex::open(&bytes, &SHIPPED).unwrap();
    assert_eq!(again.to_bytes(), bytes);
    let all = ToolSet::all(catalog.len());
    for text in ["open a PR", "refunds", "天气", "gitlab.list_issues", "weather tomorrow"] {
        assert_eq!(ask(&again, text, &all, 0, 10).hits, ask(&index, text, &all, 0, 10).hits, "{text}");
    }
    let same = Arc::new(again);
    for known in [None, Some(&catalog)] {
        let earlier = Earlier { index: Arc::clone(&same), catalog: known };
        assert!(Arc::ptr_eq(&same, &ToolIndex::over(Some(earlier), &catalog, &SHIPPED)));
    }
    for at in [0, 7, 40, bytes.len() / 2, bytes.len() - 1] {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        assert!(ToolIndex::open(&bad, &SHIPPED).is_err(), "byte {at}");
        assert!(ToolIndex::open(&bytes[..at], &SHIPPED).is_err(), "cut at {at}");
    }
    let file = SourceFile::new("index/ranking.toml", "[fields]\nname = 3\n");
    let other = Ranking::read(Some(&file), None, &mut Diagnostics::default());
    assert_eq!(ToolIndex::open(&bytes, &other).err(), Some(super::NotAnIndex::OtherRanking));
}

fn learnt(index: &ToolIndex, question: &str, tool: &str, at_ms: u64) -> Lesson {
    let (words, tool) = (index.usage_words(question), ToolId::parse(tool).unwrap());
    Lesson::of(UsageRecord { words, tool, at_ms, weight: 1.0 })
}

#[test]
fn a_run_after_a_search_lifts_its_tool_for_searches_alike_and_for_no_others() {
    let catalog = sample();
    let index = ToolIndex::build(&catalog, &SHIPPED);
    let all = ToolSet::all(catalog.len());
    let records = [learnt(&index, "shall I take my umbrella along", "meteo.get_forecast", 0)];
    let usage = UsageView::freeze(&index, &catalog, &all, &records, 0, None);
    let first = |text: &str, visible: &ToolSet, usage: &UsageView| {
        let query = Query { text, filters: Filters::default(), offset: 0, limit: 10, explain: true };
        index.search_with_usage(&query, visible, usage).hits.into_iter().next()
    };
    let hit = first("take an umbrella?", &all, &usage).unwrap();
    assert_eq!(ids(&catalog, std::slice::from_ref(&hit)), ["meteo.get_forecast"]);
    let vote = hit.signals.iter().find(|s| s.name == "usage").unwrap();
    assert!(vote.value > 0.5 && vote.source == "computed", "{vote:?}");
    let unlike = "issues on github";
    assert_eq!(
        first(unlike, &all, &usage).unwrap().tool,
        first(unlike, &all, &UsageView::default()).unwrap().tool
    );
    // Age halves it, and a tool that is hidden gets no vote, whoever learnt it.
    let later = UsageView::freeze(&index, &catalog, &all, &records, 60 * 86_400_000, Some(&usage));
    let aged = first("take an umbrella?", &all, &later).unwrap();
    assert!(aged.signals[5].value < vote.value * 0.6, "{aged:?}");
    let mut hidden = all.clone();
    hidden.remove(catalog.lookup("meteo.get_forecast").unwrap().0);
    let blind = UsageView::freeze(&index, &catalog, &hidden, &records, 0, None);
    assert!(blind.is_empty() && blind.digest() == [0; 32]);
    assert_eq!(first("take an umbrella?", &hidden, &usage), first("take an umbrella?", &hidden, &blind));
}

#[test]
fn what_is_remembered_of_a_question_has_no_numbers_and_no_small_talk() {
    let index = ToolIndex::build(&sample(), &SHIPPED);
    let words = index.usage_words("Please refund order 4711-0815 to jane@example.com, token sk_live_51Hx9");
    assert!(
        words.contains(&"refund".to_owned()) && !words.iter().any(|w| w.contains(char::is_numeric)),
        "{words:?}"
    );
    assert!(!words.contains(&"please".to_owned()) && !words.contains(&"to".to_owned()), "{words:?}");
}

/// The tools whose descriptions hold any of the words, with tantivy's scores.
fn reference(catalog: &Catalog, words: &[&str]) -> Vec<(String, f32)> {
    let mut schema = Schema::builder();
    let id = schema.add_text_field("id", STRING | STORED);
    let text = schema.add_text_field("description", TEXT);
    let index = Index::create_in_ram(schema.build());
    let mut writer = index.writer_with_num_threads(1, 15_000_000).unwrap();
    let mut analyzer = Analyzer::new();
    let mut stems = |text: &str| chunks(text).flat_map(|c| analyzer.terms(c).parts).collect::<Vec<_>>();
    for tool in catalog.tools() {
        let mut document = TantivyDocument::new();
        document.add_text(id, tool.id.as_str());
        document.add_text(text, stems(&tool.description).join(" "));
        writer.add_document(document).unwrap();
    }
    writer.commit().unwrap();
    let terms = words.iter().flat_map(|w| stems(w)).map(|stem| {
        TermQuery::new(Term::from_field_text(text, &stem), IndexRecordOption::WithFreqs).box_clone()
    });
    let query = BooleanQuery::union(terms.collect());
    let searcher = index.reader().unwrap().searcher();
    let top = searcher.search(&query, &TopDocs::with_limit(1_000).order_by_score()).unwrap();
    top.into_iter()
        .map(|(score, at)| {
            let document: TantivyDocument = searcher.doc(at).unwrap();
            (document.get_first(id).and_then(|v| v.as_str()).unwrap().to_owned(), score)
        })
        .collect()
}

fn sample() -> Catalog {
    catalog([
        tool("github.create_pull_request", "Opens a pull request in a repository."),
        tool("github.list_issues", "Lists the issues of a repository."),
        tool("gitlab.list_issues", "Lists issues of a project."),
        tool("stripe.create_refund", "Refunds a charge."),
        tool("meteo.get_forecast", "Weather of the next days."),
        tool("cn.weather", "获取城市天气预报"),
    ])
}

fn found(text: &str) -> Vec<String> {
    let catalog = sample();
    let index = ToolIndex::build(&catalog, &SHIPPED);
    ids(&catalog, &ask(&index, text, &ToolSet::all(catalog.len()), 0, 10).hits)
}

#[test]
fn names_acronyms_typos_and_other_scripts_find_their_tool() {
    for (text, first) in [
        ("gitlab.list_issues", "gitlab.list_issues"),
        ("open a PR", "github.create_pull_request"),
        ("creat pul reqeust", "github.create_pull_request"),
        ("refunds", "stripe.create_refund"),
        ("天气", "cn.weather"),
        ("issues on github", "github.list_issues"),
    ] {
        assert_eq!(found(text).first().map(String::as_str), Some(first), "{text}");
    }
}

#[test]
fn nonsense_finds_nothing_and_no_words_browse() {
    assert_eq!(found("qzxwv jjkkq"), [""; 0]);
    assert_eq!(found(" ").len(), 6);
}

#[test]
fn filters_narrow_and_an_unknown_one_finds_nothing() {
    let catalog = sample();
    let index = ToolIndex::build(&catalog, &SHIPPED);
    let all = ToolSet::all(catalog.len());
    let with = |upstream: &str| {
        let filters = Filters { upstream: Some(upstream.to_owned()), ..Filters::default() };
        let query = Query { text: "issues", filters, offset: 0, limit: 10, explain: false };
        ids(&catalog, &index.search(&query, &all).hits)
    };
    assert_eq!(with("gitlab"), ["gitlab.list_issues"]);
    assert_eq!(with("nobody"), [""; 0]);
}

#[test]
fn explanations_add_up_to_the_score() {
    let catalog = sample();
    let index = ToolIndex::build(&catalog, &SHIPPED);
    for hit in ask(&index, "list issues of a repository", &ToolSet::all(catalog.len()), 0, 10).hits {
        let sum: f64 = hit.signals.iter().map(|s| s.value * s.weight).sum();
        assert!((sum - hit.score).abs() < 2e-5, "{sum} {}", hit.score);
        assert!(hit.signals.iter().all(|s| (0.0..=1.0).contains(&s.value)));
        assert_eq!(hit.signals.len(), 6);
        assert!(hit.tool < ToolNo(6));
    }
}
