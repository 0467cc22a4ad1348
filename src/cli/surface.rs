//! `docent surface`: what a caller's code may rely on, and what became of it since an older one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::open::{self, Reach};
use super::{Context, Failure};
use crate::catalog::{ContractChange, ToolContract, changes};
use crate::gateway::Manifest;
use crate::json;
use crate::limits::CATALOG_BYTES_MAX;

/// Shows the surface of a caller and its hash, or what changed since an older one.
#[derive(Debug, Args)]
pub(super) struct Surface {
    /// The caller: a table of [callers]
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// An older output of `docent surface --json`: tells compatible from breaking changes, exit code 1 if any breaks
    #[arg(long, value_name = "FILE")]
    diff: Option<PathBuf>,
    /// Print the manifest with the contracts, or `{breaking, changes, before, after}`
    #[arg(long)]
    json: bool,
}

/// The manifest and, for later comparisons, the rows that its hash is made of.
#[derive(Serialize)]
struct Full {
    #[serde(flatten)]
    manifest: Manifest,
    contracts: Vec<ToolContract>,
}

/// What is read of an older output.
#[derive(Deserialize)]
struct Older {
    #[serde(rename = "manifestVersion")]
    version: u32,
    hash: String,
    tools: Vec<OlderTool>,
    contracts: Option<Vec<ToolContract>>,
}

/// A tool of a manifest without contracts, as the meta-tool gives it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OlderTool {
    id: String,
    tier: Option<String>,
    read_only_hint: bool,
    idempotent_hint: bool,
}

impl Surface {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let older = self.diff.as_deref().map(read).transpose()?;
        let opened = open::open(context, Reach::Known)?;
        let request = opened.request(opened.caller(self.caller.as_deref())?);
        let (manifest, contracts) =
            (opened.gateway().manifest(&request), opened.gateway().contracts(&request));
        let Some(older) = older else {
            if self.json {
                return context.out.json(&Full { manifest, contracts });
            }
            context.out.line(format_args!("hash   {}", manifest.hash))?;
            context.out.line(format_args!("tier   {}", manifest.tier.as_deref().unwrap_or("none")))?;
            context.out.line(format_args!("tools  {}", manifest.tools.len()))?;
            for tool in &manifest.tools {
                let reads = if tool.read_only_hint { "  reads" } else { "" };
                let old = if tool.deprecated.is_some() { "  deprecated" } else { "" };
                context.out.line(format_args!("{}{reads}{old}", tool.id))?;
            }
            return Ok(());
        };
        let now = manifest.hash.to_string();
        let found = compare(&older, contracts);
        let breaking = found.iter().any(|c| c.breaking);
        if self.json {
            context.out.json(
                &json!({ "breaking": breaking, "changes": found, "before": older.hash, "after": now }),
            )?;
        } else {
            tell(context, &found, older.hash == now, older.contracts.is_some())?;
        }
        if breaking { Err(Failure::Told) } else { Ok(()) }
    }
}

fn tell(context: &mut Context, found: &[ContractChange], same: bool, whole: bool) -> Result<(), Failure> {
    for change in found {
        let word = if change.breaking { "breaking  " } else { "compatible" };
        context.out.line(format_args!("{word}  {}  {}: {}", change.tool, change.at, change.what))?;
    }
    let breaking = found.iter().filter(|c| c.breaking).count();
    if !same && !whole {
        let note =
            "FILE holds no contracts, so schemas were not compared: make it with `docent surface --json`";
        super::failure::say(format_args!("note: {note}"));
    }
    match (same, found.len()) {
        (true, _) => context.out.line("the same surface"),
        (false, 0) => context.out.line("another hash; nothing that FILE holds has changed"),
        (false, all) => context.out.line(format_args!("{breaking} breaking, {} compatible", all - breaking)),
    }
}

/// The changes since the older surface. Without its contracts only names, tiers and hints are compared.
fn compare(older: &Older, mut now: Vec<ToolContract>) -> Vec<ContractChange> {
    if let Some(before) = &older.contracts {
        return changes(before, &now);
    }
    let known: BTreeMap<&str, &OlderTool> = older.tools.iter().map(|t| (t.id.as_str(), t)).collect();
    let mut before = Vec::with_capacity(known.len());
    for row in &mut now {
        (row.deprecated, row.tasks) = (None, None);
        if let Some(tool) = known.get(row.id.as_str()) {
            before.push(ToolContract {
                tier: tool.tier.clone(),
                read_only: tool.read_only_hint,
                idempotent: tool.idempotent_hint,
                ..row.clone()
            });
        }
    }
    let gone = older.tools.iter().filter(|t| !now.iter().any(|row| row.id == t.id));
    before.extend(gone.map(|t| ToolContract {
        id: t.id.clone(),
        tier: t.tier.clone(),
        read_only: t.read_only_hint,
        idempotent: t.idempotent_hint,
        destructive: false,
        open_world: true,
        deprecated: None,
        input_schema: json!({}),
        output_schema: None,
        tasks: None,
    }));
    changes(&before, &now)
}

fn read(path: &Path) -> Result<Older, Failure> {
    let failed = |why: String| Failure::Usage(format!("{} {why}", path.display()));
    let bytes =
        json::read_capped(path, CATALOG_BYTES_MAX).map_err(|e| failed(format!("cannot be read: {e}")))?;
    let older: Older = json::parse_as(&bytes, CATALOG_BYTES_MAX)
        .map_err(|e| failed(format!("is no output of `docent surface --json`: {e}")))?;
    if older.version != 1 {
        return Err(failed(format!("has manifestVersion {}, this docent reads 1", older.version)));
    }
    Ok(older)
}
