//! The arguments of a call in a few words, for the person who is asked about it.

use serde_json::Value;

use crate::json::{Object, cut};

/// Characters of one text that are shown; a longer one is told by its length.
const TEXT_CHARS_MAX: usize = 50;
/// Bytes of a whole summary: it stands in a dialog.
const BYTES_MAX: usize = 300;
/// Names whose values nobody needs to read to answer.
const SECRET_WORDS: [&str; 6] = ["password", "passwd", "secret", "token", "api_key", "apikey"];

/// One level of the arguments: small values as they are, the rest by their size.
pub(super) fn of(arguments: &Object) -> String {
    let parts: Vec<String> =
        arguments.iter().map(|(name, value)| format!("{}: {}", cut(name, 60), shown(name, value))).collect();
    let whole = parts.join(", ");
    if whole.len() <= BYTES_MAX {
        return whole;
    }
    format!("{}… ({} arguments)", cut(&whole, BYTES_MAX), arguments.len())
}

fn shown(name: &str, value: &Value) -> String {
    let name = name.to_ascii_lowercase();
    if SECRET_WORDS.iter().any(|w| name.contains(w)) {
        return "(not shown)".to_owned();
    }
    match value {
        Value::String(text) => {
            let chars = text.chars().count();
            if chars > TEXT_CHARS_MAX { format!("(a text of {chars} characters)") } else { value.to_string() }
        }
        Value::Array(items) => format!("({} items)", items.len()),
        Value::Object(members) => format!("({} members)", members.len()),
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_is_short_and_keeps_secrets() {
        let of = |v: Value| of(v.as_object().unwrap());
        assert_eq!(of(json!({"a": 1, "b": "x\ny"})), r#"a: 1, b: "x\ny""#);
        let long = json!({"api_Token": "abc", "list": [1, 2], "map": {"k": 1}, "text": "é".repeat(51)});
        assert_eq!(
            of(long),
            "api_Token: (not shown), list: (2 items), map: (1 members), text: (a text of 51 characters)"
        );
        let many: Object = (0..100).map(|n| (format!("name{n}"), json!("é".repeat(20)))).collect();
        assert!(super::of(&many).len() < 340 && super::of(&many).ends_with("… (100 arguments)"));
    }
}
