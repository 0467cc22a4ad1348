//! The process environment: the only place that reads it. Variables, references of settings, and the
//! folders that follow from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::json;
use crate::secret::{Reference, Resolver};

/// Bytes of a file that `${file:PATH}` names: keys and tokens are far smaller.
const SECRET_FILE_BYTES_MAX: usize = 64 * 1024;

/// The environment: the process's own, or a table for tests. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Environment(Option<Arc<BTreeMap<String, String>>>);

/// Why there is no data directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the platform's state directory is not known (no HOME): give `--data DIR` or set DOCENT_DATA")]
pub struct NoDataDir;

impl Environment {
    /// The environment of this process.
    pub fn process() -> Self {
        Self(None)
    }

    /// A fixed table.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(Some(Arc::new(pairs.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect())))
    }

    /// A variable; an empty one counts as not set.
    #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
    pub fn var(&self, name: &str) -> Option<String> {
        let value = match &self.0 {
            Some(table) => table.get(name).cloned(),
            None => std::env::var(name).ok(),
        };
        value.filter(|v| !v.is_empty())
    }

    /// The references of settings, files relative to the home. One line end behind a file's text is dropped,
    /// since editors add it.
    pub fn resolver(&self, home: &Path) -> Resolver {
        let (this, home) = (self.clone(), home.to_owned());
        Resolver::new(move |reference| match reference {
            Reference::Env(name) => this.var(name),
            Reference::File(path) => {
                let text = json::read_text_capped(&home.join(path), SECRET_FILE_BYTES_MAX).ok()?;
                let text = text.strip_suffix('\n').unwrap_or(&text);
                Some(text.strip_suffix('\r').unwrap_or(text).to_owned())
            }
        })
    }

    /// The home: as given, else the current folder where it is one, else `$DOCENT_HOME`, else the current
    /// folder (which then is reported as not being a home).
    pub fn home_dir(&self, given: Option<&Path>) -> PathBuf {
        if let Some(given) = given {
            return given.to_owned();
        }
        let here = PathBuf::from(".");
        if here.join(super::MAIN_FILE).is_file() {
            return here;
        }
        self.var("DOCENT_HOME").map_or(here, PathBuf::from)
    }

    /// The data directory: as given, else `$DOCENT_DATA`, else a folder of its own for this home below the
    /// platform's state directory (`$XDG_STATE_HOME` or `~/.local/state`, `~/Library/Application Support`,
    /// `%LOCALAPPDATA%`). It is not made here.
    pub fn data_dir(&self, given: Option<&Path>, home: &Path) -> Result<PathBuf, NoDataDir> {
        if let Some(given) = given {
            return Ok(given.to_owned());
        }
        if let Some(set) = self.var("DOCENT_DATA") {
            return Ok(PathBuf::from(set));
        }
        let below_home = |parts: &str| self.var("HOME").map(|h| Path::new(&h).join(parts));
        let state = if cfg!(windows) {
            self.var("LOCALAPPDATA").map(PathBuf::from)
        } else if cfg!(target_os = "macos") {
            below_home("Library/Application Support")
        } else {
            self.var("XDG_STATE_HOME").map(PathBuf::from).or_else(|| below_home(".local/state"))
        };
        Ok(state.ok_or(NoDataDir)?.join("docent").join(key_of(home)))
    }
}

/// A folder name for the state of one home: its own name and a short hash of its full path, so that two
/// homes of one machine never share state.
fn key_of(home: &Path) -> String {
    let full = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let hash = blake3::hash(full.as_os_str().as_encoded_bytes()).to_hex();
    let name = full.file_name().map_or_else(|| "home".into(), |n| n.to_string_lossy());
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    format!("{}-{}", json::cut(&name, 40), hash.get(..12).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_read_variables_and_files_of_the_home() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("key"), "k1\r\n").unwrap();
        let resolver = Environment::of([("KEY", "k0"), ("EMPTY", "")]).resolver(home.path());
        assert_eq!(resolver.expand("${env:KEY}/${file:key}").unwrap().expose(), "k0/k1");
        assert!(resolver.expand("${env:EMPTY}").is_err() && resolver.expand("${file:none}").is_err());
    }

    #[test]
    fn the_data_directory_is_one_per_home() {
        let env = Environment::of([("XDG_STATE_HOME", "/s"), ("HOME", "/h"), ("LOCALAPPDATA", "/s")]);
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = |home: &Path| env.data_dir(None, home).unwrap();
        assert_ne!(of(a.path()), of(b.path()));
        assert_eq!(of(a.path()), of(&a.path().join(".")));
        assert_eq!(env.data_dir(Some(Path::new("/x")), a.path()), Ok(PathBuf::from("/x")));
        let set = Environment::of([("DOCENT_DATA", "/d")]);
        assert_eq!(set.data_dir(None, a.path()), Ok(PathBuf::from("/d")));
        assert_eq!(Environment::of([]).data_dir(None, a.path()), Err(NoDataDir));
    }
}
