//! Files of a model and its adapter.

use grove_files::copy_files;
use grove_weights::{ADAPTER_FILE, WeightsError, base_model, has_tokenizer, is_adapter, resolve_model};
use std::path::{Path, PathBuf};

use crate::{error::Result, pretrained::file_beside};

/// Files of a model: its own files, and those of an adapter, if one is added.
///
/// ```no_run
/// use grove_models::{Llama, ModelFiles};
/// # type B = burn_flex::Flex;
/// // The adapter names the model that it belongs to.
/// let files = ModelFiles::from_pretrained("user/my-adapter")?;
/// let (model, _) = files.load::<B, Llama<B>>(&Default::default(), None)?;
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    path: PathBuf,
    adapter: Option<PathBuf>,
}

impl ModelFiles {
    /// Returns the files of a directory or a weights file. For the directory of an adapter, they include the files of
    /// the base model that its `adapter_config.json` names, which is downloaded unless it is cached.
    ///
    /// # Errors
    /// The error names the file or quotes the hub's answer, and says what to do.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match is_adapter(&path) {
            true => Ok(Self { adapter: Some(path.clone()), path: base_model(&path)? }),
            false => Ok(Self { path, adapter: None }),
        }
    }

    /// Returns the files of a directory, a weights file or a hub id, which is downloaded unless it is cached; see
    /// [`at`](Self::at).
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn from_pretrained(source: &str) -> Result<Self> {
        Self::at(resolve_model(source)?)
    }

    /// Adds an adapter, given its directory or hub id. The base model that the adapter names is ignored.
    ///
    /// # Errors
    /// As [`at`](Self::at); the model already has an adapter; the source is not an adapter.
    pub fn with_adapter(self, source: &str) -> Result<Self> {
        let adapter = resolve_model(source)?;
        if let Some(other) = self.adapter {
            let reason = "it is an adapter, and one adapter is added to a model: merge the first with peft".into();
            return Err(WeightsError::Adapter { file: other, reason }.into());
        }
        if !is_adapter(&adapter) {
            let reason = format!("it has no {ADAPTER_FILE}, so it is not an adapter");
            return Err(WeightsError::Adapter { file: adapter, reason }.into());
        }
        Ok(Self { adapter: Some(adapter), ..self })
    }

    /// Returns the directory or weights file of the model, without the adapter.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file with this name in the model's directory, or beside its weights file. The file need not
    /// exist.
    pub fn file(&self, name: &str) -> PathBuf {
        file_beside(&self.path, name)
    }

    /// Returns the directory or weights file that the tokenizer belongs to: the adapter's directory if it contains a
    /// tokenizer, else [`path`](Self::path).
    pub fn tokenizer(&self) -> &Path {
        self.adapter().filter(|adapter| has_tokenizer(adapter)).unwrap_or(&self.path)
    }

    /// Returns the directory of the adapter.
    pub fn adapter(&self) -> Option<&Path> {
        self.adapter.as_deref()
    }
}

/// Copies a model's `generation_config.json`, if there is one, to the directory of a model that was trained from it.
/// `model` is a directory or a weights file.
///
/// # Errors
/// The file cannot be read or written.
pub fn copy_generation_config(model: impl AsRef<Path>, directory: impl AsRef<Path>) -> Result<()> {
    let model = model.as_ref();
    Ok(copy_files(grove_files::directory_at(model), directory.as_ref(), &["generation_config.json"])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn generation_config_is_kept() {
        let (source, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let copied = || fs::read_dir(saved.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        copy_generation_config(source.path(), saved.path()).unwrap();
        assert!(copied().is_empty());
        let config = r#"{"eos_token_id": [1, 2]}"#;
        fs::write(source.path().join("generation_config.json"), config).unwrap();
        copy_generation_config(source.path().join("model.safetensors"), saved.path()).unwrap();
        assert_eq!(copied(), [saved.path().join("generation_config.json")]);
        assert_eq!(fs::read_to_string(&copied()[0]).unwrap(), config);
    }
}
