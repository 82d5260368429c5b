//! Inference of a network's configuration from its tensors, for files without a `config.json`.

use grove_weights::TensorFiles;

use super::{LayerType, Naming, ResNetConfig, Stem};
use crate::{
    PretrainedConfig,
    error::{ModelError, Result},
    vision::{find_name, head_rows},
};

/// Optional prefixes of all names.
const PREFIXES: [&str; 4] = ["", "resnet.", "module.", "model."];

impl Naming {
    /// Returns the naming convention of a checkpoint; `None` if it contains no ResNet.
    pub fn of(checkpoint: &TensorFiles) -> Option<Self> {
        let has = |name: &str| find_name(checkpoint, &PREFIXES, name).is_some();
        match () {
            () if has("embedder.embedder.convolution.weight") => Some(Self::Transformers),
            () if has("conv1.weight") && has("layer1.0.conv1.weight") => Some(Self::Torchvision),
            () => None,
        }
    }

    /// Returns the name of the head's weight.
    fn head(self) -> &'static str {
        match self {
            Self::Transformers => "classifier.1.weight",
            Self::Torchvision => "fc.weight",
        }
    }
}

/// Returns the number of classes of a checkpoint's head, if it has one.
pub(super) fn classes(checkpoint: &TensorFiles, naming: Naming) -> Option<usize> {
    head_rows(checkpoint, &PREFIXES, naming.head())
}

impl ResNetConfig {
    /// Infers the configuration from the shapes of a checkpoint's tensors, without labels. Options that do not affect
    /// shapes are torchvision's: strides are those of v1.5.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the tensors are not those of a ResNet.
    pub fn infer(checkpoint: &TensorFiles) -> Result<Self> {
        let config_error = |reason: String| ModelError::Config { reason };
        let file = checkpoint.directory().display();
        if find_name(checkpoint, &PREFIXES, "conv1.0.weight").is_some() {
            return Err(config_error(format!("{file}: a deep stem, as ResNet-D has, is not supported")));
        }
        let naming = Naming::of(checkpoint).ok_or_else(|| {
            config_error(format!(
                "{file} is not a known ResNet: it has neither `conv1.weight` and `layer1.0.conv1.weight` \
                 (torchvision, timm) nor `embedder.embedder.convolution.weight` (transformers)"
            ))
        })?;
        let shape = |name: &str| {
            let name = find_name(checkpoint, &PREFIXES, name)?;
            let shape = checkpoint.info(&name).ok()?.shape;
            <[usize; 4]>::try_from(shape).ok()
        };
        let conv = |s: usize, j: usize, k: usize| {
            shape(&match naming {
                Naming::Transformers => format!("encoder.stages.{s}.layers.{j}.layer.{k}.convolution.weight"),
                Naming::Torchvision => format!("layer{}.{j}.conv{}.weight", s + 1, k + 1),
            })
        };
        let stem = shape(match naming {
            Naming::Transformers => "embedder.embedder.convolution.weight",
            Naming::Torchvision => "conv1.weight",
        });
        let [embedding_size, num_channels, kernel, _] = stem
            .ok_or_else(|| config_error(format!("{file}: the first convolution's weight does not have four axes")))?;
        let stem = match kernel {
            7 => Stem::Large,
            3 => Stem::Small,
            _ => {
                return Err(config_error(format!("{file}: a first convolution of {kernel} pixels; known are 7 and 3")));
            }
        };
        let depths: Vec<usize> = (0..16)
            .map(|s| (0..1000).take_while(|&j| conv(s, j, 0).is_some()).count())
            .take_while(|&depth| depth > 0)
            .collect();
        let layer_type = if conv(0, 0, 2).is_some() { LayerType::Bottleneck } else { LayerType::Basic };
        let last = if layer_type == LayerType::Bottleneck { 2 } else { 1 };
        let lacking = |s: usize| config_error(format!("{file}: stage {} has no complete block", s + 1));
        let outputs = |k: usize| {
            (0..depths.len())
                .map(|s| conv(s, 0, k).map(|shape| shape[0]).ok_or_else(|| lacking(s)))
                .collect::<Result<Vec<_>>>()
        };
        let (hidden_sizes, inner) = (outputs(last)?, outputs(1)?);
        let groups = match conv(0, 0, 1) {
            Some([out, each, ..]) if layer_type == LayerType::Bottleneck && each > 0 => out / each,
            _ => 1,
        };
        let plain = layer_type == LayerType::Basic || inner.iter().zip(&hidden_sizes).all(|(i, h)| *i == h / 4);
        let config = Self {
            num_channels,
            embedding_size,
            hidden_sizes,
            depths,
            layer_type,
            bottleneck_sizes: (!plain).then_some(inner),
            groups: groups.max(1),
            stem,
            naming,
            ..Self::default()
        };
        config.validate().map_err(|error| config_error(format!("{file}: {error}")))?;
        Ok(config)
    }
}
