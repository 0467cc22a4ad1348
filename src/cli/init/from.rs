//! The first pack of a new home, made from an API description, an MCP server or a program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cli::Failure;
use crate::json;
use crate::limits::OPENAPI_BYTES_MAX;

/// Bytes of a pack's name at most: it begins every wire name, which has 48.
const NAME_BYTES_MAX: usize = 20;

/// What `--from` names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// An OpenAPI or Swagger document.
    OpenApi(PathBuf),
    /// An MCP server by address.
    McpUrl(url::Url),
    /// An MCP server on stdio.
    McpProgram(Vec<String>),
    /// One tool that runs a program.
    Command(Vec<String>),
}

/// A pack to be written.
#[derive(Debug)]
pub(in crate::cli) struct Pack {
    /// Its folder in scripts/.
    pub(super) name: String,
    /// Its files, named relative to the home.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl Source {
    /// Reads the words behind `--from`.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let (kind, rest) = words.split_first().ok_or("`--from` needs a kind")?;
        let first = rest.first().filter(|w| !w.is_empty()).ok_or("`--from` needs what to start from")?;
        let alone = || match rest.len() {
            1 => Ok(()),
            n => Err(format!("`--from {kind}` takes one thing, {n} were given")),
        };
        match kind.as_str() {
            "openapi" => alone().map(|()| Self::OpenApi(PathBuf::from(first))),
            "mcp" => match url::Url::parse(first) {
                Ok(url) if matches!(url.scheme(), "http" | "https") => alone().map(|()| Self::McpUrl(url)),
                _ => Ok(Self::McpProgram(rest.to_vec())),
            },
            "command" => Ok(Self::Command(rest.to_vec())),
            other => Err(format!(
                "`--from {other}` is not known: openapi FILE, mcp URL, mcp PROGRAM …, command PROGRAM …"
            )),
        }
    }

    /// The pack it makes, under a name made from it.
    pub(super) fn pack(self) -> Result<Pack, String> {
        match self {
            Self::OpenApi(file) => {
                let stem = file.file_stem().map_or_else(|| "api".into(), |s| s.to_string_lossy());
                openapi(&file, name_of(&stem))
            }
            Self::McpUrl(url) => {
                let name = name_of(url.host_str().unwrap_or("mcp").trim_start_matches("www."));
                let text = format!(
                    "# An MCP server over streamable HTTP. Its tools are listed when docent serves.\nkind = \"mcp\"\nurl = {}\ntags = [\"imported\"]\n# headers = {{ \"x-team\" = \"infra\" }}\n\n# [auth]\n# bearer = \"${{env:TOKEN}}\"\n",
                    quote(url.as_str())
                );
                Ok(Pack::of(name, text))
            }
            Self::McpProgram(words) => {
                let name =
                    name_of(words.iter().rev().find(|w| !w.starts_with('-')).map_or("mcp", |w| last_part(w)));
                let text = format!(
                    "# An MCP server on stdio: docent starts it on first use and stops it when idle.\nkind = \"mcp\"\ncommand = {}\ntags = [\"imported\"]\n# env = {{ API_KEY = \"${{env:API_KEY}}\" }}\n",
                    list(&words)
                );
                Ok(Pack::of(name, text))
            }
            Self::Command(words) => {
                let name = name_of(words.first().map_or("tool", |w| last_part(w)));
                Ok(Pack::of(name.clone(), command(&name, &words)))
            }
        }
    }
}

impl Pack {
    fn of(name: String, text: String) -> Self {
        let files = vec![(format!("scripts/{name}/upstream.toml"), text.into_bytes())];
        Self { name, files }
    }

    /// Writes its files into a home.
    pub(in crate::cli) fn write(&self, home: &Path) -> Result<(), Failure> {
        self.files.iter().try_for_each(|(name, bytes)| super::write(&home.join(name), bytes))
    }
}

/// The pack of an OpenAPI document.
pub(in crate::cli) fn openapi(file: &Path, name: String) -> Result<Pack, String> {
    let bytes = json::read_capped(file, OPENAPI_BYTES_MAX)
        .map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    let yaml = bytes.iter().find(|b| !b.is_ascii_whitespace()).is_none_or(|b| *b != b'{');
    let spec = if yaml { "openapi.yaml" } else { "openapi.json" };
    let text = format!(
        "# An HTTP service described by OpenAPI: every operation is a tool.\nkind = \"openapi\"\nspec = \"{spec}\"\ntags = [\"imported\"]\n# Where the service is; needed where the document names no address of its own.\n# base_url = \"https://api.example.com\"\n\n# [auth]\n# bearer = \"${{env:TOKEN}}\"\n\n# Only some of the operations:\n# [include]\n# tags = [\"pets\"]\n# methods = [\"GET\"]\n"
    );
    let mut pack = Pack::of(name, text);
    pack.files.push((format!("scripts/{}/{spec}", pack.name), bytes));
    Ok(pack)
}

/// One tool that runs a program: every `{name}` in its arguments is a text that the call gives.
fn command(name: &str, words: &[String]) -> String {
    let mut arguments = BTreeSet::new();
    for word in words {
        for part in word.split('{').skip(1) {
            if let Some((inner, _)) = part.split_once('}')
                && !inner.is_empty()
                && inner.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            {
                arguments.insert(inner);
            }
        }
    }
    let required: Vec<String> = arguments.iter().map(|a| quote(a)).collect();
    let properties: Vec<String> =
        arguments.iter().map(|a| format!("{a} = {{ type = \"string\" }}")).collect();
    format!(
        "# A local program; never a shell.\nkind = \"command\"\ntags = [\"imported\"]\n\n[[tool]]\nid = \"run\"\n# Models choose tools by their descriptions: say what it does and when to use it.\ndescription = {}\ninput_schema = {{ type = \"object\", additionalProperties = false, required = [{}], properties = {{ {} }} }}\n# Say so where it only reads: annotations = {{ read_only = true }}\nrun = {}\noutput = \"text\"\n",
        quote(&format!("Runs the program {name} and returns what it prints.")),
        required.join(", "),
        properties.join(", "),
        list(words)
    )
}

/// A policy that allows the pack's tools; made for a home that only this machine can reach.
pub(super) fn policy(pack: &str) -> String {
    format!(
        "// Everybody who can reach this home may use the imported tools. Name scopes before others can reach it:\n//   p.allow().upstream(\"{pack}\").scopes([\"{pack}:use\"]);\nfn rules(p) {{\n    p.allow().upstream(\"{pack}\");\n}}\n"
    )
}

fn last_part(word: &str) -> &str {
    word.rsplit(['/', '\\', '@']).find(|p| !p.is_empty()).unwrap_or(word)
}

/// A folder name from any text: lower case letters, digits and `-`, never one that is taken.
pub(in crate::cli) fn name_of(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.ends_with('-') && !name.is_empty() {
            name.push('-');
        }
    }
    let name = json::cut(&name, NAME_BYTES_MAX).trim_end_matches('-');
    match name {
        "" => "imported".to_owned(),
        "lib" | "hello" => format!("{name}-api"),
        n if n.starts_with(|c: char| c.is_ascii_digit()) => format!("x{n}"),
        n => n.to_owned(),
    }
}

fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn list(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| quote(w)).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn pack(text: &str) -> (String, toml::Table) {
        let pack = Source::parse(&words(text)).unwrap().pack().unwrap();
        let text = String::from_utf8(pack.files[0].1.clone()).unwrap();
        (pack.name, text.parse().unwrap())
    }

    #[test]
    fn each_source_makes_the_pack_of_its_kind() {
        let (name, table) = pack("mcp https://www.mcp.example.com/mcp");
        assert_eq!(
            (name.as_str(), table["url"].as_str()),
            ("mcp-example-com", Some("https://www.mcp.example.com/mcp"))
        );
        let (name, table) = pack("mcp npx -y @acme/server-everything");
        assert_eq!((name.as_str(), table["command"].as_array().unwrap().len()), ("server-everything", 3));
        let (name, table) = pack("command /usr/bin/git log --author={who} -n{count}");
        let tool = &table["tool"].as_array().unwrap()[0];
        assert_eq!(name, "git");
        assert_eq!(tool["input_schema"]["required"].as_array().unwrap().len(), 2);
        assert_eq!(tool["run"].as_array().unwrap()[2].as_str(), Some("--author={who}"));
    }

    #[test]
    fn what_is_not_a_source_is_told() {
        assert!(Source::parse(&words("grpc x")).unwrap_err().contains("openapi FILE"));
        assert!(Source::parse(&words("openapi a b")).unwrap_err().contains("one thing"));
        assert!(
            Source::parse(&words("openapi none.json")).unwrap().pack().unwrap_err().contains("none.json")
        );
        assert_eq!(name_of("42 Things & More/of_everything_here"), "x42-things-more-of-ev");
        assert_eq!((name_of("lib").as_str(), name_of("…").as_str()), ("lib-api", "imported"));
    }
}
