//! Presets: preprocessing by name.

use super::{IMAGENET_MEAN, IMAGENET_STD, Preprocessor, Resize};
use crate::convention::ResampleCompat;
use crate::error::{ImageError, Result};
use crate::filter::Filter;

impl Preprocessor {
    /// Names of the presets; see [`preset`](Self::preset).
    pub const PRESETS: &[&str] = &["torchvision", "torchvision-v2", "vit", "timm", "timm-imagenet", "mnist", "cifar10"];

    /// Returns the preprocessing with a name:
    ///
    /// | name | resize | crop | mean, std |
    /// |---|---|---|---|
    /// | `torchvision` | shorter side 256, bilinear | 224 | ImageNet's |
    /// | `torchvision-v2` | shorter side 232, bilinear (`IMAGENET1K_V2` weights) | 224 | ImageNet's |
    /// | `vit` | 224×224, bilinear (transformers' ViT) | | 0.5, 0.5 |
    /// | `timm` | shorter side 248, bicubic (`crop_pct` 0.9: timm's ViT) | 224 | 0.5, 0.5 |
    /// | `timm-imagenet` | shorter side 235, bicubic (`crop_pct` 0.95: timm's ResNet) | 224 | ImageNet's |
    /// | `mnist` | 28×28, bilinear, grey | | 0.1307, 0.3081 |
    /// | `cifar10` | 32×32, bilinear | | CIFAR-10's |
    ///
    /// # Errors
    /// The name is unknown.
    pub fn preset(name: &str) -> Result<Self> {
        let base = Self {
            resize: Resize::Shorter(256),
            filter: Filter::Bilinear,
            crop: Some([224, 224]),
            crop_pct: None,
            convention: ResampleCompat::Torchvision,
            fill: [0; 3],
            rescale: 1.0 / 255.0,
            mean: IMAGENET_MEAN.to_vec(),
            std: IMAGENET_STD.to_vec(),
        };
        let half = Self { mean: vec![0.5; 3], std: vec![0.5; 3], ..base.clone() };
        Ok(match name {
            "torchvision" => base,
            "torchvision-v2" => Self { resize: Resize::Shorter(232), ..base },
            "vit" => Self {
                resize: Resize::Exact { height: 224, width: 224 },
                crop: None,
                convention: ResampleCompat::Transformers,
                ..half
            },
            "timm" => Self { resize: Resize::Shorter(248), filter: Filter::Bicubic, ..half },
            "timm-imagenet" => Self { resize: Resize::Shorter(235), filter: Filter::Bicubic, ..base },
            "mnist" => Self {
                resize: Resize::Exact { height: 28, width: 28 },
                crop: None,
                mean: vec![0.1307],
                std: vec![0.3081],
                ..base
            },
            "cifar10" => Self {
                resize: Resize::Exact { height: 32, width: 32 },
                crop: None,
                mean: vec![0.4914, 0.4822, 0.4465],
                std: vec![0.2470, 0.2435, 0.2616],
                ..base
            },
            _ => {
                let known = Self::PRESETS.join(", ");
                return Err(ImageError::BadOption(format!("unknown preprocessing `{name}`; known are {known}")));
            }
        })
    }
}
