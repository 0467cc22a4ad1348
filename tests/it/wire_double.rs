//! The wire in one process: a server over use cases that can be told what to answer, and small clients for it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use docent::auth::{Authenticator, CallerEntry, TokenHash};
use docent::call::{ErrorCode, ToolCall, ToolError, ToolOutcome, ToolResult};
use docent::catalog::ToolAnnotations;
use docent::clock::Clock;
use docent::gateway::{
    AgentAnswer, AgentPage, CallAnswer, ListError, Readiness, RequestContext, Surface, ToolEntry, ToolPage,
};
use docent::id::{Generation, Scope};
use docent::mcp::{CallFuture, HeaderParam, Mcp, Service, header_params};
use docent::policy::{Principal, RuleRef, ScopeChallenge};
use docent::schema::SchemaText;
use docent::transport::{Access, AccessHandle, Boundary, Lanes, front, serve};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Tools on a page.
pub(crate) const PAGE: usize = 3;

/// Use cases whose tools do what their names say.
pub(crate) struct Double {
    tools: Mutex<Vec<Arc<ToolEntry>>>,
    changes: watch::Sender<Generation>,
    /// Calls that noticed a cancellation.
    pub(crate) cancelled: AtomicUsize,
    /// Calls of `slow` that began.
    pub(crate) began: AtomicUsize,
    /// Calls of `slow` that came to their end.
    pub(crate) ended: AtomicUsize,
}

fn entry(name: &str, schema: &Value) -> Arc<ToolEntry> {
    Arc::new(ToolEntry {
        name: Arc::from(name),
        title: Some(Arc::from(format!("The {name} tool"))),
        description: Arc::from(format!("Does {name}.")),
        input_schema: SchemaText::of(schema),
        output_schema: (name == "echo").then(|| SchemaText::of(&json!({"type": "object"}))),
        tasks: None,
        annotations: ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() },
    })
}

impl Double {
    pub(crate) fn new() -> Self {
        let plain = json!({"type": "object"});
        let routed = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
        }});
        let tools = vec![
            entry("echo", &plain),
            entry("routed", &routed),
            entry("progress", &plain),
            entry("slow", &plain),
            entry("fail", &plain),
            entry("guarded", &plain),
            entry("crash", &plain),
        ];
        Self {
            tools: Mutex::new(tools),
            changes: watch::channel(Generation(1)).0,
            cancelled: AtomicUsize::new(0),
            began: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        }
    }

    /// Adds a tool and tells of a new generation.
    pub(crate) fn add(&self, name: &str) {
        self.tools.lock().unwrap().push(entry(name, &json!({"type": "object"})));
        self.touch();
    }

    /// Tells of a new generation with the same tools.
    pub(crate) fn touch(&self) {
        self.changes.send_modify(|g| g.0 += 1);
    }

    async fn slow(&self, ctx: &RequestContext) -> ToolOutcome {
        self.began.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            () = ctx.cancel.cancelled() => {
                self.cancelled.fetch_add(1, Ordering::SeqCst);
            }
            () = tokio::time::sleep(Duration::from_millis(600)) => {
                self.ended.fetch_add(1, Ordering::SeqCst);
            }
        }
        text("slow is done")
    }
}

fn text(text: &str) -> ToolOutcome {
    ToolOutcome::Completed(ToolResult { text: Some(text.to_owned()), ..ToolResult::default() })
}

async fn progress(ctx: &RequestContext) -> ToolOutcome {
    for step in [0.0, 50.0, 100.0] {
        if let Some(sink) = &ctx.progress {
            sink.report(step, Some(100.0), None);
        }
        tokio::task::yield_now().await;
    }
    text("progress is done")
}

impl Service for Double {
    fn name(&self) -> Arc<str> {
        Arc::from("double")
    }

    fn instructions(&self, ctx: &RequestContext) -> String {
        format!("for {} with {}", ctx.principal.subject, ctx.principal.client.name.as_deref().unwrap_or("?"))
    }

    fn list_tools(&self, _: &RequestContext, cursor: Option<&str>) -> Result<ToolPage, ListError> {
        let Ok(from) = cursor.map_or(Ok(0), str::parse::<usize>) else { return Err(ListError::BadCursor) };
        let tools = self.tools.lock().unwrap();
        let to = (from + PAGE).min(tools.len());
        let page = tools.get(from..to).ok_or(ListError::BadCursor)?.to_vec();
        let generation = *self.changes.borrow();
        Ok(ToolPage { generation, tools: page, next_cursor: (to < tools.len()).then(|| to.to_string()) })
    }

    fn call_tool<'a>(&'a self, ctx: &'a RequestContext, call: ToolCall) -> CallFuture<'a> {
        Box::pin(async move {
            CallAnswer::Outcome(match call.tool.as_str() {
                "echo" | "routed" => {
                    let value = json!({
                        "arguments": call.arguments,
                        "subject": &*ctx.principal.subject,
                        "client": ctx.principal.client.name.as_deref(),
                        "discovery": ctx.discovery.map(docent::policy::DiscoveryMode::as_str),
                    });
                    ToolOutcome::Completed(ToolResult {
                        structured: Some((&value).into()),
                        ..ToolResult::default()
                    })
                }
                "progress" => progress(ctx).await,
                "slow" => self.slow(ctx).await,
                "fail" => ToolOutcome::Failed(ToolError::new(ErrorCode::Conflict, "It is locked.")),
                "guarded" => {
                    let scopes = ["ops:deploy", "ops:read"].map(|s| Scope::parse(s).unwrap()).to_vec();
                    return CallAnswer::Challenge(ScopeChallenge {
                        scopes,
                        rule: RuleRef { file: Arc::from(""), line: 0 },
                    });
                }
                "crash" => panic!("planted"),
                _ => return CallAnswer::UnknownTool,
            })
        })
    }

    fn list_agents(&self, _: &RequestContext, _: Option<&str>) -> Result<AgentPage, ListError> {
        Ok(AgentPage { agents: Vec::new(), next_cursor: None, ttl_ms: 60_000 })
    }

    fn get_agent(&self, _: &RequestContext, _: &str) -> AgentAnswer {
        AgentAnswer::NotFound
    }

    fn agent_surface(&self, _: &RequestContext) -> Surface {
        Surface([0; 32])
    }

    fn header_params(&self, _: &RequestContext, tool: &str) -> Vec<HeaderParam> {
        let tools = self.tools.lock().unwrap();
        tools
            .iter()
            .find(|t| &*t.name == tool)
            .map(|t| header_params(&t.input_schema.value()))
            .unwrap_or_default()
    }

    fn surface(&self, _: &RequestContext) -> Surface {
        Surface([u8::try_from(self.tools.lock().unwrap().len()).unwrap(); 32])
    }

    fn changes(&self) -> watch::Receiver<Generation> {
        self.changes.subscribe()
    }

    fn readiness(&self) -> Readiness {
        let generation = *self.changes.borrow();
        Readiness {
            ready: true,
            generation,
            reasons: Vec::new(),
            diagnostics: Vec::new(),
            upstreams: Vec::new(),
        }
    }
}

/// A server over a [`Double`], on a runtime of its own.
pub(crate) struct WireServer {
    pub(crate) url: String,
    pub(crate) double: Arc<Double>,
    pub(crate) mcp: Arc<Mcp>,
    pub(crate) clock: Clock,
    pub(crate) shutdown: CancellationToken,
    runtime: tokio::runtime::Runtime,
}

impl WireServer {
    /// Everybody is `anonymous`.
    pub(crate) fn open() -> Self {
        Self::start(Authenticator::open(Vec::new()), Boundary::default())
    }

    /// `alice` with the token `t-alice` and `bob` with `t-bob`.
    pub(crate) fn with_tokens() -> Self {
        let caller = |name: &str| CallerEntry {
            principal: Arc::new(Principal { subject: Arc::from(name), ..Principal::default() }),
            token_hash: Some(TokenHash::of(&format!("t-{name}"))),
            limits_scopes: true,
        };
        Self::start(Authenticator::tokens(vec![caller("alice"), caller("bob")]), Boundary::default())
    }

    pub(crate) fn start(callers: Authenticator, boundary: Boundary) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (double, clock, shutdown) = (Arc::new(Double::new()), Clock::manual(), CancellationToken::new());
        let service: Arc<dyn Service> = Arc::<Double>::clone(&double);
        let mcp = Mcp::new(service, clock.clone());
        let access = Access {
            boundary,
            callers: Arc::new(callers),
            issuer: Some(Arc::from("https://login.example")),
            scopes_supported: vec!["ops:read".to_owned()],
            ..Access::default()
        };
        let app = front(Arc::clone(&mcp), AccessHandle::new(access));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = shutdown.clone();
        runtime
            .spawn(async move { serve(listener, app, &Lanes::none(), stop, Duration::from_secs(5)).await });
        Self { url, double, mcp, clock, shutdown, runtime }
    }

    /// Runs something on the server's runtime.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// One stateless request with all the headers it needs.
    pub(crate) fn stateless(
        &self,
        headers: &[(&str, &str)],
        method: &str,
        params: Value,
    ) -> (u16, String, Value) {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut all = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        if method == "tools/call" {
            all.push(("mcp-name", &name));
        }
        all.retain(|(name, _)| !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name)));
        all.extend(headers.iter().filter(|(_, value)| *value != "-"));
        super::support::rpc(&self.url, &all, &request(7, method, with_meta(params)))
    }

    /// Opens a session and gives its id.
    pub(crate) fn session(&self, headers: &[(&str, &str)], version: &str) -> String {
        let hello = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "probe", "version": "1"}});
        let (status, head, body) = super::support::rpc(&self.url, headers, &request(1, "initialize", hello));
        assert_eq!(status, 200, "{body}");
        header(&head, "mcp-session-id").unwrap()
    }

    /// Waits until something holds.
    pub(crate) fn until(&self, what: &str, fits: impl Fn(&Double) -> bool) {
        for _ in 0..500 {
            if fits(&self.double) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("never: {what}");
    }
}

/// A request.
#[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
pub(crate) fn request(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Adds what every stateless request carries.
pub(crate) fn with_meta(mut params: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
    });
    let own = params["_meta"].take();
    params["_meta"] = meta;
    for (key, value) in own.as_object().into_iter().flatten() {
        params["_meta"][key] = value.clone();
    }
    params
}

/// A header of a head in lower case.
pub(crate) fn header(head: &str, name: &str) -> Option<String> {
    let line = head.lines().find(|l| l.starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A request whose answer is read as it comes.
pub(crate) struct Streaming {
    pub(crate) status: u16,
    pub(crate) head: String,
    reader: BufReader<TcpStream>,
}

impl Streaming {
    pub(crate) fn open(url: &str, method: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let host = url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut text = format!(
            "{method} /mcp HTTP/1.1\r\nhost: {host}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "the head ended early: {head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), reader }
    }

    /// The message of the next event; `None` at the end.
    pub(crate) fn event(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
            if line.trim_end() == "0" {
                return None;
            }
        }
    }

    /// Whether nothing comes for a moment.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.reader.get_ref().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut silent = true;
        let mut line = String::new();
        // Line ends and chunk sizes of what was read before are no message.
        while silent && self.reader.read_line(&mut line).is_ok_and(|n| n > 0) {
            silent = !line.starts_with("data: ");
            line.clear();
        }
        self.reader.get_ref().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        silent
    }
}
