use burn::tensor::FloatDType;
use grove_backend::Backend;
use grove_distributed::Communicator;
use grove_files::{FileError, write_json};
use grove_models::ModelError;
use grove_text::Tokenizer;
use grove_tree::{Tree, cast};
use grove_weights::VOCABULARY_FILES;
use serde_json::Value;
use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
};

use crate::{CheckpointManager, Ended, Fitted, Result, RunLock, TrainError, ranks::or_end};

/// Directory of a training run, locked until the value is dropped: `checkpoints/` and logs, which [`fit`](crate::fit)
/// writes, and `model/` with the trained model. Without a directory nothing is saved.
///
/// A new run writes the configuration and the tokenizer of its model when it [begins](Self::begin). A resumed run reads
/// them from there, because changed data could give another tokenizer.
///
/// ```
/// # use grove_train::RunDirectory;
/// # let directory = tempfile::tempdir()?;
/// let run = RunDirectory::open(Some(directory.path().join("run")), false)?;
/// assert_eq!(run.config()?, None); // nothing to resume
/// run.begin(&serde_json::json!({ "n_layer": 2 }), None)?;
/// assert!(run.model().is_some_and(|model| model.join("config.json").is_file()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RunDirectory {
    directory: Option<PathBuf>,
    /// Ranks of the job; only rank 0 writes.
    ranks: Communicator,
    resume: bool,
    /// True if the directory has a run to resume.
    resumed: bool,
    /// Empty until the directory exists: a rejected run does not create it.
    lock: OnceCell<RunLock>,
}

impl RunDirectory {
    /// Opens a directory, which is not created yet. With `None`, nothing is saved.
    ///
    /// - `resume`: if true, an existing run is resumed; if false, it is an error
    ///
    /// # Errors
    /// Another run uses the directory; the directory has a run that is not to be resumed, or a model without
    /// checkpoints, which would be replaced; the path is a file or cannot be read.
    pub fn open(directory: Option<PathBuf>, resume: bool) -> Result<Self> {
        Self::open_on(&Communicator::single(), directory, resume)
    }

    /// As [`open`](Self::open), called by all ranks of a job. Only rank 0 writes. The other ranks read the
    /// configuration and the tokenizer of a resumed run, so the directory must be on a shared file system.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(ranks: &Communicator, directory: Option<PathBuf>, resume: bool) -> Result<Self> {
        let run = Self::opened(ranks, directory, resume)?;
        // No rank may write before all have checked the directory.
        or_end(ranks.barrier("before the run begins"), ranks);
        Ok(run)
    }

    fn opened(ranks: &Communicator, directory: Option<PathBuf>, resume: bool) -> Result<Self> {
        let ranks = ranks.clone();
        let mut run = Self { directory, ranks, resume, resumed: false, lock: OnceCell::new() };
        let Some(directory) = &run.directory else { return Ok(run) };
        let exists = exists(directory)?;
        if exists && !directory.is_dir() {
            return Err(TrainError::Options(format!("{} is a file; give a directory", directory.display())));
        }
        if exists && run.writes() {
            let _ = run.lock.set(RunLock::acquire(directory)?);
        }
        run.resumed = resumed(directory, resume)?;
        Ok(run)
    }

    /// True if this rank writes.
    fn writes(&self) -> bool {
        self.ranks.rank() == 0
    }

    /// Returns the lock of the directory, which is created if it does not exist. `None` without a directory, and on
    /// ranks other than 0.
    ///
    /// # Errors
    /// Another run has locked or written the directory since it was opened; the directory cannot be created.
    pub fn lock(&self) -> Result<Option<RunLock>> {
        let Some(directory) = self.directory.as_ref().filter(|_| self.writes()) else { return Ok(None) };
        if let Some(lock) = self.lock.get() {
            return Ok(Some(lock.clone()));
        }
        let lock = RunLock::acquire(directory)?;
        if resumed(directory, self.resume)? != self.resumed {
            let directory = directory.display();
            return Err(TrainError::Options(format!(
                "another run has just written to {directory}: start this one again"
            )));
        }
        Ok(Some(self.lock.get_or_init(|| lock).clone()))
    }

    /// Returns the path of a file or directory of the run. `None` without a directory, and on ranks other than 0.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.directory.as_ref().filter(|_| self.writes()).map(|directory| directory.join(name))
    }

    /// Returns the directory of the trained model.
    pub fn model(&self) -> Option<PathBuf> {
        self.path("model")
    }

    /// Returns the path of the model's `config.json`, if the run is resumed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn config(&self) -> Result<Option<PathBuf>> {
        let Some(file) = self.resumed_model().map(|model| model.join("config.json")) else { return Ok(None) };
        Ok(exists(&file)?.then_some(file))
    }

    /// Loads the tokenizer, if the run is resumed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>> {
        let Some(model) = self.resumed_model() else { return Ok(None) };
        for file in VOCABULARY_FILES {
            if exists(&model.join(file))? {
                return Ok(Some(Tokenizer::from_path(model)?));
            }
        }
        Ok(None)
    }

    /// Writes the files that a resumed run needs besides checkpoints: the model's `config.json` with the content
    /// `config`, and its tokenizer. Acquires the lock.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), or a file cannot be written.
    pub fn begin(&self, config: &Value, tokenizer: Option<&Tokenizer>) -> Result<()> {
        self.lock()?;
        let Some(model) = self.model().filter(|_| !self.resumed) else { return Ok(()) };
        write_json(&model.join("config.json"), config)?;
        Ok(tokenizer.map_or(Ok(()), |tokenizer| tokenizer.save(&model))?)
    }

    /// Saves the model of a run that was not interrupted to [`model`](Self::model), converted to `dtype`: the best one,
    /// else the moving average, else the last. Returns the model in its training dtype.
    ///
    /// - `save`: writes the model to a directory, such as `|model, directory| model.save_pretrained(directory)`
    ///
    /// # Errors
    /// Those of `save`.
    pub fn save<B: Backend, M: Tree<B>>(
        &self,
        fitted: Fitted<M>,
        dtype: FloatDType,
        save: impl FnOnce(M, &Path) -> Result<(), ModelError>,
    ) -> Result<M> {
        let ended = fitted.ended;
        let model = fitted.into_model();
        if let Some(directory) = self.model().filter(|_| ended != Ended::Interrupted) {
            save(cast(model.clone(), dtype), &directory)?;
        }
        Ok(model)
    }

    fn resumed_model(&self) -> Option<PathBuf> {
        self.directory.as_ref().filter(|_| self.resumed).map(|directory| directory.join("model"))
    }
}

/// True if the directory has a run to resume.
fn resumed(directory: &Path, resume: bool) -> Result<bool> {
    let checkpoints = CheckpointManager::open(directory.join("checkpoints"), 1)?;
    let newest = checkpoints.list()?.first().map(|(step, _)| *step);
    if let (Some(step), false) = (newest, resume) {
        return Err(TrainError::RunExists { directory: directory.into(), step });
    }
    let model = directory.join("model");
    if newest.is_none() && exists(&model.join("model.safetensors"))? {
        return Err(TrainError::Options(format!(
            "{} already has a model, and no checkpoints to resume from: give another directory",
            model.display()
        )));
    }
    Ok(newest.is_some())
}

/// True if the file exists. A file that cannot be accessed is an error, not a missing file.
fn exists(path: &Path) -> Result<bool> {
    Ok(path.try_exists().map_err(FileError::io("read", path))?)
}
