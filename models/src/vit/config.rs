use grove_files::{FileError, KnownKeys, read_json};
use grove_layers::Activation;
use grove_weights::TensorFiles;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::{Map, Value};
use std::path::Path;

use super::Family;
use crate::{
    checks::{check, check_classes, check_divisible, check_epsilon, check_initializer_range, check_rates, check_sizes},
    config_keys::{BACKBONES, check_others, is_default, is_one, unknown},
    error::{Result, invalid},
    pretrained::PretrainedConfig,
    problem_type::ProblemType,
};

/// Configuration of a ViT: the fields of transformers' `config.json`, and options for which it has no field. Fields
/// that are absent from a file default to the values of ViT base.
///
/// ```
/// use grove_models::{VitConfig, PretrainedConfig};
/// assert_eq!(VitConfig::preset("vit-base-patch16")?.num_hidden_layers, 12);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VitConfig {
    /// Model type in transformers.
    pub model_type: Family,
    /// Hidden size: the width of the hidden states.
    pub hidden_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Number of attention heads in a block; divides `hidden_size`.
    pub num_attention_heads: usize,
    /// Hidden width of the feed-forward layers.
    pub intermediate_size: usize,
    /// Activation of the feed-forward layers, by its name in transformers.
    pub hidden_act: String,
    /// If true, the feed-forward layers are gated by SiLU (SwiGLU; Shazeer, 2020).
    #[serde(rename = "use_swiglu_ffn", skip_serializing_if = "is_default")]
    pub swiglu: bool,
    /// Dropout rate of the embeddings and inside the blocks in training.
    pub hidden_dropout_prob: f64,
    /// Dropout rate of the attention weights in training.
    pub attention_probs_dropout_prob: f64,
    /// Stochastic-depth rate of the last block in training; earlier blocks have lower rates (Huang et al., 2016).
    #[serde(skip_serializing_if = "is_default")]
    pub drop_path_rate: f64,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
    /// Added to the variance in layer norms for numerical stability.
    pub layer_norm_eps: f64,
    /// Height and width in pixels of the images for which the position embeddings were trained. Other sizes are
    /// accepted too.
    #[serde(serialize_with = "write_size", deserialize_with = "read_size")]
    pub image_size: [usize; 2],
    /// Height and width of a patch, in pixels.
    pub patch_size: usize,
    /// Number of image channels.
    pub num_channels: usize,
    /// If true, the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Number of register tokens.
    #[serde(skip_serializing_if = "is_default")]
    pub num_register_tokens: usize,
    /// Initial value of layer scale (Touvron et al., 2021); `None` for no layer scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layerscale_value: Option<f64>,
    /// If true, the model has a class token.
    #[serde(skip_serializing_if = "is_true")]
    pub class_token: bool,
    /// Number of prefix tokens (class token, registers) that have a position embedding; usually 1, the class token.
    #[serde(skip_serializing_if = "is_one")]
    pub position_prefix: usize,
    /// Pooling, which computes the head's input.
    #[serde(skip_serializing_if = "is_default")]
    pub pooling: Pooling,
    /// Library whose tensor names are used for saving, and whose interpolation of position embeddings is used.
    #[serde(skip_serializing_if = "is_default")]
    pub naming: Naming,
    /// Class names. If empty, the model has no head and returns pooled features.
    #[serde(rename = "id2label", with = "crate::labels", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Other fields of the file, which are written back when saving.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

fn is_true(value: &bool) -> bool {
    *value
}

/// Writes a square size as one number, as transformers does.
fn write_size<S: Serializer>(size: &[usize; 2], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    if size[0] == size[1] { size[0].serialize(serializer) } else { size.serialize(serializer) }
}

fn read_size<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<[usize; 2], D::Error> {
    let value = Value::deserialize(deserializer)?;
    size_of(&value)
        .ok_or_else(|| D::Error::custom(format!("an image_size of {value}; give a number, or height and width")))
}

/// Parses a size, given as one number or as height and width.
pub(super) fn size_of(value: &Value) -> Option<[usize; 2]> {
    let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
    match value.as_array().map(Vec::as_slice) {
        None => number(value).map(|size| [size; 2]),
        Some([size]) => number(size).map(|size| [size; 2]),
        Some([height, width]) => Some([number(height)?, number(width)?]),
        Some(_) => None,
    }
}

/// Pooling, which computes the head's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// State of the class token.
    #[default]
    Class,
    /// Mean of the patches' states.
    Mean,
    /// Mean of the patches' states before the final norm, followed by the norm (timm's `fc_norm`).
    MeanThenNorm,
    /// State of the class token concatenated with the mean of the patches' states (DINOv2's classifiers).
    ClassAndMean,
}

/// Library whose tensor names are used for saving. Loading accepts all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// transformers 4 and 5.
    #[default]
    Transformers,
    /// timm, and DINOv2's own files.
    Timm,
    /// torchvision.
    Torchvision,
}

impl Default for VitConfig {
    /// ViT base with patches of 16 pixels and without a head.
    fn default() -> Self {
        Self {
            model_type: Family::Vit,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: "gelu".into(),
            swiglu: false,
            hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0,
            drop_path_rate: 0.0,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            image_size: [224, 224],
            patch_size: 16,
            num_channels: 3,
            qkv_bias: true,
            num_register_tokens: 0,
            layerscale_value: None,
            class_token: true,
            position_prefix: 1,
            pooling: Pooling::Class,
            naming: Naming::Transformers,
            labels: Vec::new(),
            other: Map::new(),
        }
    }
}

impl VitConfig {
    /// Returns the configuration with these classes.
    #[must_use]
    pub fn with_labels<S: Into<String>>(mut self, labels: impl IntoIterator<Item = S>) -> Self {
        // It described the logits of the previous classes.
        self.other.remove("problem_type");
        Self { labels: labels.into_iter().map(Into::into).collect(), ..self }
    }

    /// Returns a patch size that divides images of this height into seven or eight rows, for small models.
    pub fn patch_size_for(height: usize) -> usize {
        let parts = [7, 8].into_iter().find(|parts| height.is_multiple_of(*parts));
        parts.map_or(height.div_ceil(8), |parts| height / parts).max(1)
    }

    /// Returns the configuration without a class token: the head's input is the normalised mean of the patches. Such a
    /// model is saved with timm's names.
    #[must_use]
    pub fn with_mean_pooling(self) -> Self {
        let (pooling, naming) = (Pooling::MeanThenNorm, Naming::Timm);
        Self { class_token: false, position_prefix: 0, pooling, naming, ..self }
    }

    /// Returns the number of patch rows and columns for the configured image size.
    pub fn grid(&self) -> [usize; 2] {
        self.image_size.map(|size| size / self.patch_size)
    }

    /// Returns the number of prefix tokens: class token and registers.
    pub fn prefix_tokens(&self) -> usize {
        usize::from(self.class_token) + self.num_register_tokens
    }

    /// Returns the width of the head's input.
    pub fn pooled_size(&self) -> usize {
        if self.pooling == Pooling::ClassAndMean { 2 * self.hidden_size } else { self.hidden_size }
    }

    /// Returns the activation of the feed-forward layers.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the name is unknown.
    pub fn activation(&self) -> Result<Activation> {
        if self.swiglu {
            return Ok(Activation::Silu);
        }
        self.hidden_act.parse().or_else(invalid)
    }
}

/// Keys of the families' files that are not fields.
const KEYS: KnownKeys = KnownKeys {
    // The hidden width of DINOv2's feed-forward layers is computed from it.
    followed: &["mlp_ratio"],
    without_effect: &[
        ("encoder_stride", "of masked image modelling"),
        ("use_mask_token", "of masked image modelling"),
        ("pooler_act", "of a pooler, which classifiers lack"),
        ("pooler_output_size", "of a pooler, which classifiers lack"),
        ("apply_layernorm", BACKBONES),
        ("reshape_hidden_states", BACKBONES),
        ("stage_names", BACKBONES),
        ("out_features", BACKBONES),
        ("out_indices", BACKBONES),
        ("tie_word_embeddings", "of models of text"),
    ],
    refused: &[],
};

impl PretrainedConfig for VitConfig {
    fn read(file: &Path) -> Result<Self> {
        Ok(Self::from_json(read_json(file)?).map_err(|error| FileError::json(file, error.to_string()))?)
    }

    /// Returns the configuration of a checkpoint: transformers' `config.json` beside it, else the sizes inferred from
    /// the tensors' shapes, with timm's `config.json` if there is one. It has one label per class of the head.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file) and [`infer`](Self::infer);
    /// [`ModelError::Classes`](crate::ModelError::Classes) if a file names another number of classes than the head has;
    /// timm's `config.json` names an unsupported architecture; the number of attention heads is unknown.
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
        check_sizes(
            20,
            [
                ("hidden_size", self.hidden_size),
                ("num_hidden_layers", self.num_hidden_layers),
                ("num_attention_heads", self.num_attention_heads),
                ("intermediate_size", self.intermediate_size),
                ("image_size", self.image_size[0]),
                ("image_size", self.image_size[1]),
                ("patch_size", self.patch_size),
                ("num_channels", self.num_channels),
            ],
        )?;
        let ([height, width], patch, channels) = (self.image_size, self.patch_size, self.num_channels);
        check(patch <= 1 << 10 && channels <= 1 << 10, || {
            format!("patches of {patch} pixels and {channels} channels are too large")
        })?;
        check_divisible(("hidden_size", self.hidden_size), ("num_attention_heads", self.num_attention_heads))?;
        check(height >= patch && width >= patch, || {
            format!("images of {height}x{width} pixels have no patch of {patch}x{patch}")
        })?;
        let (layers, registers) = (self.num_hidden_layers, self.num_register_tokens);
        check(layers <= 10_000 && registers <= 1 << 20, || {
            format!("{layers} layers with {registers} registers are too many")
        })?;
        let (prefix, tokens) = (self.position_prefix, self.prefix_tokens());
        check([0, usize::from(self.class_token), tokens].contains(&prefix), || {
            format!("position_prefix is {prefix}, but there are only {tokens} tokens")
        })?;
        let needs_class_token = matches!(self.pooling, Pooling::Class | Pooling::ClassAndMean);
        check(self.class_token || !needs_class_token, || {
            "pooling needs the class token, but class_token is false".into()
        })?;
        check(self.naming != Naming::Transformers || self.transformers_has_it(), || {
            "naming is transformers, which has no such model: set it to timm".into()
        })?;
        check_others(&KEYS, &self.other)?;
        ProblemType::of_fields(&self.other, self.labels.len())?;
        check_epsilon("layer_norm_eps", self.layer_norm_eps)?;
        check_initializer_range(self.initializer_range)?;
        check_rates([
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
            ("drop_path_rate", self.drop_path_rate),
        ])?;
        check_classes(self.labels.len())?;
        self.activation().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretrained::fields_of;

    #[test]
    fn every_key_of_transformers_is_accounted_for() {
        for (class, family) in
            [("ViTConfig", "vit"), ("Dinov2Config", "dinov2"), ("Dinov2WithRegistersConfig", "dinov2_with_registers")]
        {
            let read = |mut fields: Map<String, Value>| {
                fields.entry("model_type").or_insert_with(|| family.into());
                VitConfig::from_json(fields).map_err(serde::de::Error::custom).map(|config| fields_of(&config).unwrap())
            };
            crate::keys::assert_accounts_for_as(class, &KEYS, read);
        }
    }

    #[test]
    fn impossible_ones_are_refused() {
        let base = VitConfig::default();
        base.validate().unwrap();
        let message = |config: VitConfig| config.validate().unwrap_err().to_string();
        assert!(message(VitConfig { num_attention_heads: 7, ..base.clone() }).contains("not divisible"));
        assert!(message(VitConfig { patch_size: 0, ..base.clone() }).contains("patch_size"));
        assert!(message(VitConfig { patch_size: 300, ..base.clone() }).contains("no patch of 300x300"));
        assert!(message(VitConfig { class_token: false, position_prefix: 0, ..base.clone() }).contains("class token"));
        assert!(message(VitConfig { position_prefix: 3, ..base.clone() }).contains("position_prefix"));
        assert!(message(VitConfig { drop_path_rate: 1.0, ..base.clone() }).contains("drop_path_rate"));
        assert!(message(VitConfig { hidden_act: "maxout".into(), ..base.clone() }).contains("maxout"));
        let pooled = VitConfig { pooling: Pooling::Mean, ..base };
        VitConfig { naming: Naming::Timm, ..pooled.clone() }.validate().unwrap();
        assert!(message(pooled).contains("set it to timm"));
    }
}
