//! The sentence model of a home: read once, asked for the vectors of tools beside the serving, its vectors kept in the
//! data directory, so that a restart or one changed tool embeds only what is new.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::kept_file::KeptFile;
use crate::catalog::Catalog;
use crate::diagnostic::Diagnostic;
use crate::json;
use crate::search::sentence::{
    CONFIG_BYTES_MAX, ModelFiles, Sense, SentenceModel, VOCABULARY_BYTES_MAX, Vectors, WEIGHTS_BYTES_MAX,
    Wanted,
};
use crate::snapshot::ModelSetting;

/// The file of vectors in the data directory: 10,000 tools take four megabytes.
const FILE: &str = "sentence-vectors.bin";
const FILE_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Tools that a reload embeds before it publishes, about half a second: an edit of a few tools keeps the model's ranking
/// without a while of the table's.
const AT_ONCE_MAX: usize = 24;
/// Tools that one thread embeds before it looks whether to stop.
const CHUNK: usize = 16;
/// Threads that embed, at most, and never more than half of the cores: calls come first.
const THREADS_MAX: usize = 4;
/// Tools after which what was made is kept, so that an ended process has lost minutes at most.
const KEEP_EVERY: usize = 2_048;
/// The files of a model.
const WEIGHTS: &str = "model.safetensors";
const VOCABULARY: &str = "vocab.txt";
const CONFIG: &str = "config.json";
const POOLING: &str = "1_Pooling/config.json";

/// The model at hand and what it has said of tools.
#[derive(Debug)]
pub(super) struct Meanings {
    file: KeptFile,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    stamp: Stamp,
    model: Arc<SentenceModel>,
    vectors: Vectors,
}

/// Tells whether a model's files are the ones that were read.
#[derive(Debug, PartialEq)]
struct Stamp {
    dir: PathBuf,
    files: Vec<Option<(u64, SystemTime)>>,
}

impl Stamp {
    fn of(dir: &Path) -> Self {
        let of = |name| std::fs::metadata(dir.join(name)).and_then(|m| Ok((m.len(), m.modified()?))).ok();
        Self { dir: dir.to_owned(), files: [WEIGHTS, VOCABULARY, CONFIG, POOLING].map(of).to_vec() }
    }
}

impl Meanings {
    /// No model yet; vectors are kept in this data directory.
    pub(super) fn new(data: Option<&Path>) -> Self {
        Self { file: KeptFile::of(data, FILE, FILE_BYTES_MAX), held: Mutex::default() }
    }

    /// Takes the model that the home names now, if another one was at hand. Blocking: it reads files.
    pub(super) fn take(&self, setting: Option<&ModelSetting>) -> Result<(), Box<Diagnostic>> {
        let Some(setting) = setting else {
            *self.lock() = None;
            return Ok(());
        };
        let stamp = Stamp::of(&setting.dir);
        if self.lock().as_ref().is_some_and(|held| held.stamp == stamp) {
            return Ok(());
        }
        let model = read(&setting.dir).map_err(|why| {
            let message = format!("`semantic.model`: {} is no sentence model: {why}", setting.dir.display());
            let help = "a folder with `model.safetensors`, `vocab.txt` and `config.json`, as sentence-transformers \
                        stores a BERT encoder (index/README.md tells where all-MiniLM-L6-v2 is had)";
            Box::new(Diagnostic { message, ..setting.mistake.clone() }.help(help))
        })?;
        let kept = self.file.read().and_then(|bytes| Vectors::open(&bytes, &model));
        let vectors = kept.unwrap_or_else(|| Vectors::new(&model));
        *self.lock() = Some(Held { stamp, model: Arc::new(model), vectors });
        Ok(())
    }

    /// Where the semantic signal of a catalog is from. `at_once`: a few tools that are not known may be embedded
    /// first. Blocking.
    pub(super) fn sense(&self, catalog: &Catalog, at_once: bool) -> Sense {
        let mut held = self.lock();
        let Some(Held { model, vectors, .. }) = held.as_mut() else { return Sense::Table };
        let wanted = vectors.wanted(catalog);
        if !wanted.is_empty() && at_once && wanted.len() <= AT_ONCE_MAX {
            let texts: Vec<&str> = wanted.iter().map(Wanted::text).collect();
            vectors.learn(&wanted, model.embed(&texts));
            self.file.write(&vectors.to_bytes(catalog));
        }
        match vectors.of(catalog, model) {
            Some(sentences) => Sense::Model(Arc::new(sentences)),
            None => Sense::Waiting(wanted.len()),
        }
    }

    /// Embeds the tools of a catalog that are not known. `goes_on` is told how many are done and how many there are,
    /// and ends it by `false`. Blocking, for minutes where there are many.
    pub(super) fn embed(&self, catalog: &Catalog, goes_on: &dyn Fn(usize, usize) -> bool) {
        let found = self.lock().as_ref().map(|held| (Arc::clone(&held.model), held.vectors.wanted(catalog)));
        let Some((model, wanted)) = found else { return };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() / 2).clamp(1, THREADS_MAX);
        let (mut done, mut kept) = (0, 0);
        for group in wanted.chunks(CHUNK * threads) {
            if !goes_on(done, wanted.len()) {
                break;
            }
            let made = std::thread::scope(|scope| {
                let embed =
                    |chunk: &'_ [Wanted]| model.embed(&chunk.iter().map(Wanted::text).collect::<Vec<_>>());
                let working: Vec<_> =
                    group.chunks(CHUNK).map(|chunk| scope.spawn(move || embed(chunk))).collect();
                working.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
            });
            let mut held = self.lock();
            // Another model may have come meanwhile: its vectors are other ones.
            let Some(held) = held.as_mut().filter(|held| Arc::ptr_eq(&held.model, &model)) else { return };
            for (chunk, made) in group.chunks(CHUNK).zip(made) {
                let Ok(made) = made else { return tracing::error!("embedding tools failed inside docent") };
                held.vectors.learn(chunk, made);
            }
            done += group.len();
            if done - kept >= KEEP_EVERY {
                self.file.write(&held.vectors.to_bytes(catalog));
                kept = done;
            }
        }
        if let Some(held) = self.lock().as_ref().filter(|_| done > kept) {
            self.file.write(&held.vectors.to_bytes(catalog));
        }
        goes_on(done, wanted.len());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the model of a folder; its name is the folder's.
fn read(dir: &Path) -> Result<SentenceModel, String> {
    let bytes = |name: &str, max: usize| {
        json::read_capped(&dir.join(name), max).map_err(|e| format!("{name} cannot be read: {e}"))
    };
    let config = bytes(CONFIG, CONFIG_BYTES_MAX)?;
    let pooling = if dir.join(POOLING).exists() { Some(bytes(POOLING, CONFIG_BYTES_MAX)?) } else { None };
    let vocabulary = json::read_text_capped(&dir.join(VOCABULARY), VOCABULARY_BYTES_MAX)
        .map_err(|e| format!("{VOCABULARY} cannot be read: {e}"))?;
    let weights = bytes(WEIGHTS, WEIGHTS_BYTES_MAX)?;
    let files = ModelFiles {
        config: &config,
        pooling: pooling.as_deref(),
        vocabulary: &vocabulary,
        weights: &weights,
    };
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or("unnamed");
    SentenceModel::read(name, &files).map_err(|e| e.to_string())
}
