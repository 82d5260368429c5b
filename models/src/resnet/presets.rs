use super::{LayerType, Naming, ResNetConfig};
use crate::{error::Result, pretrained::preset_sizes, vision::imagenet_labels};

impl ResNetConfig {
    /// Returns a published network by torchvision's name: `resnet18`, `resnet34`, `resnet50`, `resnet101`, `resnet152`,
    /// `wide_resnet50_2`, `wide_resnet101_2`, `resnext50_32x4d`, `resnext101_32x8d` or `resnext101_64x4d`, with
    /// ImageNet's 1000 classes.
    pub(super) fn published_size(name: &str) -> Result<Self> {
        use LayerType::{Basic, Bottleneck};
        // Block, depths, groups, and channels per group in the first stage's bottlenecks.
        let sizes = [
            ("resnet18", (Basic, [2, 2, 2, 2], 1, 64)),
            ("resnet34", (Basic, [3, 4, 6, 3], 1, 64)),
            ("resnet50", (Bottleneck, [3, 4, 6, 3], 1, 64)),
            ("resnet101", (Bottleneck, [3, 4, 23, 3], 1, 64)),
            ("resnet152", (Bottleneck, [3, 8, 36, 3], 1, 64)),
            ("wide_resnet50_2", (Bottleneck, [3, 4, 6, 3], 1, 128)),
            ("wide_resnet101_2", (Bottleneck, [3, 4, 23, 3], 1, 128)),
            ("resnext50_32x4d", (Bottleneck, [3, 4, 6, 3], 32, 4)),
            ("resnext101_32x8d", (Bottleneck, [3, 4, 23, 3], 32, 8)),
            ("resnext101_64x4d", (Bottleneck, [3, 4, 23, 3], 64, 4)),
        ];
        let (layer_type, depths, groups, width) = preset_sizes(name, &sizes)?;
        let expansion = if layer_type == Bottleneck { 4 } else { 1 };
        let stage = |scale: usize| (0..4).map(|stage| scale << stage).collect::<Vec<_>>();
        let plain = groups * width == 64;
        Ok(Self {
            hidden_sizes: stage(64 * expansion),
            depths: depths.to_vec(),
            layer_type,
            bottleneck_sizes: (!plain).then(|| stage(groups * width)),
            groups,
            // transformers has no configuration for wide ResNets and ResNeXts.
            naming: if plain { Naming::Transformers } else { Naming::Torchvision },
            labels: imagenet_labels(),
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pretrained, PretrainedConfig, ResNet};
    use burn_flex::Flex;
    use grove_tree::count_params;

    #[test]
    fn published_sizes_have_the_published_numbers_of_parameters() {
        // Counted by torchvision: `sum(p.numel() for p in model.parameters())`.
        let known = [
            ("resnet18", 11_689_512),
            ("resnet34", 21_797_672),
            ("resnet50", 25_557_032),
            ("resnet101", 44_549_160),
            ("resnet152", 60_192_808),
            ("wide_resnet50_2", 68_883_240),
            ("wide_resnet101_2", 126_886_696),
            ("resnext50_32x4d", 25_028_904),
            ("resnext101_32x8d", 88_791_336),
            ("resnext101_64x4d", 83_455_272),
        ];
        for (name, count) in known {
            let config = ResNetConfig::preset(name).unwrap();
            config.validate().unwrap();
            assert_eq!(count_params(&ResNet::<Flex>::skeleton(&config).unwrap()), count, "{name}");
        }
        assert!(ResNetConfig::preset("resnet51").unwrap_err().to_string().contains("resnext50_32x4d"));
    }
}
