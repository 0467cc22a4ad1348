//! `[server]`, `[budgets]`, `[tiers]`, `[store]`, `[telemetry]` of docent.toml.

use std::sync::Arc;
use std::time::Duration;

use crate::audit::{ArgumentDetail, AuditSettings};
use crate::files::FileLimits;
use crate::limits;
use crate::policy::DiscoveryMode;
use crate::secret::{Resolver, Secret};
use crate::settings::{Located, Section};
use crate::snapshot::{Budgets, ServerSettings};

use super::ListenAddress;

/// Bytes of `server.name` at most: it is the prefix of the meta-tools, whose wire names have at most 48.
const NAME_BYTES_MAX: usize = 24;
/// Bytes of `server.cursor_key` and `telemetry.audit_key` at least: a key of 256 bits (seed 004).
const KEY_BYTES_MIN: usize = 32;
/// Days of `telemetry.audit_retention_days` at most: a century is for ever.
const AUDIT_DAYS_MAX: u64 = 36_500;
/// `telemetry.audit_bytes_max`: from one file and a bit, to what a disk has.
const AUDIT_BYTES_RANGE: std::ops::RangeInclusive<u64> = 128 * 1024 * 1024..=1 << 50;
/// `files.max_bytes` and `files.quota_bytes`: to what a disk has.
const FILE_BYTES_RANGE_END: u64 = 1 << 50;
/// `files.keep_hours`: ten years are for ever.
const FILE_HOURS_MAX: u64 = 24 * 3_653;
/// Tiers at most: they are a short ladder, not a list of roles.
const TIERS_MAX: usize = 64;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `[telemetry]`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// `telemetry.log_format`
    pub log_format: LogFormat,
    /// `telemetry.log`: a filter such as `info` or `docent=debug`; `DOCENT_LOG` and `RUST_LOG` beat it.
    pub log: Option<String>,
    /// `telemetry.audit` and its kin.
    pub audit: AuditSettings,
}

/// Reports keys whose feature does not exist, so that nobody relies on a setting that does nothing.
pub(super) fn not_built(section: &mut Section, keys: &[(&str, &str)]) {
    for (key, feature) in keys {
        if let Some(found) = section.json(key) {
            section.error(
                found.offset,
                "not-built-yet",
                format!("`{}` has no effect: {feature} is not built yet", section.full_key(key)),
                "remove the key",
            );
        }
    }
}

/// `[server]`; gives the listen address and the place where it stands besides.
pub(super) fn server(
    root: &mut Section,
    resolver: &Resolver,
    out: &mut ServerSettings,
) -> (ListenAddress, Option<usize>) {
    let Some(mut section) = root.section("server") else { return (ListenAddress::default(), None) };
    if let Some(name) = section.string("name") {
        if is_name(&name.value) {
            out.name = Arc::from(name.value);
        } else {
            let help =
                format!("1 to {NAME_BYTES_MAX} letters, digits, `_` or `-`: it begins the meta-tools' names");
            section.error(name.offset, "bad-name", "`server.name` is not a name", help);
        }
    }
    let listen = section.string("listen");
    let address = listen.as_ref().and_then(|text| match ListenAddress::parse(&text.value) {
        Ok(address) => Some(address),
        Err(message) => {
            section.error(text.offset, "bad-address", message, "for example `listen = \"127.0.0.1:7331\"`");
            None
        }
    });
    out.public_url = section.string("public_url").and_then(|url| http_url(&section, "public_url", &url));
    out.instructions = section.string("instructions").map(|t| Arc::from(t.value.trim()));
    out.discovery = section.one_of("discovery", &DiscoveryMode::WORDS).unwrap_or(out.discovery);
    out.page_size = section.size("page_size", 1..=1_000).unwrap_or(out.page_size);
    out.listed_tools_max = section.size("listed_tools_max", 0..=100_000).unwrap_or(out.listed_tools_max);
    out.allowed_origins = origins(&mut section);
    out.allowed_hosts = section.plain_strings("allowed_hosts");
    out.step_up_as_result = section.plain_strings("step_up_as_result");
    if let Some(text) = section.string("cursor_key") {
        out.cursor_key = secret_key(&section, "cursor_key", &text, resolver);
    }
    (address.unwrap_or_default(), listen.map(|l| l.offset))
}

/// Reports a reference without a value.
pub(super) fn unresolved(section: &Section, key: &str, offset: usize, message: &str) {
    section.error(
        offset,
        "unresolved-reference",
        format!("`{}`: {message}", section.full_key(key)),
        "set it before docent starts",
    );
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// An `http` or `https` address without its final `/`.
fn http_url(section: &Section, key: &str, text: &Located<String>) -> Option<Arc<str>> {
    match url::Url::parse(&text.value) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.host().is_some() => {
            Some(Arc::from(text.value.trim_end_matches('/')))
        }
        _ => {
            section.error(
                text.offset,
                "bad-url",
                format!("`{}` is not an http or https address", section.full_key(key)),
                format!("for example `{key} = \"https://tools.example.com\"`"),
            );
            None
        }
    }
}

/// Origins are scheme, host and port without a path, compared as text with what a browser sends.
fn origins(section: &mut Section) -> Vec<String> {
    let mut out = Vec::new();
    for text in section.strings("allowed_origins").unwrap_or_default() {
        match url::Url::parse(&text.value) {
            Ok(url) if url.origin().is_tuple() && url.path() == "/" && url.query().is_none() => {
                out.push(url.origin().ascii_serialization());
            }
            _ => section.error(
                text.offset,
                "bad-origin",
                "`server.allowed_origins` holds something that is not an origin",
                "an origin is scheme, host and port: \"https://console.example.com\"",
            ),
        }
    }
    out
}

/// `[files]`: what callers may keep.
pub(super) fn files(root: &mut Section) -> FileLimits {
    let mut out = FileLimits::default();
    let Some(mut section) = root.section("files") else { return out };
    out.max_bytes = section.integer("max_bytes", 1..=FILE_BYTES_RANGE_END).unwrap_or(out.max_bytes);
    out.quota_bytes = section.integer("quota_bytes", 1..=FILE_BYTES_RANGE_END).unwrap_or(out.quota_bytes);
    out.quota_files = section.integer("quota_files", 1..=1_000_000).unwrap_or(out.quota_files);
    out.keep = section.integer("keep_hours", 1..=FILE_HOURS_MAX).map_or(out.keep, Duration::from_hours);
    for pattern in section.strings("types").unwrap_or_default() {
        let plain = pattern.value.to_ascii_lowercase();
        if crate::media::essence(&plain.replace('*', "x")).is_some() && !plain.contains(';') {
            out.types.push(plain);
        } else {
            let message = format!("`{}` is no media type", pattern.value);
            section.error(pattern.offset, "bad-mime", message, "write \"image/*\" or \"text/csv\"");
        }
    }
    out
}

/// `[budgets]`
pub(super) fn budgets(root: &mut Section) -> Budgets {
    const MIB: usize = 1024 * 1024;
    let mut out = Budgets::default();
    let Some(mut section) = root.section("budgets") else { return out };
    out.listed_tools_max = section.size("listed_tools_max", 1..=1_000_000);
    out.listed_tools_min = section.size("listed_tools_min", 0..=1_000_000);
    out.description_bytes_total = section.size("description_bytes_total", 1..=1024 * MIB);
    let mut take = |key: &str, range, value: &mut usize| {
        if let Some(n) = section.size(key, range) {
            *value = n;
        }
    };
    take("schema_bytes_per_tool", 64..=16 * MIB, &mut out.schema_bytes_per_tool);
    take("instructions_bytes", 0..=limits::INSTRUCTIONS_BYTES, &mut out.instructions_bytes);
    take("result_bytes", 1_024..=16 * MIB, &mut out.result_bytes);
    take("text_bytes", 1_024..=16 * MIB, &mut out.text_bytes);
    take("records", 1..=100_000, &mut out.records);
    take("upstream_read_bytes", 1_024..=1024 * MIB, &mut out.upstream_read_bytes);
    take("kept_bytes", 0..=64 * MIB, &mut out.kept_bytes);
    take("kept_bytes_per_caller", 0..=1024 * MIB, &mut out.kept_bytes_per_caller);
    if let Some(seconds) = section.size("kept_seconds", 1..=30 * 24 * 3_600) {
        out.kept = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
    }
    if let (Some(min), Some(max)) = (out.listed_tools_min, out.listed_tools_max)
        && min > max
    {
        section.error(
            section.offset(),
            "contradiction",
            format!("`budgets.listed_tools_min` ({min}) is more than `budgets.listed_tools_max` ({max})"),
            "swap or change them",
        );
    }
    out
}

/// `[tiers]`, lowest first.
pub(super) fn tiers(root: &mut Section, out: &mut ServerSettings) {
    let Some(mut section) = root.section("tiers") else { return };
    let Some(order) = section.strings("order") else { return };
    let mut tiers: Vec<String> = Vec::with_capacity(order.len());
    for tier in order {
        if tier.value.is_empty() || tier.value.len() > limits::WIRE_NAME_BYTES_MAX || tiers.len() >= TIERS_MAX
        {
            let help = format!("at most {TIERS_MAX} short names, lowest first");
            section.error(tier.offset, "bad-tier", "`tiers.order` holds a tier that is not a name", help);
        } else if tiers.contains(&tier.value) {
            let message = format!("the tier \"{}\" stands twice in `tiers.order`", tier.value);
            section.error(tier.offset, "duplicate-tier", message, "remove one of them");
        } else {
            tiers.push(tier.value);
        }
    }
    out.tiers = tiers;
}

/// `[store]`: only this process's own so far.
pub(super) fn store(root: &mut Section) {
    let Some(mut section) = root.section("store") else { return };
    if let Some(url) = section.string("url")
        && url.value != "local:"
    {
        section.error(
            url.offset,
            "not-built-yet",
            "`store.url` can only be \"local:\": a store shared by several nodes is not built yet",
            "write `url = \"local:\"`, or remove the table",
        );
    }
}

/// `[policies]`: the folder of a candidate that is evaluated beside the live policies. It lies below `policies/`,
/// so that edits of it are noticed as well.
pub(super) fn shadow(root: &mut Section) -> Option<String> {
    let mut section = root.section("policies")?;
    let text = section.string("shadow")?;
    let below = text.value.strip_prefix("policies/").unwrap_or_default();
    if below.is_empty() || below == "cases" || below.contains(['/', '\\']) || below.starts_with('.') {
        let message = "`policies.shadow` is not a folder directly below `policies/`";
        section.error(text.offset, "bad-folder", message, "for example `shadow = \"policies/next\"`");
        return None;
    }
    Some(text.value)
}

/// `[telemetry]`
pub(super) fn telemetry(root: &mut Section, resolver: &Resolver) -> Telemetry {
    let Some(mut section) = root.section("telemetry") else { return Telemetry::default() };
    let words = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let log_format = section.one_of("log_format", &words).unwrap_or_default();
    let log = section.string("log").and_then(|filter| {
        if filter.value.parse::<tracing_subscriber::filter::Targets>().is_ok() {
            return Some(filter.value);
        }
        section.error(
            filter.offset,
            "bad-filter",
            "`telemetry.log` is not a log filter",
            "for example \"info\" or \"warn,docent=debug\"",
        );
        None
    });
    let audit = audit(&mut section, resolver);
    not_built(&mut section, &[("otlp_endpoint", "OpenTelemetry export")]);
    Telemetry { log_format, log, audit }
}

fn audit(section: &mut Section, resolver: &Resolver) -> AuditSettings {
    let mut out = AuditSettings::default();
    out.enabled = section.boolean("audit").unwrap_or(out.enabled);
    out.arguments = section.one_of("audit_arguments", &ArgumentDetail::WORDS).unwrap_or(out.arguments);
    if let Some(days) = section.integer("audit_retention_days", 1..=AUDIT_DAYS_MAX) {
        out.retention = Duration::from_hours(24 * days);
    }
    out.bytes_max = section.integer("audit_bytes_max", AUDIT_BYTES_RANGE).unwrap_or(out.bytes_max);
    if let Some(text) = section.string("audit_key") {
        out.key = secret_key(section, "audit_key", &text, resolver);
    }
    out
}

/// A key of at least 256 bits, given by reference.
fn secret_key(section: &Section, key: &str, text: &Located<String>, resolver: &Resolver) -> Option<Secret> {
    match resolver.expand(&text.value) {
        Ok(found) if found.expose().len() >= KEY_BYTES_MIN => return Some(found),
        Ok(_) => section.error(
            text.offset,
            "weak-key",
            format!("`{}` has fewer than {KEY_BYTES_MIN} bytes", section.full_key(key)),
            "make one with `openssl rand -hex 32`, and give it as `${env:NAME}` or `${file:PATH}`",
        ),
        Err(message) => unresolved(section, key, text.offset, &message),
    }
    None
}
