//! Requests of the stateless wire: each carries all that is needed, and a client that goes away cancels.

use std::sync::Arc;

use super::{HttpReply, HttpRequest};
use crate::mcp::ask;
use crate::mcp::client::{Declared, with_client};
use crate::mcp::core::{Exchange, Mcp};
use crate::mcp::envelope::{Params, RequestId};
use crate::mcp::error::RpcError;
use crate::mcp::headers::check_stateless;
use crate::mcp::methods::Method;
use crate::mcp::params;
use crate::mcp::revision::Revision;
use crate::mcp::tools::call_arguments;

impl Mcp {
    pub(super) async fn stateless_request(
        self: &Arc<Self>,
        request: HttpRequest<'_>,
        id: RequestId,
        method: &str,
        params: Params,
        declared: &Declared,
    ) -> HttpReply {
        let fail = |error: &RpcError| HttpReply::error(Revision::V2026_07_28, Some(&id), error);
        let revision = match check_stateless(request.headers, method, &params, declared) {
            Ok(revision) => revision,
            Err(error) => return fail(&error),
        };
        let principal = with_client(Arc::clone(request.principal), declared.facts());
        let mut exchange = self.exchange(revision, principal, &request);
        exchange.ctx.negotiated = declared.negotiated();
        exchange.ctx.may_return = true;
        // Whatever ends this future or its stream early, the client is gone, and that is a cancellation
        // (MCP 2026-07-28, streamable HTTP, cancellation).
        let guard = exchange.ctx.cancel.clone().drop_guard();
        match Method::find(method, revision) {
            Some(Method::Listen) => match self.listen(exchange, &id, &params) {
                Ok(messages) => {
                    // A stream that nobody reads any more ends by itself.
                    guard.disarm();
                    HttpReply::Events(messages)
                }
                Err(error) => fail(&error),
            },
            Some(Method::CallTool) => {
                if let Err(error) = self.check_params(&request, &exchange, &params) {
                    return fail(&error);
                }
                exchange.ctx.reply = match ask::brought(&params) {
                    Ok(brought) => brought.map(Arc::new),
                    Err(error) => return fail(&error),
                };
                let token = declared.progress_token().filter(|_| request.asks_for_events());
                self.post_call(exchange, id, (Method::CallTool, params), (token, None), Some(guard)).await
            }
            _ => {
                let answer = self.answer(exchange, &id, method, params).await;
                guard.disarm();
                HttpReply::answer(revision, &id, answer)
            }
        }
    }

    /// The `Mcp-Param-*` headers of a call.
    fn check_params(
        &self,
        request: &HttpRequest<'_>,
        exchange: &Exchange,
        call: &Params,
    ) -> Result<(), RpcError> {
        let Some(tool) = call.text_member("name") else { return Ok(()) };
        let wanted = self.service.header_params(&exchange.ctx, &tool);
        if wanted.is_empty() {
            return Ok(());
        }
        let (_, arguments) = call_arguments(call)?;
        params::check(&wanted, request.headers, &arguments).map_err(RpcError::header_mismatch)
    }
}
