//! What the tests of upstreams share: a pack in a temporary folder, a permit, one call.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use docent::call::{HttpRequest, McpReply, ReplyBody, UpstreamReply, UpstreamRequest};
use docent::catalog::{CatalogBuilder, Tool};
use docent::clock::Clock;
use docent::diagnostic::{Diagnostics, SourceFile};
use docent::id::{ToolId, UpstreamId};
use docent::policy::{Decision, Permit, PolicySet, PolicyTables, Principal};
use docent::projection::PackSources;
use docent::schema::SchemaText;
use docent::secret::{Reference, Resolver};
use docent::upstream::{
    Discovery, Invocation, ProgressSink, Upstream, UpstreamConfig, UpstreamError, connect,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::TestHome;

/// Reads a pack's settings; `Err` has every mistake.
pub(crate) fn read(home: &TestHome, id: &str, toml: &str) -> Result<UpstreamConfig, String> {
    let name = format!("scripts/{id}/upstream.toml");
    home.write(&name, toml);
    read_at(&home.path().join("scripts").join(id), &SourceFile::new(name, toml))
}

fn read_at(dir: &Path, file: &SourceFile) -> Result<UpstreamConfig, String> {
    let resolver = Resolver::new(|r| match r {
        Reference::Env("TEST_SECRET") => Some("s3cr3t-value".to_owned()),
        Reference::Env(name) => std::env::var(name).ok(),
        Reference::File(_) => None,
    });
    let mut found = Diagnostics::default();
    let config = UpstreamConfig::read(file, dir, &resolver, &Arc::new(PackSources::default()), &mut found);
    match config {
        Some(config) if !found.has_errors() => Ok(config),
        _ => Err(found.to_string()),
    }
}

/// An upstream on its own.
pub(crate) struct TestUpstream {
    pub(crate) home: TestHome,
    pub(crate) config: UpstreamConfig,
    pub(crate) adapter: Arc<dyn Upstream>,
}

/// How a call is made.
pub(crate) struct How {
    pub(crate) timeout: Duration,
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: Option<ProgressSink>,
    pub(crate) read_only: bool,
}

impl Default for How {
    fn default() -> Self {
        let cancel = CancellationToken::new();
        Self { timeout: Duration::from_secs(20), cancel, progress: None, read_only: false }
    }
}

impl TestUpstream {
    /// An upstream from its settings, in an empty home.
    pub(crate) fn new(id: &str, toml: &str) -> Self {
        Self::at(TestHome::new(), id, toml)
    }

    /// An upstream from its settings, in a home that has files already.
    pub(crate) fn at(home: TestHome, id: &str, toml: &str) -> Self {
        let config = read(&home, id, toml).unwrap_or_else(|e| panic!("{e}"));
        let adapter = connect(&config, Clock::system());
        Self { home, config, adapter }
    }

    pub(crate) async fn discover(&self) -> Discovery {
        self.adapter.discover().await.unwrap()
    }

    /// One call with arguments.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Result<UpstreamReply, UpstreamError> {
        self.call_how(name, arguments, How::default()).await
    }

    /// One call with arguments, in a certain way.
    pub(crate) async fn call_how(
        &self,
        name: &str,
        arguments: Value,
        how: How,
    ) -> Result<UpstreamReply, UpstreamError> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        self.send(name, UpstreamRequest::Arguments(arguments), how).await
    }

    /// One HTTP request below the upstream's address.
    pub(crate) async fn fetch(
        &self,
        method: &str,
        path: &str,
        how: How,
    ) -> Result<UpstreamReply, UpstreamError> {
        let request = HttpRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
        };
        self.send("any", UpstreamRequest::Http(request), how).await
    }

    /// One request of any kind.
    pub(crate) async fn send(
        &self,
        name: &str,
        request: UpstreamRequest,
        how: How,
    ) -> Result<UpstreamReply, UpstreamError> {
        let permit = permit();
        self.adapter
            .invoke(Invocation {
                permit: &permit,
                name,
                request,
                deadline: Instant::now() + how.timeout,
                cancel: how.cancel,
                progress: how.progress,
                correlation_id: "test-1",
                read_only: how.read_only,
                lent: &[],
                arguments: None,
            })
            .await
    }
}

/// A permit, made as a policy makes it.
pub(crate) fn permit() -> Permit {
    let mut found = Diagnostics::default();
    let mut builder = CatalogBuilder::new(Vec::new());
    let (id, upstream) = (ToolId::parse("t.any").unwrap(), UpstreamId::parse("t").unwrap());
    builder.push(Tool::new(id, upstream, "any", SchemaText::empty_object()));
    let catalog = builder.build(&mut found);
    let policy = SourceFile::new("policies/all.rhai", "fn decide(caller, tool, args) { allow() }");
    let set = PolicySet::load(&[policy], PolicyTables::default(), &[], &mut found);
    let (tool, _) = catalog.lookup("t.any").unwrap();
    match set.decide(&catalog, &Principal::anonymous(), tool, None) {
        Decision::Permit(permit) => permit,
        other => panic!("{other:?} {found}"),
    }
}

/// The answer of an MCP server.
pub(crate) fn mcp(reply: &UpstreamReply) -> &McpReply {
    match &reply.body {
        ReplyBody::Mcp(mcp) => mcp,
        other => panic!("{other:?}"),
    }
}

/// The text of the first content block.
pub(crate) fn text(reply: &UpstreamReply) -> String {
    match &reply.body {
        ReplyBody::Mcp(mcp) => {
            let block: Value = serde_json::from_str(mcp.content[0].get()).unwrap();
            block["text"].as_str().unwrap_or_default().to_owned()
        }
        ReplyBody::Bytes { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    }
}

/// The names of what was found, sorted.
pub(crate) fn names(found: &Discovery) -> Vec<&str> {
    let mut names: Vec<&str> = found.tools.iter().map(|t| &*t.tool.name).collect();
    names.sort_unstable();
    names
}

/// A JSON-RPC answer.
#[expect(clippy::needless_pass_by_value, reason = "it is called with `json!`")]
pub(crate) fn result(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}
