//! `[semantic]` of docent.toml: the sentence model that search asks, where docent was built for one.

use std::path::Path;

use crate::diagnostic::Diagnostic;
use crate::settings::Section;
use crate::snapshot::ModelSetting;

/// Whether this docent was built with the cargo feature `semantic`. The crate's own tests have it, so that every build
/// tests what the feature switches.
pub(super) const BUILT_IN: bool = cfg!(any(test, feature = "semantic"));

/// The table. A folder is relative to the home; that it holds a model is found out when it is read.
pub(super) fn semantic(root: &mut Section, dir: &Path, built_in: bool) -> Option<ModelSetting> {
    let mut section = root.section("semantic")?;
    let given = section.string("model")?;
    if given.value.trim().is_empty() {
        let help = "name a folder with `model.safetensors`, `vocab.txt` and `config.json`, or remove the key";
        section.error(given.offset, "bad-model", "`semantic.model` is empty", help);
        return None;
    }
    if !built_in {
        section.error(
            given.offset,
            "feature-off",
            "`semantic.model` names a sentence model, and this docent was built without the cargo feature `semantic`",
            "build it with `cargo build --release --features semantic`, or remove the key: the shipped table ranks then",
        );
        return None;
    }
    let file = section.file();
    let mistake = Diagnostic::error("bad-model", &*file.name, "").at_offset(&file.text, given.offset);
    Some(ModelSetting { dir: dir.join(given.value), mistake })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::{Diagnostics, SourceFile};
    use crate::settings;

    fn read(text: &str, built_in: bool) -> (Option<ModelSetting>, Vec<String>) {
        let mut diagnostics = Diagnostics::default();
        let file = SourceFile::new("docent.toml", text);
        let read = |root: &mut Section| semantic(root, Path::new("/home"), built_in);
        let setting = settings::read(&file, &mut diagnostics, read);
        (setting, diagnostics.0.iter().map(|d| format!("{}:{} {}", d.line, d.code, d.message)).collect())
    }

    #[test]
    fn a_model_is_a_folder_below_the_home_or_anywhere() {
        let (setting, mistakes) = read("[semantic]\nmodel = \"models/mini\"\n", true);
        let setting = setting.unwrap();
        assert_eq!((setting.dir.as_path(), mistakes), (Path::new("/home/models/mini"), Vec::new()));
        assert_eq!((setting.mistake.line, setting.mistake.code), (2, "bad-model"));
        let (setting, _) = read("[semantic]\nmodel = \"/models/mini\"\n", true);
        assert_eq!(setting.unwrap().dir, Path::new("/models/mini"));
        assert!(read("", true).0.is_none());
    }

    #[test]
    fn a_docent_built_without_the_feature_says_so_and_how_to_get_it() {
        let (setting, mistakes) = read("[semantic]\nmodel = \"m\"\n", false);
        assert!(setting.is_none());
        assert!(mistakes[0].starts_with("2:feature-off") && mistakes[0].contains("cargo feature `semantic`"));
        assert!(read("", false).1.is_empty(), "without the key nothing is said");
        let (_, mistakes) = read("[semantic]\nmodel = \" \"\nmodle = 1\n", true);
        assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    }
}
