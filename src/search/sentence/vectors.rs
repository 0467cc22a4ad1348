//! What tools mean to a model: vectors that are kept by model and text, and those of one generation in its order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::fields;
use super::math;
use super::{Meaning, SentenceModel};
use crate::catalog::{Catalog, Tool};
use crate::cursor::Digest;

/// Begins every file; the last byte counts the versions of the format.
const MAGIC: &[u8; 8] = b"docentV\x01";
const CHECKSUM_BYTES: usize = 32;
/// Vectors that are kept of tools that are not there now: an upstream that is down comes back.
const ABSENT_MAX: usize = 50_000;

/// Tells a text under a model from every other one.
type Key = [u8; 16];

/// A tool whose vector is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    key: Key,
    text: String,
}

impl Wanted {
    /// What is to be embedded.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The vectors of one model, by what was embedded.
#[derive(Debug)]
pub struct Vectors {
    model: Digest,
    width: usize,
    pub(super) known: HashMap<Key, Meaning>,
}

impl Vectors {
    /// None so far.
    pub fn new(model: &SentenceModel) -> Self {
        Self { model: *model.digest(), width: model.width(), known: HashMap::new() }
    }

    /// Those of bytes that [`Vectors::to_bytes`] made for the same model; `None` for anything else.
    pub fn open(bytes: &[u8], model: &SentenceModel) -> Option<Self> {
        let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        let rest = body.strip_prefix(MAGIC)?.strip_prefix(model.digest())?;
        if blake3::hash(body) != *checksum {
            return None;
        }
        let mut out = Self::new(model);
        let row = size_of::<Key>() + size_of::<f32>() + out.width;
        let rows = rest.chunks_exact(row);
        if !rows.remainder().is_empty() {
            return None;
        }
        for row in rows {
            let (key, rest) = row.split_first_chunk::<16>()?;
            let (step, components) = rest.split_first_chunk::<4>()?;
            let components = components.iter().map(|b| i8::from_le_bytes([*b])).collect();
            out.known.insert(*key, Meaning { components, step: f32::from_le_bytes(*step) });
        }
        Some(out)
    }

    /// The vectors as bytes: those of the catalog's tools, and of others as far as there is room.
    pub fn to_bytes(&self, catalog: &Catalog) -> Vec<u8> {
        let now: HashSet<Key> =
            catalog.tools().iter().map(|t| key(&self.model, &fields::sentence(t))).collect();
        let (present, absent): (Vec<_>, Vec<_>) = self.known.iter().partition(|(key, _)| now.contains(*key));
        let mut rows: Vec<_> = present.into_iter().chain(absent.into_iter().take(ABSENT_MAX)).collect();
        rows.sort_unstable_by_key(|(key, _)| **key);
        let mut out = Vec::with_capacity(64 + rows.len() * (20 + self.width) + CHECKSUM_BYTES);
        out.extend(MAGIC);
        out.extend(self.model);
        for (key, meaning) in rows {
            out.extend(key);
            out.extend(meaning.step.to_le_bytes());
            out.extend(meaning.components.iter().flat_map(|c| c.to_le_bytes()));
        }
        let checksum = *blake3::hash(&out).as_bytes();
        out.extend(checksum);
        out
    }

    /// The catalog's tools whose vectors are not known.
    pub fn wanted(&self, catalog: &Catalog) -> Vec<Wanted> {
        let mut seen = HashSet::new();
        let wanted = |tool: &Arc<Tool>| {
            let text = fields::sentence(tool);
            let key = key(&self.model, &text);
            (!self.known.contains_key(&key) && seen.insert(key)).then_some(Wanted { key, text })
        };
        catalog.tools().iter().filter_map(wanted).collect()
    }

    /// Learns what texts mean.
    pub fn learn(&mut self, wanted: &[Wanted], meanings: Vec<Meaning>) {
        self.known.extend(wanted.iter().map(|w| w.key).zip(meanings));
    }

    /// The vectors of a catalog; `None` while one of them is not known.
    pub fn of(&self, catalog: &Catalog, model: &Arc<SentenceModel>) -> Option<Sentences> {
        let mut components = Vec::with_capacity(catalog.len() * self.width);
        let mut steps = Vec::with_capacity(catalog.len());
        for tool in catalog.tools() {
            let known = self.known.get(&key(&self.model, &fields::sentence(tool)))?;
            components.extend(known.components.iter());
            steps.push(known.step);
        }
        Some(Sentences { model: Arc::clone(model), components, steps })
    }
}

fn key(model: &Digest, text: &str) -> Key {
    let mut out = Key::default();
    blake3::Hasher::new_keyed(model).update(text.as_bytes()).finalize_xof().fill(&mut out);
    out
}

/// What the tools of one generation mean to a model, by their numbers.
#[derive(Debug)]
pub struct Sentences {
    model: Arc<SentenceModel>,
    components: Vec<i8>,
    steps: Vec<f32>,
}

impl Sentences {
    /// The model.
    pub fn model(&self) -> &Arc<SentenceModel> {
        &self.model
    }

    /// The cosine between a question and a tool, 0 to 1 (what points away counts as nothing).
    pub(in crate::search) fn near(&self, question: &Meaning, tool: usize) -> f32 {
        let width = self.model.width();
        let row = tool.checked_mul(width).and_then(|at| self.components.get(at..at.checked_add(width)?));
        let (Some(row), Some(step)) = (row, self.steps.get(tool)) else { return 0.0 };
        (math::dot_eighths(row, &question.components) * (step * question.step)).clamp(0.0, 1.0)
    }
}

/// Where the `semantic` signal of a generation is from.
#[derive(Debug, Clone, Default)]
pub enum Sense {
    /// The shipped table: no model is configured.
    #[default]
    Table,
    /// The shipped table, while the model's vectors of so many tools are still being made.
    Waiting(usize),
    /// A model.
    Model(Arc<Sentences>),
}

/// A question as the `semantic` signal takes it.
#[derive(Debug, Clone, Default)]
pub enum Asked {
    /// The shipped table is asked.
    #[default]
    Table,
    /// So it is, since the model cannot be asked yet.
    Waiting,
    /// A model is asked.
    Model(Arc<Sentences>, Arc<Meaning>),
}

impl Sense {
    /// What a question means. With a model it takes milliseconds, unless the same asker asked it lately.
    pub fn ask(&self, asker: &str, text: &str) -> Asked {
        match self {
            Self::Table => Asked::Table,
            Self::Waiting(_) => Asked::Waiting,
            Self::Model(sentences) => {
                let text = text.trim();
                // Without words there is nothing to mean.
                if text.is_empty() {
                    return Asked::Table;
                }
                Asked::Model(Arc::clone(sentences), sentences.model.ask(asker, text))
            }
        }
    }

    /// The model that has to be asked for this question, because this asker did not ask it lately.
    pub fn has_to_think(&self, asker: &str, text: &str) -> Option<Arc<SentenceModel>> {
        let Self::Model(sentences) = self else { return None };
        let text = text.trim();
        let known = text.is_empty() || sentences.model.lately(asker, text).is_some();
        (!known).then(|| Arc::clone(&sentences.model))
    }
}
