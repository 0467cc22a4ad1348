//! `/metrics` in the Prometheus text format: a handful of counters, so no crate for it.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::audit::AuditStatus;
use crate::call::tokens::tokens_of;
use crate::gateway::{Gateway, Saved};
use crate::jobs::JobState;
use crate::mcp::{Mcp, Outcome};

/// The groups of paths that are counted apart; a path that a client invents must not make a new series.
const PATHS: [&str; 6] = ["/mcp", "/healthz", "/readyz", "/metrics", "/api/v1/jobs", "other"];
/// Status classes from 1xx to 5xx.
const CLASSES: usize = 5;

/// HTTP requests by path and status class.
#[derive(Debug, Default)]
pub(super) struct Requests([[AtomicU64; CLASSES]; PATHS.len()]);

impl Requests {
    /// The row of `/mcp`.
    pub(super) const MCP: usize = 0;

    /// The row of a path.
    pub(super) fn row(path: &str) -> usize {
        // Every job has a path of its own; they count as one.
        let path = if path.starts_with("/api/v1/jobs/") { "/api/v1/jobs" } else { path };
        PATHS.iter().position(|p| *p == path).unwrap_or(PATHS.len() - 1)
    }

    /// The name of a row.
    pub(super) fn name(row: usize) -> &'static str {
        PATHS.get(row).copied().unwrap_or_default()
    }

    /// Counts one.
    pub(super) fn count(&self, row: usize, status: u16) {
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = self.0.get(row).and_then(|r| r.get(class)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The whole text; series that name tools only where `names` may be told.
    pub(super) fn text(&self, mcp: &Mcp, names: bool) -> String {
        let mut out = String::new();
        head(&mut out, "docent_http_requests_total", "counter", "HTTP requests by path and status class.");
        for (path, row) in PATHS.iter().zip(&self.0) {
            for (class, counter) in (1..).zip(row) {
                let n = counter.load(Ordering::Relaxed);
                if n > 0 {
                    line(
                        &mut out,
                        format_args!(
                            "docent_http_requests_total{{path=\"{path}\",status=\"{class}xx\"}} {n}"
                        ),
                    );
                }
            }
        }
        head(&mut out, "docent_tool_calls_total", "counter", "Tool calls by how they ended.");
        for outcome in Outcome::ALL {
            let n = mcp.counters().calls(outcome);
            line(&mut out, format_args!("docent_tool_calls_total{{outcome=\"{}\"}} {n}", outcome.as_str()));
        }
        head(&mut out, "docent_sessions", "gauge", "Sessions of the session wire open now.");
        line(&mut out, format_args!("docent_sessions {}", mcp.session_count()));
        head(&mut out, "docent_event_streams", "gauge", "Event streams open now.");
        line(&mut out, format_args!("docent_event_streams {}", mcp.stream_count()));
        if names {
            saved(&mut out, &mcp.service().saved());
        }
        audit(&mut out, &mcp.service().audit().status());
        jobs(&mut out, mcp);
        let shadow = mcp.service().gateway().and_then(Gateway::shadow_counts);
        if let Some((same, different)) = shadow {
            let name = "docent_shadow_decisions_total";
            head(&mut out, name, "counter", "Decisions compared with those of the candidate policy.");
            line(&mut out, format_args!("{name}{{result=\"same\"}} {same}"));
            line(&mut out, format_args!("{name}{{result=\"different\"}} {different}"));
        }
        let readiness = mcp.service().readiness();
        head(&mut out, "docent_generation", "gauge", "The generation of the home that serves.");
        line(&mut out, format_args!("docent_generation {}", readiness.generation.0));
        head(&mut out, "docent_ready", "gauge", "1 when everything is as the home wants it.");
        line(&mut out, format_args!("docent_ready {}", u8::from(readiness.ready)));
        out
    }
}

/// What shaping saves, by tool. A tool's id needs no escaping.
fn saved(out: &mut String, tools: &[Saved]) {
    let wide = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut series = |name: &str, help: &str, of: fn(&Saved) -> u64| {
        head(out, name, "counter", help);
        for tool in tools {
            line(out, format_args!("{name}{{tool=\"{}\"}} {}", tool.tool, of(tool)));
        }
    };
    series("docent_tool_reply_bytes_total", "Bytes that upstreams answered, by tool.", |s| s.reply_bytes);
    series("docent_tool_result_bytes_total", "Bytes of the results made of them.", |s| s.result_bytes);
    // A result may be larger than its reply, so this one can go down.
    let name = "docent_tool_saved_tokens";
    head(out, name, "gauge", "Tokens (bytes / 4) of replies that did not reach a model, by tool.");
    for tool in tools {
        let [before, after] = [tool.reply_bytes, tool.result_bytes].map(|b| tokens_of(wide(b)));
        let sign = if before < after { "-" } else { "" };
        line(out, format_args!("{name}{{tool=\"{}\"}} {sign}{}", tool.tool, before.abs_diff(after)));
    }
}

fn audit(out: &mut String, status: &AuditStatus) {
    for (name, help, n) in [
        ("docent_audit_records_total", "Records of the audit written.", status.written),
        ("docent_audit_lost_total", "Records lost: the queue was full, or the disk failed.", status.lost),
        ("docent_audit_signals_total", "Changes in the use of tools that the audit noticed.", status.signals),
    ] {
        head(out, name, "counter", help);
        line(out, format_args!("{name} {n}"));
    }
    head(out, "docent_audit_failing", "gauge", "1 while records cannot be written.");
    line(out, format_args!("docent_audit_failing {}", u8::from(!status.failure.is_empty())));
}

/// Jobs and equal calls.
fn jobs(out: &mut String, mcp: &Mcp) {
    let (jobs, replays) = mcp.service().job_counts();
    head(out, "docent_jobs", "gauge", "Jobs that wait or run now.");
    line(out, format_args!("docent_jobs {}", jobs.underway));
    head(out, "docent_jobs_ended_total", "counter", "Jobs by how they ended.");
    for (state, n) in JobState::ALL.into_iter().zip(jobs.ended).filter(|(state, _)| state.is_ended()) {
        line(out, format_args!("docent_jobs_ended_total{{status=\"{}\"}} {n}", state.as_str()));
    }
    head(out, "docent_jobs_refused_total", "counter", "Calls that found no room for a job.");
    line(out, format_args!("docent_jobs_refused_total {}", jobs.refused));
    head(
        out,
        "docent_replays_total",
        "counter",
        "Equal calls by what became of them instead of a second execution.",
    );
    let rows =
        [("joined", replays.joined), ("replayed", replays.replayed), ("collision", replays.collisions)];
    for (outcome, n) in rows {
        line(out, format_args!("docent_replays_total{{outcome=\"{outcome}\"}} {n}"));
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(out, "{text}").ok();
}
