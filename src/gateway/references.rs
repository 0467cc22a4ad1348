//! Arguments that stand for something else: `{"$result": …}`, `{"$file": …}`. Where they stand, found in one walk
//! that builds no path before there is something to name.

use serde_json::Value;

use crate::json::{self, Object};
use crate::limits::JSON_DEPTH_MAX;

/// The places in `arguments`, as JSON Pointers, of the objects that `takes` names, with what it makes of them; at
/// most `most` and one more, for saying that there are too many. What is found is not looked into.
pub(super) fn find<T>(
    arguments: &Object,
    most: usize,
    takes: impl Fn(&Object) -> Option<T>,
) -> Vec<(String, T)> {
    let mut walk = Walk { path: Vec::new(), found: Vec::new(), most, takes };
    walk.members(arguments);
    walk.found
}

enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

struct Walk<'a, T, F> {
    path: Vec<Step<'a>>,
    found: Vec<(String, T)>,
    most: usize,
    takes: F,
}

impl<'a, T, F: Fn(&Object) -> Option<T>> Walk<'a, T, F> {
    fn members(&mut self, map: &'a Object) {
        for (name, value) in map {
            self.value(Step::Name(name), value);
        }
    }

    fn value(&mut self, step: Step<'a>, value: &'a Value) {
        if !matches!(value, Value::Object(_) | Value::Array(_))
            || self.path.len() > JSON_DEPTH_MAX
            || self.found.len() > self.most
        {
            return;
        }
        self.path.push(step);
        match value {
            Value::Object(map) => match (self.takes)(map) {
                Some(what) => self.found.push((self.place(), what)),
                None => self.members(map),
            },
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.value(Step::Index(at), item);
                }
            }
            _ => {}
        }
        self.path.pop();
    }

    fn place(&self) -> String {
        let step = |step: &Step<'_>| match step {
            Step::Name(name) => format!("/{}", json::pointer_token(name)),
            Step::Index(at) => format!("/{at}"),
        };
        self.path.iter().map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn places(value: &Value, most: usize) -> Vec<String> {
        let takes = |map: &Object| map.contains_key("$x").then_some(());
        find(value.as_object().unwrap(), most, takes).into_iter().map(|(place, ())| place).collect()
    }

    #[test]
    fn places_are_pointers_and_what_is_found_is_not_looked_into() {
        let value = json!({"a/b": [1, {"$x": {"$x": 1}}], "c": {"d~": {"$x": 7}}, "e": "$x", "$x": 1});
        assert_eq!(places(&value, 10), ["/a~1b/1", "/c/d~0"]);
        let many = json!({ "l": vec![json!({"$x": 1}); 9] });
        assert_eq!(places(&many, 3).len(), 4, "one more tells that there are too many");
    }
}
