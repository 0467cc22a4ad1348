//! A sentence model for the `semantic` signal, where an operator gives one: BERT encoders as `sentence-transformers`
//! stores them, such as all-MiniLM-L6-v2.
//!
//! Plain Rust and pure: files come in as bytes, vectors go out. What reads files and when vectors of tools are made is
//! decided above (`app`); whether a home may name a model is decided by the cargo feature `semantic` (`config`).

mod encoder;
mod math;
mod pieces;
mod vectors;
mod weights;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cursor::Digest;
use encoder::Encoder;
use pieces::Pieces;
use weights::Tensors;

pub use vectors::{Asked, Sense, Sentences, Vectors, Wanted};

/// Pieces of one text that are looked at, the two that mark its ends included: what a tool says first, and any
/// question but a pasted document. Twice as many take more than twice the time.
pub const PIECES_MAX: usize = 128;
/// Bytes of the weights that are read: 23 million numbers of 32 bits have 91 MB, the largest model that is sensible
/// here five times that.
pub const WEIGHTS_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Bytes of a vocabulary: 30,522 pieces have 231 KB.
pub const VOCABULARY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a `config.json`.
pub const CONFIG_BYTES_MAX: usize = 64 * 1024;

/// Questions whose vectors are kept: the pages of a walk ask the same one again.
const ASKED_MAX: usize = 256;
/// Rows that are worked on together when many texts are embedded: enough for the weights to be fetched seldom, few
/// enough to stay in a core's own memory.
const BATCH_PIECES: usize = 256;
/// Counts the ways in which vectors were made; vectors that were kept are of one way.
const WAY: &[u8] = b"docent sentences 1";

/// Why files are not a model that docent can run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAModel {
    /// `model.safetensors` cannot be read.
    #[error("model.safetensors: {0}")]
    Weights(String),
    /// A tensor is missing or another one.
    #[error("model.safetensors: the tensor `{name}` must have the shape {expected}; found: {found}")]
    Tensor {
        /// Its name.
        name: String,
        /// The shape that config.json and vocab.txt ask for.
        expected: String,
        /// What is there.
        found: String,
    },
    /// `config.json` describes something else.
    #[error("config.json: {0}")]
    Config(String),
    /// `1_Pooling/config.json` asks for something else than the mean.
    #[error("1_Pooling/config.json: {0}")]
    Pooling(String),
    /// `vocab.txt` lacks a piece that every BERT vocabulary has.
    #[error("vocab.txt: the piece `{0}` is missing: one piece a line is expected")]
    Vocabulary(&'static str),
}

/// The files of a model, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct ModelFiles<'a> {
    /// `config.json`
    pub config: &'a [u8],
    /// `1_Pooling/config.json`, if there is one.
    pub pooling: Option<&'a [u8]>,
    /// `vocab.txt`
    pub vocabulary: &'a str,
    /// `model.safetensors`
    pub weights: &'a [u8],
}

/// What a text means to a model: a unit vector in 8-bit components.
#[derive(Debug, Clone, PartialEq)]
pub struct Meaning {
    components: Box<[i8]>,
    /// What a component's step stands for.
    step: f32,
}

/// A question that was asked.
#[derive(Debug)]
struct Question {
    asker: Box<str>,
    text: Box<str>,
    meaning: Arc<Meaning>,
}

/// A model ready to run.
#[derive(Debug)]
pub struct SentenceModel {
    name: Arc<str>,
    digest: Digest,
    pieces: Pieces,
    encoder: Encoder,
    /// The newest last.
    asked: Mutex<VecDeque<Question>>,
}

impl SentenceModel {
    /// Reads a model. `name` is what explanations call it.
    pub fn read(name: &str, files: &ModelFiles<'_>) -> Result<Self, NotAModel> {
        if let Some(pooling) = files.pooling {
            encoder::check_pooling(pooling)?;
        }
        let pieces = Pieces::read(files.vocabulary)?;
        let tensors = Tensors::read(files.weights)?;
        let encoder = Encoder::read(files.config, &tensors, pieces.len(), PIECES_MAX)?;
        let mut hasher = blake3::Hasher::new();
        for part in [WAY, files.config, files.vocabulary.as_bytes(), files.weights] {
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part);
        }
        Ok(Self {
            name: Arc::from(name),
            digest: *hasher.finalize().as_bytes(),
            pieces,
            encoder,
            asked: Mutex::default(),
        })
    }

    /// What it is called.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Tells it from every other model, and from other ways to run it.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Numbers of its vectors.
    pub fn width(&self) -> usize {
        self.encoder.width()
    }

    /// What a question means. It takes milliseconds of one core, unless the same asker asked it lately: what others
    /// asked is not remembered for him, or the time of an answer would tell it.
    pub fn ask(&self, asker: &str, text: &str) -> Arc<Meaning> {
        if let Some(known) = self.lately(asker, text) {
            return known;
        }
        let meaning = self.embed(&[text]).pop().map_or_else(|| Arc::new(Meaning::of(&[])), Arc::new);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() >= ASKED_MAX {
            asked.pop_front();
        }
        asked.push_back(Question { asker: asker.into(), text: text.into(), meaning: Arc::clone(&meaning) });
        meaning
    }

    /// What a question means, if this asker asked it lately.
    pub fn lately(&self, asker: &str, text: &str) -> Option<Arc<Meaning>> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let same = asked.iter().rev().find(|q| *q.text == *text && *q.asker == *asker);
        same.map(|q| Arc::clone(&q.meaning))
    }

    /// What texts mean, in their order.
    pub fn embed(&self, texts: &[&str]) -> Vec<Meaning> {
        let longest = PIECES_MAX.min(self.encoder.longest());
        let mut out = Vec::with_capacity(texts.len());
        let (mut batch, mut rows) = (Vec::new(), 0);
        let mut run = |batch: &mut Vec<Vec<u32>>| {
            out.extend(self.encoder.vectors(batch).iter().map(|vector| Meaning::of(vector)));
            batch.clear();
        };
        for text in texts {
            let pieces = self.pieces.of(text, longest);
            if rows + pieces.len() > BATCH_PIECES {
                run(&mut batch);
                rows = 0;
            }
            rows += pieces.len();
            batch.push(pieces);
        }
        run(&mut batch);
        out
    }
}

impl Meaning {
    /// A vector in 8-bit components.
    fn of(vector: &[f32]) -> Self {
        let (components, step) = math::eighths(vector);
        Self { components: components.into(), step }
    }
}
