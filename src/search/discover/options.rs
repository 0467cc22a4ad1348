//! The options of a discovery: strict. A wrong type is an error and never a default; lengths are code points.

use serde::Serialize;
use serde_json::{Value, json};

use super::DiscoverError;
use super::candidate::{Fields, object};
use crate::cursor::{Digest, KEY_BYTES_MIN};
use crate::id::UpstreamId;
use crate::json;
use crate::limits::QUERY_CHARS_MAX;
use crate::secret::Secret;

/// Rows where the options say nothing (seed 004).
pub const LIMIT_DEFAULT: usize = 10;
/// Rows of one page at most.
pub const LIMIT_MAX: usize = 100;
/// Tokens of an answer where the options say nothing: [`LIMIT_DEFAULT`] compact rows fit.
pub const BUDGET_DEFAULT: usize = 1_200;
/// The smallest budget that is taken at all.
pub const BUDGET_MIN: usize = 128;
/// Code points of a cursor at most.
pub const CURSOR_CHARS_MAX: usize = 4_096;

const KEYS: [&str; 9] = [
    "query",
    "family",
    "tier",
    "limit",
    "cursor",
    "include_schema",
    "output_budget",
    "profile",
    "cursor_integrity_key",
];

/// How wide a view is: each tier shows the ones before it too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// What everyone needs.
    Core,
    /// What most need.
    Standard,
    /// Everything.
    #[default]
    Full,
}

impl Tier {
    /// `core`, `standard` or `full`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }

    /// The tier of that name, or what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let all = [Self::Core, Self::Standard, Self::Full];
        let found = all.into_iter().find(|t| t.as_str() == text);
        found.ok_or_else(|| format!("is `{}`; it is one of core, standard, full", json::cut(text, 40)))
    }
}

/// Tokens that an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputBudget {
    /// At most so many, from [`BUDGET_MIN`] on.
    Tokens(usize),
    /// Any number.
    Unbounded,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct DiscoverOptions {
    /// What is needed, at most [`QUERY_CHARS_MAX`] code points; blank lists everything that is chosen.
    pub query: String,
    /// Only tools of this family, which some authorized candidate must have.
    pub family: Option<String>,
    /// Only tools of this tier and those before it.
    pub tier: Tier,
    /// Rows of the page, 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// Where the last page ended: its `next_cursor`.
    pub cursor: Option<String>,
    /// Whether rows carry the input schema and the whole description.
    pub include_schema: bool,
    /// Tokens of the answer.
    pub output_budget: OutputBudget,
    /// The host's name for the set of tools that the candidates were taken from.
    pub profile: String,
    /// At least [`KEY_BYTES_MIN`] random secret bytes, the same in every process that serves the walk; without it
    /// a cursor lives as long as this process.
    pub cursor_integrity_key: Option<Secret>,
}

impl Default for DiscoverOptions {
    fn default() -> Self {
        Self {
            query: String::new(),
            family: None,
            tier: Tier::Full,
            limit: LIMIT_DEFAULT,
            cursor: None,
            include_schema: false,
            output_budget: OutputBudget::Tokens(BUDGET_DEFAULT),
            profile: "core".to_owned(),
            cursor_integrity_key: None,
        }
    }
}

impl DiscoverOptions {
    /// Reads options from JSON: an object with any of `query`, `family`, `tier`, `limit`, `cursor`,
    /// `includeSchema`, `outputBudget`, `profile`, `cursorIntegrityKey` (snake case is taken too).
    pub fn read(value: &Value) -> Result<Self, DiscoverError> {
        let fields = fields(value, "options", &KEYS, &[])?;
        let text = |key: &str| text(&fields, "", key);
        let usual = Self::default();
        let options = Self {
            query: text("query")?.unwrap_or_default(),
            family: text("family")?,
            tier: text("tier")?
                .map_or(Ok(usual.tier), |t| Tier::parse(&t).map_err(|p| DiscoverError::invalid("tier", p)))?,
            limit: fields.get("limit").map_or(Ok(usual.limit), |v| {
                let problem = || format!("must be a whole number from 1 to {LIMIT_MAX}");
                whole(v).ok_or_else(|| DiscoverError::invalid("limit", problem()))
            })?,
            cursor: text("cursor")?,
            include_schema: boolean(&fields, "", "include_schema")?.unwrap_or(usual.include_schema),
            output_budget: fields.get("output_budget").map_or(Ok(usual.output_budget), |v| budget(v))?,
            profile: text("profile")?.unwrap_or(usual.profile),
            cursor_integrity_key: text("cursor_integrity_key")?.map(Secret::new),
        };
        options.check()?;
        Ok(options)
    }

    /// Checks ranges and lengths; gives the query with every run of white space one space.
    pub(super) fn check(&self) -> Result<String, DiscoverError> {
        let most = |at: &str, text: &str, max: usize| match text.chars().count() {
            n if n > max => Err(DiscoverError::invalid(at, format!("has {n} characters, {max} are allowed"))),
            _ => Ok(()),
        };
        most("query", &self.query, QUERY_CHARS_MAX)?;
        most("cursor", self.cursor.as_deref().unwrap_or(""), CURSOR_CHARS_MAX)?;
        if !(1..=LIMIT_MAX).contains(&self.limit) {
            let problem = format!("is {}; it must be from 1 to {LIMIT_MAX}", self.limit);
            return Err(DiscoverError::invalid("limit", problem));
        }
        if let OutputBudget::Tokens(tokens) = self.output_budget
            && tokens < BUDGET_MIN
        {
            let problem = format!("is {tokens}; it must be at least {BUDGET_MIN} tokens, or \"unbounded\"");
            return Err(DiscoverError::invalid("outputBudget", problem));
        }
        for (at, label) in [("profile", Some(&self.profile)), ("family", self.family.as_ref())] {
            if let Some(Err(e)) = label.map(|l| UpstreamId::parse(l)) {
                return Err(DiscoverError::invalid(at, format!("is no label: {e}")));
            }
        }
        let key = self.cursor_integrity_key.as_ref().map(|k| k.expose().len());
        if key.is_some_and(|bytes| bytes < KEY_BYTES_MIN) {
            let problem = format!("is too short: at least {KEY_BYTES_MIN} random bytes");
            return Err(DiscoverError::invalid("cursorIntegrityKey", problem));
        }
        Ok(self.query.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// What a cursor belongs to. Limit and budget may change during a walk.
    pub(super) fn question(&self, query: &str) -> Digest {
        let question = json!([query, self.family, self.tier, self.include_schema, self.profile]);
        *blake3::hash(&json::canonical(&question)).as_bytes()
    }
}

fn budget(value: &Value) -> Result<OutputBudget, DiscoverError> {
    if value == "unbounded" {
        return Ok(OutputBudget::Unbounded);
    }
    let problem = || format!("must be a whole number of tokens from {BUDGET_MIN} on, or \"unbounded\"");
    let tokens = whole(value).ok_or_else(|| DiscoverError::invalid("outputBudget", problem()))?;
    Ok(OutputBudget::Tokens(tokens))
}

/// A whole number; JSON writes 10 as `10` or `10.0`, and both are ten.
fn whole(value: &Value) -> Option<usize> {
    if let Some(n) = value.as_u64() {
        return usize::try_from(n).ok();
    }
    let text = value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n))?;
    format!("{text:.0}").parse().ok()
}

/// An object by its keys, `includeSchema` and `include_schema` being the same one; other keys are refused.
pub(super) fn fields<'a>(
    value: &'a Value,
    at: &str,
    known: &[&str],
    ignored: &[&str],
) -> Result<Fields<'a>, DiscoverError> {
    let mut out = Fields::new();
    for (key, value) in object(value, at)?.iter().filter(|(key, _)| !ignored.contains(&key.as_str())) {
        let name = snake(key);
        let place = || format!("{at}/{}", json::cut(key, 60));
        if !known.contains(&name.as_str()) {
            let problem = format!(
                "is not known; known are {}",
                known.iter().map(|k| camel(k)).collect::<Vec<_>>().join(", ")
            );
            return Err(DiscoverError::invalid(place(), problem));
        }
        if out.insert(name, value).is_some() {
            return Err(DiscoverError::invalid(place(), "is given twice, in two spellings"));
        }
    }
    Ok(out)
}

/// A text, if the key is there.
pub(super) fn text(fields: &Fields<'_>, at: &str, key: &str) -> Result<Option<String>, DiscoverError> {
    match fields.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(DiscoverError::invalid(place(at, key), "must be a string")),
    }
}

/// A boolean, if the key is there.
pub(super) fn boolean(fields: &Fields<'_>, at: &str, key: &str) -> Result<Option<bool>, DiscoverError> {
    match fields.get(key) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(_) => Err(DiscoverError::invalid(place(at, key), "must be true or false")),
    }
}

fn place(at: &str, key: &str) -> String {
    if at.is_empty() { camel(key) } else { format!("{at}/{}", camel(key)) }
}

fn snake(key: &str) -> String {
    let mut out = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn camel(key: &str) -> String {
    let mut parts = key.split('_');
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let mut chars = part.chars();
        out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        out.push_str(chars.as_str());
    }
    out
}
