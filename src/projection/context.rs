//! What a script is given for one call: the reply, the request it builds, and `ctx`.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::envelope::Notes;
use super::made::{self, Made};
use super::request::{encode_segment, refused_header};
use super::seen::Seen;
use super::view::View;
use super::{CallFacts, ScriptCalls, reply, scrub};
use crate::call::{Asking, ClientRequest, HttpBody, HttpRequest, ToolError, UpstreamReply};
use crate::json::{self as bounded, Object};
use crate::script::{Array, Dynamic, HostResult, fault, waiting};

/// Bytes of text a script is handed at once: the ceiling on its texts.
const TEXT_MAX: usize = 256 * 1024;
/// Lines a script is handed at once: the ceiling on its lists.
const LINES_MAX: usize = 1_000;
/// Requests and calls of one run; the gateway counts over all depths besides.
const CALLS_MAX: usize = 32;
/// Bytes of all replies of one run: two full reads of an upstream.
const REPLY_BYTES_MAX: usize = 2 * crate::limits::UPSTREAM_READ_BYTES;
/// The longest `ctx.wait`, and all of one run together.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// An object as scripts see it: a member that is not there is `()`, no fault.
pub(super) fn object(object: &Object) -> Dynamic {
    View::of(object)
}

/// What a mapping made of a body.
#[derive(Debug, Clone)]
pub(super) struct Mapped {
    /// The records as a JSON list, or the record.
    pub(super) text: String,
    /// Records in the whole reply.
    pub(super) records: u64,
}

/// An upstream's reply as scripts see it.
#[derive(Debug, Clone)]
pub(super) struct Reply(Arc<ReplyState>);

#[derive(Debug)]
struct ReplyState {
    reply: UpstreamReply,
    /// What a mapping made of the body, where there is one besides the script.
    mapped: Option<Mapped>,
    body: OnceLock<Result<View, String>>,
    seen: Seen,
}

impl Reply {
    pub(super) fn new(reply: &UpstreamReply, mapped: Option<Mapped>, seen: Seen) -> Self {
        Self(Arc::new(ReplyState { reply: reply.clone(), mapped, body: OnceLock::new(), seen }))
    }

    pub(super) fn status(&self) -> u16 {
        self.0.reply.status
    }

    pub(super) fn headers(&self) -> Dynamic {
        let headers = &self.0.reply.headers;
        let headers = headers.iter().map(|(name, v)| (name.clone(), Value::from(self.noted(v.clone()))));
        object(&headers.collect())
    }

    fn view(&self) -> Result<View, String> {
        let read = || {
            if let Some(mapped) = &self.0.mapped {
                return View::watched(&mapped.text, Some(&self.0.seen));
            }
            let text = reply::json_text(&self.0.reply)?;
            View::watched(&text, Some(&self.0.seen))
                .map_err(|e| format!("the upstream's answer is not JSON: {e}"))
        };
        self.0.body.get_or_init(read).clone()
    }

    pub(super) fn body(&self) -> HostResult<Dynamic> {
        self.view().map(|v| v.value()).map_err(|why| {
            self.0.seen.note_unreadable(&why);
            fault(why)
        })
    }

    /// Records in the whole reply, where a mapping counted them.
    pub(super) fn records(&self) -> Dynamic {
        let count = self.0.mapped.as_ref().and_then(|m| i64::try_from(m.records).ok());
        count.map_or(Dynamic::UNIT, Dynamic::from_int)
    }

    pub(super) fn is_json(&self) -> bool {
        self.view().is_ok()
    }

    pub(super) fn text(&self) -> String {
        self.noted(within(&reply::plain_text(&self.0.reply), TEXT_MAX))
    }

    fn noted(&self, text: String) -> String {
        self.0.seen.note(&text);
        text
    }

    pub(super) fn lines(&self) -> Array {
        let text = reply::plain_text(&self.0.reply);
        text.lines().take(LINES_MAX).map(|l| Dynamic::from(self.noted(within(l, 4_096)))).collect()
    }

    pub(super) fn rest_lines(&self) -> i64 {
        let count = reply::plain_text(&self.0.reply).lines().count();
        i64::try_from(count.saturating_sub(LINES_MAX)).unwrap_or(i64::MAX)
    }
}

/// A text as it is, or its beginning: what is cut loses its secrets first.
fn within(text: &str, max: usize) -> String {
    if text.len() <= max { text.to_owned() } else { scrub::cut(text, max).into_owned() }
}

/// `request(method, path)` and its builders.
#[derive(Debug, Clone)]
pub(super) struct RequestBuilder(pub(super) HttpRequest);

impl RequestBuilder {
    pub(super) fn new(method: &str, path: &str) -> HostResult<Self> {
        let method = method.to_ascii_uppercase();
        if !["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"].contains(&method.as_str()) {
            return Err(fault(format!("`{method}` is no HTTP method")));
        }
        let fine = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:@".contains(c);
        if !path.starts_with('/') || !path.chars().all(fine) || path.split('/').any(|s| s == "." || s == "..")
        {
            return Err(fault(
                "a path begins with `/`, is percent-encoded (`segment(…)`) and has no `.` or `..`; pairs go into `query`",
            ));
        }
        let (query, headers) = (Vec::new(), Vec::new());
        Ok(Self(HttpRequest { method, path: path.to_owned(), query, headers, body: None }))
    }

    pub(super) fn query(mut self, pairs: &Dynamic) -> HostResult<Self> {
        self.0.query.extend(flat(pairs)?);
        Ok(self)
    }

    pub(super) fn form(mut self, pairs: &Dynamic) -> HostResult<Self> {
        self.0.body = Some(HttpBody::Form(flat(pairs)?));
        Ok(self)
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> HostResult<Self> {
        let lower = name.to_ascii_lowercase();
        if refused_header(&lower) || value.chars().any(|c| c.is_control() || !c.is_ascii()) {
            return Err(fault(format!("the header `{name}` cannot be set like this")));
        }
        self.0.headers.push((lower, value.to_owned()));
        Ok(self)
    }

    pub(super) fn json(mut self, body: &Dynamic) -> HostResult<Self> {
        let text = made::text_of(body).map_err(fault)?;
        // What no value holds digit for digit is sent as it is written.
        self.0.body = Some(match bounded::inexact_number(&text) {
            Some(_) => HttpBody::Raw { content_type: "application/json".to_owned(), bytes: text.into() },
            None => HttpBody::Json(serde_json::from_str(&text).map_err(|e| fault(e.to_string()))?),
        });
        Ok(self)
    }

    pub(super) fn raw(mut self, content_type: &str, text: &str) -> HostResult<Self> {
        if content_type.chars().any(|c| c.is_control() || !c.is_ascii()) {
            return Err(fault("a content type has plain characters only"));
        }
        let bytes = bytes::Bytes::from(text.to_owned());
        self.0.body = Some(HttpBody::Raw { content_type: content_type.to_owned(), bytes });
        Ok(self)
    }
}

const AN_OBJECT: &str = "an object is expected here, such as #{ name: value }";

/// A script's object (its own, or a view) as JSON.
pub(super) fn members(value: &Dynamic) -> HostResult<Object> {
    match made::value_of(value).map_err(fault)? {
        Value::Object(map) => Ok(map),
        _ => Err(fault(AN_OBJECT)),
    }
}

/// Pairs of an object: null is left out, a list repeats its name.
fn flat(pairs: &Dynamic) -> HostResult<Vec<(String, String)>> {
    let mut out = Vec::new();
    let Value::Object(pairs) = made::plain_value_of(pairs).map_err(fault)? else {
        return Err(fault(AN_OBJECT));
    };
    for (name, value) in pairs {
        let items = match value {
            Value::Null => continue,
            Value::Array(items) => items,
            one => vec![one],
        };
        for item in items {
            if item.is_object() || item.is_array() {
                return Err(fault(format!("`{name}` is nested; pairs take texts, numbers and flat lists")));
            }
            out.push((name.clone(), super::template::plain(&item)));
        }
    }
    Ok(out)
}

/// One encoded path segment.
pub(super) fn segment(value: &Dynamic) -> HostResult<String> {
    let text = super::template::plain(&made::plain_value_of(value).map_err(fault)?);
    encode_segment(&text).ok_or_else(|| fault("a path segment must not be empty, `.` or `..`"))
}

/// `ctx`.
#[derive(Clone)]
pub(super) struct Context(Arc<ContextState>);

struct ContextState {
    facts: CallFacts,
    calls: Option<Arc<dyn ScriptCalls>>,
    live: Mutex<Live>,
    /// Secrets of the replies that the script was handed.
    seen: Seen,
}

/// What a script changes while it runs.
#[derive(Debug, Default)]
struct Live {
    notes: Notes,
    calls: usize,
    bytes: usize,
    waited: Duration,
    /// The failure of an inner call that ended the script.
    failed: Option<ToolError>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

impl Context {
    pub(super) fn new(facts: &CallFacts, calls: Option<&Arc<dyn ScriptCalls>>, notes: Notes) -> Self {
        let live = Mutex::new(Live { notes, ..Live::default() });
        let seen = Seen::default();
        Self(Arc::new(ContextState { facts: facts.clone(), calls: calls.cloned(), live, seen }))
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.0.seen
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn facts(&self) -> &CallFacts {
        &self.0.facts
    }

    pub(super) fn claims(&self) -> Dynamic {
        object(&self.0.facts.claims)
    }

    /// What the script told besides its result, and the inner failure that ended it, if one did.
    pub(super) fn take(&self) -> (Notes, Option<ToolError>) {
        let mut live = self.live();
        let mut notes = std::mem::take(&mut live.notes);
        notes.without(&self.0.seen);
        (notes, live.failed.take().map(|error| self.0.seen.without_in(error)))
    }

    /// Bytes of the replies so far.
    pub(super) fn bytes(&self) -> usize {
        self.live().bytes
    }

    pub(super) fn warn(&self, text: &str) {
        self.live().notes.warn(text);
    }

    pub(super) fn truncated(&self) {
        self.live().notes.truncated = true;
    }

    pub(super) fn omit(&self, field: &str, reason: &str) {
        self.live().notes.omit(
            bounded::cut(field, 200),
            None,
            bounded::cut(reason, 200),
            "see the tool's description",
        );
    }

    fn calls(&self) -> HostResult<&Arc<dyn ScriptCalls>> {
        let calls = self.0.calls.as_ref().ok_or_else(|| fault("calls can be made in `run` only"))?;
        let mut live = self.live();
        live.calls += 1;
        if live.calls > CALLS_MAX {
            return Err(fault(format!("more than {CALLS_MAX} calls in one run")));
        }
        Ok(calls)
    }

    fn count(&self, bytes: usize) -> HostResult<()> {
        let mut live = self.live();
        live.bytes += bytes;
        if live.bytes > REPLY_BYTES_MAX {
            return Err(fault(format!("the replies of one run have more than {REPLY_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    /// Ends the script with the failure of an inner call as that of the whole.
    fn end<T>(&self, error: ToolError) -> HostResult<T> {
        let message = error.to_string();
        self.live().failed = Some(error);
        Err(fault(message))
    }

    pub(super) fn fetch(&self, request: &RequestBuilder) -> HostResult<Reply> {
        let calls = self.calls()?;
        match waiting(|| calls.fetch(request.0.clone())) {
            Ok(found) => {
                self.count(reply::size(&found))?;
                let read_only = matches!(request.0.method.as_str(), "GET" | "HEAD" | "OPTIONS");
                match reply::failure(&found, read_only) {
                    Some(error) => self.end(error),
                    None => Ok(Reply::new(&found, None, self.0.seen.clone())),
                }
            }
            Err(error) => self.end(error),
        }
    }

    pub(super) fn try_fetch(&self, request: &RequestBuilder) -> HostResult<Dynamic> {
        let calls = self.calls()?;
        match waiting(|| calls.fetch(request.0.clone())) {
            Ok(found) => {
                self.count(reply::size(&found))?;
                Ok(Dynamic::from(Reply::new(&found, None, self.0.seen.clone())))
            }
            Err(error) => Ok(Dynamic::from(Made::Failed(Box::new(error)))),
        }
    }

    fn inner(&self, tool: &str, args: &Dynamic) -> HostResult<Result<Dynamic, ToolError>> {
        let args = members(args)?;
        let calls = self.calls()?;
        match waiting(|| calls.call(tool, args)) {
            Ok(found) => {
                let text = bounded::to_text(&found);
                self.count(text.len())?;
                Ok(Ok(View::new(&text).map_err(fault)?.value()))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    pub(super) fn call(&self, tool: &str, args: &Dynamic) -> HostResult<Dynamic> {
        match self.inner(tool, args)? {
            Ok(found) => Ok(found),
            Err(error) => self.end(error),
        }
    }

    pub(super) fn try_call(&self, tool: &str, args: &Dynamic) -> HostResult<Dynamic> {
        Ok(self.inner(tool, args)?.unwrap_or_else(|e| Dynamic::from(Made::Failed(Box::new(e)))))
    }

    pub(super) fn ask(&self, questions: Vec<ClientRequest>) -> HostResult<Dynamic> {
        let calls = self.calls()?;
        match waiting(|| calls.ask(questions)) {
            Ok(answers) => {
                let text = bounded::to_text(&answers);
                self.count(text.len())?;
                Ok(View::new(&text).map_err(fault)?.value())
            }
            Err(error) => self.end(error),
        }
    }

    pub(super) fn can_ask(&self, what: Asking) -> HostResult<bool> {
        Ok(self.calls()?.can_ask(what))
    }

    pub(super) fn progress(&self, done: &Dynamic, total: &Dynamic, message: Option<&str>) -> HostResult<()> {
        let number = |d: &Dynamic| match (d.as_float(), made::value_of(d)) {
            (Ok(f), _) => Some(f),
            (_, Ok(value)) => value.as_f64(),
            _ => None,
        };
        let calls = self.0.calls.as_ref().ok_or_else(|| fault("progress is told in `run` only"))?;
        let done = number(done).ok_or_else(|| fault("progress is a number"))?;
        calls.progress(done, number(total), message.map(|m| bounded::cut(m, 500)));
        Ok(())
    }

    pub(super) fn wait(&self, milliseconds: i64) -> HostResult<()> {
        let calls = self.0.calls.as_ref().ok_or_else(|| fault("waiting is for `run` only"))?;
        let time = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
        {
            let mut live = self.live();
            live.waited += time;
            if live.waited > WAIT_MAX {
                return Err(fault("one run waits 10 s at most"));
            }
        }
        waiting(|| calls.pause(time)).or_else(|error| self.end(error))
    }
}
