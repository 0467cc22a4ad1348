//! What the tests share: a home in a temporary folder, `docent serve` as a process, the programs tested against.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The built program.
pub(crate) fn docent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_docent"));
    command.env_remove("DOCENT_HOME").env_remove("DOCENT_DATA").stdin(Stdio::null());
    command
}

/// `docent serve --stdio` on a home, with the caller of `--as` where one is given; its log goes nowhere.
pub(crate) fn pipe(home: &Path, data: &Path, caller: Option<&str>) -> Child {
    let mut command = docent();
    command.args(["serve", "--stdio", "--home"]).arg(home).arg("--data").arg(data);
    command.args(caller.map(|name| ["--as", name]).into_iter().flatten());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Copies a folder with everything below it.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A home in a temporary folder.
pub(crate) struct TestHome(tempfile::TempDir);

impl TestHome {
    /// An empty folder.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A home with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let home = Self::new();
        for (name, text) in files {
            home.write(name, text);
        }
        home
    }

    /// Writes one file, its folders too.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// `docent serve` on a free port, killed when dropped.
pub(crate) struct TestServer {
    child: Child,
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    data: tempfile::TempDir,
}

impl TestServer {
    /// Starts it on a home and waits until `/healthz` answers.
    pub(crate) fn start(home: &Path, args: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let child = Self::spawn(home, &address, data.path(), args);
        let mut server = Self { child, url: format!("http://{address}"), data };
        server.wait_for("/healthz", |status, _| status == 200);
        server
    }

    fn spawn(home: &Path, address: &str, data: &Path, args: &[&str]) -> Child {
        let log = std::fs::File::options().create(true).append(true).open(data.join("docent.log")).unwrap();
        docent()
            .args(["serve", "--listen", address, "--home"])
            .arg(home)
            .arg("--data")
            .arg(data)
            .args(args)
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Kills it without a word and starts it again where it was, on the same data.
    pub(crate) fn kill_and_restart(&mut self, home: &Path) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let address = self.url.trim_start_matches("http://").to_owned();
        self.child = Self::spawn(home, &address, self.data.path(), &[]);
        self.wait_for("/healthz", |status, _| status == 200);
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) {
        self.child.wait().unwrap();
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// What it wrote to stderr so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.data.path().join("docent.log")).unwrap_or_default()
    }

    /// GETs a path until `fits(status, body)`; panics with the log after 30 s.
    pub(crate) fn wait_for(&mut self, path: &str, fits: impl Fn(u16, &str) -> bool) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("docent ended with {status}:\n{}", self.log());
            }
            let answer = http(&self.url, "GET", path, &[], "");
            if let Ok((status, _, body)) = &answer
                && fits(*status, body)
            {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{path} stays {answer:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// One HTTP/1.1 exchange on a connection of its own: status, head in lower case, body.
pub(crate) fn http(
    base: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<(u16, String, String)> {
    use std::io::{Read, Write};
    let host = base.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(host)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request += &format!("host: {host}\r\n");
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    Ok((status, head.to_lowercase(), body.to_owned()))
}

/// POSTs one JSON-RPC message to `/mcp` with the usual headers and some more.
pub(crate) fn rpc(base: &str, headers: &[(&str, &str)], message: &Value) -> (u16, String, Value) {
    let mut all =
        vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    all.extend_from_slice(headers);
    let (status, head, body) = http(base, "POST", "/mcp", &all, &message.to_string()).unwrap();
    (status, head, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// The folder of programs tested against (`tests/tools/install.sh` fills it), or `None` with a note, which is
/// a failure where `DOCENT_TEST_ALL` is set.
pub(crate) fn tools(for_what: &str) -> Option<PathBuf> {
    let dir =
        std::env::var_os("DOCENT_TEST_TOOLS").map_or_else(|| root().join("target/test-tools"), PathBuf::from);
    if dir.join(".stamp").exists() {
        return Some(dir.canonicalize().unwrap());
    }
    assert!(std::env::var_os("DOCENT_TEST_ALL").is_none(), "{for_what} needs tests/tools/install.sh");
    eprintln!("skipped: {for_what} needs tests/tools/install.sh");
    None
}

/// The folder of shared catalogs and documents, or `None` with a note, which is a failure where
/// `DOCENT_TEST_ALL` is set.
pub(crate) fn shared(for_what: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("DOCENT_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    if dir.join("catalogs").exists() {
        return Some(dir.canonicalize().unwrap());
    }
    assert!(std::env::var_os("DOCENT_TEST_ALL").is_none(), "{for_what} needs DOCENT_SHARED");
    eprintln!("skipped: {for_what} needs DOCENT_SHARED");
    None
}
