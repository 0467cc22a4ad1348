//! From the files of a home to settings, every mistake told at once.
//!
//! It reads docent.toml and gathers the files that other modules compile; what a policy, a projection or an
//! upstream means is theirs. This is the only module that reads the environment. It compiles nothing, opens
//! no socket and starts no process.

mod agents;
mod callers;
mod environment;
mod files;
mod jwt;
mod listen;
mod semantic;
mod server;
mod upstreams;

use std::path::Path;
use std::sync::Arc;

pub use environment::{Environment, NoDataDir};
pub use listen::{DEFAULT_PORT, ListenAddress};
pub use server::{LogFormat, Telemetry};

use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile};
use crate::limits::{HOME_FILE_BYTES_MAX, SCRIPT_BYTES_MAX};
use crate::policy::PolicyTables;
use crate::secret::Resolver;
use crate::settings::{self, Section};
use crate::snapshot::{Home, ModelSetting, ServerSettings};
use files::Files;

/// The file that makes a folder a home.
pub const MAIN_FILE: &str = "docent.toml";

/// What docent.toml says of the process, as opposed to the home that it serves. A reload does not change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// `server.listen`
    pub listen: ListenAddress,
    /// `[telemetry]`
    pub telemetry: Telemetry,
}

/// A home as far as it could be read.
#[derive(Debug)]
pub struct Loaded {
    /// The home; `None` where an error is among the diagnostics.
    pub home: Option<Home>,
    /// The settings of the process, defaults where docent.toml is broken.
    pub settings: Settings,
    /// Every mistake.
    pub diagnostics: Diagnostics,
}

/// Reads a home whole: docent.toml and every file it leads to (contract §1.1, §1.3).
pub fn load(dir: &Path, resolver: &Resolver) -> Loaded {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let files = Files::new(&dir);
    let mut diagnostics = Diagnostics::default();
    let Some(main) = files.optional(MAIN_FILE, HOME_FILE_BYTES_MAX, &mut diagnostics) else {
        if !diagnostics.has_errors() {
            diagnostics.push(no_home(&dir));
        }
        return Loaded { home: None, settings: Settings::default(), diagnostics };
    };
    let read = settings::read(&main, &mut diagnostics, |root| Main::read(root, resolver, &dir));
    let mut home =
        Home { dir: dir.clone(), settings: read.server, callers: Arc::new(read.callers), ..Home::default() };
    if let Some(Err(why)) = home.callers.verifier().map(crate::auth::JwtVerifier::check_keys) {
        diagnostics.push(no_keys(&main, &why, read.auth_place));
    }
    for message in std::iter::once(read.settings.listen.check(&home.callers)).filter_map(Result::err) {
        diagnostics.push(open_to_others(&main, message, read.listen_place));
    }
    home.library = files.all("scripts/lib", ".rhai", SCRIPT_BYTES_MAX, &mut diagnostics);
    let (enabled, library) = (read.enabled, home.library.as_slice());
    home.packs =
        upstreams::packs(&files, &main, enabled, library, resolver, &home.settings, &mut diagnostics);
    home.tables = read.tables;
    home.policies = files.all("policies", ".rhai", SCRIPT_BYTES_MAX, &mut diagnostics);
    home.shadow =
        read.shadow.as_deref().map(|folder| files.all(folder, ".rhai", SCRIPT_BYTES_MAX, &mut diagnostics));
    report_strays(&files, read.shadow.as_deref(), &mut diagnostics);
    home.model = read.model;
    home.ranking = files.optional("index/ranking.toml", HOME_FILE_BYTES_MAX, &mut diagnostics);
    home.synonyms = files.optional("index/synonyms.toml", HOME_FILE_BYTES_MAX, &mut diagnostics);
    diagnostics.sort();
    let home = (!diagnostics.has_errors()).then_some(home);
    Loaded { home, settings: read.settings, diagnostics }
}

/// The same without the settings of the process: what a reload needs.
pub fn load_home(dir: &Path, resolver: &Resolver) -> (Option<Home>, Diagnostics) {
    let loaded = load(dir, resolver);
    (loaded.home, loaded.diagnostics)
}

/// docent.toml, read.
struct Main {
    server: ServerSettings,
    settings: Settings,
    listen_place: Option<usize>,
    auth_place: usize,
    callers: crate::auth::Authenticator,
    enabled: Vec<settings::Located<String>>,
    tables: PolicyTables,
    shadow: Option<String>,
    model: Option<ModelSetting>,
}

impl Main {
    fn read(root: &mut Section, resolver: &Resolver, dir: &Path) -> Self {
        let mut out = ServerSettings::default();
        let (listen, listen_place) = server::server(root, resolver, &mut out);
        out.budgets = server::budgets(root);
        out.files = server::files(root);
        server::tiers(root, &mut out);
        server::store(root);
        let telemetry = server::telemetry(root, resolver);
        out.agents = agents::agents(root);
        let (callers, auth_place) = callers::auth(root, resolver, &mut out, dir);
        let enabled = root.section("upstreams").and_then(|mut s| s.strings("enabled")).unwrap_or_default();
        let tables = PolicyTables::read(root);
        let shadow = server::shadow(root);
        let model = semantic::semantic(root, dir, semantic::BUILT_IN);
        Self {
            server: out,
            settings: Settings { listen, telemetry },
            listen_place,
            auth_place,
            callers,
            enabled,
            tables,
            shadow,
            model,
        }
    }
}

fn no_home(dir: &Path) -> Diagnostic {
    Diagnostic::error("no-home", MAIN_FILE, format!("there is no {MAIN_FILE} in {}", dir.display()))
        .help("`docent init DIR` makes a home; `--home DIR` or DOCENT_HOME names another one")
}

fn no_keys(main: &SourceFile, why: &str, place: usize) -> Diagnostic {
    Diagnostic::error("no-keys", &*main.name, format!("`auth.jwks_file` cannot be used: {why}"))
        .at_offset(&main.text, place)
        .help("a JSON Web Key Set, as the issuer publishes it: {\"keys\": [{\"kty\": …}]}")
}

fn open_to_others(main: &SourceFile, message: String, place: Option<usize>) -> Diagnostic {
    let error = Diagnostic::error("open-to-others", &*main.name, message);
    let placed = match place {
        Some(offset) => error.at_offset(&main.text, offset),
        None => error,
    };
    placed.help("listen on 127.0.0.1, or set `auth.mode = \"token\"` and give every caller a token")
}

/// A policy file with a wrong ending would silently not count, so it is told.
fn report_strays(files: &Files<'_>, shadow: Option<&str>, diagnostics: &mut Diagnostics) {
    let shadow = shadow.and_then(|folder| folder.split('/').nth(1));
    for name in files.names("policies", diagnostics) {
        let ending = Path::new(&name).extension().and_then(|e| e.to_str()).unwrap_or_default();
        let known = matches!(ending, "rhai" | "md")
            || name == "cases"
            || name.starts_with('.')
            || shadow == Some(&name);
        if !known {
            diagnostics.push(
                Diagnostic::warning(
                    "stray-file",
                    format!("policies/{name}"),
                    "the file is not read as a policy",
                )
                .help("policies end in `.rhai`; rename or remove the file"),
            );
        }
    }
}

#[cfg(test)]
mod tests;
