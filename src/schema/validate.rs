//! Validation with compiled schemas that are shared by content and made on first use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::SchemaText;

/// Compiled validators kept at once: an input schema takes about 7 KiB, an output schema 40 KiB.
const VALIDATORS_MAX: usize = 2_000;

/// Bytes of one compiled pattern.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Problems reported of one value at most; more would only flood the answer.
const PROBLEMS_MAX: usize = 8;

/// One way in which a value breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaProblem {
    /// JSON Pointer to the place in the value, empty for the whole.
    pub pointer: String,
    /// What is wrong, without the value itself.
    pub message: String,
}

/// Compiles schemas on first use and shares them by content across tools and generations.
#[derive(Debug, Default)]
pub struct Validators {
    compiled: Mutex<HashMap<blake3::Hash, Arc<jsonschema::Validator>>>,
}

impl Validators {
    /// Checks a value. `Err` tells that the schema itself cannot be compiled.
    pub fn check(&self, schema: &SchemaText, value: &Value) -> Result<Vec<SchemaProblem>, String> {
        let validator = self.validator(schema)?;
        Ok(validator
            .iter_errors(value)
            .take(PROBLEMS_MAX)
            .map(|e| SchemaProblem {
                pointer: e.instance_path().to_string(),
                message: e.masked().to_string(),
            })
            .collect())
    }

    fn validator(&self, schema: &SchemaText) -> Result<Arc<jsonschema::Validator>, String> {
        let key = blake3::hash(schema.as_str().as_bytes());
        if let Some(found) = self.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(found));
        }
        let validator = Arc::new(compile(&schema.value())?);
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.len() >= VALIDATORS_MAX {
            compiled.clear();
        }
        compiled.insert(key, Arc::clone(&validator));
        Ok(validator)
    }
}

/// Whether a pattern is a regular expression that runs in linear time and is small: patterns come from
/// strangers, and a value must not be able to stall its check (facts/security row 13).
pub fn pattern_is_safe(pattern: &str) -> bool {
    let linear = jsonschema::PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
    jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .with_pattern_options(linear)
        .build(&serde_json::json!({"pattern": pattern}))
        .is_ok()
}

fn compile(schema: &Value) -> Result<jsonschema::Validator, String> {
    let known =
        schema.get("$schema").and_then(Value::as_str).is_none_or(|uri| uri.contains("json-schema.org/"));
    let build = |schema: &Value| {
        let mut options = jsonschema::options();
        if schema.get("$schema").is_none() {
            options = options.with_draft(jsonschema::Draft::Draft202012);
        }
        options.build(schema).map_err(|e| e.masked().to_string())
    };
    if known {
        return build(schema);
    }
    // A dialect that nobody can know is read as the default one.
    let mut copy = schema.clone();
    if let Some(map) = copy.as_object_mut() {
        map.remove("$schema");
    }
    build(&copy)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn problems_have_a_place_and_hide_the_value() {
        let schema = SchemaText::of(
            &json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}),
        );
        let validators = Validators::default();
        let found = validators.check(&schema, &json!({"n": "s3cret"})).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pointer, "/n");
        assert!(!found[0].message.contains("s3cret"), "{}", found[0].message);
        assert!(validators.check(&schema, &json!({"n": 1})).unwrap().is_empty());
        assert_eq!(validators.check(&schema, &json!({"m": 1})).unwrap().len(), 2);
    }

    #[test]
    fn references_are_never_fetched_and_unknown_dialects_are_read_as_the_default() {
        let validators = Validators::default();
        let remote = SchemaText::of(&json!({"$ref": "http://127.0.0.1:1/x.json"}));
        assert!(validators.check(&remote, &json!({})).is_err());
        let odd = SchemaText::of(&json!({"$schema": "urn:nobody", "type": "object"}));
        assert!(validators.check(&odd, &json!({})).unwrap().is_empty());
    }
}
