use burn::tensor::{Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_images::{
    Preprocessor,
    augment::{Mix, TrainTransform},
    datasets::LabelledImages,
};
use grove_layers::loss::CrossEntropy;
use grove_models::vision::ImageClassifier;
use grove_optim::GradientTransformation;
use grove_tree::Key;
use rayon::prelude::*;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::classes_on;
use crate::{
    ClassifierScore, DataIdentity, Evaluation, FitOptions, Fitted, Outcome, Result,
    data::{Data, DataError, Order, epoch},
    fit,
};

/// Images that cannot be read are named on standard error up to this many; all are counted.
const MOST_TOLD: usize = 20;

/// Images as a model reads them, and their classes.
#[derive(Clone, Debug)]
pub struct ImageBatch {
    pixels: Vec<f32>,
    /// `[b, c, h, w]`.
    size: [usize; 4],
    /// Class of each image.
    pub classes: Vec<i64>,
    /// For images that mixup or CutMix mixed: the class of each partner, and the weight of the original image's class.
    pub mixed: Option<(Vec<i64>, f32)>,
}

impl ImageBatch {
    /// The pixels on a device, `[b, c, h, w]`.
    pub fn pixels<B: Backend>(&self, device: &B::Device) -> Tensor<B, 4> {
        Tensor::from_data(TensorData::new(self.pixels.clone(), self.size), device)
    }
}

/// Labelled images in batches, read and preprocessed in parallel when they are needed. Images that cannot be read are left
/// out, named on standard error, and counted.
pub struct ImageBatches {
    data: LabelledImages,
    order: Order,
    preprocessor: Preprocessor,
    size: [usize; 2],
    augment: Option<(TrainTransform, Option<Mix>, Key)>,
    unreadable: Mutex<BTreeMap<usize, String>>,
}

impl ImageBatches {
    /// Batches for evaluation: in order, without augmentation.
    ///
    /// - `size`: height and width of the preprocessor's output
    ///
    /// # Errors
    /// There are no images, or the batch size is 0.
    pub fn new(
        data: LabelledImages,
        batch_size: usize,
        preprocessor: Preprocessor,
        size: [usize; 2],
    ) -> Result<Self, DataError> {
        let order = Order::new(data.examples.len(), batch_size)?;
        Ok(Self { data, order, preprocessor, size, augment: None, unreadable: Mutex::default() })
    }

    /// Batches for training: shuffled in each epoch, transformed at random, and mixed where `mix` is given. The last batch of
    /// an epoch is left out if it is not whole, unless it is the only one.
    ///
    /// # Errors
    /// As [`Order::drop_last`].
    pub fn training(self, transform: TrainTransform, mix: Option<Mix>, key: Key) -> Result<Self, DataError> {
        let order = self.order.shuffle(key.fold_in(0));
        let order = if order.examples() > 1 && order.batches_per_epoch() > 1 { order.drop_last()? } else { order };
        Ok(Self { order, augment: Some((transform, mix, key.fold_in(1))), ..self })
    }

    /// Number of images that could not be read so far, and the error of the first.
    pub fn unreadable(&self) -> (usize, Option<String>) {
        let unreadable = self.unreadable.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        (unreadable.len(), unreadable.values().next().cloned())
    }

    /// The number of images and a digest of them, for the settings of a run; see [`LabelledImages::hash_into`].
    pub fn identity(images: &LabelledImages) -> String {
        let mut identity = DataIdentity::new();
        images.hash_into(|part| identity.add(part));
        identity.describe(images.examples.len(), "images")
    }

    fn read(&self, i: usize, key: Option<Key>) -> Option<(Vec<f32>, i64)> {
        let example = &self.data.examples[i];
        let read = example.read().and_then(|image| match (&self.augment, key) {
            (Some((transform, ..)), Some(key)) => {
                transform.apply(&image, &self.preprocessor, self.size, &mut key.fold_in(i as u32).rng())
            }
            _ => self.preprocessor.apply(&image),
        });
        match read {
            Ok(values) => Some((values, example.class as i64)),
            Err(error) => {
                let mut unreadable = self.unreadable.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if unreadable.insert(i, error.to_string()).is_none() && unreadable.len() <= MOST_TOLD {
                    eprintln!("left out: {error}");
                }
                None
            }
        }
    }
}

impl Data for ImageBatches {
    type Batch = ImageBatch;

    fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
        self.order.batches(epoch)
    }

    fn batches_per_epoch(&self) -> usize {
        self.order.batches_per_epoch()
    }

    fn load(&self, epoch: u64, examples: &[usize]) -> Result<ImageBatch, DataError> {
        let augment = self.augment.as_ref().map(|(_, mix, key)| (mix, key.fold_in(epoch as u32)));
        let key = augment.map(|(_, key)| key);
        let read: Vec<(Vec<f32>, i64)> = examples.par_iter().filter_map(|&i| self.read(i, key)).collect();
        if read.is_empty() {
            let (count, first) = self.unreadable();
            let first = first.unwrap_or_default();
            return Err(DataError::other(format!("no image of a batch can be read ({count} in all); {first}")));
        }
        let (n, channels, [h, w]) = (read.len(), self.preprocessor.channels(), self.size);
        let size = [n, channels, h, w];
        let mut pixels = Vec::with_capacity(size.iter().product());
        let mut classes = Vec::with_capacity(n);
        for (values, class) in read {
            pixels.extend(values);
            classes.push(class);
        }
        let mut mixed = None;
        if let (Some((Some(mix), key)), [first, ..]) = (augment, examples) {
            let mut rng = key.fold_in(u32::MAX).fold_in(*first as u32).rng();
            let drawn = mix.draw(n, self.size, &mut rng).map_err(DataError::other)?;
            drawn.apply(&mut pixels, size).map_err(DataError::other)?;
            let others = drawn.partner.iter().map(|&other| classes[other]).collect();
            mixed = Some((others, drawn.lambda));
        }
        Ok(ImageBatch { pixels, size, classes, mixed })
    }
}

/// Mean cross-entropy of a batch, in nats. Mixed images count both classes, each by its weight.
///
/// # Shapes
/// - logits `[b, classes]`
/// - output `[1]`
pub fn image_loss<B: Backend>(logits: Tensor<B, 2>, batch: &ImageBatch, label_smoothing: f64) -> Tensor<B, 1> {
    let device = logits.device();
    let entropy = CrossEntropy { label_smoothing, ..CrossEntropy::default() };
    let of = |logits, classes: &[i64]| entropy.mean(logits, classes_on(classes, &device));
    match &batch.mixed {
        Some((others, lambda)) => {
            of(logits.clone(), &batch.classes).mul_scalar(*lambda) + of(logits, others).mul_scalar(1.0 - *lambda)
        }
        None => of(logits, &batch.classes),
    }
}

/// Scores a model on images. Those that cannot be read do not count.
///
/// # Errors
/// No image of a batch can be read.
pub fn score_images<B: Backend, M: ImageClassifier<B>>(
    model: &M,
    images: &ImageBatches,
    device: &B::Device,
) -> Result<ClassifierScore> {
    let mut score = ClassifierScore::new(model.labels());
    let classes = model.labels().len();
    for batch in epoch(images, 0) {
        let batch = batch?;
        let logits: Vec<f64> = model.logits(batch.pixels(device)).into_data().iter().collect();
        for (logits, &class) in logits.chunks(classes).zip(&batch.classes) {
            score.add(logits, class as usize);
        }
    }
    Ok(score)
}

/// Trains an image classifier and evaluates it on `held_out`: `loss`, `accuracy` and `top5`.
///
/// - `inference`: if true, the model stays in inference mode, without dropout and with its running statistics, as where only
///   its head is trained
///
/// # Errors
/// As [`fit`]; no image of a batch can be read.
#[allow(clippy::too_many_arguments)] // Those of `fit`, and the data of the evaluation.
pub fn fit_images<B, M, T>(
    model: M,
    optimizer: &T,
    data: &Arc<ImageBatches>,
    held_out: Option<&ImageBatches>,
    label_smoothing: f64,
    inference: bool,
    key: Key,
    options: &FitOptions<B>,
    device: &B::Device,
) -> Result<Fitted<M>>
where
    B: Backend,
    M: ImageClassifier<B>,
    M::On<Autodiff<B>>: ImageClassifier<Autodiff<B>>,
    T: GradientTransformation<B, M>,
{
    let loss = |model: M::On<Autodiff<B>>, batch: &ImageBatch, key: Key| {
        let pixels = batch.pixels::<Autodiff<B>>(device);
        let outcome = match inference {
            true => Outcome::<B, M>::new(image_loss(model.logits(pixels), batch, label_smoothing)),
            false => {
                let (logits, successor) = model.logits_in_training(pixels, key);
                Outcome::new(image_loss(logits, batch, label_smoothing)).successor(successor)
            }
        };
        // Images that cannot be read are missing from their batch.
        outcome.weight(batch.classes.len() as f64)
    };
    let evaluate = |model: &M| {
        let Some(held_out) = held_out else { return Ok(Evaluation::default()) };
        let found = score_images(model, held_out, device)?;
        let measures = [found.loss(), found.confusion.accuracy(), found.top5()];
        Ok(["loss", "accuracy", "top5"].map(String::from).into_iter().zip(measures).collect())
    };
    fit(model, optimizer, data, loss, evaluate, key, options)
}
