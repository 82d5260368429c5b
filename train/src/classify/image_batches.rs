//! Batches of labelled images.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_images::{
    Preprocessor,
    augment::{Mix, TrainTransform},
    datasets::LabelledImages,
};
use grove_tree::{Array, Key, Tree};
use rayon::prelude::*;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::{
    DataIdentity,
    arrays::integers,
    data::{Data, DataError, Order},
};

/// Number of unreadable images that are reported on standard error; all are counted.
const MAX_REPORTED: usize = 20;

/// Number of images to try as a replacement for the unreadable images of a batch.
const MAX_TRIES: usize = 64;

/// A batch of preprocessed images and their classes.
#[derive(Clone, Debug)]
pub struct ImageBatch {
    pixels: Vec<f32>,
    /// Shape `[b, c, h, w]`.
    size: [usize; 4],
    /// Class of each image.
    pub classes: Vec<i64>,
    /// For images that mixup or CutMix mixed: the class of each partner, and the weight of the original image's class.
    pub mixed: Option<(Vec<i64>, f32)>,
}

impl ImageBatch {
    /// Returns the pixels on a device, `[b, c, h, w]`.
    pub fn pixels<B: Backend>(&self, device: &B::Device) -> Tensor<B, 4> {
        Tensor::from_data(TensorData::new(self.pixels.clone(), self.size), device)
    }

    /// Returns the classes on a device.
    pub fn targets<B: Backend>(&self, device: &B::Device) -> ImageTargets<B> {
        let mixed = self.mixed.as_ref().map(|(others, lambda)| {
            (
                integers(others.clone(), device),
                Array::new(Tensor::from_data(TensorData::new(vec![*lambda], [1]), device)),
            )
        });
        ImageTargets { classes: integers(self.classes.clone(), device), mixed }
    }
}

/// Classes of a batch of images.
#[derive(Tree, Clone, Debug)]
pub struct ImageTargets<B: Backend> {
    /// Class of each image, `[b]`.
    pub classes: Array<B, 1, Int>,
    /// For images that mixup or CutMix mixed: the class of each partner, `[b]`, and the weight of the original image's
    /// class, `[1]`.
    pub mixed: Option<(Array<B, 1, Int>, Array<B, 1>)>,
}

/// Batches of labelled images, read and preprocessed in parallel on demand. Unreadable images are skipped, reported on
/// standard error, and counted. If only one image of a training batch is readable, an image from outside the batch
/// joins it.
pub struct ImageBatches {
    data: LabelledImages,
    pub(super) order: Order,
    preprocessor: Preprocessor,
    pub(super) size: [usize; 2],
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

    /// Batches for training: shuffled in each epoch, randomly transformed, and mixed if `mix` is given. The incomplete
    /// last batch of an epoch is dropped, unless it is the only one.
    ///
    /// # Errors
    /// As [`Order::drop_last`].
    pub fn training(self, transform: TrainTransform, mix: Option<Mix>, key: Key) -> Result<Self, DataError> {
        let order = self.order.shuffle(key.fold_in(0));
        let order = if order.examples() > 1 && order.batches_per_epoch() > 1 { order.drop_last()? } else { order };
        Ok(Self { order, augment: Some((transform, mix, key.fold_in(1))), ..self })
    }

    /// Number of images found unreadable so far, and the error of the first.
    pub fn unreadable(&self) -> (usize, Option<String>) {
        let unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        (unreadable.len(), unreadable.values().next().cloned())
    }

    /// Returns the number of images and a digest of them, for the settings of a run; see [`LabelledImages::hash_into`].
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
                let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
                if unreadable.insert(i, error.to_string()).is_none() && unreadable.len() <= MAX_REPORTED {
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
        let mut read: Vec<(Vec<f32>, i64)> = examples.par_iter().filter_map(|&i| self.read(i, key)).collect();
        // Batch normalisation needs at least two images.
        if let (Some(&last), 1, true) = (examples.last(), read.len(), key.is_some() && examples.len() > 1) {
            let count = self.data.examples.len();
            let others = (1..=count.min(MAX_TRIES)).map(|step| (last + step) % count);
            read.extend(others.filter(|i| !examples.contains(i)).find_map(|i| self.read(i, key)));
        }
        if read.is_empty() {
            let (count, first) = self.unreadable();
            let first = first.unwrap_or_default();
            return Err(DataError::NoneReadable(format!("no image of a batch can be read ({count} in all); {first}")));
        }
        let (n, [h, w]) = (read.len(), self.size);
        let size = [n, self.preprocessor.channels(), h, w];
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
