//! `docent init DIR`: a commented home that passes `docent check` and serves at once.

mod from;

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Context, Failure, failure};
use from::Source;
pub(super) use from::{name_of, openapi};

/// The repository's own docent.toml is the reference of every key; a new home gets the same comments.
const REFERENCE: &str = include_str!("../../docent.toml");

/// The files of a new home besides docent.toml.
const FILES: [(&str, &str); 6] = [
    ("policies/10-base.rhai", include_str!("init/home/policies/10-base.rhai")),
    ("policies/cases/base.yaml", include_str!("init/home/policies/cases/base.yaml")),
    ("scripts/example/cases/count.yaml", include_str!("init/home/scripts/example/cases/count.yaml")),
    ("scripts/example/upstream.toml", include_str!("init/home/scripts/example/upstream.toml")),
    ("scripts/hello/upstream.toml", include_str!("init/home/scripts/hello/upstream.toml")),
    ("scripts/hello/hello.rhai", include_str!("init/home/scripts/hello/hello.rhai")),
];

/// Writes a commented home that serves at once.
#[derive(Debug, Args)]
pub(super) struct Init {
    /// The new home: a folder that is empty or not there yet
    dir: PathBuf,
    /// Starts with tools of your own: `--from openapi FILE`, `--from mcp URL`, `--from mcp PROGRAM ARGS…` (an MCP
    /// server on stdio) or `--from command PROGRAM ARGS…` (one tool; `{name}` in an argument is filled by the call)
    #[arg(long, num_args = 2.., allow_hyphen_values = true, value_names = ["KIND", "WHAT"])]
    from: Option<Vec<String>>,
}

impl Init {
    pub(super) fn run(self, _context: &mut Context) -> Result<(), Failure> {
        let source = self.from.as_deref().map(Source::parse).transpose().map_err(Failure::Usage)?;
        must_be_empty(&self.dir)?;
        let mut enabled = vec!["example", "hello"];
        let mut files: Vec<(String, Vec<u8>)> =
            FILES.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
        let pack = source.map(Source::pack).transpose().map_err(Failure::Failed)?;
        if let Some(pack) = &pack {
            enabled = vec!["hello", &pack.name];
            files.retain(|(name, _)| !name.starts_with("scripts/example/") && !name.contains("/cases/"));
            files.extend(pack.files.iter().cloned());
            files.push(("policies/20-imported.rhai".to_owned(), from::policy(&pack.name).into_bytes()));
        }
        files.push(("docent.toml".to_owned(), main_file(&enabled).into_bytes()));
        for (name, bytes) in &files {
            write(&self.dir.join(name), bytes)?;
        }
        let dir = self.dir.display();
        failure::say(format_args!(
            "A home with {} files in {dir}. Next:\n  docent check --home {dir}\n  docent serve --home {dir}",
            files.len()
        ));
        Ok(())
    }
}

/// The reference with the values of a new home.
fn main_file(enabled: &[&str]) -> String {
    let mut out = String::with_capacity(REFERENCE.len());
    let mut lines = REFERENCE.lines();
    while let Some(line) = lines.next() {
        let line = match line {
            // The repository's own words give way to a hint.
            r#"instructions = """"# => {
                lines.by_ref().take_while(|l| *l != r#"""""#).for_each(drop);
                "# instructions = \"Search first; read a tool's description before you run it.\"".to_owned()
            }
            l if l.starts_with("enabled = [") => format!("enabled = {}", toml_list(enabled)),
            l if l.starts_with("scopes = [") => "scopes = []".to_owned(),
            l => l.to_owned(),
        };
        out += &line;
        out.push('\n');
    }
    out
}

fn toml_list(items: &[&str]) -> String {
    let quoted: Vec<String> = items.iter().map(|i| toml::Value::from(*i).to_string()).collect();
    format!("[{}]", quoted.join(", "))
}

fn must_be_empty(dir: &Path) -> Result<(), Failure> {
    match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::failed(format_args!(
            "{} is not empty: name a folder that is empty or not there yet",
            dir.display()
        ))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::failed(format_args!("{} cannot be read: {e}", dir.display()))),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let told = |e: std::io::Error| Failure::failed(format_args!("{} cannot be written: {e}", path.display()));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(told)?;
    }
    std::fs::write(path, bytes).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_docent_toml_is_the_reference_with_its_own_values() {
        let text = main_file(&["a", "b"]);
        assert!(text.contains("\nenabled = [\"a\", \"b\"]\n"));
        assert!(text.contains("\nscopes = []\n") && !text.contains("repo:read"));
        assert!(text.contains("\n# instructions = ") && !text.contains("this repository"));
        assert!(text.contains("[telemetry]"), "nothing behind the instructions is lost");
    }
}
