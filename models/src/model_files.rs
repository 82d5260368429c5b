//! Files of a model and its adapter.

use grove_weights::{FilePatterns, HubOptions, Source, VOCABULARY_FILES};
use std::path::{Path, PathBuf};

use crate::{
    error::{ModelError, Result},
    peft::{AdapterConfig, CONFIG, MERGE},
    pretrained::file_beside,
};

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
            true => Ok(Self { adapter: Some(path.clone()), path: base_of(&path)? }),
            false => Ok(Self { path, adapter: None }),
        }
    }

    /// Returns the files of a directory, a weights file or a hub id, which is downloaded unless it is cached; see
    /// [`at`](Self::at).
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn from_pretrained(source: &str) -> Result<Self> {
        Self::at(resolve(source)?)
    }

    /// Adds an adapter, given its directory or hub id. The base model that the adapter names is ignored.
    ///
    /// # Errors
    /// As [`at`](Self::at); the model already has an adapter; the source is not an adapter.
    pub fn with_adapter(self, source: &str) -> Result<Self> {
        let adapter = resolve(source)?;
        if let Some(other) = self.adapter {
            let reason = "it is an adapter, and one adapter is added to a model: merge the first with peft".into();
            return Err(ModelError::Adapter { file: other, reason });
        }
        if !is_adapter(&adapter) {
            let reason = format!("it has no {CONFIG}, so it is not an adapter");
            return Err(ModelError::Adapter { file: adapter, reason });
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

/// Returns the directory of a model's tokenizer and chat template, or its weights file. For an adapter without a
/// tokenizer this is the base model's.
pub(crate) fn tokenizer_place(model: &Path) -> Result<PathBuf> {
    match is_adapter(model) && !has_tokenizer(model) {
        true => Ok(ModelFiles::at(model)?.path),
        false => Ok(model.to_owned()),
    }
}

/// Returns true if a directory contains tokenizer files.
fn has_tokenizer(directory: &Path) -> bool {
    VOCABULARY_FILES.iter().any(|name| directory.join(name).is_file())
}

/// Returns true for the directory of an adapter.
pub(crate) fn is_adapter(path: &Path) -> bool {
    path.join(CONFIG).is_file()
}

/// Returns the directory or weights file of the base model that an adapter names.
fn base_of(adapter: &Path) -> Result<PathBuf> {
    let file = adapter.join(CONFIG);
    let AdapterConfig { base_model_name_or_path, revision, .. } = AdapterConfig::read(&file)?;
    let wrong = |reason: String| ModelError::Adapter { file: file.clone(), reason };
    let Some(base) = base_model_name_or_path.filter(|base| !base.is_empty()) else {
        return Err(wrong("base_model_name_or_path names no model: load the model, and add the adapter to it".into()));
    };
    let beside = adapter.join(&base);
    if !Path::new(&base).exists() && beside.exists() {
        return Ok(beside);
    }
    let base = match revision {
        Some(revision) if !Path::new(&base).exists() && !base.contains('@') => format!("{base}@{revision}"),
        _ => base,
    };
    let path = resolve(&base).map_err(|error| {
        wrong(format!(
            "base_model_name_or_path is '{base}': {error}; or load a model of yours, and add the adapter to it"
        ))
    })?;
    match is_adapter(&path) {
        true => Err(wrong(format!("base_model_name_or_path is '{base}', which is an adapter too: {MERGE}"))),
        false => Ok(path),
    }
}

/// Returns the local path of a published model's files, given a directory, a file or a hub id. A hub id is downloaded
/// unless it is cached.
pub(crate) fn resolve(source: &str) -> Result<PathBuf> {
    Ok(Source::parse(source)?.resolve(&HubOptions::from_env(), &FilePatterns::model())?)
}
