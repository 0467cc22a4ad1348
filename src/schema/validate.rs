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
    compiled: Mutex<Compiled>,
}

#[derive(Debug, Default)]
struct Compiled {
    /// By where the text stands, so that a call does not hash its schema. The text is held: while it stands here
    /// no other one can have its address.
    by_address: HashMap<usize, (SchemaText, Arc<jsonschema::Validator>)>,
    by_content: HashMap<blake3::Hash, Arc<jsonschema::Validator>>,
}

impl Compiled {
    fn keep(&mut self, schema: &SchemaText, key: blake3::Hash, validator: &Arc<jsonschema::Validator>) {
        if self.by_address.len() >= VALIDATORS_MAX {
            *self = Self::default();
        }
        self.by_address.insert(schema.address(), (schema.clone(), Arc::clone(validator)));
        self.by_content.insert(key, Arc::clone(validator));
    }
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
        let compiled = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = compiled().by_address.get(&schema.address()) {
            return Ok(Arc::clone(found));
        }
        let key = blake3::hash(schema.as_str().as_bytes());
        let known = compiled().by_content.get(&key).map(Arc::clone);
        let validator = match known {
            Some(known) => known,
            None => Arc::new(compile(&schema.value())?),
        };
        compiled().keep(schema, key, &validator);
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
