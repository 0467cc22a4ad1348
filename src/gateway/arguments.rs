//! Arguments against a tool's strict schema, with errors that name the key and the way out.
//!
//! A rejected value is never repeated in a message: it may be a secret put in the wrong place.

use serde_json::{Value, json};

use crate::call::{ErrorCode, ToolError};
use crate::diagnostic::did_you_mean;
use crate::json::{self, Object, cut};
use crate::schema::{SchemaProblem, SchemaText, Validators};

/// Bytes of a pointer in an error: the caller's own key, but not a book of it.
const POINTER_BYTES_MAX: usize = 120;
/// Bytes of one problem's text: an `enum` of a thousand words says enough at its beginning.
const PROBLEM_BYTES_MAX: usize = 300;
/// Problems that are told one by one; of the others their number. A caller can send as many as a body holds.
const PROBLEMS_TOLD_MAX: usize = 16;

/// Checks arguments. `Err` is the finished answer; a schema that cannot be compiled lets them pass, since
/// the upstream has the last word anyway. What stands at one of `places` is put in later (a file) and not judged.
pub(super) fn check(
    validators: &Validators,
    tool: &str,
    schema: &SchemaText,
    arguments: &mut Object,
    places: &[&str],
) -> Result<(), ToolError> {
    // The validator wants a value: the map is lent to one, not copied.
    let value = Value::Object(std::mem::take(arguments));
    let checked = validators.check(schema, &value).map(|mut problems| {
        problems.retain(|p| !places.iter().any(|place| is_at(&p.pointer, place)));
        problems
    });
    if let Value::Object(map) = value {
        *arguments = map;
    }
    match checked {
        Ok(problems) if problems.is_empty() => Ok(()),
        Ok(problems) => Err(refusal(tool, &schema.value(), arguments, problems)),
        Err(reason) => {
            tracing::debug!(tool.id = tool, error = reason, "input schema cannot be compiled");
            Ok(())
        }
    }
}

/// Whether a pointer leads to a place or below it.
fn is_at(pointer: &str, place: &str) -> bool {
    pointer.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn refusal(tool: &str, schema: &Value, arguments: &Object, problems: Vec<SchemaProblem>) -> ToolError {
    let (mut found, more) = unknown_keys(schema, arguments);
    found.extend(missing_keys(schema, arguments));
    // What the root says about unknown and missing keys has been said better above.
    let said = !found.is_empty();
    found.extend(problems.into_iter().filter(|p| !(said && p.pointer.is_empty())));
    let more = more + found.len().saturating_sub(PROBLEMS_TOLD_MAX);
    found.truncate(PROBLEMS_TOLD_MAX);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    let text: Vec<String> = found.iter().map(sentence).collect();
    let list: Vec<Value> = found
        .iter()
        .map(|p| json!({"field": cut(&p.pointer, POINTER_BYTES_MAX), "message": cut(&p.message, PROBLEM_BYTES_MAX)}))
        .collect();
    let field = found.first().map(|p| cut(&p.pointer, POINTER_BYTES_MAX).to_owned()).unwrap_or_default();
    let mut error = ToolError::new(
        ErrorCode::InvalidArgument,
        format!(
            "The arguments of `{tool}` do not fit: {}{rest}. Correct them and call again.",
            text.join("; ")
        ),
    )
    .field(field);
    if list.len() > 1 {
        error = error.details(match more {
            0 => json!({ "problems": list }),
            _ => json!({ "problems": list, "more": more }),
        });
    }
    error
}

fn sentence(problem: &SchemaProblem) -> String {
    let message = cut(&problem.message, PROBLEM_BYTES_MAX).trim_end_matches('.');
    match cut(&problem.pointer, POINTER_BYTES_MAX) {
        "" => message.to_owned(),
        pointer => format!("`{pointer}`: {message}"),
    }
}

/// A key as a JSON Pointer (RFC 6901 §3).
fn pointer(key: &str) -> String {
    format!("/{}", json::pointer_token(key))
}

/// The first unknown keys, and how many more there are.
fn unknown_keys(schema: &Value, arguments: &Object) -> (Vec<SchemaProblem>, usize) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let open = schema.get("additionalProperties") != Some(&Value::Bool(false))
        || schema.get("patternProperties").is_some();
    if open {
        return (Vec::new(), 0);
    }
    let known: Vec<&str> = properties.into_iter().flat_map(|p| p.keys().map(String::as_str)).collect();
    let mut unknown = arguments.keys().filter(|key| !properties.is_some_and(|p| p.contains_key(*key)));
    let told = unknown
        .by_ref()
        .take(PROBLEMS_TOLD_MAX)
        .map(|key| {
            let near = did_you_mean(key, known.iter().copied().filter(|k| !arguments.contains_key(*k)));
            let message = match near {
                Some(near) => format!("unknown argument, did you mean `{near}`?"),
                None if known.is_empty() => "unknown argument, none are taken".to_owned(),
                None => format!("unknown argument, known are {}", known.join(", ")),
            };
            SchemaProblem { pointer: pointer(key), message }
        })
        .collect();
    (told, unknown.count())
}

fn missing_keys(schema: &Value, arguments: &Object) -> Vec<SchemaProblem> {
    let required = schema.get("required").and_then(Value::as_array);
    required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|key| !arguments.contains_key(*key))
        .map(|key| SchemaProblem { pointer: pointer(key), message: "is required".to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(arguments: &Value) -> ToolError {
        let schema = SchemaText::of(&json!({
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "maximum": 100}, "a/b": {"type": "array", "items": {"type": "string"}}},
            "required": ["query"],
            "additionalProperties": false,
        }));
        let mut given = arguments.as_object().unwrap().clone();
        let error = check(&Validators::default(), "git.log", &schema, &mut given, &[]).unwrap_err();
        assert_eq!(&Value::Object(given), arguments, "they are given back");
        error
    }

    #[test]
    fn the_bad_key_is_named_and_the_near_one_suggested() {
        let e = error(&json!({"query": "x", "limt": 3}));
        assert_eq!(e.field.as_deref(), Some("/limt"));
        assert!(e.message.contains("did you mean `limit`?"), "{e}");
        assert!(!e.retryable && e.code == ErrorCode::InvalidArgument);
    }

    #[test]
    fn all_problems_are_told_without_the_values() {
        let e = error(&json!({"limit": "s3cret", "a/b": [1]}));
        assert_eq!(e.field.as_deref(), Some("/query"));
        assert!(e.message.contains("`/query`: is required"), "{e}");
        assert!(e.message.contains("`/limit`: ") && e.message.contains("`/a~1b/0`: "), "{e}");
        assert!(!e.message.contains("s3cret"), "{e}");
        assert_eq!(e.details.unwrap()["problems"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn however_many_problems_there_are_the_answer_is_short_and_says_so() {
        let flood: Object = (0..5_000).map(|n| (format!("{n:0>200}"), json!(1))).collect();
        let e = error(&Value::Object(flood));
        assert!(e.message.ends_with("; and 4985 more. Correct them and call again."), "{}", e.message);
        assert!(e.message.len() < 8_000, "{} bytes", e.message.len());
        let details = e.details.unwrap();
        assert_eq!(details["problems"].as_array().unwrap().len(), PROBLEMS_TOLD_MAX);
        // 5,000 unknown ones and a missing one.
        assert_eq!(details["more"], 5_001 - PROBLEMS_TOLD_MAX);
        assert_eq!(error(&json!({"a": 1})).details.unwrap().get("more"), None);
    }

    #[test]
    fn a_schema_that_does_not_compile_stops_nothing() {
        let schema = SchemaText::of(&json!({"$ref": "http://127.0.0.1:1/x.json"}));
        assert_eq!(check(&Validators::default(), "x", &schema, &mut Object::new(), &[]), Ok(()));
    }
}
