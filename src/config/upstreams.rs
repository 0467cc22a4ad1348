//! `[upstreams].enabled` and the packs it names.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostic::{Diagnostics, SourceFile, did_you_mean};
use crate::limits::{HOME_FILE_BYTES_MAX, SCRIPT_BYTES_MAX};
use crate::projection::PackSources;
use crate::secret::Resolver;
use crate::settings::Located;
use crate::snapshot::{Pack, ServerSettings};
use crate::upstream::UpstreamConfig;

use super::MAIN_FILE;
use super::files::Files;

/// The file that makes a folder of `scripts/` a pack.
const PACK_FILE: &str = "upstream.toml";

/// The enabled packs in id order. A name without a pack is an error with the nearest pack's name.
pub(super) fn packs(
    files: &Files<'_>,
    main: &SourceFile,
    enabled: Vec<Located<String>>,
    library: &[SourceFile],
    resolver: &Resolver,
    settings: &ServerSettings,
    diagnostics: &mut Diagnostics,
) -> Vec<Pack> {
    let found: Vec<String> = files
        .names("scripts", diagnostics)
        .into_iter()
        .filter(|n| files.path(&format!("scripts/{n}/{PACK_FILE}")).is_file())
        .collect();
    let mut wanted = BTreeMap::new();
    for name in enabled {
        if !found.contains(&name.value) {
            diagnostics.push(unknown_pack(main, &name, &found));
        } else if wanted.insert(name.value.clone(), name.offset).is_some() {
            let message = format!("the upstream \"{}\" is enabled twice", name.value);
            diagnostics
                .push(main.error_at("duplicate-name", name.offset, message).help("remove one of them"));
        }
    }
    wanted.keys().filter_map(|name| pack(files, name, library, resolver, settings, diagnostics)).collect()
}

fn unknown_pack(
    main: &SourceFile,
    name: &Located<String>,
    found: &[String],
) -> crate::diagnostic::Diagnostic {
    let help = match did_you_mean(&name.value, found.iter().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if found.is_empty() => format!("make scripts/{}/{PACK_FILE}, or remove the name", name.value),
        None => format!("packs in scripts/: {}", found.join(", ")),
    };
    let message =
        format!("`upstreams.enabled` names \"{}\", but there is no such pack in scripts/", name.value);
    main.error_at("unknown-upstream", name.offset, message).help(help)
}

fn pack(
    files: &Files<'_>,
    name: &str,
    library: &[SourceFile],
    resolver: &Resolver,
    settings: &ServerSettings,
    diagnostics: &mut Diagnostics,
) -> Option<Pack> {
    let folder = format!("scripts/{name}");
    let file = files.optional(&format!("{folder}/{PACK_FILE}"), HOME_FILE_BYTES_MAX, diagnostics)?;
    let scripts = files.all(&folder, ".rhai", SCRIPT_BYTES_MAX, diagnostics);
    let schemas = files.all(&format!("{folder}/schemas"), ".json", HOME_FILE_BYTES_MAX, diagnostics);
    let name_of = |f: &SourceFile| f.name.rsplit('/').next().unwrap_or_default().to_owned();
    let sources = Arc::new(PackSources {
        scripts: scripts.iter().map(|s| (name_of(s), s.clone())).collect(),
        schemas: schemas.clone(),
        library: library.to_vec(),
    });
    let folder = files.path(&folder);
    let mut config = UpstreamConfig::read(&file, &folder, resolver, &sources, diagnostics)?;
    config.read_bytes.get_or_insert(settings.budgets.upstream_read_bytes);
    check_tiers(&config, &settings.tiers, diagnostics);
    Some(Pack { id: config.id.clone(), config, scripts, schemas })
}

/// A tier that stands in no order could never be reached: the tool would be dead without a word.
fn check_tiers(config: &UpstreamConfig, tiers: &[String], diagnostics: &mut Diagnostics) {
    let tools = config.tools.iter().chain(config.overrides.values());
    let tool_tiers = tools.filter_map(|t| Some((t.tier.as_ref()?, t.offset)));
    for (tier, offset) in config.defaults.tier.iter().map(|t| (t, 0)).chain(tool_tiers) {
        if tiers.iter().any(|t| **t == **tier) {
            continue;
        }
        let known = tiers.join(", ");
        let help = match did_you_mean(tier, tiers.iter().map(String::as_str)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("tiers, lowest first: {known}"),
        };
        let message = format!("the tier \"{tier}\" is not in `tiers.order` of {MAIN_FILE}");
        diagnostics.push(config.file.error_at("unknown-tier", offset, message).help(help));
    }
}
