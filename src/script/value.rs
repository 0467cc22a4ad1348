//! JSON in and out of scripts, exactly or not at all, and the bounded sink for output.

use serde_json::{Number, Value};

use super::{Array, Dynamic, Map};
use crate::json::{self, Object};
use crate::limits::JSON_DEPTH_MAX;

/// A value that is no JSON: where it stands and what it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is {what}, which JSON has no form for", if path.is_empty() { "the value" } else { path.as_str() })]
pub struct NotJson {
    /// JSON Pointer to it.
    pub path: String,
    /// What it is.
    pub what: String,
}

/// JSON for a script. A whole number beyond 64 signed bits becomes its text, so that ids keep their digits.
pub fn to_dynamic(value: &Value) -> Dynamic {
    match value {
        Value::Null => Dynamic::UNIT,
        Value::Bool(b) => Dynamic::from_bool(*b),
        Value::Number(n) => number(n),
        Value::String(s) => Dynamic::from(s.clone()),
        Value::Array(items) => Dynamic::from_array(items.iter().map(to_dynamic).collect()),
        Value::Object(map) => Dynamic::from_map(to_map(map)),
    }
}

/// A JSON object for a script.
pub fn to_map(object: &Object) -> Map {
    object.iter().map(|(k, v)| (k.as_str().into(), to_dynamic(v))).collect()
}

/// A JSON number for a script.
pub fn number(n: &Number) -> Dynamic {
    match (n.as_i64(), n.as_u64(), n.as_f64()) {
        (Some(i), ..) => Dynamic::from_int(i),
        (_, Some(_), _) => Dynamic::from(n.to_string()),
        (_, _, Some(f)) => Dynamic::from_float(f),
        _ => Dynamic::from(n.to_string()),
    }
}

/// A script's value as JSON. Functions, ranges, host objects, NaN and infinities are refused, not printed.
pub fn from_dynamic(value: &Dynamic) -> Result<Value, NotJson> {
    convert(value, &mut Vec::new())
}

/// A script's object as a JSON object.
pub fn from_map(map: &Map) -> Result<Object, NotJson> {
    object(map, &mut Vec::new())
}

fn refuse<T>(path: &[String], what: impl Into<String>) -> Result<T, NotJson> {
    let steps = path.iter().flat_map(|step| ["/".to_owned(), json::pointer_token(step)]);
    Err(NotJson { path: steps.collect(), what: what.into() })
}

fn convert(value: &Dynamic, path: &mut Vec<String>) -> Result<Value, NotJson> {
    if path.len() > JSON_DEPTH_MAX {
        return refuse(path, format!("nested deeper than {JSON_DEPTH_MAX} levels"));
    }
    if value.is_unit() {
        Ok(Value::Null)
    } else if let Ok(b) = value.as_bool() {
        Ok(Value::Bool(b))
    } else if let Ok(i) = value.as_int() {
        Ok(Value::from(i))
    } else if let Ok(f) = value.as_float() {
        match Number::from_f64(f) {
            Some(n) => Ok(Value::Number(n)),
            None => refuse(path, format!("the number {f}")),
        }
    } else if let Ok(text) = value.as_immutable_string_ref() {
        Ok(Value::String(text.as_str().to_owned()))
    } else if let Ok(c) = value.as_char() {
        Ok(Value::String(c.to_string()))
    } else if let Ok(items) = value.as_array_ref() {
        array(&items, path)
    } else if let Ok(map) = value.as_map_ref() {
        object(&map, path).map(Value::Object)
    } else {
        let kind = value.type_name().rsplit("::").next().unwrap_or("a host object");
        refuse(path, format!("a {kind}"))
    }
}

fn array(items: &Array, path: &mut Vec<String>) -> Result<Value, NotJson> {
    let mut out = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        path.push(i.to_string());
        out.push(convert(item, path)?);
        path.pop();
    }
    Ok(Value::Array(out))
}

fn object(map: &Map, path: &mut Vec<String>) -> Result<Object, NotJson> {
    let mut out = Object::with_capacity(map.len());
    for (key, item) in map {
        path.push(key.to_string());
        out.insert(key.to_string(), convert(item, path)?);
        path.pop();
    }
    Ok(out)
}

/// A bounded list of JSON records outside the script's own memory: what does not fit is counted, not kept.
#[derive(Debug, Clone)]
pub struct Sink {
    records: Vec<Value>,
    bytes: usize,
    records_max: usize,
    bytes_max: usize,
    refused: usize,
}

impl Sink {
    /// A sink for at most so many records and bytes of compact JSON.
    pub fn new(records_max: usize, bytes_max: usize) -> Self {
        Self { records: Vec::new(), bytes: 0, records_max, bytes_max, refused: 0 }
    }

    /// Takes a record if it fits; `false` says it was counted only. After the first refusal all are refused,
    /// so that what is kept is a prefix.
    pub fn push(&mut self, record: &Dynamic) -> Result<bool, NotJson> {
        let value = from_dynamic(record)?;
        let bytes = json::encoded_len(&value) + usize::from(!self.records.is_empty());
        if self.refused > 0 || self.records.len() >= self.records_max || self.bytes + bytes > self.bytes_max {
            self.refused += 1;
            return Ok(false);
        }
        self.bytes += bytes;
        self.records.push(value);
        Ok(true)
    }

    /// Bytes of the records as compact JSON, with their commas.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records that did not fit.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// The records kept.
    pub fn into_records(self) -> Vec<Value> {
        self.records
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_comes_back_as_it_went_in() {
        let value = json!({"a": [1, -2.5, null, true, "x"], "b": {"c": i64::MIN}});
        assert_eq!(from_dynamic(&to_dynamic(&value)), Ok(value));
        let big = json!({"id": u64::MAX});
        assert_eq!(from_dynamic(&to_dynamic(&big)), Ok(json!({"id": "18446744073709551615"})));
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        let refused = |d: Dynamic| from_dynamic(&d).unwrap_err().to_string();
        assert_eq!(
            refused(Dynamic::from_float(f64::NAN)),
            "the value is the number NaN, which JSON has no form for"
        );
        let mut map = Map::new();
        map.insert("a/b".into(), Dynamic::from_array(vec![Dynamic::from(0..3i64)]));
        assert!(refused(Dynamic::from_map(map)).starts_with("/a~1b/0 is a "));
        let mut deep = Dynamic::UNIT;
        for _ in 0..200 {
            deep = Dynamic::from_array(vec![deep]);
        }
        assert!(refused(deep).contains("nested deeper"));
    }

    #[test]
    fn a_sink_keeps_a_prefix_and_counts_the_rest() {
        let mut sink = Sink::new(10, 8);
        let taken: Vec<bool> = ["\"ab\"", "\"abcdef\"", "1"]
            .iter()
            .map(|t| sink.push(&to_dynamic(&serde_json::from_str(t).unwrap())).unwrap())
            .collect();
        assert_eq!((taken, sink.refused(), sink.bytes()), (vec![true, false, false], 2, 4));
        assert_eq!(sink.into_records(), [json!("ab")]);
    }
}
