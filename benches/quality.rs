//! Quality of search on labelled questions over 22,742 real tools, beside tantivy's defaults in the same run.
//!
//! `cargo bench --bench quality` needs the shared catalog (`DOCENT_SHARED`, default `../shared`). More ranking
//! files may be given in `RANKINGS` (separated by `:`); each is read over the shipped one and reported in a line.
//! `SENTENCE_MODEL` names the folder of a sentence model, which ranks then as well; what it says of tools is kept in the
//! file of `SENTENCE_VECTORS`, since 22,742 of them take it a quarter of an hour and more.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bench reports by printing and fails by panicking"
)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use docent::catalog::{Catalog, CatalogBuilder, Tool, ToolAnnotations, ToolSet};
use docent::diagnostic::{Diagnostics, SourceFile};
use docent::id::{ToolId, UpstreamId};
use docent::schema::SchemaText;
use docent::search::evaluate::{self, Judgement, Metrics, Report};
use docent::search::sentence::{ModelFiles, Sense, SentenceModel, Vectors, Wanted};
use docent::search::{Earlier, Filters, Lesson, Query, Ranking, ToolIndex, UsageRecord, UsageView};
use serde_json::Value;

fn main() {
    let shared =
        PathBuf::from(std::env::var("DOCENT_SHARED").unwrap_or_else(|_| "../shared".into())).join("catalogs");
    let file = shared.join("catalog.jsonl.gz");
    let Ok(packed) = std::fs::File::open(&file) else {
        eprintln!("skipped: {} is not there", file.display());
        return;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let (catalog, core_ids) = load(&text);
    let mut core = ToolSet::none(catalog.len());
    for id in &core_ids {
        core.insert(catalog.lookup(id).unwrap().0);
    }
    let judgements: Vec<Judgement> = std::fs::read_to_string(shared.join("queries.dev.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    println!("{} tools, {} of them core, {} questions", catalog.len(), core.count(), judgements.len());
    if std::env::var_os("BASELINE").is_some() {
        let baseline = plain::Plain::build(&catalog);
        let report = run(&judgements, |q| baseline.search(q, 10));
        print_report("plain tantivy defaults", &report);
    }
    let mut rankings = vec![(String::from("shipped"), None)];
    if let Ok(paths) = std::env::var("RANKINGS") {
        rankings = paths
            .split(':')
            .map(|p| (p.to_owned(), Some(SourceFile::new(p, std::fs::read_to_string(p).unwrap()))))
            .collect();
    }
    let brief = std::env::var_os("FULL").is_none() && rankings.len() > 1;
    for (name, file) in &rankings {
        let mut diagnostics = Diagnostics::default();
        let ranking = Ranking::read(file.as_ref(), None, &mut diagnostics);
        eprint!("{diagnostics}");
        measure(name, &catalog, &core, &judgements, &ranking, brief);
        if let Some(folder) = std::env::var_os("SENTENCE_MODEL") {
            with_model(&PathBuf::from(folder), &catalog, &core, &judgements, &ranking);
        }
    }
}

/// The same questions with a sentence model.
fn with_model(folder: &Path, catalog: &Catalog, core: &ToolSet, judgements: &[Judgement], ranking: &Ranking) {
    let bytes = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let (config, weights) = (bytes("config.json"), bytes("model.safetensors"));
    let vocabulary = String::from_utf8(bytes("vocab.txt")).unwrap();
    let files = ModelFiles { config: &config, pooling: None, vocabulary: &vocabulary, weights: &weights };
    let model = Arc::new(SentenceModel::read("model", &files).unwrap());
    let file = std::env::var_os("SENTENCE_VECTORS").map(PathBuf::from);
    let kept = file.as_ref().and_then(|file| Vectors::open(&std::fs::read(file).ok()?, &model));
    let mut vectors = kept.unwrap_or_else(|| Vectors::new(&model));
    let wanted = vectors.wanted(catalog);
    let started = Instant::now();
    for (no, part) in wanted.chunks(64).enumerate() {
        let texts: Vec<&str> = part.iter().map(Wanted::text).collect();
        vectors.learn(part, model.embed(&texts));
        if let Some(file) = file.as_ref().filter(|_| no % 32 == 31 || (no + 1) * 64 >= wanted.len()) {
            std::fs::write(file, vectors.to_bytes(catalog)).unwrap();
            eprintln!("{} of {} tools read", (no + 1) * 64, wanted.len());
        }
    }
    let read = started.elapsed().as_secs_f64() * 1000.0 / wanted.len().max(1) as f64;
    let sense = Sense::Model(Arc::new(vectors.of(catalog, &model).unwrap()));
    let index = ToolIndex::build(catalog, ranking);
    let mut thinking: Vec<f64> = Vec::new();
    for judgement in judgements {
        let started = Instant::now();
        model.embed(&[&judgement.query]);
        thinking.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    thinking.sort_unstable_by(f64::total_cmp);
    println!(
        "with the model: {} tools read at {read:.1} ms each; a question thought about p50 {:.1} p99 {:.1} ms",
        wanted.len(),
        thinking[thinking.len() / 2],
        thinking[thinking.len() * 99 / 100]
    );
    let ask = |text: &str, visible: &ToolSet| {
        let query = Query { text, filters: Filters::default(), offset: 0, limit: 10, explain: false };
        let found = index.search_with(&query, visible, &UsageView::default(), &sense.ask("", text));
        found.hits.iter().map(|h| catalog.get(h.tool).unwrap().id.as_str().to_owned()).collect()
    };
    let all = ToolSet::all(catalog.len());
    print_report("with the model", &run(judgements, |q| ask(q, &all)));
    let core_questions: Vec<Judgement> =
        judgements.iter().filter(|j| j.set == "hand" || j.set == "gtc").cloned().collect();
    print_report("with the model, core: hand and gtc", &run(&core_questions, |q| ask(q, core)));
}

fn measure(
    name: &str,
    catalog: &Catalog,
    core: &ToolSet,
    judgements: &[Judgement],
    ranking: &Ranking,
    brief: bool,
) {
    let started = Instant::now();
    let index = ToolIndex::build(catalog, ranking);
    let built = started.elapsed();
    let all = ToolSet::all(catalog.len());
    let started = Instant::now();
    let report = run(judgements, |q| ask(&index, catalog, q, &all));
    let searched = started.elapsed();
    let core_questions: Vec<Judgement> =
        judgements.iter().filter(|j| j.set == "hand" || j.set == "gtc").cloned().collect();
    let core_report = run(&core_questions, |q| ask(&index, catalog, q, core));
    let hand = &core_report.per_set["hand"].metrics;
    if brief {
        let m = &report.mean_of_sets;
        let sets: Vec<String> =
            report.per_set.iter().map(|(k, v)| format!("{k} {:.1}", v.metrics.recall_at_5 * 100.0)).collect();
        println!(
            "{name}: r@1 {:.2} r@5 {:.2} r@10 {:.2} mrr {:.2} ndcg {:.2} | core hand {:.1}/{:.1}/{:.1} | {}",
            m.recall_at_1 * 100.0,
            m.recall_at_5 * 100.0,
            m.recall_at_10 * 100.0,
            m.mrr * 100.0,
            m.ndcg_at_10 * 100.0,
            hand.recall_at_1 * 100.0,
            hand.recall_at_5 * 100.0,
            hand.recall_at_10 * 100.0,
            sets.join(" "),
        );
        return;
    }
    println!(
        "{name}: built in {built:?}, {} KiB; {:.3} ms a question",
        index.bytes() / 1024,
        searched.as_secs_f64() * 1000.0 / judgements.len() as f64
    );
    print_report(name, &report);
    print_report("core: hand and gtc", &core_report);
    let mut kinds: Vec<&str> =
        judgements.iter().filter(|j| j.set == "hand").map(|j| j.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let some: Vec<Judgement> =
            judgements.iter().filter(|j| j.set == "hand" && j.kind == kind).cloned().collect();
        let m = run(&some, |q| ask(&index, catalog, q, &all)).all.metrics;
        println!("  hand {kind:<12} n={:<4} {}", some.len(), line(&m));
    }
    remembered(&index, catalog, judgements, &all);
    latency(&text_core(catalog, core), ranking, judgements);
    if let Ok(set) = std::env::var("MISSES") {
        misses(&set, &index, catalog, judgements, &all);
    }
}

/// What usage memory brings: some questions of each tool are its history, the others are asked.
fn remembered(index: &ToolIndex, catalog: &Catalog, judgements: &[Judgement], all: &ToolSet) {
    println!("usage memory: recall@5 / recall@1 of the questions that are not history");
    for set in ["metatool", "bfcl"] {
        let mut of_tool: BTreeMap<&str, Vec<&Judgement>> = BTreeMap::new();
        for j in judgements.iter().filter(|j| j.set == set && j.groups.len() == 1) {
            of_tool.entry(j.groups[0][0].as_str()).or_default().push(j);
        }
        of_tool.retain(|_, questions| questions.len() > 1);
        for (name, share, wrong) in [
            ("one run a tool", 0, 0),
            ("one run, a fifth wrong", 0, 5),
            ("half of them", 2, 0),
            ("half, half wrong", 2, 2),
        ] {
            let (mut history, mut asked) = (Vec::new(), Vec::new());
            for (tool, questions) in &of_tool {
                let past = questions.len().checked_div(share).map_or(1, |n| n.max(1));
                history.extend(questions.iter().take(past).map(|j| (*tool, *j)));
                asked.extend(questions.iter().skip(past).map(|j| (**j).clone()));
            }
            let view = history_of(index, catalog, &history, wrong, all);
            let none = run(&asked, |q| ask(index, catalog, q, all)).all.metrics;
            let with = run(&asked, |q| ask_with(index, catalog, q, all, &view)).all.metrics;
            let others: Vec<Judgement> = judgements.iter().filter(|j| j.set != set).cloned().collect();
            let unrelated = run(&others, |q| ask(index, catalog, q, all)).all.metrics;
            let unrelated_with = run(&others, |q| ask_with(index, catalog, q, all, &view)).all.metrics;
            let show = |m: &Metrics| format!("{:.1}/{:.1}", m.recall_at_5 * 100.0, m.recall_at_1 * 100.0);
            println!(
                "  {set:<9} {name:<23} n={:<4} without {} with {}; other sets without {} with {}",
                asked.len(),
                show(&none),
                show(&with),
                show(&unrelated),
                show(&unrelated_with)
            );
        }
    }
}

/// What a scope remembers of these runs. Every `wrong`-th run was of another tool: the best found that is not right.
fn history_of(
    index: &ToolIndex,
    catalog: &Catalog,
    runs: &[(&str, &Judgement)],
    wrong: usize,
    all: &ToolSet,
) -> UsageView {
    let lessons: Vec<Lesson> = runs
        .iter()
        .enumerate()
        .map(|(i, (tool, j))| {
            let other = || ask(index, catalog, &j.query, all).into_iter().find(|t| t != tool);
            let is_wrong = wrong > 0 && i % wrong == 0;
            let tool = is_wrong.then(other).flatten().unwrap_or_else(|| (*tool).to_owned());
            let (words, tool) = (index.usage_words(&j.query), ToolId::parse(&tool).unwrap());
            Lesson::of(UsageRecord { words, tool, at_ms: 0, weight: 1.0 })
        })
        .collect();
    UsageView::freeze(index, catalog, all, &lessons, 0, None)
}

/// The core tools as a catalog of their own.
fn text_core(catalog: &Catalog, core: &ToolSet) -> Catalog {
    let mut builder = CatalogBuilder::new(Vec::new());
    core.iter().for_each(|no| builder.push(catalog.get(no).unwrap().clone()));
    builder.build(&mut Diagnostics::default())
}

/// Times at 1,000 and 10,000 tools: building, saving, opening, one changed tool; a question with all of them
/// visible, with a tenth, and explained.
fn latency(catalog: &Catalog, ranking: &Ranking, judgements: &[Judgement]) {
    let mut small = CatalogBuilder::new(Vec::new());
    catalog.tools().iter().step_by(10).for_each(|tool| small.push(Tool::clone(tool)));
    let small = small.build(&mut Diagnostics::default());
    let before = times(&small, ranking, judgements);
    let after = times(catalog, ranking, judgements);
    println!(
        "growth of p50 from {} to {} tools: {:.1}x all, {:.1}x a tenth",
        small.len(),
        catalog.len(),
        after[0] / before[0],
        after[1] / before[1]
    );
}

fn earlier<'a>(index: &Arc<ToolIndex>, catalog: Option<&'a Catalog>) -> Earlier<'a> {
    Earlier { index: Arc::clone(index), catalog }
}

fn times(catalog: &Catalog, ranking: &Ranking, judgements: &[Judgement]) -> Vec<f64> {
    let ms = |started: Instant| started.elapsed().as_secs_f64() * 1000.0;
    let least = |work: &dyn Fn()| {
        let once = || {
            let started = Instant::now();
            work();
            ms(started)
        };
        (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
    };
    let index = Arc::new(ToolIndex::build(catalog, ranking));
    let built = least(&|| drop(ToolIndex::build(catalog, ranking)));
    let bytes = index.to_bytes();
    let opened = least(&|| {
        let again = Arc::new(ToolIndex::open(&bytes, ranking).unwrap());
        assert!(Arc::ptr_eq(&again, &ToolIndex::over(Some(earlier(&again, None)), catalog, ranking)));
    });
    let mut changed = CatalogBuilder::new(Vec::new());
    for (no, tool) in catalog.tools().iter().enumerate() {
        let mut tool = Tool::clone(tool);
        if no == catalog.len() / 2 {
            tool.description = "Polishes brass doorknobs.".into();
        }
        changed.push(tool);
    }
    let changed = changed.build(&mut Diagnostics::default());
    let renewed = least(&|| drop(ToolIndex::over(Some(earlier(&index, Some(catalog))), &changed, ranking)));
    println!(
        "{} tools: built in {built:.0} ms, {} KiB; {} KiB saved, opened in {opened:.1} ms; one changed tool in {renewed:.1} ms",
        index.len(),
        index.bytes() / 1024,
        bytes.len() / 1024
    );
    let all = ToolSet::all(catalog.len());
    let mut tenth = ToolSet::none(catalog.len());
    all.iter().filter(|no| no.0 % 10 == 3).for_each(|no| tenth.insert(no));
    let learnt: Vec<(&str, &Judgement)> = judgements
        .iter()
        .filter(|j| catalog.lookup(&j.groups[0][0]).is_some())
        .take(200)
        .map(|j| (j.groups[0][0].as_str(), j))
        .collect();
    let mut medians = Vec::new();
    for (name, visible, explain) in [
        ("all visible", &all, false),
        ("a tenth visible", &tenth, false),
        ("a tenth, explained", &tenth, true),
    ] {
        // All six signals are on: usage too.
        let usage = history_of(&index, catalog, &learnt, 0, visible);
        let mut times: Vec<f64> = judgements
            .iter()
            .map(|j| {
                let query =
                    Query { text: &j.query, filters: Filters::default(), offset: 0, limit: 10, explain };
                // The least of five: what the neighbours on a shared machine take is not the search's.
                least(&|| drop(index.search_with_usage(&query, visible, &usage)))
            })
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| times[(times.len() as f64 * share) as usize];
        println!("  {name}: p10 {:.3} p50 {:.3} p90 {:.3} p99 {:.3} ms", at(0.1), at(0.5), at(0.9), at(0.99));
        medians.push(at(0.5));
    }
    medians
}

fn misses(set: &str, index: &ToolIndex, catalog: &Catalog, judgements: &[Judgement], all: &ToolSet) {
    for j in judgements.iter().filter(|j| j.set == set) {
        let found = ask(index, catalog, &j.query, all);
        let ranked: Vec<&str> = found.iter().map(String::as_str).collect();
        if evaluate::metrics(&j.groups, &ranked).recall_at_5 < 1.0 {
            println!(
                "{} [{}] {:?}\n   want {:?}\n   got  {:?}",
                j.qid,
                j.kind,
                j.query,
                j.groups,
                &found[..found.len().min(5)]
            );
        }
    }
}

fn ask(index: &ToolIndex, catalog: &Catalog, text: &str, visible: &ToolSet) -> Vec<String> {
    ask_with(index, catalog, text, visible, &UsageView::default())
}

fn ask_with(
    index: &ToolIndex,
    catalog: &Catalog,
    text: &str,
    visible: &ToolSet,
    usage: &UsageView,
) -> Vec<String> {
    let query = Query { text, filters: Filters::default(), offset: 0, limit: 10, explain: false };
    let found = index.search_with_usage(&query, visible, usage);
    found.hits.iter().map(|h| catalog.get(h.tool).unwrap().id.as_str().to_owned()).collect()
}

fn run(judgements: &[Judgement], search: impl Fn(&str) -> Vec<String>) -> Report {
    let results: Vec<(String, Metrics)> = judgements
        .iter()
        .map(|j| {
            let found = search(&j.query);
            let ranked: Vec<&str> = found.iter().map(String::as_str).collect();
            (j.set.clone(), evaluate::metrics(&j.groups, &ranked))
        })
        .collect();
    evaluate::report(&results)
}

fn print_report(name: &str, report: &Report) {
    println!("{name}: n={} mean of sets {}", report.all.queries, line(&report.mean_of_sets));
    for (set, r) in &report.per_set {
        let [_, i, ..] = r.intervals;
        println!(
            "  {set:<10} n={:<5} {}  r@5 in [{:.1} {:.1}]",
            r.queries,
            line(&r.metrics),
            i.low * 100.0,
            i.high * 100.0
        );
    }
}

fn line(m: &Metrics) -> String {
    format!(
        "r@1 {:5.1} r@5 {:5.1} r@10 {:5.1} mrr {:5.1} ndcg {:5.1}",
        m.recall_at_1 * 100.0,
        m.recall_at_5 * 100.0,
        m.recall_at_10 * 100.0,
        m.mrr * 100.0,
        m.ndcg_at_10 * 100.0
    )
}

fn load(text: &str) -> (Catalog, Vec<String>) {
    let mut builder = CatalogBuilder::new(Vec::new());
    let mut core = Vec::new();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let field = |key: &str| record[key].as_str().unwrap_or("");
        let mut tool = Tool::new(
            ToolId::parse(field("id")).unwrap(),
            UpstreamId::parse(field("upstream")).unwrap(),
            field("name"),
            SchemaText::of(&record["input_schema"]),
        );
        tool.title = record["title"].as_str().map(Into::into);
        tool.description = field("description").into();
        tool.category = field("category").into();
        tool.tags = record["tags"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|t| t.as_str())
            .map(Into::into)
            .collect();
        tool.annotations = ToolAnnotations {
            read_only: record["annotations"]["readOnlyHint"].as_bool(),
            ..ToolAnnotations::default()
        };
        tool.search_hints = [field("method"), field("path"), field("server")].join(" ").trim().into();
        if record["core"] == true {
            core.push(field("id").to_owned());
        }
        builder.push(tool);
    }
    let mut diagnostics = Diagnostics::default();
    let catalog = builder.build(&mut diagnostics);
    eprint!("{diagnostics}");
    (catalog, core)
}

/// What one gets from tantivy without thinking: two text fields, its default tokenizer and query parser.
mod plain {
    use docent::catalog::Catalog;
    use tantivy::collector::TopDocs;
    use tantivy::query::QueryParser;
    use tantivy::schema::{STORED, STRING, Schema, TEXT, Value as _};
    use tantivy::{Index, IndexReader, TantivyDocument, doc};

    pub(crate) struct Plain {
        index: Index,
        reader: IndexReader,
        id: tantivy::schema::Field,
        fields: Vec<tantivy::schema::Field>,
    }

    impl Plain {
        pub(crate) fn build(catalog: &Catalog) -> Self {
            let mut schema = Schema::builder();
            let id = schema.add_text_field("id", STRING | STORED);
            let name = schema.add_text_field("name", TEXT);
            let description = schema.add_text_field("description", TEXT);
            let index = Index::create_in_ram(schema.build());
            let mut writer = index.writer_with_num_threads(1, 50_000_000).unwrap();
            for tool in catalog.tools() {
                writer
                    .add_document(
                        doc!(id => tool.id.as_str(), name => &*tool.name, description => &*tool.description),
                    )
                    .unwrap();
            }
            writer.commit().unwrap();
            let reader = index.reader().unwrap();
            Self { index, reader, id, fields: vec![name, description] }
        }

        pub(crate) fn search(&self, text: &str, limit: usize) -> Vec<String> {
            let (query, _) =
                QueryParser::for_index(&self.index, self.fields.clone()).parse_query_lenient(text);
            let searcher = self.reader.searcher();
            let top = searcher.search(&query, &TopDocs::with_limit(limit).order_by_score()).unwrap();
            top.into_iter()
                .map(|(_, at)| {
                    let found: TantivyDocument = searcher.doc(at).unwrap();
                    found.get_first(self.id).and_then(|v| v.as_str()).unwrap_or("").to_owned()
                })
                .collect()
        }
    }
}
