//! A small client for both wires over HTTP.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{Stream, StreamExt as _};
use serde_json::{Value, json};

const AGENTS: &str = "io.modelcontextprotocol/agents";
const STATELESS: &str = "2026-07-28";
const SESSION: &str = "2025-11-25";

/// Which wire is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// `initialize`, then a session.
    Session,
    /// Every request by itself.
    Stateless,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refused {
    /// A JSON-RPC error.
    Rpc { code: i64, reason: String, message: String },
    /// More scopes are needed, and where to learn how to get them.
    StepUp { scopes: Vec<String>, resource_metadata: String },
    /// Something else went wrong on the way.
    Http { what: String },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Refused {}

impl From<reqwest::Error> for Refused {
    fn from(error: reqwest::Error) -> Self {
        Self::Http { what: error.to_string() }
    }
}

/// One caller, connected.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    pub(crate) token: String,
    wire: Wire,
    session: Option<String>,
    server: Value,
    /// The settings of the agents extension, as the server offers it.
    pub(crate) agents: Value,
    next: AtomicU64,
}

impl Client {
    /// Connects and reads what the server offers.
    pub(crate) async fn connect(url: &str, token: &str, wire: Wire) -> Result<Self, Refused> {
        // The walk is over plain HTTP; the client wants a provider all the same.
        rustls::crypto::ring::default_provider().install_default().ok();
        let mut client = Self {
            http: reqwest::Client::builder().no_proxy().build()?,
            url: format!("{url}/mcp"),
            token: token.to_owned(),
            wire,
            session: None,
            server: Value::Null,
            agents: Value::Null,
            next: AtomicU64::new(1),
        };
        let offered = match wire {
            Wire::Stateless => client.request("server/discover", json!({})).await?,
            Wire::Session => {
                let hello = json!({
                    "protocolVersion": SESSION,
                    "capabilities": { "extensions": { AGENTS: {} } },
                    "clientInfo": { "name": "agents_host", "version": "1" },
                });
                let response = client.post("initialize", hello).await?;
                let id = response.headers().get("mcp-session-id").and_then(|v| v.to_str().ok());
                client.session = id.map(str::to_owned);
                read(response).await?
            }
        };
        client.agents = offered["capabilities"]["extensions"][AGENTS].clone();
        client.server = match wire {
            Wire::Stateless => offered["_meta"]["io.modelcontextprotocol/serverInfo"].clone(),
            Wire::Session => offered["serverInfo"].clone(),
        };
        Ok(client)
    }

    /// What the server calls itself.
    pub(crate) fn server_name(&self) -> &str {
        self.server["name"].as_str().unwrap_or_default()
    }

    async fn post(&self, method: &str, mut params: Value) -> Result<reqwest::Response, Refused> {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        if self.wire == Wire::Stateless {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": STATELESS,
                "io.modelcontextprotocol/clientCapabilities": { "extensions": { AGENTS: {} } },
                "io.modelcontextprotocol/clientInfo": { "name": "agents_host", "version": "1" },
            });
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut request = self.request_to(reqwest::Method::POST).body(message.to_string());
        if self.wire == Wire::Stateless {
            request = request.header("mcp-method", method);
            if method == "tools/call" {
                request = request.header("mcp-name", name);
            }
        }
        Ok(request.send().await?)
    }

    fn request_to(&self, method: reqwest::Method) -> reqwest::RequestBuilder {
        let request = self
            .http
            .request(method, &self.url)
            .bearer_auth(&self.token)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        match (&self.session, self.wire) {
            (Some(id), _) => request.header("mcp-session-id", id),
            (None, Wire::Stateless) => request.header("mcp-protocol-version", STATELESS),
            (None, Wire::Session) => request,
        }
    }

    /// One request.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Result<Value, Refused> {
        read(self.post(method, params).await?).await
    }

    /// One call of a tool.
    pub(crate) async fn call(&self, tool: &Value, arguments: Value) -> Result<Value, Refused> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Every tool, all pages.
    pub(crate) async fn tools(&self) -> Result<Vec<Value>, Refused> {
        let (mut tools, mut params) = (Vec::new(), json!({}));
        loop {
            let page = self.request("tools/list", params).await?;
            tools.extend(page["tools"].as_array().cloned().unwrap_or_default());
            match &page["nextCursor"] {
                Value::String(cursor) => params = json!({ "cursor": cursor }),
                _ => return Ok(tools),
            }
        }
    }

    /// The stream on which changes are told: the session's own, or a subscription.
    pub(crate) async fn events(&self) -> Result<Events, Refused> {
        let response = match self.wire {
            Wire::Session => self.request_to(reqwest::Method::GET).send().await?,
            Wire::Stateless => {
                let filter = json!({ "notifications": { "agentsListChanged": true } });
                self.post("subscriptions/listen", filter).await?
            }
        };
        if !response.status().is_success() {
            return Err(Refused::Http { what: format!("no stream: {}", response.status()) });
        }
        let mut events = Events {
            bytes: Box::pin(response.bytes_stream()),
            text: String::new(),
            waiting: VecDeque::new(),
        };
        if self.wire == Wire::Stateless {
            // The acknowledgement: from here on no change is missed.
            events.next().await;
        }
        Ok(events)
    }
}

/// The result of a response, or why there is none.
async fn read(response: reqwest::Response) -> Result<Value, Refused> {
    let status = response.status();
    let challenge = response.headers().get("www-authenticate").and_then(|v| v.to_str().ok());
    let challenge = challenge.unwrap_or_default().to_owned();
    if status == 403 && challenge.contains("error=\"insufficient_scope\"") {
        let part = |name: &str| {
            let rest = challenge.split_once(&format!("{name}=\""))?.1;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let scopes = part("scope").unwrap_or_default();
        return Err(Refused::StepUp {
            scopes: scopes.split(' ').map(str::to_owned).collect(),
            resource_metadata: part("resource_metadata").unwrap_or_default(),
        });
    }
    let body = response.text().await?;
    let Ok(message) = body.parse::<Value>() else {
        return Err(Refused::Http { what: format!("{status}: {body}") });
    };
    match &message["error"] {
        Value::Null => Ok(message["result"].clone()),
        error => Err(Refused::Rpc {
            code: error["code"].as_i64().unwrap_or_default(),
            reason: error["data"]["reason"].as_str().unwrap_or_default().to_owned(),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
        }),
    }
}

/// Messages of an event stream.
pub(crate) struct Events {
    bytes: Pin<Box<dyn Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    text: String,
    waiting: VecDeque<Value>,
}

impl Events {
    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Some(message);
            }
            let chunk = self.bytes.next().await?.ok()?;
            self.text.push_str(&String::from_utf8_lossy(&chunk));
            while let Some((line, rest)) = self.text.split_once('\n') {
                let data = line.strip_prefix("data: ").and_then(|d| d.trim_end().parse().ok());
                self.waiting.extend(data);
                self.text = String::from(rest);
            }
        }
    }
}
