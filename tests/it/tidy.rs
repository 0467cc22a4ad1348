//! The house rules as tests: ranks, who may know which crate, file heads, sizes, declared test files,
//! nothing of a machine in the tree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The ranks of `ARCHITECTURE.md`, lowest first: a module names only modules of lower ranks.
pub(crate) const RANKS: &[&[&str]] = &[
    &["limits"],
    &["id", "json", "clock", "eager", "secret", "diagnostic"],
    &["call", "cursor", "media", "schema", "settings", "store"],
    &["catalog", "script"],
    &["policy", "projection", "search"],
    &["upstream", "cache", "auth", "audit", "files", "jobs"],
    &["snapshot"],
    &["gateway"],
    &["mcp"],
    &["transport"],
    &["config"],
    &["app"],
    &["cli"],
];

/// Crates that only one module may name.
const OWNERS: &[(&str, &str)] = &[
    ("rhai", "script"),
    ("tantivy", "search"),
    ("moka", "cache"),
    ("axum", "transport"),
    ("clap", "cli"),
    ("notify", "snapshot"),
    ("reqwest", "upstream"),
    ("jsonschema", "schema"),
    ("rusqlite", "store"),
];

/// No source file is longer: a file has one subject.
const FILE_LINES_MAX: usize = 600;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return out };
    for entry in entries.map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            out.extend(files_below(&entry, ending));
        } else if entry.to_string_lossy().ends_with(ending) {
            out.push(entry);
        }
    }
    out.sort();
    out
}

fn module_of(file: &Path) -> String {
    let below = file.strip_prefix(root().join("src")).unwrap();
    below.iter().next().unwrap().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// The code of a file without comments; a `#[cfg(test)] mod` at its end is cut off.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    text.lines().map(|l| l.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

fn names_of_crate(code: &str) -> Vec<String> {
    let mut out = Vec::new();
    for part in code.split("crate::").skip(1) {
        if let Some(list) = part.strip_prefix('{') {
            let (mut depth, mut word) = (0, String::new());
            for c in list.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => out.push(std::mem::take(&mut word)),
                    _ if depth == 0 => word.push(c),
                    _ => {}
                }
            }
            out.push(word);
        } else {
            out.push(part.to_owned());
        }
    }
    out.iter()
        .map(|n| n.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
        .filter(|n| !n.is_empty())
        .collect()
}

#[test]
fn modules_name_only_lower_ranks() {
    let rank: BTreeMap<&str, usize> =
        RANKS.iter().enumerate().flat_map(|(r, names)| names.iter().map(move |n| (*n, r))).collect();
    let mut wrong = Vec::new();
    for file in files_below(&root().join("src"), ".rs") {
        let module = module_of(&file);
        if matches!(module.as_str(), "lib" | "main") {
            continue;
        }
        let own = *rank
            .get(module.as_str())
            .unwrap_or_else(|| panic!("`{module}` has no rank in tests/it/tidy.rs"));
        for name in names_of_crate(&code(&std::fs::read_to_string(&file).unwrap())) {
            match rank.get(name.as_str()) {
                Some(other) if name == module || *other < own => {}
                Some(other) => {
                    wrong.push(format!("{}: rank {own} names `{name}` of rank {other}", file.display()));
                }
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "upward or sideways names:\n{}", wrong.join("\n"));
}

#[test]
fn a_crate_is_known_by_its_owner_only() {
    let mut wrong = Vec::new();
    for file in files_below(&root().join("src"), ".rs") {
        let text = code(&std::fs::read_to_string(&file).unwrap());
        for (name, owner) in OWNERS {
            let named = text.contains(&format!("{name}::")) || text.contains(&format!("use {name};"));
            if named && module_of(&file) != *owner {
                wrong.push(format!("{} names `{name}`, which belongs to `{owner}`", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is_and_has_one_subject() {
    let mut wrong = Vec::new();
    for dir in ["src", "tests", "benches", "examples"] {
        for file in files_below(&root().join(dir), ".rs") {
            let text = std::fs::read_to_string(&file).unwrap();
            if !text.starts_with("//! ") {
                wrong.push(format!("{} does not begin with `//! `", file.display()));
            }
            if text.lines().count() > FILE_LINES_MAX {
                wrong.push(format!(
                    "{} has {} lines, {FILE_LINES_MAX} are allowed",
                    file.display(),
                    text.lines().count()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_test_file_is_declared() {
    let main = std::fs::read_to_string(root().join("tests/it/main.rs")).unwrap();
    for entry in std::fs::read_dir(root().join("tests/it")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().trim_end_matches(".rs").to_owned();
        if name != "main" && name != "snapshots" && !name.contains('.') {
            assert!(
                main.contains(&format!("mod {name};")),
                "tests/it/{name}.rs is not declared in tests/it/main.rs"
            );
        }
    }
}

#[test]
fn there_is_no_mod_rs_and_no_name_of_a_machine() {
    let mut wrong = Vec::new();
    for dir in ["src", "tests", "benches", "scripts", "policies", "index", ".ci", "examples", "docs"] {
        for file in files_below(&root().join(dir), "") {
            if file.file_name().is_some_and(|n| n == "mod.rs") {
                wrong.push(format!("{}: use foo.rs beside foo/", file.display()));
            }
            let text = std::fs::read(&file).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            for part in [["/work", "/"].concat(), ["/root", "/"].concat()] {
                if text.contains(&part) {
                    wrong.push(format!("{} holds a path of one machine", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
