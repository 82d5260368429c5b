//! The folders of a sentence encoder: `modules.json`, and the paths that it names.

use std::path::{Component, Path, PathBuf};

use grove_files::{FileError, copy_files, read_json};
use serde::Deserialize;

use crate::error::Result;
use crate::names_of_files::MODULE_FILES;

/// List of the modules of a sentence encoder.
const LIST: &str = "modules.json";

/// An entry of a sentence encoder's `modules.json`. `idx`, `name` and `kwargs` change no result: modules are applied in
/// the file's order.
#[derive(Clone, Debug, Deserialize)]
pub struct ModuleEntry {
    /// Folder of the module, relative to that of the encoder.
    pub path: String,
    /// Python class, with its module path.
    #[serde(rename = "type")]
    pub kind: String,
}

impl ModuleEntry {
    /// Returns the class name without its module path, which differs between versions.
    pub fn class(&self) -> &str {
        self.kind.rsplit('.').next().unwrap_or_default()
    }

    /// Returns the module's folder in the directory of its encoder.
    ///
    /// # Errors
    /// [`FileError::Json`] if the path, which is untrusted, leads out of the directory.
    pub fn folder(&self, directory: &Path) -> Result<PathBuf> {
        if Path::new(&self.path).components().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(directory.join(&self.path));
        }
        let reason = format!("the path `{}` leads out of the directory", self.path);
        Err(FileError::json(directory.join(LIST), reason).into())
    }
}

/// Returns the encoder's directory in a sentence-transformers folder: the folder itself, or for files of older versions
/// the subfolder that `modules.json` names.
///
/// # Errors
/// [`FileError::Json`] if `modules.json` is not a list of modules, or names a path outside the folder.
pub fn transformer_directory(directory: impl AsRef<Path>) -> Result<PathBuf> {
    let directory = directory.as_ref();
    let list = directory.join(LIST);
    if !list.is_file() {
        return Ok(directory.into());
    }
    let first = read_json::<Vec<ModuleEntry>>(&list)?.into_iter().find(|module| module.class() == "Transformer");
    first.map_or(Ok(directory.into()), |module| module.folder(directory))
}

/// Copies the modules of a sentence encoder, such as its pooling: `modules.json`, and the files in the folders that it
/// names. A model without `modules.json` has none.
///
/// # Errors
/// `modules.json` is not valid, or names a path outside the folder; a file cannot be read or written.
pub fn copy_modules(source: &Path, target: &Path) -> Result<()> {
    let list = source.join(LIST);
    if !list.is_file() {
        return Ok(());
    }
    let modules: Vec<ModuleEntry> = read_json(&list)?;
    let modules = modules.iter().filter(|module| !module.path.is_empty());
    let folders = modules.map(|module| Ok((module.folder(source)?, target.join(&module.path))));
    let folders: Vec<(PathBuf, PathBuf)> = folders.collect::<Result<_>>()?;
    copy_files(source, target, &[LIST])?;
    // A module without files can lack its folder.
    for (from, to) in folders.iter().filter(|(from, _)| from.is_dir()) {
        copy_files(from, to, &MODULE_FILES)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_encoder_keeps_its_modules() {
        let [source, target] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let write = |name: &str, text: &str| {
            let file = source.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write(
            "modules.json",
            r#"[{"path": "", "type": "Transformer"}, {"path": "1_Pooling", "type": "Pooling"},
                {"path": "3_Normalize", "type": "Normalize"}]"#,
        );
        write("config.json", "{}");
        write("1_Pooling/config.json", r#"{"pooling_mode": "cls"}"#);
        write("2_Dense/config.json", "{}");
        copy_modules(source.path(), target.path()).unwrap();
        let pooling = std::fs::read_to_string(target.path().join("1_Pooling/config.json")).unwrap();
        assert_eq!(pooling, r#"{"pooling_mode": "cls"}"#);
        assert!(target.path().join("modules.json").is_file() && !target.path().join("2_Dense").exists());
        assert!(!target.path().join("config.json").exists(), "the encoder's own files are not those of a module");
        write("modules.json", r#"[{"path": "../elsewhere", "type": "Pooling"}]"#);
        let message = copy_modules(source.path(), target.path()).unwrap_err().to_string();
        assert!(message.contains("modules.json: the path `../elsewhere`"), "{message}");
    }
}
