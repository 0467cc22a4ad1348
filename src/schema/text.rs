//! A schema as compact JSON text: 10,000 of them as values would take 350 MB, as text 20 MB.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::json;

/// A JSON Schema as compact JSON text, shared and immutable.
#[derive(Clone, PartialEq, Eq)]
pub struct SchemaText(Arc<str>);

impl SchemaText {
    /// The text of a schema value.
    pub fn of(value: &Value) -> Self {
        Self(Arc::from(json::to_text(value)))
    }

    /// The text of raw JSON as it stands, without building a value.
    pub fn of_raw(raw: &RawValue) -> Self {
        Self(Arc::from(raw.get()))
    }

    /// Takes a text that is compact JSON already, as one who put it together from such texts has it.
    pub fn from_json(text: String) -> Self {
        debug_assert!(serde_json::from_str::<&RawValue>(&text).is_ok(), "not JSON: {text}");
        Self(Arc::from(text))
    }

    /// `{"type":"object"}`: a tool without arguments, or one whose upstream said nothing.
    pub fn empty_object() -> Self {
        Self(Arc::from(r#"{"type":"object"}"#))
    }

    /// The compact JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The schema as a value; `true` (anything goes) if the text is not JSON, which [`SchemaText::of`] excludes.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Bool(true))
    }

    /// The schema as raw JSON, to be put into an answer without parsing it.
    pub fn raw(&self) -> Option<&RawValue> {
        serde_json::from_str(&self.0).ok()
    }

    /// Where the text stands: the same for all clones, and nobody else's as long as one of them lives.
    pub(super) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Bytes of the text.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty, which never is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SchemaText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
