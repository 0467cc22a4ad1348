//! The tools that a host offers for discovery, checked before anything looks at them.

use serde_json::Value;

use super::options::{self, Tier};
use super::{DiscoverError, HostValues};
use crate::catalog::Tool;
use crate::cursor::{Digest, Parts};
use crate::id::{ToolId, UpstreamId};
use crate::json::{self, Object};
use crate::schema::SchemaText;
use crate::search::num::narrow;

/// Candidates of one call at most: ten times the largest catalog that docent is measured with.
pub const CANDIDATES_MAX: usize = 100_000;

/// What a tool definition of MCP carries besides, and discovery does not read.
const IGNORED: [&str; 6] = ["title", "annotations", "outputSchema", "icons", "execution", "_meta"];
const KEYS: [&str; 7] = ["name", "description", "input_schema", "authorized", "signals", "family", "tier"];

/// What a host knows of a tool, each 0 to 1; what it does not say, docent computes or falls back on.
/// Values outside are taken as the nearest end, what is not a number as 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HostSignals {
    /// Nearness of meaning to the query.
    pub semantic: Option<f64>,
    /// Nearness in the host's graph (of projects, of tools that go together).
    pub graph: Option<f64>,
    /// How current the tool is.
    pub freshness: Option<f64>,
    /// How often it was the right one.
    pub usage: Option<f64>,
}

/// One tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its name; not blank. Several may have the same.
    pub name: String,
    /// What it does; not blank.
    pub description: String,
    /// Its input schema, a JSON object.
    pub input_schema: Value,
    /// Whether the caller may use it. What is not authorized is dropped before anything is counted.
    pub authorized: bool,
    /// What the host knows.
    pub signals: HostSignals,
    /// The group of tools that it belongs to: letters, digits and `_ - . ~`.
    pub family: Option<String>,
    /// The smallest tier that shows it.
    pub tier: Tier,
}

impl Candidate {
    /// A candidate that is authorized, of the core tier, and of which the host says nothing else.
    pub fn new(name: impl Into<String>, description: impl Into<String>, input_schema: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema,
            authorized: true,
            signals: HostSignals::default(),
            family: None,
            tier: Tier::Core,
        }
    }

    /// Reads `{name, description, inputSchema, authorized?, signals?, family?, tier?}`; `at` is its place for
    /// messages. Wrong types are refused, never defaulted: `authorized: "no"` must not authorize.
    pub fn read(value: &Value, at: &str) -> Result<Self, DiscoverError> {
        let fields = options::fields(value, at, &KEYS, &IGNORED)?;
        let text = |key: &str| options::text(&fields, at, key);
        let required =
            |key: &str| text(key)?.ok_or_else(|| DiscoverError::invalid(format!("{at}/{key}"), "is missing"));
        let schema = fields
            .get("input_schema")
            .ok_or_else(|| DiscoverError::invalid(format!("{at}/inputSchema"), "is missing"))?;
        let candidate = Self {
            name: required("name")?,
            description: required("description")?,
            input_schema: (*schema).clone(),
            authorized: options::boolean(&fields, at, "authorized")?.unwrap_or(true),
            signals: fields
                .get("signals")
                .map_or(Ok(HostSignals::default()), |v| HostSignals::read(v, &format!("{at}/signals")))?,
            family: text("family")?,
            tier: text("tier")?.map_or(Ok(Tier::Core), |t| {
                Tier::parse(&t).map_err(|p| DiscoverError::invalid(format!("{at}/tier"), p))
            })?,
        };
        candidate.check(at)?;
        Ok(candidate)
    }

    fn check(&self, at: &str) -> Result<(), DiscoverError> {
        for (key, text) in [("name", &self.name), ("description", &self.description)] {
            if text.trim().is_empty() {
                return Err(DiscoverError::invalid(
                    format!("{at}/{key}"),
                    "is blank: a tool needs both texts",
                ));
            }
        }
        if !self.input_schema.is_object() {
            return Err(DiscoverError::invalid(format!("{at}/inputSchema"), "must be an object"));
        }
        if let Some(family) = &self.family {
            UpstreamId::parse(family)
                .map_err(|e| DiscoverError::invalid(format!("{at}/family"), format!("is no label: {e}")))?;
        }
        Ok(())
    }

    /// Everything of it that an answer can depend on.
    pub(super) fn digest(&self) -> Digest {
        let mut parts = Parts::default();
        let mut part = |bytes: &[u8]| parts.add(bytes);
        part(self.name.as_bytes());
        part(self.description.as_bytes());
        part(&json::canonical(&self.input_schema));
        part(self.family.as_deref().unwrap_or("").as_bytes());
        part(self.tier.as_str().as_bytes());
        for value in self.signals.all().map(|(_, v)| v) {
            part(&value.map(f64::to_le_bytes).map_or_else(Vec::new, |b| b.to_vec()));
        }
        parts.digest()
    }

    /// The tool that the index reads: its family stands where an upstream would.
    pub(super) fn tool(&self, no: usize) -> Result<Tool, DiscoverError> {
        let at = || format!("candidates/{no}/family");
        let id = ToolId::parse(&format!("{no}")).map_err(|e| DiscoverError::invalid(at(), e.to_string()))?;
        // `-` has no word in it: a tool without a family is of no upstream that a query could name.
        let family = UpstreamId::parse(self.family.as_deref().unwrap_or("-"))
            .map_err(|e| DiscoverError::invalid(at(), e.to_string()))?;
        let mut tool = Tool::new(id, family, self.name.as_str(), SchemaText::of(&self.input_schema));
        tool.description = self.description.as_str().into();
        Ok(tool)
    }
}

impl HostSignals {
    fn read(value: &Value, at: &str) -> Result<Self, DiscoverError> {
        let fields = options::fields(value, at, &["semantic", "graph", "freshness", "usage"], &[])?;
        let number = |key: &str| match fields.get(key) {
            None => Ok(None),
            Some(Value::Number(n)) => Ok(n.as_f64()),
            Some(_) => Err(DiscoverError::invalid(format!("{at}/{key}"), "must be a number from 0 to 1")),
        };
        Ok(Self {
            semantic: number("semantic")?,
            graph: number("graph")?,
            freshness: number("freshness")?,
            usage: number("usage")?,
        })
    }

    /// Name and value of each.
    pub(super) fn all(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("semantic", self.semantic),
            ("graph", self.graph),
            ("freshness", self.freshness),
            ("usage", self.usage),
        ]
    }

    pub(super) fn values(&self) -> HostValues {
        let value = |v: Option<f64>| v.map(|v| if v.is_nan() { 0.0 } else { narrow(v.clamp(0.0, 1.0)) });
        HostValues {
            semantic: value(self.semantic),
            graph: value(self.graph),
            freshness: value(self.freshness),
            usage: value(self.usage),
        }
    }
}

/// Reads a JSON array of candidates.
pub fn read_candidates(value: &Value) -> Result<Vec<Candidate>, DiscoverError> {
    let list = value.as_array().ok_or_else(|| DiscoverError::invalid("candidates", "must be an array"))?;
    count(list.len())?;
    list.iter().enumerate().map(|(no, c)| Candidate::read(c, &format!("candidates/{no}"))).collect()
}

/// Checks candidates that were not read from JSON.
pub(super) fn check(candidates: &[Candidate]) -> Result<(), DiscoverError> {
    count(candidates.len())?;
    candidates.iter().enumerate().try_for_each(|(no, c)| c.check(&format!("candidates/{no}")))
}

fn count(found: usize) -> Result<(), DiscoverError> {
    if found <= CANDIDATES_MAX {
        return Ok(());
    }
    let problem = format!("are {found}, more than {CANDIDATES_MAX}: leave out what the caller may not use");
    Err(DiscoverError::invalid("candidates", problem))
}

/// An object by its keys in snake case.
pub(super) type Fields<'a> = std::collections::BTreeMap<String, &'a Value>;

/// The object that a value must be.
pub(super) fn object<'a>(value: &'a Value, at: &str) -> Result<&'a Object, DiscoverError> {
    value.as_object().ok_or_else(|| DiscoverError::invalid(at, "must be an object"))
}
