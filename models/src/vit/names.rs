use grove_weights::{NameMap, Step};

use super::{Family, Naming, Pooling, VitConfig};

/// Optional prefixes of all names.
pub(super) const PREFIXES: [&str; 6] = ["", "vit.", "dinov2.", "dinov2_with_registers.", "module.", "model."];

/// Returns the published names of a model's tensors: those of transformers 4 and 5, of timm and DINOv2's own files, and
/// of torchvision. The configuration's [`Naming`] determines the names for saving.
pub fn published_names(config: &VitConfig) -> NameMap {
    let map =
        PREFIXES.iter().filter(|prefix| !prefix.is_empty()).fold(NameMap::new(), |map, prefix| map.prefix(prefix));
    let mut kinds = vec![Naming::Transformers, Naming::Timm, Naming::Torchvision];
    kinds.sort_by_key(|kind| *kind != config.naming);
    let mut names = Names { map, config, alias: false };
    for kind in kinds {
        names = match kind {
            Naming::Transformers => names.transformers(),
            Naming::Timm => names.timm(),
            Naming::Torchvision => names.torchvision(),
        };
        // The other names are used for loading only.
        names.alias = true;
    }
    // Tensors for self-supervised training only, and transformers' pooler, which classifiers do not use.
    names.map.ignore("embeddings.mask_token").ignore("mask_token").ignore("pooler.dense.*")
}

const ATTENTION: [&str; 4] = [
    "blocks.{i}.attention.query",
    "blocks.{i}.attention.key",
    "blocks.{i}.attention.value",
    "blocks.{i}.attention.output",
];

struct Names<'a> {
    map: NameMap,
    config: &'a VitConfig,
    /// If true, the names are used for loading only.
    alias: bool,
}

impl Names<'_> {
    fn tensor(mut self, name: &str, path: &str) -> Self {
        self.map = if self.alias { self.map.alias(name, path) } else { self.map.rule(name, path) };
        self
    }

    fn then(mut self, step: Step) -> Self {
        self.map = self.map.then(step);
        self
    }

    /// Adds a linear layer, which PyTorch stores as `[out, in]`.
    fn linear(self, name: &str, path: &str) -> Self {
        self.tensor(&format!("{name}.weight"), &format!("{path}.weight"))
            .then(Step::Transpose)
            .tensor(&format!("{name}.bias"), &format!("{path}.bias"))
    }

    fn norm(self, name: &str, path: &str) -> Self {
        ["weight", "bias"]
            .iter()
            .fold(self, |names, part| names.tensor(&format!("{name}.{part}"), &format!("{path}.{part}")))
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
    fn patches(self, name: &str) -> Self {
        let (c, p) = (self.config.num_channels as isize, self.config.patch_size as isize);
        self.tensor(&format!("{name}.weight"), "embeddings.patch.weight")
            .then(Step::Reshape { from: vec![-1, c, p, p], to: vec![-1, c * p * p] })
            .then(Step::Transpose)
            .tensor(&format!("{name}.bias"), "embeddings.patch.bias")
    }

    fn head(mut self, name: &str) -> Self {
        if self.config.labels.is_empty() {
            self.map = self.map.ignore(&format!("{name}.*"));
            return self;
        }
        self.linear(name, "head")
    }

    fn transformers(self) -> Self {
        let (family, swiglu) = (self.config.model_type, self.config.swiglu);
        // With a head, the backbone's names have a prefix.
        let below = match family {
            _ if self.config.labels.is_empty() => "",
            Family::Vit => "vit.",
            Family::Dinov2 => "dinov2.",
            Family::Dinov2WithRegisters => "dinov2_with_registers.",
        };
        let name = |name: &str| format!("{below}{name}");
        let old = |part: &str| format!("{below}encoder.layer.{{i}}.{part}");
        let new = |part: &str| format!("{below}layers.{{i}}.{part}");
        let mut names = self
            .tensor(&name("embeddings.cls_token"), "embeddings.class")
            .tensor(&name("embeddings.register_tokens"), "embeddings.registers")
            .tensor(&name("embeddings.position_embeddings"), "embeddings.positions")
            .patches(&name("embeddings.patch_embeddings.projection"));
        let saved = names.alias;
        for (part, path) in ["query", "key", "value"].iter().zip(ATTENTION) {
            names = names.linear(&old(&format!("attention.attention.{part}")), path);
        }
        names = names.linear(&old("attention.output.dense"), ATTENTION[3]);
        names = match family {
            Family::Vit => names
                .linear(&old("intermediate.dense"), "blocks.{i}.mlp.up")
                .linear(&old("output.dense"), "blocks.{i}.mlp.down")
                .norm(&old("layernorm_before"), "blocks.{i}.norm1")
                .norm(&old("layernorm_after"), "blocks.{i}.norm2"),
            _ if swiglu => names
                .fused(&old("mlp.weights_in"), ".", &["blocks.{i}.mlp.gate", "blocks.{i}.mlp.up"])
                .linear(&old("mlp.weights_out"), "blocks.{i}.mlp.down"),
            _ => names.linear(&old("mlp.fc1"), "blocks.{i}.mlp.up").linear(&old("mlp.fc2"), "blocks.{i}.mlp.down"),
        };
        if family != Family::Vit {
            names = names
                .norm(&old("norm1"), "blocks.{i}.norm1")
                .norm(&old("norm2"), "blocks.{i}.norm2")
                .tensor(&old("layer_scale1.lambda1"), "blocks.{i}.scale1")
                .tensor(&old("layer_scale2.lambda1"), "blocks.{i}.scale2");
        }
        // transformers 5 has these module names, but still saves under the names above.
        names.alias = true;
        for layer in [&old as &dyn Fn(&str) -> String, &new] {
            for (part, path) in ["q_proj", "k_proj", "v_proj", "o_proj"].iter().zip(ATTENTION) {
                names = names.linear(&layer(&format!("attention.{part}")), path);
            }
            names = names
                .linear(&layer("mlp.fc1"), "blocks.{i}.mlp.up")
                .linear(&layer("mlp.fc2"), "blocks.{i}.mlp.down")
                .linear(&layer("mlp.gate_proj"), "blocks.{i}.mlp.gate")
                .linear(&layer("mlp.up_proj"), "blocks.{i}.mlp.up")
                .linear(&layer("mlp.down_proj"), "blocks.{i}.mlp.down")
                .norm(&layer("layernorm_before"), "blocks.{i}.norm1")
                .norm(&layer("layernorm_after"), "blocks.{i}.norm2");
        }
        names.alias = saved;
        names.norm(&name("layernorm"), "norm").head("classifier")
    }

    fn timm(self) -> Self {
        let norm = if self.config.pooling == Pooling::MeanThenNorm { "fc_norm" } else { "norm" };
        let swiglu = self.config.swiglu;
        let names = self
            .tensor("cls_token", "embeddings.class")
            .tensor("reg_token", "embeddings.registers")
            .tensor("pos_embed", "embeddings.positions")
            .patches("patch_embed.proj")
            .norm("blocks.{i}.norm1", "blocks.{i}.norm1")
            .norm("blocks.{i}.norm2", "blocks.{i}.norm2")
            .fused("blocks.{i}.attn.qkv", ".", &ATTENTION[..3])
            .linear("blocks.{i}.attn.proj", ATTENTION[3])
            .tensor("blocks.{i}.ls1.gamma", "blocks.{i}.scale1")
            .tensor("blocks.{i}.ls2.gamma", "blocks.{i}.scale2");
        let mut names = if swiglu {
            let paths = ["blocks.{i}.mlp.gate", "blocks.{i}.mlp.up"];
            names.fused("blocks.{i}.mlp.fc1", ".", &paths).linear("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.down")
        } else {
            names.linear("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.up").linear("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.down")
        };
        let saved = std::mem::replace(&mut names.alias, true);
        // Names in DINOv2's own files.
        names = names.tensor("register_tokens", "embeddings.registers");
        if swiglu {
            names = names
                .fused("blocks.{i}.mlp.w12", ".", &["blocks.{i}.mlp.gate", "blocks.{i}.mlp.up"])
                .linear("blocks.{i}.mlp.w3", "blocks.{i}.mlp.down");
        }
        names.alias = saved;
        names.norm(norm, "norm").head("head")
    }

    fn torchvision(self) -> Self {
        let layer = |part: &str| format!("encoder.layers.encoder_layer_{{i}}.{part}");
        let names = self
            .tensor("class_token", "embeddings.class")
            .tensor("encoder.pos_embedding", "embeddings.positions")
            .patches("conv_proj")
            .norm(&layer("ln_1"), "blocks.{i}.norm1")
            .norm(&layer("ln_2"), "blocks.{i}.norm2")
            .fused(&layer("self_attention.in_proj"), "_", &ATTENTION[..3])
            .linear(&layer("self_attention.out_proj"), ATTENTION[3])
            .linear(&layer("mlp.0"), "blocks.{i}.mlp.up")
            .linear(&layer("mlp.3"), "blocks.{i}.mlp.down");
        let mut names = names;
        let saved = std::mem::replace(&mut names.alias, true);
        // Names in torchvision's first files.
        names = names
            .linear(&layer("mlp.linear_1"), "blocks.{i}.mlp.up")
            .linear(&layer("mlp.linear_2"), "blocks.{i}.mlp.down");
        names.alias = saved;
        names.norm("encoder.ln", "norm").head("heads.head")
    }
}
