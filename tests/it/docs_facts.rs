//! The documents against the source: limits, error codes, commands, settings, meta-tools, ranks, snippets.

use std::collections::{BTreeMap, BTreeSet};

use docent::call::ErrorCode;
use docent::snapshot::MetaTool;

use crate::support::{TestHome, docent, root};
use crate::tidy::RANKS;

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// The cells of the tables of a text, row by row.
fn rows(text: &str) -> Vec<Vec<String>> {
    let cells = |l: &str| l.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    text.lines().filter(|l| l.starts_with('|')).map(cells).collect()
}

/// The words between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A number with a unit, in bytes or milliseconds or as it is.
fn amount(text: &str) -> u64 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: u64 = number.replace(',', "").parse().unwrap_or_else(|e| panic!("`{text}`: {e}"));
    number
        * match unit {
            "" | "bytes" | "characters" | "ms" => 1,
            "KiB" => 1024,
            "MiB" => 1024 * 1024,
            "s" => 1_000,
            "min" => 60_000,
            other => panic!("`{other}` in `{text}` is no unit"),
        }
}

/// Every constant of src/limits.rs with its value, durations in milliseconds.
fn limits() -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for line in read("src/limits.rs").lines().filter_map(|l| l.strip_prefix("pub const ")) {
        let (name, rest) = line.split_once(": ").unwrap();
        let value = rest.split_once(" = ").unwrap().1.trim_end_matches(';');
        let factor = |f: &str| {
            let f = f.trim().replace('_', "");
            f.parse::<u64>().ok().or_else(|| out.get(&f).copied())
        };
        let duration = value.strip_prefix("Duration::from_").and_then(|d| d.strip_suffix(')'));
        let value = match duration.and_then(|d| d.split_once('(')) {
            Some((unit, n)) => {
                let of_one = match unit {
                    "hours" => 3_600_000,
                    "mins" => 60_000,
                    "secs" => 1_000,
                    "millis" => 1,
                    other => panic!("{other}"),
                };
                factor(n).unwrap() * of_one
            }
            None => {
                // A name of another constant keeps its underscores.
                let known = out.get(value).copied();
                known.unwrap_or_else(|| value.split('*').map(|f| factor(f).unwrap()).product())
            }
        };
        out.insert(name.to_owned(), value);
    }
    out
}

#[test]
fn the_readmes_limits_are_the_sources() {
    let (limits, text) = (limits(), read("README.md"));
    assert!(limits.len() > 50, "{}", limits.len());
    let table = text.split("\n## Limits\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut seen = 0;
    for row in rows(table).iter().skip(2) {
        let [_, values, _, names] = row.as_slice() else { panic!("{row:?}") };
        let (values, names): (Vec<_>, Vec<_>) = (values.split(" / ").collect(), quoted(names));
        assert_eq!(values.len(), names.len(), "{row:?}");
        for (value, name) in values.iter().zip(&names) {
            let real = limits.get(*name).unwrap_or_else(|| panic!("src/limits.rs has no `{name}`"));
            assert_eq!(amount(value), *real, "{name}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
    // The defaults that settings change are all among them.
    for line in read("src/limits.rs").split("pub const ").map(|c| c.split(';').nth(1).unwrap_or("")) {
        for key in quoted(line).iter().filter(|_| line.contains("(*default* of")) {
            assert!(table.contains(key), "the default of `{key}` is not in the README's table");
        }
    }
}

#[test]
fn the_guide_has_every_error_code_and_no_other() {
    let text = read("docs/guide.md");
    let section = text.split("\n## Errors\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let told: Vec<String> = rows(section).iter().skip(2).map(|r| r[0].trim_matches('`').to_owned()).collect();
    assert_eq!(told, ErrorCode::ALL.map(|c| c.as_str().to_owned()));
}

#[test]
fn the_guide_has_every_command_and_no_other() {
    let help = |args: &[&str]| {
        let output = docent().args(args).arg("--help").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let part = text.split("Commands:\n").nth(1).unwrap_or("").split("\n\n").next().unwrap().to_owned();
        part.lines().filter_map(|l| Some(l.split_whitespace().next()?.to_owned())).collect::<BTreeSet<_>>()
    };
    let (text, commands) = (read("docs/guide.md"), help(&[]));
    let told: BTreeSet<String> = text
        .lines()
        .filter_map(|l| Some(l.strip_prefix("### `docent ")?.trim_end_matches('`').to_owned()))
        .collect();
    assert_eq!(told, commands);
    for command in ["policy", "token", "import", "audit"] {
        for sub in help(&[command]) {
            let (name, wrapped) = (format!("docent {command} {sub}"), format!("docent {command}\n{sub}"));
            assert!(text.contains(&name) || text.contains(&wrapped), "the guide has no `{name}`");
        }
    }
}

#[test]
fn the_guide_has_every_key_of_docent_toml_and_every_meta_tool() {
    let guide = read("docs/guide.md");
    let settings = guide.split("\n## Settings\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let (mut table, mut keys) = (String::new(), 0);
    for line in read("docent.toml").lines() {
        let line = line.trim_start_matches("# ").split(" # ").next().unwrap().trim();
        if line.starts_with('[') && line.split_once(']').is_some_and(|(_, rest)| !rest.contains('.')) {
            table = line.trim_matches(['[', ']']).split('.').next().unwrap().to_owned();
            let told = settings.contains(&format!("`[{table}")) || settings.contains(&format!("`[[{table}"));
            assert!(told, "the guide has no table `{table}`");
        }
        let Some((key, _)) = line.split_once(" = ") else { continue };
        let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let is_rule = ["allow", "deny", "hide", "challenge", "confirm"].iter().any(|r| table.contains(r));
        if is_key && !is_rule {
            keys += 1;
            assert!(settings.contains(&format!("`{key}`")), "the guide has no key `{key}` of [{table}]");
        }
    }
    assert!(keys > 35, "{keys}");
    for tool in MetaTool::ALL {
        let name = tool.wire_name("docent");
        assert!(guide.contains(&format!("| `{name}` |")), "the guide has no `{name}`");
    }
    for kind in ["openapi", "http", "command", "script", "mcp", "catalog"] {
        assert!(guide.contains(&format!("### Kind `{kind}`\n")), "the guide has no kind `{kind}`");
    }
}

#[test]
fn the_architectures_ranks_are_those_that_are_tested() {
    let text = read("ARCHITECTURE.md");
    let told: Vec<Vec<String>> =
        rows(&text).iter().skip(2).map(|r| quoted(&r[1]).iter().map(|m| (*m).to_owned()).collect()).collect();
    let real: Vec<Vec<String>> = RANKS.iter().map(|r| r.iter().map(|m| (*m).to_owned()).collect()).collect();
    assert_eq!(told, real);
    let numbers: Vec<String> = rows(&text).iter().skip(2).map(|r| r[0].clone()).collect();
    assert_eq!(numbers, (0..RANKS.len()).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn the_documents_name_the_default_port() {
    let address = format!("http://127.0.0.1:{}/mcp", docent::config::DEFAULT_PORT);
    assert!(read("README.md").contains(&address) && read("docs/guide.md").contains(&address));
}

#[test]
fn links_between_documents_lead_somewhere() {
    let references = ["scripts/README.md", "policies/README.md", "index/README.md"];
    for name in
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/guide.md"].into_iter().chain(references)
    {
        let text = read(name);
        let folder = root().join(name).parent().unwrap().to_owned();
        for target in text.split("](").skip(1).map(|t| t.split(')').next().unwrap()) {
            if let Some(anchor) = target.strip_prefix('#') {
                let title = |l: &str| l.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
                let found = text.lines().any(|l| l.starts_with('#') && title(l) == anchor);
                assert!(found, "{name} has no heading for `#{anchor}`");
            } else if !target.starts_with("http") {
                assert!(folder.join(target).exists(), "{name} links to {target}, which is not there");
            }
        }
    }
}

#[test]
fn the_reference_of_scripts_is_the_sources() {
    let (path, mark) = (root().join("scripts/README.md"), "<!-- reference -->\n");
    let text = read("scripts/README.md");
    let (head, written) = text.split_once(mark).unwrap();
    let reference = format!("\n{}\n", docent::projection::reference());
    if std::env::var("DOCENT_UPDATE").is_ok() {
        std::fs::write(&path, format!("{head}{mark}{reference}")).unwrap();
        return;
    }
    assert_eq!(written, reference, "renew it with DOCENT_UPDATE=1 cargo test --test it docs_facts");
}

/// The fenced blocks of a language.
fn snippets(text: &str, language: &str) -> Vec<String> {
    text.split(&format!("```{language}\n"))
        .skip(1)
        .map(|b| b.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn snippets_of_the_references_load() {
    let policies = snippets(&read("policies/README.md"), "rhai");
    let project = snippets(&read("scripts/README.md"), "rhai").remove(1);
    assert!(policies[0].starts_with("fn rules(p)") && project.starts_with("fn project("));
    let pack = "kind = \"http\"\nbase_url = \"https://example.com\"\n[[tool]]\nid = \"issues\"\ndescription = \"Issues.\"\nrequest = { method = \"GET\", path = \"/issues\" }\nscript = \"issues.rhai\"\nfamilies = [\"issue_page\"]\n";
    let schema = r##"{"$defs": {"issue_page": {"type": "object", "required": ["kind", "items", "page"], "properties": {"kind": {"const": "issue_page"}, "items": {"type": "array", "items": {"type": "object"}}, "page": {"$ref": "#/$defs/paging"}}}}}"##;
    let case = "- name: snippet\n  tool: issues\n  reply:\n    body: { total_count: 1, items: [{ id: 7, title: Slow, user: { login: ann } }] }\n";
    let home = TestHome::with(&[
        ("docent.toml", "[upstreams]\nenabled = [\"issues\"]\n"),
        ("policies/10.rhai", &policies[0]),
        ("scripts/issues/upstream.toml", pack),
        ("scripts/issues/issues.rhai", &project),
        ("scripts/issues/schemas/issues.json", schema),
        ("scripts/issues/cases/issues.yaml", case),
    ]);
    for args in [&["check"][..], &["test", "--update"]] {
        let output = docent().args(args).args(["--home"]).arg(home.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let written = std::fs::read_to_string(home.path().join("scripts/issues/cases/issues.yaml")).unwrap();
    assert!(written.contains("ok: true") && written.contains("author: ann"), "{written}");
}
