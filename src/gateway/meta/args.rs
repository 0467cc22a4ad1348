//! Reading arguments that have already passed a meta-tool's schema: nothing is guessed, nothing defaulted here.

use serde_json::Value;

use crate::json::Object;

/// A string.
pub(in super::super) fn text<'a>(arguments: &'a Object, key: &str) -> Option<&'a str> {
    arguments.get(key).and_then(Value::as_str)
}

/// A whole number. JSON Schema counts `5.0` among them, so it is taken as well.
pub(in super::super) fn number(arguments: &Object, key: &str) -> Option<u64> {
    let value = arguments.get(key)?;
    value.as_u64().or_else(|| {
        let text = format!("{:.0}", value.as_f64()?);
        text.parse().ok()
    })
}

/// The same as a size.
pub(in super::super) fn size(arguments: &Object, key: &str) -> Option<usize> {
    number(arguments, key).and_then(|n| usize::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_are_taken_in_both_spellings() {
        let arguments = json!({"a": 5, "b": 5.0, "c": "5"});
        let read = |k| size(arguments.as_object().unwrap(), k);
        assert_eq!((read("a"), read("b"), read("c"), read("d")), (Some(5), Some(5), None, None));
    }
}
