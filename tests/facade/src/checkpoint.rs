//! Saving and loading a custom model.

use crate::mnist::Mlp;
use grove::{prelude::*, weights::WeightsError};
use std::path::Path;

/// Saves a model.
pub fn save(model: &Mlp<Flex>, file: &Path) -> Result<(), WeightsError> {
    save_tree(model, file)
}

/// Loads a model for images of `pixels` pixels.
pub fn load(pixels: usize, file: &Path) -> Result<Mlp<Flex>, WeightsError> {
    load_tree(Mlp::new(pixels, &Init::skeleton()), file, &Default::default())
}
