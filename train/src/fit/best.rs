use grove_backend::Backend;
use grove_tree::Tree;
use std::path::PathBuf;

use crate::{CheckpointManager, Result, RunLock, RunProgress};

/// The best model so far, in memory and, where the run has a directory, on the disk.
pub(super) struct Best<M> {
    model: Option<M>,
    checkpoints: Option<CheckpointManager>,
    /// The step of the model that the run's newest checkpoint calls the best: a run that goes on from there needs it,
    /// whatever has turned out better since.
    pinned: Option<u64>,
}

impl<M> Best<M> {
    pub(super) fn in_memory() -> Self {
        Self { model: None, checkpoints: None, pinned: None }
    }

    /// The best model of a run that goes on; where it cannot be read there is a remark, and none is the best.
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
        let found = match progressed.best {
            Some((step, _)) => Some((step, checkpoints.load_step(step, like, device)?)),
            None => None,
        };
        match found {
            Some((step, Ok(best))) => {
                model = Some(best);
                checkpoints.retain(&[step])?;
            }
            // Replaced by that of a later step, which this run will come to.
            Some(_) if checkpoints.list()?.iter().any(|(later, _)| *later > progressed.step) => {}
            Some((step, Err(damage))) => {
                remarks.push(format!("the best model so far, of step {step}, is lost: {damage}"));
                (progressed.best, progressed.held_out_loss) = (None, None);
            }
            // An earlier run that was killed before its first checkpoint may have left files.
            None => checkpoints.retain(&[])?,
        }
        Ok(Self { model, checkpoints: Some(checkpoints), pinned: progressed.best.map(|(step, _)| step) })
    }

    /// The model of this step is the best.
    pub(super) fn replace<B: Backend>(&mut self, model: &M, progressed: &RunProgress) -> Result<()>
    where
        M: Tree<B>,
    {
        if let Some(checkpoints) = &self.checkpoints {
            let needed: Vec<u64> = self.pinned.into_iter().chain([progressed.step]).collect();
            checkpoints.save_among(model, progressed, &needed)?;
        }
        self.model = Some(model.clone());
        Ok(())
    }

    /// A checkpoint of the run was written.
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
