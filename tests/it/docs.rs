//! Every command and snippet of the documents is executed, in order, in a copy of the repository's home.
//!
//! A fenced block whose info string is `LANGUAGE PATH` is written to that file. A `console` block runs each
//! line that begins with `$ ` and looks for the lines under it, in order, in what was printed (`…` stands for
//! anything). `cargo run --release --` and `docent` are the built program; `serve` is started, waited for, and
//! stays up until the document ends or the next `serve`; `cargo test` is what runs this test and is not run again.
//! The default port may be taken where tests run: a free one stands in its place, everywhere.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{TestHome, root};

/// What a document holds, in order.
#[derive(Debug, PartialEq)]
enum Block {
    File { path: String, text: String },
    Command { line: String, expected: Vec<String> },
}

fn blocks(text: &str) -> Vec<Block> {
    let mut out = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```").filter(|i| !i.is_empty()) else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
        if info == "console" {
            for line in body {
                match (line.strip_prefix("$ "), out.last_mut()) {
                    (Some(command), _) => {
                        out.push(Block::Command { line: command.to_owned(), expected: Vec::new() });
                    }
                    (None, Some(Block::Command { expected, .. })) => expected.push(line.to_owned()),
                    (None, _) => panic!("a console block must begin with `$ `: {line}"),
                }
            }
        } else if let Some((_, path)) = info.split_once(' ') {
            out.push(Block::File { path: path.to_owned(), text: body.join("\n") + "\n" });
        }
    }
    out
}

/// Whether the expected lines stand in the output in order.
fn shows(output: &str, expected: &[String]) -> Result<(), String> {
    let mut lines = output.lines();
    for want in expected.iter().filter(|w| !w.trim().is_empty() && w.trim() != "…") {
        let parts: Vec<&str> = want.split('…').map(str::trim).filter(|p| !p.is_empty()).collect();
        let fits = |line: &str| {
            let mut rest = line;
            parts.iter().all(|p| rest.split_once(p).map(|(_, after)| rest = after).is_some())
        };
        if !lines.any(fits) {
            return Err(want.clone());
        }
    }
    Ok(())
}

fn copy_home(to: &Path) {
    let listed = Command::new("git")
        .args(["ls-files", "docent.toml", "docent.lock", "scripts", "policies", "index"])
        .current_dir(root())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("docent.toml"), "the repository is a home: {listed}");
    for name in listed.lines() {
        std::fs::create_dir_all(to.join(name).parent().unwrap()).unwrap();
        std::fs::copy(root().join(name), to.join(name)).unwrap();
    }
    // The tools of the shipped git pack look at a repository with a commit.
    for line in ["init -q", "add .", "-c user.name=Ann -c user.email=ann@example.com commit -q -m first"] {
        assert!(
            Command::new("git").args(line.split(' ')).current_dir(to).status().unwrap().success(),
            "{line}"
        );
    }
}

struct Served(Option<Child>);

impl Served {
    fn stop(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run_document(name: &str) {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let document = std::fs::read_to_string(root().join(name)).unwrap();
    let document =
        document.replace(&format!("127.0.0.1:{}", docent::config::DEFAULT_PORT), &address.to_string());
    let home = TestHome::new();
    copy_home(home.path());
    let data = tempfile::tempdir().unwrap();
    let mut served = Served(None);
    let bin = Path::new(env!("CARGO_BIN_EXE_docent")).parent().unwrap().to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for block in blocks(&document) {
        match block {
            Block::File { path, text } => home.write(&path, &text),
            Block::Command { line, .. } if line == "cargo test" => {}
            Block::Command { line, expected } => {
                let line = line.replace("cargo run --release -- ", "docent ");
                let serves = line.starts_with("docent serve") && !line.contains("--help");
                // What a terminal shows: both streams in the order in which they are written.
                let script = if serves {
                    format!("exec {line} --listen {address}")
                } else {
                    format!("exec 2>&1\n{line}")
                };
                let mut shell = Command::new("bash");
                shell.args(["-euo", "pipefail", "-c", &script]).current_dir(home.path()).stdin(Stdio::null());
                shell.env("PATH", &path).env("DOCENT_DATA", data.path()).env_remove("DOCENT_HOME");
                if serves {
                    served.stop();
                    served.0 = Some(shell.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
                    wait_until_healthy(&address.to_string(), name, &line);
                    continue;
                }
                let output = shell.output().unwrap();
                let shown = String::from_utf8_lossy(&output.stdout);
                let fails_on_purpose = line.ends_with("|| true");
                assert!(output.status.success() || fails_on_purpose, "{name}: `{line}` failed:\n{shown}");
                if let Err(missing) = shows(&shown, &expected) {
                    panic!("{name}: `{line}` does not print `{missing}`; it prints\n{shown}");
                }
            }
        }
    }
}

fn wait_until_healthy(address: &str, name: &str, line: &str) {
    for _ in 0..300 {
        if crate::support::http(&format!("http://{address}"), "GET", "/healthz", &[], "")
            .is_ok_and(|(status, ..)| status == 200)
        {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{name}: `{line}` does not answer on /healthz");
}

#[test]
fn documents_are_read_as_files_commands_and_expected_lines() {
    let text = "x\n```toml a/b.toml\nk = 1\n```\n```console\n$ docent check\nfine … tools\n$ true\n```\n```json\n{}\n```\n";
    assert_eq!(
        blocks(text),
        [
            Block::File { path: "a/b.toml".to_owned(), text: "k = 1\n".to_owned() },
            Block::Command { line: "docent check".to_owned(), expected: vec!["fine … tools".to_owned()] },
            Block::Command { line: "true".to_owned(), expected: vec![] },
        ]
    );
    assert!(shows("a\nfine: 12 tools\n", &["fine … tools".to_owned()]).is_ok());
    assert!(shows("fine: 12\n", &["fine … tools".to_owned()]).is_err());
}

#[test]
fn the_readme_does_what_it_says() {
    run_document("README.md");
}

#[test]
fn the_operators_guide_does_what_it_says() {
    run_document("docs/guide.md");
}
