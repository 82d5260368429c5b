//! A checkpoint whose names and layout differ from the model's fields, saved and loaded by a name map.

use grove::prelude::*;
use grove::weights::{LoadOptions, NameMap, SaveOptions, Step, TensorFiles, WeightsError, load, save_model};
use std::path::Path;

/// Linear layers and a norm. In files they are `encoder.0.weight`, of shape `[out, in]`, and `ln.gamma`.
#[derive(Tree, Clone, Debug)]
#[allow(missing_docs)]
pub struct Probe<B: Backend> {
    pub layers: Vec<Linear<B>>,
    pub norm: RmsNorm<B>,
}

/// Creates a model; with `Init::skeleton()`, a model without values, for loading.
pub fn probe<B: Backend>(init: &Init<B>) -> Probe<B> {
    let layers = (0..2).map(|i| Linear::new(4, 4, init.fold_in(i))).collect();
    Probe { layers, norm: RmsNorm::new(4, 1e-6, init) }
}

/// Maps names in files to paths in the model.
pub fn names() -> NameMap {
    let names = NameMap::new().rule("ln.gamma", "norm.weight").rule("encoder.{i}.bias", "layers.{i}.bias");
    names.rule("encoder.{i}.weight", "layers.{i}.weight").then(Step::Transpose)
}

/// Loads a model.
pub fn open<B: Backend>(file: &Path, device: &B::Device) -> Result<Probe<B>, WeightsError> {
    Ok(load(probe(&Init::skeleton()), &TensorFiles::open(file)?, &names(), &LoadOptions::new(device))?.0)
}

/// Saves a model.
pub fn save<B: Backend>(model: &Probe<B>, file: &Path) -> Result<(), WeightsError> {
    save_model(model, &names(), file, &SaveOptions::default())
}
