//! Modules after the pooling.

use burn::tensor::{DType, Tensor};
use grove_backend::Backend;
use grove_files::{FileError, KnownKeys, RefusedKey, check_keys, read_json};
use grove_layers::{Activation, LayerNorm, Linear};
use grove_transform::eval_shape;
use grove_tree::{Init, Tree};
use grove_weights::{LoadOptions, NameMap, TensorFiles, load};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;

use crate::{error::Result, names::linear_names};

/// A module after the pooling, which maps vectors to vectors.
#[derive(Tree, Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "an encoder has a few of them")]
pub enum SentenceModule<B: Backend> {
    /// L2 normalisation.
    Normalize,
    /// Linear layer with an activation.
    Dense(Dense<B>),
    /// Layer normalisation.
    LayerNorm(LayerNorm<B>),
}

/// A linear layer with an activation and an optional residual connection.
#[derive(Tree, Clone, Debug)]
pub struct Dense<B: Backend> {
    /// Linear layer.
    pub linear: Linear<B>,
    /// Activation of the linear layer's output; `None` for the identity.
    #[tree(static)]
    pub activation: Option<Activation>,
    /// If true, the input is added to the output.
    pub use_residual: bool,
    /// Projection of the residual; `None` for the identity.
    pub residual: Option<Linear<B>>,
}

/// Keys of a module's `config.json` that name its input and output.
const PLACES: [RefusedKey; 2] = [
    RefusedKey {
        key: "module_input_name",
        neutral: &["\"sentence_embedding\""],
        instead: "a module after the pooling reads sentence_embedding",
    },
    RefusedKey {
        key: "module_output_name",
        neutral: &["\"sentence_embedding\""],
        instead: "a module after the pooling writes sentence_embedding",
    },
];

const NORMALIZE: KnownKeys = KnownKeys { followed: &[], without_effect: &[], refused: &PLACES };

const DENSE: KnownKeys = KnownKeys {
    followed: &["in_features", "out_features", "bias", "activation_function", "use_residual"],
    without_effect: &[],
    refused: &PLACES,
};

const LAYER_NORM: KnownKeys = KnownKeys { followed: &["dimension"], without_effect: &[], refused: &[] };

const DROPOUT: KnownKeys =
    KnownKeys { followed: &[], without_effect: &[("dropout", "dropout is for training alone")], refused: &[] };

#[derive(Deserialize)]
struct DenseConfig {
    in_features: usize,
    out_features: usize,
    bias: Option<bool>,
    activation_function: Option<String>,
    use_residual: Option<bool>,
}

#[derive(Deserialize)]
struct LayerNormConfig {
    dimension: usize,
}

/// Maximum side of a weight matrix.
const LARGEST: usize = 1 << 20;

impl<B: Backend> SentenceModule<B> {
    /// Applies the module.
    ///
    /// # Shapes
    /// - input `[b, in]`
    /// - output `[b, out]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            Self::Normalize => {
                let norm = (x.clone() * x.clone()).sum_dim(1).sqrt().clamp_min(1e-12); // [b, 1]
                x / norm
            }
            Self::Dense(dense) => dense.forward(x),
            Self::LayerNorm(norm) => norm.forward(x),
        }
    }

    /// Reads a module of the given class from its directory: `Normalize`, `Dense`, `LayerNorm` or `Dropout`, which has no
    /// effect at inference and gives `None`.
    pub(super) fn read(
        class: &str,
        directory: &Path,
        device: &B::Device,
        dtype: Option<DType>,
    ) -> Result<Option<Self>> {
        let options = LoadOptions { dtype: Some(pooled_dtype(dtype)), ..LoadOptions::new(device) };
        let file = directory.join("config.json");
        let fields =
            || -> Result<Map<String, Value>> { if file.is_file() { Ok(read_json(&file)?) } else { Ok(Map::new()) } };
        Ok(match class {
            "Normalize" => {
                check_keys(&NORMALIZE, &file, &fields()?)?;
                Some(Self::Normalize)
            }
            "Dropout" => {
                check_keys(&DROPOUT, &file, &fields()?)?;
                None
            }
            "Dense" => Some(Self::Dense(Dense::read(directory, &file, &options)?)),
            "LayerNorm" => {
                check_keys(&LAYER_NORM, &file, &read_json(&file)?)?;
                let LayerNormConfig { dimension } = read_json(&file)?;
                check_size(&file, "dimension", dimension)?;
                let names = NameMap::new().rule("norm.weight", "weight").rule("norm.bias", "bias");
                let norm = weights(directory, &names, &options, |init| LayerNorm::new(dimension, 1e-5, init))?;
                Some(Self::LayerNorm(norm))
            }
            other => unreachable!("{other} is not the class of a module after the pooling"),
        })
    }
}

impl<B: Backend> Dense<B> {
    #[track_caller]
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let y = self.linear.forward(x.clone());
        let y = match self.activation {
            Some(activation) => activation.forward(y),
            None => y,
        };
        match &self.residual {
            Some(residual) => y + residual.forward(x),
            None if self.use_residual => y + x,
            None => y,
        }
    }

    fn read(directory: &Path, file: &Path, options: &LoadOptions<B>) -> Result<Self> {
        check_keys(&DENSE, file, &read_json(file)?)?;
        let config: DenseConfig = read_json(file)?;
        let (inputs, outputs) = (config.in_features, config.out_features);
        check_size(file, "in_features", inputs)?;
        check_size(file, "out_features", outputs)?;
        let activation =
            activation(config.activation_function.as_deref().unwrap_or("torch.nn.modules.activation.Tanh"))
                .map_err(|reason| FileError::json(file, reason))?;
        let (bias, use_residual) = (config.bias.unwrap_or(true), config.use_residual.unwrap_or(false));
        let linear = |bias: bool, init: &Init<B>| {
            let linear = Linear::new(inputs, outputs, init);
            Linear::from_arrays(linear.weight, linear.bias.filter(|_| bias))
        };
        let names = linear_names(linear_names(NameMap::new(), "linear", "linear"), "residual", "residual");
        weights(directory, &names, options, |init| Self {
            linear: linear(bias, &init.named("linear")),
            activation,
            use_residual,
            residual: (use_residual && inputs != outputs).then(|| linear(false, &init.named("residual"))),
        })
    }
}

/// Returns the dtype of modules after the pooling: pooled vectors are at least f32.
fn pooled_dtype(dtype: Option<DType>) -> DType {
    if dtype == Some(DType::F64) { DType::F64 } else { DType::F32 }
}

/// Loads a module's weights from its directory.
fn weights<B: Backend, M: Tree<B>>(
    directory: &Path,
    names: &NameMap,
    options: &LoadOptions<B>,
    new: impl Fn(&Init<B>) -> M,
) -> Result<M> {
    Ok(load(eval_shape(new), &TensorFiles::open(directory)?, names, options)?.0)
}

fn check_size(file: &Path, name: &str, size: usize) -> Result<()> {
    if (1..=LARGEST).contains(&size) {
        return Ok(());
    }
    Err(FileError::json(file, format!("{name} is {size}; it must be between 1 and {LARGEST}")).into())
}

/// Returns the activation with this PyTorch class path; `None` for the identity.
fn activation(path: &str) -> std::result::Result<Option<Activation>, String> {
    let class = path.strip_prefix("torch.nn.").and_then(|path| path.rsplit('.').next());
    Ok(Some(match class {
        Some("Identity") => return Ok(None),
        Some("Tanh") => Activation::Tanh,
        Some("ReLU") => Activation::Relu,
        Some("GELU") => Activation::Gelu,
        Some("SELU") => Activation::Selu,
        Some("SiLU") => Activation::Silu,
        _ => {
            return Err(format!(
                "activation_function is '{path}', which is not supported; known are Identity, Tanh, ReLU, GELU, SELU and SiLU \
                 of torch.nn"
            ));
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Each key that sentence-transformers reads or writes is in one of the sets. Fixture: tools/fixtures/keys.py.
    #[test]
    fn every_key_of_the_modules_is_known() {
        let keys: BTreeMap<String, Vec<String>> =
            serde_json::from_str(include_str!("../../../tests/fixtures/keys.json")).unwrap();
        for (class, known) in
            [("Dense", &DENSE), ("Normalize", &NORMALIZE), ("LayerNorm", &LAYER_NORM), ("Dropout", &DROPOUT)]
        {
            let unknown: Vec<&String> = keys[class].iter().filter(|key| !known.knows(key)).collect();
            assert!(unknown.is_empty() && !keys[class].is_empty(), "{class}: {unknown:?}");
        }
    }
}
