//! Images to train on, and images that are held out.

use grove::{
    images::{
        Preprocessor,
        datasets::{LabelledImages, open_labelled},
    },
    models::{
        memory::{format_bytes, shortage},
        vision::ImageClassifier,
    },
};

use super::ImageArgs;
use crate::{labelled::hold_out, prelude::*, vision::SizeArgs};

/// Training data and held-out data.
pub struct Split {
    /// Training data.
    pub training: LabelledImages,
    /// Held-out data.
    pub held_out: Option<LabelledImages>,
}

impl Split {
    /// Reads what `--data` names, the digits that ship where it names nothing.
    pub fn open(args: &ImageArgs) -> Result<Self, Exit> {
        let path = args.data.clone().unwrap_or_else(|| shipped("digits"));
        let (training, found) = open(&path)?;
        let held_out = match &args.held_out {
            Some(path) => Some(open(path)?.0),
            None => found,
        };
        if let Some(held_out) = held_out {
            let held_out = held_out.relabelled(&training.labels)?;
            return Ok(Self { training, held_out: Some(held_out) });
        }
        if args.val_fraction == 0.0 {
            return Ok(Self { training, held_out: None });
        }
        let option = ("val-fraction", args.val_fraction);
        let examples = training.examples.clone();
        let (rest, held) = hold_out(examples, |example| example.class, option, args.run.seed, ("images", &[path]))?;
        let part = |examples| LabelledImages { examples, ..training.clone() };
        Ok(Self { held_out: Some(part(held)), training: part(rest) })
    }
}

/// The data set of a path, and its evaluation part.
fn open(path: &Path) -> Result<(LabelledImages, Option<LabelledImages>), Exit> {
    Ok(open_labelled(path, |warning| eprintln!("{warning}"))?)
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
    match shortage(bytes) {
        Some(available) => Err(failure(format!(
            "{batch_size} images of {}x{} pixels need {} of memory, and this machine has {} to give: choose a smaller \
             --image-size or --batch-size",
            size[0],
            size[1],
            format_bytes(bytes),
            format_bytes(available)
        ))),
        None => Ok(size),
    }
}
