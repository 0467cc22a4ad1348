//! Resources and prompts of an MCP server: listed page by page like its tools, read through raw, watched.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::rpc::Outgoing;
use super::{Asked, Link, McpUpstream, Track, Walked};
use crate::catalog::URI_BYTES_MAX;
use crate::catalog::{PromptArgument, PromptEntry, ResourceEntry, UriTemplate, upstream_uri};
use crate::json::{self, JsonText};
use crate::limits;
use crate::media;
use crate::upstream::text;
use crate::upstream::{OfferAsk, OfferCall, Offered, OfferedResource, UpstreamError};

/// Bytes of a description that is kept: longer ones serve no model.
const TEXT_BYTES_MAX: usize = 4_096;
/// Arguments of one prompt.
const ARGUMENTS_MAX: usize = 100;

/// A member in whatever shape it came.
fn words(value: &Value, key: &str) -> Option<Arc<str>> {
    let (plain, _) = text::clean(value.get(key)?.as_str()?);
    (!plain.is_empty()).then(|| Arc::from(json::cut(&plain, TEXT_BYTES_MAX)))
}

/// A resource or template; the error says what is wrong with it.
fn resource(upstream: &str, value: &Value, key: &str) -> Result<OfferedResource, &'static str> {
    let origin =
        value.get(key).and_then(Value::as_str).filter(|u| !u.is_empty()).ok_or("it has no address")?;
    if origin.len() > URI_BYTES_MAX || origin.chars().any(char::is_control) {
        return Err("its address is too long or no address");
    }
    let uri = upstream_uri(upstream, origin);
    let template = match key {
        "uriTemplate" => Some(UriTemplate::lenient(&uri).map_err(|_why| "its template cannot be read")?),
        _ => None,
    };
    let annotations = value.get("annotations").filter(|a| a.is_object());
    let entry = ResourceEntry {
        uri: Arc::from(uri),
        name: words(value, "name").unwrap_or_else(|| Arc::from(json::cut(origin, 200))),
        title: words(value, "title"),
        description: words(value, "description"),
        mime: value.get("mimeType").and_then(Value::as_str).and_then(media::essence).map(Arc::from),
        size: value.get("size").and_then(Value::as_u64),
        annotations: annotations.filter(|a| json::encoded_len(a) <= TEXT_BYTES_MAX).map(JsonText::of),
    };
    Ok(OfferedResource { entry, origin: Arc::from(origin), template })
}

fn prompt(value: &Value) -> Result<PromptEntry, &'static str> {
    let name = value.get("name").and_then(Value::as_str).filter(|n| !n.is_empty()).ok_or("it has no name")?;
    if name.len() > limits::CLIENT_FACT_BYTES_MAX {
        return Err("its name is too long");
    }
    let argument = |a: &Value| {
        Some(PromptArgument {
            name: Arc::from(a.get("name")?.as_str()?),
            title: words(a, "title"),
            description: words(a, "description"),
            required: a.get("required").and_then(Value::as_bool).unwrap_or(false),
        })
    };
    let arguments = value.get("arguments").and_then(Value::as_array);
    Ok(PromptEntry {
        name: Arc::from(name),
        title: words(value, "title"),
        description: words(value, "description"),
        arguments: arguments.into_iter().flatten().take(ARGUMENTS_MAX).filter_map(argument).collect(),
    })
}

/// A page of a list: its members and the cursor of the next.
fn page(result: &str, member: &str) -> Option<(Vec<Value>, Option<String>)> {
    #[derive(Deserialize)]
    struct Next {
        #[serde(rename = "nextCursor")]
        next: Option<String>,
    }
    let mut value: Value = json::parse(result.as_bytes(), limits::DISCOVERY_PAGE_BYTES_MAX).ok()?;
    let next = serde_json::from_str::<Next>(result).ok().and_then(|n| n.next);
    match value.get_mut(member).map(Value::take) {
        Some(Value::Array(items)) => Some((items, next)),
        _ => None,
    }
}

impl McpUpstream {
    /// Everything it offers besides tools. What could not be read is told in the second part.
    pub(super) async fn offers(&self) -> (Offered, Vec<String>) {
        let mut found = Offered::default();
        let mut problems = Vec::new();
        let Some(facts) = self.link.facts() else { return (found, problems) };
        found.reads = facts.has_resources;
        self.watchable.store(facts.can_watch, Ordering::Relaxed);
        if facts.has_resources {
            for (method, member, key) in [
                ("resources/list", "resources", "uri"),
                ("resources/templates/list", "resourceTemplates", "uriTemplate"),
            ] {
                let read = |value: &Value| resource(self.name(), value, key);
                let items = self.collect(method, member, &read, &mut problems).await;
                found.resources.extend(items);
            }
        }
        if facts.has_prompts {
            found.prompts = self.collect("prompts/list", "prompts", &prompt, &mut problems).await;
        }
        (found, problems)
    }

    /// Walks one list; a malformed entry is told and skipped, never the list.
    async fn collect<T: Send>(
        &self,
        method: &'static str,
        member: &'static str,
        read: &(dyn Fn(&Value) -> Result<T, &'static str> + Sync),
        problems: &mut Vec<String>,
    ) -> Vec<T> {
        let mut items = Vec::new();
        let (mut skipped, mut unreadable) = (Vec::new(), false);
        let walked = self
            .walk(method, &mut |result| {
                let Some((values, next)) = page(result, member) else {
                    unreadable = true;
                    return None;
                };
                for value in values {
                    match read(&value) {
                        Ok(item) => items.push(item),
                        Err(why) => skipped.push(why),
                    }
                }
                next.filter(|_| items.len() < limits::OFFERS_PER_UPSTREAM_MAX)
            })
            .await;
        if let Some(why) = skipped.first() {
            problems.push(format!("{} of its {member} were skipped: {why}", skipped.len()));
        }
        if unreadable {
            problems.push(format!("a page of its {member} is not readable"));
        }
        match walked {
            Walked::Whole => {}
            Walked::Refused(e) => problems.push(format!("its {member} could not be listed: {}", e.message)),
            Walked::BrokeOff(why) => problems.push(format!("its list of {member}: {why}")),
        }
        if items.len() > limits::OFFERS_PER_UPSTREAM_MAX {
            items.truncate(limits::OFFERS_PER_UPSTREAM_MAX);
            problems.push(format!("it has more than {} {member}", limits::OFFERS_PER_UPSTREAM_MAX));
        }
        items
    }

    /// Asks what a caller was permitted to ask.
    pub(super) async fn ask(&self, call: OfferCall<'_>) -> Result<Box<RawValue>, UpstreamError> {
        let (method, params, name) = match call.ask {
            OfferAsk::Read(uri) => ("resources/read", format!("\"uri\":{}", json::to_text(uri)), Some(uri)),
            OfferAsk::Prompt(name, arguments) => {
                let arguments = json::to_text(arguments);
                let params = format!("\"name\":{},\"arguments\":{arguments}", json::to_text(name));
                ("prompts/get", params, Some(name))
            }
            OfferAsk::Complete(params) => {
                let text = json::to_text(params);
                let inside = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or_default();
                ("completion/complete", inside.to_owned(), None)
            }
        };
        let out = Outgoing { method, params: &params, name, progress: false };
        let max = self.config.read_bytes().max(limits::RESOURCE_INLINE_BYTES_MAX / 3 * 4);
        let asked = Asked { out, headers: Vec::new(), max, progress: None, read_only: true };
        let answer = self.exchange(&asked, &call.cancel, call.deadline).await;
        self.note(answer.as_ref().err());
        // It was read as JSON before.
        Ok(RawValue::from_string(answer?.into()).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Begins or ends watching a resource. Nothing waits for it: watching is a help, reading is what counts.
    pub(super) fn watch_resource(&self, uri: &str, on: bool) {
        let moved = if on { self.signals.watch(uri) } else { self.signals.unwatch(uri) };
        if !moved || !self.link.subscribes() {
            return;
        }
        let method = if on { "resources/subscribe" } else { "resources/unsubscribe" };
        let (link, params) = (self.link.clone(), format!("\"uri\":{}", json::to_text(uri)));
        tokio::spawn(async move {
            let out = Outgoing { method, params: &params, name: None, progress: false };
            let max = limits::TEXT_BYTES;
            let asked = Asked { out, headers: Vec::new(), max, progress: None, read_only: true };
            let track = Track::default();
            let asking = link.request(&asked, &track);
            drop(tokio::time::timeout(limits::CONNECT_TIMEOUT, asking).await);
        });
    }

    /// Whether it can tell of changes of its resources.
    pub(super) fn can_watch(&self) -> bool {
        self.watchable.load(Ordering::Relaxed)
    }
}

impl Link {
    fn facts(&self) -> Option<super::rpc::ServerFacts> {
        match self {
            Self::Http(link) => link.facts(),
            Self::Stdio(link) => link.facts(),
            Self::Broken(_) => None,
        }
    }

    fn subscribes(&self) -> bool {
        match self {
            Self::Http(link) => link.subscribes(),
            Self::Stdio(link) => link.subscribes(),
            Self::Broken(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_taken_leniently_under_docents_addresses() {
        let value = json!({"uri": "file:///a", "name": 7, "mimeType": "Text/Plain; charset=x", "size": "big",
            "description": "a\u{200b}b", "annotations": []});
        let found = resource("fs", &value, "uri").unwrap();
        assert_eq!(&*found.entry.uri, "docent://upstream/fs/file:///a");
        assert_eq!((&*found.entry.name, found.entry.mime.as_deref()), ("file:///a", Some("text/plain")));
        assert_eq!(found.entry.description.as_deref(), Some("ab"));
        let template = resource("fs", &json!({"uriTemplate": "t://{id}{?q*}"}), "uriTemplate").unwrap();
        assert!(template.template.unwrap().matches("docent://upstream/fs/t://1?q=2").is_some());
        assert!(resource("fs", &json!({"name": "x"}), "uri").is_err());
        let asked =
            prompt(&json!({"name": "p", "arguments": [{"name": "a", "required": true}, {"nope": 1}]}));
        assert_eq!(asked.unwrap().arguments.len(), 1);
        assert!(prompt(&json!({"name": ""})).is_err());
    }
}
