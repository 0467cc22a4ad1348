//! Kinds `http` and `openapi`: tools that are HTTP requests.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::{OnceCell, Semaphore};

use super::operations::Operations;
use super::{Bounds, HttpClient};
use crate::call::{UpstreamReply, UpstreamRequest};
use crate::clock::Clock;
use crate::id::UpstreamId;
use crate::upstream::bare::by_hand;
use crate::upstream::config::{HttpTarget, OpenApiSource, UpstreamConfig};
use crate::upstream::{
    Discovery, ErrorSource, Invocation, Upstream, UpstreamError, UpstreamState, UpstreamStatus,
};

/// An HTTP service.
#[derive(Debug)]
pub(in crate::upstream) struct HttpUpstream {
    config: UpstreamConfig,
    clock: Clock,
    source: Source,
    client: OnceLock<HttpClient>,
    slots: Semaphore,
    last_failure: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Source {
    /// Tools written by hand.
    ByHand(Box<HttpTarget>),
    /// Tools from a document, which is read when it is first needed.
    Document(Box<OpenApiSource>, OnceCell<Arc<Operations>>),
}

impl HttpUpstream {
    pub(in crate::upstream) fn by_hand(config: &UpstreamConfig, target: &HttpTarget, clock: Clock) -> Self {
        Self::new(config, Source::ByHand(Box::new(target.clone())), clock)
    }

    pub(in crate::upstream) fn document(
        config: &UpstreamConfig,
        source: &OpenApiSource,
        clock: Clock,
    ) -> Self {
        Self::new(config, Source::Document(Box::new(source.clone()), OnceCell::new()), clock)
    }

    fn new(config: &UpstreamConfig, source: Source, clock: Clock) -> Self {
        Self {
            slots: Semaphore::new(config.concurrency),
            config: config.clone(),
            clock,
            source,
            client: OnceLock::new(),
            last_failure: Mutex::new(None),
        }
    }

    /// The document's operations, read once and not on an async thread; `None` for tools written by hand.
    async fn operations(&self) -> Result<Option<&Arc<Operations>>, UpstreamError> {
        let Source::Document(source, cell) = &self.source else { return Ok(None) };
        let load = async {
            let (config, source) = (self.config.clone(), source.clone());
            let loaded = tokio::task::spawn_blocking(move || Operations::load(&config, &source)).await;
            let failed = |e| UpstreamError::internal("the document could not be read").detail(&e);
            loaded.map_err(failed)?.map(Arc::new)
        };
        cell.get_or_try_init(|| load).await.map(Some)
    }

    fn client(&self, operations: Option<&Arc<Operations>>) -> Result<&HttpClient, UpstreamError> {
        let target = match &self.source {
            Source::ByHand(target) => Some(target.as_ref()),
            Source::Document(..) => operations.and_then(|o| o.target.as_ref()),
        };
        let target = target.ok_or_else(|| {
            UpstreamError::internal(format!(
                "nobody has said where `{}` is; the operator should add `base_url`",
                self.config.id
            ))
        })?;
        let (id, bytes) = (self.config.id.as_str(), self.config.read_bytes());
        Ok(self
            .client
            .get_or_init(|| HttpClient::new(id, target, &self.config.auth, bytes, self.clock.clone())))
    }

    async fn call(&self, call: Invocation<'_>) -> Result<UpstreamReply, UpstreamError> {
        let operations = self.operations().await?;
        let client = self.client(operations)?;
        let request = match call.request {
            UpstreamRequest::Http(request) => request,
            UpstreamRequest::Arguments(arguments) => {
                let made = operations.and_then(|o| o.request(call.name, &arguments));
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
        let reply = client.execute(&request, &bounds).await;
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
        Box::pin(async {
            let operations = self.operations().await?;
            let mut found = operations.map_or_else(
                || Discovery { complete: true, ..Discovery::default() },
                |o| o.discovery.clone(),
            );
            found.tools.extend(self.config.tools.iter().filter_map(|t| by_hand(&self.config, t)));
            Ok(found)
        })
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
