//! `resources/read`: a text, a file, a tool's result, or what the upstream answers, bounded.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::failure::{self, Failed};
use super::super::record::refusal;
use super::super::script::Reentry;
use super::super::{CallAnswer, Gateway, RequestContext};
use super::{ContentBody, OfferAnswer, OfferView, ResourceContent, bind, own};
use crate::call::{ErrorCode, ToolCall, ToolError, ToolOutcome, ToolResult};
use crate::catalog::{URI_BYTES_MAX, Variables, of_upstream, upstream_uri};
use crate::id::{ToolId, ToolNo, UpstreamId};
use crate::jobs::JobView;
use crate::json::Object;
use crate::limits;
use crate::media;
use crate::policy::Permit;
use crate::secret;
use crate::snapshot::{Found, Resource, Source, Subject, described};
use crate::upstream::config::BackingCall;
use crate::upstream::{ErrorSource, OfferAsk, OfferCall, UpstreamConfig};

type Contents = OfferAnswer<Vec<ResourceContent>>;

/// Parts of one resource: a folder has many, no reader wants more.
const PARTS_MAX: usize = 1_000;

impl Gateway {
    /// Reads a resource by its address.
    pub async fn read_resource(&self, ctx: &RequestContext, uri: &str) -> Contents {
        let view = OfferView::of(self, ctx);
        let answer = self.read_in(ctx, &view, uri).await;
        if matches!(answer, OfferAnswer::NotFound) {
            refusal(self.audit(), ctx, ("resource", uri), ("unknown", None));
        }
        tracing::info!(
            principal.id = %ctx.principal.subject,
            request.id = %ctx.correlation_id,
            outcome = match &answer {
                OfferAnswer::Done(_) => "done",
                OfferAnswer::NotFound => "not_found",
                OfferAnswer::Challenge(_) => "challenged",
                OfferAnswer::Failed(e) => e.code.as_str(),
                OfferAnswer::Ask(_) => "asked",
            },
            "resource read"
        );
        answer
    }

    /// Whether this caller may know of a resource, so that it may watch it. Says nothing of whether a read works.
    pub fn shows_resource(&self, ctx: &RequestContext, uri: &str) -> bool {
        let view = OfferView::of(self, ctx);
        match view.offers().find(uri) {
            Some(Found::Resource(resource, _)) => view.shows(resource.subject),
            Some(Found::Unlisted(_, subject, _)) => view.shows(Subject::Own(subject)),
            None => own::shows(&view, ctx, uri),
        }
    }

    /// The same in a view that was taken before. Boxed: a prompt reads resources, a resource may be a tool.
    pub(super) fn read_in<'a>(
        &'a self,
        ctx: &'a RequestContext,
        view: &'a OfferView,
        uri: &'a str,
    ) -> BoxFuture<'a, Contents> {
        Box::pin(async move {
            if uri.len() > URI_BYTES_MAX {
                return OfferAnswer::NotFound;
            }
            if let Err(e) = self.renew_owned(&view.view.snapshot).await {
                return OfferAnswer::Failed(e);
            }
            if let Some(answer) = own::read(self, view, ctx, uri).await {
                return answer;
            }
            match view.offers().find(uri) {
                Some(Found::Resource(resource, variables)) => {
                    self.read_found(ctx, view, resource, (uri, variables)).await
                }
                // An upstream of which the caller may read nothing is one that is not there.
                Some(Found::Unlisted(_, subject, _)) if !view.shows(Subject::Own(subject)) => {
                    OfferAnswer::NotFound
                }
                Some(Found::Unlisted(upstream, subject, origin)) => {
                    let arguments = described(uri, &Variables::new());
                    match view.decide(ctx, subject, &arguments) {
                        Ok(permit) => self.read_upstream(ctx, view, upstream, &permit, origin).await,
                        Err(answer) => answer,
                    }
                }
                None => OfferAnswer::NotFound,
            }
        })
    }

    async fn read_found(
        &self,
        ctx: &RequestContext,
        view: &OfferView,
        resource: &Resource,
        (uri, variables): (&str, Variables),
    ) -> Contents {
        if !view.shows(resource.subject) {
            return OfferAnswer::NotFound;
        }
        let arguments = described(uri, &variables);
        let permit = match (&resource.source, resource.subject) {
            // Decided by the tool's own gate, with the tool's own arguments.
            (Source::Tool(call, tool), Subject::Tool(no)) => {
                let values: Object = variables.into_iter().map(|(k, v)| (k, Value::from(v))).collect();
                return self.read_tool(ctx, view, resource, (call, tool, no), &values, uri).await;
            }
            (_, Subject::Own(no)) => match view.decide(ctx, no, &arguments) {
                Ok(permit) => permit,
                Err(answer) => return answer,
            },
            (_, Subject::Tool(_)) => return OfferAnswer::Failed(failure::internal()),
        };
        let mime = resource.entry.mime.as_deref().map(str::to_owned);
        let body = match &resource.source {
            Source::Text(text) => {
                let values: Object = variables.into_iter().map(|(k, v)| (k, Value::from(v))).collect();
                ContentBody::Text(text.fill(&values).unwrap_or_default())
            }
            Source::Bytes(bytes) => content(bytes, mime.as_deref()),
            Source::Upstream(_) => {
                let origin = of_upstream(uri).map_or(uri, |(_, origin)| origin);
                return self.read_upstream(ctx, view, &resource.upstream, &permit, origin).await;
            }
            Source::Tool(..) => return OfferAnswer::Failed(failure::internal()),
        };
        OfferAnswer::Done(vec![ResourceContent { uri: uri.to_owned(), mime, body }])
    }

    async fn read_tool(
        &self,
        ctx: &RequestContext,
        view: &OfferView,
        resource: &Resource,
        (call, tool, no): (&BackingCall, &ToolId, ToolNo),
        values: &Object,
        uri: &str,
    ) -> Contents {
        let mime = resource.entry.mime.as_deref();
        let parts = |result: &ToolResult| contents_of(result, &call.pointer, uri, mime);
        match self.call_backing(ctx, view, (call, tool, no), values).await {
            OfferAnswer::Done(result) => parts(&result).map_or(OfferAnswer::NotFound, OfferAnswer::Done),
            OfferAnswer::NotFound => OfferAnswer::NotFound,
            OfferAnswer::Challenge(challenge) => OfferAnswer::Challenge(challenge),
            OfferAnswer::Failed(e) if e.code == ErrorCode::NotFound => OfferAnswer::NotFound,
            OfferAnswer::Failed(e) => OfferAnswer::Failed(e),
            OfferAnswer::Ask(question) => OfferAnswer::Ask(question),
        }
    }

    /// The call behind a resource or a part of a prompt: the whole way of a direct call, as the same caller.
    pub(super) async fn call_backing(
        &self,
        ctx: &RequestContext,
        view: &OfferView,
        (call, tool, no): (&BackingCall, &ToolId, ToolNo),
        values: &Object,
    ) -> OfferAnswer<ToolResult> {
        let schema = view.view.catalog().get(no).map(|t| t.input_schema.value()).unwrap_or_default();
        let call = ToolCall {
            tool: tool.as_str().to_owned(),
            arguments: bind(&call.arguments, values, &schema),
            wait: limits::CALL_WAIT,
            request_key: None,
            fields: Vec::new(),
        };
        match self.call_in(ctx, &view.view, call, Reentry::default()).await {
            CallAnswer::UnknownTool => OfferAnswer::NotFound,
            CallAnswer::Challenge(challenge) => OfferAnswer::Challenge(challenge),
            CallAnswer::Running(report) => OfferAnswer::Failed(still_running(&report)),
            CallAnswer::Ask(question) => OfferAnswer::Ask(question),
            CallAnswer::CannotAsk(missing) => OfferAnswer::Failed(failure::cannot_ask(&missing)),
            // Backing calls are answered to docent itself, which needs no task.
            CallAnswer::NeedsTask => OfferAnswer::Failed(failure::internal()),
            CallAnswer::BadState => {
                let message =
                    "`requestState` is not one that was given for the tool behind it: ask again without it.";
                OfferAnswer::Failed(ToolError::new(ErrorCode::InvalidArgument, message))
            }
            CallAnswer::Outcome(ToolOutcome::Failed(e)) => OfferAnswer::Failed(e),
            CallAnswer::Outcome(ToolOutcome::Completed(result)) if result.is_error => {
                OfferAnswer::Failed(error_of(&result))
            }
            CallAnswer::Outcome(ToolOutcome::Completed(result)) => OfferAnswer::Done(result),
        }
    }

    async fn read_upstream(
        &self,
        ctx: &RequestContext,
        view: &OfferView,
        upstream: &UpstreamId,
        permit: &Permit,
        origin: &str,
    ) -> Contents {
        let raw = match self.ask_upstream(ctx, view, upstream, permit, OfferAsk::Read(origin)).await {
            Ok(raw) => raw,
            // The upstream says that there is no such resource, in whatever words.
            Err((ErrorSource::Caller, _)) => return OfferAnswer::NotFound,
            Err((_, e)) => return OfferAnswer::Failed(e),
        };
        let Some(parts) = upstream_contents(upstream.as_str(), &raw) else {
            let message = format!("The upstream of `{upstream}` answered a resource that cannot be read.");
            return OfferAnswer::Failed(ToolError::new(ErrorCode::UpstreamSchemaMismatch, message));
        };
        let bytes: usize = parts.iter().map(|p| p.body.len()).sum();
        if bytes > limits::RESOURCE_INLINE_BYTES_MAX / 3 * 4 {
            return OfferAnswer::Failed(too_large(bytes));
        }
        if parts.is_empty() { OfferAnswer::NotFound } else { OfferAnswer::Done(parts) }
    }

    /// Asks an upstream for an offer within the time that its calls have.
    pub(super) async fn ask_upstream(
        &self,
        ctx: &RequestContext,
        view: &OfferView,
        upstream: &UpstreamId,
        permit: &Permit,
        ask: OfferAsk<'_>,
    ) -> Result<Box<RawValue>, (ErrorSource, ToolError)> {
        let set = &view.view.snapshot.upstreams;
        let Some(adapter) = set.get(upstream.as_str()) else {
            return Err((ErrorSource::Unsupported, failure::gone(permit.tool().as_str())));
        };
        let config = set.config(upstream.as_str());
        let timeout = config.map_or(limits::UPSTREAM_TIMEOUT, |c| c.timeout);
        let (started, cancel) = (self.clock().now(), ctx.cancel.child_token());
        let _told = cancel.clone().drop_guard();
        let call = OfferCall { permit, ask, deadline: started + timeout, cancel };
        let echoes = config.map_or(&[][..], UpstreamConfig::echoes);
        match adapter.offer(call).await {
            Ok(raw) => Ok(match secret::remove(raw.get(), echoes) {
                Some(clean) => RawValue::from_string(clean).unwrap_or_else(|_| RawValue::NULL.to_owned()),
                None => raw,
            }),
            Err(e) => {
                let e = e.without(echoes);
                let waited: Duration = self.clock().now().saturating_duration_since(started);
                let of =
                    Failed { tool: permit.tool().as_str(), read_only: true, waited_ms: waited.as_millis() };
                Err((e.source_kind, failure::upstream_failure(&e, of)))
            }
        }
    }
}

/// The tool took longer than a read waits for it; its work goes on.
fn still_running(job: &JobView) -> ToolError {
    let message = format!(
        "The tool behind it takes longer than a read waits. It goes on as the job `{}`: ask for that job's status.",
        &*job.id
    );
    ToolError::new(ErrorCode::Timeout, message).details(json!({ "job_id": &*job.id }))
}

/// Bytes as text where their type says so and they are, else as base64.
pub(in super::super) fn content(bytes: &[u8], mime: Option<&str>) -> ContentBody {
    match std::str::from_utf8(bytes) {
        Ok(text) if mime.is_none_or(media::is_text) => ContentBody::Text(text.to_owned()),
        _ => ContentBody::Blob(base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)),
    }
}

pub(super) fn too_large(bytes: usize) -> ToolError {
    ToolError::new(
        ErrorCode::UnsupportedCapability,
        format!(
            "The resource has {bytes} bytes, more than the {} that are read inline. Ask for a part of it.",
            limits::RESOURCE_INLINE_BYTES_MAX
        ),
    )
}

/// A result that is an error, as the error it stands for.
pub(super) fn error_of(result: &ToolResult) -> ToolError {
    let told = result.structured.as_ref().map(crate::json::JsonText::value).unwrap_or_default();
    let code = told.pointer("/error/code").and_then(Value::as_str).and_then(ErrorCode::parse);
    let message = told.pointer("/error/message").and_then(Value::as_str).or(result.text.as_deref());
    let first = result.blocks.first().and_then(|b| serde_json::from_str::<Value>(b.get()).ok());
    let block = first.as_ref().and_then(|b| b.get("text")?.as_str());
    let message = message.or(block).unwrap_or("The tool behind it reported a failure.");
    ToolError::new(code.unwrap_or(ErrorCode::UpstreamRejected), message)
}

/// A tool's result as the contents of a resource; `None` where the part that is asked for is not there.
fn contents_of(
    result: &ToolResult,
    pointer: &str,
    uri: &str,
    mime: Option<&str>,
) -> Option<Vec<ResourceContent>> {
    let part = |mime: Option<&str>, body| ResourceContent {
        uri: uri.to_owned(),
        mime: mime.map(str::to_owned),
        body,
    };
    let json_mime = || mime.or(Some("application/json"));
    if !pointer.is_empty() {
        let whole = result.structured.as_ref()?.value();
        let inside = || whole.get("data").filter(|_| result.is_plain)?.pointer(pointer);
        let text = match whole.pointer(pointer).or_else(inside)? {
            Value::Null => return None,
            Value::String(text) => return Some(vec![part(mime, ContentBody::Text(text.clone()))]),
            other => crate::json::to_text(other),
        };
        return Some(vec![part(json_mime(), ContentBody::Text(text))]);
    }
    let mut parts = Vec::new();
    if let Some((body, own)) = result.plain_body() {
        parts.push(part(mime.or(Some(&own)), ContentBody::Text(body)));
    } else if let Some(structured) = result.structured.as_ref().filter(|_| !result.is_plain) {
        parts.push(part(json_mime(), ContentBody::Text(structured.as_str().to_owned())));
    } else if let Some(text) = result.text.as_ref().filter(|_| result.blocks.is_empty()) {
        parts.push(part(mime.or(Some("text/plain")), ContentBody::Text(text.clone())));
    }
    for block in result.blocks.iter().filter_map(|b| serde_json::from_str::<Value>(b.get()).ok()) {
        let text = |key: &str| block.get(key).and_then(Value::as_str);
        match (text("type"), text("text"), text("data")) {
            (Some("text"), Some(text), _) => {
                parts.push(part(mime.or(Some("text/plain")), ContentBody::Text(text.to_owned())));
            }
            (Some("image" | "audio"), _, Some(data)) => {
                parts.push(part(text("mimeType").or(mime), ContentBody::Blob(data.to_owned())));
            }
            (Some("resource"), ..) => parts.extend(block.get("resource").and_then(|r| {
                let body = body_of(r)?;
                Some(part(r.get("mimeType").and_then(Value::as_str).or(mime), body))
            })),
            _ => {}
        }
    }
    (!parts.is_empty()).then_some(parts)
}

fn body_of(resource: &Value) -> Option<ContentBody> {
    let text = |key: &str| resource.get(key).and_then(Value::as_str).map(str::to_owned);
    text("text").map(ContentBody::Text).or_else(|| text("blob").map(ContentBody::Blob))
}

/// The contents of an upstream's answer under docent's addresses; a part that is none is left out.
fn upstream_contents(upstream: &str, raw: &RawValue) -> Option<Vec<ResourceContent>> {
    let value: Value = serde_json::from_str(raw.get()).ok()?;
    let parts = value.get("contents")?.as_array()?;
    let part = |p: &Value| {
        Some(ResourceContent {
            uri: upstream_uri(upstream, p.get("uri").and_then(Value::as_str).unwrap_or_default()),
            mime: p.get("mimeType").and_then(Value::as_str).map(str::to_owned),
            body: body_of(p)?,
        })
    };
    Some(parts.iter().take(PARTS_MAX).filter_map(part).collect())
}

impl ResourceContent {
    /// As MCP writes it in `contents` and inside a content block.
    pub fn value(&self) -> Value {
        let mut out = json!({ "uri": self.uri });
        if let Some(map) = out.as_object_mut() {
            if let Some(mime) = &self.mime {
                map.insert("mimeType".to_owned(), Value::from(mime.as_str()));
            }
            let (key, text) = match &self.body {
                ContentBody::Text(text) => ("text", text),
                ContentBody::Blob(text) => ("blob", text),
            };
            map.insert(key.to_owned(), Value::from(text.as_str()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::JsonText;

    #[test]
    fn a_result_is_contents_of_its_kinds() {
        let structured = Some(JsonText::of(&json!({"data": {"log": "line", "n": 1}, "none": null})));
        let result = ToolResult { structured, ..ToolResult::default() };
        let of = |pointer| contents_of(&result, pointer, "s://x", None);
        assert_eq!(of("").unwrap()[0].mime.as_deref(), Some("application/json"));
        assert_eq!(of("/data/log").unwrap()[0].body, ContentBody::Text("line".into()));
        assert_eq!(of("/data/n").unwrap()[0].value()["text"], "1");
        assert!(of("/data/absent").is_none() && of("/none").is_none());
        let plain = |text: Value, data: Value| {
            let structured =
                Some(JsonText::of(&json!({"text": text, "text_mime": "text/html", "data": data})));
            ToolResult { structured, is_plain: true, ..ToolResult::default() }
        };
        let page = contents_of(&plain(json!("<p>"), Value::Null), "", "s://x", None).unwrap();
        assert_eq!(page[0].value(), json!({"uri": "s://x", "mimeType": "text/html", "text": "<p>"}));
        let data = plain(Value::Null, json!({"n": 1}));
        assert_eq!(
            contents_of(&data, "", "s://x", None).unwrap()[0].body,
            ContentBody::Text("{\"n\":1}".into())
        );
        assert_eq!(contents_of(&data, "/n", "s://x", None).unwrap()[0].body, ContentBody::Text("1".into()));
        assert!(contents_of(&plain(Value::Null, Value::Null), "", "s://x", None).is_none());
        let block = |v: Value| RawValue::from_string(v.to_string()).unwrap();
        let blocks = vec![
            block(json!({"type": "image", "data": "AAAA", "mimeType": "image/png"})),
            block(json!({"type": "resource", "resource": {"uri": "u://1", "text": "t"}})),
            block(json!({"type": "resource_link", "uri": "u://2", "name": "n"})),
        ];
        let parts = contents_of(&ToolResult { blocks, ..ToolResult::default() }, "", "s://x", None).unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0].value(), json!({"uri": "s://x", "mimeType": "image/png", "blob": "AAAA"}));
    }

    #[test]
    fn an_upstreams_contents_get_docents_addresses_and_lose_what_is_none() {
        let raw = json!({"contents": [{"uri": "f:///a", "text": ""}, {"uri": "f:///b"}, {"blob": "AA=="}]});
        let raw = RawValue::from_string(raw.to_string()).unwrap();
        let parts = upstream_contents("fs", &raw).unwrap();
        assert_eq!(
            parts.iter().map(|p| p.uri.as_str()).collect::<Vec<_>>(),
            ["docent://upstream/fs/f:///a", "docent://upstream/fs/"]
        );
        assert!(upstream_contents("fs", &RawValue::from_string("{}".to_owned()).unwrap()).is_none());
    }

    #[test]
    fn a_failed_result_is_the_error_it_tells() {
        let envelope = json!({"ok": false, "error": {"code": "NOT_FOUND", "message": "no such order"}});
        let result = ToolResult { structured: Some(JsonText::of(&envelope)), ..ToolResult::default() };
        let error = error_of(&result);
        assert_eq!((error.code, &*error.message), (ErrorCode::NotFound, "no such order"));
    }
}
