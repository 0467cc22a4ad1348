//! Resources, prompts and completion on the wire, in the shape of each revision.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ask;
use super::core::{Answer, Exchange, Mcp};
use super::discover::put_caching;
use super::encode::ResultWriter;
use super::envelope::{Params, RequestId};
use super::error::{INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, RpcError};
use super::methods::Method;
use super::revision::Revision;
use crate::call::{ErrorCode, ToolError};
use crate::catalog::{PromptEntry, ResourceEntry};
use crate::gateway::{ClientQuestion, Completing, Completion, Gateway, OfferAnswer, RequestContext};

#[derive(Deserialize)]
struct ReadParams {
    uri: String,
}

#[derive(Deserialize)]
struct PromptParams {
    name: String,
    arguments: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct CompleteParams {
    #[serde(rename = "ref")]
    reference: Reference,
    argument: Argument,
    context: Option<Context>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct Context {
    arguments: Option<Map<String, Value>>,
}

/// A failure of a use case as a JSON-RPC error; what a program needs of it stands in `data`.
fn failed(error: &ToolError) -> RpcError {
    let code = match error.code {
        ErrorCode::InvalidArgument | ErrorCode::NotFound | ErrorCode::BudgetTooSmall => INVALID_PARAMS,
        _ => INTERNAL_ERROR,
    };
    RpcError::new(code, error.message.clone()).data(json!(error))
}

/// A resource that is not there or is hidden. The number changed with the stateless wire (SEP-2164).
fn no_resource(revision: Revision, uri: &str) -> RpcError {
    let code = if revision.is_stateless() { INVALID_PARAMS } else { RESOURCE_NOT_FOUND };
    RpcError::new(
        code,
        "there is no such resource; `resources/list` and `resources/templates/list` name them",
    )
    .data(json!({ "uri": uri }))
}

fn no_prompt() -> RpcError {
    RpcError::invalid_params("there is no such prompt; `prompts/list` names those there are")
}

fn no_reference() -> RpcError {
    RpcError::invalid_params("there is no such prompt or template to complete")
}

/// An answer of a use case as one of the wire.
fn answer<T>(
    given: OfferAnswer<T>,
    absent: impl FnOnce() -> RpcError,
    done: impl FnOnce(T) -> Bytes,
) -> Answer {
    match given {
        OfferAnswer::Done(value) => Answer::Done(done(value)),
        OfferAnswer::NotFound => Answer::Failed(absent()),
        OfferAnswer::Challenge(challenge) => Answer::Challenge(challenge),
        OfferAnswer::Failed(error) => Answer::Failed(failed(&error)),
        // Asked on by whoever can be, before this; from here on nobody can.
        OfferAnswer::Ask(_) => Answer::Failed(RpcError::new(INTERNAL_ERROR, "nobody can be asked here")),
    }
}

/// The context of a read or a prompt. On the stateless wire its client can be asked by `input_required`, and brings
/// answers with the same request; a session has no way for that, so there a tool that asks is refused.
fn asking(exchange: &Exchange, params: &Params) -> Result<RequestContext, RpcError> {
    let mut ctx = exchange.ctx.clone();
    if exchange.revision.is_stateless() {
        ctx.reply = ask::brought(params)?.map(Arc::new);
    } else {
        (ctx.negotiated, ctx.reply) = (ctx.negotiated.without_asking(), None);
    }
    Ok(ctx)
}

impl Mcp {
    /// Requests of this file. Those that ask an upstream or a tool end early when the caller gives up.
    pub(super) async fn offer(
        &self,
        exchange: &Exchange,
        id: &RequestId,
        method: Method,
        params: &Params,
    ) -> Answer {
        let Some(gateway) = self.service.gateway() else {
            return Answer::Failed(RpcError::new(METHOD_NOT_FOUND, "nothing of this kind is offered here"));
        };
        let asking = async {
            let done = match method {
                Method::ListResources | Method::ListTemplates => {
                    self.list_resources(gateway, exchange, id, method, params).await
                }
                Method::ListPrompts => self.list_prompts(gateway, exchange, id, params),
                Method::Subscribe | Method::Unsubscribe => {
                    self.subscribe(gateway, exchange, id, method == Method::Subscribe, params)
                }
                Method::ReadResource => return self.read_resource(gateway, exchange, id, params).await,
                Method::GetPrompt => return self.get_prompt(gateway, exchange, id, params).await,
                _ => return self.complete(gateway, exchange, id, params).await,
            };
            done.map_or_else(Answer::Failed, Answer::Done)
        };
        tokio::select! {
            biased;
            answer = asking => answer,
            () = exchange.ctx.cancel.cancelled() => Answer::Cancelled,
        }
    }

    fn ask_on(&self, id: &RequestId, question: &ClientQuestion) -> Answer {
        Answer::Done(ask::input_required(id, question, &self.server_info()))
    }

    fn finish(&self, writer: ResultWriter, exchange: &Exchange) -> Bytes {
        writer.finish(exchange.revision, None, &self.server_info())
    }

    async fn list_resources(
        &self,
        gateway: &Gateway,
        exchange: &Exchange,
        id: &RequestId,
        method: Method,
        params: &Params,
    ) -> Result<Bytes, RpcError> {
        let cursor = params.cursor()?;
        let (page, member, key) = match method {
            Method::ListResources => {
                (gateway.list_resources(&exchange.ctx, cursor.as_deref()).await, "resources", "uri")
            }
            _ => {
                let page = gateway.list_templates(&exchange.ctx, cursor.as_deref());
                (page, "resourceTemplates", "uriTemplate")
            }
        };
        let page = page?;
        let mut writer = ResultWriter::new(id, page.resources.len() * 256);
        let list: Vec<Value> =
            page.resources.iter().map(|entry| resource(entry, key, exchange.revision)).collect();
        writer.put(member, &list);
        Ok(self.end_list(writer, exchange, page.next_cursor.as_deref()))
    }

    fn end_list(&self, mut writer: ResultWriter, exchange: &Exchange, next: Option<&str>) -> Bytes {
        writer.put_next(next);
        put_caching(&mut writer, exchange.revision);
        self.finish(writer, exchange)
    }

    fn list_prompts(
        &self,
        gateway: &Gateway,
        exchange: &Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Result<Bytes, RpcError> {
        let cursor = params.cursor()?;
        let page = gateway.list_prompts(&exchange.ctx, cursor.as_deref())?;
        let mut writer = ResultWriter::new(id, page.prompts.len() * 256);
        let list: Vec<Value> = page.prompts.iter().map(|entry| prompt(entry, exchange.revision)).collect();
        writer.put("prompts", &list);
        Ok(self.end_list(writer, exchange, page.next_cursor.as_deref()))
    }

    async fn read_resource(
        &self,
        gateway: &Gateway,
        exchange: &Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Answer {
        let uri = match params.read::<ReadParams>() {
            Ok(ReadParams { uri }) => uri,
            Err(error) => return Answer::Failed(error),
        };
        let ctx = match asking(exchange, params) {
            Ok(ctx) => ctx,
            Err(error) => return Answer::Failed(error),
        };
        let read = match gateway.read_resource(&ctx, &uri).await {
            OfferAnswer::Ask(question) => return self.ask_on(id, &question),
            read => read,
        };
        answer(
            read,
            || no_resource(exchange.revision, &uri),
            |parts| {
                let bytes: usize = parts.iter().map(|p| p.body.len() + 256).sum();
                let mut writer = ResultWriter::new(id, bytes);
                let contents: Vec<Value> = parts.iter().map(crate::gateway::ResourceContent::value).collect();
                writer.put("contents", &contents);
                if exchange.revision.is_stateless() {
                    // What a read gives may change at any time; those who want to know watch it.
                    writer.put("ttlMs", &0);
                    writer.put("cacheScope", "private");
                }
                self.finish(writer, exchange)
            },
        )
    }

    async fn get_prompt(
        &self,
        gateway: &Gateway,
        exchange: &Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Answer {
        let asked = match params.read::<PromptParams>() {
            Ok(asked) => asked,
            Err(error) => return Answer::Failed(error),
        };
        let arguments = asked.arguments.unwrap_or_default();
        let ctx = match asking(exchange, params) {
            Ok(ctx) => ctx,
            Err(error) => return Answer::Failed(error),
        };
        let got = match gateway.get_prompt(&ctx, &asked.name, &arguments).await {
            OfferAnswer::Ask(question) => return self.ask_on(id, &question),
            got => got,
        };
        answer(got, no_prompt, |text| {
            let mut writer = ResultWriter::new(id, 1024);
            if let Some(description) = &text.description {
                writer.put("description", &**description);
            }
            let message = |m: &crate::gateway::PromptMessage| json!({ "role": m.role, "content": block(&m.content, exchange.revision) });
            writer.put("messages", &text.messages.iter().map(message).collect::<Vec<_>>());
            self.finish(writer, exchange)
        })
    }

    async fn complete(
        &self,
        gateway: &Gateway,
        exchange: &Exchange,
        id: &RequestId,
        params: &Params,
    ) -> Answer {
        let asked = match params.read::<CompleteParams>() {
            Ok(asked) => asked,
            Err(error) => return Answer::Failed(error),
        };
        let of = match asked.reference {
            Reference::Prompt { name } => Completing::Prompt(name),
            Reference::Resource { uri } => Completing::Resource(uri),
        };
        let (argument, value) = (asked.argument.name, asked.argument.value);
        let context = asked.context.and_then(|c| c.arguments).unwrap_or_default();
        let asked = Completion { of, argument, value, context };
        answer(gateway.complete(&exchange.ctx, &asked).await, no_reference, |found| {
            let mut completion = json!({ "values": found.values, "hasMore": found.has_more });
            if let (Some(total), Some(map)) = (found.total, completion.as_object_mut()) {
                map.insert("total".to_owned(), json!(total));
            }
            let mut writer = ResultWriter::new(id, 1024);
            writer.put("completion", &completion);
            self.finish(writer, exchange)
        })
    }

    /// `resources/subscribe` and its end. What the caller may not know of cannot be watched.
    fn subscribe(
        &self,
        gateway: &Gateway,
        exchange: &Exchange,
        id: &RequestId,
        on: bool,
        params: &Params,
    ) -> Result<Bytes, RpcError> {
        let ReadParams { uri } = params.read()?;
        let Some(watched) = &exchange.subscriptions else {
            return Err(RpcError::invalid_request("watching needs a session"));
        };
        if !on {
            watched.remove(&uri);
        } else if !gateway.shows_resource(&exchange.ctx, &uri) {
            return Err(no_resource(exchange.revision, &uri));
        } else if !watched.add(gateway, &uri) {
            let most = crate::limits::SUBSCRIPTIONS_MAX;
            return Err(RpcError::invalid_params(format!(
                "a session watches at most {most} resources: unsubscribe from one first"
            )));
        }
        Ok(self.finish(ResultWriter::new(id, 0), exchange))
    }
}

fn put(out: &mut Map<String, Value>, key: &str, text: Option<&Arc<str>>) {
    if let Some(text) = text {
        out.insert(key.to_owned(), Value::from(&**text));
    }
}

/// A resource as it is listed; `key` is `uri` or `uriTemplate`.
fn resource(entry: &ResourceEntry, key: &str, revision: Revision) -> Value {
    let mut out = Map::new();
    put(&mut out, key, Some(&entry.uri));
    put(&mut out, "name", Some(&entry.name));
    put(&mut out, "title", entry.title.as_ref().filter(|_| revision.is_structured()));
    put(&mut out, "description", entry.description.as_ref());
    put(&mut out, "mimeType", entry.mime.as_ref());
    if let Some(size) = entry.size.filter(|_| key == "uri") {
        out.insert("size".to_owned(), json!(size));
    }
    if let Some(annotations) = &entry.annotations {
        out.insert("annotations".to_owned(), annotations.value());
    }
    Value::Object(out)
}

fn prompt(entry: &PromptEntry, revision: Revision) -> Value {
    let titled = revision.is_structured();
    let mut out = Map::new();
    put(&mut out, "name", Some(&entry.name));
    put(&mut out, "title", entry.title.as_ref().filter(|_| titled));
    put(&mut out, "description", entry.description.as_ref());
    let argument = |a: &crate::catalog::PromptArgument| {
        let mut out = Map::new();
        put(&mut out, "name", Some(&a.name));
        put(&mut out, "title", a.title.as_ref().filter(|_| titled));
        put(&mut out, "description", a.description.as_ref());
        out.insert("required".to_owned(), Value::from(a.required));
        Value::Object(out)
    };
    if !entry.arguments.is_empty() {
        out.insert("arguments".to_owned(), entry.arguments.iter().map(argument).collect());
    }
    Value::Object(out)
}

/// A content block of a prompt. 2025-03-26 does not know links: there one is a text that says the same.
fn block(content: &Value, revision: Revision) -> Value {
    if !revision.is_structured() && content.get("type").and_then(Value::as_str) == Some("resource_link") {
        let text = |key: &str| content.get(key).and_then(Value::as_str).unwrap_or_default();
        return json!({ "type": "text", "text": format!("{}: {}", text("name"), text("uri")) });
    }
    content.clone()
}
