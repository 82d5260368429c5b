use grove_backend::Backend;
use grove_tree::{Key, Tree, filter, leaves};
use std::path::{Path, PathBuf};

use super::{FitOptions, KeepModel, TrainState, best::Best};
use crate::{
    CheckpointManager, LossScale, Result, RunLock, RunProgress, RunSettings, SettingDifference, StepOptions,
    TrainError,
    checkpoint::{Restored, clear_drafts},
    data::Position,
    ema::ema_start,
    error::listed,
};

/// Start of a run: a new model, or its newest checkpoint.
pub(super) struct RunSetup<B: Backend, M, S> {
    pub(super) state: TrainState<B, M, S>,
    pub(super) progressed: RunProgress,
    pub(super) checkpoints: Option<CheckpointManager>,
    /// Step and directory of the newest checkpoint.
    pub(super) newest: Option<(u64, PathBuf)>,
    pub(super) best: Best<M>,
    /// Messages for the user, one sentence each.
    pub(super) remarks: Vec<String>,
    /// Lock of the run's directory, held as long as this value lives.
    pub(super) lock: Option<RunLock>,
}

impl<B: Backend, M: Tree<B>, S: Tree<B>> RunSetup<B, M, S> {
    /// Sets up a new run, or restores its newest checkpoint. `init` creates the optimizer state for the trainable part
    /// of a model.
    pub(super) fn new(
        model: M,
        init: impl FnOnce(&M) -> S,
        key: Key,
        batches_per_epoch: usize,
        options: &FitOptions<B>,
    ) -> Result<Self> {
        let (trained, device) = trainable_part(&model, options)?;
        let mut state = TrainState {
            optimizer: init(&trained),
            ema: options.ema.map(|_| ema_start(model.clone())),
            loss_scale: options.loss_scaling.then(|| LossScale::new(&device)),
            model,
        };
        drop(trained);
        let settings = options.all_settings(batches_per_epoch);
        let mut progressed =
            RunProgress { key: key.words(), settings: Some(settings.clone()), ..RunProgress::default() };
        let Some(directory) = &options.directory else {
            let (best, remarks) = (Best::in_memory(), Vec::new());
            return Ok(Self { state, progressed, checkpoints: None, newest: None, best, remarks, lock: None });
        };
        // Lock before reading, so that another run cannot write in between.
        let lock = match &options.lock {
            Some(lock) => lock.clone(),
            None => RunLock::acquire(directory)?,
        };
        let mut remarks: Vec<String> = lock.remark().into_iter().collect();
        clear_drafts(directory, &lock)?;
        let checkpoints =
            CheckpointManager::locked(directory.join("checkpoints"), options.keep_checkpoints, lock.clone())?;
        let resume = options.resume || options.resume_anyway;
        if !resume && let Some((step, _)) = checkpoints.list()?.first() {
            return Err(TrainError::RunExists { directory: directory.clone(), step: *step });
        }
        let mut changes = None;
        let restored = checkpoints.load_if(&state, &device, |path, saved| {
            changes = same_run(path, saved, &settings, key, options.resume_anyway)?;
            Ok(())
        })?;
        let mut newest = None;
        if let Some(Restored { state: saved, progressed: before, path, skipped }) = restored {
            remarks.extend(skipped);
            remarks.push(format!("going on after step {} of {}", before.step, path.display()));
            remarks.extend(changes);
            (state, progressed) = (saved, with_settings(before, settings, options.keep_model));
            if options.resume_anyway {
                progressed.key = key.words();
                progressed.position = within(progressed.position, batches_per_epoch);
            }
            // A process killed right after writing a checkpoint leaves too many older ones.
            checkpoints.thin(progressed.step)?;
            newest = Some((progressed.step, path));
        }
        let best = match options.keep_model {
            KeepModel::Last => Best::in_memory(),
            _ => Best::open(directory.join("best"), &lock, &mut progressed, &state.model, &device, &mut remarks)?,
        };
        Ok(Self { state, progressed, checkpoints: Some(checkpoints), newest, best, remarks, lock: Some(lock) })
    }
}

/// Returns the trainable part of the model, which alone has an optimizer state, and its device.
fn trainable_part<B: Backend, M: Tree<B>>(model: &M, options: &FitOptions<B>) -> Result<(M, B::Device)> {
    let StepOptions { trainable, compute } = &options.step;
    trainable.check(model).map_err(|error| TrainError::Options(format!("`trainable`: {error}")))?;
    let trained = filter(model.clone(), trainable);
    let mut float = leaves(&trained).into_iter().filter(|(_, leaf)| leaf.dtype().is_float());
    let Some((device, dtype)) = float.find_map(|(_, leaf)| Some((leaf.device()?, leaf.dtype()))) else {
        let reason = if leaves(model).iter().any(|(_, leaf)| leaf.is_present()) {
            "nothing to train: `trainable` selects no floating-point parameter of the model"
        } else {
            "nothing to train: the model has no values (is it a skeleton?)"
        };
        return Err(TrainError::Options(reason.into()));
    };
    let dtype = compute.map_or(dtype, Into::into);
    if !B::computes_in(&device, dtype) {
        let (backend, dtype) = (B::name(&device), dtype.name());
        let reason = format!("{backend} does not compute in {dtype}: choose another dtype or another backend");
        return Err(TrainError::Options(reason));
    }
    Ok((trained, device))
}

/// Returns the progress of a resumed run with its current settings. Another choice of the model to keep forgets the
/// best model.
fn with_settings(mut progressed: RunProgress, settings: RunSettings, keep_model: KeepModel) -> RunProgress {
    // Checkpoints of earlier versions have neither this setting nor the loss; they kept the model with the lowest loss.
    let kept_by = |settings: Option<&RunSettings>| {
        settings.and_then(|settings| settings.get("keep")).unwrap_or("best:loss").to_owned()
    };
    if kept_by(progressed.settings.as_ref()) != kept_by(Some(&settings)) {
        (progressed.best, progressed.stale, progressed.held_out_loss) = (None, 0, None);
    } else if keep_model.metric() == "loss" && progressed.held_out_loss.is_none() {
        progressed.held_out_loss = progressed.best.map(|(_, loss)| loss);
    }
    RunProgress { settings: Some(settings), ..progressed }
}

/// Refuses to resume a run with other settings, unless `anyway`. Returns a message for the user, if any.
fn same_run(
    path: &Path,
    saved: &RunProgress,
    settings: &RunSettings,
    key: Key,
    anyway: bool,
) -> Result<Option<String>> {
    let Some(began) = &saved.settings else {
        let remark = format!("{} does not contain the settings of its run: nothing was compared", path.display());
        return Ok(Some(remark));
    };
    let mut differences = began.differences(settings);
    // A program derives the key from its `seed`, so a changed seed is not reported twice.
    if saved.key != key.words() && !differences.iter().any(|difference| difference.name == "seed") {
        let [name, was, is] = ["key".into(), format!("{:?}", saved.key), format!("{:?}", key.words())];
        differences.push(SettingDifference { name, was, is });
    }
    match (&differences[..], anyway) {
        ([], _) => Ok(None),
        (_, true) => Ok(Some(format!("with other settings than it started with: {}", listed(&differences)))),
        (_, false) => Err(TrainError::OtherSettings { path: path.into(), differences }),
    }
}

/// Returns the position, or the start of the next epoch if the position is beyond the (changed) end of its epoch.
fn within(position: Position, batches_per_epoch: usize) -> Position {
    match position.batch < batches_per_epoch as u64 {
        true => position,
        false => Position { epoch: position.epoch + 1, batch: 0 },
    }
}
