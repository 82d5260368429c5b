//! Image classification with any model family.

use console::Term;
use grove::{
    images::{ImageError, Limits, Preprocessor, RgbImage, files, open, read},
    models::vision::{ImageClassifier, Prediction},
    tasks::images::classify_images,
    train::log::bar,
};

use super::preprocessor_of;
use crate::{
    inference::InferenceArgs,
    prelude::*,
    program::{progress_bar, tell_small, write_csv},
};

/// Limits of image sizes.
#[derive(Args, Debug, Clone, Copy)]
pub struct SizeArgs {
    /// Maximum number of patches per image for a ViT, whose cost grows with the square of that number
    #[arg(long, value_name = "N", default_value_t = 16384)]
    pub max_patches: usize,
}

impl SizeArgs {
    /// Rejects an image size (height, width) that the model cannot process or that exceeds the limit.
    pub fn check<B: Backend, M: ImageClassifier<B>>(&self, model: &M, size: [usize; 2]) -> Result<(), String> {
        model.check_size(size, self.max_patches).map_err(|error| {
            let patches = size.iter().all(|&side| side > 0) && model.check_size(size, usize::MAX).is_ok();
            let advice = if patches { "make them smaller, or raise --max-patches" } else { "make them larger" };
            format!("{error}: {advice}")
        })
    }
}

/// Suggests a published classifier after the results of the one that ships with grove, which runs without `--model`.
pub fn suggest_published(model: Option<&str>, options: &ClassifyArgs, published: &str) {
    if model.is_none() && !options.inference.json {
        tell_small("model of handwritten digits", published);
    }
}

/// Options of every program that classifies images.
#[derive(Args, Debug)]
pub struct ClassifyArgs {
    /// Images or folders of images; - is standard input [default: an image that ships with grove]
    #[arg(value_name = "IMAGE")]
    pub images: Vec<PathBuf>,

    /// Images or folders of images, same as IMAGE
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub image: Vec<PathBuf>,

    /// Number of classes to show for each image
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top_k: usize,

    /// Images per batch
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub batch_size: usize,

    /// Preprocessing: torchvision, torchvision-v2, vit, timm, timm-imagenet, mnist, cifar10, or a
    /// preprocessor_config.json [default: the files beside the model]
    #[arg(long, value_name = "NAME")]
    pub preprocess: Option<String>,

    /// Limits of image sizes.
    #[command(flatten)]
    pub sizes: SizeArgs,

    /// Write the most probable class of each image to this CSV file, with the columns image, label and score
    #[arg(long, value_name = "FILE.csv", conflicts_with = "top_k")]
    pub output: Option<PathBuf>,

    /// Adapter, device and output.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

impl ClassifyArgs {
    /// Checks the options alone, before any file is read. Returns the device, which may not exist.
    pub fn check(&self) -> Result<DeviceSpec, Exit> {
        at_least_one([("top-k", self.top_k), ("batch-size", self.batch_size)])?;
        self.inference.device.spec()
    }

    /// Returns the given images and folders, or an image that ships with grove.
    pub fn paths(&self) -> Vec<PathBuf> {
        let given = [&*self.images, &*self.image].concat();
        if given.is_empty() { vec![shipped("images/digit.png")] } else { given }
    }

    /// Returns the images, with folders replaced by their images; `-` is standard input.
    fn files(&self) -> Result<Vec<PathBuf>, Exit> {
        let images = self.paths().into_iter().map(|path| match path.as_os_str() == "-" {
            true => Ok(vec![path]),
            false => match files(&path)? {
                found if found.is_empty() => Err(failure(format!("{} has no images", path.display()))),
                found => Ok(found),
            },
        });
        Ok(images.collect::<Result<Vec<_>, Exit>>()?.concat())
    }

    /// Returns the classes of each image, the most probable first.
    fn predict<B: Backend, M: ImageClassifier<B>>(
        &self,
        model: &M,
        preprocessor: &Preprocessor,
        images: &[NamedImage],
        device: &B::Device,
    ) -> Result<Vec<Vec<Prediction>>, Exit> {
        let mut pixels = Vec::with_capacity(images.len());
        for image in images {
            let prepared = preprocessor.prepare(&image.image).map_err(|error| image.failed(error))?;
            let size = [prepared.height() as usize, prepared.width() as usize];
            self.sizes.check(model, size).map_err(|error| image.failed(error))?;
            pixels.push((size, preprocessor.normalise(&prepared).map_err(|error| image.failed(error))?));
        }
        Ok(classify_images(model, &pixels, self.top_k, device)?)
    }
}

/// Image and its source.
pub struct NamedImage {
    /// File name, or `-`.
    pub name: String,
    /// The image.
    pub image: RgbImage,
}

impl NamedImage {
    fn read(path: &Path) -> Result<Self, ImageError> {
        let image = match path.as_os_str() == "-" {
            true => read(std::io::stdin().lock(), Path::new("standard input"), &Limits::default()),
            false => open(path, &Limits::default()),
        };
        Ok(Self { name: path.display().to_string(), image: image? })
    }

    /// Returns an error with the name of the image.
    pub fn failed(&self, error: impl std::fmt::Display) -> Exit {
        failure(format!("{}: {error}", self.name))
    }
}

/// Maximum number of unreadable images whose errors are printed; all are counted.
const MAX_ERRORS: usize = 20;

/// Loads a model and prints the classes of the images. Unreadable images are reported on standard error and skipped. `look` is
/// called for each image, with the model and the preprocessing, before its classes are printed.
pub fn classify<B: Backend, M: ImageClassifier<B>>(
    options: &ClassifyArgs,
    path: &Path,
    device: &B::Device,
    mut look: impl FnMut(&M, &Preprocessor, &NamedImage) -> Result<(), Exit>,
) -> Result<(), Exit> {
    let files = options.inference.files(path)?;
    let path = files.path();
    let (model, _) = files.load::<B, M>(device, options.inference.dtype())?;
    let named = path.display();
    if model.labels().is_empty() {
        return Err(failure(format!(
            "{named} has no classification head: `grove finetune images` or --example finetune_vision trains one"
        )));
    }
    let preprocessor = preprocessor_of(options.preprocess.as_deref(), path, model.channels())?;
    let paths = options.files()?;
    let progress = progress_bar(paths.len(), "images");
    let (mut all, mut best, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for batch in paths.chunks(options.batch_size) {
        let mut images = Vec::with_capacity(batch.len());
        for path in batch {
            match NamedImage::read(path) {
                Ok(image) => images.push(image),
                Err(error) if paths.len() == 1 => return Err(error.into()),
                Err(error) => {
                    if unreadable.len() < MAX_ERRORS {
                        progress.suspend(|| eprintln!("left out: {error}"));
                    }
                    unreadable.push(error);
                }
            }
            progress.inc(1);
        }
        let found = options.predict(&model, &preprocessor, &images, device)?;
        for (image, found) in images.into_iter().zip(found) {
            look(&model, &preprocessor, &image)?;
            if !options.inference.json && options.output.is_none() {
                progress.suspend(|| write_line(&format!("{}\n{}\n", image.name, bars(&found, width()))))?;
            }
            best.extend(found.first().map(|found| (image.name.clone(), found.clone())));
            all.push(json!({ "image": image.name, "labels": found }));
        }
    }
    progress.finish_and_clear();
    let skipped = unreadable.len();
    if let Some(error) = unreadable.get(MAX_ERRORS..).and_then(<[_]>::last) {
        eprintln!("left out: {} more, the last of them: {error}", skipped - MAX_ERRORS);
    }
    if skipped == paths.len() {
        return Err(failure(format!("none of the {skipped} images can be read")));
    }
    if let Some(file) = &options.output {
        write_predictions(file, &best)?;
    }
    if options.inference.json {
        let output = &options.output;
        return write_json(&json!({ "model": named.to_string(), "skipped": skipped, "images": all, "output": output }));
    }
    if skipped > 0 {
        let were = if skipped == 1 { "was left out: it" } else { "were left out: they" };
        eprintln!("{} {were} cannot be read", counted(skipped, "image"));
    }
    match &options.output {
        Some(file) => write_line(&format!("{} has {}", file.display(), counted(best.len(), "prediction"))),
        None => Ok(()),
    }
}

/// Writes the name of each image, its most probable class and its score.
fn write_predictions(file: &Path, best: &[(String, Prediction)]) -> Result<(), Exit> {
    let row = |(image, best): &(String, Prediction)| vec![image.clone(), best.label.clone(), best.score.to_string()];
    write_csv(file, ["image", "label", "score"], best.iter().map(row))
}

/// Length of the bar of probability 1, in characters, on a terminal of 80 columns or more.
const WIDTH: usize = 30;

/// Length of the bar of probability 1 on the terminal of standard output, if there is one.
fn width() -> usize {
    Term::stdout().size_checked().map_or(WIDTH, |(_, columns)| WIDTH.min(3 * usize::from(columns) / 8))
}

/// Formats one line per prediction: probability, bar and class.
fn bars(predictions: &[Prediction], width: usize) -> String {
    let line = |Prediction { score, label, .. }: &Prediction| {
        format!("{:5.1} %  {:<width$}  {label}", 100.0 * score, bar(*score, width))
    };
    predictions.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_lengths_are_proportional_to_probabilities() {
        let prediction = |score| Prediction { class: 0, label: "owl".into(), score };
        let lines = bars(&[prediction(1.0), prediction(0.5), prediction(0.01)], 30);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0].matches('█').count(), 30);
        assert_eq!(lines[1].matches('█').count(), 15);
        assert_eq!(lines[2].matches(['█', '▎']).count(), 1);
        assert!(lines[2].starts_with("  1.0 %") && lines[2].ends_with("  owl"));
    }
}
