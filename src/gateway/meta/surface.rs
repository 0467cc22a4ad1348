//! `surface`: the caller's manifest, in pages where the whole would be no small result.

use serde::Serialize;

use crate::call::{ErrorCode, Omission, ToolError};
use crate::json::{self, JsonText, Object};

use super::super::Gateway;
use super::super::surface::Manifest;
use super::super::view::View;
use super::args;

const PURPOSE: &str = "surface";
/// Bytes kept for everything but the tools.
const FRAME_BYTES: usize = 1_024;

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    manifest: Manifest,
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    omitted: Vec<Omission>,
}

/// The manifest; its hash is over all tools whatever the page.
pub(super) fn surface(gateway: &Gateway, view: &View, arguments: &Object) -> Result<JsonText, ToolError> {
    let mut manifest = view.manifest();
    let binding = view.binding(PURPOSE, manifest.hash.0);
    let key = gateway.cursor_key(&view.snapshot);
    let from = match args::text(arguments, "cursor") {
        None => 0,
        Some(token) => {
            let stale = |_bad| {
                let message = "The cursor is not valid (any more); start again without it.";
                ToolError::new(ErrorCode::StaleCursor, message).field("/cursor")
            };
            usize::try_from(key.open(&binding, token).map_err(stale)?).unwrap_or(usize::MAX)
        }
    };
    let total = manifest.tools.len();
    let room = view.snapshot.settings.budgets.result_bytes.saturating_sub(FRAME_BYTES);
    let mut bytes = 0;
    let page = manifest.tools.iter().skip(from).take_while(|tool| {
        bytes += json::encoded_len(tool) + 1;
        bytes <= room
    });
    // A page never ends empty, or a walk would not end either.
    let shown = page.count().max(1);
    manifest.tools = manifest.tools.into_iter().skip(from).take(shown).collect();
    let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let rest = total.saturating_sub(from.saturating_add(manifest.tools.len()));
    let next_cursor = (rest > 0).then(|| key.seal(&binding, wide(total - rest)));
    let omitted = next_cursor.iter().map(|_| Omission {
        name: "tools".to_owned(),
        count: Some(wide(rest)),
        reason: "byte_budget".to_owned(),
        restore_with: "cursor = next_cursor".to_owned(),
    });
    super::text(&Answer { total, omitted: omitted.collect(), next_cursor, manifest })
}
