//! What the load programs share: a lean HTTP client that keeps its connection, `docent serve` as a process.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A process that ends with its guard.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// One keep-alive HTTP/1.1 connection that posts JSON and reads JSON.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    address: String,
    /// Further header lines, each with its line end.
    pub(crate) headers: String,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            address: address.to_owned(),
            headers: String::new(),
            buffer: Vec::with_capacity(16_384),
        }
    }

    pub(crate) async fn post(&mut self, body: &str) -> (String, String) {
        self.send(body).await;
        self.read().await
    }

    /// Sends a message without waiting for its answer.
    pub(crate) async fn send(&mut self, body: &str) {
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n{}content-length: {}\r\n\r\n{body}",
            self.address,
            self.headers,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.unwrap();
    }

    pub(crate) async fn read(&mut self) -> (String, String) {
        self.buffer.clear();
        let mut chunk = vec![0u8; 16_384];
        loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..end]).to_lowercase();
                let length = header(&head, "content-length").map_or(0, |l| l.parse().unwrap());
                while self.buffer.len() < end + 4 + length {
                    let n = self.stream.read(&mut chunk).await.unwrap();
                    assert!(n > 0, "the server closed the connection");
                    self.buffer.extend_from_slice(&chunk[..n]);
                }
                return (head, String::from_utf8_lossy(&self.buffer[end + 4..]).into_owned());
            }
            let n = self.stream.read(&mut chunk).await.unwrap();
            assert!(n > 0, "the server closed the connection");
            self.buffer.extend_from_slice(&chunk[..n]);
        }
    }

    pub(crate) async fn open_session(&mut self) {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
            "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}});
        let (head, _) = self.post(&hello.to_string()).await;
        let session = header(&head, "mcp-session-id").unwrap();
        self.headers = format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
        self.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    }
}

/// A header of a lower-case head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "))
}

/// A home in a temporary folder.
pub(crate) fn home(files: &[(&str, String)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    home
}

/// The program that this run was built with.
pub(crate) const DOCENT: &str = env!("CARGO_BIN_EXE_docent");

/// Starts `docent serve` on a free port and waits until its list holds `tool`.
pub(crate) async fn start_docent(mut program: Command, home: &Path, tool: &str) -> (Killed, String) {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    program.args(["serve", "--listen", &address, "--home"]).arg(home).arg("--data").arg(home.join("data"));
    let child = Killed(program.stderr(Stdio::null()).spawn().unwrap());
    for _ in 0..1_000 {
        if TcpStream::connect(&address).await.is_ok() {
            let mut client = Client::connect(&address).await;
            client.open_session().await;
            let (_, listed) = client.post(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
            if listed.contains(tool) {
                return (child, address);
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("docent did not list `{tool}` in 10 s");
}
