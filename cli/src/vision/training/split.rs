//! Images to train on, and images that are held out.

use grove::{
    images::datasets::{LabelledImages, open_labelled},
    train::DataIdentity,
};
use std::path::Path;

use super::ImageArgs;
use crate::{Exit, failure, labelled::hold_out, shipped};

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
            let held_out = held_out.relabelled(&training.labels).map_err(failure)?;
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
    open_labelled(path, |warning| eprintln!("{warning}")).map_err(failure)
}

/// Identity of a data set.
pub fn identity(images: &LabelledImages) -> String {
    let mut identity = DataIdentity::new();
    images.hash_into(|part| identity.add(part));
    format!("{} images ({})", images.examples.len(), identity.finish())
}
