//! Classification metrics and their report.

use grove::{
    images::{Preprocessor, datasets::LabelledImages},
    models::{check_finite, vision::ImageClassifier},
    prelude::*,
    train::{ClassifierScore, Ended, data::epoch},
};
use serde_json::{Value, json};

use super::{Images, loader::output_size};
use crate::{Exit, failure, labelled::tell_unheld, vision::SizeArgs, write_json, write_line};

/// Results of an evaluation.
pub struct Scored {
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

/// Does what `--evaluate` asks for: tells how well a model classifies what is held out, or all where nothing is.
pub fn evaluate<B: Backend, M: ImageClassifier<B>>(
    model: &M,
    data: LabelledImages,
    batch_size: usize,
    (preprocessor, sizes): (Preprocessor, &SizeArgs),
    as_json: bool,
    device: &B::Device,
) -> Result<Ended, Exit> {
    let size = output_size(&preprocessor, model, sizes, batch_size.min(data.examples.len()))?;
    tell_unheld(model.labels(), data.examples.iter().map(|example| example.class));
    let images = Images::new(data, batch_size, preprocessor, size).map_err(failure)?;
    let scored = score(model, &images, device)?;
    check_finite(model, [scored.score.loss()]).map_err(failure)?;
    print(&scored, as_json)?;
    Ok(Ended::Finished)
}

fn print(found: &Scored, as_json: bool) -> Result<(), Exit> {
    if as_json {
        return write_json(&found.json());
    }
    let score = &found.score;
    let (images, accuracy) = (score.confusion.count(), 100.0 * score.confusion.accuracy());
    let (top5, loss) = (100.0 * score.top5(), score.loss());
    write_line(&format!("{images} images, {accuracy:.2} % right, top-5 {top5:.2} %, {loss:.4} nats an image"))?;
    write_line(&format!("\n{}", score.confusion.table()))
}
