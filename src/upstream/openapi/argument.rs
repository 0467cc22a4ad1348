//! The arguments of one tool: names, schemas and what is required, together one root object.

use serde_json::{Value, json};

use super::naming::ArgumentNames;
use super::operation::{Location, Rename};
use super::text::{ARGUMENT_CHARS_MAX, clean};
use crate::json::Object;

/// Collects the arguments of a tool in order.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub names: ArgumentNames,
    properties: Object,
    required: Vec<Value>,
    pub renames: Vec<Rename>,
    /// What further arguments may be: members of an open body. `false` where the body is closed or there is none.
    pub additional: Option<Value>,
    /// Conditions between body members that hold for the root, e.g. `anyOf` of `required` lists.
    pub conditions: Object,
}

impl Arguments {
    /// Adds an argument for `name` at `location` and gives its name.
    pub(super) fn add(
        &mut self,
        name: &str,
        location: Location,
        mut schema: Value,
        required: bool,
    ) -> String {
        let argument = self.names.give(name, location.as_str());
        if argument != name {
            self.renames.push(Rename { argument: argument.clone(), location, name: name.to_owned() });
            let place = match location {
                Location::Body => format!("(body member `{name}`)"),
                other => format!("({} parameter `{name}`)", other.as_str()),
            };
            describe(&mut schema, &place);
        }
        self.add_as(argument, schema, required)
    }

    /// Adds an argument under a name that [`ArgumentNames`] has given out, and gives that name back.
    pub(super) fn add_as(&mut self, argument: String, schema: Value, required: bool) -> String {
        if required {
            self.required.push(Value::from(argument.clone()));
        }
        self.properties.insert(argument.clone(), schema);
        argument
    }

    /// The root schema.
    pub(super) fn into_root(self) -> Object {
        let mut root = Object::new();
        root.insert("type".to_owned(), Value::from("object"));
        root.insert("properties".to_owned(), Value::Object(self.properties));
        if !self.required.is_empty() {
            root.insert("required".to_owned(), Value::Array(self.required));
        }
        root.insert("additionalProperties".to_owned(), self.additional.unwrap_or(Value::Bool(false)));
        root.extend(self.conditions);
        root
    }
}

/// Appends to a schema's description.
fn describe(schema: &mut Value, more: &str) {
    if schema == &Value::Bool(true) {
        *schema = json!({});
    }
    if let Value::Object(map) = schema {
        let text = match map.get("description").and_then(Value::as_str) {
            Some(text) => format!("{text} {more}"),
            None => more.to_owned(),
        };
        map.insert("description".to_owned(), Value::from(text));
    }
}

/// Gives a schema the description that stands at its parameter, where there is one.
pub(super) fn described(schema: Value, text: Option<&str>) -> Value {
    let text = text.map(|t| clean(t, ARGUMENT_CHARS_MAX)).filter(|t| !t.is_empty());
    match (schema, text) {
        (Value::Object(mut map), Some(text)) => {
            map.insert("description".to_owned(), Value::from(text));
            Value::Object(map)
        }
        (Value::Bool(true), Some(text)) => json!({"description": text}),
        (schema, _) => schema,
    }
}
