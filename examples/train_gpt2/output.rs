//! Where a run lives.

use grove::{
    models::{Gpt2Config, Tokenizer},
    train::{Checkpoints, TrainError},
};
use std::path::PathBuf;

use crate::{common::Exit, options::Options, text::failure};

/// The directory of `--output`.
pub struct Output {
    directory: PathBuf,
    /// Whether it holds a run that is resumed.
    pub resumed: bool,
}

impl Output {
    /// The directory, unless a new run would replace there what somebody may want to keep.
    pub fn open(options: &Options) -> Result<Option<Self>, Exit> {
        let Some(directory) = options.output.clone() else { return Ok(None) };
        if directory.exists() && !directory.is_dir() {
            return Err(failure(format!("--output {} is a file; give a directory", directory.display())));
        }
        let checkpoints = Checkpoints::open(directory.join("checkpoints"), options.keep).map_err(failure)?;
        let newest = checkpoints.list().map_err(failure)?.first().map(|(step, _)| *step);
        if let (Some(step), false) = (newest, options.resume) {
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

    /// The directory of the model that comes of the run.
    pub fn model(&self) -> PathBuf {
        self.directory.join("model")
    }

    /// The sizes of the resumed run's model.
    pub fn config(&self) -> Result<Option<Gpt2Config>, Exit> {
        let file = self.model().join("config.json");
        match self.resumed && file.exists() {
            true => Gpt2Config::from_file(file).map(Some).map_err(failure),
            false => Ok(None),
        }
    }

    /// The tokenizer of the resumed run: one that is learned again, from a text that has changed, has other tokens.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, Exit> {
        let file = self.model().join("tokenizer.json");
        match self.resumed && file.exists() {
            true => Tokenizer::from_path(file).map(Some).map_err(failure),
            false => Ok(None),
        }
    }

    /// Writes what a resumed run needs and its checkpoints do not have.
    pub fn begin(&self, config: &Gpt2Config, tokenizer: Option<&Tokenizer>) -> Result<(), Exit> {
        if self.resumed {
            return Ok(());
        }
        let model = self.model();
        let cannot = |error: &dyn std::fmt::Display| failure(format!("cannot write {}: {error}", model.display()));
        std::fs::create_dir_all(&model).map_err(|error| cannot(&error))?;
        let text = serde_json::to_string_pretty(config).map_err(|error| cannot(&error))?;
        std::fs::write(model.join("config.json"), text).map_err(|error| cannot(&error))?;
        tokenizer.map_or(Ok(()), |tokenizer| tokenizer.save(&model).map_err(failure))
    }
}
