//! Inference of a model's configuration from its tensors, for files without transformers' `config.json`.

use grove_weights::TensorFiles;

use super::{Family, Naming, Pooling, VitConfig, family::PREFIXES};
use crate::{
    error::{ModelError, Result},
    vision::{find_name, head_rows},
};

/// timm architectures that this model computes exactly. Each line has a name, the width, the number of blocks and the
/// number of attention heads. Made by tools/fixtures/timm_architectures.py.
pub(super) const TIMM: &str = include_str!("timm.txt");

impl Naming {
    /// Returns the naming convention of a checkpoint; `None` if it contains no ViT.
    pub fn of(checkpoint: &TensorFiles) -> Option<Self> {
        let has = |name: &str| find_name(checkpoint, &PREFIXES, name).is_some();
        match () {
            () if has("embeddings.patch_embeddings.projection.weight") => Some(Self::Transformers),
            () if has(TIMM_NAMES.patch) => Some(Self::Timm),
            () if has(TORCHVISION_NAMES.patch) => Some(Self::Torchvision),
            () => None,
        }
    }

    fn head(self) -> &'static str {
        match self {
            Self::Transformers => "classifier.weight",
            Self::Timm => "head.weight",
            Self::Torchvision => "heads.head.weight",
        }
    }
}

/// Returns the number of classes of a checkpoint's head, if it has one.
pub(super) fn classes(checkpoint: &TensorFiles, naming: Naming) -> Option<usize> {
    head_rows(checkpoint, &PREFIXES, naming.head())
}

/// Names of tensors whose shapes determine a configuration.
struct TensorNames {
    patch: &'static str,
    pos_embed: &'static str,
    /// The start of the names of blocks, before the index.
    blocks: &'static str,
    /// Names in a block, after the index. The file has one of `up`.
    norm1: &'static str,
    up: [&'static str; 2],
    qkv_bias: &'static str,
}

const TIMM_NAMES: TensorNames = TensorNames {
    patch: "patch_embed.proj.weight",
    pos_embed: "pos_embed",
    blocks: "blocks.",
    norm1: "norm1.weight",
    // The second is that of DINOv2's own files.
    up: ["mlp.fc1.weight", "mlp.w12.weight"],
    qkv_bias: "attn.qkv.bias",
};

const TORCHVISION_NAMES: TensorNames = TensorNames {
    patch: "conv_proj.weight",
    pos_embed: "encoder.pos_embedding",
    blocks: "encoder.layers.encoder_layer_",
    norm1: "ln_1.weight",
    // The second is that of torchvision's first files.
    up: ["mlp.0.weight", "mlp.linear_1.weight"],
    qkv_bias: "self_attention.in_proj_bias",
};

impl VitConfig {
    /// Infers the configuration from the shapes of a timm or torchvision checkpoint's tensors, without labels, assuming
    /// square images. Shapes do not determine `num_attention_heads`: it is that of the published models with this width
    /// and depth, or 0 if they disagree or there are none. The caller must set it in that case.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the tensors are not those of a supported ViT.
    pub fn infer(checkpoint: &TensorFiles) -> Result<Self> {
        let file = checkpoint.directory().display();
        let config_error = |reason: String| ModelError::Config { reason: format!("{file}: {reason}") };
        let shape = |name: &str| {
            let name = find_name(checkpoint, &PREFIXES, name)?;
            Some(checkpoint.info(&name).ok()?.shape)
        };
        let has = |name: &str| shape(name).is_some();
        let (naming, names) = match Naming::of(checkpoint) {
            Some(Naming::Timm) => (Naming::Timm, TIMM_NAMES),
            Some(Naming::Torchvision) => (Naming::Torchvision, TORCHVISION_NAMES),
            Some(Naming::Transformers) => {
                return Err(config_error("the weights are in transformers' format, but config.json is missing".into()));
            }
            None => {
                return Err(config_error(
                    "not a known ViT: it has none of `embeddings.patch_embeddings.projection.weight` (transformers), \
                     `patch_embed.proj.weight` (timm) and `conv_proj.weight` (torchvision)"
                        .into(),
                ));
            }
        };
        let block = |i: usize, part: &str| format!("{}{i}.{part}", names.blocks);
        let patch = names.patch;
        let [hidden_size, num_channels, patch_size, width] = shape(patch)
            .and_then(|shape| <[usize; 4]>::try_from(shape).ok())
            .ok_or_else(|| config_error(format!("`{patch}` does not have four axes")))?;
        if patch_size != width {
            return Err(config_error(format!(
                "patches of {patch_size}x{width} pixels; only square ones are supported"
            )));
        }
        let rows = |name: &str| shape(&block(0, name)).and_then(|shape| shape.first().copied());
        let columns = |name: &str| shape(&block(0, name)).and_then(|shape| shape.get(1).copied());
        let inner = names.up.into_iter().find_map(rows).ok_or_else(|| config_error("block 0 has no `mlp`".into()))?;
        let down = ["mlp.fc2.weight", "mlp.w3.weight"].into_iter().find_map(columns);
        let swiglu = naming == Naming::Timm && down == Some(inner / 2) && inner > 1;
        let layers = (0..10_000).take_while(|&i| has(&block(i, names.norm1))).count();
        let class_token = has("cls_token") || has("class_token");
        let registers = ["reg_token", "register_tokens"].into_iter().find_map(shape);
        let num_register_tokens = registers.and_then(|shape| shape.get(1).copied()).unwrap_or(0);
        let positions = shape(names.pos_embed).and_then(|shape| shape.get(1).copied());
        let positions = positions
            .ok_or_else(|| config_error(format!("`{}` is missing, or does not have three axes", names.pos_embed)))?;
        let (position_prefix, [height, width]) = grid(positions, usize::from(class_token), num_register_tokens);
        let mean = has("fc_norm.weight");
        Ok(Self {
            model_type: Family::Vit,
            hidden_size,
            num_hidden_layers: layers,
            num_attention_heads: published_heads(hidden_size, layers, class_token).unwrap_or(0),
            intermediate_size: if swiglu { inner / 2 } else { inner },
            swiglu,
            layer_norm_eps: 1e-6,
            image_size: [height.saturating_mul(patch_size), width.saturating_mul(patch_size)],
            patch_size,
            num_channels,
            qkv_bias: has(&block(0, names.qkv_bias)),
            num_register_tokens,
            layerscale_value: has(&block(0, "ls1.gamma")).then_some(1.0),
            class_token,
            position_prefix,
            pooling: match class_token {
                _ if mean => Pooling::MeanThenNorm,
                true => Pooling::Class,
                false => Pooling::Mean,
            },
            naming,
            ..Self::default()
        })
    }
}

/// Returns the number of prefix tokens with positions, and the rows and columns of the other positions. The grid is assumed
/// to be square; if no prefix leaves a square, it has one row.
fn grid(positions: usize, class: usize, registers: usize) -> (usize, [usize; 2]) {
    // Each library has its own number of prefix tokens with positions; take the one that leaves a square grid.
    let square = [class, 0, class + registers].into_iter().find_map(|prefix| {
        let patches = positions.checked_sub(prefix)?;
        let side = patches.isqrt();
        (side > 0 && side * side == patches).then_some((prefix, [side; 2]))
    });
    square.unwrap_or((class, [1, positions.saturating_sub(class)]))
}

/// Returns the number of attention heads of timm's models with this width and depth, with or without a class token, if
/// they agree. The models of torchvision and DINOv2 are among them.
fn published_heads(width: usize, layers: usize, class_token: bool) -> Option<usize> {
    let heads = |line: &str| {
        let (name, sizes) = line.split_once(' ')?;
        let [of_width, per_layer, heads] = sizes_of(sizes)?;
        let same = [of_width, per_layer] == [width, layers] && name.contains("_gap_") != class_token;
        (same && !name.starts_with("test_")).then_some(heads)
    };
    let mut found = TIMM.lines().filter_map(heads);
    let first = found.next()?;
    found.all(|heads| heads == first).then_some(first)
}

/// Parses width, blocks and heads in a line of [`TIMM`], after the name.
pub(super) fn sizes_of(sizes: &str) -> Option<[usize; 3]> {
    let numbers: Option<Vec<usize>> = sizes.split(' ').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes from the papers. I-JEPA's base model has 16 heads where others have 12.
    #[test]
    fn heads_match_published_sizes() {
        let known = [
            ([192, 12], 3),
            ([384, 12], 6),
            ([768, 12], 12),
            ([1024, 24], 16),
            ([1280, 32], 16),
            ([1408, 40], 16),
            ([1536, 40], 24),
        ];
        for ([width, layers], heads) in known {
            assert_eq!(published_heads(width, layers, true), Some(heads), "{width}");
        }
        assert_eq!(published_heads(768, 12, false), None);
        for (width, layers) in [(768, 8), (100, 12), (64, 6)] {
            assert_eq!(published_heads(width, layers, true), None, "{width}");
        }
        assert!(TIMM.lines().all(|line| line.split_once(' ').is_some_and(|(_, sizes)| sizes_of(sizes).is_some())));
    }
}
