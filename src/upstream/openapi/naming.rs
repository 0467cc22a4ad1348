//! Names: of tools from operationIds, of arguments from parameters and fields. Deterministic, bounded, unique.

use std::collections::HashSet;

/// Bytes of a tool's local name: with the upstream's it stays under `ID_BYTES_MAX`.
const NAME_BYTES_MAX: usize = 120;
/// Bytes of an argument's name: Anthropic's API takes `[a-zA-Z0-9_.-]{1,64}` as a property key at the root.
const ARGUMENT_BYTES_MAX: usize = 64;
/// Characters of the suffix of a name that was cut.
const SUFFIX: usize = 8;

/// The local name of an operationId; empty where nothing of it is left.
pub(super) fn operation_name(id: &str) -> String {
    fit(squash(id, |c| matches!(c, '-' | '.')), NAME_BYTES_MAX, id)
}

/// The name of an operation without an id: `get_users_id` of `GET /users/{id}`.
pub(super) fn derived_name(method: &str, path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let text = format!("{}_{path}", method.to_ascii_lowercase());
    fit(squash(&text, |c| c == '-'), NAME_BYTES_MAX, &text)
}

/// Letters, digits, `_` and what `keep` keeps; every run of anything else is one `_`, none at the ends.
fn squash(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || keep(c) {
            out.push(c);
        } else if !out.ends_with('_') && !out.is_empty() {
            out.push('_');
        }
    }
    out.trim_matches(|c| matches!(c, '_' | '.' | '-')).to_owned()
}

fn fit(name: String, max: usize, whole: &str) -> String {
    if name.len() <= max {
        return name;
    }
    let hash = blake3::hash(whole.as_bytes()).to_hex();
    let suffix: String = hash.chars().take(SUFFIX).collect();
    // The name is ASCII by now.
    let head: String = name.chars().take(max - SUFFIX - 1).collect();
    format!("{}_{suffix}", head.trim_end_matches('_'))
}

/// A name that nobody has yet: the wanted one, else with `_2`, `_3`, …
pub(super) fn unique(wanted: &str, taken: &mut HashSet<String>) -> String {
    let mut name = wanted.to_owned();
    let mut n = 2usize;
    while !taken.insert(name.clone()) {
        name = format!("{wanted}_{n}");
        n += 1;
    }
    name
}

/// The argument name of a parameter or field: `filter[name]` gives `filter_name`, `$top` gives `top`. A leading
/// underscore is part of a name.
pub(super) fn argument_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if !name.is_empty() && name.len() <= ARGUMENT_BYTES_MAX && name.chars().all(plain) {
        return name.to_owned();
    }
    let squashed = squash(name, |c| matches!(c, '.' | '-'));
    fit(if squashed.is_empty() { "arg".to_owned() } else { squashed }, ARGUMENT_BYTES_MAX, name)
}

/// Hands out argument names of one tool: the first to ask for a name gets it, a later one is told apart by its
/// place (`header_x`, `body_name`), then by number.
#[derive(Debug, Default)]
pub(super) struct ArgumentNames {
    taken: HashSet<String>,
}

impl ArgumentNames {
    /// Whether a name is free as it is.
    pub(super) fn is_free(&self, name: &str) -> bool {
        !self.taken.contains(&argument_name(name))
    }

    /// A name for `name` at `place`.
    pub(super) fn give(&mut self, name: &str, place: &str) -> String {
        let wanted = argument_name(name);
        if self.taken.insert(wanted.clone()) {
            return wanted;
        }
        unique(&argument_name(&format!("{place}_{wanted}")), &mut self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_get_plain_names() {
        assert_eq!(operation_name("repos/get-content"), "repos_get-content");
        assert_eq!(operation_name("  Add Pet! "), "Add_Pet");
        assert_eq!(operation_name("日本"), "");
        assert_eq!(derived_name("GET", "/users/{id}/"), "get_users_id");
        assert_eq!(derived_name("GET", "/"), "get");
        let long = operation_name(&"x".repeat(300));
        assert!(long.len() == NAME_BYTES_MAX && long != operation_name(&"x".repeat(301)));
    }

    #[test]
    fn arguments_are_told_apart_by_place_then_number() {
        let mut names = ArgumentNames::default();
        assert_eq!(names.give("id", "path"), "id");
        assert_eq!(names.give("id", "query"), "query_id");
        assert_eq!(names.give("id", "query"), "query_id_2");
        assert_eq!(names.give("$top", "query"), "top");
        assert_eq!(names.give("filter[name]", "query"), "filter_name");
        assert_eq!(names.give("_embed", "query"), "_embed");
        assert_eq!(names.give("ids[]", "query"), "ids");
        assert_eq!(names.give("[]", "query"), "arg");
        assert!(!names.is_free("$top") && names.is_free("x"));
    }
}
