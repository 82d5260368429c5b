//! Paths of models and data that options name or that ship with grove.

use grove::{
    files::note_once,
    models::{ASSETS, ModelFiles},
    weights::{FilePatterns, HubOptions, Source, WeightsError},
};
use std::path::{Path, PathBuf};

use crate::{Exit, failure};

/// Returns the path of a file or directory that ships with grove: in `models/assets` of the repository, or in the source of
/// grove-models that cargo has downloaded.
pub fn shipped(name: &str) -> PathBuf {
    let [found, downloaded] = [in_repository(&format!("models/assets/{name}")), Path::new(ASSETS).join(name)];
    if found.exists() { found } else { downloaded }
}

/// Returns the path of a file or directory of the repository. The search covers the directory of the package that cargo runs, the
/// current directory, and the directory in which the program was built.
pub fn in_repository(path: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    let mut folders = vec![PathBuf::from("."), built.to_path_buf()];
    if let Some(package) = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) {
        // Examples and commands are in packages one level below the root of the repository.
        let above = package.parent().map_or_else(|| package.join(".."), Path::to_path_buf);
        folders.splice(0..0, [above, package]);
    }
    let candidates: Vec<PathBuf> = folders.iter().map(|folder| folder.join(path)).collect();
    candidates.iter().find(|path| path.exists()).unwrap_or(&candidates[0]).clone()
}

/// Returns the directory or file of the model that `--model` names, downloaded if needed, or of the model `default`.
pub fn resolve(model: Option<&str>, default: &str) -> Result<PathBuf, Exit> {
    if let Some(model) = model {
        return resolve_named(model);
    }
    let path = shipped(default);
    match path.exists() {
        true => Ok(path),
        false => Err(failure(format!(
            "the model that ships with grove is missing at {}: name another with --model",
            path.display()
        ))),
    }
}

/// Returns the directory of the training run if a path is one, or is in the `checkpoints` or `best` of one.
fn run_directory(path: &Path) -> Option<&Path> {
    let is_run = |directory: &&Path| directory.join("checkpoints").is_dir() && directory.join("model").is_dir();
    let run = path.ancestors().take(3).find(is_run)?;
    let is_of_run = path == run || ["checkpoints", "best"].iter().any(|part| path.starts_with(run.join(part)));
    (path.is_dir() && is_of_run).then_some(run)
}

/// Returns the files of the model at a path, with the adapter that `--adapter` names, downloaded if needed.
pub fn with_adapter(path: &Path, adapter: Option<&str>) -> Result<ModelFiles, Exit> {
    let files = ModelFiles::at(path)?;
    Ok(match adapter {
        Some(adapter) => files.with_adapter(adapter)?,
        None => files,
    })
}

/// Returns the directory or file of a named model, downloaded if needed. The directory of a training run names its trained model.
pub fn resolve_named(model: &str) -> Result<PathBuf, Exit> {
    if let Some(run) = run_directory(Path::new(model)) {
        let trained = run.join("model");
        if !trained.join("model.safetensors").is_file() && !trained.join("model.safetensors.index.json").is_file() {
            return Err(failure(format!(
                "{model} is the directory of a training run that has no trained model yet: finish the run with --resume"
            )));
        }
        if run != Path::new(model) {
            return Err(failure(format!(
                "{model} has checkpoints of a training run; its trained model is {}",
                trained.display()
            )));
        }
        note_once(&format!("{model} is the directory of a training run; its model is {}", trained.display()));
        return Ok(trained);
    }
    Ok(Source::parse(model)?.resolve(&HubOptions::from_env(), &FilePatterns::model())?)
}

/// Returns the files of a model on the hub from which its sizes are known: `config.json` alone, or the whole model if the name
/// selects a GGUF file or the repository has no `config.json`.
pub fn resolve_config(model: &str) -> Result<PathBuf, Exit> {
    let (source, options) = (Source::parse(model)?, HubOptions::from_env());
    if let Source::Hub { gguf: None, .. } = &source {
        match source.resolve(&options, &FilePatterns::files(["config.json"])) {
            Err(WeightsError::MissingFile { .. } | WeightsError::Offline { .. }) => {}
            found => return Ok(found?),
        }
    }
    Ok(source.resolve(&options, &FilePatterns::model())?)
}
