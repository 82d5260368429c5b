//! The training itself, whichever the model.

use grove::{
    images::Preprocessor,
    layers::loss::CrossEntropy,
    models::{ModelError, vision::ImageClassifier},
    optim::{GradientTransformation, Schedule},
    prelude::*,
    tensor::TensorData,
    train::{Ended, Evaluation, Outcome, RunSettings, StepOptions, data::Data, fit},
    tree::Filter,
};
use indicatif::HumanCount;
use std::{path::Path, sync::Arc};

use super::{AugmentArgs, Batch, Images, Split, loader::output_size, score, split::identity};
use crate::{
    Exit, failure,
    labelled::tell_unheld,
    training::{Output, RunArgs, Summary, TrainingArgs, draw_confusion, evaluation_failed},
    vision::SizeArgs,
    write_json, write_line,
};

/// Inputs of a run.
pub struct Job<'a> {
    /// Directory and device.
    pub run: &'a RunArgs,
    /// Hyperparameters.
    pub training: &'a TrainingArgs,
    /// Augmentation.
    pub augment: &'a AugmentArgs,
    /// Limits of image sizes.
    pub sizes: &'a SizeArgs,
    /// Preprocessing of the images.
    pub preprocessor: Preprocessor,
    /// Passes over the data where the options do not say it.
    pub epochs: f64,
    /// Settings of the run besides the options of every run.
    pub settings: RunSettings,
    /// If true, the model stays in inference mode, as where all but its head is frozen.
    pub inference: bool,
}

/// Trains a model and tells how well it does.
pub fn train<B, M, T>(
    job: &Job<'_>,
    split: Split,
    model: M,
    trainable: Filter<B>,
    optimizer: impl FnOnce(&M, &Schedule) -> T,
    device: &B::Device,
) -> Result<Ended, Exit>
where
    B: Backend,
    M: ImageClassifier<B>,
    M::On<Autodiff<B>>: ImageClassifier<Autodiff<B>>,
    T: GradientTransformation<B, M>,
{
    let (asked, key) = (job.training, Key::new(job.run.seed));
    let output = Output::open(job.run, asked.keep)?;
    let size = output_size(&job.preprocessor, &model, job.sizes, asked.batch_size.min(split.training.examples.len()))?;
    let counts =
        [Some(&split.training), split.held_out.as_ref()].map(|data| data.map_or(0, |data| data.examples.len()));
    let made_of = job
        .settings
        .clone()
        .or(job.augment.run_settings())
        .with("parameters", tree::count_params(&model))
        .with("labels", model.labels().join(","))
        .with("preprocessing", format!("{:?}", job.preprocessor))
        .with("data", identity(&split.training))
        .with_option("held-out", split.held_out.as_ref().map(identity));
    let images = |data, batch| Images::new(data, batch, job.preprocessor.clone(), size).map_err(failure);
    let data = images(split.training, asked.batch_size)?;
    let data = Arc::new(data.training(job.augment.clone(), key.fold_in(2)).map_err(failure)?);
    let classes =
        split.held_out.as_ref().map(|data| data.examples.iter().map(|example| example.class).collect::<Vec<_>>());
    let held_out = split.held_out.map(|data| images(data, asked.batch_size)).transpose()?;
    if let Some(classes) = classes {
        tell_unheld(model.labels(), classes);
    }
    let steps = asked.steps(job.epochs, data.batches_per_epoch())?;
    let schedule = asked.schedule(steps)?;
    let optimizer = optimizer(&model, &schedule);
    let unit = ("images", asked.batch_size as u64);
    let evaluated = held_out.is_some();
    let mut settings = asked.fit_options(job.run, output.as_ref(), made_of, steps, evaluated, schedule, unit)?;
    settings.step = StepOptions { trainable, ..settings.step };
    let trained = tree::leaves(&tree::filter(model.clone(), &settings.step.trainable));
    let trained: usize = trained.iter().filter(|(_, leaf)| leaf.is_present()).map(|(_, leaf)| leaf.len()).sum();
    eprintln!(
        "{} parameters, of which {} are trained; {} classes; {} images to train on, {} held out; {} steps of {}",
        HumanCount(tree::count_params(&model) as u64),
        HumanCount(trained as u64),
        model.labels().len(),
        HumanCount(counts[0] as u64),
        HumanCount(counts[1] as u64),
        HumanCount(steps),
        asked.batch_size * asked.accumulate,
    );
    let smoothing = job.augment.label_smoothing;
    let inference = job.inference;
    let loss_fn = |model: M::On<Autodiff<B>>, batch: &Batch, key: Key| {
        let pixels = batch.pixels::<Autodiff<B>>(device);
        let outcome = match inference {
            true => Outcome::<B, M>::new(loss(model.logits(pixels), batch, smoothing)),
            false => {
                let (logits, successor) = model.logits_in_training(pixels, key);
                Outcome::new(loss(logits, batch, smoothing)).successor(successor)
            }
        };
        // Images that cannot be read are missing from their batch.
        outcome.weight(batch.classes.len() as f64)
    };
    let evaluate = |model: &M| {
        let Some(held_out) = &held_out else { return Ok(Evaluation::default()) };
        let found = score(model, held_out, device).map_err(evaluation_failed)?.score;
        Ok(Evaluation::from([
            ("loss".into(), found.loss()),
            ("accuracy".into(), found.confusion.accuracy()),
            ("top5".into(), found.top5()),
        ]))
    };
    let fitted = fit(model, &optimizer, &data, loss_fn, evaluate, key.fold_in(3), &settings).map_err(failure)?;
    let save = |model: M, directory: &Path| {
        model.save_pretrained(directory)?;
        let file = directory.join("preprocessor_config.json");
        job.preprocessor.save(&file).map_err(|error| ModelError::Json { file, reason: error.to_string() })
    };
    let (model, summary) = Summary::save::<B, M>(fitted, output.as_ref(), asked.save_dtype, save)?;
    let (unreadable, first) = data.unreadable();
    if let Some(first) = first {
        eprintln!("{unreadable} images were left out of the training, as they cannot be read; the first: {first}");
    }
    let found = held_out.as_ref().map(|held_out| score(&model, held_out, device)).transpose()?;
    if let (Some(found), Some(output)) = (&found, &output) {
        draw_confusion(&found.score, &output.directory().join("confusion.svg"))?;
    }
    let accuracy = found.as_ref().map(|found| found.score.confusion.accuracy());
    if job.run.json {
        let mut all = summary.json("accuracy", accuracy);
        all["unreadable"] = unreadable.into();
        all["evaluation"] = found.as_ref().map(|found| found.json()).into();
        write_json(&all)?;
        return Ok(summary.ended);
    }
    let measure = accuracy.map(|accuracy| ("accuracy", format!("{:.2} %", 100.0 * accuracy)));
    write_line(&summary.table("image", measure))?;
    if let Some(found) = found {
        write_line(&format!("\n{}", found.score.confusion.table()))?;
    }
    Ok(summary.ended)
}

/// Mean loss of a batch; of mixed images both classes count.
fn loss<B: Backend>(logits: Tensor<B, 2>, batch: &Batch, label_smoothing: f64) -> Tensor<B, 1> {
    let device = logits.device();
    let entropy = CrossEntropy { label_smoothing, ..CrossEntropy::default() };
    let of = |logits, classes: &[i64]| {
        let classes = TensorData::new(classes.to_vec(), [classes.len()]);
        entropy.mean(logits, Tensor::<B, 1, Int>::from_data(classes, &device))
    };
    match &batch.mixed {
        Some((others, lambda)) => {
            of(logits.clone(), &batch.classes).mul_scalar(*lambda) + of(logits, others).mul_scalar(1.0 - *lambda)
        }
        None => of(logits, &batch.classes),
    }
}
