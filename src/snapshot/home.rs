//! Everything an operator's home says, parsed but not yet built: what `config` hands to [`build`](super::build).

use std::path::PathBuf;
use std::sync::Arc;

use crate::auth::Authenticator;
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::id::UpstreamId;
use crate::policy::PolicyTables;
use crate::upstream::UpstreamConfig;

use super::ServerSettings;

/// A parsed home (contract §1.1). Only enabled upstreams are in it.
#[derive(Debug, Clone, Default)]
pub struct Home {
    /// The folder itself.
    pub dir: PathBuf,
    /// What docent.toml says of the server.
    pub settings: ServerSettings,
    /// `[auth]` and `[callers]`: who may come. A reload brings a new one with the snapshot.
    pub callers: Arc<Authenticator>,
    /// The enabled upstreams, in id order.
    pub packs: Vec<Pack>,
    /// `scripts/lib/*.rhai`, in file-name order.
    pub library: Vec<SourceFile>,
    /// `policies/*.rhai`, in file-name order.
    pub policies: Vec<SourceFile>,
    /// The files of `policies.shadow`: a candidate that is evaluated beside the policies.
    pub shadow: Option<Vec<SourceFile>>,
    /// `[[allow]]`, `[[deny]]` and their kin of docent.toml.
    pub tables: PolicyTables,
    /// `[semantic]`: the sentence model that search asks.
    pub model: Option<ModelSetting>,
    /// `index/ranking.toml`
    pub ranking: Option<SourceFile>,
    /// `index/synonyms.toml`
    pub synonyms: Option<SourceFile>,
}

/// `semantic.model`: the folder of a sentence model.
#[derive(Debug, Clone)]
pub struct ModelSetting {
    /// The folder.
    pub dir: PathBuf,
    /// A mistake without words at the key's place: what is wrong with the model is known when it is read.
    pub mistake: Diagnostic,
}

/// `scripts/<upstream>/`: an upstream and what shapes its calls.
#[derive(Debug, Clone)]
pub struct Pack {
    /// The name of the folder.
    pub id: UpstreamId,
    /// `scripts/<upstream>/upstream.toml`
    pub config: UpstreamConfig,
    /// `scripts/<upstream>/*.rhai`, in file-name order.
    pub scripts: Vec<SourceFile>,
    /// `scripts/<upstream>/schemas/*.json`, in file-name order.
    pub schemas: Vec<SourceFile>,
}
