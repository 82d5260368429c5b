//! From options to what the loop takes.

use grove::{
    optim::{join_schedules, layer_decay_of, linear_schedule, warmup_constant_schedule, warmup_cosine_decay_schedule},
    train::{NonFinite, RunDuration, stop_on_interrupt_of},
};
use serde::Serialize;

use super::{TrainingArgs, options::Decay};
use crate::prelude::*;

/// The content of a model's config.json.
pub fn config_json(config: &impl Serialize) -> Result<Value, Exit> {
    // By its text, whose numbers are those of the file: an f32 has fewer digits there than as an f64.
    serde_json::to_string(config).and_then(|text| serde_json::from_str(&text)).map_err(Exit::from)
}

impl TrainingArgs {
    /// Steps of the run; so many `epochs` where the options do not say it.
    pub fn steps(&self, epochs: f64, batches_per_epoch: usize) -> Result<u64, Exit> {
        let length = self.steps.map_or(RunDuration::Epochs(self.epochs.unwrap_or(epochs)), RunDuration::Steps);
        Ok(length.steps(batches_per_epoch, self.accumulate)?)
    }

    /// Up in a straight line, down as `--schedule` says.
    pub fn schedule(&self, steps: u64) -> Result<Schedule, Exit> {
        let warmup = self.warmup.unwrap_or((steps / 20).min(1000));
        if warmup >= steps && warmup > 0 {
            return Err(usage(format!("--warmup is {warmup}; it must be less than all steps, which are {steps}")));
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

    /// AdamW, which decays matrices only, after clipping.
    pub fn optimizer<B: Backend, M: Tree<B>>(
        &self,
        schedule: &Schedule,
    ) -> impl GradientTransformation<B, M> + use<B, M> {
        chain((
            (self.clip > 0.0).then(|| clip_by_global_norm::<B>(self.clip)),
            adamw(schedule.clone(), Adamw::default().b2(self.beta2).weight_decay(self.weight_decay).mask(matrices())),
        ))
    }

    /// AdamW as [`optimizer`](Self::optimizer) has it, slower the lower a layer lies. `factor` is from the rate of a layer to
    /// that of the layer below it, and `depth` the number of layers between a leaf and the head.
    pub fn optimizer_by_layer<B: Backend, M: Tree<B>>(
        &self,
        schedule: &Schedule,
        model: &M,
        factor: f64,
        depth: fn(&M, &str) -> usize,
    ) -> impl GradientTransformation<B, M> + use<B, M> {
        let decay = (factor < 1.0).then(|| layer_decay_of::<B>(model, factor, |path| depth(model, path)));
        chain((self.optimizer::<B, M>(schedule), decay))
    }
}

impl RunArgs {
    /// The settings of a run that are here: all options but those that may change when it is resumed, such as its length.
    fn settings(&self) -> RunSettings {
        let training = &self.training;
        RunSettings::new()
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
    }

    /// Options of [`fit`](grove::train::fit) but for the directory of the run and what depends on its data.
    pub fn fit_options<B: Backend>(&self, steps: u64, settings: RunSettings) -> Result<FitOptions<B>, Exit> {
        let (training, dtype) = (&self.training, self.device.dtype);
        let skip = |max_consecutive| NonFinite::Skip { max_consecutive };
        // In f32 the loss is computed in the model's own type.
        let compute = (dtype != Dtype::F32).then(|| dtype.into());
        Ok(FitOptions {
            length: RunDuration::Steps(steps),
            accumulate: training.accumulate,
            step: StepOptions { compute, ..StepOptions::default() },
            loss_scaling: dtype == Dtype::F16,
            ema: training.ema,
            evaluate_every: training.evaluate_every.unwrap_or((steps / 10).max(1)),
            patience: training.patience,
            log_every: training.log_every,
            checkpoint_every: training.checkpoint_every,
            keep_model: training.keep_model(),
            keep_checkpoints: training.keep_checkpoints(),
            non_finite: training.skip_non_finite.map_or(NonFinite::Stop, skip),
            directory: self.output.clone(),
            resume: self.resumes(),
            resume_anyway: self.resume_anyway,
            settings: settings.or(self.settings()),
            stop: Some(stop_on_interrupt_of(&ranks()).map_err(failure)?),
            ranks: ranks(),
            progress: true,
            ..FitOptions::default()
        })
    }
}
