//! The training itself, whichever the model.

use grove::{
    images::Preprocessor,
    layers::loss::CrossEntropy,
    models::{ModelError, vision::ImageClassifier},
    optim::{GradientTransformation, Schedule},
    prelude::*,
    tensor::TensorData,
    train::{Ended, Evaluation, Outcome, RunSettings, fit},
    tree::Filter,
};
use std::path::Path;

use super::{Batch, ImageArgs, Images, Scored, Split, loader::output_size, score, split::identity};
use crate::{
    Exit, failure,
    labelled::tell_unheld,
    training::{Output, Setup, evaluation_failed},
};

/// Inputs of a run.
pub struct VisionJob<'a, B: Backend> {
    /// Options of every command that trains on images.
    pub args: &'a ImageArgs,
    /// Preprocessing of the images.
    pub preprocessor: Preprocessor,
    /// Passes over the data where the options do not say it.
    pub epochs: f64,
    /// Settings of the run besides the options of every run.
    pub settings: RunSettings,
    /// The leaves that are trained.
    pub trainable: Filter<B>,
    /// If true, the model stays in inference mode, as where all but its head is frozen.
    pub inference: bool,
}

/// Trains a model and tells how well it does.
pub fn train<B, M, T>(
    job: VisionJob<'_, B>,
    split: Split,
    model: M,
    optimizer: impl FnOnce(&M, &Schedule) -> T,
    device: &B::Device,
) -> Result<Ended, Exit>
where
    B: Backend,
    M: ImageClassifier<B>,
    M::On<Autodiff<B>>: ImageClassifier<Autodiff<B>>,
    T: GradientTransformation<B, M>,
{
    let VisionJob { args, preprocessor, epochs, settings, trainable, inference } = job;
    let ImageArgs { run, training: asked, augment, sizes, .. } = args;
    let key = Key::new(run.seed);
    let output = Output::open(run, asked.keep)?;
    let batch_size = asked.batch_size;
    let size = output_size(&preprocessor, &model, sizes, batch_size.min(split.training.examples.len()))?;
    let held_out = split.held_out.as_ref();
    let settings = settings
        .or(augment.run_settings())
        .with("parameters", tree::count_params(&model))
        .with("labels", model.labels().join(","))
        .with("preprocessing", format!("{preprocessor:?}"))
        .with("data", identity(&split.training))
        .with_option("held-out", held_out.map(identity));
    let counts = [split.training.examples.len(), held_out.map_or(0, |data| data.examples.len())];
    tell_unheld(model.labels(), held_out.iter().flat_map(|data| &data.examples).map(|example| example.class));
    let images = |data| Images::new(data, batch_size, preprocessor.clone(), size).map_err(failure);
    let data = images(split.training)?.training(augment.clone(), key.fold_in(2)).map_err(failure)?;
    let held_out = split.held_out.map(images).transpose()?;
    let setup = Setup {
        run,
        training: asked,
        output,
        data,
        epochs,
        settings,
        trainable: Some(trainable),
        classes: Some(model.labels().len()),
        unit: ("images", batch_size),
        counts,
    };
    let smoothing = augment.label_smoothing;
    let job = setup.job(&model)?;
    let optimizer = optimizer(&model, &job.schedule);
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
        let measures = [found.loss(), found.confusion.accuracy(), found.top5()];
        Ok(["loss", "accuracy", "top5"].map(String::from).into_iter().zip(measures).collect())
    };
    let fitted = fit(model, &optimizer, &job.data, loss_fn, evaluate, job.key, &job.settings).map_err(failure)?;
    let save = |model: M, directory: &Path| {
        model.save_pretrained(directory)?;
        let file = directory.join("preprocessor_config.json");
        preprocessor.save(&file).map_err(|error| ModelError::Json { file, reason: error.to_string() })
    };
    let (model, summary) = job.save::<M>(fitted, save)?;
    let (unreadable, first) = job.data.unreadable();
    if let Some(first) = first {
        eprintln!("{unreadable} images were left out of the training, as they cannot be read; the first: {first}");
    }
    let found = held_out.as_ref().map(|held_out| score(&model, held_out, device)).transpose()?;
    let evaluation = found.as_ref().map(Scored::json).into();
    let scripts = [("unreadable", unreadable.into()), ("evaluation", evaluation)];
    summary.report_classifier(run, &job.output, found.as_ref().map(|found| &found.score), ("image", 2), scripts)
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
