//! What the server says of itself: `initialize` and `server/discover`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::core::{Exchange, Mcp};
use super::encode::ResultWriter;
use super::envelope::RequestId;
use super::extensions;
use super::revision::Revision;
use crate::limits::LIST_TTL;

/// The capabilities that have methods behind them, and the extensions where results can carry them.
fn capabilities(server: &str, revision: Revision) -> Value {
    if revision.is_structured() {
        json!({ "tools": { "listChanged": true }, "extensions": extensions::offered(server, revision) })
    } else {
        json!({ "tools": { "listChanged": true } })
    }
}

/// `ttlMs` and `cacheScope` of a list: it is made for one caller, so no shared cache may keep it.
pub(super) fn put_caching(writer: &mut ResultWriter, revision: Revision) {
    if revision.is_stateless() {
        writer.put("ttlMs", &u64::try_from(LIST_TTL.as_millis()).unwrap_or(u64::MAX));
        writer.put("cacheScope", "private");
    }
}

impl Mcp {
    /// `server/discover`.
    pub(super) fn discover(&self, exchange: &Exchange, id: &RequestId) -> Bytes {
        let mut writer = ResultWriter::new(id, 1024);
        let versions: Vec<&str> = Revision::ALL.iter().map(|r| r.as_str()).collect();
        writer.put("supportedVersions", &versions);
        self.put_self(&mut writer, exchange);
        put_caching(&mut writer, exchange.revision);
        writer.finish(exchange.revision, None, &self.server_info())
    }

    /// The answer to `initialize`, in the revision that was settled on.
    pub(super) fn initialized(&self, exchange: &Exchange, id: &RequestId) -> Bytes {
        let mut writer = ResultWriter::new(id, 1024);
        writer.put("protocolVersion", exchange.revision.as_str());
        self.put_self(&mut writer, exchange);
        let server = self.server_info();
        writer.put("serverInfo", &server);
        writer.finish(exchange.revision, None, &server)
    }

    fn put_self(&self, writer: &mut ResultWriter, exchange: &Exchange) {
        writer.put("capabilities", &capabilities(&self.service.name(), exchange.revision));
        let instructions = self.service.instructions(&exchange.ctx);
        if !instructions.is_empty() {
            writer.put("instructions", &instructions);
        }
    }
}
