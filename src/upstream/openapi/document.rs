//! A document and its siblings: parsing within budgets, and references inside and across files.
//!
//! All siblings are loaded before anything is resolved, so that every reference is a borrow. The network is
//! never asked, and no path leaves the folder that the loader serves.

use std::collections::{BTreeMap, HashMap};

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::Loader;
use crate::diagnostic::Diagnostic;
use crate::json::{self, JsonError, Object};
use crate::limits::{JSON_DEPTH_MAX, OPENAPI_BYTES_MAX};

/// Sibling files of one document: those that split theirs by operation have some hundreds.
const SIBLINGS_MAX: usize = 2_000;
/// References followed one after another; more is a ring.
const HOPS_MAX: usize = 32;

/// The dialect of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Swagger2,
    V30,
    /// And 3.2, which adds nothing that an importer has to know.
    V31,
}

/// A place in one of the documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'d> {
    pub doc: usize,
    pub value: &'d Value,
}

impl<'d> At<'d> {
    pub(super) fn of(self, value: &'d Value) -> Self {
        Self { doc: self.doc, value }
    }

    pub(super) fn get(self, key: &str) -> Option<Self> {
        self.value.get(key).map(|value| self.of(value))
    }

    pub(super) fn object(self) -> Option<&'d Object> {
        self.value.as_object()
    }

    pub(super) fn text(self, key: &str) -> Option<&'d str> {
        self.value.get(key)?.as_str()
    }

    pub(super) fn flag(self, key: &str) -> bool {
        self.value.get(key) == Some(&Value::Bool(true))
    }

    /// The elements of an array under a key; none where there is none.
    pub(super) fn items(self, key: &str) -> impl Iterator<Item = Self> + use<'d> {
        let items: &'d [Value] = self.value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice);
        items.iter().map(move |value| self.of(value))
    }

    /// The members of an object under a key; none where there is none.
    pub(super) fn members(self, key: &str) -> impl Iterator<Item = (&'d str, Self)> + use<'d> {
        let map = self.value.get(key).and_then(Value::as_object);
        map.into_iter().flatten().map(move |(name, value)| (name.as_str(), self.of(value)))
    }

    /// The reference that stands here instead of a thing.
    pub(super) fn reference(self) -> Option<&'d str> {
        self.text("$ref")
    }

    /// What identifies the place: its address, which is stable while the documents live.
    pub(super) fn key(self) -> usize {
        std::ptr::from_ref(self.value).addr()
    }
}

struct Parsed {
    name: String,
    value: Value,
}

/// A document with all files it refers to.
pub(super) struct Documents {
    parsed: Vec<Parsed>,
    by_name: HashMap<String, usize>,
    /// Why a file that is referred to is not here.
    missing: BTreeMap<String, String>,
    pub version: Version,
}

impl Documents {
    /// Parses a document and loads its siblings. The error is of the main document only; a sibling that fails
    /// shows where it is used.
    pub(super) fn load(bytes: &[u8], name: &str, loader: &Loader<'_>) -> Result<Self, Box<Diagnostic>> {
        let value = parse(bytes, name)?;
        let version = version(&value).ok_or_else(|| {
            let told = Diagnostic::error(
                "openapi-version",
                name,
                "neither `openapi: 3.…` nor `swagger: \"2.0\"` stands at the root",
            )
            .help("docent reads OpenAPI 3.0, 3.1 and Swagger 2.0");
            Box::new(told)
        })?;
        let mut all = Self {
            parsed: vec![Parsed { name: name.to_owned(), value }],
            by_name: HashMap::from([(name.to_owned(), 0)]),
            missing: BTreeMap::new(),
            version,
        };
        let mut bytes_left = OPENAPI_BYTES_MAX.saturating_sub(bytes.len());
        let mut next = 0usize;
        while let Some(document) = all.parsed.get(next) {
            let mut wanted = Vec::new();
            outside_references(&document.value, &document.name, &mut wanted);
            for file in wanted {
                all.load_sibling(file, loader, &mut bytes_left);
            }
            next += 1;
        }
        Ok(all)
    }

    fn load_sibling(
        &mut self,
        file: Result<String, (String, String)>,
        loader: &Loader<'_>,
        left: &mut usize,
    ) {
        let name = match file {
            Ok(name) => name,
            Err((reference, why)) => {
                self.missing.insert(reference, why);
                return;
            }
        };
        if self.by_name.contains_key(&name) || self.missing.contains_key(&name) {
            return;
        }
        if self.parsed.len() > SIBLINGS_MAX {
            self.missing.insert(name, format!("more than {SIBLINGS_MAX} files are referred to"));
            return;
        }
        let loaded = loader(&name).and_then(|bytes| {
            *left = left
                .checked_sub(bytes.len())
                .ok_or_else(|| format!("more than {OPENAPI_BYTES_MAX} bytes in all"))?;
            parse(&bytes, &name).map_err(|d| d.message)
        });
        match loaded {
            Ok(value) => {
                self.by_name.insert(name.clone(), self.parsed.len());
                self.parsed.push(Parsed { name, value });
            }
            Err(why) => {
                self.missing.insert(name, why);
            }
        }
    }

    /// The root of the main document.
    pub(super) fn root(&self) -> At<'_> {
        // INVARIANT: `load` puts the main document first.
        At { doc: 0, value: self.parsed.first().map_or(&Value::Null, |d| &d.value) }
    }

    /// The thing itself, after all references; the last reference followed, for a name.
    pub(super) fn resolve<'d>(&'d self, mut at: At<'d>) -> Result<(At<'d>, Option<&'d str>), String> {
        let mut last = None;
        for _ in 0..HOPS_MAX {
            let Some(reference) = at.reference() else { return Ok((at, last)) };
            at = self.target(at.doc, reference)?;
            last = Some(reference);
        }
        Err(format!("`{}` leads through more than {HOPS_MAX} references", last.unwrap_or_default()))
    }

    /// What a reference in document `doc` points to.
    fn target(&self, doc: usize, reference: &str) -> Result<At<'_>, String> {
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let doc = if file.is_empty() { doc } else { self.file(doc, reference, file)? };
        let dangling = || format!("`{reference}` points to nothing");
        let root = &self.parsed.get(doc).ok_or_else(dangling)?.value;
        let pointer = percent_decode_str(fragment).decode_utf8_lossy();
        let value = root.pointer(&pointer).ok_or_else(dangling)?;
        Ok(At { doc, value })
    }

    fn file(&self, doc: usize, reference: &str, file: &str) -> Result<usize, String> {
        let from = self.parsed.get(doc).map_or("", |d| d.name.as_str());
        let name = join(from, file).map_err(|why| format!("`{reference}` is not followed: {why}"))?;
        self.by_name.get(&name).copied().ok_or_else(|| {
            let why = self.missing.get(&name).map_or("it was not loaded", String::as_str);
            format!("`{reference}` cannot be read: {why}")
        })
    }
}

fn version(root: &Value) -> Option<Version> {
    // YAML reads `openapi: 3.0` without quotes as a number.
    let text = |key: &str| match root.get(key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(n)) => Some(n.to_string()),
        _ => None,
    };
    match text("openapi") {
        Some(v) if v == "3" || v.starts_with("3.0") => Some(Version::V30),
        Some(v) if v.starts_with("3.") => Some(Version::V31),
        _ => text("swagger").filter(|v| v == "2" || v.starts_with("2.")).map(|_| Version::Swagger2),
    }
}

fn parse(bytes: &[u8], name: &str) -> Result<Value, Box<Diagnostic>> {
    let fault = |message: String| Box::new(Diagnostic::error("openapi-syntax", name, message));
    let text = std::str::from_utf8(bytes).map_err(|e| fault(format!("not UTF-8: {e}")))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) {
        return json::parse(text.as_bytes(), OPENAPI_BYTES_MAX).map_err(|e| match e {
            JsonError::Malformed(e) => {
                Box::new(fault(format!("not JSON: {e}")).at(text, e.line(), e.column()))
            }
            other => fault(other.to_string()),
        });
    }
    if text.len() > OPENAPI_BYTES_MAX {
        return Err(fault(format!(
            "{} bytes are more than the {OPENAPI_BYTES_MAX} allowed here",
            text.len()
        )));
    }
    let value: Value = serde_saphyr::from_str_with_options(text, yaml_options()).map_err(|e| {
        let place = e.location().map(|l| (usize::try_from(l.line()), usize::try_from(l.column())));
        let told = fault(format!("not YAML: {}", e.without_snippet()));
        match place {
            Some((Ok(line), Ok(column))) if line > 0 => Box::new(told.at(text, line, column)),
            _ => told,
        }
    })?;
    if json::depth_exceeds(&value, JSON_DEPTH_MAX) {
        return Err(fault(JsonError::TooDeep.to_string()));
    }
    Ok(value)
}

/// Events that aliases may replay: what they multiply is what a bomb is made of, and documents hardly use them.
const YAML_REPLAYED_EVENTS_MAX: usize = 200_000;

/// Levels of a YAML document: its parser takes ten times the stack of the JSON one per level, and the deepest
/// document seen has 34.
const YAML_DEPTH_MAX: usize = 64;

/// The default budgets stop at 250,000 nodes; GitHub's document in YAML has three million.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 20_000_000,
            max_nodes: 10_000_000,
            max_depth: YAML_DEPTH_MAX,
            flow_nesting_limit: YAML_DEPTH_MAX,
            max_total_scalar_bytes: OPENAPI_BYTES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: YAML_REPLAYED_EVENTS_MAX,
        },
        // YAML 1.2: a property called `y` and the country code `NO` are texts.
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
    }
}

/// Every file that a reference names, as a normalised path, or the reference with the reason why it names none.
fn outside_references(value: &Value, from: &str, out: &mut Vec<Result<String, (String, String)>>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner {
                    Value::String(text) if key == "$ref" => {
                        let file = text.split('#').next().unwrap_or_default();
                        if !file.is_empty() {
                            out.push(join(from, file).map_err(|why| (text.clone(), why)));
                        }
                    }
                    _ if key == "example" || key == "examples" => {}
                    _ => outside_references(inner, from, out),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|v| outside_references(v, from, out)),
        _ => {}
    }
}

/// The path of `file` as seen from the document `from`, with `.` and `..` worked out.
fn join(from: &str, file: &str) -> Result<String, String> {
    if file.contains("://") || file.starts_with("//") {
        return Err(
            "references over the network are never fetched; put the file beside the document".to_owned()
        );
    }
    let file = percent_decode_str(file).decode_utf8_lossy();
    if file.starts_with('/') || file.contains(['\\', '\0', ':']) {
        return Err("only paths relative to the document are read".to_owned());
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(file.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or_else(|| "it leaves the folder of the upstream".to_owned())?;
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside_the_folder() {
        assert_eq!(join("spec/swagger.yaml", "../common/Error.yaml").unwrap(), "common/Error.yaml");
        assert_eq!(join("a.yaml", "./b%20c.yaml").unwrap(), "b c.yaml");
        for bad in ["../x.yaml", "/etc/passwd", "http://h/x", "//h/x", "file:///x", "a\\b", "%2e%2e/x"] {
            assert!(join("a.yaml", bad).is_err(), "{bad}");
        }
    }

    fn load(text: &str) -> Result<Documents, Box<Diagnostic>> {
        Documents::load(text.as_bytes(), "a.yaml", &|name| match name {
            "b.yaml" => Ok(b"x: {$ref: 'a.yaml#/here'}\n200: {y: 1}".to_vec()),
            _ => Err("no such file".to_owned()),
        })
    }

    #[test]
    fn references_cross_files_and_rings_end() {
        let docs = load("openapi: 3.0\nhere: {deep/er: [7]}\nout: {$ref: b.yaml#/x}\nring: {$ref: '#/ring'}\ngone: {$ref: c.yaml}\nbad: {$ref: 'http://h/a'}\np: {$ref: '#/here/deep~1er/0'}\nn: {$ref: b.yaml#/200/y}").unwrap();
        let get = |key: &str| docs.resolve(docs.root().get(key).unwrap()).map(|(at, _)| at.value.to_string());
        assert_eq!(docs.version, Version::V30);
        assert_eq!(get("out").unwrap(), r#"{"deep/er":[7]}"#);
        assert_eq!(get("p").unwrap(), "7");
        assert_eq!(get("n").unwrap(), "1");
        assert!(get("ring").unwrap_err().contains("32 references"));
        assert!(get("gone").unwrap_err().contains("no such file"));
        assert!(get("bad").unwrap_err().contains("never fetched"));
    }

    #[test]
    fn a_broken_document_is_told_with_its_place() {
        let err = |text: &str| load(text).err().map(|d| (d.code, d.line)).unwrap();
        assert_eq!(err("{\"openapi\": \"3.0.0\",\n x}"), ("openapi-syntax", 2));
        assert_eq!(err("openapi: 3.0.0\n a: [\n").0, "openapi-syntax");
        assert_eq!(err("hello: 1").0, "openapi-version");
        assert_eq!(err("openapi: 4.0.0").0, "openapi-version");
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\nopenapi: 3.0.0\n";
        assert_eq!(err(bomb).0, "openapi-syntax");
    }
}
