//! Arguments made from a schema, for tests: every member as deep as it is asked for, values of the right kind.

use serde_json::{Map, Value, json};

/// How deep optional members are filled.
const DEPTH: usize = 3;

/// Arguments for the tool with this input schema.
pub(super) fn arguments(schema: &Value, whole: bool) -> Value {
    let mut value = sample(schema, schema, whole, 0);
    set_base64(&mut value);
    value
}

/// Docent's own arguments for bytes.
fn set_base64(value: &mut Value) {
    for (name, member) in value.as_object_mut().into_iter().flatten() {
        if name.ends_with("base64") {
            *member = json!("aGk=");
        }
        set_base64(member);
    }
    value.as_array_mut().into_iter().flatten().for_each(set_base64);
}

/// A value for the schema `at` inside `root`; `whole` fills optional members too.
fn sample(root: &Value, at: &Value, whole: bool, depth: usize) -> Value {
    if let Some(reference) = at.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null);
        return sample(root, target, whole, depth + 1);
    }
    for key in ["const", "default"] {
        if let Some(value) = at.get(key).filter(|v| *v != "") {
            return value.clone();
        }
    }
    for key in ["enum", "examples"] {
        if let Some(value) = at.get(key).and_then(|v| v.get(0)) {
            return value.clone();
        }
    }
    let kind = at.get("type").and_then(|t| t.as_str().or_else(|| t.get(0)?.as_str()));
    let mut value = match kind {
        Some("object") => object(root, at, whole, depth),
        Some("array") => array(root, at, whole, depth),
        Some("string") => text(at),
        Some("integer") => number(at, true),
        Some("number") => number(at, false),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        _ if at.get("properties").is_some() => object(root, at, whole, depth),
        _ => Value::Null,
    };
    for key in ["oneOf", "anyOf", "allOf"] {
        let branches = at.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for branch in branches.iter().take(if key == "allOf" { branches.len() } else { 1 }) {
            // A choice that only names members is met by filling them.
            let names = branch.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            let more = match branch
                .get("properties")
                .or_else(|| branch.get("$ref"))
                .or_else(|| branch.get("type"))
            {
                Some(_) => sample(root, branch, whole, depth + 1),
                None => names
                    .iter()
                    .filter_map(Value::as_str)
                    .filter_map(|n| {
                        Some((n.to_owned(), sample(root, at.get("properties")?.get(n)?, whole, depth + 1)))
                    })
                    .collect::<Map<_, _>>()
                    .into(),
            };
            match (&mut value, more) {
                (Value::Object(map), Value::Object(more)) => map.extend(more),
                (value, more) if value.is_null() => *value = more,
                _ => {}
            }
        }
    }
    if value.is_null() && kind.is_none() { json!("x") } else { value }
}

fn object(root: &Value, at: &Value, whole: bool, depth: usize) -> Value {
    let required: Vec<&str> = at
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut out = Map::new();
    for (name, member) in at.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if required.contains(&name.as_str()) || (whole && depth < DEPTH) {
            out.insert(name.clone(), sample(root, member, whole, depth + 1));
        }
    }
    for name in required {
        out.entry(name).or_insert_with(|| json!("x"));
    }
    if out.is_empty()
        && whole
        && depth < DEPTH
        && let Some(member) = at.get("additionalProperties").filter(|a| a.is_object())
    {
        out.insert("key".to_owned(), sample(root, member, whole, depth + 1));
    }
    Value::Object(out)
}

fn array(root: &Value, at: &Value, whole: bool, depth: usize) -> Value {
    let least = at.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let unique = at.get("uniqueItems").is_some();
    let most = at.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let wanted = if unique || !whole { least.max(1) } else { least.max(2) }.min(most);
    let item = at.get("items").map_or(json!("x"), |i| sample(root, i, whole, depth + 1));
    Value::Array(vec![item; usize::try_from(wanted).unwrap()])
}

fn text(at: &Value) -> Value {
    let text = match at.get("format").and_then(Value::as_str) {
        Some("date") => "2026-01-02".to_owned(),
        Some("date-time") => "2026-01-02T03:04:05Z".to_owned(),
        Some("uuid") => "123e4567-e89b-12d3-a456-426614174000".to_owned(),
        Some("email") => "a@example.com".to_owned(),
        Some("uri" | "url") => "https://example.com/a?b=c".to_owned(),
        Some("byte") => "aGk=".to_owned(),
        Some("ipv4") => "192.0.2.1".to_owned(),
        _ => "a b/c?d=e".to_owned(),
    };
    if at.get("pattern").is_some() {
        return json!("abc");
    }
    let size = |key: &str| at.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let mut text: String = text.chars().take(size("maxLength").unwrap_or(usize::MAX)).collect();
    while text.chars().count() < size("minLength").unwrap_or(0).min(10_000) {
        text.push('x');
    }
    json!(text)
}

fn number(at: &Value, whole: bool) -> Value {
    let bound = |key: &str| at.get(key).and_then(Value::as_f64);
    let mut n = bound("minimum").or_else(|| bound("exclusiveMinimum").map(|m| m + 1.0)).unwrap_or(1.0);
    if let Some(most) = bound("maximum").or_else(|| bound("exclusiveMaximum").map(|m| m - 1.0)) {
        n = n.min(most);
    }
    if let Some(step) = bound("multipleOf") {
        n = (n / step).ceil() * step;
    }
    if whole || n.fract() == 0.0 {
        let text = format!("{n:.0}");
        return text.parse::<i64>().map_or(json!(1), Value::from);
    }
    json!(n)
}
