//! What scripts make: rows, pages, content blocks, errors; and any value of a script as JSON text.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::scan::{self, Ceilings};
use super::view::View;
use crate::call::{ErrorCode, ToolError};
use crate::json::{self as bounded, Object};
use crate::limits::{JSON_DEPTH_MAX, UPSTREAM_READ_BYTES};
use crate::script::{Dynamic, HostResult, Map, fault};

/// Bytes that the rows of one script may take before the budget cuts them anyway.
const ROWS_BYTES_MAX: usize = UPSTREAM_READ_BYTES;
/// Rows of one page; the result keeps far fewer, the rest is counted.
const ROWS_MAX: usize = 10_000;

/// A value of a script as compact JSON. Functions, ranges, other host objects, NaN and infinities are
/// refused, never printed.
fn put(value: &Dynamic, out: &mut String, depth: usize) -> Result<(), String> {
    if depth > JSON_DEPTH_MAX {
        return Err(format!("the result is nested deeper than {JSON_DEPTH_MAX} levels"));
    }
    if value.is_unit() {
        out.push_str("null");
    } else if let Ok(b) = value.as_bool() {
        out.push_str(if b { "true" } else { "false" });
    } else if let Ok(i) = value.as_int() {
        write!(out, "{i}").map_err(|e| e.to_string())?;
    } else if let Ok(f) = value.as_float() {
        let number = serde_json::Number::from_f64(f).ok_or_else(|| format!("{f} is no JSON number"))?;
        out.push_str(&number.to_string());
    } else if let Ok(text) = value.as_immutable_string_ref() {
        scan::quote(text.as_str(), out);
    } else if let Ok(c) = value.as_char() {
        out.push_str(&bounded::to_text(&c));
    } else if let Ok(items) = value.as_array_ref() {
        out.push('[');
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            put(item, out, depth + 1)?;
        }
        out.push(']');
    } else if let Ok(map) = value.as_map_ref() {
        write_map(&map, out, depth)?;
    } else if let Some(view) = value.read_lock::<View>() {
        scan::copy(view.text(), Ceilings::NONE, out).map_err(|e| e.to_string())?;
    } else if let Some(rows) = value.read_lock::<Rows>() {
        out.push('[');
        out.push_str(&rows.lock().items.join(","));
        out.push(']');
    } else {
        let kind = value.type_name().rsplit("::").next().unwrap_or("a host object");
        return Err(format!("a {kind} cannot stand in a result"));
    }
    Ok(())
}

fn write_map(map: &Map, out: &mut String, depth: usize) -> Result<(), String> {
    out.push('{');
    for (i, (key, item)) in map.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        scan::quote(key.as_str(), out);
        out.push(':');
        put(item, out, depth + 1)?;
    }
    out.push('}');
    Ok(())
}

/// A value of a script as JSON text.
pub(super) fn text_of(value: &Dynamic) -> Result<String, String> {
    let mut out = String::new();
    put(value, &mut out, 0)?;
    Ok(out)
}

/// A value of a script as a JSON value, for arguments of other tools and the like. A number that would become
/// another one is refused.
pub(super) fn value_of(value: &Dynamic) -> Result<Value, String> {
    let text = text_of(value)?;
    if let Some(number) = bounded::inexact_number(&text) {
        let number = bounded::cut(number, 80);
        return Err(format!(
            "the number {number} has more digits than 64 bits hold: pass it on as a text (`.to_string()`)"
        ));
    }
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

/// The same for places that write numbers as texts: such a number is its digits.
pub(super) fn plain_value_of(value: &Dynamic) -> Result<Value, String> {
    serde_json::from_str(&bounded::quote_inexact(&text_of(value)?)).map_err(|e| e.to_string())
}

/// Rows outside the script's own memory: each is JSON text as soon as it is pushed.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows(Arc<Mutex<RowsState>>);

#[derive(Debug, Default)]
pub(super) struct RowsState {
    pub(super) items: Vec<String>,
    bytes: usize,
    /// Rows pushed beyond the ceilings.
    pub(super) beyond: u64,
}

impl Rows {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, RowsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a row; `false` says that it was only counted.
    pub(super) fn push(&self, row: &Dynamic) -> HostResult<bool> {
        let text = text_of(row).map_err(fault)?;
        let mut state = self.lock();
        if state.beyond > 0 || state.items.len() >= ROWS_MAX || state.bytes + text.len() > ROWS_BYTES_MAX {
            state.beyond += 1;
            return Ok(false);
        }
        state.bytes += text.len();
        state.items.push(text);
        Ok(true)
    }

    /// Rows from a list of the script, a view or other rows.
    pub(super) fn from(value: &Dynamic) -> HostResult<Self> {
        if let Some(rows) = value.read_lock::<Self>() {
            return Ok(rows.clone());
        }
        let rows = Self::default();
        if let Ok(items) = value.as_array_ref() {
            for item in items.iter() {
                rows.push(item)?;
            }
        } else if let Some(view) = value.read_lock::<View>() {
            for item in view.values() {
                rows.push(&item)?;
            }
        } else {
            return Err(fault("a page is made of rows, a list or a list of the reply"));
        }
        Ok(rows)
    }
}

/// `page(family)`: rows with their paging.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) family: String,
    pub(super) rows: Rows,
    pub(super) paging: Arc<Mutex<Object>>,
}

impl Page {
    pub(super) fn new(family: &str) -> Self {
        Self { family: family.to_owned(), rows: Rows::default(), paging: Arc::default() }
    }

    /// Sets what is known of paging.
    pub(super) fn set_paging(&self, paging: &Map) -> HostResult<()> {
        let mut text = String::new();
        write_map(paging, &mut text, 0).map_err(fault)?;
        let known: Object = serde_json::from_str(&text).map_err(|e| fault(e.to_string()))?;
        *self.paging.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// The paging member; what nobody said is null, never guessed.
    pub(super) fn page(&self) -> Object {
        let said = self.paging.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let returned = self.rows.lock().items.len();
        let mut page = json!({
            "offset": 0, "limit": returned.clamp(1, crate::limits::RESULT_RECORDS), "returned": returned,
            "total": null, "has_more": null, "next_offset": null, "mode": "none", "unit": "records",
        });
        if let Some(map) = page.as_object_mut() {
            map.extend(said);
            map.insert("returned".to_owned(), Value::from(returned));
        }
        page.as_object().cloned().unwrap_or_default()
    }
}

/// A result that is no plain value.
#[derive(Debug, Clone)]
pub(super) enum Made {
    /// Data with a family, as JSON text.
    Family(String),
    /// `text(…)`.
    Text(String),
    /// `json(…)`: compact JSON.
    Json(String),
    /// Content blocks.
    Blocks(Vec<Value>),
    /// `error(…)`.
    Failed(Box<ToolError>),
}

/// `{kind: family, …members}`.
pub(super) fn family(name: &str, members: &Map) -> HostResult<Made> {
    let mut text = String::new();
    let mut members = members.clone();
    members.remove("kind");
    write_map(&members, &mut text, 0).map_err(fault)?;
    let rest = text.strip_prefix('{').unwrap_or_default();
    let comma = if rest == "}" { "" } else { "," };
    Ok(Made::Family(format!("{{\"kind\":{}{comma}{rest}", bounded::to_text(name))))
}

/// `error(code, message, more)`.
pub(super) fn error(code: &str, message: &str, more: &Map) -> HostResult<Made> {
    let Some(known) = ErrorCode::parse(code) else {
        let all: Vec<&str> = ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
        return Err(fault(format!("`{code}` is no error code; there are {}", all.join(", "))));
    };
    let mut error = ToolError::new(known, super::scrub::cut(message, 2_000).into_owned());
    let mut details = Object::new();
    for (key, value) in more {
        match key.as_str() {
            "retryable" => {
                error.retryable = value.as_bool().map_err(|_other| fault("`retryable` is true or false"))?;
            }
            "field" => error.field = Some(value.to_string()),
            "retry_after_seconds" => {
                error.retry_after_seconds = value.as_int().ok().and_then(|n| u64::try_from(n).ok());
            }
            "data" => {
                let data = match value.read_lock::<Made>().as_deref() {
                    Some(Made::Family(text) | Made::Json(text)) => {
                        serde_json::from_str(&bounded::quote_inexact(text))
                            .map_err(|e| fault(e.to_string()))?
                    }
                    _ => plain_value_of(value).map_err(fault)?,
                };
                details.insert("data".to_owned(), data);
            }
            other => drop(details.insert(other.to_owned(), plain_value_of(value).map_err(fault)?)),
        }
    }
    if !details.is_empty() {
        error = error.details(Value::Object(details));
    }
    Ok(Made::Failed(Box::new(error)))
}

/// `content([…])`: blocks, texts and plain strings in order.
pub(super) fn content(parts: &[Dynamic]) -> HostResult<Made> {
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        if let Ok(text) = part.as_immutable_string_ref() {
            blocks.push(json!({"type": "text", "text": text.as_str()}));
            continue;
        }
        match part.read_lock::<Made>().as_deref() {
            Some(Made::Blocks(own)) => blocks.extend(own.iter().cloned()),
            Some(Made::Text(text)) => blocks.push(json!({"type": "text", "text": text})),
            _ => return Err(fault("`content` takes blocks and texts")),
        }
    }
    Ok(Made::Blocks(blocks))
}
