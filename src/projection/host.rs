//! The functions and types that projection scripts have besides the language. Every one of them is listed
//! in `scripts/README.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Coverage;
use super::ask;
use super::context::{Context, Reply, RequestBuilder};
use super::made::{self, Made, Page, Rows};
use super::view::View;
use crate::diagnostic::{Diagnostics, SourceFile};
use crate::script::{
    Array, Dialect, Dynamic, EngineBuilder, HostKind, HostResult, Map, ScriptEngine, Text, fault,
};
use serde_json::json;

/// What `ctx.call(` is compiled as: Rhai keeps `value.call(…)` for function values. As long as the original,
/// so that places in messages stay true.
const CALL_ALIAS: &str = "tool";
/// What a script's `fn request(args, ctx)` is compiled as: it would hide `request(method, path)`.
pub(super) const REQUEST_ALIAS: &str = "Request";

/// A script's source as the engine takes it.
fn prepared(source: &SourceFile) -> SourceFile {
    let text = replaced(&source.text, "ctx.call(", "ctx.tool(");
    let text = replaced(&text, "fn request(", "fn Request(");
    SourceFile { name: Arc::clone(&source.name), text: Arc::from(text) }
}

/// Replaces what stands at the beginning of a word.
fn replaced(source: &str, from: &str, to: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((head, tail)) = rest.split_once(from) {
        text.push_str(head);
        let inside = head.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        text.push_str(if inside { from } else { to });
        rest = tail;
    }
    text.push_str(rest);
    text
}

/// A source as it is compiled, with marks where it is asked which functions run.
pub(super) fn compiled(source: &SourceFile, coverage: Option<&Coverage>) -> SourceFile {
    let prepared = prepared(source);
    coverage.map_or_else(|| prepared.clone(), |c| c.marked(&prepared))
}

/// Fields of replies that scripts of one pack may name. Those beyond are found all the same, at a higher price.
const NAMES_MAX: usize = 2_000;

/// What stands behind a point in sources: the fields of replies that they read, and what else looks alike.
pub(super) fn names_of<'a>(sources: impl Iterator<Item = &'a SourceFile>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for tail in sources.flat_map(|source| source.text.split('.').skip(1)) {
        let end = tail.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(tail.len());
        let name = tail.get(..end).unwrap_or_default();
        if names.len() < NAMES_MAX && name.starts_with(|c: char| !c.is_ascii_digit()) {
            names.insert(name.to_owned());
        }
    }
    names
}

/// What the language itself gives texts, whole numbers and decimals as fields.
const OF_TEXTS: [&str; 4] = ["bytes", "chars", "is_empty", "len"];
const OF_INTEGERS: [&str; 4] = ["bits", "is_even", "is_odd", "is_zero"];
const OF_FLOATS: [&str; 9] =
    ["ceiling", "floor", "fraction", "int", "is_finite", "is_infinite", "is_nan", "is_zero", "round"];

/// The engine of projections with the libraries of a pack, for scripts that read fields of these names.
pub(super) fn engine(
    libraries: &[SourceFile],
    names: BTreeSet<String>,
    coverage: Option<&Coverage>,
    diagnostics: &mut Diagnostics,
) -> ScriptEngine {
    let mut builder = EngineBuilder::new(Dialect::Projection);
    views(&mut builder);
    // An upstream may send a text, a number or a flag where an object was: it has no member either.
    let beside = |own: &'static [&str]| names.iter().filter(|name| !own.contains(&name.as_str())).cloned();
    builder.fields_by_name(beside(&OF_TEXTS), |_: &mut Text, _| Dynamic::UNIT);
    builder.fields_by_name(beside(&OF_INTEGERS), |_: &mut i64, _| Dynamic::UNIT);
    builder.fields_by_name(beside(&OF_FLOATS), |_: &mut f64, _| Dynamic::UNIT);
    builder.fields_by_name(beside(&[]), |_: &mut bool, _| Dynamic::UNIT);
    builder.fields_by_name(names, |view: &mut View, name| view.member(name));
    rows(&mut builder);
    results(&mut builder);
    blocks(&mut builder);
    replies(&mut builder);
    requests(&mut builder);
    contexts(&mut builder);
    calls(&mut builder);
    texts(&mut builder);
    if let Some(coverage) = coverage {
        coverage.register(&mut builder);
    }
    for library in libraries {
        builder.library(&compiled(library, coverage), diagnostics);
    }
    builder.build()
}

/// Everything that a projection script may use besides the language, as Markdown: the end of
/// `scripts/README.md`.
pub fn reference() -> String {
    let engine = engine(&[], BTreeSet::new(), None, &mut Diagnostics::default());
    let (mut out, mut in_table) = (String::new(), false);
    for item in engine.reference() {
        let heads = matches!(item.kind, HostKind::Type | HostKind::Section);
        let text = match (heads, in_table) {
            (true, _) => format!("\n### {}\n\n{}\n", item.signature, item.doc),
            (false, false) => format!("\n| | |\n|---|---|\n| `{}` | {} |\n", item.signature, item.doc),
            (false, true) => format!("| `{}` | {} |\n", item.signature, item.doc),
        };
        out.push_str(&text);
        in_table = !heads;
    }
    out.trim().to_owned()
}

fn views(b: &mut EngineBuilder) {
    b.host_type::<View>(
        "View",
        "A value inside an upstream's reply: an object, a list, or a number that only digits hold exactly.",
    );
    b.index(|v: &mut View, name: Text| v.member(name.as_str()));
    b.index(|v: &mut View, at: i64| v.element(at));
    b.iterable::<View>();
    let doc = "How many members or elements it has.";
    b.function("len", "view.len() -> int", doc, |v: &mut View| i64::try_from(v.len()).unwrap_or(i64::MAX));
    b.function(
        "is_empty",
        "view.is_empty() -> bool",
        "Whether it has no members or elements.",
        |v: &mut View| v.len() == 0,
    );
    b.function("is_list", "view.is_list() -> bool", "Whether it is a list.", |v: &mut View| v.is_list());
    b.function("is_list", "is_list(value) -> bool", "Whether a value is a list.", |v: &mut Dynamic| {
        v.is_array()
    });
    b.function("keys", "view.keys() -> array", "The names of its members.", |v: &mut View| -> Array {
        v.keys().into_iter().map(Dynamic::from).collect()
    });
    b.function(
        "values",
        "view.values() -> array",
        "Its elements, or the values of its members.",
        |v: &mut View| v.to_array(),
    );
    let doc = "Its elements as a list of the script (1,000 at most), for `map`, `filter`, `sort`, … .";
    b.function("to_array", "view.to_array() -> array", doc, |v: &mut View| v.to_array());
    let doc = "Whether an object has a member of that name, null or not; written `\"name\" in view`.";
    b.function("contains", "view.contains(name) -> bool", doc, |v: &mut View, name: Text| {
        v.has(name.as_str())
    });
    let doc = "The digits of a number, the compact JSON of anything else.";
    b.function("to_string", "view.to_string() -> text", doc, |v: &mut View| v.shown());
}

fn rows(b: &mut EngineBuilder) {
    b.host_type::<Rows>(
        "Rows",
        "Rows of a result, kept outside the script's memory: push as many as there are.",
    );
    b.host_type::<Page>("Page", "Rows with their family and paging.");
    b.host_type::<Made>("Result", "A result made by `text`, `json`, `family`, `content`, `error`, … .");
    b.function("rows", "rows() -> Rows", "An empty list of rows.", Rows::default);
    let doc = "Adds a row; false says that it was counted only, because there are too many.";
    b.function("push", "rows.push(row) -> bool", doc, |r: &mut Rows, row: Dynamic| r.push(&row));
    b.function("push", "page.push(row) -> bool", doc, |p: &mut Page, row: Dynamic| p.rows.push(&row));
    let doc = "How many rows are kept.";
    b.function("len", "rows.len() -> int", doc, |r: &mut Rows| {
        i64::try_from(r.lock().items.len()).unwrap_or(i64::MAX)
    });
    b.function("len", "page.len() -> int", doc, |p: &mut Page| {
        i64::try_from(p.rows.lock().items.len()).unwrap_or(i64::MAX)
    });
    b.function("page", "page(family) -> Page", "An empty page of a family.", |family: Text| {
        Page::new(family.as_str())
    });
    let doc = "A page of rows (Rows, a list, or a list of the reply) with `#{offset, limit, total, has_more, next_offset, mode, unit}`; what is not given is null, never guessed.";
    b.function(
        "page",
        "page(family, rows, paging) -> Page",
        doc,
        |family: Text, rows: Dynamic, paging: Map| -> HostResult<Page> {
            let page = Page { rows: Rows::from(&rows)?, ..Page::new(family.as_str()) };
            page.set_paging(&paging)?;
            Ok(page)
        },
    );
    b.function(
        "paging",
        "page.paging(paging)",
        "Sets what is known of paging.",
        |p: &mut Page, paging: Map| p.set_paging(&paging),
    );
}

fn results(b: &mut EngineBuilder) {
    b.function(
        "family",
        "family(name, members) -> Result",
        "Data of any family: `members` beside `kind`.",
        |name: Text, members: Map| made::family(name.as_str(), &members),
    );
    let doc = "`{kind: \"metrics\", values}` of rows `#{name, value, scope, unit}`.";
    b.function("metrics", "metrics(values) -> Result", doc, |values: Dynamic| -> HostResult<Made> {
        let values = made::text_of(&values).map_err(fault)?;
        Ok(Made::Family(format!("{{\"kind\":\"metrics\",\"values\":{values}}}")))
    });
    let doc = "`{kind: \"mutation\", …}` with `outcome` completed, accepted, partial, unknown or rejected.";
    b.function("mutation", "mutation(members) -> Result", doc, |members: Map| {
        made::family("mutation", &members)
    });
    b.function("text", "text(value) -> Result", "A plain text.", |text: Text| {
        Made::Text(text.as_str().to_owned())
    });
    b.function("json", "json(value) -> Result", "Any JSON.", |value: Dynamic| {
        made::text_of(&value).map(Made::Json).map_err(fault)
    });
    let doc = "A failure of the call. `more` may have retryable, field, retry_after_seconds, http_status, data, and anything that helps.";
    b.function(
        "error",
        "error(code, message, more) -> Result",
        doc,
        |code: Text, message: Text, more: Map| made::error(code.as_str(), message.as_str(), &more),
    );
    let doc = "A failure of the call, not to be retried.";
    b.function("error", "error(code, message) -> Result", doc, |code: Text, message: Text| {
        made::error(code.as_str(), message.as_str(), &Map::new())
    });
    let doc = "Whether a value is an error, from `error`, `ctx.try_call` or `ctx.try_fetch`.";
    b.function("is_error", "is_error(value) -> bool", doc, |value: Dynamic| {
        value.read_lock::<Made>().is_some_and(|m| matches!(*m, Made::Failed(_)))
    });
    b.field("code", "error.code -> text", "The code of an error.", |m: &mut Made| -> HostResult<String> {
        failed(m).map(|e| e.code.as_str().to_owned())
    });
    b.field(
        "message",
        "error.message -> text",
        "The message of an error.",
        |m: &mut Made| -> HostResult<String> { failed(m).map(|e| e.message.clone()) },
    );
}

fn failed(made: &Made) -> HostResult<&crate::call::ToolError> {
    match made {
        Made::Failed(error) => Ok(error),
        _ => Err(fault("only an error has a code and a message")),
    }
}

fn blocks(b: &mut EngineBuilder) {
    b.section("Content blocks", "Results of tools without families.");
    let doc = "An image block; `data` is base64.";
    b.function("image", "image(data, mime) -> Result", doc, |data: Text, mime: Text| {
        Made::Blocks(vec![json!({"type": "image", "data": data.as_str(), "mimeType": mime.as_str()})])
    });
    let doc = "An audio block; `data` is base64.";
    b.function("audio", "audio(data, mime) -> Result", doc, |data: Text, mime: Text| {
        Made::Blocks(vec![json!({"type": "audio", "data": data.as_str(), "mimeType": mime.as_str()})])
    });
    let doc = "An embedded text resource.";
    b.function(
        "resource",
        "resource(uri, mime, text) -> Result",
        doc,
        |uri: Text, mime: Text, text: Text| {
            let resource = json!({"uri": uri.as_str(), "mimeType": mime.as_str(), "text": text.as_str()});
            Made::Blocks(vec![json!({"type": "resource", "resource": resource})])
        },
    );
    let doc = "An embedded binary resource; `data` is base64.";
    b.function("blob", "blob(uri, mime, data) -> Result", doc, |uri: Text, mime: Text, data: Text| {
        let resource = json!({"uri": uri.as_str(), "mimeType": mime.as_str(), "blob": data.as_str()});
        Made::Blocks(vec![json!({"type": "resource", "resource": resource})])
    });
    let doc = "A link to a resource; `more` may have title, description, mimeType, size.";
    b.function(
        "link",
        "link(uri, name, more) -> Result",
        doc,
        |uri: Text, name: Text, more: Map| -> HostResult<Made> {
            let mut block = json!({"type": "resource_link", "uri": uri.as_str(), "name": name.as_str()});
            if let Some(map) = block.as_object_mut() {
                for (key, value) in &more {
                    map.insert(key.to_string(), made::value_of(value).map_err(fault)?);
                }
            }
            Ok(Made::Blocks(vec![block]))
        },
    );
    let doc = "Blocks and texts in order.";
    b.function("content", "content(parts) -> Result", doc, |parts: Array| made::content(&parts));
}

fn replies(b: &mut EngineBuilder) {
    b.host_type::<Reply>("Reply", "What an upstream answered.");
    b.field(
        "status",
        "reply.status -> int",
        "The HTTP status; 200 for kinds without one, 422 for a program that refused.",
        |r: &mut Reply| i64::from(r.status()),
    );
    b.field(
        "headers",
        "reply.headers -> object",
        "Allow-listed headers, names in lower case.",
        |r: &mut Reply| r.headers(),
    );
    let doc = "The JSON body as a View or a plain value; a body that is not JSON is a fault (see `is_json`).";
    b.field("body", "reply.body -> View", doc, |r: &mut Reply| r.body());
    b.field("text", "reply.text -> text", "The body as text, at most 256 KiB of it.", |r: &mut Reply| {
        r.text()
    });
    let doc = "The text of the body line by line, 1,000 lines at most; `reply.rest_lines` counts the others.";
    b.field("lines", "reply.lines -> array", doc, |r: &mut Reply| r.lines());
    b.field(
        "rest_lines",
        "reply.rest_lines -> int",
        "Lines beyond those of `reply.lines`.",
        |r: &mut Reply| r.rest_lines(),
    );
    let doc =
        "Records in the whole reply, where `collection` or `lines` stands beside the script; else `()`.";
    b.field("records", "reply.records -> int or ()", doc, |r: &mut Reply| r.records());
    b.function("is_json", "reply.is_json() -> bool", "Whether the body is JSON.", |r: &mut Reply| {
        r.is_json()
    });
}

fn requests(b: &mut EngineBuilder) {
    b.host_type::<RequestBuilder>("Request", "A request to the tool's own upstream, below its base_url.");
    let doc = "A request. The path begins with `/`; put arguments into it with `segment(…)`.";
    b.function("request", "request(method, path) -> Request", doc, |method: Text, path: Text| {
        RequestBuilder::new(method.as_str(), path.as_str())
    });
    let doc = "Adds pairs to the query: null is left out, a list repeats its name.";
    b.function("query", "request.query(pairs) -> Request", doc, |r: &mut RequestBuilder, pairs: Dynamic| {
        r.clone().query(&pairs)
    });
    b.function(
        "header",
        "request.header(name, value) -> Request",
        "Adds a header.",
        |r: &mut RequestBuilder, name: Text, value: Text| r.clone().header(name.as_str(), value.as_str()),
    );
    b.function(
        "body",
        "request.body(value) -> Request",
        "Sends JSON.",
        |r: &mut RequestBuilder, value: Dynamic| r.clone().json(&value),
    );
    b.function(
        "form",
        "request.form(pairs) -> Request",
        "Sends urlencoded pairs.",
        |r: &mut RequestBuilder, pairs: Dynamic| r.clone().form(&pairs),
    );
    b.function(
        "raw",
        "request.raw(content_type, text) -> Request",
        "Sends a text as it is.",
        |r: &mut RequestBuilder, kind: Text, text: Text| r.clone().raw(kind.as_str(), text.as_str()),
    );
    let doc = "A value encoded as one path segment; empty, `.` and `..` are refused.";
    b.function("segment", "segment(value) -> text", doc, |value: Dynamic| super::context::segment(&value));
}

fn contexts(b: &mut EngineBuilder) {
    b.host_type::<Context>("Context", "The call: who, when, and what to tell besides the data.");
    b.field("subject", "ctx.subject -> text", "The caller's name.", |c: &mut Context| {
        c.facts().subject.to_string()
    });
    b.field(
        "claims",
        "ctx.claims -> object",
        "The caller's claims that policy lets through.",
        |c: &mut Context| c.claims(),
    );
    b.field(
        "now_ms",
        "ctx.now_ms -> int",
        "Milliseconds since 1970 when the call began.",
        |c: &mut Context| i64::try_from(c.facts().now_ms).unwrap_or(i64::MAX),
    );
    b.field("now", "ctx.now -> text", "The same as 2026-11-29T12:00:00Z.", |c: &mut Context| {
        crate::clock::rfc3339(c.facts().now_ms)
    });
    b.field(
        "correlation_id",
        "ctx.correlation_id -> text",
        "The call's correlation id.",
        |c: &mut Context| c.facts().correlation_id.to_string(),
    );
    b.field("tool", "ctx.tool -> text", "The tool's id.", |c: &mut Context| c.facts().tool.to_string());
    b.function("warn", "ctx.warn(text)", "Adds a warning to the result.", |c: &mut Context, text: Text| {
        c.warn(text.as_str());
    });
    b.function("truncated", "ctx.truncated()", "Says that something was left out.", |c: &mut Context| {
        c.truncated();
    });
    b.function(
        "omit",
        "ctx.omit(field, reason)",
        "Says what was left out and why.",
        |c: &mut Context, field: Text, reason: Text| {
            c.omit(field.as_str(), reason.as_str());
        },
    );
}

fn calls(b: &mut EngineBuilder) {
    let doc = "Sends a request to the tool's own upstream; a status of 400 or more fails the call.";
    b.function("fetch", "ctx.fetch(request) -> Reply", doc, |c: &mut Context, request: RequestBuilder| {
        c.fetch(&request)
    });
    let doc = "The same; any status is a reply, and what brought no reply is an error value.";
    b.function(
        "try_fetch",
        "ctx.try_fetch(request) -> Reply or error",
        doc,
        |c: &mut Context, request: RequestBuilder| c.try_fetch(&request),
    );
    let doc = "Calls another tool as the same caller, through policy; its failure fails this call.";
    b.function(
        CALL_ALIAS,
        "ctx.call(tool, arguments) -> View",
        doc,
        |c: &mut Context, tool: Text, args: Dynamic| c.call(tool.as_str(), &args),
    );
    let doc = "The same; a failure is an error value.";
    b.function(
        "try_call",
        "ctx.try_call(tool, arguments) -> View or error",
        doc,
        |c: &mut Context, tool: Text, args: Dynamic| c.try_call(tool.as_str(), &args),
    );
    let doc = "Tells progress to a caller that asked for it.";
    b.function(
        "progress",
        "ctx.progress(done, total)",
        doc,
        |c: &mut Context, done: Dynamic, total: Dynamic| c.progress(&done, &total, None),
    );
    b.function(
        "progress",
        "ctx.progress(done, total, message)",
        doc,
        |c: &mut Context, done: Dynamic, total: Dynamic, message: Text| {
            c.progress(&done, &total, Some(message.as_str()))
        },
    );
    let doc = "Waits, at most 10 s at a time; only in `run`.";
    b.function("wait", "ctx.wait(milliseconds)", doc, |c: &mut Context, ms: i64| c.wait(ms));
    ask::register(b);
}

/// Helpers that texts of the real world need and the language lacks.
fn texts(b: &mut EngineBuilder) {
    b.section("Texts", "Functions on plain values.");
    let doc = "The text cut to so many bytes at a character, with `…` where it was cut. Secrets go first, so that none is cut in two and missed.";
    b.function("clip", "clip(text, bytes) -> text", doc, |text: Text, bytes: i64| {
        let max = usize::try_from(bytes).unwrap_or(0);
        if text.len() <= max {
            return text.as_str().to_owned();
        }
        let kept = super::scrub::cut(text.as_str(), max.saturating_sub(super::scan::ELLIPSIS.len()));
        format!("{kept}{}", super::scan::ELLIPSIS)
    });
    let doc = "A text as a whole number, `()` where it is none.";
    b.function("number", "number(text) -> int or ()", doc, |text: Text| {
        text.trim().parse::<i64>().map_or(Dynamic::UNIT, Dynamic::from_int)
    });
    let doc = "A text read as JSON: a View or a plain value; a text that is not JSON is a fault.";
    b.function("read_json", "read_json(text) -> View", doc, |text: Text| -> HostResult<Dynamic> {
        let view = View::new(text.as_str()).map_err(|e| fault(format!("the text is not JSON: {e}")))?;
        Ok(view.value())
    });
    let doc = "The BLAKE3 hash of a text in hexadecimal digits.";
    b.function("hash", "hash(text) -> text", doc, |text: Text| {
        blake3::hash(text.as_bytes()).to_hex().to_string()
    });
}
