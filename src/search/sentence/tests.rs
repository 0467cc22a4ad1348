//! The encoder against numpy and the reference tokenizer (`tests/fixtures/sentence`), broken models, kept vectors, and
//! what a model does to ranking.

use serde::Deserialize;

use super::*;
use crate::catalog::{Catalog, CatalogBuilder, Tool, ToolSet};
use crate::diagnostic::{Diagnostics, SourceFile};
use crate::id::{ToolId, UpstreamId};
use crate::schema::SchemaText;
use crate::search::{Filters, Hit, Query, Ranking, Signal, ToolIndex, UsageView};

const CONFIG: &[u8] = include_bytes!("../../../tests/fixtures/sentence/model/config.json");
const VOCABULARY: &str = include_str!("../../../tests/fixtures/sentence/model/vocab.txt");
const WEIGHTS: &[u8] = include_bytes!("../../../tests/fixtures/sentence/model/model.safetensors");
const EXPECTED: &str = include_str!("../../../tests/fixtures/sentence/expected.json");

/// Pieces that the tiny model has places for.
const LONGEST: usize = 48;

#[derive(Deserialize)]
struct Row {
    text: String,
    pieces: Vec<u32>,
    vector: Vec<f32>,
}

fn files() -> ModelFiles<'static> {
    ModelFiles { config: CONFIG, pooling: None, vocabulary: VOCABULARY, weights: WEIGHTS }
}

fn model() -> Arc<SentenceModel> {
    Arc::new(SentenceModel::read("tiny", &files()).unwrap())
}

fn expected() -> Vec<Row> {
    serde_json::from_str(EXPECTED).unwrap()
}

fn vector(meaning: &Meaning) -> Vec<f32> {
    meaning.components.iter().map(|c| f32::from(*c) * meaning.step).collect()
}

#[test]
fn texts_are_cut_into_the_reference_tokenizers_pieces() {
    let pieces = Pieces::read(VOCABULARY).unwrap();
    for row in expected() {
        assert_eq!(pieces.of(&row.text, LONGEST), row.pieces, "{:?}", row.text);
    }
}

#[test]
fn what_looks_like_a_control_piece_in_a_text_is_text() {
    let pieces = Pieces::read(VOCABULARY).unwrap();
    let of = pieces.of("[SEP] send", LONGEST);
    assert_eq!(of.iter().filter(|p| **p == 3).count(), 1, "only the end itself: {of:?}");
}

#[test]
fn vectors_are_numpys_alone_and_together() {
    let tensors = Tensors::read(WEIGHTS).unwrap();
    let pieces = Pieces::read(VOCABULARY).unwrap();
    let encoder = Encoder::read(CONFIG, &tensors, pieces.len(), PIECES_MAX).unwrap();
    assert_eq!((encoder.longest(), encoder.width()), (LONGEST, 8));
    let rows = expected();
    let all: Vec<Vec<u32>> = rows.iter().map(|row| row.pieces.clone()).collect();
    for (row, together) in rows.iter().zip(encoder.vectors(&all)) {
        let alone = encoder.vectors(std::slice::from_ref(&row.pieces)).remove(0);
        assert_eq!(alone, together, "what stands beside a text changes nothing: {:?}", row.text);
        for (x, expected) in alone.iter().zip(&row.vector) {
            assert!((x - expected).abs() < 2e-4, "{:?}: {alone:?}, not {:?}", row.text, row.vector);
        }
    }
    let model = model();
    let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
    for (row, meaning) in rows.iter().zip(model.embed(&texts)) {
        let close = vector(&meaning).iter().zip(&row.vector).all(|(x, y)| (x - y).abs() < 5e-3);
        assert!(close, "8 bits keep a vector: {:?}", row.text);
        assert_eq!(*model.ask("", &row.text), meaning);
    }
}

#[test]
fn many_texts_are_worked_on_in_batches_with_the_same_outcome() {
    let model = model();
    let texts: Vec<String> = (0..60).map(|n| "weather in berlin ".repeat(n % 9 + 1)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = model.embed(&texts);
    assert_eq!(together.len(), texts.len());
    for (text, meaning) in texts.iter().zip(&together) {
        assert_eq!(model.embed(&[text]).first(), Some(meaning));
    }
}

#[test]
fn lately_asked_questions_are_remembered_and_old_ones_forgotten() {
    let model = model();
    assert!(model.lately("ann", "send").is_none());
    let first = model.ask("ann", "send");
    assert!(Arc::ptr_eq(&first, &model.ask("ann", "send")));
    assert!(model.lately("bob", "send").is_none(), "what others asked does not make an answer faster");
    for n in 0..ASKED_MAX {
        model.ask("ann", &format!("send {n}"));
    }
    assert!(model.lately("ann", "send").is_none() && model.lately("ann", "send 0").is_some());
}

/// A model with one text of a file replaced.
fn broken(config: (&str, &str), vocabulary: &str, weights: &[u8]) -> String {
    let config = std::str::from_utf8(CONFIG).unwrap().replace(config.0, config.1);
    let files = ModelFiles { config: config.as_bytes(), vocabulary, weights, ..files() };
    SentenceModel::read("tiny", &files).unwrap_err().to_string()
}

#[test]
fn broken_and_foreign_models_name_the_file_and_what_was_expected() {
    let same = ("", "");
    for (message, told_of) in [
        (broken(("\"bert\"", "\"t5\""), VOCABULARY, WEIGHTS), "config.json: `model_type` must be \"bert\""),
        (broken(("\"gelu\"", "\"relu\""), VOCABULARY, WEIGHTS), "config.json: `hidden_act` must be \"gelu\""),
        (broken(("_heads\": 2", "_heads\": 3"), VOCABULARY, WEIGHTS), "must be a multiple of"),
        (broken(("_size\": 8", "_size\": 800000"), VOCABULARY, WEIGHTS), "larger than docent reads"),
        (broken(("{", "["), VOCABULARY, WEIGHTS), "config.json: it is not the description of a BERT model"),
        (
            broken(("_layers\": 2", "_layers\": 3"), VOCABULARY, WEIGHTS),
            "the tensor `encoder.layer.2.attention.self.query.weight` must have the shape [8, 8]; found: no such tensor",
        ),
        (
            broken(("_size\": 16", "_size\": 20"), VOCABULARY, WEIGHTS),
            "the tensor `encoder.layer.0.intermediate.dense.weight` must have the shape [20, 8]; found: [16, 8]",
        ),
        (
            broken(same, "[CLS]\n[SEP]\n[UNK]\n", WEIGHTS),
            "the tensor `embeddings.word_embeddings.weight` must have the shape [3, 8]; found: [59, 8]",
        ),
        (broken(same, "a\nb\n", WEIGHTS), "vocab.txt: the piece `[UNK]` is missing"),
        (broken(same, VOCABULARY, &WEIGHTS[..WEIGHTS.len() / 2]), "it was cut short"),
        (
            broken(same, VOCABULARY, b"version https://git-lfs.example/spec/v1"),
            "model.safetensors: it does not begin",
        ),
    ] {
        assert!(message.contains(told_of), "{message}\nnot: {told_of}");
    }
    let pooling = Some(&br#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#[..]);
    let message = SentenceModel::read("tiny", &ModelFiles { pooling, ..files() }).unwrap_err().to_string();
    assert!(message.starts_with("1_Pooling/config.json: only the mean"), "{message}");
}

fn catalog(tools: &[(&str, &str)]) -> Catalog {
    let mut builder = CatalogBuilder::new(Vec::new());
    for (name, description) in tools {
        let id = ToolId::parse(&format!("up.{name}")).unwrap();
        let mut tool = Tool::new(id, UpstreamId::parse("up").unwrap(), *name, SchemaText::empty_object());
        tool.description = (*description).into();
        builder.push(tool);
    }
    builder.build(&mut Diagnostics::default())
}

const TOOLS: [(&str, &str); 3] = [
    ("weather_get", "Get the weather forecast."),
    ("mail_send", "Send an email to the team."),
    ("issues", "List open issues."),
];

/// All vectors of a catalog.
fn vectors(model: &SentenceModel, catalog: &Catalog) -> Vectors {
    let mut out = Vectors::new(model);
    let wanted = out.wanted(catalog);
    let texts: Vec<&str> = wanted.iter().map(Wanted::text).collect();
    out.learn(&wanted, model.embed(&texts));
    out
}

#[test]
fn vectors_are_kept_by_model_and_text() {
    let (model, catalog) = (model(), catalog(&TOOLS));
    let known = vectors(&model, &catalog);
    assert!(Vectors::new(&model).of(&catalog, &model).is_none(), "none is known");
    let bytes = known.to_bytes(&catalog);
    let opened = Vectors::open(&bytes, &model).unwrap();
    assert_eq!(opened.known, known.known);
    assert_eq!(opened.wanted(&catalog), []);
    let mut changed = TOOLS;
    changed[1].1 = "Show a photo.";
    let changed = self::catalog(&changed);
    let wanted = opened.wanted(&changed);
    assert_eq!(wanted.iter().map(Wanted::text).collect::<Vec<_>>(), ["up: mail send. Show a photo."]);
    assert!(opened.of(&changed, &model).is_none() && opened.of(&catalog, &model).is_some());
    // Bytes of another model, cut or changed are no vectors.
    let mut other = CONFIG.to_vec();
    other.push(b' ');
    let other = SentenceModel::read("tiny", &ModelFiles { config: &other, ..files() }).unwrap();
    assert!(Vectors::open(&bytes, &other).is_none());
    for at in [0, 20, 45, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(Vectors::open(&damaged, &model).is_none(), "byte {at}");
    }
    assert!(
        Vectors::open(&bytes[..bytes.len() - 30], &model).is_none() && Vectors::open(b"", &model).is_none()
    );
}

fn search(index: &ToolIndex, catalog: &Catalog, text: &str, asked: &Asked) -> Vec<Hit> {
    let query = Query { text, filters: Filters::default(), offset: 0, limit: 10, explain: true };
    index.search_with(&query, &ToolSet::all(catalog.len()), &UsageView::default(), asked).hits
}

fn semantic(hit: &Hit) -> &Signal {
    hit.signals.iter().find(|s| s.name == "semantic").unwrap()
}

#[test]
fn a_model_is_named_as_the_source_and_weighs_by_its_own_table() {
    let (model, catalog) = (model(), catalog(&TOOLS));
    let file = SourceFile::new("index/ranking.toml", "[model]\nshare = 1\nfloor = 0.1\n");
    let ranking = Ranking::read(Some(&file), None, &mut Diagnostics::default());
    let index = ToolIndex::build(&catalog, &ranking);
    let sentences = Arc::new(vectors(&model, &catalog).of(&catalog, &model).unwrap());
    let sense = Sense::Model(Arc::clone(&sentences));
    let text = "weather in berlin";
    assert!(sense.has_to_think("", text).is_some());
    let asked = sense.ask("", text);
    assert!(sense.has_to_think("", text).is_none() && sense.has_to_think("", " ").is_none());
    let hits = search(&index, &catalog, text, &asked);
    assert_eq!(hits.len(), 3, "the floor of the model lets all in");
    let question = vector(&model.ask("", text));
    for hit in &hits {
        let tool = catalog.get(hit.tool).unwrap();
        let own = vector(&model.embed(&[&crate::search::fields::sentence(tool)])[0]);
        let cosine: f32 = own.iter().zip(&question).map(|(x, y)| x * y).sum();
        let signal = semantic(hit);
        assert!((signal.value - f64::from(cosine)).abs() < 1e-4, "{signal:?} {cosine}");
        assert_eq!(signal.source, "model tiny");
        assert!((signal.weight - 0.39).abs() < 1e-6, "its own weights: {signal:?}");
        let sum: f64 = hit.signals.iter().map(|s| s.value * s.weight).sum();
        assert!((hit.score - sum).abs() < 2e-5, "the score is the sum of what is told");
    }
}

#[test]
fn while_vectors_are_made_the_table_ranks_and_says_so() {
    let catalog = catalog(&TOOLS);
    let index = ToolIndex::build(&catalog, &Ranking::shipped());
    let plain = search(&index, &catalog, "weather", &Asked::Table);
    let waiting = search(&index, &catalog, "weather", &Sense::Waiting(3).ask("", "weather"));
    assert_eq!(semantic(&plain[0]).source, "computed");
    assert_eq!(semantic(&waiting[0]).source, "fallback");
    let scores = |hits: &[Hit]| hits.iter().map(|h| (h.tool, h.score.to_bits())).collect::<Vec<_>>();
    assert_eq!(scores(&plain), scores(&waiting));
}
