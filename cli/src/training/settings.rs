//! Optimizer, schedule and loop settings from the options.

use grove::{
    optim::{join_schedules, linear_schedule, warmup_constant_schedule, warmup_cosine_decay_schedule},
    train::{NonFinite, RunDuration, stop_on_interrupt_of},
};
use serde::Serialize;

use super::{TrainingArgs, optimizer::Optimizer, options::Decay};
use crate::prelude::*;

/// Returns the content of a model's config.json.
pub fn config_json(config: &impl Serialize) -> Result<Value, Exit> {
    // Converted through text, so that the numbers equal those of the file: an f32 prints fewer digits than its f64 value.
    serde_json::to_string(config).and_then(|text| serde_json::from_str(&text)).map_err(Exit::from)
}

impl TrainingArgs {
    /// Returns the number of steps of the run; `epochs` is the default length.
    pub fn steps(&self, epochs: f64, batches_per_epoch: usize) -> Result<u64, Exit> {
        let length = self.steps.map_or(RunDuration::Epochs(self.epochs.unwrap_or(epochs)), RunDuration::Steps);
        Ok(length.steps(batches_per_epoch, self.accumulate)?)
    }

    /// Returns the schedule: that of the file of `--optimizer`, or linear warm-up, then the decay of `--schedule`.
    pub fn schedule(&self, steps: u64) -> Result<Schedule, Exit> {
        if let Some(Optimizer::File(file)) = &self.optimizer {
            return Ok(file.config()?.learning_rate.clone());
        }
        let warmup = self.warmup.unwrap_or((steps / 20).min(1000));
        if warmup >= steps && warmup > 0 {
            return Err(usage(format!("--warmup is {warmup}; it must be less than the number of steps, {steps}")));
        }
        let (peak, last) = (self.learning_rate, self.learning_rate * self.final_learning_rate);
        Ok(match self.schedule {
            Decay::Cosine => warmup_cosine_decay_schedule(0.0, peak, warmup, steps, last),
            Decay::Linear => {
                let parts = vec![linear_schedule(0.0, peak, warmup), linear_schedule(peak, last, steps - warmup)];
                join_schedules(parts, vec![warmup])
            }
            Decay::Constant => warmup_constant_schedule(0.0, peak, warmup),
        })
    }
}

impl RunArgs {
    /// Returns the options that must not change when the run is resumed. The length, logs and evaluations may change.
    fn settings(&self) -> Result<RunSettings, Exit> {
        let training = &self.training;
        let optimizer = training.configuration(&Schedule::from(training.learning_rate))?;
        Ok(RunSettings::new()
            .with("seed", self.seed)
            .with_option("jit", self.jit.then_some(true))
            .with("dtype", self.device.dtype.name())
            .with("batch-size", training.batch_size)
            .with("learning-rate", training.learning_rate)
            .with("schedule", format!("{:?}", training.schedule).to_lowercase())
            .with("final-learning-rate", training.final_learning_rate)
            .with_option("warmup", training.warmup)
            .with("weight-decay", training.weight_decay)
            .with("beta2", training.beta2)
            .with("clip", training.clip)
            .with_option("optimizer", optimizer.map(|config| json!(config))))
    }

    /// Returns the options of [`fit`](grove::train::fit), except those that depend on the data or on the lock of the directory.
    pub fn fit_options<B: Backend>(&self, steps: u64, settings: RunSettings) -> Result<FitOptions<B>, Exit> {
        let (training, dtype) = (&self.training, self.device.dtype);
        let skip = |max_consecutive| NonFinite::Skip { max_consecutive };
        // `None` computes the loss in the type of the parameters, which is f32.
        let compute = (dtype != Dtype::F32).then(|| dtype.into());
        Ok(FitOptions {
            length: RunDuration::Steps(steps),
            accumulate: training.accumulate,
            step: StepOptions { compute, ..StepOptions::default() },
            loss_scaling: dtype == Dtype::F16,
            ema: training.ema,
            evaluate_every: training.evaluate_every.unwrap_or((steps / 10).max(1)),
            patience: training.patience,
            log_every: training.log_every.unwrap_or((steps / 10).clamp(1, 10)),
            checkpoint_every: training.checkpoint_every,
            keep_model: training.keep,
            keep_checkpoints: training.keep_checkpoints,
            non_finite: training.skip_non_finite.map_or(NonFinite::Stop, skip),
            directory: self.output.clone(),
            resume: self.resumes(),
            resume_anyway: self.resume_anyway,
            settings: settings.or(self.settings()?),
            stop: Some(stop_on_interrupt_of(&ranks()).map_err(failure)?),
            ranks: ranks(),
            progress: true,
            ..FitOptions::default()
        })
    }
}
