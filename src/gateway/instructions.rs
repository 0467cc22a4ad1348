//! The server's instructions for one caller: the operator's words and how to work here, within 2 KiB.
//!
//! Clients cut instructions at 2,048 bytes. What must not be lost stands early; the paragraph on
//! authorization is never the last one.

use crate::json::cut;
use crate::policy::DiscoveryMode;

use super::view::View;
use super::{Gateway, RequestContext};

/// Between paragraphs.
const BREAK: &str = "\n\n";
/// How a cut shows.
const CUT: &str = "…";

impl Gateway {
    /// The bytes that the instructions for this caller would take if nothing were cut.
    pub fn instructions_bytes(&self, ctx: &RequestContext) -> usize {
        let view = View::of(self, ctx);
        let own = view.snapshot.settings.instructions.as_deref().unwrap_or_default().trim().len();
        own + if own > 0 { BREAK.len() } else { 0 } + fixed(&view).len()
    }

    /// The instructions for this caller, at most `budgets.instructions_bytes`.
    pub fn instructions(&self, ctx: &RequestContext) -> String {
        let view = View::of(self, ctx);
        let max = view.snapshot.settings.budgets.instructions_bytes;
        let mut fixed = fixed(&view);
        if fixed.len() > max {
            // Of so little room the way to the tools is worth most, and no cut may leave authorization last.
            fixed = way(view.server(), view.mode, view.shelf.tools);
        }
        let own = view.snapshot.settings.instructions.as_deref().unwrap_or_default().trim();
        let room = max.saturating_sub(fixed.len() + BREAK.len());
        let own = if own.len() > room {
            match room.checked_sub(CUT.len()) {
                Some(room) if room > 0 => format!("{}{CUT}", cut(own, room).trim_end()),
                _ => String::new(),
            }
        } else {
            own.to_owned()
        };
        let whole = if own.is_empty() { fixed } else { format!("{own}{BREAK}{fixed}") };
        cut(&whole, max).to_owned()
    }
}

/// docent's own paragraphs. The one on authorization stands first, so that no cut can make it the last.
fn fixed(view: &View) -> String {
    let server = view.server();
    [rights(server), way(server, view.mode, view.shelf.tools), results()].join(BREAK)
}

/// How to find and run tools, true in the caller's mode.
fn way(server: &str, mode: DiscoveryMode, tools: usize) -> String {
    let search = format!("`{server}_search_tools` finds tools by what you need");
    match mode {
        DiscoveryMode::Full => format!(
            "You may use {tools} tools; the list shows all of them in pages, and each can be called by its \
             name. {search}; `{server}_describe_tool` shows one in full."
        ),
        DiscoveryMode::Compact | DiscoveryMode::Auto => format!(
            "You may use {tools} tools; the list shows only the server's own. {search}; \
             `{server}_describe_tool` shows one with its arguments; `{server}_run_tool` runs it, \
             `{server}_run_readonly_tool` runs it if it only reads. Search before you say that something \
             cannot be done."
        ),
    }
}

fn rights(server: &str) -> String {
    format!(
        "A listed or found tool is not a promise: every call is checked. If a call is refused, \
         `{server}_describe_tool` says why and whether the right can be granted; do not try to get around it."
    )
}

fn results() -> String {
    "Results are bounded: `truncated`, `warnings` and `omitted` say what was left out; ask for less or for \
     the next page. Errors have a `code`, `retryable` and what to do. After UNKNOWN_OUTCOME look whether the \
     change took effect; never just repeat it."
        .to_owned()
}
