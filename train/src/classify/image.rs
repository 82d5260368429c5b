//! Training and evaluation of image classifiers.

use burn::tensor::{Int, Tensor};
use grove_backend::{Autodiff, Backend};
use grove_compile::Traced;
use grove_distributed::Communicator;
use grove_layers::loss::CrossEntropy;
use grove_models::vision::{ImageClassifier, TrainableImageClassifier};
use grove_optim::GradientTransformation;
use grove_tree::{Array, Key, Tree};
use std::sync::Arc;

use super::{ImageBatch, ImageBatches, ImageTargets};
use crate::{
    ClassifierScore, Differentiated, Evaluation, FitOptions, Fitted, JitLoss, Outcome, Result,
    data::{Data, DataError},
    fit, fit_jitted,
    ranks::or_end,
};

/// Mean cross-entropy of a batch, in nats. The loss of a mixed image is the weighted mean over its two classes.
///
/// # Shapes
/// - logits `[b, classes]`
/// - output `[1]`
pub fn image_loss<B: Backend>(logits: Tensor<B, 2>, targets: &ImageTargets<B>, label_smoothing: f64) -> Tensor<B, 1> {
    let entropy = CrossEntropy { label_smoothing, ..CrossEntropy::default() };
    let of = |classes: &Array<B, 1, Int>| entropy.mean(logits.clone(), classes.val());
    let loss = of(&targets.classes);
    match &targets.mixed {
        Some((others, lambda)) => {
            let lambda = lambda.val().cast(loss.dtype());
            loss * lambda.clone() + of(others) * (-lambda + 1.0)
        }
        None => loss,
    }
}

/// Scores a model on images. Unreadable images do not count.
///
/// # Errors
/// No image can be read.
pub fn score_images<B: Backend, M: ImageClassifier<B>>(
    model: &M,
    images: &ImageBatches,
    device: &B::Device,
) -> Result<ClassifierScore> {
    score_images_on(&Communicator::single(), model, images, device)
}

/// [`score_images`] distributed over all ranks of a job: each rank scores its share of the batches and gets the score
/// of all images. A failed collective ends the job; see [`Communicator::end_job`].
///
/// # Errors
/// No image of any rank can be read; every rank returns the error.
pub fn score_images_on<B: Backend, M: ImageClassifier<B>>(
    ranks: &Communicator,
    model: &M,
    images: &ImageBatches,
    device: &B::Device,
) -> Result<ClassifierScore> {
    let mut score = ClassifierScore::new(model.labels());
    let classes = model.labels().len();
    for examples in images.order(0).into_iter().skip(ranks.rank()).step_by(ranks.size()) {
        let batch = match images.load(0, &examples) {
            Err(DataError::NoneReadable(_)) => continue, // its images are counted as unreadable
            loaded => loaded?,
        };
        let logits: Vec<f64> = model.logits(batch.pixels(device)).into_data().iter().collect();
        for (logits, &class) in logits.chunks(classes).zip(&batch.classes) {
            score.add(logits, class as usize);
        }
    }
    let score = or_end(score.over(ranks), ranks);
    if score.confusion.count() > 0 {
        return Ok(score);
    }
    let reason = match images.unreadable() {
        (count, Some(first)) => format!("no image can be read ({count} in all); {first}"),
        // This rank has no images.
        (_, None) => "no image of the other ranks can be read".into(),
    };
    Err(DataError::NoneReadable(reason).into())
}

/// Loss and evaluation of [`fit_images`].
#[derive(Clone, Copy)]
pub struct ImageTask<'a> {
    /// Evaluation images.
    pub held_out: Option<&'a ImageBatches>,
    /// Label smoothing of the loss.
    pub label_smoothing: f64,
    /// If true, the model stays in inference mode, without dropout and with fixed running statistics, such as when only
    /// the head is trained.
    pub inference: bool,
    /// If true, the loss and its gradient are compiled, as in [`fit_jitted`].
    pub jit: bool,
}

/// Trains an image classifier. Its evaluations have the metrics `loss`, `accuracy`, `macro_f1` and `top5`.
///
/// # Errors
/// As [`fit`]; no image of a training batch, or of the evaluation, can be read; a batch is too small for the model's
/// batch normalisation.
pub fn fit_images<B, M, T>(
    model: M,
    optimizer: &T,
    data: &Arc<ImageBatches>,
    task: ImageTask<'_>,
    key: Key,
    options: &FitOptions<B>,
    device: &B::Device,
) -> Result<Fitted<M>>
where
    B: Backend,
    M: TrainableImageClassifier<B>,
    T: GradientTransformation<B, M>,
{
    let evaluate = |model: &M| {
        let Some(held_out) = task.held_out else { return Ok(Evaluation::default()) };
        let found = score_images_on(&options.ranks, model, held_out, device)?;
        let (accuracy, macro_f1) = (found.confusion.accuracy(), found.confusion.macro_f1());
        let metrics = [("loss", found.loss()), ("accuracy", accuracy), ("macro_f1", macro_f1), ("top5", found.top5())];
        Ok(metrics.map(|(name, value)| (name.to_owned(), value)).into())
    };
    // Ranks share their statistics.
    if !task.inference && !options.ranks.is_shared() {
        model.check_batch(data.order.smallest_batch(), data.size)?;
    }
    // Unreadable images are missing from the batch and have no weight.
    let weight = |batch: &ImageBatch| batch.classes.len() as f64;
    if !task.jit {
        let loss = |model: M::On<Autodiff<B>>, batch: &ImageBatch, key: Key| {
            outcome::<B, M>(&model, batch.pixels(device), &batch.targets(device), key, task).weight(weight(batch))
        };
        return fit(model, optimizer, data, loss, evaluate, key, options);
    }
    let arrays = |_: &M, batch: &ImageBatch, _| {
        ((Array::<B, 4>::new(batch.pixels(device)), batch.targets::<B>(device)), weight(batch))
    };
    let loss = |model: Differentiated<B, M>, (pixels, targets): (Array<_, 4>, ImageTargets<_>), key| {
        outcome::<Traced, M::OnTraced>(&model, pixels.val(), &targets, key, task)
    };
    fit_jitted::<B, M, _, _, _, _, _, _>(model, optimizer, data, JitLoss { arrays, loss }, evaluate, key, options)
}

/// Returns the loss of a batch in training mode and the model with updated running statistics; or the loss in inference
/// mode.
fn outcome<B: Backend, M: Tree<B, On<Autodiff<B>>: ImageClassifier<Autodiff<B>>>>(
    model: &M::On<Autodiff<B>>,
    pixels: Tensor<Autodiff<B>, 4>,
    targets: &ImageTargets<Autodiff<B>>,
    key: Key,
    task: ImageTask<'_>,
) -> Outcome<B, M> {
    if task.inference {
        return Outcome::new(image_loss(model.logits(pixels), targets, task.label_smoothing));
    }
    let (logits, successor) = model.logits_in_training(pixels, key);
    Outcome::new(image_loss(logits, targets, task.label_smoothing)).successor(successor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunDuration;
    use grove_images::{Preprocessor, datasets::open_labelled};
    use grove_models::{Pretrained, ResNet, ResNetConfig};
    use grove_optim::{Sgd, sgd};

    type Flex = burn_flex::Flex;

    #[test]
    fn batches_without_a_readable_image_are_left_out_of_a_score() {
        let directory = tempfile::tempdir().unwrap();
        let put = |class: &str, name: &str, whole: bool| {
            let file = directory.path().join(class).join(name);
            std::fs::create_dir_all(directory.path().join(class)).unwrap();
            match whole {
                true => drop(std::fs::copy("../models/assets/images/digit.png", file).unwrap()),
                false => std::fs::write(file, "no image").unwrap(),
            }
        };
        for (class, name, whole) in
            [("a", "0.png", true), ("a", "1.png", false), ("b", "0.png", true), ("b", "1.png", false)]
        {
            put(class, name, whole);
        }
        let (images, _) = open_labelled(directory.path(), |_| ()).unwrap();
        let config = ResNetConfig::basic(1, 28, vec![4, 8], vec![1, 1]).with_labels(images.labels.clone());
        let model = || ResNet::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
        let batches = |size: usize| {
            let preprocessor = Preprocessor::for_images(Some([1, 28, 28]), 28).unwrap();
            ImageBatches::new(images.clone(), size, preprocessor, [28, 28]).unwrap()
        };
        let score = |size: usize| {
            let batches = batches(size);
            let score = score_images::<Flex, _>(&model(), &batches, &Default::default());
            (score, batches.unreadable().0)
        };
        // With one image in each batch, two batches have none that is readable.
        let [(one, unreadable), (two, _)] = [score(1), score(2)];
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!((one.confusion.count(), two.confusion.count(), unreadable), (2, 2, 2));
        assert!((one.loss() - two.loss()).abs() < 1e-6, "{} and {}", one.loss(), two.loss());
        // The second rank has only unreadable images.
        std::thread::scope(|scope| {
            for ranks in Communicator::threads(2) {
                let (model, batches, one) = (&model, &batches, &one);
                scope.spawn(move || {
                    let device = Default::default();
                    let found = score_images_on::<Flex, _>(&ranks, &model(), &batches(1), &device).unwrap();
                    assert_eq!(found.confusion, one.confusion);
                });
            }
        });

        put("a", "0.png", false);
        put("b", "0.png", false);
        let error = score(3).0.unwrap_err().to_string();
        assert!(error.contains("no image can be read (4 in all)") && error.contains("0.png"), "{error}");
    }

    /// As PyTorch's "Expected more than 1 value per channel when training".
    #[test]
    fn a_batch_without_a_variance_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (class, name) in [("a", "0.png"), ("b", "1.png"), ("b", "2.png")] {
            std::fs::create_dir_all(directory.path().join(class)).unwrap();
            std::fs::copy("../models/assets/images/digit.png", directory.path().join(class).join(name)).unwrap();
        }
        let (images, _) = open_labelled(directory.path(), |_| ()).unwrap();
        let fitted = |side: usize, stages: usize, batch_size: usize, inference: bool| {
            let (widths, depths) = (vec![4; stages], vec![1; stages]);
            let config = ResNetConfig::basic(1, side, widths, depths).with_labels(images.labels.clone());
            let model = ResNet::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
            let preprocessor = Preprocessor::for_images(Some([1, side, side]), side as u32).unwrap();
            let batches = ImageBatches::new(images.clone(), batch_size, preprocessor, [side; 2]).unwrap();
            let task = ImageTask { held_out: None, label_smoothing: 0.0, inference, jit: false };
            let options = FitOptions { length: RunDuration::Steps(1), ..FitOptions::default() };
            let (optimizer, data) = (sgd::<Flex>(0.1, Sgd::default()), Arc::new(batches));
            fit_images::<Flex, _, _>(model, &optimizer, &data, task, Key::new(1), &options, &Default::default())
                .map(drop)
        };
        let error = fitted(8, 4, 1, false).unwrap_err().to_string();
        assert!(error.contains("a batch of one image of 8x8 pixels"), "{error}");
        // The last of two batches has one image.
        assert!(fitted(8, 4, 2, false).is_err());
        fitted(8, 4, 1, true).unwrap();
        fitted(8, 4, 3, false).unwrap();
        fitted(28, 2, 1, false).unwrap();
    }
}
