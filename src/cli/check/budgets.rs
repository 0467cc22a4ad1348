//! `[budgets]` of docent.toml against what is served: how many tools, how many bytes, for every caller.

use std::sync::Arc;

use crate::config::MAIN_FILE;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::gateway::{Gateway, RequestContext};
use crate::policy::{DiscoveryMode, Principal};
use crate::snapshot::{MetaTool, Snapshot};

/// Warns of every budget that is not kept. Those of one tool are told at the tool.
pub(super) fn check(gateway: &Gateway, diagnostics: &mut Diagnostics) {
    let snapshot = gateway.snapshot();
    tools(gateway, &snapshot, diagnostics);
    descriptions(&snapshot, diagnostics);
    instructions(gateway, &snapshot, diagnostics);
}

fn warning(code: &'static str, message: String, help: &str) -> Diagnostic {
    Diagnostic::warning(code, MAIN_FILE, message).help(help)
}

/// Every caller of the home, and `anonymous` where no token is needed.
fn callers(snapshot: &Snapshot) -> Vec<Arc<Principal>> {
    let names = snapshot.callers.names().chain(["anonymous"]);
    let mut found: Vec<_> = names.filter_map(|name| snapshot.callers.caller(name)).collect();
    found.dedup_by(|a, b| a.subject == b.subject);
    found
}

/// The ceiling is of the longest list that a caller is shown; the floor is of the catalog, since a caller may
/// well be meant to see little, and a lost pack is missing there.
fn tools(gateway: &Gateway, snapshot: &Snapshot, diagnostics: &mut Diagnostics) {
    let budgets = &snapshot.settings.budgets;
    let own = MetaTool::ALL.len();
    let listed = |who: &Arc<Principal>| match gateway.mode(&RequestContext::new(Arc::clone(who), "check")) {
        DiscoveryMode::Full => own + snapshot.policy.roster(&snapshot.catalog, who).visible.count(),
        DiscoveryMode::Compact | DiscoveryMode::Auto => own,
    };
    let longest = callers(snapshot).into_iter().map(|who| (listed(&who), who)).max_by_key(|(n, _)| *n);
    if let (Some(max), Some((most, who))) = (budgets.listed_tools_max, longest)
        && most > max
    {
        let message = format!(
            "`{}` is shown {most} tools ({own} of them the server's own), `budgets.listed_tools_max` is {max}",
            who.subject
        );
        let help = "hide some by policy, serve `discovery = \"compact\"`, or raise the budget";
        diagnostics.push(warning("too-many-tools", message, help));
    }
    let tools = snapshot.catalog.len();
    if let Some(min) = budgets.listed_tools_min.filter(|min| tools < *min) {
        let message = format!("{tools} tools are fewer than `budgets.listed_tools_min` = {min}");
        let mut told = warning("too-few-tools", message, "a pack may have got lost; see `upstreams.enabled`");
        if snapshot.upstreams.statuses().iter().any(|s| !s.complete) {
            // The servers that were not asked may have the rest.
            told.severity = Severity::Note;
        }
        diagnostics.push(told);
    }
}

fn descriptions(snapshot: &Snapshot, diagnostics: &mut Diagnostics) {
    let bytes: usize = snapshot.catalog.tools().iter().map(|t| t.description.len()).sum();
    if let Some(max) = snapshot.settings.budgets.description_bytes_total.filter(|max| bytes > *max) {
        let longest = snapshot.catalog.tools().iter().max_by_key(|t| t.description.len());
        let longest = longest.map_or_else(String::new, |t| {
            format!("; the longest is that of `{}` with {} bytes", t.id, t.description.len())
        });
        let message = format!(
            "all descriptions have {bytes} bytes, `budgets.description_bytes_total` is {max}{longest}"
        );
        let help = "shorten the longest: `docent tools --json` tells their bytes";
        diagnostics.push(warning("descriptions-too-long", message, help));
    }
}

/// The instructions as every caller gets them, in both modes: nothing of them may be cut. The operator's words
/// are told as the cause, since docent's own fit.
fn instructions(gateway: &Gateway, snapshot: &Snapshot, diagnostics: &mut Diagnostics) {
    let max = snapshot.settings.budgets.instructions_bytes;
    let mut most = 0;
    for who in callers(snapshot) {
        for mode in [DiscoveryMode::Full, DiscoveryMode::Compact] {
            let mut ctx = RequestContext::new(Arc::clone(&who), "check");
            ctx.discovery = Some(mode);
            most = most.max(gateway.instructions_bytes(&ctx));
        }
    }
    if most > max {
        let own = snapshot.settings.instructions.as_deref().map_or(0, |text| text.trim().len());
        let room = max.saturating_sub(most - own);
        let message = format!(
            "the instructions take {most} bytes, `budgets.instructions_bytes` is {max}: `server.instructions` \
             has {own} bytes and is cut to {room}"
        );
        let help = "shorten `server.instructions`; clients keep no more than 2,048 bytes of all";
        diagnostics.push(warning("instructions-too-long", message, help));
    }
}
