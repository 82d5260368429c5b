//! Classification metrics and their report.

use grove::{
    images::Preprocessor,
    models::{check_finite, vision::ImageClassifier},
    prelude::*,
    train::{ClassifierScore, Ended, data::epoch},
};
use serde_json::{Value, json};

use super::{ImageArgs, Images, Split, loader::output_size};
use crate::{Exit, failure, labelled::tell_unheld, vision::Published, write_json, write_line};

/// Results of an evaluation.
pub struct Scored {
    /// Confusion matrix and loss of the others.
    pub score: ClassifierScore,
    /// Images that could not be read.
    pub unreadable: usize,
}

/// Looks at all images.
pub fn score<B: Backend, M: ImageClassifier<B>>(
    model: &M,
    images: &Images,
    device: &B::Device,
) -> Result<Scored, Exit> {
    let mut score = ClassifierScore::new(model.labels());
    let classes = model.labels().len();
    for batch in epoch(images, 0) {
        let batch = batch.map_err(failure)?;
        let logits: Vec<f64> = model.logits(batch.pixels(device)).into_data().iter().collect();
        for (logits, &class) in logits.chunks(classes).zip(&batch.classes) {
            score.add(logits, class as usize);
        }
    }
    Ok(Scored { score, unreadable: images.unreadable().0 })
}

impl Scored {
    /// For scripts.
    pub fn json(&self) -> Value {
        let mut found = self.score.confusion.json();
        found["loss"] = json!(self.score.loss());
        found["top5"] = json!(self.score.top5());
        found["images"] = json!(self.score.confusion.count());
        found["unreadable"] = json!(self.unreadable);
        found
    }
}

/// Does what `--evaluate` asks for: tells how well a model classifies what is held out, or all where nothing is. `same`
/// refuses images of other classes than the model's, both by their names.
pub fn evaluate<B: Backend, M: ImageClassifier<B>>(
    args: &ImageArgs,
    published: &Published,
    preprocessor: impl FnOnce(&M) -> Result<Preprocessor, Exit>,
    same: impl FnOnce(&[String], &[String]) -> Result<(), Exit>,
    device: &B::Device,
) -> Result<Ended, Exit> {
    let (model, _) = M::from_path(&published.path, device, Some(args.run.device.dtype.into())).map_err(failure)?;
    let preprocessor = preprocessor(&model)?;
    let split = Split::open(args)?;
    let (data, batch_size) = (split.held_out.unwrap_or(split.training), args.training.batch_size);
    same(model.labels(), &data.labels)?;
    let size = output_size(&preprocessor, &model, &args.sizes, batch_size.min(data.examples.len()))?;
    tell_unheld(model.labels(), data.examples.iter().map(|example| example.class));
    let images = Images::new(data, batch_size, preprocessor, size).map_err(failure)?;
    let scored = score(&model, &images, device)?;
    check_finite(&model, [scored.score.loss()]).map_err(failure)?;
    if args.run.json {
        write_json(&scored.json())?;
        return Ok(Ended::Finished);
    }
    let score = &scored.score;
    let (images, accuracy) = (score.confusion.count(), 100.0 * score.confusion.accuracy());
    let (top5, loss) = (100.0 * score.top5(), score.loss());
    write_line(&format!("{images} images, {accuracy:.2} % right, top-5 {top5:.2} %, {loss:.4} nats an image"))?;
    write_line(&format!("\n{}", score.confusion.table()))?;
    Ok(Ended::Finished)
}
