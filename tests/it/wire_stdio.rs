//! The wire over a pipe: both eras, lines that are no messages, cancellation, the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use docent::clock::Clock;
use docent::limits::STDIO_LINE_BYTES_MAX;
use docent::mcp::{Mcp, Service};
use docent::policy::{DiscoveryMode, Principal};
use docent::transport::run_stdio;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio_util::sync::CancellationToken;

use crate::wire_double::{Double, request, with_meta};

struct Pipe {
    double: Arc<Double>,
    mcp: Arc<Mcp>,
    input: Option<WriteHalf<DuplexStream>>,
    output: BufReader<ReadHalf<DuplexStream>>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Pipe {
    fn open() -> Self {
        let double = Arc::new(Double::new());
        let service: Arc<dyn Service> = Arc::<Double>::clone(&double);
        let mcp = Mcp::new(service, Clock::system());
        let (near, far) = tokio::io::duplex(1 << 16);
        let (output, input) = tokio::io::split(near);
        let principal = Arc::new(Principal::anonymous());
        let server = tokio::spawn(run_stdio(
            Arc::clone(&mcp),
            principal,
            Some(DiscoveryMode::Compact),
            tokio::io::split(far),
            CancellationToken::new(),
        ));
        Self { double, mcp, input: Some(input), output: BufReader::new(output), server }
    }

    async fn write(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn send(&mut self, message: Value) {
        self.write(&message.to_string()).await;
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        let reading = self.output.read_line(&mut line);
        tokio::time::timeout(Duration::from_secs(10), reading).await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.send(message).await;
        self.receive().await
    }

    async fn initialize(&mut self, version: &str) -> Value {
        let hello = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}});
        let answer = self.ask(request(0, "initialize", hello)).await;
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        answer
    }
}

fn code(body: &Value) -> i64 {
    body["error"]["code"].as_i64().unwrap_or(0)
}

#[tokio::test]
async fn both_eras_share_one_pipe_in_any_order() {
    let mut pipe = Pipe::open();
    let early = pipe.ask(request(1, "tools/list", json!({}))).await;
    assert_eq!((code(&early), &early["id"]), (-32600, &json!(1)), "nothing was settled yet");
    let found = pipe.ask(request(2, "server/discover", with_meta(json!({})))).await;
    assert_eq!(found["result"]["resultType"], "complete");
    let hello = pipe.initialize("2025-06-18").await;
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    let old = pipe.ask(request(3, "tools/call", json!({"name": "echo"}))).await;
    assert_eq!(old["result"]["structuredContent"]["client"], "pipe");
    assert_eq!(old["result"]["structuredContent"]["discovery"], "compact");
    assert!(old["result"].get("resultType").is_none());
    let new = pipe.ask(request(4, "tools/call", with_meta(json!({"name": "echo"})))).await;
    assert_eq!(new["result"]["structuredContent"]["client"], "probe");
    assert_eq!(new["result"]["resultType"], "complete");
    assert_eq!(code(&pipe.ask(request(5, "ping", with_meta(json!({})))).await), -32601);
    assert_eq!(pipe.ask(request(6, "ping", json!({}))).await["result"], json!({}));
    assert_eq!(code(&pipe.ask(request(7, "server/discover", json!({}))).await), -32602);
    let mut future = with_meta(json!({}));
    future["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    assert_eq!(code(&pipe.ask(request(8, "tools/list", future)).await), -32022);
}

#[tokio::test]
async fn lines_that_are_no_messages_are_answered_and_passed_over() {
    let mut pipe = Pipe::open();
    pipe.write("").await;
    pipe.write("  \t ").await;
    pipe.send(json!({"jsonrpc": "2.0", "method": "notifications/early"})).await;
    for line in ["garbage", "{\"jsonrpc\":", "\u{1}\u{2}"] {
        pipe.write(line).await;
        let answer = pipe.receive().await;
        assert_eq!((code(&answer), answer.get("id")), (-32700, None), "{line}");
    }
    pipe.write("[]").await;
    assert_eq!(code(&pipe.receive().await), -32600);
    let long = "x".repeat(STDIO_LINE_BYTES_MAX + 1);
    pipe.write(&long).await;
    assert_eq!(code(&pipe.receive().await), -32600);
    let found = pipe.ask(request(2, "server/discover", with_meta(json!({})))).await;
    assert_eq!(found["id"], 2);
}

#[tokio::test]
async fn calls_run_side_by_side_and_can_be_cancelled() {
    let mut pipe = Pipe::open();
    pipe.initialize("2025-11-25").await;
    pipe.send(request(1, "tools/call", json!({"name": "slow"}))).await;
    pipe.send(request(2, "tools/call", json!({"name": "slow"}))).await;
    pipe.send(request(2, "tools/call", json!({"name": "echo"}))).await;
    let doubled = pipe.receive().await;
    assert_eq!((code(&doubled), &doubled["id"]), (-32600, &json!(2)), "an id that is in use");
    assert_eq!(
        pipe.ask(request(3, "tools/call", json!({"name": "echo"}))).await["id"],
        3,
        "not behind the slow ones"
    );
    while pipe.double.began.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pipe.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
        .await;
    let answer = pipe.receive().await;
    assert_eq!(answer["id"], 2, "the cancelled one is not answered");
    assert_eq!(pipe.double.cancelled.load(Ordering::SeqCst), 1);
    assert_eq!(pipe.ask(request(4, "ping", json!({}))).await["id"], 4);
}

#[tokio::test]
async fn progress_comes_before_its_answer_and_a_challenge_as_an_error() {
    let mut pipe = Pipe::open();
    pipe.initialize("2025-11-25").await;
    pipe.send(request(1, "tools/call", json!({"name": "progress", "_meta": {"progressToken": "t"}}))).await;
    for step in [0, 50, 100] {
        assert_eq!(pipe.receive().await["params"]["progress"], step);
    }
    assert_eq!(pipe.receive().await["id"], 1);
    let guarded = pipe.ask(request(2, "tools/call", json!({"name": "guarded"}))).await;
    assert_eq!((code(&guarded), &guarded["error"]["data"]["error"]), (403, &json!("insufficient_scope")));
    assert_eq!(guarded["error"]["data"]["required_scopes"], json!(["ops:deploy", "ops:read"]));
}

#[tokio::test]
async fn changes_are_told_on_either_era() {
    let mut pipe = Pipe::open();
    pipe.initialize("2025-11-25").await;
    assert_eq!(pipe.ask(request(1, "ping", json!({}))).await["id"], 1);
    pipe.double.add("one");
    assert_eq!(pipe.receive().await["method"], "notifications/tools/list_changed");

    let mut pipe = Pipe::open();
    let listen =
        request(9, "subscriptions/listen", with_meta(json!({"notifications": {"toolsListChanged": true}})));
    let first = pipe.ask(listen).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    pipe.double.add("one");
    let changed = pipe.receive().await;
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 9);
    pipe.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": with_meta(json!({"requestId": 9}))})).await;
    for _ in 0..500 {
        if pipe.mcp.stream_count() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pipe.double.add("two");
    assert_eq!(
        pipe.ask(request(10, "server/discover", with_meta(json!({})))).await["id"],
        10,
        "no more of it"
    );
}

#[tokio::test]
async fn batches_belong_to_the_oldest_revision() {
    let mut pipe = Pipe::open();
    pipe.initialize("2025-03-26").await;
    let batch = json!([request(1, "ping", json!({})), request(2, "tools/call", json!({"name": "echo"}))]);
    let answers = pipe.ask(batch.clone()).await;
    assert_eq!(answers.as_array().unwrap().iter().map(|a| a["id"].clone()).collect::<Vec<_>>(), [1, 2]);
    pipe.send(json!([request(3, "tools/call", json!({"name": "slow"})), request(4, "ping", json!({}))]))
        .await;
    while pipe.double.began.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}});
    let answers = pipe.ask(cancel).await;
    assert_eq!(answers.as_array().unwrap().len(), 1, "the cancelled one is left out");
    let mut pipe = Pipe::open();
    pipe.initialize("2025-06-18").await;
    assert_eq!(code(&pipe.ask(batch).await), -32600);
}

#[tokio::test]
async fn the_end_of_the_pipe_is_the_end() {
    let mut pipe = Pipe::open();
    pipe.initialize("2025-11-25").await;
    pipe.send(request(1, "tools/call", json!({"name": "slow"}))).await;
    pipe.input.take().unwrap().shutdown().await.unwrap();
    assert_eq!(pipe.receive().await["id"], 1, "what was asked before the end is answered");
    let ended = tokio::time::timeout(Duration::from_secs(5), pipe.server).await;
    ended.expect("it ends by itself").unwrap().unwrap();
}
