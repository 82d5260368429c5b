//! The families of ViTs in transformers, and all differences between them: ViT, DINOv2, and DINOv2 with registers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Interpolation, Naming, Pooling, VitConfig, presets::size};
use crate::{
    error::{Result, invalid},
    pretrained::fields_of,
};

/// Model type in transformers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// ViT.
    #[default]
    Vit,
    /// DINOv2: with layer scale, and a head over the class token and the patches' mean.
    Dinov2,
    /// DINOv2 with registers.
    Dinov2WithRegisters,
}

/// Names and methods of a family in transformers.
pub(super) struct Facts {
    /// `model_type` in `config.json`, which is also the prefix of the backbone's tensors in a classifier.
    pub model_type: &'static str,
    /// Class name, without `ForImageClassification` or `Model`.
    pub class: &'static str,
    /// Interpolation of the position embeddings.
    pub interpolation: Interpolation,
    /// Names of a block's layer norms.
    pub norms: [&'static str; 2],
    /// Names of a block's feed-forward layers.
    pub mlp: [&'static str; 2],
    /// Names of a block's gated feed-forward layers; `None` if the family has none.
    pub swiglu: Option<[&'static str; 2]>,
    /// Names of a block's layer scales; `None` if the family has none.
    pub layer_scales: Option<[&'static str; 2]>,
}

/// Optional prefixes of all tensor names.
pub(super) const PREFIXES: [&str; 6] = ["", "vit.", "dinov2.", "dinov2_with_registers.", "module.", "model."];

const VIT: Facts = Facts {
    model_type: "vit",
    class: "ViT",
    interpolation: Interpolation::Plain,
    norms: ["layernorm_before", "layernorm_after"],
    mlp: ["intermediate.dense", "output.dense"],
    swiglu: None,
    layer_scales: None,
};

const DINOV2: Facts = Facts {
    model_type: "dinov2",
    class: "Dinov2",
    norms: ["norm1", "norm2"],
    mlp: ["mlp.fc1", "mlp.fc2"],
    swiglu: Some(["mlp.weights_in", "mlp.weights_out"]),
    layer_scales: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
    ..VIT
};

const DINOV2_WITH_REGISTERS: Facts = Facts {
    model_type: "dinov2_with_registers",
    class: "Dinov2WithRegisters",
    interpolation: Interpolation::Antialias,
    ..DINOV2
};

impl Family {
    /// All families.
    pub(super) const ALL: [Self; 3] = [Self::Vit, Self::Dinov2, Self::Dinov2WithRegisters];

    /// Returns the family of a `model_type`; `None` if it is unknown.
    pub(super) fn named(model_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.facts().model_type == model_type)
    }

    /// Returns the names and methods of the family.
    pub(super) fn facts(self) -> &'static Facts {
        match self {
            Self::Vit => &VIT,
            Self::Dinov2 => &DINOV2,
            Self::Dinov2WithRegisters => &DINOV2_WITH_REGISTERS,
        }
    }

    /// Returns the defaults of the family's configuration class.
    fn default_config(self) -> VitConfig {
        let vit = VitConfig { model_type: self, ..VitConfig::default() };
        if self == Self::Vit {
            return vit;
        }
        VitConfig {
            layer_norm_eps: 1e-6,
            layerscale_value: Some(1.0),
            num_register_tokens: if self == Self::Dinov2WithRegisters { 4 } else { 0 },
            pooling: Pooling::ClassAndMean,
            ..vit
        }
    }

    /// Adds the family's defaults to the fields of a `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if a field that determines `intermediate_size` has a wrong type.
    pub(super) fn add_defaults(self, fields: &mut Map<String, Value>) -> Result<()> {
        if self != Self::Vit {
            // DINOv2's class has a ratio in place of `intermediate_size`.
            let mut field = |name: &str, default: Value| fields.entry(name).or_insert(default).clone();
            let size = field("hidden_size", 768.into()).as_u64();
            let ratio = field("mlp_ratio", 4.into()).as_f64();
            let swiglu = field("use_swiglu_ffn", false.into()).as_bool();
            if !fields.contains_key("intermediate_size") {
                let (Some(size), Some(ratio), Some(swiglu)) = (size, ratio, swiglu) else {
                    return invalid("hidden_size and mlp_ratio must be numbers, use_swiglu_ffn true or false");
                };
                fields.insert("intermediate_size".into(), intermediate_size(size, ratio, swiglu).into());
            }
        }
        for (name, value) in fields_of(&self.default_config())? {
            fields.entry(name).or_insert(value);
        }
        Ok(())
    }
}

impl VitConfig {
    /// Returns the published size `dinov2-SIZE` or `dinov2-with-registers-SIZE`, without classes.
    pub(super) fn dinov2_preset(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("dinov2-")?;
        let (family, name) = match rest.strip_prefix("with-registers-") {
            Some(name) => (Family::Dinov2WithRegisters, name),
            None => (Family::Dinov2, rest),
        };
        let (size, swiglu) = match name {
            "giant" => ((1536, 40, 24), true),
            "small" | "base" | "large" => (size(name)?, false),
            _ => return None,
        };
        let config = Self { image_size: [518, 518], patch_size: 14, swiglu, ..family.default_config() };
        let intermediate_size = intermediate_size(size.0 as u64, 4.0, swiglu) as usize;
        Some(Self { intermediate_size, ..config.sized(size) }.with_pooling_of_backbone())
    }

    /// Returns the configuration with the pooling of DINOv2's backbones, the class token, if it has no head. The
    /// classifiers add the patches' mean.
    pub(super) fn with_pooling_of_backbone(mut self) -> Self {
        if self.labels.is_empty() && self.pooling == Pooling::ClassAndMean {
            self.pooling = Pooling::Class;
        }
        self
    }

    /// Returns the `mlp_ratio` of `intermediate_size`, for DINOv2's class; `None` for a ViT.
    pub(super) fn mlp_ratio(&self) -> Option<Value> {
        if self.model_type == Family::Vit {
            return None;
        }
        let (size, inner) = (self.hidden_size as u64, self.intermediate_size as u64);
        // transformers needs an integer ratio if an integer gives the right size.
        let ratio = (1..=8).find(|&ratio| intermediate_size(size, ratio as f64, self.swiglu) == inner);
        let exact = || json!(inner as f64 / size as f64 * if self.swiglu { 1.5 } else { 1.0 });
        Some(ratio.map_or_else(exact, |ratio| json!(ratio)))
    }

    /// Returns the interpolation of position embeddings of the library whose names the weights have.
    pub(super) fn interpolation(&self) -> Interpolation {
        match self.naming {
            Naming::Torchvision => Interpolation::AlignCorners,
            Naming::Timm => Interpolation::Antialias,
            Naming::Transformers => self.model_type.facts().interpolation,
        }
    }

    /// Returns true if transformers has a model with this architecture.
    pub(super) fn transformers_has_it(&self) -> bool {
        let (scaled, registers) = (self.layerscale_value.is_some(), self.num_register_tokens > 0);
        let of_family = match self.model_type {
            Family::Vit => self.pooling == Pooling::Class && !registers && !scaled && !self.swiglu,
            Family::Dinov2 => !registers && scaled,
            Family::Dinov2WithRegisters => registers && scaled,
        };
        of_family && self.class_token && self.position_prefix == 1
    }
}

/// Returns DINOv2's hidden width of a feed-forward layer. Gated layers have two thirds of it, rounded up to a multiple
/// of eight.
fn intermediate_size(hidden_size: u64, mlp_ratio: f64, swiglu: bool) -> u64 {
    let inner = (hidden_size as f64 * mlp_ratio) as u64;
    if swiglu { ((inner as f64 * 2.0 / 3.0) as u64).div_ceil(8) * 8 } else { inner }
}
