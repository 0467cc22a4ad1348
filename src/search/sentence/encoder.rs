//! The encoder: BERT's layers (Devlin et al. 2018) as `sentence-transformers` stores them, the mean of all pieces, a
//! unit vector.

use serde::Deserialize;

use super::super::num::{count, index};
use super::math::{self, Linear, Norm, Table};
use super::weights::Tensors;
use super::{CONFIG_BYTES_MAX, NotAModel};
use crate::json;

/// Sizes that are read; the largest models of this kind in use are well below.
const WIDTH_MAX: usize = 1_024;
const LAYERS_MAX: usize = 24;

/// What `config.json` says of the model's shape.
#[derive(Debug, Clone, Deserialize)]
struct Shape {
    model_type: String,
    hidden_act: String,
    #[serde(default = "absolute")]
    position_embedding_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f32,
}

fn absolute() -> String {
    "absolute".to_owned()
}

fn epsilon() -> f32 {
    1e-12
}

/// One layer.
#[derive(Debug)]
struct Layer {
    /// Query, key and value, one after the other.
    look: Linear,
    mix: Linear,
    mixed: Norm,
    widen: Linear,
    narrow: Linear,
    done: Norm,
}

/// A model ready to run.
#[derive(Debug)]
pub(super) struct Encoder {
    width: usize,
    heads: usize,
    words: Table,
    /// Where a piece stands, with the part that every piece of a lone text has.
    places: Vec<f32>,
    begin: Norm,
    layers: Vec<Layer>,
}

impl Encoder {
    /// Reads a model of `pieces` word pieces, for texts of up to `longest` of them.
    pub(super) fn read(
        config: &[u8],
        tensors: &Tensors<'_>,
        pieces: usize,
        longest: usize,
    ) -> Result<Self, NotAModel> {
        let shape = Shape::read(config)?;
        let width = shape.hidden_size;
        let words = tensors.take("embeddings.word_embeddings.weight", &[pieces, width])?;
        let mut places =
            tensors.take("embeddings.position_embeddings.weight", &[shape.max_position_embeddings, width])?;
        places.truncate(longest.saturating_mul(width));
        let kinds = tensors.take("embeddings.token_type_embeddings.weight", &[2, width])?;
        for place in places.chunks_exact_mut(width) {
            math::add_scaled(place, &kinds, 1.0);
        }
        let layers = (0..shape.num_hidden_layers).map(|no| Layer::read(&shape, tensors, no));
        Ok(Self {
            width,
            heads: shape.num_attention_heads,
            words: Table::new(&words, width),
            places,
            begin: shape.norm(tensors, "embeddings.LayerNorm")?,
            layers: layers.collect::<Result<_, _>>()?,
        })
    }

    /// Numbers of a vector.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Pieces of a text that it can take.
    pub(super) fn longest(&self) -> usize {
        self.places.len() / self.width
    }

    /// The unit vectors of texts, given as their pieces. All pieces together are multiplied at once, so several short
    /// texts cost less than each alone.
    pub(super) fn vectors(&self, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        for text in texts {
            for (piece, place) in text.iter().zip(self.places.chunks_exact(self.width)) {
                if let Some(word) = self.words.row(index(*piece)) {
                    rows.extend(word.zip(place).map(|(x, y)| x + y));
                } else {
                    rows.extend(place);
                }
            }
        }
        self.begin.apply(&mut rows);
        let lengths: Vec<usize> = texts.iter().map(|t| t.len().min(self.longest())).collect();
        let mut space = Space::default();
        for layer in &self.layers {
            layer.apply(&mut rows, &lengths, (self.width, self.heads), &mut space);
        }
        let mut rest = rows.as_slice();
        let mut out = Vec::with_capacity(texts.len());
        for length in lengths {
            let (text, more) = rest.split_at_checked(length * self.width).unwrap_or((rest, &[]));
            rest = more;
            out.push(mean(text, self.width));
        }
        out
    }
}

/// The mean of rows as a unit vector; zeros where there is none.
fn mean(rows: &[f32], width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    for row in rows.chunks_exact(width) {
        math::add_scaled(&mut sum, row, 1.0);
    }
    let length = math::dot(&sum, &sum).sqrt();
    if length > f32::MIN_POSITIVE {
        for x in &mut sum {
            *x /= length;
        }
    }
    sum
}

/// Space that all layers use in turn.
#[derive(Debug, Default)]
struct Space {
    looks: Vec<f32>,
    mixed: Vec<f32>,
    wide: Vec<f32>,
    result: Vec<f32>,
    scores: Vec<f32>,
}

impl Layer {
    fn read(shape: &Shape, tensors: &Tensors<'_>, no: usize) -> Result<Self, NotAModel> {
        let (width, wide) = (shape.hidden_size, shape.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{no}.{part}");
        let linear = |part: &str, from: usize, to: usize| {
            let weights = tensors.take(&name(&format!("{part}.weight")), &[to, from])?;
            Ok((weights, tensors.take(&name(&format!("{part}.bias")), &[to])?))
        };
        let one = |part: &str, from: usize, to: usize| {
            let (weights, bias) = linear(part, from, to)?;
            Ok(Linear::new(&weights, bias, from))
        };
        let (mut weights, mut bias) = (Vec::new(), Vec::new());
        for part in ["query", "key", "value"] {
            let (w, b): (Vec<f32>, Vec<f32>) = linear(&format!("attention.self.{part}"), width, width)?;
            weights.extend(w);
            bias.extend(b);
        }
        Ok(Self {
            look: Linear::new(&weights, bias, width),
            mix: one("attention.output.dense", width, width)?,
            mixed: shape.norm(tensors, &name("attention.output.LayerNorm"))?,
            widen: one("intermediate.dense", width, wide)?,
            narrow: one("output.dense", wide, width)?,
            done: shape.norm(tensors, &name("output.LayerNorm"))?,
        })
    }

    fn apply(&self, rows: &mut [f32], lengths: &[usize], (width, heads): (usize, usize), space: &mut Space) {
        self.look.apply(rows, &mut space.looks);
        space.mixed.clear();
        space.mixed.resize(rows.len(), 0.0);
        let (mut looks, mut mixed) = (space.looks.as_slice(), space.mixed.as_mut_slice());
        for length in lengths {
            let Some((text, more)) = looks.split_at_checked(length * width * 3) else { return };
            let Some((out, rest)) = mixed.split_at_mut_checked(length * width) else { return };
            attend(text, out, (width, heads), &mut space.scores);
            (looks, mixed) = (more, rest);
        }
        self.mix.apply(&space.mixed, &mut space.result);
        math::add_scaled(rows, &space.result, 1.0);
        self.mixed.apply(rows);
        self.widen.apply(rows, &mut space.wide);
        math::gelu(&mut space.wide);
        self.narrow.apply(&space.wide, &mut space.result);
        math::add_scaled(rows, &space.result, 1.0);
        self.done.apply(rows);
    }
}

/// Attention of one text: each piece's mean of all pieces' values, by how far they answer its query. `looks`: rows of
/// query, key and value.
fn attend(looks: &[f32], out: &mut [f32], (width, heads): (usize, usize), scores: &mut Vec<f32>) {
    let head = width / heads;
    let scale = 1.0 / count(head).sqrt();
    let part = |which: usize, no: usize| which * width + no * head..which * width + (no + 1) * head;
    for (query, out) in looks.chunks_exact(width * 3).zip(out.chunks_exact_mut(width)) {
        for (no, out) in out.chunks_exact_mut(head).enumerate() {
            let Some(asked) = query.get(part(0, no)) else { return };
            scores.clear();
            let keys = looks.chunks_exact(width * 3).filter_map(|row| row.get(part(1, no)));
            scores.extend(keys.map(|key| math::dot(asked, key) * scale));
            math::softmax(scores);
            let values = looks.chunks_exact(width * 3).filter_map(|row| row.get(part(2, no)));
            for (value, share) in values.zip(scores.iter()) {
                math::add_scaled(out, value, *share);
            }
        }
    }
}

/// Whether `1_Pooling/config.json` asks for the mean of all pieces, which is what [`Encoder::vectors`] gives.
pub(super) fn check_pooling(config: &[u8]) -> Result<(), NotAModel> {
    #[derive(Deserialize)]
    struct Pooling {
        #[serde(rename = "pooling_mode_mean_tokens")]
        mean: bool,
        #[serde(rename = "pooling_mode_cls_token", default)]
        first: bool,
        #[serde(rename = "pooling_mode_max_tokens", default)]
        largest: bool,
    }
    let read: Pooling = json::parse_as(config, CONFIG_BYTES_MAX)
        .map_err(|e| NotAModel::Pooling(format!("it does not say how pieces become a sentence: {e}")))?;
    if read.mean && !read.first && !read.largest {
        return Ok(());
    }
    Err(NotAModel::Pooling("only the mean of all pieces (`pooling_mode_mean_tokens`) is built".to_owned()))
}

impl Shape {
    fn read(config: &[u8]) -> Result<Self, NotAModel> {
        let shape: Self = json::parse_as(config, CONFIG_BYTES_MAX)
            .map_err(|e| NotAModel::Config(format!("it is not the description of a BERT model: {e}")))?;
        let wrong = |what: &str| Err(NotAModel::Config(what.to_owned()));
        if shape.model_type != "bert" {
            return wrong("`model_type` must be \"bert\"");
        }
        if shape.hidden_act != "gelu" {
            return wrong("`hidden_act` must be \"gelu\"");
        }
        if shape.position_embedding_type != "absolute" {
            return wrong("`position_embedding_type` must be \"absolute\"");
        }
        if !(1..=WIDTH_MAX).contains(&shape.hidden_size)
            || !(1..=4 * WIDTH_MAX).contains(&shape.intermediate_size)
            || !(1..=LAYERS_MAX).contains(&shape.num_hidden_layers)
            || !(4..=65_536).contains(&shape.max_position_embeddings)
        {
            return wrong("it is larger than docent reads: 24 layers of 1,024 numbers");
        }
        if shape.num_attention_heads == 0 || !shape.hidden_size.is_multiple_of(shape.num_attention_heads) {
            return wrong("`hidden_size` must be a multiple of `num_attention_heads`");
        }
        Ok(shape)
    }

    fn norm(&self, tensors: &Tensors<'_>, name: &str) -> Result<Norm, NotAModel> {
        let take = |half: &str| tensors.take(&format!("{name}.{half}"), &[self.hidden_size]);
        Ok(Norm { scale: take("weight")?, shift: take("bias")?, epsilon: self.layer_norm_eps })
    }
}
