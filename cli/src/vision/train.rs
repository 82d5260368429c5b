//! Training and evaluation of image classifiers of any model family.

use std::collections::HashSet;

use grove::{
    files::FileError,
    images::{Preprocessor, datasets::LabelledImages},
    models::{
        check_finite,
        vision::{ImageClassifier, TrainableImageClassifier},
    },
    train::{
        ClassifierScore,
        classify::{ImageBatches, ImageTask, fit_images, score_images, score_images_on},
        data::Data,
    },
    tree::format_bytes,
};

use super::{ImageArgs, ImageColumns, SizeArgs};
use crate::{
    labelled::{hold_out, listed, warn_missing_classes},
    memory::shortage,
    prelude::*,
    training::Job,
};

/// Training data and held-out data.
pub struct Split {
    /// Training data.
    pub training: LabelledImages,
    /// Held-out data.
    pub held_out: Option<LabelledImages>,
}

impl Split {
    /// Opens the data of `--data`, or the digits that ship with grove.
    pub fn open(args: &ImageArgs) -> Result<Self, Exit> {
        let path = args.path();
        let (training, found) = args.columns.open(&path)?;
        let held_out = match &args.held_out {
            Some(path) => Some(args.columns.open(path)?.0),
            None => found,
        };
        if held_out.is_some() || args.val_fraction() == 0.0 {
            let held_out = held_out.map(|held_out| held_out.relabelled(&training.labels)).transpose()?;
            return Ok(Self { training, held_out });
        }
        let (examples, fraction) = (training.examples.clone(), args.val_fraction());
        let (rest, held) = hold_out(examples, |example| example.class, fraction, args.run.seed, ("images", &[path]))?;
        let part = |examples| LabelledImages { examples, ..training.clone() };
        Ok(Self { held_out: Some(part(held)), training: part(rest) })
    }

    /// Returns the same images with class indices by these labels.
    pub fn relabelled(self, labels: &[String]) -> Result<Self, Exit> {
        let held_out = self.held_out.map(|held_out| held_out.relabelled(labels)).transpose()?;
        Ok(Self { training: self.training.relabelled(labels)?, held_out })
    }
}

/// Returns the size (height, width) of the preprocessed images.
///
/// # Errors
/// Images get different sizes, the model cannot process the size, or a batch does not fit into memory.
pub fn output_size<B: Backend, M: ImageClassifier<B>>(
    preprocessor: &Preprocessor,
    model: &M,
    sizes: &SizeArgs,
    batch_size: usize,
) -> Result<[usize; 2], Exit> {
    let size = preprocessor.size().ok_or_else(|| {
        usage("the preprocessed images differ in size: choose a --preprocess that crops, or give --image-size")
    })?;
    sizes.check(model, size).map_err(failure)?;
    let factors = size.into_iter().chain([batch_size, preprocessor.channels(), size_of::<f32>()]);
    let bytes = factors.fold(1_usize, usize::saturating_mul);
    let (Some(available), [height, width]) = (shortage(bytes), size) else { return Ok(size) };
    let (needed, available) = (format_bytes(bytes), format_bytes(available));
    Err(failure(format!(
        "{batch_size} images of {height}x{width} pixels need {needed} of memory, but only {available} is available: choose \
          a smaller --image-size or --batch-size"
    )))
}

/// Inputs of a run.
pub struct VisionJob<'a, B: Backend> {
    /// Options of every command that trains on images.
    pub args: &'a ImageArgs,
    /// Preprocessing of the images.
    pub preprocessor: Preprocessor,
    /// Setup of the run.
    pub setup: Setup<'a, B>,
    /// If true, the model stays in inference mode, because only its head is trained.
    pub inference: bool,
}

/// Trains a model and prints its metrics.
pub fn train<B, M, T>(
    job: VisionJob<'_, B>,
    split: Split,
    model: M,
    optimizer: impl FnOnce(&M, &Schedule) -> Result<T, Exit>,
    device: &B::Device,
) -> Result<Ended, Exit>
where
    B: Backend,
    M: TrainableImageClassifier<B>,
    T: GradientTransformation<B, M>,
{
    let VisionJob { args, preprocessor, mut setup, inference } = job;
    let (run, key, batch_size) = (&args.run, Key::new(args.run.seed), args.run.training.batch_size);
    let size = output_size(&preprocessor, &model, &args.sizes, batch_size.min(split.training.examples.len()))?;
    let held_out = split.held_out.as_ref();
    setup.settings = setup
        .settings
        .or(args.run_settings())
        .with("parameters", tree::count_params(&model))
        .with("labels", model.labels().join(","))
        .with("preprocessing", format!("{preprocessor:?}"))
        .with("data", ImageBatches::identity(&split.training))
        .with_option("held-out", held_out.map(ImageBatches::identity));
    let counts = [split.training.examples.len(), held_out.map_or(0, |data| data.examples.len())];
    warn_missing_classes(model.labels(), held_out.iter().flat_map(|data| &data.examples).map(|example| example.class));
    let images = |data| ImageBatches::new(data, batch_size, preprocessor.clone(), size);
    let data = images(split.training)?.training(args.transform(), args.mix(), key.fold_in(2))?;
    let held_out = split.held_out.map(images).transpose()?;
    let job = setup.job(&model, data, Some(model.labels().len()), ("images", batch_size), counts)?;
    let optimizer = optimizer(&model, &job.schedule)?;
    let Job { data, settings, .. } = &job;
    let task =
        ImageTask { held_out: held_out.as_ref(), label_smoothing: args.label_smoothing, inference, jit: run.jit };
    let fitted = fit_images(model, &optimizer, data, task, job.key, settings, device)?;
    let save = |model: M, directory: &Path| {
        model.save_pretrained(directory)?;
        let file = directory.join("preprocessor_config.json");
        preprocessor.save(&file).map_err(|error| FileError::json(file, error.to_string()))?;
        Ok(())
    };
    let (model, summary) = job.save::<M>(fitted, save)?;
    let (unreadable, first) = job.data.unreadable();
    let ranks = ranks();
    let sums = ranks.all_reduce("the number of unreadable images", vec![unreadable as f64]);
    let unreadable = sums.unwrap_or_else(|error| ranks.end_job(&error))[0] as usize;
    if unreadable > 0 {
        let first = first.map_or(String::new(), |first| format!("; the first: {first}"));
        let were = if unreadable == 1 { "was" } else { "were" };
        let images = counted(unreadable, "image");
        tell(format_args!("{images} could not be read and {were} left out of the training{first}"));
    }
    let found = held_out.as_ref().map(|held_out| score_images_on(&ranks, &model, held_out, device)).transpose()?;
    let evaluation = found.as_ref().zip(held_out.as_ref()).map(|(found, images)| score_json(found, images)).into();
    let scripts = [("unreadable", unreadable.into()), ("evaluation", evaluation)];
    summary.report_classifier(run, &job.output, found.as_ref(), ("image", 2), scripts)
}

/// Returns the metrics of an image classifier as JSON.
fn score_json(score: &ClassifierScore, images: &ImageBatches) -> Value {
    let mut found = score.json();
    found["top5"] = json!(score.top5());
    found["images"] = json!(score.confusion.count());
    // Computed from the counts, because each rank knows only its own unreadable images.
    let images: usize = images.order(0).iter().map(Vec::len).sum();
    found["unreadable"] = json!(images - score.confusion.count());
    found
}

/// Returns the images with the class indices of the model. Fails if the model does not have one of the classes.
fn of_model(images: LabelledImages, labels: &[String]) -> Result<LabelledImages, Exit> {
    let known: HashSet<&String> = labels.iter().collect();
    let unknown: Vec<&str> = images.labels.iter().filter(|label| !known.contains(label)).map(String::as_str).collect();
    if unknown.is_empty() {
        return Ok(images.relabelled(labels)?);
    }
    Err(failure(format!(
        "the model does not know these classes of the images: {}; it has {}, such as {}; classes are matched by name",
        listed(&unknown),
        labels.len(),
        labels.first().map_or("none", String::as_str)
    )))
}

/// Images of an evaluation.
pub struct EvaluationImages {
    /// The images.
    pub images: LabelledImages,
    /// Path of the data set of which the images are the evaluation part, if they are one.
    pub part_of: Option<PathBuf>,
}

impl EvaluationImages {
    /// Opens the evaluation part of a data set, or all of its images if it has no such part.
    pub fn open(path: &Path, columns: &ImageColumns) -> Result<Self, Exit> {
        let (all, part) = columns.open(path)?;
        Ok(match part {
            Some(images) => Self { images, part_of: Some(path.into()) },
            None => Self { images: all, part_of: None },
        })
    }
}

/// An evaluation of an image classifier.
pub struct ImageEvaluation<'a> {
    /// Labelled images.
    pub images: EvaluationImages,
    /// Limits of image sizes.
    pub sizes: &'a SizeArgs,
    /// Images per batch.
    pub batch_size: usize,
    /// Type of the weights and of the computation.
    pub dtype: Dtype,
    /// If true, prints one JSON object.
    pub json: bool,
}

impl ImageEvaluation<'_> {
    /// Prints the metrics of a model on the images. Classes are matched by name.
    pub fn run<B: Backend, M: ImageClassifier<B>>(
        self,
        files: &ModelFiles,
        preprocessor: impl FnOnce(&M) -> Result<Preprocessor, Exit>,
        device: &B::Device,
    ) -> Result<Ended, Exit> {
        let (model, _) = files.load::<B, M>(device, Some(self.dtype.into()))?;
        let preprocessor = preprocessor(&model)?;
        let data = of_model(self.images.images, model.labels())?;
        let size = output_size(&preprocessor, &model, self.sizes, self.batch_size.min(data.examples.len()))?;
        if let Some(place) = &self.images.part_of {
            let count = counted(data.examples.len(), "image");
            tell(format_args!("evaluating the {count} of the evaluation part of {}", place.display()));
        }
        warn_missing_classes(model.labels(), data.examples.iter().map(|example| example.class));
        let images = ImageBatches::new(data, self.batch_size, preprocessor, size)?;
        let score = score_images(&model, &images, device)?;
        check_finite(&model, [score.loss()])?;
        let (count, accuracy) = (score.confusion.count(), 100.0 * score.confusion.accuracy());
        // With at most five classes, top-5 accuracy is always 100 %.
        let top5 = match model.labels().len() > 5 {
            true => format!("top-5 {:.2} %, ", 100.0 * score.top5()),
            false => String::new(),
        };
        let (f1, loss, table) = (100.0 * score.confusion.macro_f1(), score.loss(), score.confusion.table());
        let text = format!(
            "{}, {accuracy:.2} % right, {top5}macro F1 {f1:.2} %, {loss:.4} nats an image\n\n{table}",
            counted(count, "image")
        );
        report(self.json, &score_json(&score, &images), &text)
    }
}
