//! The scripts of a tool: which function plays which role, and what its result becomes.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::bare::{self, internal};
use super::compose::{Data, Finish};
use super::context::{Context, Mapped, Reply, RequestBuilder};
use super::contract::Contract;
use super::envelope::Notes;
use super::host::REQUEST_ALIAS;
use super::made::{self, Made, Page};
use super::plain::Plain;
use super::seen::Seen;
use super::spec::{Place, ScriptSpec};
use super::view::View;
use super::{CallFacts, ScriptCalls, Shaped, scan};
use crate::call::{HttpRequest, ToolError, ToolResult, UpstreamReply};
use crate::diagnostic::{Diagnostics, did_you_mean};
use crate::json::{self as bounded, Object};
use crate::script::{Dynamic, Script, ScriptError, stack};

/// The roles and how many parameters each function has.
const ROLES: [(&str, usize, &str); 4] = [
    ("request", 2, "args, ctx"),
    ("project", 3, "reply, args, ctx"),
    ("run", 2, "args, ctx"),
    ("failed", 3, "reply, args, ctx"),
];

/// A compiled script with the functions that this tool uses.
#[derive(Debug, Clone)]
pub(super) struct Roles {
    script: Script,
    /// In the order of [`ROLES`].
    functions: [Option<String>; 4],
}

impl Roles {
    /// Finds the functions; names that are given must exist, the usual names may.
    pub(super) fn find(
        script: Script,
        spec: &ScriptSpec,
        place: &Place,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let before = diagnostics.0.len();
        let given = [&spec.request, &spec.project, &spec.run, &spec.failed];
        let mut functions = [const { None }; 4];
        for ((slot, given), (role, arity, parameters)) in functions.iter_mut().zip(given).zip(ROLES) {
            let name = match given.as_deref().unwrap_or(role) {
                "request" => REQUEST_ALIAS,
                name => name,
            };
            if script.function(name, arity).is_some() {
                *slot = Some(name.to_owned());
                continue;
            }
            let same_name = script.functions().iter().find(|f| f.name == name);
            if given.is_none() && same_name.is_none() {
                continue;
            }
            let (message, help) = match same_name {
                Some(f) => (
                    format!(
                        "`{name}` takes {} parameters, the role `{role}` needs {arity}",
                        f.parameters.len()
                    ),
                    format!("write `fn {name}({parameters})`"),
                ),
                None => {
                    let names = script.functions().iter().map(|f| f.name.as_str());
                    let help = did_you_mean(name, names).map_or_else(
                        || format!("add `fn {name}({parameters})`"),
                        |n| format!("did you mean `{n}`?"),
                    );
                    (format!("`{}` has no function `{name}`", spec.source.name), help)
                }
            };
            diagnostics.push(place.error_at(spec.offset, "no-such-function", message).help(help));
        }
        if diagnostics.0.len() == before && functions.iter().all(Option::is_none) {
            let message =
                format!("`{}` has none of the functions request, project, run, failed", spec.source.name);
            let help = "add one of them, or name functions: `script = { file = \"…\", project = \"…\" }`";
            diagnostics.push(place.error_at(spec.offset, "no-such-function", message).help(help));
        }
        (diagnostics.0.len() == before).then_some(Self { script, functions })
    }

    fn role(&self, index: usize) -> Option<&str> {
        self.functions.get(index).and_then(Option::as_deref)
    }

    /// Whether it makes requests.
    pub(super) fn requests(&self) -> bool {
        self.role(0).is_some()
    }

    /// Whether it shapes replies.
    pub(super) fn projects(&self) -> bool {
        self.role(1).is_some()
    }

    /// Whether it makes the whole result.
    pub(super) fn runs(&self) -> bool {
        self.role(2).is_some()
    }

    fn call(&self, index: usize, parameters: Vec<Dynamic>) -> Result<Dynamic, Box<ScriptError>> {
        self.script.call(self.role(index).unwrap_or_default(), parameters)
    }

    /// The request for one call. `Err` is the failure and what only the log may hold.
    pub(super) fn request(
        &self,
        args: &Object,
        facts: &CallFacts,
    ) -> Result<HttpRequest, (ToolError, String)> {
        let ctx = Context::new(facts, None, Notes::default());
        let parameters = vec![arguments(args), Dynamic::from(ctx)];
        let fault = |detail: String| (internal(&facts.correlation_id), detail);
        let made = self.call(0, parameters).map_err(|e| fault(described(&e)))?;
        if let Some(request) = made.read_lock::<RequestBuilder>() {
            return Ok(request.0.clone());
        }
        match made.read_lock::<Made>().as_deref() {
            Some(Made::Failed(error)) => Err(((**error).clone(), String::new())),
            _ => Err(fault("`request` gave neither a request nor an error".to_owned())),
        }
    }

    /// What the script says of a reply that may be a failure: its own error, or nothing.
    pub(super) fn failed(
        &self,
        reply: &UpstreamReply,
        args: &Object,
        facts: &CallFacts,
    ) -> Result<Option<ToolError>, Box<ScriptError>> {
        if self.role(3).is_none() {
            return Ok(None);
        }
        let ctx = Context::new(facts, None, Notes::default());
        let seen = ctx.seen().clone();
        let reply = Dynamic::from(Reply::new(reply, None, seen.clone()));
        let made = self.call(3, vec![reply, arguments(args), Dynamic::from(ctx)])?;
        Ok(match made.read_lock::<Made>().as_deref() {
            Some(Made::Failed(error)) => Some(seen.without_in((**error).clone())),
            _ => None,
        })
    }

    /// Shapes a reply; `mapped` is what the declarative part made of it, where there is one.
    pub(super) fn project(
        &self,
        reply: &UpstreamReply,
        mapped: Option<Mapped>,
        args: &Object,
        facts: &CallFacts,
        notes: Notes,
        finish: &Finish<'_>,
    ) -> Shaped {
        let ctx = Context::new(facts, None, notes);
        let reply = Dynamic::from(Reply::new(reply, mapped, ctx.seen().clone()));
        let made = self.call(1, vec![reply, arguments(args), Dynamic::from(ctx.clone())]);
        conclude(made, &ctx, finish)
    }

    /// Runs `run` on a thread with a deep stack, which inner calls may block.
    pub(super) fn run(
        &self,
        args: &Object,
        facts: &CallFacts,
        calls: &Arc<dyn ScriptCalls>,
        finish: impl FnOnce(usize, &dyn Fn(&Finish<'_>) -> Shaped) -> Shaped + Send,
    ) -> Shaped {
        let ctx = Context::new(facts, Some(calls), Notes::default());
        let work = || {
            let made = self.call(2, vec![arguments(args), Dynamic::from(ctx.clone())]);
            finish(ctx.bytes(), &|finish| conclude(made.clone(), &ctx, finish))
        };
        stack::run_apart(work)
            .unwrap_or_else(|e| Shaped::failed(internal(&facts.correlation_id), 0).with_detail(e.to_string()))
    }
}

fn arguments(args: &Object) -> Dynamic {
    super::context::object(args)
}

/// The whole story of a script's failure, for the log.
pub(super) fn described(error: &ScriptError) -> String {
    let mut text = error.to_string();
    for frame in &error.chain {
        text.push_str(", through ");
        text.push_str(&frame.to_string());
    }
    if let Some(line) = &error.source_line {
        text.push('\n');
        text.push_str(line);
    }
    text
}

/// From what a script gave to a result: its own failure, an inner one, a fault, or data.
fn conclude(made: Result<Dynamic, Box<ScriptError>>, ctx: &Context, finish: &Finish<'_>) -> Shaped {
    let (notes, inner) = ctx.take();
    let fault = |detail: String| finish.failure(internal(&finish.facts.correlation_id)).with_detail(detail);
    let made = match (made, inner) {
        (Ok(made), _) => made,
        (Err(_), Some(inner)) => return finish.failure(inner),
        (Err(error), None) => {
            return match ctx.seen().unreadable() {
                Some(why) => finish.unreadable(why),
                None => fault(described(&error)),
            };
        }
    };
    match become_result(&made, notes, ctx.seen(), finish) {
        Ok(shaped) => shaped,
        Err(detail) => fault(detail),
    }
}

fn become_result(
    made: &Dynamic,
    mut notes: Notes,
    seen: &Seen,
    finish: &Finish<'_>,
) -> Result<Shaped, String> {
    if let Some(page) = made.read_lock::<Page>() {
        let mut data = page_data(&page, seen, finish, &mut notes)?;
        if !matches!(finish.contract, Contract::Enveloped(_)) {
            data = data.bare();
        }
        return Ok(finish.success(data, notes));
    }
    let text = match made.read_lock::<Made>().as_deref() {
        Some(Made::Failed(error)) => return Ok(finish.failure(seen.without_in((**error).clone()))),
        Some(Made::Blocks(blocks)) => {
            let blocks: Vec<Value> = blocks.iter().map(|block| seen.without_in_value(block)).collect();
            return finish.blocks(&blocks, notes);
        }
        Some(Made::Text(text)) => return Ok(finish.text(&seen.without(text), notes)),
        Some(Made::Family(text)) => Some(seen.without(text).into_owned()),
        Some(Made::Json(text)) => Some(finish.json_data(&seen.without(text))),
        None => None,
    };
    if let Some(text) = text {
        return Ok(finish.success(finish.read(&text, &mut notes)?, notes));
    }
    if let Ok(text) = made.as_immutable_string_ref() {
        return Ok(finish.text(&seen.without(text.as_str()), notes));
    }
    if made.is_unit() && finish.is_plain {
        return Ok(Plain { notes, ..Plain::default() }.finish(finish.facts, finish.budget, finish.bytes_in));
    }
    if made.is_unit() {
        return Ok(finish.text("OK", notes));
    }
    let text = made::text_of(made)?;
    let text = seen.without(&text);
    let is_data = made.is_map() || made.read_lock::<View>().is_some();
    let text = if is_data { text } else { Cow::Owned(finish.json_data(&text)) };
    Ok(finish.success(finish.read(&text, &mut notes)?, notes))
}

fn page_data(page: &Page, seen: &Seen, finish: &Finish<'_>, notes: &mut Notes) -> Result<Data, String> {
    let (items, beyond) = {
        let rows = page.rows.lock();
        (format!("[{}]", rows.items.join(",")), rows.beyond)
    };
    let text = format!(
        "{{\"kind\":{},\"items\":{},\"page\":{}}}",
        bounded::to_text(page.family.as_str()),
        seen.without(&items),
        bounded::to_text(&page.page())
    );
    let mut data = finish.read(&text, notes)?;
    if let Data::Page { beyond: left, .. } = &mut data {
        *left += beyond;
    }
    Ok(data)
}

/// Warnings as a block, for results without an envelope.
fn note(notes: &Notes) -> Option<Box<serde_json::value::RawValue>> {
    let warnings = notes.warnings();
    if warnings.is_empty() {
        return None;
    }
    bare::raw(&serde_json::json!({"type": "text", "text": format!("[{}]", warnings.join("; "))}))
}

impl Finish<'_> {
    /// A text as a result: the family `text` in an envelope, else the text half.
    fn text(&self, text: &str, mut notes: Notes) -> Shaped {
        if let Contract::Enveloped(_) = self.contract {
            let data = format!("{{\"kind\":\"text\",\"text\":{}}}", bounded::to_text(text));
            return self.success(Data::Other { family: "text".to_owned(), text: data, whole: None }, notes);
        }
        if self.is_plain {
            let plain = Plain { notes, ..Plain::text(Cow::Borrowed(text), "") };
            return plain.finish(self.facts, self.budget, self.bytes_in);
        }
        let keeping = self.facts.keeping.as_ref();
        let cut = bare::cut_text(text, self.budget.text_bytes, keeping);
        notes.omitted.extend(cut.omission);
        let mut result = ToolResult { text: Some(cut.text.into_owned()), ..ToolResult::default() };
        result.blocks.extend(note(&notes));
        bare::attach(&mut result, keeping, cut.kept.as_ref());
        Shaped::completed(result, self.bytes_in, notes.omitted).keeping(cut.kept)
    }

    /// Blocks as they are, within the budget of blocks.
    fn blocks(&self, blocks: &[Value], mut notes: Notes) -> Result<Shaped, String> {
        if let Contract::Enveloped(_) | Contract::Bare(_) = self.contract {
            return Err("content blocks need a tool without `families` and `output_schema`".to_owned());
        }
        let mut result = ToolResult::default();
        let mut room = bare::BLOCK_BYTES_MAX;
        let mut texts = self.budget.text_bytes;
        for (i, block) in blocks.iter().enumerate() {
            let mut block = block.clone();
            if let Some(Value::String(text)) = block.get_mut("text") {
                // The blocks are kept once all together, not each text for itself.
                let cut = bare::cut_text(text, texts, None);
                texts = texts.saturating_sub(cut.text.len());
                notes.omitted.extend(cut.omission);
                *text = cut.text.into_owned();
            }
            let raw = bare::raw(&block).ok_or("a block is not JSON")?;
            if raw.get().len() > room {
                notes.omit(&format!("content/{i}"), None, "byte_budget", "ask for less");
                continue;
            }
            room -= raw.get().len();
            result.blocks.push(raw);
        }
        result.blocks.extend(note(&notes));
        let keeping = self.facts.keeping.as_ref().filter(|_| !notes.omitted.is_empty());
        let kept =
            keeping.and_then(|k| k.take(bounded::to_text(&serde_json::json!({ "content": blocks })), false));
        bare::attach(&mut result, keeping, kept.as_ref());
        Ok(Shaped::completed(result, self.bytes_in, notes.omitted).keeping(kept))
    }

    /// `json(…)`: the value itself, or the family `json` around it where the tool has that family.
    fn json_data(&self, text: &str) -> String {
        let family = |name: &str| match self.contract {
            Contract::Enveloped(envelope) => envelope.family_names().any(|f| f == name),
            Contract::Free | Contract::Bare(_) => false,
        };
        let named = scan::Scan::new(text).peek() == b'{'
            && serde_json::from_str::<Value>(text)
                .is_ok_and(|v| v.get("kind").and_then(Value::as_str).is_some_and(family));
        if !named && family("json") {
            return format!("{{\"kind\":\"json\",\"value\":{text}}}");
        }
        text.to_owned()
    }
}
