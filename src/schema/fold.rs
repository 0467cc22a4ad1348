//! Folding a root: what providers refuse at the root of an input schema (`anyOf`, `oneOf`, `allOf`, `not`, …)
//! goes, and its members stay.
//!
//! Anthropic's and OpenAI's APIs reject the whole request over one such root (facts: 84, 85). The folded schema
//! is for showing: it takes everything that the strict one takes, and more; the strict one validates.

use serde_json::{Value, json};

use crate::json::{self, Object};

/// Branches folded at most, nested ones included.
const BRANCHES_MAX: usize = 256;
/// Combinators inside combinators, and references to definitions, followed from the root.
const LEVELS_MAX: usize = 16;
/// Keywords that only restrict the whole object and have no place at a wire root.
const DROPPED: [&str; 14] = [
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "enum",
    "const",
    "$ref",
    "dependentSchemas",
    "dependentRequired",
    "unevaluatedProperties",
    "nullable",
];

/// The schema with an object at its root and no combinator there; `None` where it is like that already.
pub fn fold(schema: &Value) -> Option<Value> {
    let Some(root) = schema.as_object() else { return Some(json!({"type": "object"})) };
    let is_object = root.get("type").is_some_and(|t| t == "object");
    if is_object && DROPPED.iter().all(|k| !root.contains_key(*k)) {
        return None;
    }
    let mut fold = Fold { root, branches: 0 };
    let mut gathered = fold.gather(root, 0);
    let mut out = Object::new();
    out.insert("type".to_owned(), Value::from("object"));
    let mut note = String::new();
    for key in ["anyOf", "oneOf"] {
        note.push_str(&alternatives(root, key));
    }
    for (key, value) in root {
        if !DROPPED.contains(&key.as_str())
            && !matches!(key.as_str(), "type" | "properties" | "required" | "description")
        {
            out.insert(key.clone(), value.clone());
        }
    }
    let own = root.get("description").and_then(Value::as_str).unwrap_or_default();
    let description =
        [own, note.trim()].iter().filter(|t| !t.is_empty()).copied().collect::<Vec<_>>().join(" ");
    if !description.is_empty() {
        out.insert("description".to_owned(), Value::from(description));
    }
    let properties: Object = std::mem::take(&mut gathered.properties)
        .into_iter()
        .map(|(name, mut schemas)| {
            let schema = if schemas.len() == 1 { schemas.swap_remove(0) } else { json!({"anyOf": schemas}) };
            (name, schema)
        })
        .collect();
    out.insert("properties".to_owned(), Value::Object(properties));
    if !gathered.required.is_empty() {
        out.insert("required".to_owned(), json!(gathered.required));
    }
    // A branch may allow what the root does not name; a closed root closes only over its own members.
    if gathered.open_branches && out.get("additionalProperties") == Some(&Value::Bool(false)) {
        out.shift_remove("additionalProperties");
    }
    Some(Value::Object(out))
}

/// What one schema and its branches say together.
#[derive(Default)]
struct Gathered {
    /// Members with their different schemas, in order.
    properties: Vec<(String, Vec<Value>)>,
    /// Members that every value has.
    required: Vec<String>,
    /// Whether a branch has members that the root does not name.
    open_branches: bool,
}

struct Fold<'s> {
    root: &'s Object,
    branches: usize,
}

impl<'s> Fold<'s> {
    fn gather(&mut self, schema: &'s Object, level: usize) -> Gathered {
        let mut out = Gathered::default();
        for (name, member) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            out.add(name, member);
        }
        out.require(strings(schema.get("required")));
        if level >= LEVELS_MAX {
            return out;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|r| self.definition(r)) {
            let inner = self.branch(target, level);
            out.and(inner);
        }
        for branch in objects(schema.get("allOf")) {
            let inner = self.branch(branch, level);
            out.and(inner);
        }
        for key in ["anyOf", "oneOf"] {
            let inner: Vec<Gathered> = objects(schema.get(key)).map(|b| self.branch(b, level)).collect();
            out.and_one_of(inner);
        }
        for key in ["then", "else"] {
            if let Some(branch) = schema.get(key).and_then(Value::as_object) {
                let inner = self.branch(branch, level);
                // Neither branch has to hold.
                out.and(Gathered { required: Vec::new(), ..inner });
            }
        }
        for (_, dependent) in schema.get("dependentSchemas").and_then(Value::as_object).into_iter().flatten()
        {
            if let Some(branch) = dependent.as_object() {
                let inner = self.branch(branch, level);
                out.and(Gathered { required: Vec::new(), ..inner });
            }
        }
        out
    }

    fn branch(&mut self, schema: &'s Object, level: usize) -> Gathered {
        self.branches += 1;
        if self.branches > BRANCHES_MAX { Gathered::default() } else { self.gather(schema, level + 1) }
    }

    /// The definition that a local reference names.
    fn definition(&self, reference: &str) -> Option<&'s Object> {
        let path = reference.strip_prefix("#/")?;
        let mut parts = path.split('/').map(json::pointer_name);
        let mut at = self.root.get(&parts.next()?)?;
        for part in parts {
            at = at.get(&part)?;
        }
        at.as_object()
    }
}

impl Gathered {
    fn add(&mut self, name: &str, schema: &Value) {
        match self.properties.iter_mut().find(|(n, _)| n == name) {
            Some((_, schemas)) if schemas.contains(schema) => {}
            Some((_, schemas)) => schemas.push(schema.clone()),
            None => self.properties.push((name.to_owned(), vec![schema.clone()])),
        }
    }

    fn require(&mut self, names: Vec<String>) {
        for name in names {
            if !self.required.contains(&name) {
                self.required.push(name);
            }
        }
    }

    /// Both hold.
    fn and(&mut self, other: Self) {
        self.open_branches |= other.open_branches;
        for (name, schemas) in other.properties {
            self.open_branches |= !self.properties.iter().any(|(n, _)| *n == name);
            for schema in &schemas {
                self.add(&name, schema);
            }
        }
        self.require(other.required);
    }

    /// One of them holds: members of all, required what all require.
    fn and_one_of(&mut self, branches: Vec<Self>) {
        let mut branches = branches.into_iter();
        let Some(mut all) = branches.next() else { return };
        for next in branches {
            all.required.retain(|name| next.required.contains(name));
            all.and(Self { required: Vec::new(), ..next });
        }
        self.and(all);
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn objects(value: Option<&Value>) -> impl Iterator<Item = &Object> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

/// What the alternatives of a root were, for the reader: the members that each requires.
fn alternatives(root: &Object, key: &str) -> String {
    let lists: Vec<String> = objects(root.get(key))
        .map(|b| strings(b.get("required")))
        .filter(|names| !names.is_empty())
        .take(12)
        .map(|names| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(" and "))
        .collect();
    match lists.len() {
        0 => String::new(),
        _ if key == "oneOf" => format!(" Give exactly one of: {}.", lists.join("; ")),
        _ => format!(" Give at least one of: {}.", lists.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_object_is_left_alone() {
        assert_eq!(
            fold(&json!({"type": "object", "properties": {"a": {"anyOf": [{}, {"type": "null"}]}}})),
            None
        );
    }

    #[test]
    fn alternatives_give_their_members_and_what_all_require() {
        let folded = fold(&json!({
            "description": "D.",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
            "oneOf": [
                {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
                {"properties": {"kind": {"const": "b"}}, "required": ["kind"]}
            ]
        }))
        .unwrap();
        let expected = json!({
            "type": "object",
            "description": "D. Give exactly one of: `kind` and `x`; `kind`.",
            "properties": {
                "id": {"type": "string"},
                "kind": {"anyOf": [{"const": "a"}, {"const": "b"}]},
                "x": {"type": "integer"}
            },
            "required": ["id", "kind"]
        });
        assert_eq!(folded, expected);
        assert_eq!(fold(&folded), None);
    }

    #[test]
    fn references_and_all_of_are_followed_and_rings_end() {
        let folded = fold(&json!({
            "$ref": "#/$defs/A",
            "$defs": {
                "A": {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"x": {"type": "string"}}, "required": ["x"]}]},
            }
        }))
        .unwrap();
        assert_eq!(folded["properties"], json!({"x": {"type": "string"}}));
        assert_eq!(folded["required"], json!(["x"]));
        assert!(folded["$defs"]["A"].is_object());
    }

    #[test]
    fn a_root_that_is_no_object_becomes_one() {
        assert_eq!(fold(&json!(true)), Some(json!({"type": "object"})));
        let folded = fold(&json!({"type": ["object", "null"], "additionalProperties": false, "then": {"properties": {"a": {}}, "required": ["a"]}})).unwrap();
        assert_eq!(folded, json!({"type": "object", "properties": {"a": {}}}));
    }
}
