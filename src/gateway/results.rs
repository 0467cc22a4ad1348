//! What did not fit into a result: kept for its caller, read by parts, passed on by reference.
//!
//! Another caller's result, one of a tool that the caller no longer sees and one that never was are the same
//! answer. What a policy withholds now is withheld from a part that is read now.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::{ErrorCode, ToolError, ToolResult};
use crate::catalog::Tool;
use crate::id;
use crate::json::{self, JsonText, Object};
use crate::limits;
use crate::policy::Principal;
use crate::projection::{self, Keeping, Kept, Part, PartError};
use crate::snapshot::{Budgets, MetaTool};
use crate::store::results::{ResultRoom, ResultRow};

use super::meta::args;
use super::view::View;
use super::{Gateway, failure, redact, references};

/// The key of an argument that stands for a kept result, or a part of it.
const REFERENCE: &str = "$result";
/// Bytes of a part's frame: everything of the answer but the value and the paths.
const FRAME_BYTES: usize = 512;
/// Bytes of an answer that go to its paths: the one asked for, and those of what is too large.
const PATHS_BYTES_MAX: usize = 4_096;

/// How the calls of this caller keep what is left out; nothing where the operator turned that off.
pub(super) fn keeping(server: &str, budgets: &Budgets) -> Option<Keeping> {
    let reader = || MetaTool::ReadResult.wire_name(server);
    (budgets.kept_bytes > 0).then(|| Keeping::new(reader(), budgets.kept_bytes, budgets.kept, mint))
}

/// An id that nobody guesses. It is no secret: another caller's id opens nothing.
fn mint() -> Arc<str> {
    Arc::from(format!("r_{}", id::hex(&id::unique::<16>())))
}

#[derive(Serialize)]
struct Answer<'a> {
    result_id: &'a str,
    tool: &'a str,
    path: &'a str,
    /// What stands at the path.
    kind: &'static str,
    /// Members, elements or bytes of it.
    total: usize,
    offset: usize,
    returned: usize,
    next_offset: Option<usize>,
    value: &'a RawValue,
    /// Members or elements that alone are larger than an answer: read them by their paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    too_large: Vec<Value>,
    /// Whether the kept result is all that there was.
    complete: bool,
    expires_in_seconds: u64,
}

impl Gateway {
    /// Keeps the whole of a result, without what is withheld from its caller.
    pub(super) async fn keep(
        &self,
        budgets: &Budgets,
        who: &Principal,
        tool: &Tool,
        kept: Kept,
        withheld: &[Arc<str>],
    ) {
        let Some(body) = clean(kept.json, kept.is_data, withheld) else { return };
        let now = self.clock().unix_ms();
        let life = u64::try_from(budgets.kept.as_millis()).unwrap_or(u64::MAX);
        let row = ResultRow {
            id: kept.id.to_string(),
            caller: who.subject.to_string(),
            tool: tool.id.as_str().to_owned(),
            is_whole: kept.is_whole,
            is_data: kept.is_data,
            created_ms: now,
            expires_ms: now.saturating_add(life),
            body: Some(body.as_str().to_owned()),
        };
        let per_caller = u64::try_from(budgets.kept_bytes_per_caller).unwrap_or(u64::MAX);
        let room = ResultRoom { per_caller, total: limits::KEPT_BYTES_TOTAL };
        match self.store().put_result(row, room).await {
            Ok(0) => {}
            Ok(gone) => tracing::info!(
                principal.id = %who.subject,
                results = gone,
                "kept results made room for newer ones"
            ),
            Err(error) => tracing::error!(
                tool.id = %tool.id,
                principal.id = %who.subject,
                error = %error,
                "a result could not be kept; its id will be unknown"
            ),
        }
    }

    /// A caller's kept result as it may see it now.
    pub(super) async fn kept_result(
        &self,
        view: &View,
        who: &Principal,
        id: &str,
    ) -> Result<(ResultRow, JsonText), ToolError> {
        let gone = |message: String| Err(ToolError::new(ErrorCode::NotFound, message).field("/result_id"));
        let unknown = || {
            let minutes = view.snapshot.settings.budgets.kept.as_secs().div_ceil(60);
            gone(format!(
                "There is no kept result of this id for you (any more). Results are kept for {minutes} min: \
                 call the tool again."
            ))
        };
        let row = match self.store().result(&who.subject, id, self.clock().unix_ms()).await {
            Ok(row) => row,
            Err(error) => {
                tracing::error!(error = %error, "a kept result could not be read");
                return Err(failure::internal());
            }
        };
        let Some(mut row) = row else { return unknown() };
        // What its owner may no longer know of is gone with its results.
        let Some((_, tool)) = view.find(&row.tool) else { return unknown() };
        let Ok(withheld) = view.snapshot.policy.redactions(who, tool) else { return unknown() };
        let Some(body) = row.body.take() else {
            return gone(
                "This result had to make room for newer ones. Call the tool again, and read what it keeps \
                 before the next large call."
                    .to_owned(),
            );
        };
        match JsonText::parse(body).ok().and_then(|json| clean(json, row.is_data, &withheld)) {
            Some(json) => Ok((row, json)),
            None => unknown(),
        }
    }

    /// `read_result`: a part of a kept result.
    pub(super) async fn read_result(
        &self,
        view: &View,
        who: &Principal,
        given: &Object,
    ) -> Result<JsonText, ToolError> {
        let id = args::text(given, "result_id").unwrap_or_default();
        let path = args::text(given, "path").unwrap_or_default();
        let offset = args::size(given, "offset").unwrap_or(0);
        let limit = args::size(given, "limit").unwrap_or(usize::MAX);
        let (row, json) = self.kept_result(view, who, id).await?;
        let max = view.snapshot.settings.budgets.result_bytes;
        let mut room = max.saturating_sub(FRAME_BYTES + json::encoded_len(path) + row.tool.len());
        let left = row.expires_ms.saturating_sub(self.clock().unix_ms());
        loop {
            let part = projection::part(&json, path, offset, limit, room).map_err(|e| misplaced(&e))?;
            let text = json::to_text(&answer(&row, path, offset, &part, left));
            // The paths of what is too large are known only now.
            match text.len().checked_sub(max) {
                Some(over @ 1..) if room > PATHS_BYTES_MAX.min(max / 4) => {
                    room = room.saturating_sub(over + 16);
                }
                _ => return JsonText::parse(text).map_err(|_broken| failure::internal()),
            }
        }
    }

    /// Replaces every `{"$result": id, "path": pointer}` in the arguments by what was kept. Done before policy
    /// sees the arguments and before they are validated: both judge what is really sent. Whether there was one.
    pub(super) async fn resolve_results(
        &self,
        view: &View,
        who: &Principal,
        arguments: &mut Object,
    ) -> Result<bool, ToolError> {
        let mut found = references::find(arguments, limits::RESULT_REFERENCES_MAX, reference);
        if found.is_empty() {
            return Ok(false);
        }
        if found.len() > limits::RESULT_REFERENCES_MAX {
            let message = format!(
                "The arguments have {} `{REFERENCE}` values; {} are taken.",
                found.len(),
                limits::RESULT_REFERENCES_MAX
            );
            return Err(ToolError::new(ErrorCode::InvalidArgument, message).field(found.swap_remove(0).0));
        }
        let mut whole = Value::Object(std::mem::take(arguments));
        let mut room = limits::REQUEST_BODY_BYTES_MAX.saturating_sub(json::encoded_len(&whole));
        for (place, ()) in found {
            let Some(slot) = whole.pointer_mut(&place) else { continue };
            let value =
                Box::pin(self.resolved(view, who, slot, &mut room)).await.map_err(|e| at_place(e, &place))?;
            *slot = value;
        }
        if let Value::Object(resolved) = whole {
            *arguments = resolved;
        }
        Ok(true)
    }

    async fn resolved(
        &self,
        view: &View,
        who: &Principal,
        reference: &Value,
        room: &mut usize,
    ) -> Result<Value, ToolError> {
        let invalid = |message: String| Err(ToolError::new(ErrorCode::InvalidArgument, message));
        let (Some(id), path) = (reference.get(REFERENCE).and_then(Value::as_str), reference.get("path"))
        else {
            return invalid(format!("`{REFERENCE}` is the id of a kept result, as a text."));
        };
        let path = match path {
            None => "",
            Some(Value::String(path)) => path,
            Some(_) => return invalid("`path` beside it is a JSON Pointer, as a text.".to_owned()),
        };
        let (_, json) = self.kept_result(view, who, id).await?;
        let text = projection::at(&json, path).map_err(|e| misplaced(&e))?;
        if text.len() > *room {
            return invalid(format!(
                "What stands there has {} bytes; the arguments of a call have at most {}. Name a smaller part.",
                text.len(),
                limits::REQUEST_BODY_BYTES_MAX
            ));
        }
        *room -= text.len();
        if let Some(number) = json::inexact_number(text) {
            return invalid(format!(
                "The number {} in it has more digits than 64 bits hold and would arrive as another one. Name a part \
                 without it, or give the argument as a text.",
                json::cut(number, 80)
            ));
        }
        json::parse(text.as_bytes(), limits::REQUEST_BODY_BYTES_MAX)
            .or_else(|e| invalid(format!("It cannot be an argument: {e}.")))
    }
}

/// Whether an object stands for a kept result.
fn reference(map: &Object) -> Option<()> {
    (map.contains_key(REFERENCE) && map.keys().all(|k| k == REFERENCE || k == "path")).then_some(())
}

/// A reference that fails names the argument in which it stands.
fn at_place(error: ToolError, place: &str) -> ToolError {
    let message = format!("`{place}`: {}", error.message);
    ToolError { message, ..error }.field(place)
}

fn misplaced(error: &PartError) -> ToolError {
    let text = error.to_string();
    ToolError::new(ErrorCode::InvalidArgument, format!("{}.", json::cut(&text, 1_000))).field("/path")
}

fn answer<'a>(row: &'a ResultRow, path: &'a str, offset: usize, part: &'a Part, left_ms: u64) -> Answer<'a> {
    Answer {
        result_id: &row.id,
        tool: &row.tool,
        path,
        kind: part.kind,
        total: part.total,
        offset,
        returned: part.returned,
        next_offset: part.next,
        value: part.value.raw(),
        too_large: part
            .too_large
            .iter()
            .map(|(path, bytes)| json!({ "path": json::cut(path, 512), "bytes": bytes }))
            .collect(),
        complete: row.is_whole,
        expires_in_seconds: Duration::from_millis(left_ms).as_secs(),
    }
}

/// JSON without what is withheld. The rules are about the whole result: `data` is looked at in its place.
fn clean(json: JsonText, is_data: bool, withheld: &[Arc<str>]) -> Option<JsonText> {
    if withheld.is_empty() {
        return Some(json);
    }
    if !is_data {
        return Some(redacted(json, withheld));
    }
    let framed = JsonText::parse(format!("{{\"data\":{}}}", json.as_str())).ok()?;
    let clean = redacted(framed, withheld);
    let data = JsonText::parse(projection::at(&clean, "/data").ok()?.to_owned()).ok()?;
    // Of a tool without a projection a rule may be about the upstream's answer, which stands here as it came.
    Some(redacted(data, withheld))
}

fn redacted(json: JsonText, withheld: &[Arc<str>]) -> JsonText {
    let mut result = ToolResult { structured: Some(json), ..ToolResult::default() };
    redact::redact(&mut result, withheld);
    // A text has no fields; `redact` gives nothing for what is no object or list.
    result.structured.unwrap_or_else(|| JsonText::of(&Value::Null))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_wherever_they_stand() {
        let value = json!({"a/b": [1, {"$result": "r", "path": "/x"}], "c": {"$result": "r", "else": 1}, "d": {"e": {"$result": 7}}});
        let found = references::find(value.as_object().unwrap(), 10, reference);
        assert_eq!(found, ["/a~1b/1", "/d/e"].map(|place| (place.to_owned(), ())));
    }

    #[test]
    fn ids_do_not_repeat() {
        assert_ne!(mint(), mint());
        assert_eq!(mint().len(), 34);
    }

    #[test]
    fn rules_about_a_result_hold_for_its_kept_data() {
        let data = JsonText::parse(r#"{"kind":"page","items":[{"id":1,"mail":"a"}]}"#.to_owned()).unwrap();
        let rules = [Arc::from("/data/items/*/mail")];
        let clean = clean(data.clone(), true, &rules).unwrap();
        assert_eq!(clean.as_str(), r#"{"kind":"page","items":[{"id":1}]}"#);
        assert_eq!(
            super::clean(data.clone(), true, &[Arc::from("items")]).unwrap().as_str(),
            r#"{"kind":"page"}"#
        );
        let raw = [Arc::from("/items/*/mail")];
        assert_eq!(super::clean(data.clone(), true, &raw).unwrap().as_str(), clean.as_str());
        let text = JsonText::of(&json!("a text"));
        assert_eq!(super::clean(text.clone(), false, &rules).unwrap(), text);
    }
}
