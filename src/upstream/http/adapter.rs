//! Kinds `http` and `openapi`: tools that are HTTP requests.

use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::{Bounds, HttpClient};
use crate::call::{HttpRequest, UpstreamReply, UpstreamRequest};
use crate::clock::Clock;
use crate::id::UpstreamId;
use crate::json::Object;
use crate::upstream::bare::by_hand;
use crate::upstream::config::{HttpTarget, UpstreamConfig};
use crate::upstream::{
    Discovery, ErrorSource, Invocation, Upstream, UpstreamError, UpstreamState, UpstreamStatus,
};

/// Where the tools of kind `openapi` come from and how their arguments become requests.
pub(in crate::upstream) trait Operations: Send + Sync + fmt::Debug {
    /// The tools, overrides applied.
    fn discovery(&self) -> Discovery;

    /// The request of one operation. `Err` is for the caller.
    fn request(&self, name: &str, arguments: &Object) -> Option<Result<HttpRequest, UpstreamError>>;
}

/// An HTTP service.
#[derive(Debug)]
pub(in crate::upstream) struct HttpUpstream {
    config: UpstreamConfig,
    client: HttpClient,
    operations: Option<Box<dyn Operations>>,
    slots: Semaphore,
    last_failure: Mutex<Option<String>>,
}

impl HttpUpstream {
    pub(in crate::upstream) fn new(
        config: &UpstreamConfig,
        target: &HttpTarget,
        operations: Option<Box<dyn Operations>>,
        clock: Clock,
    ) -> Self {
        let id = config.id.as_str();
        Self {
            client: HttpClient::new(id, target, &config.auth, config.read_bytes(), clock),
            slots: Semaphore::new(config.concurrency),
            config: config.clone(),
            operations,
            last_failure: Mutex::new(None),
        }
    }

    async fn call(&self, call: Invocation<'_>) -> Result<UpstreamReply, UpstreamError> {
        let request = match call.request {
            UpstreamRequest::Http(request) => request,
            UpstreamRequest::Arguments(arguments) => {
                let made = self.operations.as_ref().and_then(|o| o.request(call.name, &arguments));
                made.unwrap_or_else(|| {
                    Err(UpstreamError::internal(format!(
                        "the tool `{}` has no request; the operator should add `request = {{…}}` to its table",
                        call.name
                    )))
                })?
            }
        };
        let bounds = Bounds {
            deadline: call.deadline,
            cancel: &call.cancel,
            read_only: call.read_only,
            correlation_id: call.correlation_id,
        };
        let slot = tokio::select! {
            slot = self.slots.acquire() => slot,
            () = call.cancel.cancelled() => return Err(UpstreamError::cancelled(false, call.read_only)),
            () = tokio::time::sleep_until(call.deadline.into()) => {
                return Err(UpstreamError::timeout(self.config.id.as_str(), false, call.read_only));
            }
        };
        let reply = self.client.execute(&request, &bounds).await;
        drop(slot);
        self.note(reply.as_ref().err());
        reply
    }

    /// Remembers that the upstream failed, or that it works again. A call that was cancelled or asked for
    /// too much says nothing of the upstream.
    fn note(&self, error: Option<&UpstreamError>) {
        let failure = match error {
            None => None,
            Some(e) if matches!(e.source_kind, ErrorSource::Upstream | ErrorSource::Credentials) => {
                Some(e.message.clone())
            }
            Some(_) => return,
        };
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

impl Upstream for HttpUpstream {
    fn id(&self) -> &UpstreamId {
        &self.config.id
    }

    fn discover(&self) -> BoxFuture<'_, Result<Discovery, UpstreamError>> {
        let mut found = self
            .operations
            .as_ref()
            .map_or_else(|| Discovery { complete: true, ..Discovery::default() }, |o| o.discovery());
        found.tools.extend(self.config.tools.iter().filter_map(|t| by_hand(&self.config, t)));
        Box::pin(std::future::ready(Ok(found)))
    }

    fn invoke<'a>(&'a self, call: Invocation<'a>) -> BoxFuture<'a, Result<UpstreamReply, UpstreamError>> {
        Box::pin(self.call(call))
    }

    fn status(&self) -> UpstreamStatus {
        let note = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        UpstreamStatus {
            id: self.config.id.clone(),
            kind: self.config.kind.word(),
            state: if note.is_some() { UpstreamState::Down } else { UpstreamState::Up },
            complete: true,
            tools: self.config.tools.len(),
            note: note.unwrap_or_default(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
