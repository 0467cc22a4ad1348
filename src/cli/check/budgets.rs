//! `[budgets]` of docent.toml against what is served: how many tools, how many bytes.

use crate::config::MAIN_FILE;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::snapshot::Snapshot;

/// Warns of every budget of the whole catalog that is not kept. Those of one tool are told at the tool.
pub(super) fn check(snapshot: &Snapshot, diagnostics: &mut Diagnostics) {
    let budgets = &snapshot.settings.budgets;
    let tools = snapshot.catalog.len();
    let mut warn = |code, message: String, help: &str| {
        diagnostics.push(Diagnostic::warning(code, MAIN_FILE, message).help(help));
    };
    if let Some(max) = budgets.listed_tools_max.filter(|max| tools > *max) {
        let message = format!("{tools} tools are more than `budgets.listed_tools_max` = {max}");
        warn("too-many-tools", message, "hide some, serve \"compact\", or raise the budget");
    }
    if let Some(min) = budgets.listed_tools_min.filter(|min| tools < *min) {
        let message = format!("{tools} tools are fewer than `budgets.listed_tools_min` = {min}");
        warn("too-few-tools", message, "a pack may have got lost; see `upstreams.enabled`");
    }
    let bytes: usize = snapshot.catalog.tools().iter().map(|t| t.description.len()).sum();
    if let Some(max) = budgets.description_bytes_total.filter(|max| bytes > *max) {
        let message =
            format!("all descriptions have {bytes} bytes, `budgets.description_bytes_total` is {max}");
        warn(
            "descriptions-too-long",
            message,
            "shorten the longest: `docent tools --json` tells their bytes",
        );
    }
    let own = snapshot.settings.instructions.as_deref().map_or(0, str::len);
    if own > budgets.instructions_bytes {
        let message = format!(
            "`server.instructions` has {own} bytes, `budgets.instructions_bytes` is {}: the rest is cut",
            budgets.instructions_bytes
        );
        warn("instructions-too-long", message, "shorten them: clients keep no more than 2,048 bytes");
    }
}
