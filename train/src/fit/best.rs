use grove_backend::Backend;
use grove_tree::Tree;
use std::path::PathBuf;

use crate::{CheckpointManager, Result, RunLock, RunProgress, checkpoint::ReadError};

/// Best model so far, in memory and, if the run has a directory, on disk.
pub(super) struct Best<M> {
    model: Option<M>,
    checkpoints: Option<CheckpointManager>,
    /// Step of the best model according to the run's newest checkpoint. A run resumed from that checkpoint needs this
    /// model, even if a later one is better.
    pinned: Option<u64>,
}

impl<M> Best<M> {
    pub(super) fn in_memory() -> Self {
        Self { model: None, checkpoints: None, pinned: None }
    }

    /// Loads the best model of a resumed run. If it cannot be read, adds a remark and forgets it.
    pub(super) fn open<B: Backend>(
        directory: PathBuf,
        lock: &RunLock,
        progressed: &mut RunProgress,
        like: &M,
        device: &B::Device,
        remarks: &mut Vec<String>,
    ) -> Result<Self>
    where
        M: Tree<B>,
    {
        let checkpoints = CheckpointManager::locked(directory, 1, lock.clone())?;
        let mut model = None;
        match progressed.best.map(|(step, _)| (step, checkpoints.load_step(step, like, device))) {
            Some((step, Ok(best))) => {
                model = Some(best);
                checkpoints.retain(&[step])?;
            }
            Some((_, Err(ReadError::Other(error)))) => return Err(error),
            // Replaced by the model of a later step, which the resumed run will reach again.
            Some(_) if checkpoints.list()?.iter().any(|(later, _)| *later > progressed.step) => {}
            Some((step, Err(ReadError::Damaged(damage)))) => {
                remarks.push(format!("the best model so far, of step {step}, is lost: {damage}"));
                (progressed.best, progressed.held_out_loss) = (None, None);
            }
            // An earlier run that was killed before its first checkpoint may have left files.
            None => checkpoints.retain(&[])?,
        }
        Ok(Self { model, checkpoints: Some(checkpoints), pinned: progressed.best.map(|(step, _)| step) })
    }

    /// Makes the model of this step the best one.
    pub(super) fn replace<B: Backend>(&mut self, model: &M, progressed: &RunProgress) -> Result<()>
    where
        M: Tree<B>,
    {
        if let Some(checkpoints) = &self.checkpoints {
            let needed: Vec<u64> = self.pinned.into_iter().chain([progressed.step]).collect();
            checkpoints.write(model, progressed)?;
            checkpoints.retain(&needed)?;
        }
        self.model = Some(model.clone());
        Ok(())
    }

    /// Removes earlier best models after a checkpoint of the run was written.
    pub(super) fn checkpointed(&mut self, progressed: &RunProgress) -> Result<()> {
        let best = progressed.best.map(|(step, _)| step);
        if self.pinned == best {
            return Ok(());
        }
        self.pinned = best;
        match (&self.checkpoints, best) {
            (Some(checkpoints), Some(step)) => checkpoints.retain(&[step]),
            _ => Ok(()),
        }
    }

    pub(super) fn into_model(self) -> Option<M> {
        self.model
    }
}
