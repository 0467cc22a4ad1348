//! Reading TOML so that every mistake is reported at once, with its place and the way out.
//!
//! A component asks its [`Section`] for the keys it knows; what nobody asked for is an unknown key, and the
//! keys asked for are the candidates of "did you mean". Nothing here knows which keys exist.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile, did_you_mean};
use crate::json::Object;

type Sink = Rc<RefCell<Diagnostics>>;

/// A value with the byte offset where it stands in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Byte offset in the file.
    pub offset: usize,
}

/// A TOML value with offsets, detached from the text.
#[derive(Debug, Clone)]
enum Node {
    Scalar(Value),
    Array(Vec<Located<Node>>),
    Table(Vec<Entry>),
}

#[derive(Debug, Clone)]
struct Entry {
    key: Located<String>,
    value: Located<Node>,
    used: bool,
}

/// One table of a settings file. Unknown keys are reported when it is finished (or dropped).
#[derive(Debug)]
pub struct Section {
    file: SourceFile,
    path: String,
    offset: usize,
    entries: Vec<Entry>,
    asked: Vec<String>,
    sink: Sink,
}

/// Parses a TOML file and reads it with `read`; every mistake lands in `diagnostics`.
pub fn read<T>(file: &SourceFile, diagnostics: &mut Diagnostics, read: impl FnOnce(&mut Section) -> T) -> T {
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    for error in errors {
        let offset = error.span().map_or(0, |s| s.start);
        diagnostics.push(file.error_at("toml-syntax", offset, error.message().trim_end_matches('.')));
    }
    let sink: Sink = Rc::default();
    let entries = table_entries(table.get_ref());
    let mut section = Section {
        file: file.clone(),
        path: String::new(),
        offset: 0,
        entries,
        asked: Vec::new(),
        sink: Rc::clone(&sink),
    };
    let value = read(&mut section);
    drop(section);
    diagnostics.extend(sink.take());
    value
}

fn table_entries(table: &DeTable<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: Located { value: key.get_ref().to_string(), offset: key.span().start },
            value: Located { value: node(value.get_ref()), offset: value.span().start },
            used: false,
        })
        .collect();
    entries.sort_by_key(|e| e.key.offset);
    entries
}

fn node(value: &DeValue<'_>) -> Node {
    match value {
        DeValue::Table(table) => Node::Table(table_entries(table)),
        DeValue::Array(items) => Node::Array(
            items.iter().map(|i| Located { value: node(i.get_ref()), offset: i.span().start }).collect(),
        ),
        DeValue::String(text) => Node::Scalar(Value::from(text.as_ref())),
        DeValue::Boolean(b) => Node::Scalar(Value::from(*b)),
        DeValue::Integer(i) => {
            Node::Scalar(i64::from_str_radix(i.as_str(), i.radix()).map_or(Value::Null, Value::from))
        }
        DeValue::Float(f) => Node::Scalar(f.as_str().parse::<f64>().map_or(Value::Null, Value::from)),
        DeValue::Datetime(d) => Node::Scalar(Value::from(d.to_string())),
    }
}

impl Node {
    fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "a table",
            Self::Array(_) => "an array",
            Self::Scalar(Value::String(_)) => "a string",
            Self::Scalar(Value::Bool(_)) => "a boolean",
            Self::Scalar(_) => "a number",
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::Array(items) => Value::Array(items.iter().map(|i| i.value.to_json()).collect()),
            Self::Table(entries) => Value::Object(
                entries.iter().map(|e| (e.key.value.clone(), e.value.value.to_json())).collect(),
            ),
        }
    }
}

impl Section {
    /// The file it stands in.
    pub fn file(&self) -> &SourceFile {
        &self.file
    }

    /// Where the table begins, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Reports a mistake at a byte offset.
    pub fn error(
        &self,
        offset: usize,
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.report(self.file.error_at(code, offset, message).help(help));
    }

    /// Reports any diagnostic.
    pub fn report(&self, diagnostic: Diagnostic) {
        self.sink.borrow_mut().push(diagnostic);
    }

    /// The full name of a key, for messages: `server.listen`.
    pub fn full_key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn take(&mut self, key: &str) -> Option<Located<Node>> {
        self.asked.push(key.to_owned());
        let entry = self.entries.iter_mut().find(|e| e.key.value == key)?;
        entry.used = true;
        Some(entry.value.clone())
    }

    fn mismatch(&self, key: &str, found: &Located<Node>, expected: &str) {
        self.error(
            found.offset,
            "wrong-type",
            format!("`{}` must be {expected}, found {}", self.full_key(key), found.value.kind()),
            format!("write `{key} = …` with {expected}"),
        );
    }

    /// Whether the key stands here, without taking it.
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|e| e.key.value == key)
    }

    /// A string.
    pub fn string(&mut self, key: &str) -> Option<Located<String>> {
        let found = self.take(key)?;
        match &found.value {
            Node::Scalar(Value::String(text)) => Some(Located { value: text.clone(), offset: found.offset }),
            _ => {
                self.mismatch(key, &found, "a string");
                None
            }
        }
    }

    /// A string that must be there; a missing one is reported and gives an empty text.
    pub fn required_string(&mut self, key: &str) -> Located<String> {
        if !self.has(key) {
            self.asked.push(key.to_owned());
            self.error(
                self.offset,
                "missing-key",
                format!("`{}` is missing", self.full_key(key)),
                format!("add `{key} = \"…\"`"),
            );
        }
        self.string(key).unwrap_or(Located { value: String::new(), offset: self.offset })
    }

    /// A boolean.
    pub fn boolean(&mut self, key: &str) -> Option<bool> {
        let found = self.take(key)?;
        match found.value {
            Node::Scalar(Value::Bool(b)) => Some(b),
            _ => {
                self.mismatch(key, &found, "true or false");
                None
            }
        }
    }

    /// A whole number within a range.
    pub fn integer(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let found = self.take(key)?;
        let Node::Scalar(Value::Number(n)) = &found.value else {
            self.mismatch(key, &found, "a whole number");
            return None;
        };
        match n.as_u64() {
            Some(n) if range.contains(&n) => Some(n),
            _ => {
                let message = format!(
                    "`{}` must be a whole number from {} to {}",
                    self.full_key(key),
                    range.start(),
                    range.end()
                );
                self.error(found.offset, "out-of-range", message, "choose a number in that range");
                None
            }
        }
    }

    /// The same as `usize`.
    pub fn size(&mut self, key: &str, range: RangeInclusive<usize>) -> Option<usize> {
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.integer(key, wide(*range.start())..=wide(*range.end())).and_then(|n| usize::try_from(n).ok())
    }

    /// A number, whole or not.
    pub fn number(&mut self, key: &str) -> Option<f64> {
        let found = self.take(key)?;
        match &found.value {
            Node::Scalar(Value::Number(n)) => n.as_f64(),
            _ => {
                self.mismatch(key, &found, "a number");
                None
            }
        }
    }

    /// One of a closed set of words.
    pub fn one_of<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let found = self.string(key)?;
        let hit = choices.iter().find(|(word, _)| *word == found.value).map(|(_, value)| *value);
        if hit.is_none() {
            let words: Vec<String> = choices.iter().map(|(w, _)| format!("\"{w}\"")).collect();
            let help = match did_you_mean(&found.value, choices.iter().map(|(w, _)| *w)) {
                Some(near) => format!("did you mean \"{near}\"? one of {}", words.join(", ")),
                None => format!("one of {}", words.join(", ")),
            };
            self.error(
                found.offset,
                "unknown-value",
                format!("`{}` cannot be \"{}\"", self.full_key(key), found.value),
                help,
            );
        }
        hit
    }

    /// An array of strings.
    pub fn strings(&mut self, key: &str) -> Option<Vec<Located<String>>> {
        let found = self.take(key)?;
        let Node::Array(items) = &found.value else {
            self.mismatch(key, &found, "an array of strings");
            return None;
        };
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            match &item.value {
                Node::Scalar(Value::String(text)) => {
                    out.push(Located { value: text.clone(), offset: item.offset });
                }
                _ => self.mismatch(key, item, "an array of strings"),
            }
        }
        Some(out)
    }

    /// An array of strings without places; a missing key is an empty list.
    pub fn plain_strings(&mut self, key: &str) -> Vec<String> {
        self.strings(key).unwrap_or_default().into_iter().map(|s| s.value).collect()
    }

    /// A table of strings (`{ name = "text" }`) in file order.
    pub fn string_table(&mut self, key: &str) -> Vec<(String, Located<String>)> {
        let Some(mut section) = self.section(key) else { return Vec::new() };
        section.keys().into_iter().filter_map(|k| Some((k.clone(), section.string(&k)?))).collect()
    }

    /// Any value as JSON (free tables, schemas).
    pub fn json(&mut self, key: &str) -> Option<Located<Value>> {
        self.take(key).map(|n| Located { value: n.value.to_json(), offset: n.offset })
    }

    /// A free table as a JSON object.
    pub fn object(&mut self, key: &str) -> Option<Object> {
        let found = self.take(key)?;
        match found.value.to_json() {
            Value::Object(map) => Some(map),
            _ => {
                self.mismatch(key, &found, "a table");
                None
            }
        }
    }

    fn child(&self, path: String, offset: usize, entries: Vec<Entry>) -> Self {
        Self {
            file: self.file.clone(),
            path,
            offset,
            entries,
            asked: Vec::new(),
            sink: Rc::clone(&self.sink),
        }
    }

    /// A table.
    pub fn section(&mut self, key: &str) -> Option<Self> {
        let found = self.take(key)?;
        match found.value {
            Node::Table(entries) => Some(self.child(self.full_key(key), found.offset, entries)),
            _ => {
                self.mismatch(key, &found, "a table");
                None
            }
        }
    }

    /// An array of tables (`[[key]]`).
    pub fn sections(&mut self, key: &str) -> Vec<Self> {
        let Some(found) = self.take(key) else { return Vec::new() };
        let Node::Array(items) = &found.value else {
            self.mismatch(key, &found, "an array of tables");
            return Vec::new();
        };
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match &item.value {
                Node::Table(entries) => {
                    out.push(self.child(
                        format!("{}[{i}]", self.full_key(key)),
                        item.offset,
                        entries.clone(),
                    ));
                }
                _ => self.mismatch(key, item, "an array of tables"),
            }
        }
        out
    }

    /// A table whose keys are names (`[callers.NAME]`): each name with its place and its table, in file order.
    pub fn named_sections(&mut self, key: &str) -> Vec<(Located<String>, Self)> {
        let Some(mut outer) = self.section(key) else { return Vec::new() };
        let names: Vec<Located<String>> = outer.entries.iter().map(|e| e.key.clone()).collect();
        names.into_iter().filter_map(|name| outer.section(&name.value).map(|s| (name, s))).collect()
    }

    /// The keys that stand here, in file order.
    pub fn keys(&self) -> Vec<String> {
        self.entries.iter().map(|e| e.key.value.clone()).collect()
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        for entry in self.entries.iter().filter(|e| !e.used) {
            let key = &entry.key.value;
            let place = if self.path.is_empty() { String::new() } else { format!(" in `[{}]`", self.path) };
            let help = match did_you_mean(key, asked.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", asked.join(", ")),
            };
            self.error(entry.key.offset, "unknown-key", format!("unknown key `{key}`{place}"), help);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<(String, String)> {
        let mut diagnostics = Diagnostics::default();
        read(&SourceFile::new("t.toml", text), &mut diagnostics, |root| {
            if let Some(mut server) = root.section("server") {
                server.string("listen");
                server.integer("page_size", 1..=1000);
                server.one_of("discovery", &[("full", 1), ("compact", 2)]);
                server.boolean("on");
            }
            for (_, mut caller) in root.named_sections("callers") {
                caller.strings("scopes");
            }
            root.sections("tool").iter_mut().for_each(|t| drop(t.required_string("id")));
        });
        diagnostics
            .0
            .into_iter()
            .map(|d| (format!("{}:{} {}", d.line, d.column, d.message), d.help))
            .collect()
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let found = check(
            "servr = 1\n[server]\nlisten = 3\npage_size = 0\ndiscovery = \"ful\"\nlistne = \"x\"\n[callers.a]\nscopes = [1]\n[[tool]]\ntitle = \"t\"\n",
        );
        let messages: Vec<&str> = found.iter().map(|(m, _)| m.as_str()).collect();
        assert_eq!(
            messages,
            [
                "3:10 `server.listen` must be a string, found a number",
                "4:13 `server.page_size` must be a whole number from 1 to 1000",
                "5:13 `server.discovery` cannot be \"ful\"",
                "6:1 unknown key `listne` in `[server]`",
                "8:11 `callers.a.scopes` must be an array of strings, found a number",
                "9:1 `tool[0].id` is missing",
                "10:1 unknown key `title` in `[tool[0]]`",
                "1:1 unknown key `servr`",
            ]
        );
        assert_eq!(found[3].1, "did you mean `listen`?");
        assert_eq!(found[7].1, "did you mean `server`?");
    }

    #[test]
    fn syntax_errors_have_a_place_and_the_rest_is_still_read() {
        let found = check("[server]\nlisten = \nbad = 1\n");
        assert!(found.iter().any(|(m, _)| m.starts_with("2:")), "{found:?}");
        assert!(found.iter().any(|(m, _)| m.contains("unknown key `bad`")), "{found:?}");
    }
}
