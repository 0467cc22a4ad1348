//! `agents/list` and `agents/get` of the agents draft (`io.modelcontextprotocol/agents`).
//!
//! The draft may still change its shape: everything that depends on it is in this file, in `extensions` and in
//! the two errors of `error`.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::core::{Answer, Exchange, Mcp};
use super::encode::ResultWriter;
use super::envelope::{Params, RequestId};
use super::error::RpcError;
use crate::gateway::{AgentAnswer, AgentDetails};
use crate::snapshot::ModelHint;

#[derive(Deserialize)]
struct GetParams {
    name: String,
}

/// What both results have besides: they are made for one caller, so no shared cache may keep them. The
/// extension defines its results for either wire, so the session wire has these members too.
fn put_frame(writer: &mut ResultWriter, exchange: &Exchange, ttl_ms: u64) {
    writer.put("ttlMs", &ttl_ms);
    writer.put("cacheScope", "private");
    if !exchange.revision.is_stateless() {
        writer.put("resultType", "complete");
    }
}

impl Mcp {
    /// `agents/list`: one page of cards.
    pub(super) fn list_agents(
        &self,
        exchange: &Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Result<Bytes, RpcError> {
        let cursor = params.cursor()?;
        let page = self.service.list_agents(&exchange.ctx, cursor.as_deref())?;
        let mut writer = ResultWriter::new(id, 256 * (page.agents.len() + 1));
        writer.put("agents", &page.agents);
        writer.put_next(page.next_cursor.as_deref());
        put_frame(&mut writer, exchange, page.ttl_ms);
        Ok(writer.finish(exchange.revision, None, &self.server_info()))
    }

    /// `agents/get`: instructions, model hint and the tools, byte for byte as `tools/list` has them.
    pub(super) fn get_agent(&self, exchange: &Exchange, id: &RequestId, params: &Params) -> Answer {
        let name = match params.read::<GetParams>() {
            Ok(get) => get.name,
            Err(error) => return Answer::Failed(error),
        };
        match self.service.get_agent(&exchange.ctx, &name) {
            AgentAnswer::Open(details) => Answer::Done(self.opened(exchange, id, &details)),
            AgentAnswer::NotFound => Answer::Failed(RpcError::agent_not_found()),
            AgentAnswer::Challenge(challenge) => Answer::Challenge(challenge),
            AgentAnswer::Refused(why) => Answer::Failed(RpcError::agent_refused(&why)),
            AgentAnswer::Invalid => Answer::Failed(RpcError::invalid_agent_definition()),
        }
    }

    fn opened(&self, exchange: &Exchange, id: &RequestId, details: &AgentDetails) -> Bytes {
        let entries = details.tools.tools.iter().map(|t| t.bytes()).sum::<usize>();
        let mut writer = ResultWriter::new(id, entries + 1_024);
        writer.put("agent", &details.name);
        if let Some(instructions) = &details.instructions {
            writer.put("instructions", instructions);
        }
        if let Some(hint) = &details.model_hint {
            writer.put("modelRoutingHint", &routing_hint(hint));
        }
        self.entries.write(writer.member("tools"), exchange.revision, &details.tools);
        put_frame(&mut writer, exchange, details.ttl_ms);
        let left_out = (!details.omitted.is_empty()).then(|| json!({ OMITTED: details.omitted }));
        writer.finish(exchange.revision, left_out.as_ref(), &self.server_info())
    }
}

/// `_meta` member that tells which tools of an agent are not in its answer.
const OMITTED: &str = "dev.docent/omitted";

/// `vision` is always there; a role only where hosts know it.
fn routing_hint(hint: &ModelHint) -> Value {
    match hint.known_role() {
        Some(role) => json!({ "role": role, "vision": hint.vision }),
        None => json!({ "vision": hint.vision }),
    }
}
