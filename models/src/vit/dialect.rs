//! Conversion between [`VitConfig`] and the `config.json` of transformers and timm.

use serde_json::{Map, Value, json};

use super::{
    Family, Naming, Pooling, VitConfig,
    config::size_of,
    infer::{TIMM, sizes_of},
};
use crate::{
    error::{ModelError, Result},
    vision::{check_timm, timm_architecture, timm_labels, timm_line},
};

type Fields = Map<String, Value>;

/// `model_type` of models whose weights have the names of timm or torchvision.
const OTHER_NAMES: &str = "grove_vit";

/// Arguments of timm's models that are read here or determined by the weights' shapes.
const TIMM_ARGUMENTS: [&str; 16] = [
    "img_size",
    "patch_size",
    "embed_dim",
    "depth",
    "num_heads",
    "mlp_ratio",
    "qkv_bias",
    "init_values",
    "class_token",
    "reg_tokens",
    "no_embed_class",
    "fc_norm",
    "global_pool",
    "dynamic_img_size",
    "strict_img_size",
    "num_features",
];

/// Refuses a timm `config.json` with an unsupported architecture or argument.
pub(super) fn check_architecture(fields: &Fields) -> Result<()> {
    check_timm(fields, "ViT", TIMM, &TIMM_ARGUMENTS)
}

impl VitConfig {
    /// Reads transformers' `config.json` of a ViT or DINOv2.
    pub(super) fn from_json(mut fields: Fields) -> Result<Self> {
        let wrong = |reason: String| ModelError::Config { reason };
        let supported = ["vit", "dinov2", "dinov2_with_registers"];
        if fields.get("model_type").is_some_and(|kind| kind == OTHER_NAMES) {
            fields.insert("model_type".into(), "vit".into());
        }
        let family = fields.get("model_type").and_then(Value::as_str).unwrap_or("vit").to_owned();
        if !supported.contains(&&*family) {
            return Err(wrong(format!("model_type is '{family}'; known are {}", supported.join(", "))));
        }
        if let Some(Value::Array(patch)) = fields.get("patch_size") {
            let [height, width] = size_of(&Value::Array(patch.clone())).unwrap_or_default();
            if height != width {
                return Err(wrong(format!("patches of {height}x{width} pixels; only square ones are supported")));
            }
            fields.insert("patch_size".into(), height.into());
        }
        if family != "vit" {
            // DINOv2's defaults differ from ViT's.
            let mut missing = |name: &str, value: Value| fields.entry(name).or_insert(value).clone();
            missing("layer_norm_eps", 1e-6.into());
            missing("layerscale_value", 1.0.into());
            missing("pooling", "class_and_mean".into());
            if family == "dinov2_with_registers" {
                missing("num_register_tokens", 4.into());
            }
            let size = missing("hidden_size", 768.into()).as_u64();
            let ratio = missing("mlp_ratio", 4.into()).as_f64();
            let swiglu = missing("use_swiglu_ffn", false.into()).as_bool();
            if !fields.contains_key("intermediate_size") {
                let (Some(size), Some(ratio), Some(swiglu)) = (size, ratio, swiglu) else {
                    return Err(wrong(
                        "hidden_size and mlp_ratio must be numbers, use_swiglu_ffn true or false".into(),
                    ));
                };
                fields.insert("intermediate_size".into(), inner_size(size, ratio, swiglu).into());
            }
        }
        serde_json::from_value(Value::Object(fields)).map_err(|error| wrong(error.to_string()))
    }

    /// Applies timm's `config.json` to a configuration inferred from the weights' shapes. A file with
    /// `num_attention_heads` alone suffices, for torchvision models of unusual sizes.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the file names an unsupported architecture.
    pub(super) fn with_timm(mut self, fields: &Fields) -> Result<Self> {
        let wrong = |reason: String| ModelError::Config { reason };
        check_architecture(fields)?;
        let registered = timm_architecture(fields).and_then(|name| timm_line(TIMM, name));
        if let Some([_, _, heads]) = registered.and_then(|line| sizes_of(line.split_once(' ')?.1)) {
            self.num_attention_heads = heads;
        }
        let args = fields.get("model_args").and_then(Value::as_object);
        let said = |name: &str| args.and_then(|args| args.get(name)).or_else(|| fields.get(name));
        let heads = said("num_heads").or_else(|| said("num_attention_heads"));
        if let Some(heads) = heads.and_then(Value::as_u64) {
            self.num_attention_heads = heads as usize;
        }
        match said("global_pool").and_then(Value::as_str) {
            Some("token") if self.pooling == Pooling::MeanThenNorm => {
                return Err(wrong("fc_norm with a global_pool of 'token' is not supported; with 'avg' it is".into()));
            }
            None | Some("token" | "") => {}
            Some("avg") if self.pooling == Pooling::MeanThenNorm => {}
            Some("avg") => self.pooling = Pooling::Mean,
            Some(other) => return Err(wrong(format!("global_pool is '{other}'; known are token and avg"))),
        }
        // Without `img_size`, a model of fixed input size was built for the `input_size` of its weights.
        let cfg = fields.get("pretrained_cfg").and_then(Value::as_object).unwrap_or(fields);
        let fixed = cfg.get("fixed_input_size") == Some(&Value::Bool(true)) || self.grid()[0] == 1;
        let input = cfg.get("input_size").and_then(Value::as_array).filter(|size| fixed && size.len() == 3);
        let input = input.and_then(|size| size_of(&Value::Array(size[1..].to_vec())));
        if let Some(size) = said("img_size").and_then(size_of).or(input) {
            let [rows, columns] = size.map(|size| size / self.patch_size.max(1));
            let places = self.position_prefix + self.grid().iter().product::<usize>();
            // The shapes determine only the number of positions; a square grid was assumed.
            let prefix = rows.checked_mul(columns).and_then(|patches| places.checked_sub(patches));
            let possible = [0, usize::from(self.class_token), self.prefix_tokens()];
            if let Some(prefix) = prefix.filter(|prefix| possible.contains(prefix)) {
                (self.image_size, self.position_prefix) = (size, prefix);
            }
        }
        self.labels = timm_labels(fields);
        Ok(self)
    }

    /// Refuses a configuration with an unknown number of attention heads.
    pub(super) fn with_known_heads(self) -> Result<Self> {
        if self.num_attention_heads > 0 {
            return Ok(self);
        }
        Err(ModelError::Config {
            reason: format!(
                "no shape tells how many attention heads a model of width {} and {} blocks has, and no published one is so: \
                 write {{\"num_attention_heads\": N}} into a config.json beside the weights",
                self.hidden_size, self.num_hidden_layers
            ),
        })
    }

    /// Writes a `config.json`: transformers' if the weights have transformers' names. For others the `model_type` is one that
    /// transformers refuses, as it would find none of the weights and use random ones.
    pub(super) fn to_json(&self) -> Result<Fields> {
        let fields = serde_json::to_value(self).map_err(|error| ModelError::Config { reason: error.to_string() })?;
        let Value::Object(mut fields) = fields else {
            return Err(ModelError::Config { reason: "a configuration is no object".into() });
        };
        let labels = !self.labels.is_empty();
        let class = match self.model_type {
            Family::Vit => "ViT",
            Family::Dinov2 => "Dinov2",
            Family::Dinov2WithRegisters => "Dinov2WithRegisters",
        };
        let kind = if labels { "ForImageClassification" } else { "Model" };
        if self.naming == Naming::Transformers {
            fields.insert("architectures".into(), json!([format!("{class}{kind}")]));
        } else if self.model_type == Family::Vit {
            fields.insert("model_type".into(), OTHER_NAMES.into());
        }
        if self.model_type != Family::Vit && !fields.contains_key("mlp_ratio") {
            let (size, inner) = (self.hidden_size as u64, self.intermediate_size as u64);
            // transformers needs an integer ratio if an integer gives the right size.
            let ratio = (1..=8).find(|&ratio| inner_size(size, ratio as f64, self.swiglu) == inner);
            let exact = || json!(inner as f64 / size as f64 * if self.swiglu { 1.5 } else { 1.0 });
            fields.insert("mlp_ratio".into(), ratio.map_or_else(exact, |ratio| json!(ratio)));
        }
        Ok(fields)
    }

    /// Returns true if transformers has a model with this architecture.
    pub(super) fn transformers_has_it(&self) -> bool {
        let scaled = self.layerscale_value.is_some();
        let of_family = match self.model_type {
            Family::Vit => self.pooling == Pooling::Class && self.num_register_tokens == 0 && !scaled && !self.swiglu,
            Family::Dinov2 => self.num_register_tokens == 0 && scaled,
            Family::Dinov2WithRegisters => self.num_register_tokens > 0 && scaled,
        };
        of_family && self.class_token && self.position_prefix == 1
    }
}

/// Returns DINOv2's hidden width of a feed-forward layer. Gated layers have two thirds of it, rounded up to a multiple
/// of eight.
fn inner_size(hidden: u64, ratio: f64, swiglu: bool) -> u64 {
    let inner = (hidden as f64 * ratio) as u64;
    if swiglu { ((inner as f64 * 2.0 / 3.0) as u64).div_ceil(8) * 8 } else { inner }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_have_a_model_type_that_transformers_refuses() {
        let timm = VitConfig::default().with_mean_pooling();
        let fields = timm.to_json().unwrap();
        assert_eq!((fields.get("architectures"), &fields["model_type"]), (None, &json!("grove_vit")));
        assert_eq!(VitConfig::from_json(fields).unwrap().pooling, Pooling::MeanThenNorm);
        let fields = VitConfig::default().to_json().unwrap();
        assert_eq!((&fields["architectures"], &fields["model_type"]), (&json!(["ViTModel"]), &json!("vit")));
    }

    /// timm would apply that norm to the class token.
    #[test]
    fn a_norm_after_pooling_needs_a_mean() {
        let config = VitConfig { pooling: Pooling::MeanThenNorm, ..VitConfig::default() };
        let with = |pool: &str| {
            let fields =
                json!({"architecture": "vit_base_patch16_224", "global_pool": pool, "model_args": {"fc_norm": true}});
            config.clone().with_timm(fields.as_object().unwrap()).map(|config| config.pooling)
        };
        assert_eq!(with("avg").unwrap(), Pooling::MeanThenNorm);
        let error = with("token").unwrap_err().to_string();
        assert!(error.contains("fc_norm with a global_pool of 'token'"), "{error}");
    }
}
