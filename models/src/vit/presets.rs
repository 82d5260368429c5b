use super::VitConfig;
use crate::{
    error::{ModelError, Result},
    vision::imagenet_labels,
};

impl VitConfig {
    /// Returns a published size: `vit-SIZE-patchN` with `tiny`, `small`, `base`, `large` or `huge` and patches of 8,
    /// 14, 16 or 32 pixels, for images of 224 pixels and ImageNet's 1000 classes; or a backbone `dinov2-small`,
    /// `dinov2-base`, `dinov2-large` or `dinov2-giant`, each also as `dinov2-with-registers-SIZE`, without classes.
    pub(super) fn published_size(name: &str) -> Result<Self> {
        let unknown = || ModelError::UnknownPreset {
            name: name.into(),
            known: "vit-SIZE-patchN (tiny, small, base, large, huge; 8, 14, 16, 32), dinov2-SIZE and \
                    dinov2-with-registers-SIZE (small, base, large, giant)"
                .into(),
        };
        if let Some(config) = Self::dinov2_preset(name) {
            return Ok(config);
        }
        let (name, patch) = name.strip_prefix("vit-").and_then(|rest| rest.split_once("-patch")).ok_or_else(unknown)?;
        let patch_size = ["8", "14", "16", "32"].contains(&patch).then(|| patch.parse().ok()).flatten();
        let config = Self::default().sized(size(name).ok_or_else(unknown)?);
        Ok(Self { patch_size: patch_size.ok_or_else(unknown)?, labels: imagenet_labels(), ..config })
    }

    /// Returns the configuration with this width, number of blocks and number of heads.
    pub(super) fn sized(self, (hidden_size, num_hidden_layers, num_attention_heads): (usize, usize, usize)) -> Self {
        let intermediate_size = 4 * hidden_size;
        Self { hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, ..self }
    }
}

/// Returns width, number of blocks and number of heads of a size.
pub(super) fn size(name: &str) -> Option<(usize, usize, usize)> {
    Some(match name {
        "tiny" => (192, 12, 3),
        "small" => (384, 12, 6),
        "base" => (768, 12, 12),
        "large" => (1024, 24, 16),
        "huge" => (1280, 32, 16),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pretrained, PretrainedConfig, vit::Vit};
    use burn_flex::Flex;
    use grove_tree::count_params;

    #[test]
    fn published_sizes_have_the_published_numbers_of_parameters() {
        // Counted by timm; DINOv2 by transformers, without its mask token, which is for training only.
        let known = [
            ("vit-tiny-patch16", 5_717_416),
            ("vit-small-patch16", 22_050_664),
            ("vit-small-patch32", 22_878_952),
            ("vit-base-patch8", 86_576_872),
            ("vit-base-patch16", 86_567_656),
            ("vit-base-patch32", 88_224_232),
            ("vit-large-patch14", 304_203_752),
            ("vit-large-patch16", 304_326_632),
            ("vit-huge-patch14", 632_045_800),
            ("dinov2-small", 22_056_192),
            ("dinov2-base", 86_579_712),
            ("dinov2-large", 304_367_616),
            ("dinov2-giant", 1_136_479_232),
            ("dinov2-with-registers-base", 86_582_784),
        ];
        for (name, count) in known {
            let config = VitConfig::preset(name).unwrap();
            config.validate().unwrap();
            assert_eq!(count_params(&Vit::<Flex>::skeleton(&config).unwrap()), count, "{name}");
        }
        for name in ["vit-base", "vit-giant-patch14", "vit-base-patch9", "dinov2-tiny", "dinov3-base"] {
            assert!(VitConfig::preset(name).unwrap_err().to_string().contains("vit-SIZE-patchN"), "{name}");
        }
    }
}
