use grove_files::KnownKeys;
use grove_layers::Activation;
use grove_weights::TensorFiles;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

use crate::{
    checks::{check, check_classes, check_model_type, check_sizes},
    config_keys::{BACKBONES, check_others, is_default, is_one, unknown},
    error::{Result, invalid},
    pretrained::PretrainedConfig,
    problem_type::ProblemType,
};

/// `model_type` of networks whose weights have the names of timm or torchvision. transformers refuses it; it would find none of
/// the weights and use random ones.
pub(super) const OTHER_NAMES: &str = "grove_resnet";

/// Configuration of a ResNet: the fields of transformers' `config.json`, and options for which it has no field. Fields
/// that are absent from a file default to the values of ResNet-50.
///
/// ```
/// use grove_models::{ResNetConfig, PretrainedConfig};
/// assert_eq!(ResNetConfig::preset("resnet50")?.depths, [3, 4, 6, 3]);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResNetConfig {
    /// Number of image channels.
    pub num_channels: usize,
    /// Number of channels after the stem.
    pub embedding_size: usize,
    /// Number of channels after each stage.
    pub hidden_sizes: Vec<usize>,
    /// Number of blocks in each stage.
    pub depths: Vec<usize>,
    /// Kind of block.
    pub layer_type: LayerType,
    /// Activation of the stem and at the end of each block, by its name in transformers. Inside a block the activation
    /// is always `relu`, as in transformers.
    pub hidden_act: String,
    /// If true, the first stage also halves the height and width.
    pub downsample_in_first_stage: bool,
    /// If true, a bottleneck downsamples in its first convolution, as in the paper (v1). If false, it downsamples in
    /// its 3x3 convolution, as torchvision and later libraries do (v1.5).
    pub downsample_in_bottleneck: bool,
    /// Number of channels inside the bottlenecks of each stage; `None` means a quarter of `hidden_sizes`. Wide ResNets
    /// and ResNeXts have more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck_sizes: Option<Vec<usize>>,
    /// Groups of a bottleneck's 3x3 convolution: ResNeXt's cardinality.
    #[serde(skip_serializing_if = "is_one")]
    pub groups: usize,
    /// Kind of stem.
    #[serde(skip_serializing_if = "is_default")]
    pub stem: Stem,
    /// Library whose tensor names are used for saving.
    #[serde(skip_serializing_if = "is_default")]
    pub naming: Naming,
    /// Class names. If empty, the network has no head and returns pooled features.
    #[serde(rename = "id2label", with = "crate::labels", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Other fields of the file, which are written back when saving.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerType {
    /// Two 3x3 convolutions.
    Basic,
    /// A 1x1 convolution that reduces the channels, a 3x3 convolution, and a 1x1 convolution that restores them.
    Bottleneck,
}

/// Kind of stem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stem {
    /// A 7x7 convolution and max pooling, which reduce height and width to a quarter.
    #[default]
    Large,
    /// A 3x3 convolution that keeps height and width, for small images such as CIFAR's.
    Small,
}

/// Library whose tensor names are used for saving. Loading accepts all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// transformers.
    #[default]
    Transformers,
    /// torchvision and timm, whose names are the same.
    Torchvision,
}

impl Default for ResNetConfig {
    /// ResNet-50 without a head.
    fn default() -> Self {
        Self {
            num_channels: 3,
            embedding_size: 64,
            hidden_sizes: vec![256, 512, 1024, 2048],
            depths: vec![3, 4, 6, 3],
            layer_type: LayerType::Bottleneck,
            hidden_act: "relu".into(),
            downsample_in_first_stage: false,
            downsample_in_bottleneck: false,
            bottleneck_sizes: None,
            groups: 1,
            stem: Stem::Large,
            naming: Naming::Transformers,
            labels: Vec::new(),
            other: Map::new(),
        }
    }
}

impl ResNetConfig {
    /// Returns the configuration with these classes.
    #[must_use]
    pub fn with_labels<S: Into<String>>(mut self, labels: impl IntoIterator<Item = S>) -> Self {
        // It described the logits of the previous classes.
        self.other.remove("problem_type");
        Self { labels: labels.into_iter().map(Into::into).collect(), ..self }
    }

    /// Returns a network of basic blocks for images of this height, with torchvision's names. Images of less than 96
    /// pixels get the small stem.
    ///
    /// - `num_channels`: number of image channels
    /// - `hidden_sizes`, `depths`: number of channels and of blocks in each stage
    pub fn basic(num_channels: usize, height: usize, hidden_sizes: Vec<usize>, depths: Vec<usize>) -> Self {
        Self {
            num_channels,
            embedding_size: hidden_sizes.first().copied().unwrap_or_default(),
            hidden_sizes,
            depths,
            layer_type: LayerType::Basic,
            stem: if height < 96 { Stem::Small } else { Stem::Large },
            naming: Naming::Torchvision,
            ..Self::default()
        }
    }

    /// Returns the activation of the stem and at the end of each block.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the name is unknown.
    pub fn activation(&self) -> Result<Activation> {
        self.hidden_act.parse().or_else(invalid)
    }

    /// Returns the number of channels between the convolutions of a stage's blocks.
    pub fn inner_size(&self, stage: usize) -> usize {
        match (&self.bottleneck_sizes, self.layer_type) {
            (Some(sizes), LayerType::Bottleneck) => sizes[stage],
            (None, LayerType::Bottleneck) => self.hidden_sizes[stage] / 4,
            (_, LayerType::Basic) => self.hidden_sizes[stage],
        }
    }

    /// Returns the factor by which the last stage's output is smaller than the image, per dimension.
    pub fn reduction(&self) -> usize {
        let stem = if self.stem == Stem::Large { 4 } else { 1 };
        let halved = self.depths.len().saturating_sub(usize::from(!self.downsample_in_first_stage));
        stem << halved.min(32)
    }
}

/// Keys of transformers' files that are not fields.
const KEYS: KnownKeys = KnownKeys {
    followed: &[],
    without_effect: &[
        ("stage_names", BACKBONES),
        ("out_features", BACKBONES),
        ("out_indices", BACKBONES),
        ("tie_word_embeddings", "of models of text"),
    ],
    refused: &[],
};

impl PretrainedConfig for ResNetConfig {
    /// Returns the configuration of a checkpoint: transformers' `config.json` beside it or, without one (torchvision,
    /// timm), the sizes inferred from the tensors' shapes. It has one label per class of the head.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file) and [`infer`](Self::infer);
    /// [`ModelError::Classes`](crate::ModelError::Classes) if a file names another number of classes than the head has;
    /// timm's `config.json` names an unsupported architecture, such as `resnetblur50`.
    fn of(path: impl AsRef<Path>, checkpoint: &TensorFiles) -> Result<Self> {
        Self::of_checkpoint(path.as_ref(), checkpoint)
    }

    fn preset(name: &str) -> Result<Self> {
        Self::published_size(name)
    }

    fn unknown_keys(&self) -> Vec<&str> {
        unknown(&KEYS, &self.other)
    }

    fn validate(&self) -> Result<()> {
        if let Some(Value::String(found)) = self.other.get("model_type")
            && found != OTHER_NAMES
        {
            check_model_type(found, "resnet")?;
        }
        let stages = self.hidden_sizes.len();
        check((1..=16).contains(&stages), || {
            format!("hidden_sizes has {stages} stages; there must be between 1 and 16")
        })?;
        let bottlenecks = self.bottleneck_sizes.as_ref().map_or(stages, Vec::len);
        for (name, count) in [("depths", self.depths.len()), ("bottleneck_sizes", bottlenecks)] {
            check(count == stages, || format!("{name} has {count} stages, but hidden_sizes has {stages}"))?;
        }
        for depth in &self.depths {
            check((1..=1000).contains(depth), || {
                format!("a stage of depths has {depth} blocks; there must be between 1 and 1000")
            })?;
        }
        let inner: Vec<usize> = (0..stages).map(|stage| self.inner_size(stage)).collect();
        let single =
            [("num_channels", self.num_channels), ("embedding_size", self.embedding_size), ("groups", self.groups)];
        let of_stages = self.hidden_sizes.iter().map(|&size| ("a size of hidden_sizes", size));
        let of_bottlenecks = inner.iter().map(|&size| ("the width of a bottleneck", size));
        check_sizes(20, single.into_iter().chain(of_stages).chain(of_bottlenecks))?;
        let groups = self.groups;
        check(groups == 1 || self.layer_type != LayerType::Basic, || {
            format!("groups is {groups}; basic blocks have one group")
        })?;
        for size in inner {
            check(size.is_multiple_of(groups), || {
                format!("a bottleneck of {size} channels is not divisible into {groups} groups")
            })?;
        }
        self.activation()?;
        check_others(&KEYS, &self.other)?;
        ProblemType::of_fields(&self.other, self.labels.len())?;
        let beyond = groups > 1 || self.bottleneck_sizes.is_some() || self.stem != Stem::Large;
        check(self.naming != Naming::Transformers || !beyond, || {
            "naming is transformers, which has no such network: set it to torchvision".into()
        })?;
        check_classes(self.labels.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_transformers_is_accounted_for() {
        crate::keys::assert_accounts_for::<ResNetConfig>("ResNetConfig", &KEYS);
    }

    #[test]
    fn impossible_ones_are_refused() {
        let base = ResNetConfig::default();
        base.validate().unwrap();
        let message = |config: ResNetConfig| config.validate().unwrap_err().to_string();
        assert!(message(ResNetConfig { depths: vec![1], ..base.clone() }).contains("depths has 1 stages"));
        assert!(message(ResNetConfig { groups: 3, ..base.clone() }).contains("3 groups"));
        assert!(message(ResNetConfig { groups: 2, ..base.clone() }).contains("set it to torchvision"));
        assert!(message(ResNetConfig { hidden_act: "maxout".into(), ..base.clone() }).contains("'maxout'"));
        assert!(message(ResNetConfig { num_channels: 0, ..base.clone() }).contains("num_channels"));
        assert!(message(ResNetConfig { hidden_sizes: vec![2; 4], ..base.clone() }).contains("bottleneck"));
        assert!(message(ResNetConfig { embedding_size: 1 << 40, ..base.clone() }).contains("embedding_size"));
        let other = Map::from_iter([("model_type".to_owned(), "regnet".into())]);
        assert!(message(ResNetConfig { other, ..base.clone() }).contains("model_type is 'regnet'"));
        let few = ResNetConfig { hidden_sizes: vec![], depths: vec![], ..base };
        assert!(message(few).contains("between 1 and 16"));
    }
}
