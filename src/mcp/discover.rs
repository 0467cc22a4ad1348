//! What the server says of itself: `initialize` and `server/discover`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::core::{Exchange, Mcp};
use super::encode::ResultWriter;
use super::envelope::RequestId;
use super::extensions;
use super::revision::Revision;
use super::service::Service;
use crate::limits::LIST_TTL;

/// The capabilities that have methods behind them, and the extensions where results can carry them. They say
/// what the server can do, not what there is for this caller: a list that is empty for it must not look like
/// one that is not there.
fn capabilities(service: &dyn Service, revision: Revision) -> Value {
    let mut out = json!({ "tools": { "listChanged": true } });
    let Some(map) = out.as_object_mut() else { return out };
    if service.gateway().is_some() {
        map.insert("resources".to_owned(), json!({ "subscribe": true, "listChanged": true }));
        map.insert("prompts".to_owned(), json!({ "listChanged": true }));
        map.insert("completions".to_owned(), json!({}));
        if revision == Revision::V2025_11_25 {
            // Later revisions have them as an extension, earlier ones not at all.
            map.insert("tasks".to_owned(), json!({ "cancel": {}, "requests": { "tools": { "call": {} } } }));
        }
    }
    if revision.is_structured() {
        map.insert("extensions".to_owned(), extensions::offered(&service.name(), revision));
    }
    out
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
        writer.put("capabilities", &capabilities(&*self.service, exchange.revision));
        let instructions = self.service.instructions(&exchange.ctx);
        if !instructions.is_empty() {
            writer.put("instructions", &instructions);
        }
    }
}
