//! Directory of a run.

use grove::{
    files::write_atomically,
    models::Tokenizer,
    train::{CheckpointManager, RunLock, TrainError},
};
use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
};

use super::RunArgs;
use crate::{Exit, failure};

/// The directory of `--output`, which is this program's alone until it ends.
pub struct Output {
    directory: PathBuf,
    /// True if the directory holds a run that is resumed.
    resumed: bool,
    /// `None` as long as there is no directory: what is refused makes none.
    lock: OnceCell<RunLock>,
}

impl Output {
    /// The directory, unless another run is writing there, or a new run would replace what somebody may want to keep.
    pub fn open(run: &RunArgs, keep: usize) -> Result<Option<Self>, Exit> {
        let Some(directory) = run.output.clone() else { return Ok(None) };
        let exists = exists(&directory)?;
        if exists && !directory.is_dir() {
            return Err(failure(format!("--output {} is a file; give a directory", directory.display())));
        }
        let lock = OnceCell::new();
        if exists {
            let _ = lock.set(RunLock::acquire(&directory).map_err(failure)?);
        }
        let resumed = resumed(&directory, run, keep)?;
        Ok(Some(Self { directory, resumed, lock }))
    }

    /// The lock of the directory, which is made now where it did not exist.
    pub fn lock(&self, run: &RunArgs) -> Result<RunLock, Exit> {
        if let Some(lock) = self.lock.get() {
            return Ok(lock.clone());
        }
        let lock = RunLock::acquire(&self.directory).map_err(failure)?;
        // Another program may have made and left it since it did not exist.
        if resumed(&self.directory, run, 1)? != self.resumed {
            let directory = self.directory.display();
            return Err(failure(format!("another run has just written to {directory}: start this one again")));
        }
        Ok(self.lock.get_or_init(|| lock).clone())
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
    pub fn config(&self) -> Result<Option<PathBuf>, Exit> {
        let file = self.model().join("config.json");
        Ok((self.resumed && exists(&file)?).then_some(file))
    }

    /// The tokenizer of the resumed run: one that is learned again, from a text that has changed, has other tokens.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, Exit> {
        let model = self.model();
        if !self.resumed {
            return Ok(None);
        }
        // One that was copied has the files of its source.
        for file in ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"] {
            if exists(&model.join(file))? {
                return Tokenizer::from_path(model).map(Some).map_err(failure);
            }
        }
        Ok(None)
    }

    /// Writes what a resumed run needs and its checkpoints do not have.
    pub fn begin(&self, run: &RunArgs, config: &str, tokenizer: Option<&Tokenizer>) -> Result<(), Exit> {
        self.lock(run)?;
        if self.resumed {
            return Ok(());
        }
        let model = self.model();
        let file = model.join("config.json");
        write_atomically(&file, |writer| writer.write_all(config.as_bytes())).map_err(failure)?;
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
