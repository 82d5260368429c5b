//! From options to what the loop takes.

use grove::{
    optim::{
        Adamw, GradientTransformation, Schedule, adamw, chain, clip_by_global_norm, join_schedules, layer_decay,
        linear_schedule, matrices, warmup_constant_schedule, warmup_cosine_decay_schedule,
    },
    prelude::*,
    train::{FitOptions, NonFinite, RunDuration, RunSettings, StepOptions, stop_on_interrupt},
};

use serde::Serialize;
use serde_json::Value;

use super::{RunArgs, TrainingArgs, options::Decay};
use crate::{Dtype, Exit, failure};

/// Fields of a config.json that say nothing about what is computed.
const NO_SETTINGS: [&str; 5] =
    ["model._name_or_path", "model.architectures", "model.dtype", "model.torch_dtype", "model.transformers_version"];

/// The content of a model's config.json.
pub fn config_json(config: &impl Serialize) -> Result<Value, Exit> {
    // By its text, whose numbers are those of the file: an f32 has fewer digits there than as an f64.
    serde_json::to_string(config).and_then(|text| serde_json::from_str(&text)).map_err(failure)
}

/// The settings of a run that its model has, given the model's config.json.
pub fn model_settings(config: &Value) -> RunSettings {
    RunSettings::new().with_fields("model", config).without(&NO_SETTINGS)
}

impl TrainingArgs {
    /// Steps of the run; so many `epochs` where the options do not say it.
    pub fn steps(&self, epochs: f64, batches_per_epoch: usize) -> Result<u64, Exit> {
        let length = self.steps.map_or(RunDuration::Epochs(self.epochs.unwrap_or(epochs)), RunDuration::Steps);
        length.steps(batches_per_epoch, self.accumulate).map_err(failure)
    }

    /// Up in a straight line, down as `--schedule` says.
    pub fn schedule(&self, steps: u64) -> Result<Schedule, Exit> {
        let warmup = self.warmup.unwrap_or((steps / 20).min(1000));
        if warmup >= steps && warmup > 0 {
            return Err(Exit::Usage(format!(
                "--warmup is {warmup}; it must be less than all steps, which are {steps}"
            )));
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

    /// The settings of a run that are here: all options but those that may change when it is resumed, such as its length.
    pub fn run_settings(&self, run: &RunArgs) -> RunSettings {
        RunSettings::new()
            .with("seed", run.seed)
            .with("dtype", run.device.dtype.name())
            .with("batch-size", self.batch_size)
            .with("learning-rate", self.learning_rate)
            .with("schedule", format!("{:?}", self.schedule).to_lowercase())
            .with("final-learning-rate", self.final_learning_rate)
            .with_option("warmup", self.warmup)
            .with("weight-decay", self.weight_decay)
            .with("beta2", self.beta2)
            .with("clip", self.clip)
    }

    /// AdamW as [`optimizer`](Self::optimizer) has it, slower the lower a layer lies. `factor` is from the rate of a layer to
    /// that of the layer below it, and `depth` the number of layers between a leaf and the head, at most `deepest`.
    pub fn optimizer_by_layer<B: Backend, M: Tree<B>, D: Fn(&str) -> usize + Send + Sync + 'static>(
        &self,
        schedule: &Schedule,
        factor: f64,
        deepest: usize,
        depth: D,
    ) -> impl GradientTransformation<B, M> + use<B, M, D> {
        let decay = (factor < 1.0).then(|| layer_decay::<B>(factor, deepest, depth));
        chain((self.optimizer::<B, M>(schedule), decay))
    }

    /// Options of [`fit`](grove::train::fit) but for the directory of the run and what depends on its data.
    pub fn fit_options<B: Backend>(
        &self,
        run: &RunArgs,
        steps: u64,
        settings: RunSettings,
    ) -> Result<FitOptions<B>, Exit> {
        let dtype = run.device.dtype;
        // In f32 the loss is computed in the model's own type.
        let compute = (dtype != Dtype::F32).then(|| dtype.into());
        Ok(FitOptions {
            length: RunDuration::Steps(steps),
            accumulate: self.accumulate,
            step: StepOptions { compute, ..StepOptions::default() },
            loss_scaling: dtype == Dtype::F16,
            ema: self.ema,
            evaluate_every: self.evaluate_every.unwrap_or((steps / 10).max(1)),
            patience: self.patience,
            log_every: self.log_every,
            checkpoint_every: self.checkpoint_every,
            keep: self.keep,
            non_finite: match self.skip_non_finite {
                Some(max_consecutive) => NonFinite::Skip { max_consecutive },
                None => NonFinite::Stop,
            },
            directory: run.output.clone(),
            resume: run.resumes(),
            resume_anyway: run.resume_anyway,
            settings: settings.or(self.run_settings(run)),
            stop: Some(stop_on_interrupt().map_err(failure)?),
            progress: true,
            ..FitOptions::default()
        })
    }
}
