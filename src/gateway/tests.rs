//! Tests of the use cases: a gateway over a fake upstream, real policies, a real index.

mod audit;
mod calls;
mod discovery;
mod meta_tools;
mod survive;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{CallAnswer, Gateway, RequestContext};
use crate::call::{
    ErrorCode, ReplyBody, ToolCall, ToolError, ToolOutcome, ToolResult, UpstreamReply, UpstreamRequest,
};
use crate::catalog::Tool;
use crate::clock::Clock;
use crate::diagnostic::{Diagnostics, SourceFile};
use crate::id::{Generation, Scope, ToolId, UpstreamId};
use crate::policy::Principal;
use crate::schema::SchemaText;
use crate::secret::Resolver;
use crate::snapshot::{self, Home, Publisher, ServerSettings};
use crate::upstream::{
    CallHints, Discovered, Discovery, ErrorSource, Invocation, Retry, Upstream, UpstreamConfig,
    UpstreamError, UpstreamSet, UpstreamState, UpstreamStatus,
};

/// What the fake does with a call.
#[derive(Debug, Clone)]
enum Act {
    /// Gives the arguments back.
    Echo,
    /// Gives this text.
    Text(String),
    /// Fails like this.
    Fail(UpstreamError),
    /// Never answers; notes a cancel.
    Hang,
    /// Answers its number once it is let go; a cancel ends it.
    Hold,
    /// Panics.
    Panic,
}

#[derive(Debug)]
struct Fake {
    id: UpstreamId,
    act: Mutex<Act>,
    calls: AtomicUsize,
    cancelled: AtomicBool,
    go: Semaphore,
}

impl Fake {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn will(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }
}

impl Upstream for Fake {
    fn id(&self) -> &UpstreamId {
        &self.id
    }

    fn discover(&self) -> BoxFuture<'_, Result<Discovery, UpstreamError>> {
        Box::pin(std::future::ready(Ok(Discovery::default())))
    }

    fn invoke<'a>(&'a self, call: Invocation<'a>) -> BoxFuture<'a, Result<UpstreamReply, UpstreamError>> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let act = self.act.lock().unwrap().clone();
        Box::pin(async move {
            let body = match act {
                Act::Echo => match call.request {
                    UpstreamRequest::Arguments(map) => ReplyBody::Value(
                        json!({"echo": map, "permit": call.permit.tool(), "name": call.name}),
                    ),
                    UpstreamRequest::Http(request) => ReplyBody::Value(json!({ "path": request.path })),
                },
                Act::Text(text) => {
                    ReplyBody::Bytes { media_type: "text/plain".to_owned(), bytes: text.into() }
                }
                Act::Fail(e) => return Err(e),
                Act::Hang => {
                    call.cancel.cancelled().await;
                    self.cancelled.store(true, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                    ReplyBody::Empty
                }
                Act::Hold => {
                    if let Some(sink) = &call.progress {
                        sink.report(1.0, Some(2.0), Some("held"));
                    }
                    tokio::select! {
                        go = self.go.acquire() => go.unwrap().forget(),
                        () = call.cancel.cancelled() => {
                            self.cancelled.store(true, Ordering::SeqCst);
                            return Err(UpstreamError::new(ErrorSource::Cancelled, Retry::Unknown, "cancelled"));
                        }
                    }
                    ReplyBody::Value(json!({ "call": number }))
                }
                Act::Panic => panic!("on purpose"),
            };
            Ok(UpstreamReply { status: 200, headers: Vec::new(), body, warnings: Vec::new() })
        })
    }

    fn status(&self) -> UpstreamStatus {
        UpstreamStatus {
            id: self.id.clone(),
            kind: "fake",
            state: UpstreamState::Up,
            complete: true,
            tools: 0,
            note: String::new(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The policy of these tests: one rule of each kind.
const POLICY: &str = r#"
fn rules(p) {
    p.allow().upstream("fake");
    p.hide().tool("fake.hidden").unless_scopes(["see:hidden"]);
    p.challenge(["ops:deploy"]).tool("fake.deploy");
    p.confirm("Really?").tool("fake.confirm");
    p.deny("not in production").tool("fake.write").when_arg("/target", "prod");
}
"#;

fn tool(name: &str) -> Tool {
    let schema = SchemaText::of(&json!({
        "type": "object",
        "properties": {"text": {"type": "string"}, "target": {"type": "string"}},
        "additionalProperties": false,
    }));
    let id = ToolId::parse(&format!("fake.{name}")).unwrap();
    let mut tool = Tool::new(id, UpstreamId::parse("fake").unwrap(), name, schema);
    tool.description = Arc::from(format!("The tool {name} of the fake upstream, for tests"));
    tool.category = Arc::from(if name.starts_with('n') { "numbers" } else { "things" });
    tool.annotations.read_only = Some(!matches!(name, "write" | "deploy" | "confirm"));
    tool
}

struct World {
    gateway: Gateway,
    fake: Arc<Fake>,
    home: Home,
    upstreams: UpstreamSet,
}

impl World {
    /// The named tools besides `count` numbered ones.
    fn new(count: usize, settings: ServerSettings) -> Self {
        let hints = CallHints { timeout: Duration::from_millis(200), ..CallHints::default() };
        Self::with_hints(count, settings, &hints)
    }

    /// The same with tools that take as long as these hints say.
    fn with_hints(count: usize, settings: ServerSettings, hints: &CallHints) -> Self {
        let named = ["read", "write", "hidden", "deploy", "confirm"].map(str::to_owned);
        let tools = named.into_iter().chain((0..count).map(|n| format!("n{n:05}")));
        let tools =
            tools.map(|name| Discovered { tool: tool(&name), projection: None, hints: hints.clone() });
        let discovery = Discovery { tools: tools.collect(), complete: true, ..Discovery::default() };
        let fake = Arc::new(Fake {
            id: UpstreamId::parse("fake").unwrap(),
            act: Mutex::new(Act::Echo),
            calls: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            go: Semaphore::new(0),
        });
        let mut mistakes = Diagnostics::default();
        let config = SourceFile::new("scripts/fake/upstream.toml", "kind = \"script\"\nconcurrency = 2\n");
        let resolver = Resolver::new(|_| None);
        let config = UpstreamConfig::read(
            &config,
            Path::new("scripts/fake"),
            &resolver,
            &Arc::default(),
            &mut mistakes,
        )
        .unwrap();
        let adapter: Arc<dyn Upstream> = Arc::<Fake>::clone(&fake);
        let upstreams = UpstreamSet::of(vec![(config, adapter, discovery)]);
        let policies = vec![SourceFile::new("policies/test.rhai", POLICY)];
        let home = Home { settings, policies, ..Home::default() };
        let first = build(&home, &upstreams, None, 1);
        let gateway = Gateway::new(Arc::new(Publisher::new(first)), Clock::system());
        Self { gateway, fake, home, upstreams }
    }

    fn small() -> Self {
        Self::new(0, ServerSettings::default())
    }

    /// Publishes the same world with another policy text.
    fn with_policy(&self, policy: &str) {
        let policies = vec![SourceFile::new("policies/test.rhai", policy)];
        let home = Home { policies, ..self.home.clone() };
        let before = self.gateway.snapshot();
        let next = build(&home, &self.upstreams, Some(&before), before.generation.0 + 1);
        self.gateway.publisher().publish(next);
    }

    async fn call(&self, tool: &str, arguments: Value) -> CallAnswer {
        self.call_as(&caller(&[]), tool, arguments).await
    }

    async fn call_as(&self, ctx: &RequestContext, tool: &str, arguments: Value) -> CallAnswer {
        let arguments = arguments.as_object().unwrap().clone();
        let call = ToolCall {
            tool: tool.to_owned(),
            arguments,
            wait: Duration::from_secs(5),
            request_key: None,
            fields: Vec::new(),
        };
        self.gateway.call_tool(ctx, call).await
    }
}

fn build(
    home: &Home,
    upstreams: &UpstreamSet,
    before: Option<&snapshot::Snapshot>,
    n: u64,
) -> snapshot::Snapshot {
    let mut found = Diagnostics::default();
    let built = snapshot::build(home, upstreams.clone(), &Arc::default(), before, Generation(n), &mut found);
    assert!(found.0.is_empty(), "{found}");
    built.unwrap()
}

fn caller(scopes: &[&str]) -> RequestContext {
    let scopes: BTreeSet<Scope> = scopes.iter().map(|s| Scope::parse(s).unwrap()).collect();
    let who = Principal { subject: Arc::from("tester"), scopes, ..Principal::default() };
    RequestContext::new(Arc::new(who), "req-1")
}

fn result(answer: CallAnswer) -> ToolResult {
    match answer {
        CallAnswer::Outcome(ToolOutcome::Completed(result)) => result,
        other => panic!("no result: {other:?}"),
    }
}

fn structured(answer: CallAnswer) -> Value {
    result(answer).structured.unwrap().value()
}

/// The error of a call, as it is or in the envelope of a tool that was run by a dispatcher.
fn error(answer: CallAnswer) -> ToolError {
    let result = match answer {
        CallAnswer::Outcome(ToolOutcome::Failed(e)) => return e,
        other => result(other),
    };
    let told = result.structured.unwrap().value();
    assert!(result.is_error && told["ok"] == false, "no error: {told}");
    let of = &told["error"];
    let code = ErrorCode::parse(of["code"].as_str().unwrap()).unwrap();
    ToolError {
        retryable: of["retryable"] == true,
        field: of["field"].as_str().map(str::to_owned),
        ..ToolError::new(code, of["message"].as_str().unwrap())
    }
}
