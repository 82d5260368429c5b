use grove_backend::Backend;
use grove_optim::GradientTransformation;
use grove_tree::{Key, Tree, filter, leaves};
use std::path::PathBuf;

use super::{FitOptions, TrainState, best::Best};
use crate::{
    Checkpoints, LossScale, Progressed, Result, TrainError, checkpoint::clear_drafts, data::Position, ema::ema_start,
};

/// What a run goes on from: a new model, or its newest checkpoint.
pub(super) struct Beginning<B: Backend, M, S> {
    pub(super) state: TrainState<B, M, S>,
    pub(super) progressed: Progressed,
    pub(super) checkpoints: Option<Checkpoints>,
    /// The step and the directory of that checkpoint.
    pub(super) kept: Option<(u64, PathBuf)>,
    pub(super) best: Best<M>,
    /// What a person should know, a sentence each.
    pub(super) remarks: Vec<String>,
}

impl<B: Backend, M: Tree<B>, S: Tree<B>> Beginning<B, M, S> {
    pub(super) fn new<T: GradientTransformation<B, M, State = S>>(
        model: M,
        optimizer: &T,
        key: Key,
        options: &FitOptions<B>,
    ) -> Result<Self> {
        if let Err(error) = options.step.trainable.check(&model) {
            return Err(TrainError::Options(format!("`trainable`: {error}")));
        }
        // Frozen parameters need no state.
        let trained = filter(model.clone(), &options.step.trainable);
        let mut present = leaves(&trained).into_iter().filter(|(_, leaf)| leaf.dtype().is_float());
        let Some(device) = present.find_map(|(_, leaf)| leaf.device()) else {
            let reason = if leaves(&model).iter().any(|(_, leaf)| leaf.is_present()) {
                "nothing to train: `trainable` passes none of the model's floating-point numbers"
            } else {
                "nothing to train: the model holds no numbers (is it a skeleton?)"
            };
            return Err(TrainError::Options(reason.into()));
        };
        let mut state = TrainState {
            optimizer: optimizer.init(&trained),
            ema: options.ema.map(|_| ema_start(model.clone())),
            loss_scale: options.loss_scaling.then(|| LossScale::new(&device)),
            model,
        };
        drop((trained, present));
        let mut progressed = Progressed {
            step: 0,
            position: Position::default(),
            key: key.words(),
            seconds: 0.0,
            best: None,
            stale: 0,
            unrecorded: Default::default(),
        };
        let Some(directory) = &options.directory else {
            let (best, remarks) = (Best::in_memory(), Vec::new());
            return Ok(Self { state, progressed, checkpoints: None, kept: None, best, remarks });
        };
        clear_drafts(directory)?;
        let checkpoints = Checkpoints::open(directory.join("checkpoints"), options.keep)?;
        if !options.resume
            && let Some((step, _)) = checkpoints.list()?.first()
        {
            return Err(TrainError::RunExists { directory: directory.clone(), step: *step });
        }
        let (mut kept, mut remarks) = (None, Vec::new());
        if let Some(restored) = checkpoints.load(&state, &device)? {
            remarks = restored.skipped;
            (state, progressed) = (restored.state, restored.progressed);
            remarks.push(format!("going on after step {} of {}", progressed.step, restored.path.display()));
            kept = Some((progressed.step, restored.path));
            // What a process left that was killed right after writing it.
            checkpoints.thin(progressed.step)?;
        }
        let best = Best::open(directory.join("best"), &mut progressed, &state.model, &device, &mut remarks)?;
        Ok(Self { state, progressed, checkpoints: Some(checkpoints), kept, best, remarks })
    }
}
