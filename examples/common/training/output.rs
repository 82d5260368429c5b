//! Where a run lives.

use grove::{
    models::Tokenizer,
    train::{Checkpoints, TrainError},
};
use std::path::{Path, PathBuf};

use super::RunArgs;
use crate::common::{Exit, failure};

/// The directory of `--output`.
pub struct Output {
    directory: PathBuf,
    /// Whether it holds a run that is resumed.
    resumed: bool,
}

impl Output {
    /// The directory, unless a new run would replace there what somebody may want to keep.
    pub fn open(run: &RunArgs, keep: usize) -> Result<Option<Self>, Exit> {
        let Some(directory) = run.output.clone() else { return Ok(None) };
        if directory.exists() && !directory.is_dir() {
            return Err(failure(format!("--output {} is a file; give a directory", directory.display())));
        }
        let checkpoints = Checkpoints::open(directory.join("checkpoints"), keep).map_err(failure)?;
        let newest = checkpoints.list().map_err(failure)?.first().map(|(step, _)| *step);
        if let (Some(step), false) = (newest, run.resume) {
            return Err(failure(TrainError::RunExists { directory, step }));
        }
        let output = Self { directory, resumed: newest.is_some() };
        if !output.resumed && output.model().join("model.safetensors").exists() {
            let model = output.model();
            return Err(failure(format!(
                "{} already holds a model, and there are no checkpoints to resume from: name another directory",
                model.display()
            )));
        }
        Ok(Some(output))
    }

    /// The directory of the run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of the model that comes of the run.
    pub fn model(&self) -> PathBuf {
        self.directory.join("model")
    }

    /// The config.json of the resumed run's model.
    pub fn config(&self) -> Option<PathBuf> {
        let file = self.model().join("config.json");
        (self.resumed && file.exists()).then_some(file)
    }

    /// The tokenizer of the resumed run: one that is learned again, from a text that has changed, has other tokens.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, Exit> {
        let model = self.model();
        // One that was copied has the files of its source.
        let files = ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"];
        match self.resumed && files.iter().any(|file| model.join(file).exists()) {
            true => Tokenizer::from_path(model).map(Some).map_err(failure),
            false => Ok(None),
        }
    }

    /// Writes what a resumed run needs and its checkpoints do not have.
    pub fn begin(&self, config: &str, tokenizer: Option<&Tokenizer>) -> Result<(), Exit> {
        if self.resumed {
            return Ok(());
        }
        let model = self.model();
        let cannot = |error: &dyn std::fmt::Display| failure(format!("cannot write {}: {error}", model.display()));
        std::fs::create_dir_all(&model).map_err(|error| cannot(&error))?;
        std::fs::write(model.join("config.json"), config).map_err(|error| cannot(&error))?;
        tokenizer.map_or(Ok(()), |tokenizer| tokenizer.save(&model).map_err(failure))
    }
}
