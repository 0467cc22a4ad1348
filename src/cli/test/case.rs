//! Case files of packs: what they may say, read strictly, and written back by `--update`.
//!
//! A file is YAML: one case, or a list of cases. Unknown keys are refused, so that a misspelt expectation never
//! passes. The cases of policies have a form of their own, which is `policy`'s.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json::{self, Object};
use crate::limits::HOME_FILE_BYTES_MAX;

/// One case file.
#[derive(Debug)]
pub(in crate::cli) struct CaseFile {
    /// Its name relative to the home.
    pub(in crate::cli) name: String,
    /// Comments and blank lines at its head: kept by an update, which cannot keep others.
    head: String,
    list: bool,
    /// The cases as they stand.
    pub(in crate::cli) cases: Vec<Value>,
}

impl CaseFile {
    /// Reads a file of the home.
    pub(in crate::cli) fn read(home: &Path, name: &str) -> Result<Self, String> {
        let text =
            json::read_text_capped(&home.join(name), HOME_FILE_BYTES_MAX).map_err(|e| e.to_string())?;
        let head = text.lines().take_while(|l| l.trim().is_empty() || l.starts_with('#'));
        let head = head.fold(String::new(), |all, l| all + l + "\n");
        let value: Value = serde_saphyr::from_str(&text).map_err(|e| e.without_snippet().to_string())?;
        let (list, cases) = match value {
            Value::Array(cases) => (true, cases),
            one @ Value::Object(_) => (false, vec![one]),
            _ => return Err("a case file is one case or a list of cases".to_owned()),
        };
        Ok(Self { name: name.to_owned(), head, list, cases })
    }

    /// A file that is to be written, beginning with a comment.
    pub(in crate::cli) fn new(name: &str, head: &str) -> Self {
        Self { name: name.to_owned(), head: head.to_owned(), list: true, cases: Vec::new() }
    }

    /// Adds a case; one that stood alone becomes the first of a list.
    pub(in crate::cli) fn push(&mut self, case: Value) {
        self.list = true;
        self.cases.push(case);
    }

    /// Writes it back with the cases as they are now.
    pub(in crate::cli) fn write(&self, home: &Path) -> Result<(), String> {
        let body = match (self.list, self.cases.first()) {
            (false, Some(one)) => serde_saphyr::to_string(one),
            _ => serde_saphyr::to_string(&self.cases),
        };
        let body = body.map_err(|e| e.to_string())?;
        std::fs::write(home.join(&self.name), format!("{}{body}", self.head)).map_err(|e| e.to_string())
    }

    /// The label of a case: the file and the case's name or number.
    pub(in crate::cli) fn label(&self, at: usize) -> String {
        let case = self.cases.get(at);
        match case.and_then(|c| c.get("name")).and_then(Value::as_str) {
            Some(name) => format!("{}: {name}", self.name),
            None => format!("{}: case {}", self.name, at + 1),
        }
    }
}

/// Reads one case as `T`; the error names the key that is wrong.
pub(super) fn parse<T: DeserializeOwned>(case: &Value) -> Result<T, String> {
    T::deserialize(case).map_err(|e| e.to_string())
}

/// A recorded reply in, an expected result out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectionCase {
    #[expect(dead_code, reason = "read by the label; named here so that it is a known key")]
    #[serde(default)]
    name: Option<String>,
    /// The tool, with or without the pack's name before it.
    pub(super) tool: String,
    /// The arguments of the call.
    #[serde(default)]
    pub(super) args: Object,
    /// What `ctx` tells of the caller.
    #[serde(default)]
    pub(super) caller: CallerFacts,
    /// What `ctx` tells of the time, in milliseconds since the epoch.
    #[serde(default)]
    pub(super) now_ms: u64,
    /// The recorded reply; a script that makes several requests gets `replies` in order instead.
    #[serde(default)]
    pub(super) reply: Option<Reply>,
    /// Replies to the requests of `run`, in the order in which it makes them.
    #[serde(default)]
    pub(super) replies: Vec<Reply>,
    /// What calls of other tools answer, by id, in the order in which `run` makes them.
    #[serde(default)]
    pub(super) calls: BTreeMap<String, Vec<Value>>,
    /// The request that the arguments make: only what stands here is compared.
    #[serde(default)]
    pub(super) request: Option<Value>,
    /// The requests that `run` makes, in order: as many as stand here, each compared like `request`.
    #[serde(default)]
    pub(super) requests: Option<Vec<Value>>,
    /// The structured result, whole.
    #[serde(default)]
    pub(super) expect: Option<Value>,
    /// The text of a result without a structured half, or without a form of its own.
    #[serde(default)]
    pub(super) text: Option<String>,
    /// The failure: its code, or a table of which only what stands here is compared.
    #[serde(default)]
    pub(super) error: Option<Value>,
}

/// What a case tells of its caller.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallerFacts {
    #[serde(default)]
    pub(super) subject: String,
    #[serde(default)]
    pub(super) claims: Object,
}

/// A recorded reply.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct Reply {
    /// The HTTP status.
    #[serde(default = "ok_status")]
    pub(super) status: u16,
    /// Headers that the projection may see.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// A JSON body.
    #[serde(default)]
    pub(super) body: Option<Value>,
    /// A text body, such as a command's output.
    #[serde(default)]
    pub(super) text: Option<String>,
    /// A file beside the case file that holds the body.
    #[serde(default)]
    pub(super) body_file: Option<String>,
    /// A `CallToolResult` of an MCP server.
    #[serde(default)]
    pub(super) mcp: Option<Value>,
}

impl Reply {
    /// A reply whose body is a file.
    pub(in crate::cli) fn of_file(status: u16, file: impl Into<String>) -> Self {
        Self {
            status,
            headers: BTreeMap::new(),
            body: None,
            text: None,
            body_file: Some(file.into()),
            mcp: None,
        }
    }
}

fn ok_status() -> u16 {
    200
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_strictly_and_written_back_with_its_head() {
        let home = tempfile::tempdir().unwrap();
        let text = "# Where it comes from.\n\n- name: one\n  tool: t\n  reply:\n    body: {b: 1, a: [2]}\n  expect: {x: 1}\n";
        std::fs::write(home.path().join("c.yaml"), text).unwrap();
        let mut file = CaseFile::read(home.path(), "c.yaml").unwrap();
        assert_eq!(file.label(0), "c.yaml: one");
        let case: ProjectionCase = parse(&file.cases[0]).unwrap();
        assert_eq!(case.reply.unwrap().status, 200);
        file.cases[0]["expect"] = serde_json::json!({"y": "2"});
        file.write(home.path()).unwrap();
        let text = json::read_text_capped(&home.path().join("c.yaml"), 1_000).unwrap();
        assert!(text.starts_with("# Where it comes from.\n\n- name: one\n"), "{text}");
        let again = CaseFile::read(home.path(), "c.yaml").unwrap();
        assert_eq!(again.cases, file.cases);
    }

    #[test]
    fn a_misspelt_expectation_is_refused() {
        let case: Value = serde_saphyr::from_str("tool: t\nexpct: {}\n").unwrap();
        assert!(parse::<ProjectionCase>(&case).unwrap_err().contains("expct"));
    }
}
