//! Directory of a run.

use grove::{
    files::write_atomically,
    models::Tokenizer,
    train::{CheckpointManager, RunLock, TrainError},
};
use serde_json::Value;
use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
};

use super::RunArgs;
use crate::{Exit, failure};

/// The directory of `--output`, which is this program's alone until it ends; or none, where nothing is kept.
pub struct Output {
    directory: Option<PathBuf>,
    /// True if the directory holds a run that is resumed.
    resumed: bool,
    /// `None` as long as there is no directory: what is refused makes none.
    lock: OnceCell<RunLock>,
}

impl Output {
    /// The directory, unless another run is writing there, or a new run would replace what somebody may want to keep.
    pub fn open(run: &RunArgs, keep: usize) -> Result<Self, Exit> {
        let mut output = Self { directory: run.output.clone(), resumed: false, lock: OnceCell::new() };
        let Some(directory) = &output.directory else { return Ok(output) };
        let exists = exists(directory)?;
        if exists && !directory.is_dir() {
            return Err(failure(format!("--output {} is a file; give a directory", directory.display())));
        }
        if exists {
            let _ = output.lock.set(RunLock::acquire(directory).map_err(failure)?);
        }
        output.resumed = resumed(directory, run, keep)?;
        Ok(output)
    }

    /// The lock of the directory, which is made now where it did not exist; `None` where nothing is kept.
    pub fn lock(&self, run: &RunArgs) -> Result<Option<RunLock>, Exit> {
        let Some(directory) = &self.directory else { return Ok(None) };
        if let Some(lock) = self.lock.get() {
            return Ok(Some(lock.clone()));
        }
        let lock = RunLock::acquire(directory).map_err(failure)?;
        // Another program may have made and left it since it did not exist.
        if resumed(directory, run, 1)? != self.resumed {
            let directory = directory.display();
            return Err(failure(format!("another run has just written to {directory}: start this one again")));
        }
        Ok(Some(self.lock.get_or_init(|| lock).clone()))
    }

    /// A file or directory of the run.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(name))
    }

    /// The directory of the model that comes of the run.
    pub fn model(&self) -> Option<PathBuf> {
        self.path("model")
    }

    /// The model's directory of a run that is resumed.
    fn resumed_model(&self) -> Option<PathBuf> {
        self.model().filter(|_| self.resumed)
    }

    /// The config.json of the resumed run's model.
    pub fn config(&self) -> Result<Option<PathBuf>, Exit> {
        let Some(file) = self.resumed_model().map(|model| model.join("config.json")) else { return Ok(None) };
        Ok(exists(&file)?.then_some(file))
    }

    /// The tokenizer of the resumed run: one that is learned again, from a text that has changed, has other tokens.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, Exit> {
        let Some(model) = self.resumed_model() else { return Ok(None) };
        // One that was copied has the files of its source.
        for file in ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"] {
            if exists(&model.join(file))? {
                return Tokenizer::from_path(model).map(Some).map_err(failure);
            }
        }
        Ok(None)
    }

    /// Writes what a resumed run needs and its checkpoints do not have.
    pub fn begin(&self, run: &RunArgs, config: &Value, tokenizer: Option<&Tokenizer>) -> Result<(), Exit> {
        self.lock(run)?;
        let Some(model) = self.model().filter(|_| !self.resumed) else { return Ok(()) };
        let (file, text) = (model.join("config.json"), format!("{config:#}"));
        write_atomically(&file, |writer| writer.write_all(text.as_bytes())).map_err(failure)?;
        tokenizer.map_or(Ok(()), |tokenizer| tokenizer.save(&model).map_err(failure))
    }
}

/// True if a directory holds a run that is to go on. Fails where it holds one, or a model, that would be replaced.
fn resumed(directory: &Path, run: &RunArgs, keep: usize) -> Result<bool, Exit> {
    let checkpoints = CheckpointManager::open(directory.join("checkpoints"), keep).map_err(failure)?;
    let newest = checkpoints.list().map_err(failure)?.first().map(|(step, _)| *step);
    if let (Some(step), false) = (newest, run.resumes()) {
        return Err(failure(TrainError::RunExists { directory: directory.into(), step }));
    }
    let model = directory.join("model");
    if newest.is_none() && exists(&model.join("model.safetensors"))? {
        return Err(failure(format!(
            "{} already holds a model, and there are no checkpoints to resume from: name another directory",
            model.display()
        )));
    }
    Ok(newest.is_some())
}

/// True if there is a file. One that cannot be looked at is not taken for one that is missing.
fn exists(path: &Path) -> Result<bool, Exit> {
    path.try_exists().map_err(|error| failure(format!("cannot read {}: {error}", path.display())))
}
