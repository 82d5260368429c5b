//! Images to train on, and images that are held out.

use clap::Args;
use grove::{
    images::datasets::{LabelledImages, open_labelled},
    prelude::*,
    train::{DataIdentity, data::split_by_class},
};
use std::path::{Path, PathBuf};

use crate::{Exit, failure, shipped, training::fraction};

/// Held-out data.
#[derive(Args, Debug)]
pub struct HeldOutArgs {
    /// Images for the evaluation, in the form of --data; without them, those that --data has for it, else some of its own
    #[arg(long, value_name = "PATH")]
    pub held_out: Option<PathBuf>,

    /// Fraction of each class that is held out, where no other data is; with 0 there is no evaluation
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: f64,
}

impl HeldOutArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), String> {
        fraction("val-fraction", self.val_fraction)
    }
}

/// Training data and held-out data.
pub struct Split {
    /// Training data.
    pub training: LabelledImages,
    /// Held-out data.
    pub held_out: Option<LabelledImages>,
}

impl Split {
    /// Reads what `--data` names, the digits that ship where it names nothing.
    pub fn open(data: Option<&Path>, asked: &HeldOutArgs, seed: u64) -> Result<Self, Exit> {
        let digits = shipped("digits");
        let (training, found) = open(data.unwrap_or(&digits))?;
        let held_out = match &asked.held_out {
            Some(path) => Some(open(path)?.0),
            None => found,
        };
        if let Some(held_out) = held_out {
            let held_out = held_out.relabelled(&training.labels).map_err(failure)?;
            return Ok(Self { training, held_out: Some(held_out) });
        }
        if asked.val_fraction == 0.0 {
            return Ok(Self { training, held_out: None });
        }
        let examples = training.examples.iter().map(|example| (example.class, example.clone())).collect();
        let key = Key::new(seed).fold_in(4);
        let (rest, held) = split_by_class(examples, asked.val_fraction, key);
        if held.is_empty() {
            return Err(failure(format!(
                "{} images are too few to hold out {} of each class: give more, or a larger --val-fraction, or 0",
                rest.len(),
                asked.val_fraction
            )));
        }
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
