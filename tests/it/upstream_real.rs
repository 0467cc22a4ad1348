//! MCP servers that nobody here wrote: the reference servers of npm and `PyPI`, over stdio and HTTP.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use docent::upstream::{ErrorSource, ProgressSink, UpstreamState};
use serde_json::{Value, json};

use crate::support::{TestHome, tools};
use crate::upstream_support::{How, TestUpstream, mcp, names, text};

fn toml(words: &[String]) -> String {
    format!("kind = \"mcp\"\ncommand = {}\n", serde_json::to_string(words).unwrap())
}

fn node(dir: &Path, server: &str, arguments: &[&str]) -> Vec<String> {
    let package = dir.join("node_modules/@modelcontextprotocol").join(server).join("dist/index.js");
    let node = dir.join("node_modules/.bin/node");
    let mut words = vec![node.display().to_string(), package.display().to_string()];
    words.extend(arguments.iter().map(|a| (*a).to_owned()));
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_over_stdio_lists_calls_and_reports_progress() {
    let Some(dir) = tools("server-everything over stdio") else { return };
    let upstream = TestUpstream::new("everything", &toml(&node(&dir, "server-everything", &["stdio"])));
    let found = upstream.discover().await;
    assert!(found.complete, "{}", found.problems);
    assert!(names(&found).contains(&"echo"), "{:?}", names(&found));
    assert_eq!(text(&upstream.call("echo", json!({"message": "grüezi"})).await.unwrap()), "Echo: grüezi");
    let image = upstream.call("get-tiny-image", json!({})).await.unwrap();
    assert!(mcp(&image).content.iter().any(|b| b.get().contains("image/png")));
    let structured = upstream.call("get-structured-content", json!({"location": "New York"})).await.unwrap();
    assert!(mcp(&structured).structured.as_ref().unwrap().get().contains("temperature"));

    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let progress = ProgressSink::new(move |done, total, _| seen.lock().unwrap().push((done, total)));
    let how = How { progress: Some(progress), ..How::default() };
    let slow = json!({"duration": 1, "steps": 4});
    upstream.call_how("trigger-long-running-operation", slow, how).await.unwrap();
    let steps = steps.lock().unwrap().clone();
    assert!(steps.len() >= 3 && steps.windows(2).all(|w| w[0].0 < w[1].0), "{steps:?}");

    let wrong = upstream.call("no-such-tool", json!({})).await;
    let told = wrong.map_or_else(|e| e.source_kind != ErrorSource::Upstream, |r| mcp(&r).is_error);
    assert!(told, "an unknown tool is an error and no fault of the server");
    upstream.adapter.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_does_not_disturb_the_next() {
    let Some(dir) = tools("server-everything and cancelling") else { return };
    let upstream = TestUpstream::new("everything", &toml(&node(&dir, "server-everything", &["stdio"])));
    let slow = json!({"duration": 30, "steps": 3});
    upstream.call("echo", json!({"message": "up"})).await.unwrap();
    let how = How { timeout: Duration::from_millis(200), ..How::default() };
    let late = upstream.call_how("trigger-long-running-operation", slow.clone(), how).await.unwrap_err();
    assert_eq!(late.source_kind, ErrorSource::Timeout);
    let how = How::default();
    let cancel = how.cancel.clone();
    let (gone, ()) = tokio::join!(upstream.call_how("trigger-long-running-operation", slow, how), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    assert_eq!(gone.unwrap_err().source_kind, ErrorSource::Cancelled);
    assert_eq!(text(&upstream.call("echo", json!({"message": "x"})).await.unwrap()), "Echo: x");
}

/// A server process of its own, ended when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn serve_http(words: &[String], port: u16) -> Server {
    let server = Command::new(&words[0])
        .args(&words[1..])
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .spawn()
        .map(Server)
        .unwrap();
    for _ in 0..600 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return server;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the server does not listen");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_over_http_survives_its_restart() {
    let Some(dir) = tools("server-everything over HTTP") else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = node(&dir, "server-everything", &["streamableHttp"]);
    let server = serve_http(&words, port);
    let toml = format!("kind = \"mcp\"\nurl = \"http://127.0.0.1:{port}/mcp\"\n");
    let upstream = TestUpstream::new("everything", &toml);
    let found = upstream.discover().await;
    assert!(found.complete && names(&found).contains(&"echo"), "{}", found.problems);
    for n in 0..5 {
        let reply = upstream.call("echo", json!({"message": format!("{n}")})).await.unwrap();
        assert_eq!(text(&reply), format!("Echo: {n}"));
    }
    drop(server);
    let down = upstream.call("echo", json!({"message": "x"})).await.unwrap_err();
    assert_eq!(down.source_kind, ErrorSource::Upstream);
    assert_eq!(upstream.adapter.status().state, UpstreamState::Down);
    let _again = serve_http(&words, port);
    let reply = upstream.call("echo", json!({"message": "back"})).await;
    assert_eq!(text(&reply.unwrap()), "Echo: back");
    assert_eq!(upstream.adapter.status().state, UpstreamState::Up);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filesystem_server_reads_what_it_may_and_refuses_the_rest() {
    let Some(dir) = tools("server-filesystem") else { return };
    let home = TestHome::with(&[("files/a.txt", "hello there")]);
    let folder = home.path().join("files").canonicalize().unwrap().display().to_string();
    let words = node(&dir, "server-filesystem", &[&folder]);
    let upstream = TestUpstream::at(home, "fs", &toml(&words));
    let found = upstream.discover().await;
    assert!(found.complete, "{}", found.problems);
    let read = found.tools.iter().find(|t| &*t.tool.name == "read_text_file").unwrap();
    assert_eq!(read.tool.annotations.read_only, Some(true));
    let reply = upstream.call("read_text_file", json!({"path": format!("{folder}/a.txt")})).await.unwrap();
    assert_eq!(text(&reply), "hello there");
    let outside = upstream.call("read_text_file", json!({"path": "/etc/passwd"})).await.unwrap();
    assert!(mcp(&outside).is_error && outside.status == 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_servers_answer_in_both_ways_of_being_asked() {
    let Some(dir) = tools("mcp-server-git and mcp-server-time") else { return };
    let bin = |name: &str| dir.join("venv/bin").join(name).display().to_string();
    for era in ["auto", "session"] {
        let settings = format!("{}era = \"{era}\"\n", toml(&[bin("mcp-server-time")]));
        let time = TestUpstream::new("time", &settings);
        assert_eq!(names(&time.discover().await), ["convert_time", "get_current_time"]);
        let reply = time.call("get_current_time", json!({"timezone": "Europe/Zurich"})).await.unwrap();
        let now: Value = serde_json::from_str(&text(&reply)).unwrap();
        assert_eq!(now["timezone"], "Europe/Zurich");
        let wrong = time.call("get_current_time", json!({"timezone": "Nowhere/At_All"})).await.unwrap();
        assert!(mcp(&wrong).is_error);
    }
    let home = TestHome::with(&[("repo/readme", "x")]);
    let repo = home.path().join("repo").display().to_string();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(&repo).args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
        assert!(command.args(words).stdout(Stdio::null()).status().unwrap().success());
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "the first one"]);
    let upstream = TestUpstream::at(home, "git", &toml(&[bin("mcp-server-git")]));
    assert!(names(&upstream.discover().await).contains(&"git_log"));
    let log = upstream.call("git_log", json!({"repo_path": repo, "max_count": 1})).await.unwrap();
    assert!(text(&log).contains("the first one"), "{}", text(&log));
}
