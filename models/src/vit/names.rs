use grove_weights::{NameMap, Step};

use super::{Naming, Pooling, VitConfig, family::PREFIXES};
use crate::names::Names;

/// Returns the published names of a model's tensors: those of transformers 4 and 5, of timm and DINOv2's own files, and
/// of torchvision. The configuration's [`Naming`] determines the names for saving.
pub fn published_names(config: &VitConfig) -> NameMap {
    let map =
        PREFIXES.iter().filter(|prefix| !prefix.is_empty()).fold(NameMap::new(), |map, prefix| map.prefix(prefix));
    let mut kinds = vec![Naming::Transformers, Naming::Timm, Naming::Torchvision];
    kinds.sort_by_key(|kind| *kind != config.naming);
    let mut names = Names::new(map);
    for kind in kinds {
        names = match kind {
            Naming::Transformers => names.transformers(config),
            Naming::Timm => names.timm(config),
            Naming::Torchvision => names.torchvision(config),
        };
        // The other names are used for loading only.
        names.alias = true;
    }
    names.map.ignore_each(&[
        ("embeddings.mask_token", SELF_SUPERVISED),
        ("mask_token", SELF_SUPERVISED),
        ("pooler.dense.*", "a pooler, which classifiers do not use"),
    ])
}

/// Reason for which the token of masked patches is not loaded.
const SELF_SUPERVISED: &str = "a token of self-supervised training";

const ATTENTION: [&str; 4] = [
    "blocks.{i}.attention.query",
    "blocks.{i}.attention.key",
    "blocks.{i}.attention.value",
    "blocks.{i}.attention.output",
];
const UP: &str = "blocks.{i}.mlp.up";
const DOWN: &str = "blocks.{i}.mlp.down";

impl Names {
    fn norm(self, name: &str, path: &str) -> Self {
        self.parts(name, path, &["weight", "bias"])
    }

    /// Adds several linear layers that are stored as one, such as query, key and value, under `{name}{separator}weight`
    /// and `{name}{separator}bias`.
    fn fused(mut self, name: &str, separator: &str, paths: &[&str]) -> Self {
        for (part, step) in [("weight", Some(Step::Transpose)), ("bias", None)] {
            let paths: Vec<String> = paths.iter().map(|path| format!("{path}.{part}")).collect();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            // A split is not used if the names before it exist in the file.
            self.map = self.map.split(&format!("{name}{separator}{part}"), 0, &paths);
            if let Some(step) = step {
                self.map = self.map.then(step);
            }
        }
        self
    }

    /// Adds a convolution whose kernel size equals its stride, as a matrix.
    fn patches(self, name: &str, config: &VitConfig) -> Self {
        let (c, p) = (config.num_channels as isize, config.patch_size as isize);
        self.tensor(&format!("{name}.weight"), "embeddings.patch_embed.weight")
            .then(Step::Reshape { from: vec![-1, c, p, p], to: vec![-1, c * p * p] })
            .then(Step::Transpose)
            .tensor(&format!("{name}.bias"), "embeddings.patch_embed.bias")
    }

    /// Adds a SwiGLU layer, whose gate and first linear layer are stored as one.
    fn swiglu(self, [first, second]: [impl AsRef<str>; 2]) -> Self {
        self.fused(first.as_ref(), ".", &["blocks.{i}.mlp.gate", UP]).linear(second.as_ref(), DOWN)
    }

    fn mlp(self, [first, second]: [impl AsRef<str>; 2]) -> Self {
        self.linear(first.as_ref(), UP).linear(second.as_ref(), DOWN)
    }

    fn norms(self, [first, second]: [impl AsRef<str>; 2]) -> Self {
        self.norm(first.as_ref(), "blocks.{i}.norm1").norm(second.as_ref(), "blocks.{i}.norm2")
    }

    fn layer_scales(self, [first, second]: [impl AsRef<str>; 2]) -> Self {
        self.tensor(first.as_ref(), "blocks.{i}.scale1").tensor(second.as_ref(), "blocks.{i}.scale2")
    }

    fn transformers(self, config: &VitConfig) -> Self {
        let (family, swiglu) = (config.model_type.facts(), config.swiglu);
        // With a head, the backbone's names have a prefix.
        let below = if config.labels.is_empty() { String::new() } else { format!("{}.", family.model_type) };
        let name = |name: &str| format!("{below}{name}");
        let old = |part: &str| format!("{below}encoder.layer.{{i}}.{part}");
        let new = |part: &str| format!("{below}layers.{{i}}.{part}");
        let mut names = self
            .tensor(&name("embeddings.cls_token"), "embeddings.cls_token")
            .tensor(&name("embeddings.register_tokens"), "embeddings.reg_token")
            .tensor(&name("embeddings.position_embeddings"), "embeddings.pos_embed")
            .patches(&name("embeddings.patch_embeddings.projection"), config);
        for (part, path) in ["query", "key", "value"].iter().zip(ATTENTION) {
            names = names.linear(&old(&format!("attention.attention.{part}")), path);
        }
        names = names.linear(&old("attention.output.dense"), ATTENTION[3]);
        names = match family.swiglu.filter(|_| swiglu) {
            Some(swiglu) => names.swiglu(swiglu.map(old)),
            None => names.mlp(family.mlp.map(old)),
        };
        names = names.norms(family.norms.map(old));
        if let Some(scales) = family.layer_scales {
            names = names.layer_scales(scales.map(old));
        }
        // transformers 5 has these module names, but still saves under the names above.
        names = names.aliases(|mut names| {
            for layer in [&old as &dyn Fn(&str) -> String, &new] {
                for (part, path) in ["q_proj", "k_proj", "v_proj", "o_proj"].iter().zip(ATTENTION) {
                    names = names.linear(&layer(&format!("attention.{part}")), path);
                }
                names = names
                    .mlp(["mlp.fc1", "mlp.fc2"].map(layer))
                    .linear(&layer("mlp.gate_proj"), "blocks.{i}.mlp.gate")
                    .mlp(["mlp.up_proj", "mlp.down_proj"].map(layer))
                    .norms(["layernorm_before", "layernorm_after"].map(layer));
            }
            names
        });
        names.norm(&name("layernorm"), "norm").head("classifier", &config.labels)
    }

    fn timm(self, config: &VitConfig) -> Self {
        let norm = if config.pooling == Pooling::MeanThenNorm { "fc_norm" } else { "norm" };
        let swiglu = config.swiglu;
        let names = self
            .tensor("cls_token", "embeddings.cls_token")
            .tensor("reg_token", "embeddings.reg_token")
            .tensor("pos_embed", "embeddings.pos_embed")
            .patches("patch_embed.proj", config)
            .norms(["blocks.{i}.norm1", "blocks.{i}.norm2"])
            .fused("blocks.{i}.attn.qkv", ".", &ATTENTION[..3])
            .linear("blocks.{i}.attn.proj", ATTENTION[3])
            .layer_scales(["blocks.{i}.ls1.gamma", "blocks.{i}.ls2.gamma"]);
        let mlp = ["blocks.{i}.mlp.fc1", "blocks.{i}.mlp.fc2"];
        let names = if swiglu { names.swiglu(mlp) } else { names.mlp(mlp) };
        // Names in DINOv2's own files.
        let names = names.aliases(|names| {
            let names = names.tensor("register_tokens", "embeddings.reg_token");
            if swiglu { names.swiglu(["blocks.{i}.mlp.w12", "blocks.{i}.mlp.w3"]) } else { names }
        });
        names.norm(norm, "norm").head("head", &config.labels)
    }

    fn torchvision(self, config: &VitConfig) -> Self {
        let layer = |part: &str| format!("encoder.layers.encoder_layer_{{i}}.{part}");
        self.tensor("class_token", "embeddings.cls_token")
            .tensor("encoder.pos_embedding", "embeddings.pos_embed")
            .patches("conv_proj", config)
            .norms(["ln_1", "ln_2"].map(layer))
            .fused(&layer("self_attention.in_proj"), "_", &ATTENTION[..3])
            .linear(&layer("self_attention.out_proj"), ATTENTION[3])
            .mlp(["mlp.0", "mlp.3"].map(layer))
            // Names in torchvision's first files.
            .aliases(|names| names.mlp(["mlp.linear_1", "mlp.linear_2"].map(layer)))
            .norm("encoder.ln", "norm")
            .head("heads.head", &config.labels)
    }
}
