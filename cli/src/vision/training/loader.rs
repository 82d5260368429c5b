//! Images in batches, read and changed on the way.

use grove::{
    images::{Preprocessor, datasets::LabelledImages},
    models::vision::ImageClassifier,
    prelude::*,
    tensor::TensorData,
    train::data::{Data, DataError, Order},
};
use rayon::prelude::*;
use std::{collections::BTreeMap, sync::Mutex};

use super::AugmentArgs;
use crate::{Exit, failure, memory, vision::SizeArgs};

/// Images as a model reads them, and what they are of.
pub struct Batch {
    pixels: Vec<f32>,
    /// `[b, c, h, w]`.
    size: [usize; 4],
    /// Class of each image.
    pub classes: Vec<i64>,
    /// For mixed images: the class of the other image, and the weight of the first.
    pub mixed: Option<(Vec<i64>, f32)>,
}

impl Batch {
    /// The pixels on a device, `[b, c, h, w]`.
    pub fn pixels<B: Backend>(&self, device: &B::Device) -> Tensor<B, 4> {
        Tensor::from_data(TensorData::new(self.pixels.clone(), self.size), device)
    }
}

/// Images in batches; those that cannot be read are left out, and remembered.
pub struct Images {
    data: LabelledImages,
    order: Order,
    preprocessor: Preprocessor,
    size: [usize; 2],
    /// With what key images are changed, where they are.
    augment: Option<(AugmentArgs, Key)>,
    unreadable: Mutex<BTreeMap<usize, String>>,
}

impl Images {
    /// For evaluation: in order, unchanged. For [`training`](Self::training) see there.
    pub fn new(
        data: LabelledImages,
        batch_size: usize,
        preprocessor: Preprocessor,
        size: [usize; 2],
    ) -> Result<Self, DataError> {
        let order = Order::new(data.examples.len(), batch_size)?;
        Ok(Self { data, order, preprocessor, size, augment: None, unreadable: Mutex::default() })
    }

    /// In another random order in each epoch, and changed; the last images of an epoch are left out where they are no
    /// whole batch.
    pub fn training(self, augment: AugmentArgs, key: Key) -> Result<Self, DataError> {
        let order = self.order.shuffle(key.fold_in(0));
        let order = if order.examples() > 1 && order.batches_per_epoch() > 1 { order.drop_last()? } else { order };
        Ok(Self { order, augment: Some((augment, key.fold_in(1))), ..self })
    }

    /// Images that could not be read, up to now: how many, and what is wrong with the first.
    pub fn unreadable(&self) -> (usize, Option<String>) {
        let unreadable = self.unreadable.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        (unreadable.len(), unreadable.values().next().cloned())
    }

    fn read(&self, i: usize, key: Option<Key>) -> Option<(Vec<f32>, i64)> {
        let example = &self.data.examples[i];
        let read = example.read().and_then(|image| match (&self.augment, key) {
            (Some((augment, _)), Some(key)) => {
                augment.apply(&image, &self.preprocessor, self.size, &mut key.fold_in(i as u32).rng())
            }
            _ => self.preprocessor.apply(&image),
        });
        match read {
            Ok(values) => Some((values, example.class as i64)),
            Err(error) => {
                let mut unreadable = self.unreadable.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if unreadable.insert(i, error.to_string()).is_none() && unreadable.len() <= 20 {
                    eprintln!("left out: {error}");
                }
                None
            }
        }
    }
}

impl Data for Images {
    type Batch = Batch;

    fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
        self.order.batches(epoch)
    }

    fn batches_per_epoch(&self) -> usize {
        self.order.batches_per_epoch()
    }

    fn load(&self, epoch: u64, examples: &[usize]) -> Result<Batch, DataError> {
        let key = self.augment.as_ref().map(|(_, key)| key.fold_in(epoch as u32));
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
        let mix = self.augment.as_ref().and_then(|(augment, _)| augment.mix());
        if let (Some(mix), Some(key), [first, ..]) = (mix, key, examples) {
            let mut rng = key.fold_in(u32::MAX).fold_in(*first as u32).rng();
            let drawn = mix.draw(n, self.size, &mut rng).map_err(|error| DataError::other(error.to_string()))?;
            drawn.apply(&mut pixels, size).map_err(|error| DataError::other(error.to_string()))?;
            let others = drawn.partner.iter().map(|&other| classes[other]).collect();
            mixed = Some((others, drawn.lambda));
        }
        Ok(Batch { pixels, size, classes, mixed })
    }
}

/// The size in which images come out, which must be one for all, which the model must read, and of which a batch must fit
/// into memory.
pub fn output_size<B: Backend, M: ImageClassifier<B>>(
    preprocessor: &Preprocessor,
    model: &M,
    sizes: &SizeArgs,
    batch_size: usize,
) -> Result<[usize; 2], Exit> {
    let size = preprocessor.size().ok_or_else(|| {
        Exit::Usage("images come out in different sizes: choose a --preprocess that crops, or --image-size".into())
    })?;
    sizes.check(model, size).map_err(failure)?;
    let factors = size.into_iter().chain([batch_size, preprocessor.channels(), size_of::<f32>()]);
    let bytes = factors.fold(1_usize, usize::saturating_mul);
    match memory::available() {
        Some(available) if bytes > available => Err(failure(format!(
            "{batch_size} images of {}x{} pixels need {} of memory, and this machine has {} to give: choose a smaller \
             --image-size or --batch-size",
            size[0],
            size[1],
            memory::gib(bytes),
            memory::gib(available)
        ))),
        _ => Ok(size),
    }
}
