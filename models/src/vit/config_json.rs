//! Conversion between [`VitConfig`] and the `config.json` of transformers and timm.

use grove_files::{FileError, read_json};
use grove_weights::TensorFiles;
use serde_json::{Map, Value, json};
use std::path::Path;

use super::{
    Family, Naming, Pooling, VitConfig,
    config::size_of,
    infer::{TIMM, classes, sizes_of},
};
use crate::{
    checks::check,
    error::{Result, invalid},
    pretrained::{checked, config_beside, fields_of},
    vision::{check_timm, fit_labels, name_unknown_timm_keys, timm_architecture, timm_labels, timm_line},
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

/// Returns true if a `config.json` has transformers' fields, as opposed to timm's fields in transformers' wrapper.
fn is_of_transformers(fields: &Fields) -> bool {
    fields.get("model_type").is_some_and(|kind| kind != "timm_wrapper")
}

impl VitConfig {
    /// Returns the configuration of a checkpoint; see [`PretrainedConfig::of`](crate::PretrainedConfig::of).
    pub(super) fn of_checkpoint(path: &Path, checkpoint: &TensorFiles) -> Result<Self> {
        let file = config_beside(path);
        let fields: Option<Fields> = if file.exists() { Some(read_json(&file)?) } else { None };
        let mut config = match fields {
            Some(fields) if is_of_transformers(&fields) => Self::checked(&file, || Self::from_json(fields))?,
            Some(fields) => {
                // Reports an unsupported architecture before looking for its tensors.
                check_timm(&fields, "ViT", TIMM, &TIMM_ARGUMENTS)
                    .map_err(|error| FileError::json(&file, error.to_string()))?;
                let inferred = Self::infer(checkpoint)?;
                name_unknown_timm_keys(&fields, &file);
                Self::checked(&file, || inferred.with_timm(&fields)?.with_known_heads())?
            }
            None => Self::checked(path, || Self::infer(checkpoint)?.with_known_heads())?,
        };
        config.naming = Naming::of(checkpoint).unwrap_or(config.naming);
        config.labels = fit_labels(config.labels, classes(checkpoint, config.naming), &file)?;
        Ok(config.with_pooling_of_backbone())
    }

    /// Returns the configuration that a function makes from a file, checked. Errors name the file.
    fn checked(file: &Path, make: impl FnOnce() -> Result<Self>) -> Result<Self> {
        checked(make().map_err(|error| FileError::json(file, error.to_string()))?, file)
    }

    /// Reads transformers' `config.json` of a ViT or DINOv2.
    pub(super) fn from_json(mut fields: Fields) -> Result<Self> {
        if fields.get("model_type").is_some_and(|kind| kind == OTHER_NAMES) {
            fields.insert("model_type".into(), Family::Vit.facts().model_type.into());
        }
        let name = fields.get("model_type").and_then(Value::as_str).unwrap_or(Family::Vit.facts().model_type);
        let Some(family) = Family::named(name) else {
            let known = Family::ALL.map(|family| family.facts().model_type).join(", ");
            return invalid(format!("model_type is '{name}'; known are {known}"));
        };
        if let Some(Value::Array(patch)) = fields.get("patch_size") {
            let [height, width] = size_of(&Value::Array(patch.clone())).unwrap_or_default();
            check(height == width, || format!("patches of {height}x{width} pixels; only square ones are supported"))?;
            fields.insert("patch_size".into(), height.into());
        }
        family.add_defaults(&mut fields)?;
        serde_json::from_value(Value::Object(fields)).or_else(|error| invalid(error.to_string()))
    }

    /// Applies timm's `config.json`, which has been checked, to a configuration inferred from the weights' shapes. A file
    /// with `num_attention_heads` alone suffices, for torchvision models of unusual sizes.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if its `global_pool` is not supported.
    fn with_timm(mut self, fields: &Fields) -> Result<Self> {
        let registered = timm_architecture(fields).and_then(|name| timm_line(TIMM, name));
        if let Some([_, _, heads]) = registered.and_then(|line| sizes_of(line.split_once(' ')?.1)) {
            self.num_attention_heads = heads;
        }
        let args = fields.get("model_args").and_then(Value::as_object);
        let argument = |name: &str| args.and_then(|args| args.get(name)).or_else(|| fields.get(name));
        let heads = argument("num_heads").or_else(|| argument("num_attention_heads"));
        if let Some(heads) = heads.and_then(Value::as_u64) {
            self.num_attention_heads = heads as usize;
        }
        match argument("global_pool").and_then(Value::as_str) {
            Some("token") if self.pooling == Pooling::MeanThenNorm => {
                return invalid("fc_norm with a global_pool of 'token' is not supported; with 'avg' it is");
            }
            None | Some("token" | "") => {}
            Some("avg") if self.pooling == Pooling::MeanThenNorm => {}
            Some("avg") => self.pooling = Pooling::Mean,
            Some(other) => return invalid(format!("global_pool is '{other}'; known are token and avg")),
        }
        // Without `img_size`, a model of fixed input size was built for the `input_size` of its weights.
        let cfg = fields.get("pretrained_cfg").and_then(Value::as_object).unwrap_or(fields);
        let fixed = cfg.get("fixed_input_size") == Some(&Value::Bool(true)) || self.grid()[0] == 1;
        let input = cfg.get("input_size").and_then(Value::as_array).filter(|size| fixed && size.len() == 3);
        let input = input.and_then(|size| size_of(&Value::Array(size[1..].to_vec())));
        if let Some(size) = argument("img_size").and_then(size_of).or(input) {
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
    fn with_known_heads(self) -> Result<Self> {
        check(self.num_attention_heads > 0, || {
            format!(
                "the shapes do not determine the number of attention heads of a model with width {} and {} blocks, \
                 and no published model has these sizes: write {{\"num_attention_heads\": N}} into a config.json \
                 beside the weights",
                self.hidden_size, self.num_hidden_layers
            )
        })?;
        Ok(self)
    }

    /// Writes a `config.json`: transformers' if the weights have transformers' names. For others the `model_type` is one that
    /// transformers refuses, as it would find none of the weights and use random ones.
    pub(super) fn to_json(&self) -> Result<Fields> {
        let mut fields = fields_of(self)?;
        let kind = if self.labels.is_empty() { "Model" } else { "ForImageClassification" };
        if self.naming == Naming::Transformers {
            fields.insert("architectures".into(), json!([format!("{}{kind}", self.model_type.facts().class)]));
        } else if self.model_type == Family::Vit {
            fields.insert("model_type".into(), OTHER_NAMES.into());
        }
        if let Some(ratio) = self.mlp_ratio() {
            fields.entry("mlp_ratio").or_insert(ratio);
        }
        Ok(fields)
    }
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
