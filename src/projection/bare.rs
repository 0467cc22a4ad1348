//! Results of tools without a projection: bounded, honest about what was cut, otherwise as they came.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::keep::{Keeping, Kept, RESULT_META};
use super::plain::Plain;
use super::reply;
use super::scan::{self, Ceilings};
use super::scrub::{WINDOW, scrub};
use super::{CallFacts, ResultBudget, Shaped};
use crate::call::{
    ErrorCode, McpReply, Omission, ReplyBody, ToolError, ToolOutcome, ToolResult, UpstreamReply,
    text_of_block,
};
use crate::json::{self as bounded, JsonText};

/// Bytes of all blocks that are not text (images, audio, files as base64): with the envelope a result stays
/// under the 1 MiB at which stock clients refuse an event.
pub(super) const BLOCK_BYTES_MAX: usize = 768 * 1024;
/// The media type of a value that docent itself made.
const JSON: &str = "application/json";
/// How a cut text says so; the numbers come in front of the text so that a reader learns it first.
const RESTORE: &str = "ask for less: a narrower query, a smaller range or fewer fields";

/// Shapes a reply that has no projection. What an MCP server answers keeps its form: its contract is its own.
/// Everything else takes the one form of [`Plain`]. Nothing is dropped silently.
///
/// Of `facts` it reads which members were asked for, whether the rest is kept, and how long it took.
pub fn unprojected(reply: &UpstreamReply, facts: &CallFacts, budget: &ResultBudget) -> Shaped {
    let mut out =
        Bare { budget: *budget, facts, result: ToolResult::default(), omitted: Vec::new(), kept: None };
    match &reply.body {
        ReplyBody::Mcp(mcp) if mcp.artifacts.is_none() => out.mcp(mcp),
        body => {
            return match reply::failure(reply, false) {
                Some(error) => Shaped::failed(error, reply::size(reply)),
                None => out.plain(body, &reply.warnings).finish(facts, budget, reply::size(reply)),
            };
        }
    }
    out.warnings(&reply.warnings);
    attach(&mut out.result, facts.keeping.as_ref(), out.kept.as_ref());
    Shaped::completed(out.result, reply::size(reply), out.omitted).keeping(out.kept)
}

/// Tells of what was kept aside: a link as a block, the id in `_meta`.
pub(super) fn attach(result: &mut ToolResult, keeping: Option<&Keeping>, kept: Option<&Kept>) {
    let (Some(keeping), Some(kept)) = (keeping, kept) else { return };
    result.blocks.extend(raw(&keeping.link(kept)));
    let meta = result.meta.get_or_insert_with(|| json!({}));
    if let Some(members) = meta.as_object_mut() {
        members.insert(RESULT_META.to_owned(), keeping.meta(kept));
    }
}

impl Shaped {
    /// A failure.
    pub(super) fn failed(error: ToolError, bytes_in: usize) -> Self {
        let bytes_out = bounded::encoded_len(&error);
        let outcome = ToolOutcome::Failed(error);
        Self { outcome, bytes_in, bytes_out, omitted: Vec::new(), kept: None, detail: None }
    }

    /// A result.
    pub(super) fn completed(result: ToolResult, bytes_in: usize, omitted: Vec<Omission>) -> Self {
        let bytes_out = result.structured.as_ref().map_or(0, JsonText::len)
            + result.text.as_ref().map_or(0, String::len)
            + result.blocks.iter().map(|b| b.get().len()).sum::<usize>();
        Self {
            outcome: ToolOutcome::Completed(result),
            bytes_in,
            bytes_out,
            omitted,
            kept: None,
            detail: None,
        }
    }

    /// Adds what is to be kept aside.
    pub(super) fn keeping(mut self, kept: Option<Kept>) -> Self {
        self.kept = kept;
        self
    }

    /// Adds what only the operator's log may hold.
    pub(super) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// A text within its budget.
#[derive(Debug)]
pub(super) struct CutText<'t> {
    /// The text, the notice of a cut first.
    pub(super) text: Cow<'t, str>,
    /// The receipt of a cut.
    pub(super) omission: Option<Omission>,
    /// The whole text where it was cut and results are kept.
    pub(super) kept: Option<Kept>,
}

/// Cuts a text to `max` bytes with the notice first, sized so that both together fit.
pub(super) fn cut_text<'t>(text: &'t str, max: usize, keeping: Option<&Keeping>) -> CutText<'t> {
    let scrubbed = scrub(bounded::cut(text, max.saturating_add(WINDOW)));
    if scrubbed.len() <= max && text.len() <= max {
        return CutText { text: scrubbed, omission: None, kept: None };
    }
    let kept = keeping.and_then(|k| k.take_text(text));
    let way = keeping.zip(kept.as_ref()).map_or_else(|| RESTORE.to_owned(), |(k, kept)| k.told(kept));
    let notice = |shown: usize| format!("[cut: the first {shown} of {} bytes follow; {way}]\n", text.len());
    let room = max.saturating_sub(notice(max).len());
    let shown = bounded::cut(&scrubbed, room);
    let mut out = notice(shown.len());
    out.push_str(shown);
    let omission = Omission {
        name: "text".to_owned(),
        count: u64::try_from(text.len() - shown.len().min(text.len())).ok(),
        reason: "byte_budget".to_owned(),
        restore_with: way,
    };
    CutText { text: Cow::Owned(bounded::cut(&out, max).to_owned()), omission: Some(omission), kept }
}

struct Bare<'f> {
    budget: ResultBudget,
    facts: &'f CallFacts,
    result: ToolResult,
    omitted: Vec<Omission>,
    kept: Option<Kept>,
}

impl Bare<'_> {
    /// A body as text, data or a block.
    fn plain<'t>(&self, body: &'t ReplyBody, warnings: &[String]) -> Plain<'t> {
        let mut plain = match body {
            ReplyBody::Empty => Plain::default(),
            ReplyBody::Value(value) => self.json(Cow::Owned(bounded::to_text(value)), JSON),
            ReplyBody::Bytes { bytes, .. } if bytes.is_empty() => Plain::default(),
            ReplyBody::Bytes { media_type, bytes } if reply::is_json(media_type) => {
                match scan::checked(bytes) {
                    Ok(text) => self.json(Cow::Borrowed(text), media_type),
                    Err(why) => {
                        let mut plain = Plain::text(String::from_utf8_lossy(bytes), media_type);
                        plain.notes.warn(&format!("the answer says that it is JSON and is not: {why}"));
                        plain
                    }
                }
            }
            ReplyBody::Bytes { media_type, bytes } if reply::is_text(media_type, bytes) => {
                Plain::text(String::from_utf8_lossy(bytes), media_type)
            }
            ReplyBody::Bytes { media_type, bytes } => binary(media_type, bytes),
            ReplyBody::Mcp(run) => run_of(run),
        };
        for warning in warnings {
            plain.notes.warn(warning);
        }
        plain
    }

    /// JSON with the members that were asked for.
    fn json<'t>(&self, text: Cow<'t, str>, media_type: &'t str) -> Plain<'t> {
        let mut compact = String::with_capacity(text.len());
        if scan::copy(&text, Ceilings::NONE, &mut compact).is_err() {
            return Plain::text(text, media_type);
        }
        if let Some(fields) = &self.facts.fields {
            let whole = std::mem::take(&mut compact);
            fields.select(&whole, &[], &mut compact);
        }
        Plain { data: Some(Cow::Owned(compact)), ..Plain::default() }
    }

    fn omit(&mut self, name: &str, reason: &str) {
        self.omitted.push(Omission {
            name: name.to_owned(),
            count: None,
            reason: reason.to_owned(),
            restore_with: RESTORE.to_owned(),
        });
    }

    /// Blocks in their order; texts share the text budget, all others the block budget.
    fn mcp(&mut self, mcp: &McpReply) {
        self.result.is_error = mcp.is_error;
        self.result.meta = mcp.meta.as_ref().and_then(|m| serde_json::from_str(m.get()).ok());
        let structured = mcp.structured.as_ref().and_then(|s| self.mcp_structured(s));
        let (mut texts, mut others) = (self.budget.text_bytes, BLOCK_BYTES_MAX);
        for (i, raw_block) in mcp.content.iter().enumerate() {
            if let Some(text) = text_of_block(raw_block) {
                if structured.as_ref().is_some_and(|s| says_the_same(&text, s)) {
                    continue;
                }
                self.mcp_text_block(raw_block, &text, &mut texts);
            } else if raw_block.get().len() <= others {
                others -= raw_block.get().len();
                self.result.blocks.push(raw_block.clone());
            } else {
                let note =
                    format!("[left out: block {i}, {} bytes, too large for a result]", raw_block.get().len());
                self.result.blocks.extend(raw(&json!({"type": "text", "text": note})));
                self.omit(&format!("content/{i}"), "byte_budget");
            }
        }
        self.result.structured = structured;
        if self.result.structured.is_none() && self.result.blocks.is_empty() {
            self.result.text = Some("OK".to_owned());
        }
        if !self.omitted.is_empty() {
            self.kept = self.facts.keeping.as_ref().and_then(|k| k.take(whole_mcp(mcp), false));
        }
    }

    fn mcp_structured(&mut self, raw: &RawValue) -> Option<JsonText> {
        let mut compact = String::new();
        let fits = raw.get().trim_start().starts_with('{')
            && scan::copy(raw.get(), Ceilings::NONE, &mut compact).is_ok();
        if let (true, Some(fields)) = (fits, &self.facts.fields) {
            let whole = std::mem::take(&mut compact);
            fields.select(&whole, &[], &mut compact);
        }
        if !fits || compact.len() > self.budget.result_bytes {
            self.omit("structured content", "byte_budget");
            return None;
        }
        JsonText::parse(scrub(&compact).into_owned()).ok()
    }

    fn mcp_text_block(&mut self, raw_block: &RawValue, text: &str, left: &mut usize) {
        // The whole answer is kept once for all its blocks, not each text for itself.
        let cut = cut_text(text, *left, None);
        *left = left.saturating_sub(cut.text.len());
        if cut.omission.is_none() && matches!(cut.text, Cow::Borrowed(_)) {
            self.result.blocks.push(raw_block.to_owned());
            return;
        }
        let mut block: Value = serde_json::from_str(raw_block.get()).unwrap_or_default();
        if let Some(slot) = block.get_mut("text") {
            *slot = Value::from(cut.text.as_ref());
        }
        self.result.blocks.extend(raw(&block));
        self.omitted.extend(cut.omission);
    }

    /// The adapter's own warnings, in a block of their own.
    fn warnings(&mut self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        let note = format!("[note: {}]", warnings.iter().map(|w| scrub(w)).collect::<Vec<_>>().join("; "));
        self.result.blocks.extend(raw(&json!({"type": "text", "text": note})));
    }
}

impl<'t> Plain<'t> {
    /// A text of a media type.
    pub(super) fn text(text: Cow<'t, str>, media_type: &'t str) -> Self {
        Self { text: Some((text, media_type)), ..Self::default() }
    }
}

/// A program's run or a body of bytes: what was printed, the files, and the blocks that stay with them.
fn run_of(run: &McpReply) -> Plain<'_> {
    let mut plain = Plain { artifacts: run.artifacts.as_deref().unwrap_or_default(), ..Plain::default() };
    let printed = reply::mcp_text(run);
    if !printed.is_empty() {
        plain.text = Some((Cow::Owned(printed), ""));
    }
    let mut room = BLOCK_BYTES_MAX;
    for (i, block) in run.content.iter().enumerate() {
        let value: Value = serde_json::from_str(block.get()).unwrap_or_default();
        if value.get("type").and_then(Value::as_str) == Some("text") {
            continue;
        }
        if block.get().len() > room {
            plain.notes.omit(&format!("content/{i}"), None, "byte_budget", RESTORE);
            continue;
        }
        room -= block.get().len();
        plain.blocks.push(block.clone());
    }
    plain
}

/// Bytes that nobody could keep as a file, as a block.
fn binary<'t>(media_type: &str, bytes: &[u8]) -> Plain<'t> {
    let mut plain = Plain::default();
    let size = bytes.len();
    if size.div_ceil(3) * 4 > BLOCK_BYTES_MAX {
        plain.notes.warn(&format!(
            "the upstream answered {size} bytes of {media_type}, too large for a result; nothing of it is shown"
        ));
        plain.notes.omit("body", None, "byte_budget", RESTORE);
        return plain;
    }
    let data = reply::base64(bytes);
    let block = match media_type.split('/').next() {
        Some(kind @ ("image" | "audio")) => json!({"type": kind, "data": data, "mimeType": media_type}),
        _ => {
            let uri = format!("docent://reply/{}", blake3::hash(bytes).to_hex());
            json!({"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "blob": data}})
        }
    };
    plain.blocks.extend(raw(&block));
    plain
}

/// An MCP server's answer, whole, as an object: `structuredContent` and `content`.
fn whole_mcp(mcp: &McpReply) -> String {
    let mut out = String::from("{");
    if let Some(structured) = &mcp.structured {
        out.push_str("\"structuredContent\":");
        out.push_str(structured.get());
        out.push(',');
    }
    out.push_str("\"content\":[");
    for (at, block) in mcp.content.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(block.get());
    }
    out.push_str("]}");
    out
}

/// Whether a text block only repeats the structured half.
fn says_the_same(text: &str, structured: &JsonText) -> bool {
    text == structured.as_str() || serde_json::from_str::<Value>(text).is_ok_and(|v| v == structured.value())
}

/// A block as raw JSON.
pub(super) fn raw(block: &Value) -> Option<Box<RawValue>> {
    RawValue::from_string(bounded::to_text(block)).ok()
}

/// The failure for a script or a schema that let the operator down; the caller gets no detail.
pub(super) fn internal(correlation_id: &str) -> ToolError {
    ToolError::new(
        ErrorCode::InternalError,
        format!(
            "a script or schema of this tool failed; the operator's log has the cause under {correlation_id}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn bytes(media_type: &str, body: impl Into<Bytes>) -> UpstreamReply {
        UpstreamReply {
            status: 200,
            headers: Vec::new(),
            body: ReplyBody::Bytes { media_type: media_type.to_owned(), bytes: body.into() },
            warnings: Vec::new(),
        }
    }

    fn done(reply: &UpstreamReply, budget: &ResultBudget) -> (ToolResult, Vec<Omission>) {
        let shaped = unprojected(reply, &CallFacts::default(), budget);
        match shaped.outcome {
            ToolOutcome::Completed(result) => (result, shaped.omitted),
            ToolOutcome::Failed(error) => panic!("{error}"),
        }
    }

    const SMALL: ResultBudget = ResultBudget { result_bytes: 2_000, text_bytes: 200, records: 10 };

    /// The plain form of a reply.
    fn plain(reply: &UpstreamReply) -> (Value, Vec<Omission>) {
        let (result, omitted) = done(reply, &SMALL);
        assert!(result.is_plain && result.text.is_none());
        (result.structured.unwrap().value(), omitted)
    }

    #[test]
    fn json_is_data_and_exact() {
        let json = bytes("application/json", "{ \"id\": 123456789012345678901 , \"p\": 0.10 }");
        let (result, omitted) = done(&json, &SMALL);
        assert_eq!(
            result.structured.unwrap().as_str(),
            r#"{"text":null,"text_mime":null,"data":{"id":123456789012345678901,"p":0.10},"artifacts":[],"warnings":[],"duration_ms":0}"#
        );
        assert!(omitted.is_empty());
        for data in ["[1,2]", "7", "null", "\"x\""] {
            let (value, _) = plain(&bytes("application/problem+json", data));
            assert_eq!((value["data"].to_string().as_str(), &value["text"]), (data, &Value::Null));
        }
        let (broken, _) = plain(&bytes("application/json", "{oops"));
        assert_eq!((&broken["text"], &broken["text_mime"]), (&json!("{oops"), &json!("application/json")));
        assert!(broken["warnings"][0].as_str().unwrap().contains("is JSON and is not"), "{broken}");
        let (empty, _) = plain(&UpstreamReply { body: ReplyBody::Empty, ..bytes("", "") });
        assert_eq!((&empty["text"], &empty["data"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn texts_are_cut_at_the_limit_and_not_before() {
        let (whole, _) = plain(&bytes("text/html", "x".repeat(200)));
        assert_eq!(whole["text"].as_str().unwrap().len(), 200);
        assert_eq!((&whole["text_mime"], &whole["warnings"]), (&json!("text/html"), &json!([])));
        for pad in 0..4 {
            let text = format!("{}{}", "a".repeat(pad), "😀".repeat(51));
            let (value, omitted) = plain(&bytes("text/plain", text));
            let kept = value["text"].as_str().unwrap();
            assert!(kept.len() <= 200 && kept.starts_with("[cut: "), "{kept}");
            assert_eq!(omitted[0].name, "text");
            assert!(value["warnings"][0].as_str().unwrap().starts_with("left out: the last "), "{value}");
        }
    }

    #[test]
    fn a_secret_across_the_cut_is_gone() {
        let text = format!("{} ghp_{}", "x".repeat(120), "a1b2c3d4".repeat(8));
        let (value, _) = plain(&bytes("text/plain", text));
        assert!(!value.to_string().contains("ghp_"), "{value}");
    }

    #[test]
    fn binary_bodies_become_blocks_or_are_described() {
        let (image, _) = done(&bytes("image/png", vec![0u8; 6]), &SMALL);
        assert_eq!(image.blocks[0].get(), r#"{"type":"image","data":"AAAAAAAA","mimeType":"image/png"}"#);
        let (pdf, _) = done(&bytes("application/pdf", vec![0xffu8; 3]), &SMALL);
        assert!(pdf.blocks[0].get().contains("\"blob\":\"////\""));
        let (big, omitted) = done(&bytes("application/pdf", vec![0xffu8; 800_000]), &SMALL);
        let told = big.structured.unwrap().value()["warnings"][0].as_str().unwrap().to_owned();
        assert!(big.blocks.is_empty() && told.contains("800000 bytes") && omitted.len() == 1, "{told}");
    }

    fn mcp(content: &[Value], structured: Option<&Value>) -> UpstreamReply {
        UpstreamReply {
            status: 200,
            headers: Vec::new(),
            body: ReplyBody::Mcp(McpReply {
                content: content.iter().filter_map(raw).collect(),
                structured: structured.and_then(raw),
                is_error: false,
                meta: None,
                artifacts: None,
            }),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn mcp_answers_keep_their_blocks_once() {
        let structured = json!({"a": 1});
        let blocks = [
            json!({"type": "text", "text": "{ \"a\": 1 }"}),
            json!({"type": "widget", "x": [1]}),
            json!({"type": "text", "text": "more", "annotations": {"priority": 1}}),
        ];
        let (result, omitted) = done(&mcp(&blocks, Some(&structured)), &SMALL);
        assert_eq!(result.structured.unwrap().as_str(), r#"{"a":1}"#);
        assert_eq!(
            result.blocks.iter().map(|b| b.get().to_owned()).collect::<Vec<_>>(),
            [blocks[1].to_string(), blocks[2].to_string()]
        );
        assert!(omitted.is_empty());
        let (flood, omitted) = done(
            &mcp(
                &[json!({"type": "text", "text": "x".repeat(1_000)})],
                Some(&json!({"a": "y".repeat(2_000)})),
            ),
            &SMALL,
        );
        assert!(flood.structured.is_none() && flood.blocks[0].get().contains("[cut: "));
        assert_eq!(omitted.len(), 2);
    }

    #[test]
    fn failures_and_warnings_are_told() {
        let mut reply = bytes("application/json", r#"{"message":"no such repo"}"#);
        reply.status = 404;
        let ToolOutcome::Failed(error) = unprojected(&reply, &CallFacts::default(), &SMALL).outcome else {
            panic!()
        };
        assert_eq!(
            (error.code, error.message.as_str()),
            (ErrorCode::NotFound, "the upstream answered 404: no such repo")
        );
        let mut reply = bytes("text/plain", "out");
        reply.warnings = vec!["output was cut".to_owned()];
        let (value, _) = plain(&reply);
        assert_eq!((&value["text"], &value["warnings"]), (&json!("out"), &json!(["output was cut"])));
    }

    proptest! {
        #[test]
        fn any_body_stays_within_its_budget(body in prop::collection::vec(any::<u8>(), 0..600), kind in 0usize..5) {
            let media_type = ["application/json", "text/plain", "image/png", "", "application/pdf"][kind];
            let (result, _) = done(&bytes(media_type, body), &SMALL);
            let structured = result.structured.unwrap();
            prop_assert!(structured.len() <= SMALL.result_bytes);
            let value = structured.value();
            prop_assert_eq!(value.as_object().unwrap().len(), 6);
            prop_assert!(value["text"].as_str().map_or(0, str::len) <= SMALL.text_bytes);
        }
    }
}
